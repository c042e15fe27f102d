package fleet

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate  int64
		wants []want
		given []int64
	}{
		"nobody":                    {100, nil, []int64{}},
		"one":                       {100, []want{{30, 1}}, []int64{30}},
		"one wants more":            {100, []want{{300, 1}}, []int64{100}},
		"equal parts":               {100, []want{{300, 4}, {100, 4}}, []int64{50, 50}},
		"what one leaves":           {100, []want{{300, 4}, {10, 4}, {300, 4}}, []int64{45, 10, 45}},
		"by weight":                 {100, []want{{300, 4}, {300, 16}}, []int64{20, 80}},
		"the heavy one leaves some": {100, []want{{300, 4}, {30, 16}, {300, 1}}, []int64{56, 30, 14}},
		"nobody wants anything":     {100, []want{{0, 1}, {0, 4}}, []int64{0, 0}},
	} {
		require.Equal(t, c.given, shares(c.rate, c.wants), name)
	}
}

// TestSharesOf: the sum is never more than the rate, nothing is left that somebody wants, and nobody gets
// less than its part by weight unless it wants less.
func TestSharesOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1e12).Draw(t, "rate")
		wants := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) want {
			most := rapid.SampledFrom([]int64{0, rate / 10, rate, math.MaxInt64}).Draw(t, "most")
			return want{rapid.Int64Range(0, most).Draw(t, "want"), rapid.SampledFrom([]int64{1, 4, 16}).Draw(t, "weight")}
		}), 1, 40).Draw(t, "wants")
		given := shares(rate, wants)
		sum, wanted, weights := int64(0), 0.0, 0.0
		for i, g := range given {
			require.GreaterOrEqual(t, g, int64(0))
			require.LessOrEqual(t, g, wants[i].rate)
			sum += g
			wanted += float64(wants[i].rate)
			weights += float64(wants[i].weight)
		}
		require.LessOrEqual(t, sum, rate)
		rounding := float64(len(wants)) + float64(rate)*1e-9
		require.GreaterOrEqual(t, float64(sum), min(float64(rate), wanted)-rounding)
		for i, g := range given {
			part := float64(rate) * float64(wants[i].weight) / weights
			require.GreaterOrEqual(t, float64(g), min(part, float64(wants[i].rate))-rounding)
		}
	})
}

func TestWantOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ask  LineAsk
		rate int64
	}{
		"it has no task":        {LineAsk{Has: 100, Used: 100}, 0},
		"it begins":             {LineAsk{Busy: true}, 1000},
		"it uses what it has":   {LineAsk{Busy: true, Has: 100, Used: 95}, 1000},
		"it uses three fourths": {LineAsk{Busy: true, Has: 100, Used: 75}, 1000},
		"it uses less":          {LineAsk{Busy: true, Has: 100, Used: 74}, 111},
		"it uses nothing":       {LineAsk{Busy: true, Has: 500}, 10},
		"it has a limit":        {LineAsk{Busy: true, Has: 100, Used: 100, Most: 200}, 200},
		"a limit that is small": {LineAsk{Busy: true, Has: 500, Most: 2}, 2},
	} {
		require.Equal(t, c.rate, wantOf(1000, &c.ask).rate, name)
	}
	for _, weight := range []int64{-1, 0, 1, 16, math.MaxInt64} {
		w := wantOf(1000, &LineAsk{Busy: true, Weight: weight})
		require.GreaterOrEqual(t, w.weight, int64(1))
		require.LessOrEqual(t, w.weight, int64(16))
	}
}

// host is a worker of the simulation.
type host struct {
	name    string
	share   share
	busy    bool
	uses    float64 // of what it has
	dead    bool
	pending []message // answers under way
}

type message struct {
	at     time.Time
	answer LineAnswer
}

// fleetOf simulates a controller and workers behind one line, in virtual time. Questions arrive at once,
// and answers later or never. Workers and the controller die and come back at any time.
type fleetOf struct {
	t           *rapid.T
	now         time.Time
	allocations allocations
	down        bool // the controller
	hosts       []*host
}

// step passes some time, and lets everybody act. No sum is ever more than the rate.
func (f *fleetOf) step(d time.Duration, rng *rand.Rand, lossy bool) {
	f.now = f.now.Add(d)
	for _, h := range f.hosts {
		if h.dead {
			continue
		}
		h.share.expire(f.now)
		for len(h.pending) > 0 && !h.pending[0].at.After(f.now) {
			m := h.pending[0]
			h.pending = h.pending[1:]
			if h.share.take(f.now, &m.answer) {
				f.ask(h, rng, lossy)
			}
		}
		if h.share.due(f.now) {
			f.ask(h, rng, lossy)
		}
	}
	sum := int64(0)
	for _, h := range f.hosts {
		if !h.dead {
			sum += h.share.has
		}
	}
	require.LessOrEqual(f.t, sum, f.allocations.line.Rate)
}

