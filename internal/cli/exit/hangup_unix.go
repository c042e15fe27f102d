//go:build unix

package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// OnHangup calls f for each SIGHUP until ctx is done.
func OnHangup(ctx context.Context, f func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			f()
		}
	}
}
