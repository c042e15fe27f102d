package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Traffic is running cross traffic.
type Traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup

	began time.Time
	mtu   int
	from  *Host
	to    *Host
	src   netip.Addr
	dst   netip.Addr

	mu     sync.Mutex // guards what follows
	report CrossReport
	first  time.Time // when it began to send
	last   time.Time // when it ended
}

// StartCross lets others use the line. The caller stops the traffic before it closes the lab.
func (l *Lab) StartCross(c Cross) (*Traffic, error) {
	if err := l.welcomeOthers(); err != nil {
		return nil, fmt.Errorf("start cross traffic: %w", err)
	}
	link, _ := l.Link()
	t := &Traffic{began: time.Now(), mtu: link.MTU, from: l.Left, to: l.Right, src: otherAddrs[0], dst: otherAddrs[1]}
	if c.Direction == RightToLeft {
		t.from, t.to, t.src, t.dst = t.to, t.from, t.dst, t.src
	}
	t.report = CrossReport{Cross: c, PerFlow: make([]int64, max(1, c.Flows))}
	if c.To > 0 && c.To <= c.From {
		return nil, fmt.Errorf("start cross traffic: it would end at %v and begin at %v", c.To, c.From)
	}
	start := t.startTCP
	if c.Congestion == "" {
		start = t.startUDP
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	if err := start(ctx); err != nil {
		stop()
		t.done.Wait()
		return nil, fmt.Errorf("start cross traffic: %w", err)
	}
	return t, nil
}

// Stop ends the traffic and returns what it got. Call it once.
func (t *Traffic) Stop() *CrossReport {
	t.stop()
	t.done.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.report
	if !t.first.IsZero() {
		r.Ran = t.last.Sub(t.first)
	}
	return &r
}

// welcomeOthers gives the hosts the addresses of others. It can be called again.
func (l *Lab) welcomeOthers() error {
	if len(l.Middle) > 0 {
		return errors.New("a chain has room for commands only")
	}
	for i, h := range []*Host{l.Left, l.Right} {
		err := h.Do(func() error {
			n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer n.Close()
			lo, err := n.LinkByName("lo")
			if err != nil {
				return err
			}
			ip := net.IPNet{IP: otherAddrs[i].AsSlice(), Mask: net.CIDRMask(32, 32)}
			if err := n.AddrAdd(lo, &netlink.Addr{IPNet: &ip}); !errors.Is(err, unix.EEXIST) {
				return err
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("add the address %v: %w", otherAddrs[i], err)
		}
	}
	return nil
}

// schedule waits until the traffic begins. It returns a context that ends with the traffic, or nil
// if it ended before.
func (t *Traffic) schedule(ctx context.Context) (context.Context, context.CancelFunc) {
	select {
	case <-ctx.Done():
		return nil, nil
	case <-time.After(time.Until(t.began.Add(t.report.From))):
	}
	t.mu.Lock()
	t.first = time.Now()
	t.mu.Unlock()
	if t.report.To == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, t.began.Add(t.report.To))
}

func (t *Traffic) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

// received counts n bytes of a flow.
func (t *Traffic) received(flow, n int) {
	second := int(time.Since(t.began) / time.Second)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Bytes += int64(n)
	t.report.PerFlow[flow] += int64(n)
	for len(t.report.PerSecond) <= second {
		t.report.PerSecond = append(t.report.PerSecond, 0)
	}
	t.report.PerSecond[second] += int64(n)
}

func (t *Traffic) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Err = errors.Join(t.report.Err, err)
}

// startTCP starts the flows of TCP. It returns an error if the kernel lacks the congestion control.
func (t *Traffic) startTCP(ctx context.Context) error {
	control := func(_, _ string, c syscall.RawConn) error {
		var err error
		if ctl := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, t.report.Congestion)
		}); ctl != nil {
			return ctl
		}
		if err != nil {
			return fmt.Errorf("use the congestion control %q: %w", t.report.Congestion, err)
		}
		return nil
	}
	var ln net.Listener
	err := t.to.Do(func() (err error) {
		// The listener is the first to learn that the kernel lacks the congestion control.
		lc := net.ListenConfig{Control: control}
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(ctx, "tcp4", netip.AddrPortFrom(t.dst, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	t.done.Go(func() {
		defer ln.Close()
		ctx, cancel := t.schedule(ctx)
		if ctx == nil {
			return
		}
		defer t.ended()
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
		var flows sync.WaitGroup
		for i := range t.report.Flows {
			flows.Go(func() {
				if err := t.flow(ctx, i, ln, control); err != nil && ctx.Err() == nil {
					t.fail(err)
				}
			})
		}
		flows.Wait()
	})
	return nil
}

// flow sends on a connection of its own until ctx is done.
func (t *Traffic) flow(ctx context.Context, i int, ln net.Listener, control func(string, string, syscall.RawConn) error) error {
	var out *net.TCPConn
	err := t.from.Do(func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.src, 0)), Control: control}
		d.SetMultipathTCP(false)
		c, err := d.DialContext(ctx, "tcp4", ln.Addr().String())
		if err == nil {
			out = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := ln.Accept() // its own connection or that of another flow: they are all the same
	if err != nil {
		return err
	}
	defer in.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = out.SetLinger(0) // what it has not sent is nobody's business any more
		_ = out.Close()
		_ = in.Close()
	})
	defer stop()
	var reader sync.WaitGroup
	reader.Go(func() { t.discard(i, in.(*net.TCPConn)) })
	b := make([]byte, 256<<10)
	for err == nil {
		_, err = out.Write(b)
	}
	_ = in.Close()
	reader.Wait()
	return err
}

