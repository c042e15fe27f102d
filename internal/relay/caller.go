package relay

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// mostAsked is for how many connections a server may be asked before it has heard of the first.
	mostAsked = 64
	// tellWithin is how long a server may take to read a message.
	tellWithin = 10 * time.Second
)

// caller is a server that has called this relay, and opens connections when it is asked to.
type caller struct {
	asked chan [16]byte
	end   context.CancelFunc
}

// meeting is a client's connection that waits for one of its server.
type meeting struct {
	server  identity.Pin
	arrived chan transport.Conn // takes one without waiting
	over    chan struct{}       // closed when the client does not use that connection any more
}

// await serves the control connection of a server. Its last one takes the place of those before: they
// are what a line that broke has left.
func (r *Relay) await(ctx context.Context, conn transport.Conn, key identity.Pin, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &caller{make(chan [16]byte, mostAsked), cancel}
	r.mu.Lock()
	if old := r.callers[key]; old != nil {
		old.end()
	}
	r.callers[key] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.callers[key] == c {
			delete(r.callers, key)
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	log.Info("a server waits for clients")
	told := make(chan struct{})
	go func() {
		defer close(told)
		defer cancel()
		c.tell(ctx, conn)
	}()
	err := hear(conn)
	cancel()
	<-told
	log.Info("a server does not wait any more", "error", err)
	return err
}

// tell pings the server, and tells it of clients, until ctx is done or the server is gone.
func (c *caller) tell(ctx context.Context, conn transport.Conn) {
	tick := time.NewTicker(session.AwaitPing)
	defer tick.Stop()
	var m wire.Message = &wire.Ping{Time: time.Now().UnixNano()}
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(tellWithin))
		if _, err := conn.Write(wire.Append(nil, m)); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m = &wire.Ping{Time: now.UnixNano()}
		case id := <-c.asked:
			m = &wire.Called{ID: id}
		}
	}
}

// hear reads the answers to pings until there are none.
func hear(conn transport.Conn) error {
	in := wire.NewReader(conn, wire.MaxFirstMessage)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(session.AwaitSilence))
		m, err := in.Next()
		if err != nil {
			return err
		}
		if _, ok := m.(*wire.Pong); !ok {
			return wire.Errorf(wire.CodeProtocol, "a server that waits sends only answers to pings")
		}
	}
}

// call asks a server for a connection, and waits for it. The caller calls done when it does not use the
// connection any more.
func (r *Relay) call(ctx context.Context, target string, key identity.Pin) (conn transport.Conn, done func(), err error) {
	m := &meeting{key, make(chan transport.Conn, 1), make(chan struct{})}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	r.mu.Lock()
	c := r.callers[key]
	if c != nil {
		r.meetings[id] = m
	}
	r.mu.Unlock()
	if c == nil {
		return nil, nil, wire.Errorf(wire.CodeBusy, "%s has not called the relay", target)
	}
	busy := wire.Errorf(wire.CodeBusy, "%s does not answer the relay now", target)
	select {
	case c.asked <- id:
		select {
		case conn = <-m.arrived:
			return conn, func() { close(m.over) }, nil
		case <-ctx.Done():
		}
	default:
	}
	r.mu.Lock()
	delete(r.meetings, id)
	r.mu.Unlock()
	close(m.over)
	return nil, nil, busy
}

// meet hands a server's connection to the client that waits for it, and returns when that does not use
// it any more.
func (r *Relay) meet(conn transport.Conn, key identity.Pin, id [16]byte) error {
	r.mu.Lock()
	m := r.meetings[id]
	if m == nil || m.server != key {
		r.mu.Unlock()
		return wire.Errorf(wire.CodeProtocol, "no client waits for this connection")
	}
	delete(r.meetings, id)
	r.mu.Unlock()
	_ = transport.Plain(conn) // a relay accepts only TCP
	_ = conn.SetDeadline(time.Time{})
	m.arrived <- conn
	<-m.over
	return nil
}
