package fxfer

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// slowReader gives a little at a time.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(200 * time.Millisecond) // the slowness that is to be found
	r.left--
	return copy(p, "some"), nil
}

// Both directions know why they are slow.
func TestLimits(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	randomFile(t, filepath.Join(dir, "f"), 3<<20)
	live := make(map[string]bool)
	slow := client(t, home, Options{RateLimit: 16e6, Progress: func(p Progress) { live[p.Limiter] = true }})

	report, err := slow.Send(t.Context(), []string{filepath.Join(dir, "f")}, s.invited(t))
	require.NoError(t, err)
	require.NotEmpty(t, report.Timeline)
	first := report.Limits[0]
	require.Equal(t, diagnose.RateLimit, first.Limiter, "%+v", report.Limits)
	require.Equal(t, diagnose.Sender, first.Side)
	require.Greater(t, first.Share, 0.5)
	require.True(t, live[string(diagnose.RateLimit)], "%v", live)

	report, err = slow.Get(t.Context(), []URL{s.plain(t, "f")}, t.TempDir()+"/")
	require.NoError(t, err)
	require.Equal(t, diagnose.RateLimit, report.Limits[0].Limiter, "%+v", report.Limits)

	report, err = client(t, home, Options{}).SendStream(t.Context(), &slowReader{5}, s.plain(t, "stream"))
	require.NoError(t, err)
	require.Equal(t, diagnose.Silent, report.Limits[0].Limiter, "%+v", report.Limits)
}

// BenchmarkTelemetry tells what the samples cost: the CPU of both ends, with them and without in turn, over loopback from memory to memory.
// Run it with -benchtime 10x or more.
func BenchmarkTelemetry(b *testing.B) {
	defer func() { withoutTelemetry = false }()
	dir := b.TempDir()
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		if dir, err = os.MkdirTemp("/dev/shm", "telemetry-*"); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	const size = 1 << 30
	source := filepath.Join(dir, "source")
	require.NoError(b, os.WriteFile(source, make([]byte, size), 0o644))
	target := filepath.Join(dir, "target")
	require.NoError(b, os.Mkdir(target, 0o755))
	server, err := NewServer(ServerOptions{Home: b.TempDir(), Listen: "127.0.0.1:0", Shares: []Share{{Name: "data", Dir: target, Rights: identity.Read | identity.Write}}})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	defer func() {
		cancel()
		require.NoError(b, <-done)
	}()
	text, err := server.Invite("127.0.0.1")
	require.NoError(b, err)
	u, err := ParseURL(text)
	require.NoError(b, err)
	c, err := NewClient(Options{Home: b.TempDir()})
	require.NoError(b, err)
	send := func() time.Duration {
		_ = os.Remove(filepath.Join(target, "source"))
		before := processTime()
		_, err := c.Send(b.Context(), []string{source}, u)
		require.NoError(b, err)
		return processTime() - before
	}
	send() // warms memory and enrols
	u.Token = ""
	var ratios []float64
	var on, off time.Duration
	for i := range b.N {
		var times [2]time.Duration
		for _, k := range [][]int{{0, 1}, {1, 0}}[i%2] {
			withoutTelemetry = k == 1
			times[k] = send()
		}
		on, off = on+times[0], off+times[1]
		ratios = append(ratios, times[0].Seconds()/times[1].Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "median-on/off")
	b.ReportMetric(on.Seconds()/off.Seconds(), "sum-on/off")
	b.ReportMetric(on.Seconds()/float64(b.N), "CPU-s/GiB")
}