// discard counts what arrives. The kernel throws it away without copying it (tcp(7), MSG_TRUNC).
func (t *Traffic) discard(flow int, in *net.TCPConn) {
	raw, err := in.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 1<<20) // never written, so it takes no memory
	for {
		var n int
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, _, recvErr = unix.Recvfrom(int(fd), b, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			return recvErr != unix.EAGAIN && recvErr != unix.EINTR
		})
		if err != nil || recvErr != nil || n == 0 {
			return
		}
		t.received(flow, n)
	}
}

const (
	udpPayload = 1200 // as VoIP, games and video calls have at most
	udpHeaders = 20 + 8
	udpBuffer  = 4 << 20
	// A sender that had no processor for longer than this many packets doesn't make up for more:
	// a burst would be lost that no real source sends.
	udpCatchUp = 2
)

func (t *Traffic) startUDP(ctx context.Context) error {
	var in, out *net.UDPConn
	err := t.to.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.dst, 0)))
		return err
	})
	if err != nil {
		return err
	}
	err = t.from.Do(func() (err error) {
		out, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.src, 0)), in.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return errors.Join(err, in.Close())
	}
	enlarge(in)
	var sent int64
	t.done.Go(func() {
		defer out.Close()
		defer in.Close()
		ctx, cancel := t.schedule(ctx)
		if ctx == nil {
			return
		}
		defer cancel()
		var reader sync.WaitGroup
		reader.Go(func() { t.countUDP(in) })
		sent = t.sendUDP(ctx, out)
		t.ended()
		_ = in.Close()
		reader.Wait()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.report.Bytes == 0 {
			t.report.Sent, t.report.Lost = sent, sent
		}
	})
	return nil
}

// enlarge gives a socket a large receive buffer: what is lost should be lost on the line.
func enlarge(c *net.UDPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udpBuffer) != nil {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, udpBuffer)
			}
		})
	}
}

// sendUDP sends numbered packets evenly until ctx is done, and returns how many.
func (t *Traffic) sendUDP(ctx context.Context, out *net.UDPConn) (sent int64) {
	runtime.LockOSThread() // never unlocked, since its timer slack is changed
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(5*time.Microsecond), 0, 0, 0)
	b := make([]byte, min(udpPayload, t.mtu-udpHeaders))
	gap := wireTime(len(b)+udpHeaders+frameOverhead, t.report.Rate)
	var w waiter
	for next := time.Now(); ctx.Err() == nil; next = next.Add(gap) {
		late := time.Since(next)
		if late > udpCatchUp*gap {
			next = next.Add(late - udpCatchUp*gap)
		}
		for ; late < 0 && ctx.Err() == nil; late = time.Since(next) {
			w.sleep(min(int64(-late), int64(50*time.Millisecond)))
		}
		binary.BigEndian.PutUint64(b, uint64(sent))
		if _, err := out.Write(b); err == nil { // an error is an ICMP message or a full device: nothing was sent
			sent++
		}
	}
	return sent
}

// countUDP counts packets until the socket is closed. Those numbered below the last received one
// that are missing are lost. Those above may be on their way.
func (t *Traffic) countUDP(in *net.UDPConn) {
	b := make([]byte, udpPayload)
	received := int64(0)
	for {
		n, _, err := in.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		t.received(0, n)
		received++
		t.mu.Lock()
		t.report.Sent = max(t.report.Sent, int64(binary.BigEndian.Uint64(b))+1)
		t.report.Lost = max(0, t.report.Sent-received)
		t.mu.Unlock()
	}
}
