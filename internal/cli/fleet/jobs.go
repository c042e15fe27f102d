package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newSubmit() *cobra.Command {
	var m member
	var job fleet.Options
	var wait bool
	c := &cobra.Command{
		Use:   "submit SRC URL",
		Short: "Give a fleet a tree to send",
		Long: `Submit adds a job and prints its ID. SRC is a path on the workers. As in "fxfer
send", SRC puts the folder itself below URL, and SRC/ puts its content there.`,
		Example: `  fxfer fleet submit --controller head /data/run-7 fxfer://nas/runs
  fxfer fleet submit --wait --delete /data/ fxfer://nas/mirror`,
		Args: option.Exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			source, err := filepath.Abs(args[0])
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			if strings.HasSuffix(args[0], "/") && source != "/" {
				source += "/"
			}
			if _, err := option.ParseURL(args[1], true); err != nil {
				return err
			}
			x, err := m.connect(ctx, c)
			if err != nil && ctx.Err() != nil {
				return exit.Interrupted("")
			}
			if err != nil {
				return err
			}
			defer x.Close()
			asking, cancel := context.WithTimeout(ctx, askFor)
			defer cancel()
			id, err := x.Submit(asking, source, args[1], job)
			switch {
			case err != nil && ctx.Err() != nil:
				return exit.Interrupted("the job may be there: see `fxfer fleet status`")
			case fxfer.KindOf(err) == fxfer.KindUsage:
				return exit.WithHint(err, "see `fxfer fleet submit --help`")
			case err != nil:
				return &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
			}
			fmt.Fprintln(c.OutOrStdout(), id)
			if !wait {
				return nil
			}
			return await(ctx, x, id)
		},
	}
	transfer.AddRules(c.Flags(), &job.Rules)
	c.Flags().BoolVar(&job.Delete, "delete", false, "at the end, remove files that the source does not have")
	c.Flags().BoolVarP(&job.Checksum, "checksum", "c", false, "compare content instead of size and time")
	c.Flags().BoolVar(&job.NumericIDs, "numeric-ids", false, "map owner and group by number, not by name")
	c.Flags().BoolVarP(&job.OneFileSystem, "one-file-system", "x", false, "don't descend into other file systems")
	option.Add(c.Flags(), &job.Priority, "priority", "how", "normal", "low, normal or high, beside other jobs of the fleet", option.ParsePriority)
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended; exit code 3 if it failed")
	m.add(c)
	return c
}

// await waits for the end of a job, also while the controller is away.
func await(ctx context.Context, x *fleet.Member, id string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, askFor)
		jobs, err := x.Jobs(asking)
		cancel()
		for _, j := range jobs {
			switch {
			case err != nil || j.ID != id:
			case j.State == fleet.Done:
				return nil
			case j.State == fleet.Cancelled:
				return &fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New("the job was cancelled")}
			case j.State == fleet.Failed && j.Retries <= j.Retried:
				return exit.WithHint(&fxfer.Error{Kind: fxfer.KindPartial, Err: errors.New(j.Reason)}, "see `fxfer fleet status "+id+"`")
			}
		}
		select {
		case <-ctx.Done():
			return exit.Interrupted("the job goes on: see `fxfer fleet status " + id + "`")
		case <-time.After(time.Second):
		}
	}
}

// jobStatus is a job in the output of status.
type jobStatus struct {
	*fleet.Job
	Active map[string]*fleet.Record `json:"active"`
	Dead   []*fleet.DeadTask        `json:"dead"`
}

func newStatus() *cobra.Command {
	var m member
	var asJSON bool
	c := &cobra.Command{
		Use:   "status [JOB]",
		Short: "Show a fleet's jobs, or one with its tasks",
		Long: `Status lists the jobs, with how many of their shards are sent and how many workers
have given up as dead. With JOB, it also lists the tasks that run, wait for another
attempt, or are dead, with the reason. "fxfer fleet retry" tries dead ones again.`,
		Example: `  fxfer fleet status
  fxfer fleet status 20261120-021500-k3x7qa`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return option.Exactly(1)(c, args)
			}
			return option.NoEmpty(args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return m.ask(c, func(ctx context.Context, x *fleet.Member) error {
				all, err := statusOf(ctx, x, args)
				if err == nil {
					show(c, all, asJSON, len(args) > 0)
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON line for each job")
	m.add(c)
	return c
}

// statusOf returns all jobs, or the one that args name.
func statusOf(ctx context.Context, x *fleet.Member, args []string) (all []jobStatus, err error) {
	jobs, err := x.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if len(args) > 0 && j.ID != args[0] {
			continue
		}
		s := jobStatus{Job: j}
		if !j.State.Ended() {
			s.Active, err = x.Active(ctx, j.ID)
		}
		if err == nil {
			s.Dead, err = x.Dead(ctx, j.ID)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(args) > 0 && len(all) == 0 {
		return nil, exit.Usage("`fxfer fleet status` lists all jobs", "there is no job %s", args[0])
	}
	return all, nil
}

// show prints jobs, and their tasks.
func show(c *cobra.Command, all []jobStatus, asJSON, tasks bool) {
	out := c.OutOrStdout()
	rows := [][]string{{"JOB", "STATE", "SHARDS", "DEAD", "FILES", "SIZE", "SOURCE", "URL"}}
	for _, s := range all {
		if asJSON {
			term.JSON(out, s)
			continue
		}
		rows = append(rows, []string{s.ID, string(s.Shown()), fmt.Sprintf("%d/%d", s.Done, s.Shards), strconv.Itoa(s.Job.Dead),
			strconv.FormatInt(s.Files, 10), units.Bytes(s.Bytes), term.Name(s.Source), term.Name(s.URL)})
	}
	if asJSON {
		return
	}
	term.Table(out, rows)
	for _, s := range all {
		if !tasks {
			break
		}
		if s.Reason != "" {
			fmt.Fprintf(out, "failed: %s\n", term.OneLine(s.Reason))
		}
		rows := [][]string{{"TASK", "IS", "ATTEMPT", "WORKER", "WRITTEN", "REASON"}}
		for key, r := range s.Active {
			rows = append(rows, []string{key, string(r.Outcome), strconv.FormatUint(r.Attempt, 10), term.Name(r.Worker), units.Bytes(r.Bytes), term.OneLine(cmp.Or(r.Reason, r.Note))})
		}
		for _, d := range s.Dead {
			rows = append(rows, []string{string(d.Task.Kind) + " " + strconv.Itoa(d.Task.Number), "dead", strconv.FormatUint(d.Attempt, 10), term.Name(d.Worker), "", term.OneLine(d.Reason)})
		}
		if len(rows) > 1 {
			term.Table(out, rows)
		}
	}
}
