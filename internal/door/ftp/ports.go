package ftp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// acceptPause is the wait after the kernel ran out of something, such as open files.
const acceptPause = 50 * time.Millisecond

// Ports are the listeners for data connections. All clients share them: a confined process can open
// no others. A port waits for one connection of each address at a time, and closes others at once. A
// user has at most half of the ports wait for an address, and each for connectWithin.
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

// lease is the right of one client to the next connection that comes from its address to a port. It
// ends if no transfer asks for the connection within connectWithin.
type lease struct {
	ports *Ports
	place place
	user  string
	conns chan net.Conn // has room for one
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
	l := p.waiting[at]
	if l == nil {
		_ = c.Close()
		return
	}
	delete(p.waiting, at)
	l.conns <- c
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
	l := &lease{ports: p, place: place{free, from}, user: user, conns: make(chan net.Conn, 1)}
	l.end = time.AfterFunc(connectWithin, l.close)
	p.waiting[l.place] = l
	return l
}

// port is the number of the port.
func (l *lease) port() uint16 {
	return uint16(l.ports.listeners[l.place.port].Addr().(*net.TCPAddr).Port)
}

// open waits for the connection. The caller closes it. It is called once.
//
// Errors: errNoConnection if the lease has ended before, and those of ctx.
func (l *lease) open(ctx context.Context) (net.Conn, error) {
	if !l.end.Stop() {
		return nil, errNoConnection
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close gives the port back, with a connection that nobody has taken.
func (l *lease) close() {
	l.ports.mu.Lock()
	defer l.ports.mu.Unlock()
	l.end.Stop()
	if l.ports.waiting[l.place] == l {
		delete(l.ports.waiting, l.place)
	}
	select {
	case c := <-l.conns:
		_ = c.Close()
	default:
	}
}

// addrOf is the address of a peer, without the forms that IPv4 has in IPv6.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
