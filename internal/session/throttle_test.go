package session

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transport"
)

// clocked is a transport.Conn that cannot pace. It notes when each byte was written, and each write
// takes as long as delay says.
type clocked struct {
	transport.Conn
	delay  func() time.Duration
	writes []clockedWrite
}

type clockedWrite struct {
	at    time.Time
	bytes int
}

func (c *clocked) Pace(float64) bool { return false }

func (c *clocked) Info() (transport.Info, bool) { return transport.Info{SndMSS: 1410}, true }

func (c *clocked) Write(p []byte) (int, error) { return c.WriteBuffers(p, nil) }

func (c *clocked) WriteBuffers(header, payload []byte) (int, error) {
	n := len(header) + len(payload)
	c.writes = append(c.writes, clockedWrite{time.Now(), n})
	if c.delay != nil {
		time.Sleep(c.delay())
	}
	return n, nil
}

// most returns the largest number of bytes that were written within a time.
func (c *clocked) most(within time.Duration) (most int) {
	sum, from := 0, 0
	for _, w := range c.writes {
		sum += w.bytes
		for w.at.Sub(c.writes[from].at) > within {
			sum -= c.writes[from].bytes
			from++
		}
		most = max(most, sum)
	}
	return most
}

func newClocked() (*clocked, *DataStream) {
	conn := &clocked{}
	return conn, NewStreamSet(nil, new(pace.Pacer).NewQueue(new(pace.Bucket))).Add(1, conn, 1)
}

// A stream whose transport does not pace sends at its rate, in small steps.
func TestThrottleRate(t *testing.T) {
	for _, rate := range []float64{1200, 64 << 10, 1e6, 7.8e6, 125e6} {
		synctest.Test(t, func(t *testing.T) {
			conn, d := newClocked()
			d.pace(rate)
			began := time.Now()
			size := int(10 * rate) // in writes of a block and less
			for left := size; left > 0; left -= min(left, 1<<20) {
				n, err := d.WriteBuffers(make([]byte, 50), make([]byte, min(left, 1<<20)-50))
				require.NoError(t, err)
				require.Equal(t, min(left, 1<<20), n)
			}
			require.InEpsilon(t, 10, time.Since(began).Seconds(), 0.3, "%.0f bytes/s", rate)
			const within = 20 * time.Millisecond
			allowed := rate*(within+throttleBurst+2*throttleStep).Seconds() + 2*leastThrottled
			require.LessOrEqual(t, float64(conn.most(within)), allowed, "%.0f bytes/s", rate)
		})
	}
}

// A stream catches up on writes that take a moment, but not on a long one.
func TestThrottleLate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		const rate = 5e6
		conn, d := newClocked()
		conn.delay = func() time.Duration { return time.Duration(random.IntN(3e6)) }
		d.pace(rate)
		began := time.Now()
		_, err := d.Write(make([]byte, 5*rate))
		require.NoError(t, err)
		require.InEpsilon(t, 5, time.Since(began).Seconds(), 0.01)

		conn.delay, conn.writes = nil, nil
		time.Sleep(time.Minute)
		_, err = d.Write(make([]byte, rate))
		require.NoError(t, err)
		require.LessOrEqual(t, float64(conn.most(0)), rate*(throttleBurst+2*throttleStep).Seconds())
	})
}

// A new rate applies to a step that waits, and the bytes that wait count as not sent.
func TestThrottleChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, d := newClocked()
		d.pace(1)
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := d.Write(make([]byte, 1<<20))
			done <- err
		}()
		time.Sleep(time.Minute)
		info, ok := d.Info()
		require.True(t, ok)
		require.Equal(t, 1<<20-conn.most(0), info.NotSent)
		require.True(t, d.set.waiting()[1], "it is not dead")
		d.pace(1e9)
		require.NoError(t, <-done)
		require.WithinDuration(t, began.Add(time.Minute), time.Now(), 10*time.Millisecond)
		info, _ = d.Info()
		require.Zero(t, info.NotSent)
		require.False(t, d.set.waiting()[1])

		d.pace(1)
		go func() {
			_, err := d.Write(make([]byte, 1<<20))
			done <- err
		}()
		time.Sleep(time.Minute)
		d.pace(math.Inf(1))
		require.NoError(t, <-done)
		conn.writes = nil
		_, err := d.Write(make([]byte, 1<<20))
		require.NoError(t, err)
		require.Len(t, conn.writes, 1, "without a bound there are no steps")

		d.pace(1)
		go func() {
			_, err := d.Write(make([]byte, 1<<20))
			done <- err
		}()
		time.Sleep(time.Second)
		d.cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// With a rate limit and a pace, the lower one counts, and only the pace leaves a backlog.
func TestThrottleAndLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pacer pace.Pacer
		var limit pace.Bucket
		pacer.SetRate(&limit, 8e6)
		conn := &clocked{}
		d := NewStreamSet(nil, pacer.NewQueue(&limit)).Add(1, conn, 1)
		pass := func(rate float64) (seconds float64, backlog int) {
			d.pace(rate)
			began := time.Now()
			seen := make(chan int, 1)
			time.AfterFunc(500*time.Millisecond, func() {
				info, _ := d.Info()
				seen <- info.NotSent
			})
			_, err := d.Write(make([]byte, 2e6))
			require.NoError(t, err)
			return time.Since(began).Seconds(), <-seen
		}
		seconds, backlog := pass(100e6)
		require.InEpsilon(t, 2, seconds, 0.1)
		require.Zero(t, backlog, "the user wants that")
		seconds, backlog = pass(0.5e6)
		require.InEpsilon(t, 4, seconds, 0.1)
		require.Positive(t, backlog)
	})
}

// A stream whose transport paces writes as always.
func TestThrottleNone(t *testing.T) {
	conn := &recorder{paces: true}
	d := NewStreamSet(nil, new(pace.Pacer).NewQueue(new(pace.Bucket))).Add(1, conn, 1)
	d.pace(1)
	_, err := d.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.Equal(t, []int{1 << 20}, conn.writes)
}
