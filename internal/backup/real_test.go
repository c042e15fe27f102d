package backup

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var long = flag.Bool("long", false, "two nights of half a minute instead of seconds, and the forecast against the clock")

// realServer serves a folder on the loopback. It returns the folder, its URL for a client with a
// home folder of its own, and that home folder.
func realServer(t *testing.T) (dir string, u fxfer.URL, home string) {
	t.Helper()
	dir, home = t.TempDir(), t.TempDir()
	return dir, serverFor(t, home, dir, identity.Read|identity.Write), home
}

// readable is a server that lets the client of a home folder read.
func readable(t *testing.T, home string) (dir string, u fxfer.URL) {
	t.Helper()
	dir = t.TempDir()
	u = serverFor(t, home, dir, identity.Read)
	u.TrailingSlash = true
	return dir, u
}

// serverFor serves a folder on the loopback to the client of a home folder.
func serverFor(t *testing.T, home, dir string, rights identity.Rights) fxfer.URL {
	t.Helper()
	return serverOf(t, home, fxfer.Share{Dir: dir}, rights)
}

// serverOf is serverFor with more about the share.
func serverOf(t *testing.T, home string, share fxfer.Share, rights identity.Rights) fxfer.URL {
	t.Helper()
	share.Name, share.Rights = "s", identity.Read|identity.Write
	server, err := fxfer.NewServer(fxfer.ServerOptions{Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []fxfer.Share{share}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	text, err := server.Invite(fxfer.InviteOptions{Host: "127.0.0.1", Rights: rights})
	require.NoError(t, err)
	u, err := fxfer.ParseURL(text)
	require.NoError(t, err)
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	_, err = client.List(t.Context(), u)
	require.NoError(t, err)
	u.Token, u.Pin = "", ""
	return u
}

// A job that does not fit its window pauses at the end of the window, and resumes the next night
// from its checkpoint. The forecast predicts its end.
func TestPauseOverNight(t *testing.T) {
	t.Parallel()
	night := 4 * time.Second
	if *long {
		night = 30 * time.Second
	}
	const rate = 40e6 // bit/s
	dir, u, home := realServer(t)
	source := t.TempDir()
	size := int64(1.5 * night.Seconds() * rate / 8)
	data := make([]byte, size)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data)
	require.NoError(t, os.WriteFile(filepath.Join(source, "image"), data, 0o644))
	u.Path = "night"
	config, err := parseConfig("jobs", fmt.Appendf(nil, "time-zone: UTC\njobs: [{name: a, schedule: %d 59 5 * * *, window: 22:00-06:00, overrun: pause, rate: 40mbit, compress: none, sources: [%s/], destination: '%s'}]",
		60-int(night.Seconds()), source, u.String()))
	require.NoError(t, err)
	job := config.Jobs[0]

	clock := &setClock{}
	clock.set(moment(t, "2026-11-20T05:00:00Z").Sub(clock.Now()))
	store := OpenStore(home)
	d := &Daemon{Config: config, Look: 50 * time.Millisecond, Runner: &Runner{Store: store, Transferrer: &Client{Home: home}, Clock: clock, Log: quiet()}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { require.NoError(t, d.Run(ctx)) })
	state := func() State {
		st, err := store.State("a")
		require.NoError(t, err)
		return st
	}
	status := func() *Status {
		st := state()
		return StatusOf(job, st, nil, store.Running("a"), clock.Now())
	}
	waitFor := func(what string, done func() bool) {
		t.Helper()
		require.Eventually(t, done, 2*time.Minute, 20*time.Millisecond, what)
	}
	waitFor("first look", func() bool { return !state().Handled.IsZero() })
	clock.set(moment(t, "2026-11-20T06:00:00Z").Add(-night - time.Second/5).Sub(clock.Now())) // so late that the rest of the night is too short
	waitFor("pauses", func() bool { a := state().Active; return a != nil && a.Pauses == 1 && a.Leg.IsZero() })
	paused := status()
	require.Equal(t, Paused, paused.Condition)
	require.Equal(t, "2026-11-20T22:00:00Z", paused.Next.UTC().Format(time.RFC3339))
	require.NotNil(t, paused.Forecast)
	written := paused.State.Active.Written
	require.Positive(t, written)
	require.Less(t, written, size)
	require.NoDirExists(t, filepath.Join(dir, "night", paused.State.Active.Snapshot), "not visible")

	clock.set(moment(t, "2026-11-20T21:59:59Z").Sub(clock.Now()))
	waitFor("ends", func() bool { return state().Active == nil })
	cancel()
	running.Wait()
	st := state()
	require.Equal(t, Good, st.Last.Outcome, st.Last.Error)
	require.Equal(t, paused.State.Active.Snapshot, st.Last.Snapshot)
	require.LessOrEqual(t, st.Last.Written, size+8<<20, "it went on from its checkpoint")
	got, err := os.ReadFile(filepath.Join(dir, "night", st.Last.Snapshot, "image"))
	require.NoError(t, err)
	require.Equal(t, data, got)

	opened := moment(t, "2026-11-20T22:00:00Z")
	forecast, actual := paused.Forecast.End.Sub(opened), st.Last.Ended.Sub(opened)
	t.Logf("first night %d of %d bytes; the second took %v, forecast %v: %+.1f %%; of the whole %+.1f %%", written, size, actual, forecast,
		100*(forecast.Seconds()/actual.Seconds()-1), 100*(forecast-actual).Seconds()/st.Last.Working)
	// What the second night takes depends on what else the machine does. What the first night
	// says about it does not: the rest, at the job's rate or at the mean of the first night.
	rest, mean := float64(size-written), float64(written)/paused.State.Active.Working
	require.GreaterOrEqual(t, forecast.Seconds(), 0.9*rest*8/rate, "more than the job's rate")
	const older = 4 << 20 // bytes: the last progress, of which the forecast is, may be so far behind
	require.LessOrEqual(t, forecast.Seconds(), 1.1*(rest+older)/min(mean, rate/8), "less than the mean of the first night")
	if *long {
		require.InDelta(t, 0, (forecast-actual).Seconds()/st.Last.Working, 0.1)
	}
}

// The output of a command that failed never becomes a backup.
func TestFailedCommand(t *testing.T) {
	needShell(t)
	dir, u, home := realServer(t)
	u.Path = "dump"
	for _, mode := range []Mode{Mirror, Snapshots} {
		job := oneJob(t, fmt.Sprintf("  mode: %s\n  command: 'seq 300000; test -e %s/ready'\n  file: dump.sql\n  retries: 1\n", mode, home))
		job.Destination = u
		job.Destination.Path += "/" + string(mode)
		job.Destination.TrailingSlash = true
		r := &Runner{Store: testStore(t), Transferrer: &Client{Home: home}, Clock: hasty{}, Log: quiet()}
		record, err := r.Run(t.Context(), job, time.Now(), true)
		require.NoError(t, err)
		require.Equal(t, Failed, record.Outcome)
		require.Equal(t, 2, record.Attempts)
		require.ErrorContains(t, record.Err(), "the command failed: exit status 1")
		found, err := filepath.Glob(filepath.Join(dir, "dump", string(mode), "[^.]*"))
		require.NoError(t, err)
		require.Empty(t, found)
		require.NoError(t, os.WriteFile(filepath.Join(home, "ready"), nil, 0o600))
		record, err = r.Run(t.Context(), job, time.Now(), true)
		require.NoError(t, err)
		require.Equal(t, Good, record.Outcome, record.Error)
		require.NoError(t, os.Remove(filepath.Join(home, "ready")))
	}
}
