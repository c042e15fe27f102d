package session

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/stretchr/testify/require"
)

func TestBeyond(t *testing.T) {
	s := NewStreamSet(nil, nil)
	for id := range uint64(6) {
		s.conns[id] = &DataStream{set: s, ID: id}
	}
	s.conns[1].Retired.Store(true)
	ids := func(most int) (ids []uint64) {
		for _, d := range s.Beyond(most) {
			ids = append(ids, d.ID)
		}
		return ids
	}
	require.Empty(t, ids(64))
	require.Empty(t, ids(5))
	require.Equal(t, []uint64{4, 5}, ids(3), "the last, and those that are retired are none")
	require.Len(t, ids(1), 4)
}

// What a client says of a narrow line bounds how its server begins to send.
func TestNarrowLine(t *testing.T) {
	for _, c := range []struct {
		rate    uint64 // bytes/s
		rtt     time.Duration
		streams int // 0: not narrow
	}{
		{0, time.Second, 0},
		{1, time.Second, 1},
		{1200, 1500 * time.Millisecond, 1},
		{64e3, 700 * time.Millisecond, 3},
		{1e9, 700 * time.Millisecond, 0},
		{math.MaxUint64, 0, 0},
	} {
		set := NewStreamSet(nil, nil)
		set.Narrow = NarrowLine(c.rate, c.rtt, InitialStreams)
		rate, streams := set.narrow()
		require.Equal(t, c.streams, streams, "%+v", c)
		if c.streams > 0 {
			require.InDelta(t, max(1200, float64(c.rate)), rate, 0, "the slowest line that is measured carries 1200")
		}
	}
	near := NewStreamSet(nil, nil)
	near.Narrow = func() (float64, int) { return 0, 2 }
	rate, _ := near.narrow()
	require.Zero(t, rate, "nothing is known of the rate")
}

// recorder is a transport.Conn that notes the length of each write.
type recorder struct {
	transport.Conn
	writes []int
}

func (r *recorder) Write(p []byte) (int, error) { return r.WriteBuffers(p, nil) }

func (r *recorder) WriteBuffers(header, payload []byte) (int, error) {
	r.writes = append(r.writes, len(header)+len(payload))
	return len(header) + len(payload), nil
}

// A header leaves together with its payload, with and without a rate limit.
func TestOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pacer pace.Pacer
		var limit pace.Bucket
		conn := &recorder{}
		d := NewStreamSet(nil, pacer.NewQueue(&limit)).Add(1, conn, 1)
		write := func(size int) []int {
			conn.writes = nil
			n, err := d.WriteBuffers(make([]byte, 64), make([]byte, size))
			require.NoError(t, err)
			require.Equal(t, 64+size, n)
			return conn.writes
		}
		require.Equal(t, []int{64 + 1<<20}, write(1<<20))
		pacer.SetRate(&limit, 8e6)
		require.Equal(t, []int{64 + 1000}, write(1000), "a small block")
		require.Equal(t, []int{64}, write(0))
		steps := write(1 << 20)
		require.Greater(t, len(steps), 2)
		require.Greater(t, steps[0], 64, "the header is not alone")
		require.Equal(t, steps[0], steps[1], "and the first step is no longer for it")

		conn.writes = nil
		n, err := d.Write(make([]byte, 1000))
		require.NoError(t, err)
		require.Equal(t, 1000, n)
		require.Equal(t, []int{1000}, conn.writes)
	})
}
