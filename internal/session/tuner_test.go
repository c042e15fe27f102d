package session

import (
	"slices"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/stretchr/testify/require"
)

func TestStalled(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(ago time.Duration, inFlight int) transfer.StreamState {
		return transfer.StreamState{ID: uint64(ago / time.Millisecond), InFlight: inFlight, Moved: now.Add(-ago)}
	}
	moving, idle, stuck := at(100*time.Millisecond, 3), at(9*time.Second, 0), at(6*time.Second, 1)
	for name, c := range map[string]struct {
		rtt    time.Duration
		states []transfer.StreamState
		dead   []uint64
	}{
		"all move":               {10 * time.Millisecond, []transfer.StreamState{moving, moving}, nil},
		"one stands still":       {10 * time.Millisecond, []transfer.StreamState{moving, stuck}, []uint64{6000}},
		"idle is not stuck":      {10 * time.Millisecond, []transfer.StreamState{moving, idle}, nil},
		"the path is down":       {10 * time.Millisecond, []transfer.StreamState{stuck, stuck}, nil},
		"patience grows by RTT":  {600 * time.Millisecond, []transfer.StreamState{moving, stuck}, nil},
		"nobody else has a load": {10 * time.Millisecond, []transfer.StreamState{idle, stuck}, nil},
	} {
		require.Equal(t, c.dead, stalled(now, c.rtt, c.states), name)
	}
}

// A stream whose data trickles is not stuck, nor is one that waits for its turn under a rate limit.
func TestMovements(t *testing.T) {
	start := time.Unix(1000, 0)
	m := make(movements)
	var states []transfer.StreamState
	for i := range 41 {
		now := start.Add(time.Duration(i) * 250 * time.Millisecond)
		acked := uint64(i) * 1000
		m.update(now, map[uint64]transport.Info{1: {BytesAcked: acked}, 2: {BytesAcked: 5}, 3: {BytesAcked: 5}}, map[uint64]bool{3: true})
		states = m.apply([]transfer.StreamState{{ID: 1, InFlight: 1, Moved: start}, {ID: 2, InFlight: 1, Moved: start}, {ID: 3, InFlight: 1, Moved: start}, {ID: 4, Moved: now}})
		if i < 12 {
			require.Empty(t, stalled(now, 0, states))
		}
	}
	require.Equal(t, []uint64{2}, stalled(start.Add(10*time.Second), 0, states))
	m.update(start, nil, nil)
	require.Empty(t, m)
}

// TestMovementsOfProbes: what QUIC sends again and again moves nothing while nothing arrives.
func TestMovementsOfProbes(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	m := make(movements)
	quic := func(acked, delivered int) transport.Info {
		return transport.Info{
			Protocol: transport.QUIC, BytesAcked: uint64(acked), Delivered: uint64(delivered),
			SndMSS: 1410, InFlight: 2820, RetransSegs: uint64(acked / 1410),
		}
	}
	var states []transfer.StreamState
	for i := range 41 {
		now := start.Add(time.Duration(i) * 250 * time.Millisecond)
		m.update(now, map[uint64]transport.Info{1: quic(100_000+i*1410, 70), 2: quic(100_000+i*1410, 70+i)}, nil)
		states = m.apply([]transfer.StreamState{{ID: 1, InFlight: 1, Moved: start}, {ID: 2, InFlight: 1, Moved: start}})
	}
	require.Equal(t, []uint64{1}, stalled(start.Add(10*time.Second), 0, states))
}

// simulated is a path: goodput follows the number of streams in use.
type simulated struct {
	goodput func(active int) float64 // bytes/s
	rtt     time.Duration
	queued  bool
	loss    float64
	capped  float64
	window  int
	gentle  float64 // bytes/s that gentle streams may send
	peer    int
	relayed bool
	cwnd    int // of a stream, bytes
}

