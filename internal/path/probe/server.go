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

// Limits of what a client may request in one session.
const (
	MaxTime    = 2 * time.Minute
	maxBytes   = 64 << 30 // in both directions
	maxConns   = 80       // at a time
	maxJoined  = 4096     // in all
	nextTest   = 30 * time.Second
	testExtra  = 15 * time.Second // beyond a test's time, to drain what is in flight
	maxVolleys = 256
)

// Session is a server's side of one probe. Serve may be called concurrently.
type Session struct {
	port   int // the port that the server listens on; UDP uses the same number if it is free
	start  time.Time
	budget atomic.Int64

	mu          sync.Mutex // guards what follows
	conns       int
	joined      int
	plain       map[[16]byte]*wire.Test // those that expect connections without TLS, by token
	plainJoined int
	sound       bool // a stream uses the UDP port
}

// NewSession creates the session of an admitted client. addr is the address on which the server
// listens.
func NewSession(addr net.Addr) *Session {
	s := &Session{start: time.Now(), plain: map[[16]byte]*wire.Test{}}
	if at, ok := addr.(interface{ AddrPort() netip.AddrPort }); ok {
		s.port = int(at.AddrPort().Port())
	}
	s.budget.Store(maxBytes)
	return s
}

// Serve runs the tests that the client requests on one of its streams, until the stream ends. ctx
// must end with the session.
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
			err = answer(c, nil, t, &s.budget)
		case wire.Plain:
			err = s.servePlain(c, r, t)
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

// upload receives a flow and reports its progress.
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
