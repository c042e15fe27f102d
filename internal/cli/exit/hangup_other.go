//go:build !unix

package exit

import "context"

// OnHangup waits until ctx is done. This system has no SIGHUP.
func OnHangup(ctx context.Context, _ func()) { <-ctx.Done() }
