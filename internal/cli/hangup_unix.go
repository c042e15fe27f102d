//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// onHangup calls f for each SIGHUP until ctx is done.
func onHangup(ctx context.Context, f func()) {
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
