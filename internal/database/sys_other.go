//go:build !windows

package database

import (
	"os"

	"golang.org/x/sys/unix"
)

// release closes a file and releases bbolt's lock, which else stays as long as the file is mapped.
func release(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}
