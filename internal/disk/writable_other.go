//go:build !unix

package disk

// Writable returns nil: only an attempt shows what this system allows.
func (t *Tree) Writable() error { return nil }
