package server

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// callWithin is how long a connection to a relay may take. The relay waits for less.
	callWithin = 20 * time.Second
	// The pause before a relay is called again.
	leastCallPause = time.Second
	mostCallPause  = time.Minute
)

// keepCalling waits for clients at a relay until ctx is done, whatever happens to the line.
func (s *Server) keepCalling(ctx context.Context, u session.URL) {
	log := s.log.With("relay", u.Address())
	pause := time.Duration(0)
	for ctx.Err() == nil {
		w := waiting{Server: s, relay: u}
		w.heard = func() { log.Info("clients reach the server at a relay") }
		began := time.Now()
		err := w.run(ctx)
		if ctx.Err() != nil {
			return
		}
		pause = pauseAfter(pause, time.Since(began))
		jittered := pause/2 + rand.N(pause) //nolint:gosec // jitter
		log.Warn("no client reaches the server at a relay", "error", err, "again in", jittered)
		session.Sleep(ctx, jittered)
	}
}

// pauseAfter is the pause after a call that lasted so long. The one before is 0 for none. It grows also
// where each call succeeds and ends at once: the relay may end them, or another server with this key.
func pauseAfter(before, lasted time.Duration) time.Duration {
	if lasted >= mostCallPause {
		return leastCallPause
	}
	return min(max(2*before, leastCallPause), mostCallPause)
}

// waiting is one connection to a relay on which the server hears of clients.
type waiting struct {
	*Server
	relay   session.URL
	heard   func() // called once when the relay has answered
	welcome bool   // it was called
}

// run connects, and opens a connection for each client, until the relay is gone or ctx is done.
func (w *waiting) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := w.dial(ctx, &wire.Await{Version: wire.Version})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var meeting sync.WaitGroup
	defer meeting.Wait()
	defer cancel()
	in := wire.NewReader(conn, wire.MaxFirstMessage)
	for {
		_ = conn.SetDeadline(time.Now().Add(session.AwaitSilence))
		m, err := in.Next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Ping:
			if !w.welcome {
				w.welcome = true
				w.heard()
			}
			_ = conn.SetDeadline(time.Now().Add(session.AwaitSilence))
			if _, err := conn.Write(wire.Append(nil, &wire.Pong{Time: m.Time})); err != nil {
				return err
			}
		case *wire.Called:
			// The bounds for connections from the relay's address hold for those to it: a relay that
			// asks for more than clients need costs no more than clients that come by themselves.
			slot := w.conns.Acquire(conn.RemoteAddr())
			if slot == nil { // the relay tells its client
				w.counters.refuse(refusedConnLimit)
				continue
			}
			meeting.Go(func() { w.meet(ctx, m.ID, slot) })
		case *wire.Refuse:
			return &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		default:
			return wire.Errorf(wire.CodeProtocol, "the relay sent a message of type %d", m.Type())
		}
	}
}

// dial connects to the relay and sends a first message.
func (w *waiting) dial(ctx context.Context, m wire.Message) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	cfg := transport.Config{Identity: w.key, Standard: w.opt.StandardCrypto}
	conn, err := transport.Dial(ctx, w.relay.Address(), cfg, func(key ed25519.PublicKey) error {
		offered := identity.PinOf(key)
		switch {
		case w.relay.Pin == "":
			return w.store.CheckServer(w.relay.Address(), offered)
		case w.relay.Pin != offered:
			return fmt.Errorf("the relay has the key %s, not %s", offered, w.relay.Pin)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(callWithin))
	if _, err := conn.Write(wire.Append(nil, m)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// dialIn dials when the handshake may begin.
func (w *waiting) dialIn(ctx context.Context, m wire.Message, slot *connlimit.Slot) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	if err := slot.Wait(ctx); err != nil {
		return nil, err
	}
	return w.dial(ctx, m)
}

// meet opens a connection for a client, which is then served as if it was accepted. It releases slot
// before: the client gets its own.
func (w *waiting) meet(ctx context.Context, id [16]byte, slot *connlimit.Slot) {
	conn, err := w.dialIn(ctx, &wire.Meet{Version: wire.Version, ID: id}, slot)
	slot.Release()
	if err != nil {
		w.log.Debug("no connection for a client", "relay", w.relay.Address(), "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	socket, err := transport.Detach(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	client, err := transport.Adopt(w.listen[0], socket)
	if err != nil {
		_ = socket.Close()
		w.log.Debug("no connection for a client", "relay", w.relay.Address(), "error", err)
		return
	}
	select {
	case w.called <- client:
	case <-w.deaf:
		_ = client.Close()
	case <-ctx.Done():
		_ = client.Close()
	}
}
