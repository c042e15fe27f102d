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
		Long: `Daemon runs jobs by their schedules until it is told to end. A job never runs
beside itself. What was missed while the daemon was down is made up for, once for
each job; what was cut off goes on, also after a crash.

When the file of jobs has changed, or on SIGHUP, it is read again: jobs that are new
or not as before begin anew, once their present run is over, and others go on as they
are. A faulty file is refused in the log, and changes nothing.`,
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
