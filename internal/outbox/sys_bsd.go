//go:build darwin || freebsd

package outbox

import (
	"io/fs"
	"syscall"
)

// changeOf returns the time of the last change of a file or its metadata, in ns since 1970, and its
// inode.
func changeOf(info fs.FileInfo) (changed int64, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ctimespec.Nano(), st.Ino
}
