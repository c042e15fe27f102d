package probe

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

// PlainHead is how many bytes of the first message on a connection without TLS say to which test it
// belongs: the first byte, which is 0 or 1, and the token.
const PlainHead = 1 + 16

// maxPlain bounds the connections without TLS of one session, in all.
const maxPlain = 4096

// PlainLine is a connection without TLS, as the server's rate limits let it pass.
type PlainLine interface {
	line
	SetDeadline(time.Time) error
}

// servePlain lets the client open connections without TLS for a test until its data stream
// ends.
func (s *Session) servePlain(c Conn, r *wire.Reader, t *wire.Test) error {
	if s.port == 0 {
		return wire.Errorf(wire.CodeUnsupported, "connections without TLS need a TCP port")
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails
	s.mu.Lock()
	s.plain[token] = t
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.plain, token)
	}()
	if _, err := c.Write(wire.Append(nil, &wire.Opened{Port: uint64(s.port), Token: token})); err != nil {
		return err
	}
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// AwaitsPlain reports whether a test expects connections without TLS.
func (s *Session) AwaitsPlain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.plain) > 0
}

// ExpectsPlain reports whether a connection that begins with this head belongs to a test of the
// session.
func (s *Session) ExpectsPlain(head [PlainHead]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plain[[16]byte(head[1:])] != nil
}

// ServePlain answers the messages on a connection for which ExpectsPlain is true, until the last one.
func (s *Session) ServePlain(l PlainLine, head [PlainHead]byte) error {
	s.mu.Lock()
	t := s.plain[[16]byte(head[1:])]
	allowed := t != nil && s.conns < maxConns && s.plainJoined < maxPlain
	if allowed {
		s.conns++
		s.plainJoined++
	}
	s.mu.Unlock()
	if !allowed {
		return wire.Errorf(wire.CodeBusy, "a probe has at most %d connections without TLS", maxPlain)
	}
	defer s.leave()
	_ = l.SetDeadline(time.Now().Add(time.Duration(t.Time)*time.Millisecond + testExtra))
	if err := answer(l, head[:], t, &s.budget); err != nil {
		return err
	}
	// The client closes the connection. To close it here would send at once what Nagle's algorithm
	// holds back.
	_, _ = l.Read(head[:1])
	return nil
}

// plainTest is a client's side of a test on connections without TLS. The test ends with its data
// stream.
type plainTest struct {
	token [16]byte
	test  *wire.Test
}

// openPlain begins a test on connections without TLS, on a data stream.
func openPlain(c Conn, t wire.Test) (*plainTest, error) {
	t.Kind = wire.Plain
	if _, err := c.Write(wire.Append(nil, &t)); err != nil {
		return nil, err
	}
	m, err := wire.NewReader(c, wire.MaxFirstMessage).Next()
	if err != nil {
		return nil, err
	}
	opened, ok := m.(*wire.Opened)
	if !ok {
		return nil, refusal(m)
	}
	return &plainTest{token: opened.Token, test: &t}, nil
}

// exchanger sends the messages of the test on a new connection.
func (p *plainTest) exchanger(c *net.TCPConn, noDelay, cork bool) (*exchanger, error) {
	x, err := exchangerOn(plainLine{c}, p.test, noDelay, cork)
	copy(x.msg[1:], p.token[:])
	return x, err
}
