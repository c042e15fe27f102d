//go:build linux

package fleet_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// line is a way to an address that can be cut.
type line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	conns map[net.Conn]bool
	made  int           // connections, since it began
	open  chan struct{} // closed while bytes pass
	cut   bool          // connections end at once
}

// newLine makes a line to an address, until the test ends.
func newLine(t *testing.T, to string) *line {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	x := &line{listener: l, to: to, conns: make(map[net.Conn]bool), open: make(chan struct{})}
	close(x.open)
	var carried sync.WaitGroup
	carried.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			carried.Go(func() { x.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		x.sever()
		carried.Wait()
	})
	return x
}

func (x *line) address() string { return x.listener.Addr().String() }

// carry joins a connection to another one, until one of them ends.
func (x *line) carry(c net.Conn) {
	defer c.Close()
	far, err := net.Dial("tcp", x.to)
	if err != nil {
		return
	}
	defer far.Close()
	if !x.keep(c, far) {
		return
	}
	defer x.drop(c, far)
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, gated{x, from})
		_, _ = to.Close(), from.Close()
	}
	both.Go(func() { pass(far, c) })
	pass(c, far)
	both.Wait()
}

// gated reads while its line is open.
type gated struct {
	x    *line
	from net.Conn
}

func (g gated) Read(b []byte) (int, error) {
	n, err := g.from.Read(b)
	g.x.mu.Lock()
	open := g.x.open
	g.x.mu.Unlock()
	<-open
	return n, err
}

func (x *line) keep(conns ...net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.made++
	for _, c := range conns {
		x.conns[c] = true
	}
	return !x.cut
}

func (x *line) drop(conns ...net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range conns {
		delete(x.conns, c)
	}
}

// sever ends all connections, and lets none through until heal.
func (x *line) sever() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = true
	for c := range x.conns {
		_ = c.Close()
	}
	x.passLocked()
}

// hold lets no bytes through until heal, and tells nobody.
func (x *line) hold() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = make(chan struct{})
}

// silence ends all connections, and holds those that come after.
func (x *line) silence() {
	x.hold()
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		_ = c.Close()
	}
}

// connected returns how many connections were made.
func (x *line) connected() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.made
}

// heal ends what sever or hold have begun.
func (x *line) heal() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = false
	x.passLocked()
}

func (x *line) passLocked() {
	select {
	case <-x.open:
	default:
		close(x.open)
	}
}
