package backup

import (
	"context"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
)

func newDaemon(file *string) *cobra.Command {
	var isQuiet bool
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run jobs when they are due",
		Long: `Daemon runs jobs by their schedules until SIGTERM or Ctrl-C. A job never runs
twice at the same time. If the daemon was down when a job was due, the job runs
once when the daemon starts. Interrupted runs are resumed, also after a crash.

The daemon reads the file of jobs again when it changes, and on SIGHUP. New and
changed jobs start with the new settings when their present run is over. Other
jobs are not touched. If the file is faulty, the log says so and nothing
changes.`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			ctx, stop := exit.Interruptible(c.Context())
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
				exit.OnHangup(running, func() {
					select {
					case reload <- struct{}{}:
					default: // a request is waiting already
					}
				})
			})
			d := &backup.Daemon{Runner: s.runner(log), Config: s.config, Reload: reload}
			return d.Run(ctx)
		},
	}
	c.Flags().BoolVar(&isQuiet, "quiet", false, "log only warnings and errors")
	return c
}
