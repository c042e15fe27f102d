package ftp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
// once. A user has at most half of the ports wait for an address, and each for connectWithin.
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

// port is the number of the port.
func (l *lease) port() uint16 {
	return uint16(l.ports.listeners[l.place.port].Addr().(*net.TCPAddr).Port)
}

// open implements opener. Others may have the client's address, behind NAT. The connection that
// resumes the TLS session of the control connection is the client's, because nobody else can do that.
// Many clients do not. So one that does not is taken as well, but only if it has come alone.
func (l *lease) open(ctx context.Context, cfg *tls.Config, patience time.Duration) (taken *dataConn, err error) {
	if !l.end.Stop() {
		return nil, errNoConnection
	}
	defer l.close()
	type result struct {
		d   *dataConn
		err error
	}
	results := make(chan result, maxComing)
	came, under := 0, 0 // connections, and those of them that begin TLS
	var alone *dataConn // that does not resume, until patience has waited
	var waited <-chan time.Time
	var failed error
	refuse := func() error {
		switch {
		case came == 0:
			return errNoConnection
		case came > 1:
			return errWhose
		}
		return cmp.Or(failed, fmt.Errorf("TLS on the data connection: %w", ctx.Err()))
	}
	begin, leave := context.WithCancel(ctx)
	var begins sync.WaitGroup
	defer func() {
		leave()
		begins.Wait()
		close(results)
		for r := range results {
			r.d.drop()
		}
		if alone != taken {
			alone.drop()
		}
	}()
	for {
		more := l.conns
		if came == maxComing {
			more = nil
		}
		select {
		case c := <-more:
			came++
			under++
			begins.Go(func() {
				d, err := newDataConn(begin, c, cfg)
				results <- result{d, err}
			})
		case r := <-results:
			under--
			switch {
			case r.err != nil:
				failed = r.err
			case r.d.resumes():
				return r.d, nil
			default:
				alone, waited = r.d, time.After(patience)
			}
		case <-waited:
			if len(l.conns) == 0 {
				return alone, nil
			}
		case <-ctx.Done():
			return nil, refuse()
		}
		if came > 1 {
			alone.drop()
			alone, waited = nil, nil
		}
		if came > 0 && under == 0 && alone == nil {
			return nil, refuse()
		}
	}
}

// drop resets a data connection, or does nothing if d is nil.
func (d *dataConn) drop() {
	if d != nil {
		d.reset()
	}
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
