//go:build !linux

package disk

import "os"

// copyRange copies n bytes between files.
func copyRange(to, from *os.File, off, at, n int64) error { return copyThrough(to, from, off, at, n) }
