package congestion_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/congestion/simulate"
)

// liar is a controller that hears of siblings at each step, whatever the server likes to say.
type liar struct {
	*congestion.Controller
	lie    func(at time.Duration) (congestion.Siblings, bool)
	decide func(congestion.Decision)
}

func (l *liar) Update(s congestion.Sample) congestion.Decision {
	if to, ok := l.lie(s.At); ok {
		l.SetSiblings(to)
	}
	d := l.Controller.Update(s)
	l.decide(d)
	return d
}

// TestBeginsSlowest: a session that begins with what the slowest line carries has a fast one in time.
func TestBeginsSlowest(t *testing.T) {
	t.Parallel()
	for _, rtt := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for _, p := range []congestion.Priority{congestion.Low, congestion.Normal, congestion.High} {
			const rate = 100e6
			r := simulate.Run(simulate.Scenario{
				Path: simulate.Path{Rate: rate, RTT: rtt, MSS: 1448, Queue: int(rate / 8 * rtt.Seconds())},
				For:  90 * time.Second, Seed: 3,
				Flows: []simulate.Flow{{Kind: simulate.Session, Count: 1, Priority: p, Begins: 9600}},
			})
			later := r.Goodput(0, 60*time.Second, 90*time.Second) / rate
			require.Greater(t, later, 0.8, "%v, %v", rtt, p)
		}
	}
}

// TestLiesAboutSiblings: whatever a server says of siblings, and however often, the rate stays one that can be, and
// the session goes on after it. It may keep a wrong idea of the line for long: a server can slow down its clients anyway.
func TestLiesAboutSiblings(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(*rand.Rand) congestion.Siblings{
		"more and more": func(*rand.Rand) congestion.Siblings {
			return congestion.Siblings{Sessions: 2, Own: math.MaxUint64 / 4, All: math.MaxUint64}
		},
		"ever less": func(*rand.Rand) congestion.Siblings {
			return congestion.Siblings{Sessions: math.MaxInt32, Own: math.MaxUint64, All: math.MaxUint64}
		},
		"in turns": func(r *rand.Rand) congestion.Siblings {
			return congestion.Siblings{Sessions: math.MaxInt32, Own: math.MaxUint64, All: math.MaxUint64, Turn: r.IntN(1 << 30)}
		},
		"anything": anything,
	} {
		for _, p := range []congestion.Priority{congestion.Low, congestion.Normal, congestion.High} {
			t.Run(fmt.Sprintf("%s, %v", name, p), func(t *testing.T) { liedTo(t, lie, p, rand.Uint64()) })
		}
	}
}

// TestLiesAfterOthers: a session that sends next to nothing after others seemed to be there takes the line back when
// the lies end. It took the pauses of its streams for those of others' packets for 25 s.
func TestLiesAfterOthers(t *testing.T) {
	t.Parallel()
	liedTo(t, anything, congestion.High, 6727024160882477776)
}

func anything(r *rand.Rand) congestion.Siblings {
	return congestion.Siblings{
		Sessions: int(r.Uint32() >> r.IntN(32) >> 1), Turn: r.IntN(math.MaxInt32),
		Own: float64(r.Uint64() >> r.IntN(64)), All: float64(r.Uint64() >> r.IntN(64)),
	}
}

// liedTo runs a session whose server lies for 10 s.
func liedTo(t *testing.T, lie func(*rand.Rand) congestion.Siblings, p congestion.Priority, seed uint64) {
	t.Helper()
	const rate, begins, ends, end = 100e6, 5 * time.Second, 15 * time.Second, 35 * time.Second
	random := rand.New(rand.NewPCG(seed, 1))
	least, most := math.Inf(1), 0.0
	r := simulate.Run(simulate.Scenario{
		Path: simulate.Path{Rate: rate, RTT: 20 * time.Millisecond, MSS: 1448, Queue: int(rate / 8 * 0.02)},
		For:  end, Seed: seed,
		Flows: []simulate.Flow{{Kind: simulate.Session, Count: 16, Priority: p}},
		Control: func(p congestion.Priority) simulate.Controller {
			c := congestion.New()
			c.SetPriority(p)
			return &liar{c, func(at time.Duration) (congestion.Siblings, bool) { return lie(random), at > begins && at < ends },
				func(d congestion.Decision) {
					require.False(t, math.IsNaN(d.Rate) || d.Rate <= 0, d.Rate)
					require.False(t, math.IsNaN(d.Line) || d.Line < 0, d.Line)
					least, most = min(least, d.Rate), max(most, d.Rate)
				}}
		},
	})
	t.Logf("seed %d: rates %.3g to %.3g bit/s, goodput %.2f while lied to, %.2f after", seed, least*8, most*8,
		r.Goodput(0, begins, ends)/rate, r.Goodput(0, ends+10*time.Second, end)/rate)
	require.Greater(t, r.Goodput(0, ends+10*time.Second, end), 0.05*rate, "seed %d", seed)
}
