package backup

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newRestore(file *string) *cobra.Command {
	f := transfer.Flags{Owners: true}
	var at string
	c := &cobra.Command{
		Use:               "restore JOB [PATH...] DIR",
		ValidArgsFunction: completeJobs(file, 1),
		Short:             "Restore a backup, or parts of it",
		Long: `Restore copies a backup of a job into DIR, or only the files and folders that
PATH names, each directly in DIR, without its parent folders. It also restores
owners, modes, times, links and attributes. Only --privileged restores setuid,
setgid, devices, and the attributes in security.* and trusted.*. To resume an
interrupted restore, run the same command again.

Without --at it restores the newest complete snapshot. If --at is a time, it
restores the newest snapshot from that time or before it. A date such as
2026-11-20 means the end of that day.

Files that the server's disk has damaged fail, whether a verification has found
them before or not. For each, an error names the snapshot with the newest
intact version, for --at.`,
		Example: `  fxfer backup restore home /mnt/restored
  fxfer backup restore home --at 2026-11-20 etc/passwd home/ada /tmp/restored
  fxfer backup restore home --at 2026-11-20T020000Z -n /mnt/restored`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 1:
				return exit.Usage("usage: "+c.UseLine(), "where to?")
			case len(args) > 1 && args[len(args)-1] == "-":
				return exit.Usage("./- is a folder of that name; `fxfer get URL -` writes one file to standard output", "restore needs a folder, not -")
			}
			return needJob(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			if j.Pulls() {
				return exit.Usage("copy what you need with cp -a, or send it to another host with `fxfer send`", "the backups of job %s are folders of this host: %s", j.Name, j.Target())
			}
			if err := f.Check(c.Flags()); err != nil {
				return err
			}
			if f.Opt.TLS == (fxfer.TLS{}) && f.Opt.Pin == "" {
				f.Opt.TLS = j.TLS
			}
			if !c.Flags().Changed("crypto") {
				f.Opt.StandardCrypto = s.standardCrypto
			}
			var sources []fxfer.URL
			return transfer.Run(c, &f, "received", transfer.Resumes, func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
				snapshot, err := s.snapshotAt(ctx, j, at)
				if err != nil {
					return nil, err
				}
				if snapshot.Failed > 0 && !f.Quiet {
					fmt.Fprintf(c.ErrOrStderr(), "fxfer: warning: %s lacks %s that failed when it was made\n", snapshot.Name, units.Count(snapshot.Failed, "entry", "entries"))
				}
				if sources, err = restored(j, snapshot.Name, args[1:len(args)-1]); err != nil {
					return nil, err
				}
				f.Target = sources[0].Redacted()
				return client.Get(ctx, sources, strings.TrimSuffix(args[len(args)-1], "/")+"/", call)
			})
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &at, "at", "when", "", "name of a snapshot, or a time: 2026-11-20, 2026-11-20 14:30, 7d", parseAt)
	_ = c.RegisterFlagCompletionFunc("at", completeAt(file)) // fails only for unknown flags
	flags.BoolVarP(&f.Call.Target.DryRun, "dry-run", "n", false, "only list what would change")
	flags.BoolVar(&f.Call.Target.NumericIDs, "numeric-ids", false, "map owner and group by number, not by name")
	f.AddPrivileged(flags)
	flags.BoolVarP(&f.Call.Target.Checksum, "checksum", "c", false, "compare content instead of size and time")
	f.AddNetwork(flags)
	f.AddOutput(flags)
	return c
}

func openJob(file, name string) (*site, *backup.Job, error) {
	s, err := openSite(file)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := s.jobs([]string{name})
	if err != nil {
		return nil, nil, err
	}
	return s, jobs[0], nil
}

func parseAt(s string) (string, error) {
	if _, err := snapshot.ParseName(s); err == nil {
		return s, nil
	}
	_, err := option.ParseNewer(s, time.Now())
	return s, err
}

