package backup

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newSnapshots(file *string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "snapshots JOB",
		ValidArgsFunction: completeJobs(file, 1),
		Short:             "List a job's snapshots, and why each is kept",
		Long: `Snapshots lists the snapshots of a job, with their times in the job's time zone,
and with the rules of "keep" that keep each. "intact" keeps a snapshot with the
last intact version of a file whose newer versions are damaged at the server. A
run that sends the file again ends that. If this machine may only append, the
server removes snapshots by its own policy; then all are "kept by the server".`,
		Args: needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			return s.eachSnapshot(c, j, func(x fxfer.Snapshot, rules []string) {
				if asJSON {
					term.JSON(c.OutOrStdout(), jsonSnapshot{"snapshot", x.Name, x.Time, rules, x.Failed, x.Damaged})
					return
				}
				text := "kept by " + strings.Join(rules, ", ")
				switch {
				case len(rules) == 0:
					text = "to be removed"
				case slices.Contains(rules, byServer):
					text = "kept by the server"
				}
				if x.Failed > 0 {
					text += "; lacks " + units.Count(x.Failed, "entry", "entries") + " that failed"
				}
				if x.Damaged > 0 {
					text += "; " + units.Count(x.Damaged, "damaged file", "damaged files")
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
	// Damaged counts the files that are known to be damaged at the server.
	Damaged int64 `json:"files_damaged,omitempty"`
}

func newPrune(file *string) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:               "prune JOB",
		ValidArgsFunction: completeJobs(file, 1),
		Short:             "Remove the snapshots that a job's retention does not keep",
		Long: `Prune removes old snapshots, as each good run does at its end. Where this
machine may only append, the server prunes by its own policy instead.`,
		Args: needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			sayServerPrunes := sync.OnceFunc(func() {
				fmt.Fprintln(c.ErrOrStderr(), "fxfer: this machine may only append: the server removes snapshots by its own policy")
			})
			sayNone := func() {
				fmt.Fprintln(c.ErrOrStderr(), "fxfer: nothing to remove: the retention keeps all snapshots")
			}
			if dryRun {
				none := true
				err := s.eachSnapshot(c, j, func(x fxfer.Snapshot, rules []string) {
					switch {
					case slices.Contains(rules, byServer):
						none = false
						sayServerPrunes()
					case len(rules) == 0:
						none = false
						fmt.Fprintf(c.OutOrStdout(), "delete    %s\n", x.Name)
					}
				})
				if err == nil && none {
					sayNone()
				}
				return err
			}
			if j.Mode == backup.Mirror {
				return exit.Usage("", "job %s is a mirror: it has no snapshots", j.Name)
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			removed, err := s.client().Prune(ctx, j)
			for _, name := range removed {
				fmt.Fprintf(c.OutOrStdout(), "removed   %s\n", name)
			}
			if errors.Is(err, backup.ErrServerPrunes) {
				sayServerPrunes()
				return nil
			}
			if err == nil && len(removed) == 0 {
				sayNone()
			}
			return err
		},
	}
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list what would be removed")
	return c
}

func newVerify(file *string) *cobra.Command {
	var at string
	var all, asJSON bool
	c := &cobra.Command{
		Use:               "verify JOB",
		ValidArgsFunction: completeJobs(file, 1),
		Short:             "Check snapshots on the server's disk",
		Long: `Verify lets the server read the newest snapshot from its disk, with low
priority, and compare all files with the digests that it recorded when they
arrived. --at and --all choose other snapshots. With "verify:" in the file of
jobs, the daemon does this on a schedule.

The server notes damaged files. It refuses to restore them, and the next run
sends them again.`,
		Args: needJob,
		RunE: func(c *cobra.Command, args []string) error {
			s, j, err := openJob(*file, args[0])
			if err != nil {
				return err
			}
			if j.Mode == backup.Mirror {
				return exit.Usage("fxfer verify compares it with the source", "job %s is a mirror: it has no snapshots", j.Name)
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			r := s.runner(slog.New(slog.DiscardHandler))
			shown := &runDisplay{errs: c.ErrOrStderr(), text: verified}
			if !asJSON {
				r.Watch = shown.progress
			}
			names, err := s.toVerify(ctx, r, j, at, all)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			scrub, err := exit.Within(ctx, func() (*backup.Scrub, error) {
				defer shown.clear()
				return r.Verify(ctx, j, names, func(snapshot string, d fxfer.Difference) {
					shown.clear()
					if asJSON {
						term.JSON(out, map[string]any{"type": "difference", "snapshot": snapshot, "path": d.Path, "finding": d.Finding, "detail": d.Detail})
						return
					}
					fmt.Fprintf(out, "%-10s %s/%s\n", d.Finding, snapshot, term.PathAnd(d.Path, d.Detail))
				})
			})
			switch {
			case scrub == nil:
			case asJSON:
				term.JSON(out, map[string]any{"type": "summary", "snapshots": scrub.Snapshots, "files": scrub.Files, "bytes": scrub.Bytes, "error": scrub.Error})
			case err == nil:
				fmt.Fprintf(out, "verified   %s, %s, %s\n", units.Count(int64(scrub.Snapshots), "snapshot", "snapshots"), units.Count(scrub.Files, "file", "files"), units.Bytes(scrub.Bytes))
			}
			return err
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.Add(flags, &at, "at", "when", "", "name of a snapshot, or a time: 2026-11-20, 2026-11-20 14:30, 7d", parseAt)
	flags.BoolVar(&all, "all", false, "check all snapshots")
	flags.BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

// verified says how far the verification of a snapshot is.
func verified(p *fxfer.Progress) []string {
	return []string{
		fmt.Sprintf("%s of %s files read", units.Grouped(p.FilesDone), units.Grouped(p.Files)),
		units.Bytes(p.BytesDone), units.Rate(p.Goodput),
	}
}
