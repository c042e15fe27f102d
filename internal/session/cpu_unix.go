//go:build unix

package session

import (
	"syscall"
	"time"
)

// processTime is what this process has used of all cores, 0 where that is not known.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