// snapshotAt returns the snapshot that the user asked for. A mirror has no snapshots: then the
// result has no name.
func (s *site) snapshotAt(ctx context.Context, j *backup.Job, at string) (none fxfer.Snapshot, err error) {
	if j.Mode == backup.Mirror {
		if at != "" {
			return none, exit.Usage("leave --at out", "job %s is a mirror: it has only the newest backup", j.Name)
		}
		return none, nil
	}
	all, err := s.client().Snapshots(ctx, j)
	if err != nil {
		return none, err
	}
	if len(all) == 0 {
		return none, &fxfer.Error{Kind: fxfer.KindNotFound, Err: fmt.Errorf("job %s has no complete snapshot", j.Name)}
	}
	if at == "" {
		return all[len(all)-1], nil
	}
	until, notName := snapshot.ParseName(at)
	named := notName == nil
	if !named {
		if until, err = option.ParseNewer(at, time.Now().In(j.Zone)); err != nil {
			return none, exit.Usage("", "--at: %w", err)
		}
		if len(at) == len(time.DateOnly) { // the whole day
			until = until.AddDate(0, 0, 1).Add(-time.Nanosecond)
		}
	}
	for _, x := range slices.Backward(all) {
		if named && x.Name == at || !named && !x.Time.After(until) {
			return x, nil
		}
	}
	return none, exit.Usage("`fxfer backup snapshots "+j.Name+"` lists them", "job %s has no snapshot of %s; the oldest is %s", j.Name, at, all[0].Name)
}

// restored returns the URLs of the given paths in a backup, or of the whole backup if there are no
// paths.
func restored(j *backup.Job, snapshot string, paths []string) (sources []fxfer.URL, err error) {
	if len(paths) == 0 {
		u := j.Destination
		u.Path, u.TrailingSlash = path.Join(u.Path, snapshot), true
		return []fxfer.URL{u}, nil
	}
	last := map[string]bool{}
	for _, p := range paths {
		clean := path.Clean("/" + p)[1:]
		if clean == "" || strings.Contains("/"+p+"/", "/../") {
			return nil, exit.Usage("for example: home/ada/mail", "%q is not a path in a backup", p)
		}
		if !strings.HasSuffix(p, "/") {
			if name := path.Base(clean); last[name] {
				return nil, exit.Usage("restore them one after the other, into different folders", "two paths have the same last name, %q", name)
			}
			last[path.Base(clean)] = true
		}
		u := j.Destination
		u.Path, u.TrailingSlash = path.Join(u.Path, snapshot, clean), strings.HasSuffix(p, "/")
		sources = append(sources, u)
	}
	return sources, nil
}

// byServer stands for the rules of a server that removes snapshots by its own policy.
const byServer = "server"

// eachSnapshot calls tell with each complete snapshot, oldest first, and the rules that keep it. If
// the server decides that, the rule is byServer.
func (s *site) eachSnapshot(c *cobra.Command, j *backup.Job, tell func(x fxfer.Snapshot, rules []string)) error {
	if j.Mode == backup.Mirror {
		return exit.Usage("", "job %s is a mirror: it has no snapshots", j.Name)
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	prunes := false
	all, err := exit.Within(ctx, func() (all []fxfer.Snapshot, err error) {
		client := s.client()
		if prunes, err = client.ServerPrunes(ctx, j); err == nil {
			all, err = client.Snapshots(ctx, j)
		}
		return all, err
	})
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.Name
	}
	rules := map[string][]string{}
	keep, _ := j.Keep.Decide(names, j.Zone)
	for _, k := range keep {
		rules[k.Name] = k.Rules
	}
	if prunes {
		rules = map[string][]string{}
		for _, name := range names {
			rules[name] = []string{byServer}
		}
	}
	for _, x := range all {
		if x.LastIntact {
			rules[x.Name] = append(rules[x.Name], "intact")
		}
		tell(x, rules[x.Name])
	}
	return nil
}

// toVerify returns the names of the snapshots to verify.
func (s *site) toVerify(ctx context.Context, r *backup.Runner, j *backup.Job, at string, all bool) (names []string, err error) {
	if all {
		snapshots, err := r.Transferrer.Snapshots(ctx, j)
		for _, x := range snapshots {
			names = append(names, x.Name)
		}
		return names, err
	}
	snapshot, err := s.snapshotAt(ctx, j, at)
	return []string{snapshot.Name}, err
}
