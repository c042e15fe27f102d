package lab

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// On a busy link the thread looks at most this often, and every second tick at least, which bounds what the switching
	// costs.
	tick = 100 * time.Microsecond
	// So that looking late is no bias, what is due within half a tick is delivered, and what is found after a sleep
	// counts as sent half the sleep ago.
	slack = tick / 2
	// Packets read before those that are due are delivered again.
	readBatch = 32
)

// pump moves packets from one TUN device to another over a line, on a thread of its own.
type pump struct {
	line *line
	src  int // TUN devices, non-blocking
	dst  int
	wake int // eventfd that ends a sleep

	change  atomic.Pointer[lineChange]
	stop    atomic.Bool
	origin  time.Time
	refused atomic.Int64 // packets the receiving device did not take
}

// lineChange is handed to the pump's thread, which owns the line.
type lineChange struct {
	link      Link
	downUntil int64 // ns since origin; 0: as it is
}

func newPump(l *line, src, dst int) (*pump, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &pump{line: l, src: src, dst: dst, wake: wake, origin: time.Now()}, nil
}

// interrupt ends a sleep, so that run sees change and stop.
func (p *pump) interrupt() {
	one := [8]byte{1, 0, 0, 0, 0, 0, 0, 1}
	unix.Write(p.wake, one[:])
}

func (p *pump) now() int64 { return int64(time.Since(p.origin)) }

// run moves packets until stop is set.
func (p *pump) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel may wake a thread this much late: its default of 50 µs is coarse beside the tick.
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(5*time.Microsecond), 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)

	wait := waiter{fds: [2]unix.PollFd{{Fd: int32(p.src), Events: unix.POLLIN}, {Fd: int32(p.wake), Events: unix.POLLIN}}}
	var out [2]unix.Iovec
	var slept int64 // ns of the sleep that just ended
	for !p.stop.Load() {
		if c := p.change.Swap(nil); c != nil {
			p.line.configure(c.link)
			if c.downUntil != 0 {
				p.line.downUntil = c.downUntil
			}
		}

		now := p.now()
		moved := false
		for range readBatch {
			n, err := readTUN(p.src, p.line.arena.room())
			if err == unix.EAGAIN {
				break
			}
			if err != 0 {
				return fmt.Errorf("read from TUN device: %w", err)
			}
			moved = true
			if n > vnetLen {
				p.line.admit(now-slept/2, p.line.arena.room()[:n])
			}
		}
		for {
			pk, due := p.line.next()
			if pk == nil || due > now+int64(slack) {
				break
			}
			moved = true
			if err := writeTUN(p.dst, pk, &out); err != 0 {
				p.refused.Add(1)
			}
			p.line.pop(pk)
		}

		_, due := p.line.next()
		if moved {
			// More will come soon on a busy link: let it gather, and don't let it end the sleep.
			begin := p.now()
			wait.sleep(min(max(now+int64(tick), due-int64(slack)), now+2*int64(tick)) - begin)
			slept = p.now() - begin
			continue
		}
		slept = 0
		wait.poll(due - p.now())
		if wait.fds[1].Revents != 0 {
			var b [8]byte
			unix.Read(p.wake, b[:])
		}
	}
	return nil
}

// waiter holds what the blocking system calls point to.
type waiter struct {
	fds [2]unix.PollFd
	ts  unix.Timespec
}

// sleep waits for ns, or not at all if that isn't positive. Signals may end it early.
func (w *waiter) sleep(ns int64) {
	if ns <= 0 {
		return
	}
	w.ts = unix.NsecToTimespec(ns)
	unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&w.ts)), 0, 0)
}

// poll waits for at most ns for one of the descriptors. Signals may end it early.
func (w *waiter) poll(ns int64) {
	w.fds[0].Revents, w.fds[1].Revents = 0, 0
	w.ts = unix.NsecToTimespec(max(0, min(ns, int64(time.Hour))))
	unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds)), 2, uintptr(unsafe.Pointer(&w.ts)), 0, 0, 0)
}

// readTUN and writeTUN don't block, so they needn't tell the Go scheduler: that costs more than it gives here.

func readTUN(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

func writeTUN(fd int, p *packet, iov *[2]unix.Iovec) unix.Errno {
	n := 0
	if p.hdrLen > 0 {
		iov[0].Base = &p.hdr[0]
		iov[0].SetLen(p.hdrLen)
		n++
	}
	iov[n].Base = &p.body[0]
	iov[n].SetLen(len(p.body))
	n++
	for {
		_, _, err := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(n))
		if err != unix.EINTR {
			return err
		}
	}
}