// settle runs growth on a path for a simulated time and returns the streams in use at its end.
func (p simulated) settle(limit int) int {
	var g growth
	o := observation{at: time.Unix(0, 0), streams: InitialStreams, minRTT: p.rtt, rtt: p.rtt, capped: p.capped, window: p.window, peer: p.peer, behind: p.loss > 0 && p.gentle == 0, rate: p.gentle, relayed: p.relayed}
	if p.queued {
		o.rtt = 2 * p.rtt
	}
	active := InitialStreams
	for range 120 {
		bytes := p.goodput(active) * TuneEvery.Seconds()
		o.at = o.at.Add(TuneEvery)
		o.written += int64(bytes)
		o.retrans += uint64(bytes / 1448 * p.loss)
		if p.cwnd > 0 {
			o.windows = slices.Repeat([]int{p.cwnd}, active)
		}
		active = g.next(o, limit)
		o.streams = max(o.streams, active)
	}
	return active
}

func TestGrowth(t *testing.T) {
	flat := func(rate float64) func(int) float64 { return func(int) float64 { return rate } }
	each := func(rate, most float64) func(int) float64 {
		return func(n int) float64 { return min(most, float64(n)*rate) }
	}
	const gbit = 1e9 / 8
	for name, c := range map[string]struct {
		path  simulated
		limit int
		want  int
	}{
		"a full link stays as it is":           {simulated{flat(0.94 * gbit), 50 * time.Millisecond, true, 0.05, 0, 5e6, 0, 5e6, false, 0}, 32, 16},
		"a clean link takes few":               {simulated{flat(0.94 * gbit), 50 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 0}, 32, 4},
		"capped windows take all they may":     {simulated{each(0.02*gbit, 9*gbit), 50 * time.Millisecond, false, 0, 0.9, 2e5, 0, 5e6, false, 0}, 32, 32},
		"loss takes more while it pays":        {simulated{each(0.04*gbit, 0.9*gbit), 50 * time.Millisecond, false, 0.01, 0, 5e6, 0, 5e6, false, 0}, 32, 32},
		"windows that loss makes small":        {simulated{each(0.04*gbit, 0.9*gbit), 50 * time.Millisecond, false, 0.01, 0, 5e6, gbit, 5e6, false, 25e4}, 32, 25},
		"smaller than the limit makes good":    {simulated{each(0.01*gbit, 0.9*gbit), 50 * time.Millisecond, false, 0.01, 0, 5e6, gbit, 5e6, false, 6e4}, 32, 32},
		"loss that more do not help":           {simulated{flat(0.3 * gbit), 50 * time.Millisecond, false, 0.01, 0, 5e6, 0, 5e6, false, 0}, 64, 24},
		"a fast short path takes few":          {simulated{flat(6 * gbit), 10 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 0}, 32, 4},
		"a fast long path takes enough":        {simulated{flat(8 * gbit), 50 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 0}, 32, 16},
		"fewer that cost goodput are restored": {simulated{each(0.5*gbit, 9*gbit), 10 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 0}, 32, 16},
		"the building needs few":               {simulated{flat(8 * gbit), 100 * time.Microsecond, false, 0, 0, 5e6, 0, 5e6, false, 0}, 32, 4},
		"a slow host fills large windows":      {simulated{each(0.1*gbit, 8*gbit), 100 * time.Microsecond, false, 0, 0.9, 5e6, 0, 5e6, false, 0}, 32, 4},
		"small windows in the building":        {simulated{each(0.1*gbit, 8*gbit), 900 * time.Microsecond, false, 0, 0.9, 5e6, 0, 1e4, false, 0}, 32, 32},
		"a relay's next leg may need them":     {simulated{flat(0.1 * gbit), 80 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, true, 0}, 256, RelayedStreams},
		"a relay nearby, too":                  {simulated{flat(0.1 * gbit), 100 * time.Microsecond, false, 0, 0, 5e6, 0, 5e6, true, 0}, 256, RelayedStreams},
		"a relay's next leg takes more":        {simulated{each(0.001*gbit, 0.1*gbit), 80 * time.Millisecond, false, 0, 0.5, 5e6, 0, 5e6, true, 0}, 256, 162},
		"a relay's next leg is full":           {simulated{flat(0.1 * gbit), 80 * time.Millisecond, false, 0, 0.5, 5e6, 0, 5e6, true, 0}, 256, RelayedStreams * 3 / 2},
		"the limit holds":                      {simulated{each(0.02*gbit, 9*gbit), 50 * time.Millisecond, false, 0, 0.9, 2e5, 0, 5e6, false, 0}, 8, 8},
		"few with room for the path":           {simulated{flat(0.94 * gbit), 50 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 1e6}, 32, 8},
		"windows without room keep all":        {simulated{flat(0.94 * gbit), 50 * time.Millisecond, false, 0, 0, 5e6, 0, 5e6, false, 4e5}, 32, 16},
	} {
		require.Equal(t, c.want, c.path.settle(c.limit), name)
	}
}