func (f *fleetOf) ask(h *host, rng *rand.Rand, lossy bool) {
	a := &LineAsk{Worker: h.name, Number: h.share.ask(f.now), Has: h.share.has, Busy: h.busy, Weight: 4}
	a.Used = int64(float64(a.Has) * h.uses)
	if f.down || lossy && rng.IntN(5) == 0 {
		return
	}
	answer := LineAnswer{Number: a.Number, Rate: f.allocations.ask(f.now, a)}
	if lossy && rng.IntN(5) == 0 {
		return
	}
	delay := time.Duration(rng.IntN(20)) * time.Millisecond
	if lossy && rng.IntN(10) == 0 {
		delay = time.Duration(rng.IntN(9000)) * time.Millisecond
	}
	h.pending = append(h.pending, message{f.now.Add(delay), answer})
}

// restart replaces the controller, which knows nothing of before.
func (f *fleetOf) restart() { f.allocations = allocations{line: f.allocations.line, began: f.now} }

// TestLedger: whatever happens, the workers' rates together are never more than the line's. When all is
// well again, all of it is used within seconds, and everybody has its part.
func TestLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		f := &fleetOf{t: t, now: now, allocations: allocations{line: Line{Rate: rapid.Int64Range(1000, 1e11).Draw(t, "rate")}}}
		for i := range rapid.IntRange(1, 12).Draw(t, "workers") {
			f.hosts = append(f.hosts, &host{name: fmt.Sprint(i), busy: true, uses: 1})
		}
		for i := range 300 {
			h := f.hosts[rng.IntN(len(f.hosts))]
			switch rng.IntN(12) {
			case 0:
				h.busy = !h.busy
			case 1:
				h.uses = rng.Float64()
			case 2: // another process, under another name
				*h = host{name: fmt.Sprint(i, " again"), busy: true, uses: 1, dead: rng.IntN(2) == 0}
			case 3:
				f.down = !f.down
			case 4:
				f.restart()
			}
			f.step(time.Duration(rng.IntN(1500))*time.Millisecond, rng, true)
		}
		f.down = false
		for _, h := range f.hosts {
			h.dead, h.busy, h.uses, h.pending = h.dead && rng.IntN(2) == 0, true, 1, nil
		}
		f.hosts[0].dead, f.hosts[0].share = false, share{}
		for range 150 { // 15 s
			f.step(100*time.Millisecond, rng, false)
		}
		alive, sum := int64(0), int64(0)
		for _, h := range f.hosts {
			if !h.dead {
				alive++
				sum += h.share.has
			}
		}
		for _, h := range f.hosts {
			if !h.dead {
				require.InDelta(t, f.allocations.line.Rate/alive, h.share.has, float64(alive)+1)
			}
		}
		require.InDelta(t, f.allocations.line.Rate, sum, float64(alive)+1)
	})
}

// TestSlowAnswers: a worker whose answers take longer than the time between two questions gets its share
// and keeps it.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	l, s := &allocations{line: Line{Rate: 1000}, began: now.Add(-time.Hour)}, share{}
	var pending []message
	for at := now; at.Before(now.Add(20 * time.Second)); at = at.Add(100 * time.Millisecond) {
		s.expire(at)
		for len(pending) > 0 && !pending[0].at.After(at) {
			s.take(at, &pending[0].answer)
			pending = pending[1:]
		}
		if s.due(at) {
			a := &LineAsk{Worker: "a", Number: s.ask(at), Has: s.has, Used: s.has, Busy: true, Weight: 4}
			pending = append(pending, message{at.Add(1800 * time.Millisecond), LineAnswer{Number: a.Number, Rate: l.ask(at, a)}})
		}
		if at.After(now.Add(2 * time.Second)) {
			require.EqualValues(t, 1000, s.has)
		}
	}
}

