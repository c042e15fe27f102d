package quic

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Group is the QUIC connections of one client to one server. The streams that are dialled with it
// share them. Its methods may be called concurrently. The zero Group is ready.
type Group struct {
	all sync.WaitGroup // connections that are not gone

	mu    sync.Mutex // guards what follows
	want  int        // connections for shared streams, 0 is 1
	links []*dialled
	most  int           // links at a time
	over  chan struct{} // closed by Close; nil until somebody needs it
	ended bool
	addr  netip.AddrPort // where the server has answered
}

// SetWant sets how many connections the streams that are dialled from now on are spread over.
func (g *Group) SetWant(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = n
}

// Links is the largest number of connections that were shared at a time.
func (g *Group) Links() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// Close waits until the peer has everything that was written, but not longer than patience. All
// streams must be closed.
func (g *Group) Close(patience time.Duration) {
	gone := make(chan struct{})
	go func() { g.all.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(patience):
	}
	g.mu.Lock()
	if !g.ended {
		g.ended = true
		close(g.overLocked())
	}
	g.mu.Unlock()
	<-gone
}

func (g *Group) overLocked() chan struct{} {
	if g.over == nil {
		g.over = make(chan struct{})
	}
	return g.over
}

// take returns a link for another stream: the link with the fewest streams, or a new one if there
// are fewer than wanted. With apart it is a new link that nobody else gets. run runs a new link.
func (g *Group) take(
	apart bool, run func(d *dialled, over <-chan struct{}, hint netip.AddrPort),
) (*dialled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, fmt.Errorf("connections are closed: %w", net.ErrClosed)
	}
	var best *dialled
	for _, d := range g.links {
		if best == nil || d.users < best.users {
			best = d
		}
	}
	if apart || best == nil || len(g.links) < g.want {
		best = &dialled{group: g, idle: make(chan struct{}), ready: make(chan struct{})}
		if !apart {
			g.links = append(g.links, best)
			g.most = max(g.most, len(g.links))
		}
		d, over, hint := best, g.overLocked(), g.addr
		g.all.Go(func() { run(d, over, hint) })
	}
	best.users++
	return best, nil
}

// giveBack ends the use of a link by one stream. A link without any user ends.
func (g *Group) giveBack(d *dialled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d.users--; d.users == 0 {
		g.dropLocked(d)
		close(d.idle)
	}
}

// dropLocked removes a link, so that it gets no further stream.
func (g *Group) dropLocked(d *dialled) {
	g.links = slices.DeleteFunc(g.links, func(other *dialled) bool { return other == d })
}

// dialled is a link of a Group.
type dialled struct {
	link
	group *Group
	users int           // streams that are open or about to be; guarded by group.mu
	idle  chan struct{} // closed when there are none, and no more will come
	ready chan struct{} // closed when the handshake is over
	err   error         // of the handshake; set before ready is closed
}

// run connects, and keeps the connection as long as it lives and somebody uses it.
func (d *dialled) run(
	addr string, conf *tls.Config, trace tracer, over <-chan struct{}, hint netip.AddrPort,
) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), linkKey{}, &d.link))
	defer cancel()
	go func() { // ends the handshake when nobody waits for it any more
		select {
		case <-over:
		case <-d.idle:
		case <-ctx.Done():
		case <-d.ready:
			return
		}
		cancel()
	}()
	c, err := connect(ctx, addr, hint, conf, trace)
	if err == nil {
		defer c.close()
		c.udp.onRefused(func() { _ = c.conn.CloseWithError(codeGone, "nobody listens on its port any more") })
		d.udp = c.udp
		d.connected(c.conn)
		d.admit()
	}
	d.group.mu.Lock()
	if err == nil {
		d.group.addr = c.to
	} else {
		d.err = err
		d.group.dropLocked(d)
	}
	d.group.mu.Unlock()
	close(d.ready)
	if err != nil {
		return
	}
	select {
	case <-over:
	case <-d.conn.Context().Done():
	case <-d.idle:
		d.goodbye(over)
	}
	d.group.mu.Lock()
	d.group.dropLocked(d)
	d.group.mu.Unlock()
}

// stream opens another stream.
func (d *dialled) stream(ctx context.Context) (*Conn, error) {
	s, err := d.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(&d.link, s)
	c.gone = func() { d.group.giveBack(d) }
	c.ready.Store(true)
	d.enter(c)
	if _, err := s.Write([]byte{preface}); err != nil {
		d.leave(c)
		return nil, err
	}
	return c, nil
}

// goodbye tells the server how many streams there were, and waits until the server has seen the end
// of each. The server then ends the connection.
func (d *dialled) goodbye(over <-chan struct{}) {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if opened == 0 { // nobody waited for the handshake, so the server has nothing to receive
		return
	}
	s, err := d.conn.OpenUniStream()
	if err != nil {
		return
	}
	if !sendCount(s, opened) {
		return
	}
	select {
	case <-over:
	case <-d.conn.Context().Done():
	case <-time.After(lingerTimeout):
	}
}

func sendCount(s *quic.SendStream, n int64) bool {
	_, err := s.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
	return err == nil && s.Close() == nil
}
