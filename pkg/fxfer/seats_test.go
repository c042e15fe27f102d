package fxfer

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestSeats fills a server: another session is refused with the reason, and one that waits gets its turn.
func TestSeats(t *testing.T) {
	for name, opt := range map[string]ServerOptions{
		"this client has 1 sessions": {MaxSessionsPerClient: 1},
		"the server has 1 sessions":  {MaxSessions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s := serveWith(t, opt, identity.Read|identity.Write)
			defer s.stop()
			home, source := t.TempDir(), filepath.Join(t.TempDir(), "f")
			data := randomFile(t, source, 3<<20)
			c := client(t, home, Options{})
			_, err := c.List(t.Context(), s.invited(t))
			require.NoError(t, err)

			// A stream that does not end keeps the only seat.
			r, w := io.Pipe()
			held, stream := make(chan error, 1), s.plain(t, "stream")
			go func() {
				_, err := c.SendStream(t.Context(), r, stream)
				held <- err
			}()
			_, err = w.Write(make([]byte, 4<<20)) // more than is read ahead: the session is there
			require.NoError(t, err)
			require.Eventually(t, func() bool { return s.seated() == 1 }, 20*time.Second, time.Millisecond)

			_, err = c.Send(t.Context(), []string{source}, s.plain(t, ""))
			require.ErrorContains(t, err, name)
			require.Equal(t, KindUnreachable, KindOf(err))
			var hint interface{ Hint() string }
			require.ErrorAs(t, err, &hint)
			require.Contains(t, hint.Hint(), "--retry-for")
			_, err = c.List(t.Context(), s.plain(t, ""))
			require.ErrorContains(t, err, name, "a listing takes a seat, too")
			_, err = c.Verify(t.Context(), s.plain(t, ""), t.TempDir(), nil)
			require.ErrorContains(t, err, name)
			_, err = c.Probe(t.Context(), s.plain(t, ""), ProbeOptions{})
			require.ErrorContains(t, err, name)

			tried := false
			waiting := client(t, home, Options{RetryFor: time.Hour, Notice: func(string) {
				if !tried {
					tried = true
					require.NoError(t, w.Close())
				}
			}})
			report, err := waiting.Send(t.Context(), []string{source}, s.plain(t, ""))
			require.NoError(t, err)
			require.True(t, tried)
			require.NotZero(t, report.Reconnects)
			require.NoError(t, <-held)
			got, err := os.ReadFile(filepath.Join(s.dir, "f"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			require.Eventually(t, func() bool { return s.seated() == 0 && s.opened() == 0 }, 20*time.Second, time.Millisecond)
		})
	}
}

func (s *Server) seated() int { s.mu.Lock(); defer s.mu.Unlock(); return s.seats.taken }
func (s *Server) opened() int { s.mu.Lock(); defer s.mu.Unlock(); return s.streams }

// TestSentAwayDoesNotWait: the data streams of a session that had no seat don't take the place of strangers for long.
func TestSentAwayDoesNotWait(t *testing.T) {
	s := serveWith(t, ServerOptions{}, identity.Read)
	defer s.stop()
	id := [16]byte{1}
	s.mu.Lock()
	s.sentAway.add(id)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.Nil(t, s.await(ctx, id))
	require.False(t, s.sentAway.has([16]byte{}), "nothing was put in")
	for range len(s.sentAway.ids) {
		s.sentAway.add([16]byte{2})
	}
	require.False(t, s.sentAway.has(id), "bounded")
}

// TestStreamsInAll: each session has room for one data stream, however many there are.
func TestStreamsInAll(t *testing.T) {
	s := &Server{}
	greedy, modest := &serverSession{}, &serverSession{}
	var leave []func()
	for range maxStreamsInAll {
		leave = append(leave, s.enterStream(greedy))
	}
	require.Nil(t, s.enterStream(greedy))
	first := s.enterStream(modest)
	require.NotNil(t, first)
	require.Nil(t, s.enterStream(modest))
	leave[0]()
	leave[0]()
	leave[1]()
	require.NotNil(t, s.enterStream(modest))
	require.Equal(t, maxStreamsInAll, s.streams)
}

func TestStrangersAreBounded(t *testing.T) {
	gate := newStrangers()
	from := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	var leave []func()
	for i := range maxStrangersFrom {
		out, ok := gate.enter(from(1))
		require.True(t, ok, i)
		leave = append(leave, out)
	}
	_, ok := gate.enter(from(1))
	require.False(t, ok, "of one address")
	for i := range maxStrangers - maxStrangersFrom {
		_, ok := gate.enter(from(byte(2 + i/maxStrangersFrom)))
		require.True(t, ok, i)
	}
	_, ok = gate.enter(from(99))
	require.False(t, ok, "in all")
	leave[0]()
	leave[0]()
	_, ok = gate.enter(from(99))
	require.True(t, ok)
	_, ok = gate.enter(from(98))
	require.False(t, ok)
}
