package session

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestTellSiblings: the rate is that of the receiver, and data wait where the sender says so.
func TestTellSiblings(t *testing.T) {
	pushes, gets := &Telemetry{}, &Telemetry{}
	first, normal := wire.NormalPriority, func() wire.Priority { return wire.NormalPriority }
	family := []*Sibling{NewSibling(pushes, true, func() wire.Priority { return first }), NewSibling(gets, false, normal)}
	require.Equal(t, []*wire.Siblings{nil, nil}, TellSiblings(0, family), "nothing is known")
	measure := func(at, waits time.Duration, moved int64) {
		pushes.local.Add(diagnose.Sample{At: at, Backlog: waits, Acked: moved})
		gets.local.Add(diagnose.Sample{At: at, Received: 3 * moved})
		gets.remote.Add(diagnose.Sample{At: at + time.Hour, Backlog: waits})
	}
	measure(time.Second, time.Second, 1000)
	say := TellSiblings(time.Second, family)
	require.Nil(t, say[1], "at most one waits, as far as is known")
	measure(3*time.Second, 30*time.Second, 5000)
	require.Equal(t, []*wire.Siblings{
		{Sessions: 2, Own: 2000, All: 8000}, {Sessions: 2, Own: 6000, All: 8000},
	}, TellSiblings(3*time.Second, family))
	require.Equal(t, uint64(2), TellSiblings(3*time.Second, family)[0].Sessions, "without new samples")
	first = wire.HighPriority
	require.Equal(t, uint64(5), TellSiblings(3*time.Second, family)[0].Sessions, "by weight")
	measure(5*time.Second, 30*time.Second, 9000)
	for _, m := range TellSiblings(5*time.Second, family) {
		require.Equal(t, uint64(1), m.Sessions, "nothing waits now")
	}
}

// TestSiblingsOfHostileServer: what a server says of siblings may be anything.
func TestSiblingsOfHostileServer(t *testing.T) {
	var s Siblings
	c := congestion.New()
	for _, n := range []uint64{0, 1, 2, math.MaxInt32, math.MaxInt64, math.MaxUint64} {
		s.Hear(&wire.Siblings{Sessions: n, Own: n, All: math.MaxUint64 - n, Turn: n})
		news := s.news.Load()
		require.GreaterOrEqual(t, news.Sessions, 0)
		require.GreaterOrEqual(t, news.Turn, 0)
		s.tell(c)
		require.Nil(t, s.news.Load())
		s.tell(c)
	}
}
