//go:build !linux

package disk

import (
	"errors"
	"os"
)

// copyRange copies n bytes between files.
func copyRange(to, from *os.File, off, at, n int64) error { return copyThrough(to, from, off, at, n) }

// cloneRange is not possible here.
func cloneRange(_, _ *os.File, _, _, _ int64) error { return errors.ErrUnsupported }
