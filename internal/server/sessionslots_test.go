package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestSessionSlots fills a server: another session is refused with the reason, and a client that
// waits gets its turn.
func TestSessionSlots(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]Options{
		"this client has 1 sessions": {MaxSessionsPerClient: 1},
		"the server has 1 sessions":  {MaxSessions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveWith(t, opt, identity.Read|identity.Write)
			defer s.stop()
			home, source := t.TempDir(), filepath.Join(t.TempDir(), "f")
			data := sessiontest.RandomFile(t, source, 3<<20)
			c := newClient(t, home, client.Options{})
			_, err := c.List(t.Context(), s.invited(t))
			require.NoError(t, err)

			// A stream that does not end keeps the only session slot.
			r, w := io.Pipe()
			held, stream := make(chan error, 1), s.plain(t, "stream")
			go func() {
				_, err := c.SendStream(t.Context(), r, stream, client.Transfer{})
				held <- err
			}()
			_, err = w.Write(make([]byte, 4<<20)) // more than is read ahead: the session runs
			require.NoError(t, err)
			require.Eventually(t, func() bool { return s.sessionsOpen() == 1 }, 20*time.Second, time.Millisecond)

			_, err = c.Send(t.Context(), []string{source}, s.plain(t, ""), client.Transfer{})
			require.ErrorContains(t, err, name)
			require.Equal(t, session.KindUnreachable, session.KindOf(err))
			var known *session.Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, session.AdviceRetryLater, known.Advice)
			_, err = c.List(t.Context(), s.plain(t, ""))
			require.ErrorContains(t, err, name, "a listing takes a slot, too")
			_, err = c.Verify(t.Context(), s.plain(t, ""), t.TempDir(), client.Verification{})
			require.ErrorContains(t, err, name)
			_, err = c.Probe(t.Context(), s.plain(t, ""), client.ProbeOptions{})
			require.ErrorContains(t, err, name)

			tried := false
			waiting := newClient(t, home, client.Options{RetryFor: time.Hour, Notice: func(string) {
				if !tried {
					tried = true
					require.NoError(t, w.Close())
				}
			}})
			report, err := waiting.Send(t.Context(), []string{source}, s.plain(t, ""), client.Transfer{})
			require.NoError(t, err)
			require.True(t, tried)
			require.NotZero(t, report.Reconnects)
			require.NoError(t, <-held)
			got, err := os.ReadFile(filepath.Join(s.dir, "f"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
			require.Eventually(t, func() bool { return s.sessionsOpen() == 0 && s.countExtraStreams() == 0 }, 20*time.Second, time.Millisecond)
		})
	}
}

func (s *Server) sessionsOpen() int { s.mu.Lock(); defer s.mu.Unlock(); return s.slots.taken }

func (s *Server) countExtraStreams() int { s.mu.Lock(); defer s.mu.Unlock(); return s.extraStreams }

// TestPastSessions: data streams of a session that got no slot, or has ended, do not wait for it.
func TestPastSessions(t *testing.T) {
	t.Parallel()
	s := serveWith(t, Options{}, identity.Read)
	defer s.stop()
	own := endedSession{[16]byte{1}, "ann"}
	s.forget(own)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	x, over := s.await(ctx, own)
	require.Nil(t, x)
	require.True(t, over)
	require.False(t, s.recent.has(endedSession{own.id, "bob"}), "another client's")
	require.False(t, s.recent.has(endedSession{}), "nothing was added")
	for range len(s.recent.all) {
		s.recent.add(endedSession{[16]byte{2}, "ann"})
	}
	require.False(t, s.recent.has(own), "bounded")
}

// TestRefusedOnce: a command that is refused counts once, and takes one line of the log, whatever
// becomes of its data streams.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		admitted bool
		by       session.Transport
		reason   string
	}{
		"right": {true, session.TransportTCP, wire.CodeRight.String()}, "right, QUIC": {true, session.TransportQUIC, wire.CodeRight.String()},
		"key": {false, session.TransportTCP, wire.CodeTrust.String()}, "key, QUIC": {false, session.TransportQUIC, wire.CodeTrust.String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			s := serveWith(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, identity.Read)
			defer s.stop()
			home := t.TempDir()
			u := s.invited(t)
			if c.admitted {
				_, err := newClient(t, home, client.Options{}).List(t.Context(), u)
				require.NoError(t, err)
			}
			u.Token, u.Path = "", "f"
			file := filepath.Join(t.TempDir(), "f")
			require.NoError(t, os.WriteFile(file, make([]byte, 4<<20), 0o600))
			_, err := newClient(t, home, client.Options{Streams: 16, Transport: c.by}).Send(t.Context(), []string{file}, u, client.Transfer{})
			require.Error(t, err)
			require.Eventually(t, func() bool { return s.conns.Count() == 0 }, 30*time.Second, time.Millisecond)
			require.Equal(t, map[string]int64{c.reason: 1}, s.counters.snapshot().Refused)
			require.Equal(t, 1, strings.Count(log.String(), "msg=refused"), log.String())
		})
	}
}

// TestStreamsInAll: each session always has room for one data stream, and for an equal part of the
// others.
func TestStreamsInAll(t *testing.T) {
	t.Parallel()
	s := &Server{slots: sessionSlots{max: 4, taken: 1}, opt: Options{MaxMemory: otherMemory + 14*streamMemory}}
	sessionOf := func(c *clientUse) *transferSession {
		return &transferSession{request: &request{reservation: &reservation{client: c}}}
	}
	greedy, modest := sessionOf(&clientUse{sessions: 1}), sessionOf(&clientUse{sessions: 1})
	var leave []func()
	for range 1 + 10 {
		out := s.reserveStream(greedy)
		require.NotNil(t, out)
		leave = append(leave, out)
	}
	require.Nil(t, s.reserveStream(greedy), "there are no more")
	s.slots.taken = 2
	require.Equal(t, 1+10/2, s.streamsPerSession(modest.client))
	first := s.reserveStream(modest)
	require.NotNil(t, first)
	require.Nil(t, s.reserveStream(modest))
	for _, out := range leave[:5] {
		out()
		out()
	}
	for i := range 5 {
		require.NotNil(t, s.reserveStream(modest), i)
	}
	require.Nil(t, s.reserveStream(modest), "there are no more")
	require.Equal(t, 10, s.extraStreams)
	for _, out := range leave[5:] {
		out()
	}
	require.Equal(t, 5, s.extraStreams)
	require.NotNil(t, s.reserveStream(modest), "in place of another")
	require.NotNil(t, s.reserveStream(modest))
	require.Nil(t, s.reserveStream(modest), "more than its part")
	require.Zero(t, greedy.streams)
	require.Zero(t, greedy.client.extraStreams)
	require.Equal(t, s.extraStreams, modest.client.extraStreams)

	// One client gets half of many streams with all of its sessions, and others the rest.
	s = &Server{slots: sessionSlots{max: 128, taken: 33}, opt: Options{MaxMemory: DefaultMaxMemory}}
	all := s.opt.extraStreams(128)
	crowd := &clientUse{sessions: 32}
	require.Equal(t, 1+all/2/32, s.streamsPerSession(crowd))
	for range 32 {
		for x := sessionOf(crowd); s.reserveStream(x) != nil; {
		}
	}
	require.Equal(t, all/2, crowd.extraStreams)
	alone := sessionOf(&clientUse{sessions: 1})
	for range s.streamsPerSession(alone.client) {
		require.NotNil(t, s.reserveStream(alone))
	}
}
