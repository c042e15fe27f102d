//go:build !unix

package cli

import "context"

// onHangup waits until ctx is done: there is no SIGHUP.
func onHangup(ctx context.Context, _ func()) { <-ctx.Done() }
