package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// admitWithin is the time for a peer's handshake and first message, and for a data stream's session
// to appear. It is for slow lines; see transport.HandshakeTimeout.
const admitWithin = 20 * time.Second

// connection is an accepted connection: the control stream of a session, or a data stream.
type connection struct {
	transport.Conn
	slot *connlimit.Slot
	peer peerIdentity
	log  *slog.Logger
}

// admit notes that the peer may stay: it is authenticated and does what it may.
func (c *connection) admit() {
	c.Conn.Admit()
	c.slot.Authenticated()
}

// serveConn serves one connection until it ends.
func (s *Server) serveConn(ctx context.Context, conn transport.Conn, slot *connlimit.Slot) {
	defer slot.Release()
	defer conn.Close()
	release := interruptible(ctx, conn)
	defer release()
	begin, cancel := context.WithTimeout(ctx, admitWithin)
	defer cancel()
	c := &connection{Conn: conn, slot: slot, log: s.log.With("peer", conn.RemoteAddr().String())}
	if s.servePlain(begin, c) {
		return
	}
	m := s.firstMessage(begin, c)
	if m == nil {
		return
	}
	c.peer = s.identify(conn)
	var err error
	switch m := m.(type) {
	case *wire.Hello:
		err = s.hello(ctx, c, m)
	case *wire.Join:
		err = s.join(begin, c, m)
	default:
		err = wire.Errorf(wire.CodeProtocol, "a connection begins with Hello or Join")
	}
	var refusal *wire.Error
	if errors.As(err, &refusal) && !refusal.Remote {
		if c.overQUIC() { // a connection has many streams
			_ = slot.Wait(begin)
		}
		release() // ctx may be done, and the refusal takes seconds at most
		s.refuse(c, refusal)
	}
}

func (c *connection) overQUIC() bool {
	info, _ := c.Info()
	return info.Protocol == transport.QUIC
}

// firstMessage completes the handshake and reads the first message. It returns nil, after logging,
// if there is none.
func (s *Server) firstMessage(ctx context.Context, c *connection) wire.Message {
	var err error
	if !c.overQUIC() { // a QUIC connection has waited already
		err = c.slot.Wait(ctx)
	}
	if err == nil {
		err = c.Handshake(ctx)
	}
	if err != nil {
		s.lose(c, refusedHandshake, err)
		return nil
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	m, err := wire.NewReader(c, wire.MaxFirstMessage).Next()
	if err != nil {
		s.lose(c, refusedFirstMessage, err)
		return nil
	}
	return m
}

// lose notes why a connection ended before its first message. A peer that hung up was not refused:
// at the end of a session, a client does so with the data streams that it was still connecting.
func (s *Server) lose(c *connection, reason string, err error) {
	hungUp := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)
	if !hungUp {
		s.counters.refuse(reason)
	}
	c.log.Debug(reason, "error", err)
}

// refuse tells the peer why it is refused.
func (s *Server) refuse(c *connection, why *wire.Error) {
	if why != errSessionOver {
		s.counters.refuse(why.Code.String())
		c.log.Info("refused", "client", c.peer.label, "code", why.Code.String(), "reason", why.Text)
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := c.Write(wire.Append(nil, &wire.Refuse{Code: why.Code, Text: why.Text}))
	if err == nil {
		_ = c.CloseWrite()
		linger(c)
	}
}

// checkVersion refuses peers with another protocol version.
func checkVersion(peer uint64) error {
	if peer == wire.Version {
		return nil
	}
	return wire.Errorf(wire.CodeVersion,
		"the server speaks protocol version %d, the client %d", wire.Version, peer)
}

// interruptible makes reads and writes on conn fail when ctx is done. After release, which may be
// called again, that has happened or never will: deadlines belong to the caller.
func interruptible(ctx context.Context, conn transport.Conn) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return sync.OnceFunc(func() {
		if !stop() {
			<-done
		}
	})
}

// linger reads what the peer has sent already. Closing a connection with unread data would reset
// it, and the peer might not see why it was refused.
func linger(conn transport.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 16<<10)
	for range 64 {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}
