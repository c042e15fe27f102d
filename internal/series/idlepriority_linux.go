package series

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// atIdlePriority calls f on a thread of its own, which reads and computes only when no other thread
// wants to.
func atIdlePriority(f func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	const (
		whoProcess = 1
		classIdle  = 3 << 13
	)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, classIdle) // best effort, like the next line
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
	f()
}
