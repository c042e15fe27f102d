package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// jobsName is the file of jobs in fxfer's folder.
const jobsName = "backup.yaml"

// exitAlarm is the exit code of status when a job needs attention.
const exitAlarm = 9

func newBackupCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "backup",
		Short: "Make backups by schedule, and restore them",
		Long: `Backup runs the jobs of one file, backup.yaml in FXFER_HOME unless --file says
another: what is sent where, when, how fast, and what is kept. For example:

  jobs:
    - name: home
      schedule: 30 2 * * *
      sources: [/home]
      destination: fxfer://nas/backup/home
      keep: {daily: 7, weekly: 4, monthly: 12}
      max-age: 26h

docs/backups.md has all keys. "fxfer backup daemon" runs the jobs when they are
due; "fxfer backup install" lets systemd do so.`,
		Args: cobra.NoArgs,
	}
	c.PersistentFlags().Var(&parsed[string]{"file", os.Getenv("FXFER_BACKUP"), &file, parseFile}, "file", "of jobs, instead of backup.yaml; or FXFER_BACKUP")
	file = os.Getenv("FXFER_BACKUP")
	c.AddCommand(newBackupRunCommand(&file), newBackupListCommand(&file), newBackupStatusCommand(&file), newBackupDaemonCommand(&file),
		newBackupRestoreCommand(&file), newBackupSnapshotsCommand(&file), newBackupVerifyCommand(&file), newBackupPruneCommand(&file),
		newBackupCheckCommand(&file), newBackupInstallCommand(&file))
	return c
}

// site is this host's jobs, and what is known of them.
type site struct {
	home   string
	config *backup.Config
	store  *backup.Store
}

// openSite reads the file of jobs.
func openSite(file string) (*site, error) {
	home, err := identity.Home()
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	if file == "" {
		file = filepath.Join(home, jobsName)
	}
	jobs, err := backup.Load(file)
	var problems config.Faults
	switch {
	case errors.As(err, &problems):
		return nil, usageError("`fxfer backup check` lists all faults; docs/backups.md explains all keys", "%w", err)
	case err != nil:
		return nil, usageError("--file names another", "read the jobs: %w", err)
	}
	return &site{home: home, config: jobs, store: backup.OpenStore(home)}, nil
}

// jobs returns those of the names, all if there are none.
func (s *site) jobs(names []string) ([]*backup.Job, error) {
	if len(names) == 0 {
		return s.config.Jobs, nil
	}
	var jobs []*backup.Job
	for _, name := range names {
		j := s.config.Job(name)
		if j == nil {
			return nil, usageError("there are: "+strings.Join(s.names(), ", "), "there is no job %q in %s", name, s.config.Path)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (s *site) names() (names []string) {
	for _, j := range s.config.Jobs {
		names = append(names, j.Name)
	}
	return names
}

func (s *site) runner(log *slog.Logger) *backup.Runner {
	return &backup.Runner{Store: s.store, Courier: &backup.Client{Home: s.home}, Clock: backup.SystemClock{}, Log: log}
}

// needJob checks that an argument is there and names the job.
func needJob(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError("usage: "+c.UseLine(), "which job?")
	}
	return noEmpty(args)
}

func newBackupCheckCommand(file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the file of jobs",
		Long:  "Check reads the file of jobs, and lists all that is wrong with it, by line.",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			var problems config.Faults
			if errors.As(err, &problems) {
				for _, p := range problems {
					fmt.Fprintln(c.OutOrStdout(), oneLine(p.Error()))
				}
				return usageError("docs/backups.md has all keys", "%s in the file of jobs", units.Count(int64(len(problems)), "fault", "faults"))
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s, no faults\n", oneLine(s.config.Path), units.Count(int64(len(s.config.Jobs)), "job", "jobs"))
			return nil
		},
	}
}

func newBackupListCommand(file *string) *cobra.Command {
	return &cobra.Command{
		Use:        "list",
		Short:      "List the jobs",
		SuggestFor: []string{"ls", "jobs"},
		Args:       exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			rows := [][]string{{"job", "schedule", "mode", "window", "destination"}}
			for _, j := range s.config.Jobs {
				schedule := "by hand"
				if j.Schedule != nil {
					schedule = j.Schedule.String() + " " + j.Zone.String()
				}
				rows = append(rows, []string{j.Name, schedule, string(j.Mode), j.Window.String(), j.Destination.String()})
			}
			printColumns(c.OutOrStdout(), rows)
			return nil
		},
	}
}

