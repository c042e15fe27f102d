//go:build unix

package disk

import (
	"io/fs"
	"os"
	"syscall"
)

// isOurs reports whether a file is this user's alone: no other owner, no other name, and nobody else
// may write to it.
func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(st.Uid) == int64(os.Geteuid()) && st.Nlink == 1 && info.Mode().Perm()&0o022 == 0
}
