package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ping measures the delay that traffic adds to the link. It sends an ICMP echo every 20 ms, or
// less often on slow lines. The kernels of both hosts answer and take the time, so that neither
// waits for a processor.
type Ping struct {
	lab   *Lab
	fd    int
	wake  int // eventfd that ends the ping
	began time.Time
	ended chan struct{} // closed when run returns

	// Of run, until ended is closed.
	sent   map[uint16]unanswered // without an answer so far, by their number
	report PingReport
}

// unanswered is a ping without an answer.
type unanswered struct {
	at   time.Duration // when it began, after StartPing
	real int64         // the same by realTime
	idle time.Duration // how long it takes on the idle link
}

const (
	icmpEchoReply   = 0
	icmpEchoRequest = 8
	icmpHeader      = 8
)

// StartPing begins to measure. The caller stops the ping before it closes the lab.
func (l *Lab) StartPing() (*Ping, error) {
	if err := l.welcomeOthers(); err != nil {
		return nil, fmt.Errorf("start the ping: %w", err)
	}
	p := &Ping{lab: l, fd: -1, began: time.Now(), ended: make(chan struct{}), sent: make(map[uint16]unanswered)}
	err := l.Left.Do(func() (err error) {
		if p.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP); err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: otherAddrs[0].As4()}); err != nil {
			return os.NewSyscallError("bind", err)
		}
		return os.NewSyscallError("connect", unix.Connect(p.fd, &unix.SockaddrInet4{Addr: otherAddrs[1].As4()}))
	})
	if err == nil {
		p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		if p.fd >= 0 {
			_ = unix.Close(p.fd)
		}
		return nil, fmt.Errorf("start the ping: %w", err)
	}
	go p.run()
	return p, nil
}

// Stop ends the ping and returns what it measured. Pings that are on their way and may still be
// answered count as not sent. Call it once.
func (p *Ping) Stop() *PingReport {
	one := [8]byte{0: 1, 7: 1}        // nonzero in either byte order
	_, _ = unix.Write(p.wake, one[:]) // it can't fail on an eventfd of zero
	<-p.ended
	_ = unix.Close(p.fd)
	_ = unix.Close(p.wake)
	r := p.report
	last := time.Duration(-1)
	if n := len(r.Trips); n > 0 {
		last = r.Trips[n-1].At
	}
	for _, e := range p.sent {
		if e.at < last {
			r.Lost++
		}
	}
	return &r
}

// run sends pings and takes answers until wake is written.
func (p *Ping) run() {
	defer close(p.ended)
	runtime.LockOSThread() // never unlocked, since its timer slack is changed
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(5*time.Microsecond), 0, 0, 0)
	wait := waiter{fds: []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}, {Fd: int32(p.wake), Events: unix.POLLIN}}}
	next := time.Now()
	for seq := uint16(0); wait.fds[1].Revents == 0; {
		if now := time.Now(); !now.Before(next) {
			there, back := p.lab.Link()
			p.send(seq, idleTrip(there, back))
			seq++
			next = now.Add(pingGap(there, back))
		}
		p.take()
		wait.poll(int64(time.Until(next)))
	}
	p.take()
}

func (p *Ping) send(seq uint16, idle time.Duration) {
	var b [icmpHeader]byte
	b[0] = icmpEchoRequest
	binary.BigEndian.PutUint16(b[6:], seq)
	binary.BigEndian.PutUint16(b[2:], ^fold(sum(0, b[:])))
	if _, old := p.sent[seq]; old {
		p.report.Lost++
	}
	p.sent[seq] = unanswered{at: time.Since(p.began), real: realTime(), idle: idle}
	_, _ = unix.Write(p.fd, b[:]) // a ping that could not be sent is lost
}

// realTime is the clock with which the kernel stamps packets.
func realTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts) // it exists
	return ts.Nano()
}

// take reads the answers that have arrived.
func (p *Ping) take() {
	b := make([]byte, 128)
	oob := make([]byte, 128)
	for {
		n, oobn, _, _, err := unix.Recvmsg(p.fd, b, oob, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		at := stamp(oob[:oobn])
		if n < 20+icmpHeader || b[20] != icmpEchoReply || at == 0 {
			continue
		}
		seq := binary.BigEndian.Uint16(b[20+6:])
		if e, ok := p.sent[seq]; ok {
			p.report.Trips = append(p.report.Trips, Trip{At: e.at, Added: time.Duration(at-e.real) - e.idle})
			delete(p.sent, seq)
		}
	}
}

// stamp returns when the kernel received a message, or 0.
func stamp(oob []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			return (*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Nano()
		}
	}
	return 0
}
