package pace

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const mbit = 1_000_000

// load counts the bytes that streams pass through a queue until ctx is done.
type load struct {
	queue  *Queue
	passed atomic.Int64
}

func (l *load) run(ctx context.Context, tasks *sync.WaitGroup, streams int, random *rand.Rand) {
	for range streams {
		most := 1 + random.IntN(l.queue.Step())
		tasks.Go(func() {
			for l.queue.Wait(ctx, most) == nil && ctx.Err() == nil {
				l.passed.Add(int64(most))
			}
		})
	}
}

// rate is what has passed in d, in bit/s.
func (l *load) rate(d time.Duration) float64 { return float64(l.passed.Swap(0)) * 8 / d.Seconds() }

func bucket(p *Pacer, bitsPerSecond int64) *Bucket {
	b := new(Bucket)
	p.SetRate(b, bitsPerSecond)
	return b
}

// TestTen: ten clients, each held to 20 Mbit/s, share 100 Mbit/s. The number of their streams and
// the size of their writes change nothing.
func TestTen(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		var tasks sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		total := bucket(&p, 100*mbit)
		var all []*load
		for range 10 {
			l := &load{queue: p.NewQueue(total, bucket(&p, 20*mbit))}
			l.run(ctx, &tasks, 1+random.IntN(8), random)
			all = append(all, l)
		}
		const long = 20 * time.Second
		time.Sleep(long)
		sum := 0.0
		for _, l := range all {
			rate := l.rate(long)
			require.InEpsilon(t, 10*mbit, rate, 0.02)
			sum += rate
		}
		require.InEpsilon(t, 100*mbit, sum, 0.005)
		cancel()
		tasks.Wait()
	})
}

// TestLeftover: the other queues of a bucket get what one cannot use, and lose it when that one
// can.
func TestLeftover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		var tasks sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		random := rand.New(rand.NewPCG(1, 2))
		total, share, own := bucket(&p, 100*mbit), bucket(&p, 30*mbit), bucket(&p, 10*mbit)
		narrow := &load{queue: p.NewQueue(total, own)}
		first, second := &load{queue: p.NewQueue(total, share)}, &load{queue: p.NewQueue(total, share)}
		wide := &load{queue: p.NewQueue(total)}
		all := []*load{narrow, first, second, wide}
		expect := func(mbits ...float64) {
			t.Helper()
			const settle, long = time.Second, 10 * time.Second
			time.Sleep(settle)
			for _, l := range all {
				l.passed.Store(0)
			}
			time.Sleep(long)
			for i, l := range all {
				require.InEpsilon(t, mbits[i]*mbit, l.rate(long), 0.02, "load %d", i)
			}
		}
		for i, l := range all {
			l.run(ctx, &tasks, 1+2*i, random)
		}
		expect(10, 15, 15, 60)
		p.SetRate(own, 0) // it does not catch up for long
		expect(35, 15, 15, 35)
		p.SetRate(share, 0)
		expect(25, 25, 25, 25)
		p.SetRate(total, 8*mbit)
		expect(2, 2, 2, 2)
		p.SetRate(total, 1000*mbit)
		p.SetRate(own, 40*mbit)
		expect(40, 320, 320, 320)
		cancel()
		tasks.Wait()
	})
}

// TestIdle: a queue that was idle catches up on a moment, not on all that it has not used.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		var tasks sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		random := rand.New(rand.NewPCG(1, 2))
		total := bucket(&p, 80*mbit)
		busy, late := &load{queue: p.NewQueue(total)}, &load{queue: p.NewQueue(total)}
		busy.run(ctx, &tasks, 4, random)
		time.Sleep(time.Minute)
		busy.passed.Store(0)
		late.run(ctx, &tasks, 4, random)
		time.Sleep(time.Second)
		require.InDelta(t, late.passed.Load(), busy.passed.Load(), 2*credit+8*maxStep)
		require.Greater(t, busy.passed.Load(), int64(4_500_000))
		cancel()
		tasks.Wait()
	})
}

func TestNoLimit(t *testing.T) {
	var p Pacer
	b := new(Bucket)
	f := p.NewQueue(b)
	require.False(t, f.Limited())
	for range 1000 {
		require.NoError(t, f.Wait(t.Context(), 1<<30))
	}
}

// TestGone: waiting ends with the context, and a request that is gone holds up nobody.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		b := bucket(&p, 8) // a byte a second
		one, two := p.NewQueue(b), p.NewQueue(b)
		require.NoError(t, one.Wait(t.Context(), minStep+10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, one.Wait(ctx, 1000), context.DeadlineExceeded)
		cancel()
		begin := time.Now()
		require.NoError(t, two.Wait(t.Context(), 1))
		require.WithinDuration(t, begin.Add(minStep+9*time.Second), time.Now(), minStep*time.Second)
		require.Empty(t, p.waiting)
	})
}

// TestLift: when the limit is lifted, requests that wait are granted.
func TestLift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		b := bucket(&p, 8)
		f := p.NewQueue(b)
		require.NoError(t, f.Wait(t.Context(), 1<<30))
		done := make(chan error, 1)
		begin := time.Now()
		go func() { done <- f.Wait(t.Context(), 1) }()
		synctest.Wait()
		p.SetRate(b, 0)
		require.NoError(t, <-done)
		require.Zero(t, time.Since(begin))
	})
}
