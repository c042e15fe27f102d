//go:build linux && !amd64

package disk

import "golang.org/x/sys/unix"

// statAt describes the entry name in the folder dir, without following a symlink.
func statAt(dir int, name string, st *unix.Stat_t) error {
	return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}
