package server

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
)

// TestStatus: a server shows a running transfer, knows from the client's samples why it is slow, and
// remembers it.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	dir := t.TempDir()
	data := sessiontest.RandomFile(t, filepath.Join(dir, "f"), 4<<20)
	var running *Status
	live := make(map[diagnose.Limiter]string)
	slow := newClient(t, t.TempDir(), client.Options{RateLimit: 16e6})
	call := client.Transfer{Progress: func(p session.Progress) {
		now := s.Status()
		if len(now.Transfers) == 1 && p.BytesDone > 1<<20 && p.BytesDone < p.Bytes {
			if len(now.Transfers[0].Active) == 1 { // the server may know the end before the client
				running = now
			}
			if limit := now.Transfers[0].Now; limit != nil {
				live[limit.Limiter] = words.Hint(limit)
			}
		}
	}}
	_, err := slow.Send(t.Context(), []string{filepath.Join(dir, "f")}, s.invited(t), call)
	require.NoError(t, err)

	require.NotNil(t, running, "no status was taken while it ran")
	require.True(t, running.Ready)
	require.Equal(t, "data", running.Shares[0].Name)
	require.Len(t, running.Transfers, 1)
	x := running.Transfers[0]
	require.True(t, x.Receive)
	require.Equal(t, "data", x.Share)
	require.Greater(t, x.Written, int64(1<<20))
	require.Positive(t, x.Streams)
	require.NotEmpty(t, live[diagnose.RateLimit], "%v", live)
	require.Equal(t, "f", x.Active[0].Path)

	require.Eventually(t, func() bool { return len(s.Past()) == 1 && len(s.Status().Transfers) == 0 }, 5*time.Second, time.Millisecond, "the server ends after its client")
	past := s.Past()[0]
	require.Equal(t, OutcomeDone, past.Outcome)
	require.Equal(t, int64(len(data)), past.Written)
	require.Equal(t, diagnose.RateLimit, past.Limits[0].Limiter, "%+v", past.Limits)
	require.NotEmpty(t, past.Timeline)
	again, ok := s.Session(past.ID)
	require.True(t, ok)
	require.Equal(t, past, again)

	st := s.Status()
	require.Empty(t, st.Transfers)
	require.Equal(t, map[string]int64{"receive": 1}, st.Counters.Begun)
	require.Len(t, st.Counters.Traffic, 1)
	f := st.Counters.Traffic[0]
	require.Equal(t, int64(len(data)), f.Bytes)
	require.Equal(t, int64(1), f.Files[string(session.Committed)])
	require.Equal(t, map[string]int64{OutcomeDone: 1}, f.Sessions)
	var blocks int64
	for _, n := range f.Blocks.Counts {
		blocks += n
	}
	require.Positive(t, blocks)
	held := f.Limits[string(diagnose.RateLimit)]
	require.Greater(t, held, 500*time.Millisecond, "%v", f.Limits)
	require.Less(t, held, past.Ended.Sub(past.Began)+time.Second)
	require.Positive(t, f.Stages["receive"])
}

// TestCancel: a cancelled transfer ends at once, and the same command continues it.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	dir, home := t.TempDir(), t.TempDir()
	sessiontest.RandomFile(t, filepath.Join(dir, "f"), 32<<20)
	require.False(t, s.Cancel("00"))
	var once sync.Once
	slow := newClient(t, home, client.Options{RateLimit: 160e6, RetryFor: time.Hour})
	call := client.Transfer{Progress: func(p session.Progress) {
		if p.BytesDone > 12<<20 {
			once.Do(func() { s.Cancel(s.Status().Transfers[0].ID) })
		}
	}}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err := slow.Send(ctx, []string{filepath.Join(dir, "f")}, s.invited(t), call)
	require.Equal(t, session.KindInterrupted, session.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "administrator")
	require.Eventually(t, func() bool { return len(s.Past()) == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, OutcomeCancelled, s.Past()[0].Outcome)

	report, err := newClient(t, home, client.Options{}).Send(t.Context(), []string{filepath.Join(dir, "f")}, s.plain(t, ""), client.Transfer{})
	require.NoError(t, err)
	require.Greater(t, report.Resumed, int64(6<<20))
}

// TestRefusalsCounted: refused connections are counted.
func TestRefusalsCounted(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	_, err := newClient(t, t.TempDir(), client.Options{Pin: s.Pin()}).List(t.Context(), s.plain(t, ""))
	require.Equal(t, session.KindTrust, session.KindOf(err))
	require.Eventually(t, func() bool { return s.Status().Counters.Refused["not admitted"] == 1 }, 5*time.Second, time.Millisecond)
	require.Contains(t, RefusalReasons(), "not admitted")
}