// On a fast path, growth takes few streams in one step, even before goodput has settled, unless their windows are the
// limit. It goes back only if goodput is lower twice.
func TestGrowthOnFastPaths(t *testing.T) {
	const gbit = 1e9 / 8
	clean := observation{streams: 16, minRTT: 10 * time.Millisecond, rtt: 10 * time.Millisecond, window: 2e7, peer: 2e7}
	changed := func(change func(*observation)) observation {
		o := clean
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		path observation
		gbit []float64 // goodput of each measurement
		want []int     // streams after it
	}{
		"slow start goes on":          {clean, []float64{3, 5, 7, 7}, []int{4, 4, 4, 4}},
		"room for twice as much":      {changed(func(o *observation) { o.window = 7e5 }), []float64{3, 5}, []int{16, 16}},
		"a slower path waits":         {clean, []float64{0.5, 0.9, 0.94, 0.94, 0.94}, []int{16, 16, 12, 9, 6}},
		"windows full at the start":   {changed(func(o *observation) { o.capped = 0.9 }), []float64{0.94, 0.94, 0.94}, []int{16, 12, 9}},
		"one bad measurement":         {clean, []float64{6, 6, 4, 6, 6}, []int{4, 4, 4, 4, 4}},
		"two bad measurements":        {clean, []float64{6, 4, 4, 6}, []int{4, 4, 16, 16}},
		"bad ones apart":              {clean, []float64{6, 4, 6, 4, 6}, []int{4, 4, 4, 4, 4}},
		"the peer's windows are full": {changed(func(o *observation) { o.capped, o.peer = 0.9, 2e5 }), []float64{2, 2.5}, []int{16, 16}},
		"full windows with much room": {changed(func(o *observation) { o.capped = 0.9 }), []float64{6, 6, 6}, []int{4, 4, 4}},
		"loss":                        {changed(func(o *observation) { o.retrans = 1 }), []float64{3, 5}, []int{16, 16}},
	} {
		var g growth
		var got []int
		o := c.path
		lost := o.retrans
		o.at = time.Unix(0, 0)
		o.written = 1
		g.next(o, 32)
		for _, rate := range c.gbit {
			o.at = o.at.Add(time.Second)
			o.written += int64(rate * gbit)
			o.retrans += lost * 1000
			got = append(got, g.next(o, 32))
		}
		require.Equal(t, c.want, got, name)
	}
}

