package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stopGrace is how long a transfer may take to stop after a signal. With it, the command ends
// within 2 s.
const stopGrace = 1500 * time.Millisecond

// Interruptible returns a context that ends with the first SIGINT or SIGTERM. The second signal
// ends the process at once.
func Interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel()
		<-signals
		os.Exit(interrupted)
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// Within returns the results of f. If f has not returned stopGrace after ctx is done, it returns
// the error of ctx, and f goes on in its goroutine.
func Within[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(stopGrace):
		var none T
		return none, ctx.Err()
	}
}
