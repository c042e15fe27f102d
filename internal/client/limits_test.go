package client

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// slowReader returns few bytes at a time.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(200 * time.Millisecond) // the slowness that is to be found
	r.left--
	return copy(p, "some"), nil
}

// TestLimits: the limiter is found in both directions.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	sessiontest.RandomFile(t, filepath.Join(dir, "f"), 3<<20)
	live := make(map[string]bool)
	slow := newClient(t, home, Options{RateLimit: 16e6})
	call := Transfer{Progress: func(p session.Progress) { live[p.Limiter] = true }}

	report, err := slow.Send(t.Context(), []string{filepath.Join(dir, "f")}, s.invited(t), call)
	require.NoError(t, err)
	require.NotEmpty(t, report.Timeline)
	first := report.Limits[0]
	require.Equal(t, diagnose.RateLimit, first.Limiter, "%+v", report.Limits)
	require.Equal(t, diagnose.Sender, first.Side)
	require.Greater(t, first.Share, 0.5)
	require.True(t, live[string(diagnose.RateLimit)], "%v", live)

	report, err = slow.Get(t.Context(), []session.URL{s.plain(t, "f")}, t.TempDir()+"/", call)
	require.NoError(t, err)
	require.Equal(t, diagnose.RateLimit, report.Limits[0].Limiter, "%+v", report.Limits)

	report, err = newClient(t, home, Options{}).SendStream(t.Context(), &slowReader{5}, s.plain(t, "stream"), Transfer{})
	require.NoError(t, err)
	require.Equal(t, diagnose.Silent, report.Limits[0].Limiter, "%+v", report.Limits)
}

func TestStrict(t *testing.T) {
	for strict, want := range map[bool]session.Kind{false: session.KindOther, true: session.KindPartial} {
		tr := session.NewTracker(session.TrackerOptions{})
		tr.Event(&transfer.Event{Kind: transfer.Warned, Warning: &wire.Warning{What: "owner", Path: "a", Text: "no", Count: 3}})
		j := &job{Client: &Client{}, call: &Transfer{Target: Target{Strict: strict}}, intent: &push{}, tracker: tr, throttle: NewThrottle(0), priority: &priority{}}
		r, err := j.outcome(t.Context(), nil)
		require.Len(t, r.NotStored, 1)
		require.Equal(t, strict, err != nil)
		require.Equal(t, want, session.KindOf(err))
	}
}
