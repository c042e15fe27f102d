//go:build unix

package disk

import (
	"golang.org/x/sys/unix"
)

// OpenFiles returns how many files this process may have open, 0 if unknown. The Go runtime
// has raised the soft limit to the hard one already (os/rlimit.go).
func OpenFiles() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return uint64(l.Cur) //nolint:unconvert // signed on some systems
}
