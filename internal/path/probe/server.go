package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

// What a client may ask of one session.
const (
	MaxTime    = 2 * time.Minute
	maxBytes   = 64 << 30 // in both directions
	maxConns   = 80       // at a time
	maxJoined  = 4096     // in all
	nextTest   = 30 * time.Second
	testExtra  = 15 * time.Second // that a test may take beyond its time, to drain what is in flight
	maxVolleys = 256
)

// Session is a server's side of one probe. Serve may be called concurrently.
type Session struct {
	port   int // that is listened on, whose number UDP gets if it is free
	start  time.Time
	budget atomic.Int64

	mu     sync.Mutex
	conns  int
	joined int
	sound  bool // a stream has the UDP port
}

// NewSession makes the session of a client that was admitted. addr is where the server listens.
func NewSession(addr net.Addr) *Session {
	s := &Session{start: time.Now()}
	if at, ok := addr.(interface{ AddrPort() netip.AddrPort }); ok {
		s.port = int(at.AddrPort().Port())
	}
	s.budget.Store(maxBytes)
	return s
}

// Serve carries out the tests that the client asks for on one of its streams, until it ends. ctx ends with the session.
func (s *Session) Serve(ctx context.Context, c Conn) error {
	if !s.enter() {
		return wire.Errorf(wire.CodeBusy, "a probe has at most %d streams at a time, and %d in all", maxConns, maxJoined)
	}
	defer s.leave()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	r := wire.NewReader(c, wire.MaxFirstMessage)
	for {
		_ = c.SetDeadline(time.Now().Add(nextTest))
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t, ok := m.(*wire.Test)
		if !ok {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Duration(t.Time)*time.Millisecond + testExtra))
		switch t.Kind {
		case wire.Exchange:
			err = answer(c, t, &s.budget)
		case wire.Upload:
			err = s.upload(c)
		case wire.Download:
			err = s.download(c, t)
		case wire.Sound:
			err = s.serveSound(ctx, c, r)
		default:
			err = wire.Errorf(wire.CodeUnsupported, "there is no test of kind %d", t.Kind)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= maxConns || s.joined >= maxJoined {
		return false
	}
	s.conns++
	s.joined++
	return true
}

func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
}

// upload receives a flow and tells how it comes on.
func (s *Session) upload(c Conn) error {
	end, err := receiveFlow(c, &s.budget, s.start, func(bytes int64, at time.Duration) error {
		_, err := c.Write(wire.Append(nil, &wire.Sample{Values: []wire.Value{{Name: "bytes", Value: bytes}, {Name: "ns", Value: int64(at)}}}))
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.Write(wire.Append(nil, &wire.Sample{Values: end.values()}))
	return err
}

func (s *Session) download(c Conn, t *wire.Test) error {
	most := s.budget.Load()
	if t.Size > 0 {
		most = int64(min(t.Size, uint64(max(0, most))))
	}
	end, sent, err := sendFlow(c, time.Duration(t.Time)*time.Millisecond, most)
	s.budget.Add(-sent)
	if err != nil {
		return err
	}
	_, err = c.Write(wire.Append(nil, &wire.Sample{Values: end.values()}))
	return err
}
