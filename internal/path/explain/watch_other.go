//go:build !linux

package explain

import (
	"context"
	"time"
)

// Watch needs Linux.
func Watch(context.Context, Target, time.Duration) (*Report, error) { return nil, ErrUnsupported }