// TestDeadShare: what a dead worker had is given out once its lease is over, and a restart of the controller takes
// nothing from those who go on.
func TestDeadShare(t *testing.T) {
	t.Parallel()
	l := &allocations{line: Line{Rate: 1000}, began: now.Add(-time.Hour)}
	at := func(s float64) time.Time { return now.Add(time.Duration(s * float64(time.Second))) }
	ask := func(s float64, worker string, has int64) int64 {
		return l.ask(at(s), &LineAsk{Worker: worker, Has: has, Used: has, Busy: true, Weight: 4})
	}
	require.EqualValues(t, 1000, ask(0, "a", 0))
	require.EqualValues(t, 0, ask(0.1, "b", 0), "a has all of it")
	require.EqualValues(t, 500, ask(1, "a", 1000))
	require.EqualValues(t, 0, ask(1.05, "b", 0), "a may not have heard that it has less")
	require.EqualValues(t, 500, ask(1.1, "a", 500))
	require.EqualValues(t, 500, ask(1.2, "b", 0))
	require.EqualValues(t, 500, ask(6, "b", 500), "a's lease goes on")
	require.EqualValues(t, 1000, ask(6.2, "b", 500), "a is gone")
	require.EqualValues(t, 0, ask(6.3, "a", 500), "it is too late for that")

	l = &allocations{line: Line{Rate: 1000}, began: at(10)}
	require.EqualValues(t, 700, ask(11, "b", 700))
	require.EqualValues(t, 0, ask(11.5, "c", 0), "somebody else may have the rest")
	require.EqualValues(t, 300, ask(12, "a", 700), "together it is no more than the line has")
	require.EqualValues(t, 700, ask(13, "b", 700), "who has something keeps it")
	require.EqualValues(t, 0, ask(14, "c", 0))
	require.EqualValues(t, 333, ask(15.1, "b", 700))
	require.EqualValues(t, 333, ask(15.2, "b", 333))
	require.EqualValues(t, 333, ask(15.3, "c", 0))
}

// TestIdleShare: a worker without a task leaves its share to others at once.
func TestIdleShare(t *testing.T) {
	t.Parallel()
	l := &allocations{line: Line{Rate: 1000}, began: now.Add(-time.Hour)}
	require.EqualValues(t, 1000, l.ask(now, &LineAsk{Worker: "a", Busy: true}))
	require.EqualValues(t, 0, l.ask(now, &LineAsk{Worker: "a", Has: 1000, Used: 10}))
	require.EqualValues(t, 0, l.ask(now, &LineAsk{Worker: "b", Busy: true}))
	require.EqualValues(t, 0, l.ask(now, &LineAsk{Worker: "a"}))
	require.EqualValues(t, 1000, l.ask(now, &LineAsk{Worker: "b", Busy: true}))
	require.Len(t, l.given, 1)
}

// TestLandlord answers whatever members say, and only while nobody else gives out shares.
func TestLandlord(t *testing.T) {
	t.Parallel()
	since, owns := now.Add(-time.Hour), true
	l := &lineServer{
		lines: map[string]*allocations{"wan": {line: Line{Rate: 1000, Priority: fxfer.PriorityLow}}},
		owns:  func(time.Time) (time.Time, bool) { return since, owns },
	}
	ask := func(at time.Duration, a LineAsk) *LineAnswer {
		a.Version, a.Number = Version, 7
		text, err := json.Marshal(&a)
		require.NoError(t, err)
		data := l.answer(now.Add(at), askSubject, text)
		if data == nil {
			return nil
		}
		answer, err := decode[LineAnswer](data)
		require.NoError(t, err)
		require.EqualValues(t, 7, answer.Number)
		return answer
	}
	require.Contains(t, ask(0, LineAsk{Line: "other", Worker: "a", Busy: true}).Reason, "no line")
	require.Contains(t, ask(0, LineAsk{Line: "wan", Worker: strings.Repeat("a", 257), Busy: true}).Reason, "too long")
	first := ask(0, LineAsk{Line: "wan", Worker: "a", Busy: true, Has: math.MaxInt64, Used: math.MaxInt64})
	require.Equal(t, []any{int64(1000), fxfer.PriorityLow}, []any{first.Rate, first.Priority})
	require.JSONEq(t, `[{"version":1,"line":"wan","rate":1000,"priority":"low","given":{"a":1000}}]`, string(l.answer(now, statusSubject, nil)))
	for _, bad := range []string{"", "{", "[]", `{"version":2}`, `{"version":1,"has":"x"}`} {
		require.Nil(t, l.answer(now, askSubject, []byte(bad)), bad)
	}
	require.Nil(t, l.answer(now, "fxfer.v1.line.other", nil))

	wan := l.lines["wan"]
	for i := range mostLineClients {
		wan.given[fmt.Sprint(i)] = &given{most: 1, until: now.Add(shareLease)}
	}
	require.Contains(t, ask(time.Second, LineAsk{Line: "wan", Worker: "new", Busy: true}).Reason, "too many")
	require.EqualValues(t, 1000, ask(time.Minute, LineAsk{Line: "wan", Worker: "new", Busy: true}).Rate, "the others are gone")

	owns = false
	require.Nil(t, ask(time.Second, LineAsk{Line: "wan", Worker: "a", Busy: true}))
	since, owns = now.Add(2*time.Second), true // another controller may have given it out meanwhile
	require.Zero(t, ask(3*time.Second, LineAsk{Line: "wan", Worker: "b", Busy: true}).Rate)
	require.EqualValues(t, 1000, ask(8*time.Second, LineAsk{Line: "wan", Worker: "b", Busy: true}).Rate)
}
