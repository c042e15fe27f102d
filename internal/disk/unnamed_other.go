//go:build !linux

package disk

import "errors"

// unnamedFile does not exist on this system.
type unnamedFile struct{}

func (*unnamedFile) name(*Tree, *folder, string) error { return errors.ErrUnsupported }
