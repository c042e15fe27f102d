package ftp

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// maxComing bounds the connections of an address that one transfer looks at.
const maxComing = 4

// acceptPause is the wait after the kernel ran out of something, such as open files.
const acceptPause = 50 * time.Millisecond

// Ports are the listeners for data connections. All clients share them: a confined process can open
// no others. A port waits for one client of each address at a time, and closes other connections at
// once. At most half of the ports wait for one user at one address, each for connectWithin.
type Ports struct {
	listeners []net.Listener

	mu      sync.Mutex // guards waiting
	waiting map[place]*lease
}

// place is a port, by its index, as one address may use it.
type place struct {
	port int
	from netip.Addr
}

// lease is the right of one client to a connection that comes from its address to a port. It ends if
// no transfer asks for the connection within connectWithin.
type lease struct {
	ports *Ports
	place place
	user  string
	conns chan net.Conn // that have come; it has room for maxComing
	end   *time.Timer
}

// NewPorts returns the ports of these listeners.
func NewPorts(listeners []net.Listener) *Ports {
	return &Ports{listeners: listeners, waiting: make(map[place]*lease)}
}

// Serve accepts data connections until Close.
func (p *Ports) Serve() {
	var accepting sync.WaitGroup
	for i, l := range p.listeners {
		accepting.Go(func() { p.accept(i, l) })
	}
	accepting.Wait()
}

func (p *Ports) accept(port int, l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			p.hand(place{port, addrOf(c.RemoteAddr())}, c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause)
		}
	}
}

// Close closes the listeners.
func (p *Ports) Close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
}

// hand gives a connection to the client that waits for it.
func (p *Ports) hand(at place, c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.waiting[at]; l != nil && len(l.conns) < cap(l.conns) {
		l.conns <- c
		return
	}
	_ = c.Close()
}

// lease returns a port for a connection of a user from an address, or nil if all that the user may
// have are waiting. The port is any of them, so a connection that comes late rarely meets the next
// transfer. The caller closes the lease.
func (p *Ports) lease(from netip.Addr, user string) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	free, own := -1, 0
	for _, i := range rand.Perm(len(p.listeners)) { //nolint:gosec // the address is what counts
		switch l := p.waiting[place{i, from}]; {
		case l == nil:
			free = i
		case l.user == user:
			own++
		}
	}
	if free < 0 || own >= max(1, len(p.listeners)/2) {
		return nil
	}
	l := &lease{ports: p, place: place{free, from}, user: user, conns: make(chan net.Conn, maxComing)}
	l.end = time.AfterFunc(connectWithin, l.close)
	p.waiting[l.place] = l
	return l
}

// wait returns after some time without another connection, or when alone is done. A busy host accepts late: what has
// come to the port by then counts.
func (l *lease) wait(alone context.Context, patience time.Duration) {
	for {
		select {
		case <-time.After(patience):
		case <-alone.Done():
			return
		}
		if !queued(l.ports.listeners[l.place.port]) {
			return
		}
		patience = soonLeast
	}
}

// port is the number of the port.
func (l *lease) port() uint16 {
	return uint16(l.ports.listeners[l.place.port].Addr().(*net.TCPAddr).Port)
}

// open implements opener.
func (l *lease) open(ctx context.Context, cfg *tls.Config, patience time.Duration) (*dataConn, error) {
	if !l.end.Stop() {
		return nil, errNoConnection
	}
	defer l.close()
	select {
	case c := <-l.conns:
		return l.choose(ctx, c, cfg, patience)
	case <-ctx.Done():
		return nil, errNoConnection
	}
}

// choose returns the client's connection: the first one, or one that comes meanwhile. Others may have
// the client's address, behind NAT. The connection that resumes the TLS session of the control
// connection is the client's, because nobody else can do that. Many clients do not. So one that does
// not is taken as well, but only if no other one comes within patience.
func (l *lease) choose(ctx context.Context, first net.Conn, cfg *tls.Config, patience time.Duration) (*dataConn, error) {
	ctx, leave := context.WithCancel(ctx)
	alone, crowd := context.WithCancel(ctx) // until a second connection comes
	type candidate struct {
		d   *dataConn
		err error
	}
	ready := make(chan candidate, maxComing)
	came, pending := 0, 0 // connections, and those of them that are not ready
	var begins sync.WaitGroup
	begin := func(c net.Conn) {
		if came++; came > 1 {
			crowd()
		}
		pending++
		begins.Go(func() {
			d, err := newDataConn(ctx, c, cfg)
			if err == nil && !d.resumes() {
				l.wait(alone, patience)
			}
			ready <- candidate{d, err}
		})
	}
	defer func() {
		leave()
		begins.Wait()
		close(ready)
		for c := range ready {
			if c.err == nil {
				c.d.reset()
			}
		}
	}()
	var failed error
	begin(first)
	for more := l.conns; pending+len(more) > 0; {
		select {
		case c := <-more:
			if begin(c); came == maxComing {
				more = nil
			}
		case c := <-ready:
			pending--
			switch {
			case c.err != nil:
				failed = c.err
			case c.d.resumes(), came == 1 && len(more) == 0:
				return c.d, nil
			default:
				c.d.reset()
			}
		}
	}
	if came > 1 {
		return nil, errWhose
	}
	return nil, failed
}

// close gives the port back, with connections that nobody has taken.
func (l *lease) close() {
	l.ports.mu.Lock()
	defer l.ports.mu.Unlock()
	l.end.Stop()
	if l.ports.waiting[l.place] == l {
		delete(l.ports.waiting, l.place)
	}
	for len(l.conns) > 0 {
		_ = (<-l.conns).Close()
	}
}

// addrOf is the address of a peer, without the forms that IPv4 has in IPv6.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