func newBackupRunCommand(file *string) *cobra.Command {
	var asJSON, isQuiet, due bool
	c := &cobra.Command{
		Use:   "run [JOB...]",
		Short: "Run jobs now, or go on with those that were interrupted",
		Long: `Run runs the jobs one after the other, all without a JOB. A run that was
interrupted or is paused goes on where it stopped. Of a job that runs already no
second run is begun.

With --due, only what is due is run, and what was missed, each once: for a timer.
Then the window counts; without it, you decide.`,
		Example: "  fxfer backup run home",
		Args:    func(c *cobra.Command, args []string) error { return noEmpty(args) },
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			jobs, err := s.jobs(args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			shown := &runDisplay{out: c.OutOrStdout(), errs: c.ErrOrStderr(), json: asJSON, quiet: isQuiet}
			var first error
			for _, j := range jobs {
				if err := shown.run(ctx, s, j, due); err != nil && first == nil {
					first = err
				}
				if ctx.Err() != nil {
					return &fxfer.Error{Kind: fxfer.KindInterrupted, Err: errInterrupted, Remedy: "the same command goes on where this one stopped"}
				}
			}
			return first
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&due, "due", false, "run only what is due, and missed")
	flags.BoolVar(&asJSON, "json", false, "print the runs as JSON lines on standard output")
	flags.BoolVar(&isQuiet, "quiet", false, "print nothing but errors")
	return c
}

// runDisplay shows runs.
type runDisplay struct {
	out, errs   io.Writer
	json, quiet bool

	mu   sync.Mutex
	last time.Time
	line int // columns of the line that is redrawn
}

func (d *runDisplay) run(ctx context.Context, s *site, j *backup.Job, due bool) error {
	log := slog.New(slog.DiscardHandler)
	if !d.quiet && !d.json {
		log = slog.New(slog.NewTextHandler(d, &slog.HandlerOptions{Level: slog.LevelWarn}))
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
		printJSON(d.out, struct {
			Type string `json:"type"`
			*backup.Record
		}{"run", record})
	case !d.quiet:
		fmt.Fprintf(d.out, "%-10s %s\n", j.Name, runLine(record))
	}
	for _, w := range record.Warnings {
		fmt.Fprintf(d.errs, "fxfer: warning: %s: %s\n", j.Name, oneLine(w))
	}
	if err := record.Err(); err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	return nil
}

// runLine sums up a run.
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
		parts = append(parts, "limit: "+oneLine(r.Limiter))
	}
	return strings.Join(parts, ", ")
}

// progress shows a run under way: on a terminal twice a second, elsewhere now and then.
func (d *runDisplay) progress(job string, p fxfer.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	every, live := plainEvery, isTerminal(d.errs)
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
	text := "fxfer: " + job + ": " + strings.Join(totals(&p), ", ")
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

// Write takes a line of the log.
func (d *runDisplay) Write(p []byte) (int, error) {
	d.clear()
	return d.errs.Write(p)
}

func newBackupDaemonCommand(file *string) *cobra.Command {
	var isQuiet bool
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run jobs when they are due",
		Long: `Daemon runs jobs by their schedules until it is told to end. A job never runs
beside itself. What was missed while the daemon was down is made up for, once for
each job; what was cut off goes on, also after a crash.

When the file of jobs has changed, or on SIGHUP, it is read again: jobs that are new
or not as before begin anew, once their present run is over, and others go on as they
are. A faulty file is refused in the log, and changes nothing.`,
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			level := slog.LevelInfo
			if isQuiet {
				level = slog.LevelWarn
			}
			log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			reload := make(chan struct{}, 1)
			var hear sync.WaitGroup
			defer hear.Wait()
			running, end := context.WithCancel(ctx)
			defer end()
			hear.Go(func() {
				onHangup(running, func() {
					select {
					case reload <- struct{}{}:
					default: // it will be read anyway
					}
				})
			})
			d := &backup.Daemon{Runner: s.runner(log), Config: s.config, Reload: reload}
			return d.Run(ctx)
		},
	}
	c.Flags().BoolVar(&isQuiet, "quiet", false, "log nothing but warnings and errors")
	return c
}

func newBackupInstallCommand(file *string) *cobra.Command {
	var timers bool
	var dir, user string
	c := &cobra.Command{
		Use:   "install",
		Short: "Write units for systemd",
		Long: `Install prints the units by which systemd runs the jobs: one service for all, or
with --timers a timer for each. With --dir it writes them there, and tells what to
do then; nothing is started or enabled.`,
		Example: `  fxfer backup install
  sudo fxfer backup install --timers --dir /etc/systemd/system`,
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := filepath.Abs(s.config.Path)
			if err != nil {
				return err
			}
			files := backup.Units(s.config, backup.UnitOptions{Program: exe, File: path, Home: s.home, User: user, Timers: timers})
			return writeUnits(c.OutOrStdout(), c.ErrOrStderr(), files, dir)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&timers, "timers", false, "a timer for each job instead of the daemon")
	addParsed(flags, &user, "user", "name", "", "whom the jobs run as, instead of root", parseUser)
	addParsed(flags, &dir, "dir", "dir", "", "write them there, as /etc/systemd/system", parseFile)
	return c
}

func parseUser(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, " \t\n=%") {
		return "", fmt.Errorf("%q is not the name of a user", s)
	}
	return s, nil
}

func writeUnits(out, errs io.Writer, files []backup.Unit, dir string) error {
	var names []string
	for _, u := range files {
		if u.Start {
			names = append(names, u.Name)
		}
		if dir == "" {
			fmt.Fprintf(out, "# %s\n%s\n", u.Name, u.Text)
			continue
		}
		name := filepath.Join(dir, u.Name)
		if err := os.WriteFile(name, []byte(u.Text), 0o644); err != nil {
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		fmt.Fprintf(errs, "fxfer: wrote %s\n", oneLine(name))
	}
	if dir == "" {
		fmt.Fprintf(errs, "fxfer: these are the units; --dir writes them\n")
		return nil
	}
	fmt.Fprintf(errs, "fxfer: now: systemctl daemon-reload && systemctl enable --now %s\n", strings.Join(names, " "))
	return nil
}
