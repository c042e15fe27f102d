//go:build !linux

package confine

import "errors"

// To is only on Linux.
func To([]Folder) error { return errors.ErrUnsupported }
