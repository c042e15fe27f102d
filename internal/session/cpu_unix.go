//go:build unix

package session

import (
	"syscall"
	"time"
)

// processTime is the CPU time that this process has used on all cores, 0 if unknown.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
