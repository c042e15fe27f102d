package session

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// WhenIdle calls f on a thread of its own that reads and computes only when nobody else does.
func WhenIdle(f func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	const (
		whoProcess = 1
		classIdle  = 3 << 13
	)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, classIdle) // best effort, as what follows
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
	f()
}
