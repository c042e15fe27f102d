package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/cli/transfer"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newRun(file *string) *cobra.Command {
	var asJSON, isQuiet, due bool
	retries := -1
	c := &cobra.Command{
		Use:               "run [JOB...]",
		ValidArgsFunction: completeJobs(file, -1),
		Short:             "Run jobs now, or resume interrupted runs",
		Long: `Run runs the named jobs one after the other, or all jobs. An interrupted or
paused run is resumed. A job that is already running is not started again.

With --due, which is meant for timers, it runs only jobs that are due or were
missed, each once, and only in their windows. Without it, windows don't count.

When an attempt fails, run tries again as the job says: by default for half an
hour, for example until the server has restarted. --retries 0 ends at once.`,
		Example: `  fxfer backup run home
  fxfer backup run --retries 0 home`,
		Args: func(c *cobra.Command, args []string) error { return option.NoEmpty(args) },
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			jobs, err := s.jobs(args)
			if err != nil {
				return err
			}
			ctx, stop := exit.Interruptible(c.Context())
			defer stop()
			shown := &runDisplay{out: c.OutOrStdout(), errs: c.ErrOrStderr(), json: asJSON, quiet: isQuiet, text: transfer.Totals}
			var first error
			for _, j := range jobs {
				if retries >= 0 {
					j.Retries = retries
				}
				if err := shown.run(ctx, s, j, due); err != nil && first == nil {
					first = err
				}
				if ctx.Err() != nil {
					return exit.Interrupted("the same command resumes")
				}
			}
			return first
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&due, "due", false, "run only jobs that are due or were missed")
	option.Add(flags, &retries, "retries", "n", "the job's", "how often to try again when an attempt fails", parseRetries)
	flags.BoolVar(&asJSON, "json", false, "print the runs as JSON lines on standard output")
	flags.BoolVar(&isQuiet, "quiet", false, "print only errors")
	return c
}

func parseRetries(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number of attempts", s)
	}
	return n, nil
}

// runDisplay shows runs of jobs while they are under way and when they end.
type runDisplay struct {
	out, errs   io.Writer
	json, quiet bool
	text        func(*fxfer.Progress) []string // says how far it is

	waits bool // it has said how to end a run that waits; only warnings uses it

	mu   sync.Mutex // guards what follows
	last time.Time
	line int // width in columns of the line that is redrawn
}

func (d *runDisplay) run(ctx context.Context, s *site, j *backup.Job, due bool) error {
	log := slog.New(slog.DiscardHandler)
	if !d.quiet && !d.json {
		log = slog.New(&warnings{d, j.Name})
	}
	r := s.runner(log)
	if !d.quiet && !d.json {
		r.Watch = d.progress
	}
	var record *backup.Record
	var err error
	if due {
		record, err = r.RunDue(ctx, j)
	} else {
		record, err = r.Run(ctx, j, r.Clock.Now().Truncate(time.Second), true)
	}
	d.clear()
	switch {
	case errors.Is(err, backup.ErrPaused):
		if !d.quiet {
			fmt.Fprintf(d.errs, "fxfer: %s: %v\n", j.Name, err)
		}
		return nil
	case record == nil:
		return err
	case d.json:
		term.JSON(d.out, struct {
			Type string `json:"type"`
			*backup.Record
		}{"run", record})
	case !d.quiet:
		fmt.Fprintf(d.out, "%-10s %s\n", j.Name, runLine(record))
	}
	if d.quiet || d.json { // otherwise the log has said it
		for _, w := range record.Warnings {
			d.warn(j.Name, w)
		}
	}
	for _, text := range causeLines(record) {
		fmt.Fprintf(d.errs, "fxfer: failed: %s: %s\n", j.Name, text)
	}
	if err := record.Err(); err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	return nil
}

// runLine returns a summary of a run.
func runLine(r *backup.Record) string {
	parts := []string{fmt.Sprintf("%s: %s written in %s", outcomeText(r), units.Bytes(r.Written), units.Time(r.Duration()))}
	if r.Sent < r.Written {
		parts = append(parts, units.Bytes(r.Sent)+" sent")
	}
	if r.Goodput > 0 {
		parts = append(parts, units.Rate(r.Goodput))
	}
	parts = append(parts, units.Count(r.Files, "file", "files"))
	if r.Snapshot != "" && r.Outcome == backup.Good {
		parts = append(parts, r.Snapshot)
	}
	if r.Limiter != "" {
		parts = append(parts, "limit: "+term.OneLine(r.Limiter))
	}
	return strings.Join(parts, ", ")
}

// progress shows how far a run is: on a terminal twice a second, elsewhere less often.
func (d *runDisplay) progress(job string, p fxfer.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	every, live := transfer.PlainEvery, term.IsTerminal(d.errs)
	if live {
		every = 500 * time.Millisecond
	}
	if d.last.IsZero() {
		d.last = time.Now()
	}
	if time.Since(d.last) < every {
		return
	}
	d.last = time.Now()
	text := "fxfer: " + job + ": " + strings.Join(d.text(&p), ", ")
	if !live {
		fmt.Fprintln(d.errs, text)
		return
	}
	fmt.Fprintf(d.errs, "\r%-*s", d.line, text)
	d.line = len(text)
}

func (d *runDisplay) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.line > 0 {
		fmt.Fprintf(d.errs, "\r%*s\r", d.line, "")
		d.line = 0
	}
}

func (d *runDisplay) warn(job, text string) {
	fmt.Fprintf(d.errs, "fxfer: warning: %s: %s\n", job, term.OneLine(text))
}

// warnings shows the warnings in a job's log to people.
type warnings struct {
	shown *runDisplay
	job   string
}

// Enabled implements slog.Handler.
func (*warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	text, separator, advice := r.Message, ": ", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "job":
			return true
		case backup.GivesUpIn:
			advice = "Ctrl-C ends it, and the same command resumes; with --retries 0, it does not wait"
			text += separator + a.Key + " " + a.Value.String()
		case "error":
			text += separator + a.Value.String()
		default:
			text += separator + a.Key + " " + a.Value.String()
		}
		separator = ", "
		return true
	})
	w.shown.clear()
	w.shown.warn(w.job, text)
	if advice != "" && !w.shown.waits {
		fmt.Fprintln(w.shown.errs, "fxfer: hint: "+advice)
		w.shown.waits = true
	}
	return nil
}

// WithAttrs implements slog.Handler. It leaves out what all lines have: the job, and when it was due.
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w *warnings) WithGroup(string) slog.Handler { return w }
