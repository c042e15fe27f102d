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
	// readBatch is how many packets are read before those that are due are delivered again.
	readBatch = 32
	// linger is how long the thread goes on to look each tick after the last packet. Then it waits
	// for packets. A thread that looks knows how long it was held up. One that waits does not.
	linger = time.Millisecond
)

// pump moves packets from one TUN device to another over a line.
type pump struct {
	line   *line
	src    int // TUN devices, non-blocking
	dst    int
	thread *pumpThread
	change atomic.Pointer[lineChange]

	// Of that thread.
	empty  int64 // when the device of src was last seen empty
	active int64 // when the last packet moved
	due    int64 // when the next one arrives, as known then
	out    [2]unix.Iovec
}

// lineChange is handed to the pump's thread, which owns the line.
type lineChange struct {
	link      Link
	downUntil int64 // ns since origin; 0: no change
	done      chan struct{}
}

// pumpThread runs pumps. A thread that looks at its devices all the time costs a processor much, so a
// lab of many lines has fewer threads than lines.
type pumpThread struct {
	pumps  []*pump
	wake   int // eventfd that ends a wait
	origin time.Time
	ended  chan struct{} // closed when run returns
}

func newPumpThread() (*pumpThread, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	return &pumpThread{wake: wake, origin: time.Now(), ended: make(chan struct{})}, nil
}

func (t *pumpThread) now() int64 { return int64(time.Since(t.origin)) }

// set makes l the state of the line. It begins an outage of down ns, unless that is 0. It returns
// when the change is in effect. It must not be called concurrently.
func (p *pump) set(l Link, down int64) {
	c := &lineChange{link: l, done: make(chan struct{})}
	if down > 0 {
		c.downUntil = p.thread.now() + down
	}
	p.change.Store(c)
	one := [8]byte{0: 1, 7: 1}               // nonzero in either byte order
	_, _ = unix.Write(p.thread.wake, one[:]) // an error can only mean that it is already awake
	select {
	case <-c.done:
	case <-p.thread.ended:
	}
}

// run moves packets until a device fails.
func (t *pumpThread) run() error {
	defer close(t.ended)
	runtime.LockOSThread() // never unlocked, since its timer slack is changed
	// The kernel may wake a thread this much late. Its default of 50 µs is coarse compared with
	// the tick.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(5*time.Microsecond), 0, 0, 0)

	wait := waiter{fds: []unix.PollFd{{Fd: int32(t.wake), Events: unix.POLLIN}}}
	for _, p := range t.pumps {
		wait.fds = append(wait.fds, unix.PollFd{Fd: int32(p.src), Events: unix.POLLIN})
	}
	for {
		began, due, active, tick := t.now(), int64(never), int64(0), int64(never)
		for _, p := range t.pumps {
			p.reconfigure()
			if err := p.move(); err != nil {
				return err
			}
			due, active, tick = min(due, p.due-p.slack()), max(active, p.active), min(tick, p.line.tick)
		}
		if began-active < int64(linger) {
			// On a busy link, more packets come soon. Let them gather, and don't let them end the
			// sleep.
			wait.sleep(min(max(due, began+tick), began+2*tick) - t.now())
			continue
		}
		wait.poll(due - t.now())
		now := t.now()
		for _, p := range t.pumps {
			p.empty = now
		}
		if wait.fds[0].Revents != 0 {
			var b [8]byte
			_, _ = unix.Read(t.wake, b[:])
		}
	}
}

func (p *pump) reconfigure() {
	c := p.change.Swap(nil)
	if c == nil {
		return
	}
	p.line.configure(c.link)
	if c.downUntil != 0 {
		p.line.downUntil = c.downUntil
	}
	close(c.done)
}

// move gives the line what has come, and delivers what is due.
func (p *pump) move() error {
	now := p.thread.now()
	for range readBatch {
		n, err := readTUN(p.src, p.line.arena.room())
		if err == unix.EAGAIN {
			p.empty = now
			break
		}
		if err != 0 {
			return fmt.Errorf("read from the TUN device: %w", err)
		}
		p.active = now
		if at := p.thread.now(); at > now+p.heldUp() {
			now = at
		}
		if n > vnetLen {
			p.line.read = now
			p.line.admit(p.arrival(now), p.line.arena.room()[:n])
		}
	}
	for {
		pk, due := p.line.next(now)
		if p.due = due; pk == nil || due > now+p.slack() {
			return nil
		}
		p.active = now
		to := p.dst
		if pk.answer {
			to = p.src
		}
		p.line.pop(pk, writeTUN(to, pk, &p.out) == 0)
	}
}

// slack keeps late looks from adding a bias. A packet that is due within half a tick is delivered, and a packet found
// after a sleep counts as sent half the sleep ago.
func (p *pump) slack() int64 { return p.line.tick / 2 }

// heldUp is the time after the last look from which on a look was held up: the thread had no processor.
func (p *pump) heldUp() int64 { return 2 * p.line.tick }

// arrival estimates when a packet that is read at time now came to the link. Usually that was
// halfway between this look and the last one. If the thread was held up, packets have gathered
// that came one by one. They must not look like a burst, for which the queue may have no room. So
// each counts as having come when the line was free for it, if that was since the last look.
func (p *pump) arrival(now int64) int64 {
	since := now - p.empty
	if since > p.heldUp() {
		return min(now, max(p.empty, p.line.free))
	}
	return now - since/2
}

// waiter holds what the blocking system calls point to.
type waiter struct {
	fds []unix.PollFd
	ts  unix.Timespec
}

// sleep waits for ns, or not at all if ns isn't positive. Signals may end it early.
func (w *waiter) sleep(ns int64) {
	if ns <= 0 {
		return
	}
	w.ts = unix.NsecToTimespec(ns)
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&w.ts)), 0, 0)
}

// poll waits for at most ns for one of the descriptors. Signals may end it early.
func (w *waiter) poll(ns int64) {
	for i := range w.fds {
		w.fds[i].Revents = 0
	}
	ns = max(0, min(ns, int64(time.Hour)))
	ns -= ns / 1000 // the kernel adds that to a poll (fs/select.c, select_estimate_accuracy)
	w.ts = unix.NsecToTimespec(ns)
	_, _, _ = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.fds[0])), uintptr(len(w.fds)), uintptr(unsafe.Pointer(&w.ts)), 0, 0, 0)
}

// readTUN, writeTUN and sleep take a fraction of a millisecond at most. Telling the Go scheduler
// about them would cost more than it gains.

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
