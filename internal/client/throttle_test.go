package client

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

// TestThrottle: streams share one limit, and a change takes effect at once, also for waiting streams.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 32 << 10
		limit := NewThrottle(80_000) // 10 kB/s: a step takes more than 3 s
		flow := limit.pacer.NewQueue(&limit.limit)
		ctx, cancel := context.WithCancel(t.Context())
		var written atomic.Int64
		var streams sync.WaitGroup
		for range 8 {
			streams.Go(func() {
				for flow.Wait(ctx, step) == nil {
					written.Add(step)
				}
			})
		}
		during := func(d time.Duration) float64 {
			before := written.Load()
			time.Sleep(d)
			synctest.Wait()
			return float64(written.Load()-before) / d.Seconds()
		}
		require.InEpsilon(t, 10_000, during(1000*time.Second), 0.01)
		limit.Set(80_000_000)
		require.EqualValues(t, 80_000_000, limit.Rate())
		require.InEpsilon(t, 10_000_000, during(time.Second), 0.02, "nobody waits for the old rate")
		limit.Set(80_000)
		require.LessOrEqual(t, during(time.Second), 10_000+2.0*step)
		require.InEpsilon(t, 10_000, during(1000*time.Second), 0.01)
		cancel()
		streams.Wait()

		limit.Set(0)
		require.NoError(t, flow.Wait(t.Context(), step))
		require.False(t, flow.Limited())
	})
}

// TestThrottledGet: a server that sends follows a limit that the client changes meanwhile.
func TestThrottledGet(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	want := sessiontest.RandomFile(t, filepath.Join(s.dir, "big"), 8<<20)
	limit := NewThrottle(8000) // it would take hours
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u, dir := s.invited(t), t.TempDir()
	u.Path = "big"
	var before atomic.Int64
	_, err := newClient(t, t.TempDir(), Options{}).Get(ctx, urls(u), dir+"/", Transfer{Throttle: limit, Progress: func(p session.Progress) {
		before.CompareAndSwap(0, max(1, p.BytesDone))
		limit.Set(0)
	}})
	require.NoError(t, err)
	require.Less(t, before.Load(), int64(len(want)), "the limit held nothing back")
	got, err := os.ReadFile(filepath.Join(dir, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