// Streams that were given up come back as soon as the windows of the others hold too little, and are then given up
// later each time. New ones come only if less is sent than may be.
func TestGrowthTight(t *testing.T) {
	const rate, rtt = 1e8, 50 * time.Millisecond // 5 MB fill the path
	var g growth
	o := observation{at: time.Unix(0, 0), streams: 16, minRTT: rtt, rtt: rtt, window: 2e7, peer: 2e7, rate: rate, written: 1}
	step := func(window int, goodput float64) int {
		o.at = o.at.Add(time.Second)
		o.written += int64(goodput)
		o.windows = slices.Repeat([]int{window}, max(1, g.using(&o)))
		return g.next(o, 32)
	}
	fewer := func() (steps int) {
		for was := g.active; g.active >= was && steps < 1000; {
			step(1e7, rate)
			steps++
		}
		return steps
	}
	require.Equal(t, 16, step(1e7, rate))
	require.Less(t, fewer(), 4)
	require.Equal(t, 4, g.active, "at once, by their windows")
	require.Equal(t, 16, step(3e5, rate), "as many as there are")
	first := fewer()
	require.Equal(t, 16, step(3e5, rate))
	second := fewer()
	require.Greater(t, second, first)
	require.Less(t, second, 30)
	step(3e5, 0.9*rate)
	pause := g.pause
	for range 5 {
		step(2e5, 0.9*rate)
	}
	require.Equal(t, pause, g.pause, "one event")

	g.active, o.streams = 16, 16
	require.Equal(t, 16, step(3e5, rate), "more would not send more")
	require.False(t, g.tight)
	require.Equal(t, 17, step(3e5, 0.9*rate))
	o.joined = 4
	require.Equal(t, 17, step(1e6, 0.9*rate), "those that do not join yet help first")
	require.True(t, g.tight)
	o.rate = 0
	step(1e4, rate)
	require.False(t, g.tight, "windows of quick streams say nothing")

	g, o.rate, o.joined, o.streams = growth{}, rate, 0, 16
	o.retrans = uint64(o.written / 1448 / 1000)
	require.Equal(t, 16, step(1e7, rate))
	fewer()
	require.Equal(t, 12, g.active, "step by step, after a loss")
}

// A near path begins with two streams, whatever there are, and keeps them where it is slow: each has a
// block under way.
func TestGrowthNear(t *testing.T) {
	for goodput, want := range map[float64]int{1e6 / 8: 2, 50e6 / 8: 2, 200e6 / 8: 4, 10e9 / 8: 4} {
		var g growth
		require.Equal(t, 2, g.next(observation{at: time.Unix(0, 0), streams: 16, minRTT: nearRTT / 2}, 32))
		o := observation{at: time.Unix(1, 0), streams: 16, minRTT: nearRTT / 2, written: 1, window: 5e6, peer: 5e6}
		g.next(o, 32)
		o.at, o.written = time.Unix(2, 0), int64(goodput)
		require.Equal(t, want, g.next(o, 32), "%.0f bytes/s", goodput)
	}
}

func TestSilences(t *testing.T) {
	begin := time.Unix(1000, 0)
	busy := func(acked uint64) transport.Info {
		return transport.Info{BytesAcked: acked, InFlight: 1448, RetransSegs: 3}
	}
	idle := transport.Info{BytesAcked: 5000}
	s := make(silences)
	look := func(after time.Duration, infos map[uint64]transport.Info) []uint64 {
		return s.update(begin.Add(after), infos)
	}
	require.Empty(t, look(0, map[uint64]transport.Info{1: busy(10), 2: busy(20), 3: idle}))
	require.Empty(t, look(silenceMost-1, map[uint64]transport.Info{1: busy(10), 2: busy(20), 3: idle}))
	require.Empty(t, look(silenceMost, map[uint64]transport.Info{1: busy(10), 2: busy(21), 3: idle}), "another one moves: the path is there")
	require.ElementsMatch(t, []uint64{1}, look(silenceMost+1, map[uint64]transport.Info{1: busy(10), 2: busy(21), 3: idle}))
	require.ElementsMatch(t, []uint64{1, 2}, look(3*silenceMost, map[uint64]transport.Info{1: busy(10), 2: busy(21), 3: idle}))
	require.Empty(t, look(4*silenceMost, map[uint64]transport.Info{1: idle, 2: {BytesAcked: 21, InFlight: 1448}, 3: idle}), "nothing sent again: a target that takes its time")
	require.Empty(t, look(4*silenceMost, map[uint64]transport.Info{7: busy(1)}), "a new one has its own time")
	require.Len(t, s, 1)
}
