//go:build unix

package disk

import "golang.org/x/sys/unix"

// Writable returns why this process can't make entries in the tree's root, or nil.
func (t *Tree) Writable() error {
	f, err := t.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Faccessat(int(f.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
