//go:build !linux

package confine

import "errors"

// To returns errors.ErrUnsupported: it works only on Linux.
func To([]Folder) error { return errors.ErrUnsupported }
