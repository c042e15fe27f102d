//go:build !linux

package disk

import "errors"

// unnamedFile does not exist on this system.
type unnamedFile struct{ target unnamedTarget }

func (*unnamedFile) name(*Tree, *folder) error { return errors.ErrUnsupported }
