package congestion

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTell: all that wait for the line hear of each other. One that something else limits keeps what
// it has, and is asked again later.
func TestTell(t *testing.T) {
	const mbit = 1e6 / 8
	a, b, c := &Member{Rate: 700 * mbit, Waits: true}, &Member{Rate: 100 * mbit, Waits: true}, &Member{Rate: 100 * mbit}
	all := []*Member{a, b, c}
	require.Equal(t, []Siblings{
		{Sessions: 2, Own: 700 * mbit, All: 800 * mbit}, {Sessions: 2, Own: 100 * mbit, All: 800 * mbit}, {},
	}, Tell(0, all), "the third has no data that wait")

	now := time.Duration(0)
	for Tell(now, all)[1].Sessions == 2 {
		require.Less(t, now, time.Minute, "the second never takes what it may have")
		now += SiblingsEvery
	}
	require.GreaterOrEqual(t, now, behindFor)
	require.Zero(t, Tell(now, all)[0], "alone, and told so once")

	b.Rate = 600 * mbit
	require.Zero(t, Tell(now+apartFor/2, all)[1])
	now += apartFor
	require.Equal(t, 2, Tell(now, all)[1].Sessions)
	now += 10 * behindFor
	require.Equal(t, 2, Tell(now, all)[1].Sessions, "it has its part")

	c.Waits = true
	require.Equal(t, 3, Tell(now, all)[2].Sessions)
	require.Equal(t, Siblings{Sessions: 1, Own: 700 * mbit, All: 700 * mbit, Turn: int(now / turnEvery)}, Tell(now, all[:1])[0])
	require.Zero(t, Tell(now, all[:1])[0])
	require.Empty(t, Tell(now, nil))
}

// TestTellByWeight: a session of high priority counts as four, and is told its rate by its weight.
func TestTellByWeight(t *testing.T) {
	all := []*Member{{Rate: 300, Waits: true, Priority: High}, {Rate: 200, Waits: true}}
	require.Equal(t, []Siblings{{Sessions: 5, Own: 75, All: 500}, {Sessions: 5, Own: 200, All: 500}}, Tell(0, all))
	all[1].Waits = false
	require.Equal(t, Siblings{Sessions: 1, Own: 75, All: 300}, Tell(0, all)[0], "alone")
}

// TestTurns: all test at the same time, and have time between two tests.
func TestTurns(t *testing.T) {
	turns := 0
	for now, before := time.Duration(0), -1; now < 10*turnEvery; now += SiblingsEvery {
		say := Tell(now, []*Member{{Rate: 1, Waits: true}, {Rate: 1, Waits: true}})
		require.Equal(t, say[0].Turn, say[1].Turn)
		if say[0].Turn != before {
			before = say[0].Turn
			turns++
		}
	}
	require.Equal(t, 10, turns)
}

// TestTellRisingMember: a session that begins has time to reach its part.
func TestTellRisingMember(t *testing.T) {
	a, b := &Member{Rate: 1e8, Waits: true}, &Member{Rate: 1e5, Waits: true}
	for now := time.Duration(0); b.Rate < 1e8; now += SiblingsEvery {
		require.Equal(t, 2, Tell(now, []*Member{a, b})[1].Sessions, "after %v, at %v bytes/s", now, b.Rate)
		b.Rate *= 1.05
	}
}

// TestSetSiblings: a session goes half of the way to its part, at most to twice what it has, and
// gives nothing away where there is no queue, or where it has little more than its part.
func TestSetSiblings(t *testing.T) {
	for _, c := range []struct {
		what  string
		of    Priority
		to    Siblings
		queue time.Duration
		want  float64
	}{
		{"more than its part", Normal, Siblings{Sessions: 4, Own: 100, All: 160}, time.Second, 70},
		{"about its part", Normal, Siblings{Sessions: 4, Own: 100, All: 370}, time.Second, 100},
		{"high, and about its part", High, Siblings{Sessions: 5, Own: 25, All: 123}, time.Second, 100},
		{"high, and much of theirs", High, Siblings{Sessions: 5, Own: 25, All: 115}, time.Second, 96},
		{"more than its part, and the line is not full", Normal, Siblings{Sessions: 4, Own: 100, All: 160}, 0, 100},
		{"less than its part", Normal, Siblings{Sessions: 2, Own: 100, All: 240}, time.Second, 110},
		{"far less", Normal, Siblings{Sessions: 2, Own: 100, All: 1e6}, time.Second, 200},
		{"it grows already", Normal, Siblings{Sessions: 2, Own: 80, All: 200}, time.Second, 100},
		{"high, and more than its part", High, Siblings{Sessions: 5, Own: 25, All: 100}, time.Second, 90},
		{"high, and less than its part", High, Siblings{Sessions: 5, Own: 25, All: 150}, time.Second, 110},
		{"alone", Normal, Siblings{Sessions: 1, Own: 100, All: 100}, time.Second, 100},
		{"nothing that can be", Normal, Siblings{Sessions: 4, Own: 100, All: 50}, time.Second, 100},
		{"no rate", Normal, Siblings{Sessions: 4, All: 50}, time.Second, 100},
		{"a server that lies", Normal, Siblings{Sessions: 2, Own: 1, All: math.MaxUint64}, time.Second, 100},
		{"and lies again", Normal, Siblings{Sessions: math.MaxInt32, Own: 1e18, All: math.MaxUint64}, time.Second, 50},
	} {
		con := New()
		con.SetPriority(c.of)
		con.state, con.rate, con.line = Cruise, 100, 100
		con.model.base, con.model.usual = 20*time.Millisecond, c.queue
		con.SetSiblings(c.to)
		require.InDelta(t, c.want, con.rate, 1, c.what)
		require.InDelta(t, c.want, con.line, 1, c.what)
	}
}
