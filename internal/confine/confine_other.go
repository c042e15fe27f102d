//go:build !linux

package confine

import "errors"

// Anew does nothing: To works without it, or not at all.
func Anew([]Folder, []string, []int, bool) error { return nil }

// To returns errors.ErrUnsupported: it works only on Linux.
func To([]Folder, bool) error { return errors.ErrUnsupported }
