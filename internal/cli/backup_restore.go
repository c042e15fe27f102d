package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newBackupRestoreCommand(file *string) *cobra.Command {
	var f transferFlags
	var at string
	c := &cobra.Command{
		Use:   "restore JOB [PATH...] DIR",
		Short: "Restore a backup, or parts of it",
		Long: `Restore gets what a job has backed up into DIR: all of it, or what PATH names below
the backup, each under its last name. Owners, modes, times, links and attributes
come back as they were. An
interrupted restore goes on where it stopped when it is run again.

Without --at it is the newest complete snapshot; a time means the newest one that is
not younger.`,
		Example: `  fxfer backup restore home /mnt/restored
  fxfer backup restore home --at 2026-11-20 etc/passwd home/ada /tmp/restored
  fxfer backup restore home --at 2026-11-20T020000Z -n /mnt/restored`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return usageError("usage: "+c.UseLine(), "where to?")
			}
			return needJob(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			if err := f.check(c.Flags()); err != nil {
				return err
			}
			if f.opt.TLS == (fxfer.TLS{}) && f.opt.Pin == "" {
				f.opt.TLS = j.TLS
			}
			var sources []fxfer.URL
			return transfer(c, &f, "received", resumes, func(ctx context.Context, client *fxfer.Client, call fxfer.Transfer) (*fxfer.Report, error) {
				snapshot, err := s.snapshotAt(ctx, j, at)
				if err != nil {
					return nil, err
				}
				if snapshot.Failed > 0 && !f.quiet {
					fmt.Fprintf(c.ErrOrStderr(), "fxfer: warning: %s lacks %s that failed when it was made\n", snapshot.Name, units.Count(snapshot.Failed, "entry", "entries"))
				}
				if sources, err = restored(j, snapshot.Name, args[1:len(args)-1]); err != nil {
					return nil, err
				}
				f.target = sources[0].Redacted()
				return client.Get(ctx, sources, strings.TrimSuffix(args[len(args)-1], "/")+"/", call)
			})
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	addParsed(flags, &at, "at", "when", "", "a snapshot's name, or a time: 2026-11-20, 2026-11-20 14:30, 7d", parseAt)
	flags.BoolVarP(&f.call.Target.DryRun, "dry-run", "n", false, "only list what would be done")
	flags.BoolVar(&f.call.Target.NumericIDs, "numeric-ids", false, "owner and group by number, not by name")
	flags.BoolVar(&f.call.Target.Checksum, "checksum", false, "compare content, not times, with what is there")
	f.addNetwork(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON lines on standard output")
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but errors")
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
	_, err := parseNewer(s, time.Now())
	return s, err
}

// snapshotAt returns the snapshot that a user means, one without a name of a mirror.
func (s *site) snapshotAt(ctx context.Context, j *backup.Job, at string) (none fxfer.Snapshot, err error) {
	if j.Mode == backup.Mirror {
		if at != "" {
			return none, usageError("leave --at out", "job %s is a mirror: it has only the newest backup", j.Name)
		}
		return none, nil
	}
	all, err := (&backup.Client{Home: s.home}).List(ctx, j)
	if err != nil {
		return none, err
	}
	if len(all) == 0 {
		return none, &fxfer.Error{Kind: fxfer.KindRemoteDisk, Err: fmt.Errorf("job %s has no complete snapshot", j.Name)}
	}
	if at == "" {
		return all[len(all)-1], nil
	}
	until, notName := snapshot.ParseName(at)
	named := notName == nil
	if !named {
		if until, err = parseNewer(at, time.Now().In(j.Zone)); err != nil {
			return none, usageError("", "--at: %w", err)
		}
		if len(at) == len(time.DateOnly) { // all of the day
			until = until.AddDate(0, 0, 1).Add(-time.Nanosecond)
		}
	}
	for _, x := range slices.Backward(all) {
		if named && x.Name == at || !named && !x.Time.After(until) {
			return x, nil
		}
	}
	return none, usageError("`fxfer backup snapshots "+j.Name+"` lists them", "job %s has no snapshot of %s; the oldest is %s", j.Name, at, all[0].Name)
}

// restored returns where paths of a backup are, or all of it.
func restored(j *backup.Job, snapshot string, paths []string) (sources []fxfer.URL, err error) {
	if len(paths) == 0 {
		u := j.Destination
		u.Path, u.TrailingSlash = path.Join(u.Path, snapshot), true
		return []fxfer.URL{u}, nil
	}
	for _, p := range paths {
		clean := path.Clean("/" + p)[1:]
		if clean == "" || strings.Contains("/"+p+"/", "/../") {
			return nil, usageError("for example: home/ada/mail", "%q is no path in a backup", p)
		}
		u := j.Destination
		u.Path, u.TrailingSlash = path.Join(u.Path, snapshot, clean), strings.HasSuffix(p, "/")
		sources = append(sources, u)
	}
	return sources, nil
}

func newBackupSnapshotsCommand(file *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "snapshots JOB",
		Short: "List a job's snapshots, and why each is kept",
		Args:  needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			return s.eachSnapshot(c, j, func(x fxfer.Snapshot, rules []string) {
				if asJSON {
					printJSON(c.OutOrStdout(), jsonSnapshot{"snapshot", x.Name, x.Time, rules, x.Failed})
					return
				}
				text := strings.Join(rules, ", ")
				if len(rules) == 0 {
					text = "to be removed"
				}
				if x.Failed > 0 {
					text += "; lacks " + units.Count(x.Failed, "entry", "entries") + " that failed"
				}
				fmt.Fprintf(c.OutOrStdout(), "%s  %s  %s\n", x.Name, x.Time.In(j.Zone).Format("Mon 2006-01-02 15:04"), text)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

type jsonSnapshot struct {
	Type   string    `json:"type"`
	Name   string    `json:"name"`
	Time   time.Time `json:"time"`
	KeptBy []string  `json:"kept_by"`
	Failed int64     `json:"entries_failed,omitempty"`
}

// eachSnapshot tells of each complete snapshot, the oldest first, and the rules that keep it.
func (s *site) eachSnapshot(c *cobra.Command, j *backup.Job, tell func(x fxfer.Snapshot, rules []string)) error {
	if j.Mode == backup.Mirror {
		return usageError("", "job %s is a mirror: it has no snapshots", j.Name)
	}
	ctx, stop := interruptible(c.Context())
	defer stop()
	all, err := within(ctx, func() ([]fxfer.Snapshot, error) { return (&backup.Client{Home: s.home}).List(ctx, j) })
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
	for _, x := range all {
		tell(x, rules[x.Name])
	}
	return nil
}

func newBackupPruneCommand(file *string) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune JOB",
		Short: "Remove the snapshots that a job's retention does not keep",
		Long: `Prune does what each good run does at its end. Where this machine may only append,
the server prunes by its own policy.`,
		Args: needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			if dryRun {
				return s.eachSnapshot(c, j, func(x fxfer.Snapshot, rules []string) {
					if len(rules) == 0 {
						fmt.Fprintf(c.OutOrStdout(), "delete    %s\n", x.Name)
					}
				})
			}
			if j.Mode == backup.Mirror {
				return usageError("", "job %s is a mirror: it has no snapshots", j.Name)
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			removed, err := (&backup.Client{Home: s.home}).Prune(ctx, j)
			for _, name := range removed {
				fmt.Fprintf(c.OutOrStdout(), "removed   %s\n", name)
			}
			if errors.Is(err, backup.ErrServerPrunes) {
				fmt.Fprintln(c.ErrOrStderr(), "fxfer: this machine may only append: the server removes snapshots by its own policy")
				return nil
			}
			return err
		},
	}
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list what would be removed")
	return c
}

func newBackupVerifyCommand(file *string) *cobra.Command {
	var at string
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "verify JOB",
		Short: "Have the server read snapshots again, and compare them with what was sent",
		Long: `Verify has the server read the newest snapshot, or others, from its disk, with low
priority, and compare all files with the digests noted when they came. "verify:" in
the file of jobs lets the daemon do so by a schedule.`,
		Args: needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			if j.Mode == backup.Mirror {
				return usageError("fxfer verify compares it with the source", "job %s is a mirror: it has no snapshots", j.Name)
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			r := s.runner(slog.New(slog.DiscardHandler))
			names, err := s.verified(ctx, r, j, at, all)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			scrub, err := within(ctx, func() (*backup.Scrub, error) {
				return r.Verify(ctx, j, names, func(snapshot string, d fxfer.Difference) {
					if asJSON {
						printJSON(out, map[string]any{"type": "difference", "snapshot": snapshot, "path": d.Path, "finding": d.Finding, "detail": d.Detail})
						return
					}
					fmt.Fprintf(out, "%-10s %s/%s\n", d.Finding, snapshot, pathAnd(d.Path, d.Detail))
				})
			})
			switch {
			case scrub == nil:
			case asJSON:
				printJSON(out, map[string]any{"type": "summary", "snapshots": scrub.Snapshots, "files": scrub.Files, "bytes": scrub.Bytes, "error": scrub.Error})
			case err == nil:
				fmt.Fprintf(out, "verified   %s, %s, %s\n", units.Count(int64(scrub.Snapshots), "snapshot", "snapshots"), units.Count(scrub.Files, "file", "files"), units.Bytes(scrub.Bytes))
			}
			return err
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	addParsed(flags, &at, "at", "when", "", "a snapshot's name, or a time: 2026-11-20, 2026-11-20 14:30, 7d", parseAt)
	flags.BoolVar(&all, "all", false, "all snapshots")
	flags.BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

// verified returns the snapshots that are to be read again.
func (s *site) verified(ctx context.Context, r *backup.Runner, j *backup.Job, at string, all bool) ([]string, error) {
	if all {
		return r.Courier.Snapshots(ctx, j)
	}
	snapshot, err := s.snapshotAt(ctx, j, at)
	return []string{snapshot.Name}, err
}
