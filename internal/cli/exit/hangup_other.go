//go:build !unix

package exit

import "context"

// OnHangup waits until ctx is done: there is no SIGHUP.
func OnHangup(ctx context.Context, _ func()) { <-ctx.Done() }
