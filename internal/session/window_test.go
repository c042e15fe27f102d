package session

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transport"
)

// flying is a stream with data under way, of which so many segments have arrived.
func flying(delivered uint64, rtt time.Duration) transport.Info {
	return transport.Info{
		SndMSS: 1448, RTT: rtt, InFlight: 1448, Flying: 1448, NotSent: 1448, Delivered: delivered,
	}
}

// A stream of which nothing arrives loses its turn, and gets it back as soon as something does.
func TestWindowStuck(t *testing.T) {
	w := newWindow(nil)
	d := &DataStream{ID: 1}
	const rtt = 300 * time.Millisecond
	for _, c := range []struct {
		at        time.Duration
		delivered uint64
		flying    int
		stuck     bool
	}{
		{0, 5, 1448, false},
		{leastStuck + time.Millisecond, 5, 1448, false}, // four round trips take longer
		{4*rtt + time.Millisecond, 5, 1448, true},
		{4*rtt + 50*time.Millisecond, 6, 1448, false},
		{8 * rtt, 6, 1448, false},
		{9 * rtt, 6, 1448, true},
		{9*rtt + time.Millisecond, 6, 0, false}, // nothing is under way that could arrive
	} {
		i := flying(c.delivered, rtt)
		i.Flying = c.flying
		s := w.sample(w.began.Add(c.at), map[uint64]transport.Info{1: i})
		require.Equal(t, c.stuck, w.stuck(d, s), "at %v", c.at)
	}
}

// The RTT of a stream that only finishes what it has includes the wait of its peer with the
// acknowledgement. It counts where there is no other, and so does none of what is long past.
func TestWindowHeldRTTs(t *testing.T) {
	w := newWindow(nil)
	rtt := func(at time.Duration, infos map[uint64]transport.Info) time.Duration {
		return w.sample(w.began.Add(at), infos).RTT
	}
	w.held[1], w.held[2] = true, true
	const short, long = 20 * time.Millisecond, 60 * time.Millisecond
	of := func(first, second, third transport.Info) map[uint64]transport.Info {
		return map[uint64]transport.Info{1: first, 2: second, 3: third}
	}
	all := of(flying(1, short), flying(1, short), flying(1, long))
	require.Equal(t, long, rtt(0, all), "of the one that is not held")
	all = of(flying(2, short), flying(1, long), flying(1, long))
	require.Equal(t, long, rtt(heldShows/2, all), "the other one is about to say something")
	all = of(flying(3, short), flying(1, long), flying(1, long))
	require.Equal(t, short, rtt(2*heldShows, all), "of the only one that says something")
	all = of(flying(3, long), flying(1, long), flying(1, long))
	require.Equal(t, short, rtt(3*heldShows, all), "nothing is new")
	clear(w.held)
	all = of(flying(5, long), flying(1, long), flying(2, short))
	require.Equal(t, short, rtt(3*heldShows+1, all), "what it shows is mostly of when it was held")
	all = of(flying(5+forgets, long), flying(1, long), flying(2, short))
	require.Equal(t, long, rtt(3*heldShows+2, all), "all of it is new")
}

// The deviation is that of the stream whose RTT counts, and stays with it while nothing is new.
func TestWindowDeviation(t *testing.T) {
	w := newWindow(nil)
	of := func(delivered uint64, rtt, deviation time.Duration) transport.Info {
		i := flying(delivered, rtt)
		i.RTTVar = deviation
		return i
	}
	const ms = time.Millisecond
	infos := map[uint64]transport.Info{1: of(1, 30*ms, ms), 2: of(1, 20*ms, 3*ms), 3: of(1, 40*ms, 2*ms)}
	require.Equal(t, 3*ms, w.sample(w.began, infos).Deviation)
	require.Equal(t, 3*ms, w.sample(w.began.Add(25*ms), infos).Deviation)
	infos[3] = of(2, 40*ms, 2*ms)
	require.Equal(t, 2*ms, w.sample(w.began.Add(50*ms), infos).Deviation)
}

// A stream of QUIC whose next block has not begun yet still sends: the others must not get its part of the rate.
// Acknowledgements alone are no such stream.
func TestWindowCounts(t *testing.T) {
	of := func(flying int) transport.Info {
		return transport.Info{Protocol: transport.QUIC, SndMSS: 1410, RTT: 20 * time.Millisecond, Flying: flying}
	}
	w := newWindow(nil)
	s := w.sample(w.began, map[uint64]transport.Info{1: of(10 * 1410), 2: of(1410), 3: of(60), 4: of(0)})
	require.Equal(t, 2, s.Streams)
}

// While a session yields, it is the turn of streams that send two segments at a time, and others follow if these are
// too few. Beside others, the first have their turn, however small losses have made their windows.
func TestWindowTurns(t *testing.T) {
	w := newWindow(nil)
	var streams []*DataStream
	infos := make(map[uint64]transport.Info)
	for id, cwnd := range []int{3, 10, 4, 2, 20} {
		i := flying(1, time.Millisecond)
		i.Cwnd = cwnd * i.SndMSS
		infos[uint64(id)] = i
		streams = append(streams, &DataStream{ID: uint64(id)})
	}
	nothing := infos[1]
	nothing.NotSent = 0
	infos[1] = nothing
	for state, all := range map[congestion.State][][]uint64{
		congestion.Yield:   {{}, {2}, {2, 4}, {0, 2, 4}, {0, 2, 3, 4}, {0, 2, 3, 4}},
		congestion.Compete: {{}, {0}, {0, 2}, {0, 2, 3}, {0, 2, 3, 4}, {0, 2, 3, 4}},
	} {
		for free, want := range all {
			turns := w.turns(streams, infos, congestion.Sample{}, congestion.Decision{State: state, Free: free})
			require.ElementsMatch(t, want, slices.Collect(maps.Keys(turns)), "%v, %d free", state, free)
		}
	}
}

// paced is a transport.Conn with figures that notes its bounds.
type paced struct {
	transport.Conn
	info   transport.Info
	bounds []float64
	unsent []int
}

func (p *paced) Info() (transport.Info, bool) { return p.info, true }
func (p *paced) Pace(rate float64)            { p.bounds = append(p.bounds, rate) }
func (*paced) Prefer(bool) error              { return nil }
func (p *paced) LimitUnsent(bytes int)        { p.unsent = append(p.unsent, bytes) }
func (*paced) SetLowerEffort(bool) error      { return nil }

// A stream whose window has become small leaves its part of the rate to the others, if that was decided. Streams
// that do not send have none.
func TestWindowPart(t *testing.T) {
	const rtt = 50 * time.Millisecond
	of := func(cwnd int) transport.Info {
		i := flying(1, 2*rtt)
		i.MinRTT, i.Cwnd = rtt, cwnd
		return i
	}
	idle := transport.Info{Protocol: transport.TCP, SndMSS: 1448, RTT: rtt, MinRTT: rtt, Cwnd: 1e6}
	infos := map[uint64]transport.Info{1: of(1e6), 2: of(1e4), 3: idle, 4: of(0), 5: of(1e6)}
	s := congestion.Sample{Streams: 4, Least: rtt}
	d := congestion.Decision{Rate: 8e6, Spread: true}
	require.InDelta(t, (8e6-1e4/rtt.Seconds())/3, part(d, s, infos), 1e-3)
	d.Spread = false
	require.InDelta(t, 2e6, part(d, s, infos), 1e-3)
	d.Spread = true
	for id, i := range infos {
		i.Protocol = transport.QUIC
		infos[id] = i
	}
	require.InDelta(t, 2e6, part(d, s, infos), 1e-3, "a connection repairs only so much")
}

// A stream of QUIC starts as slowly as one of TCP does. The kernel sees to the latter. On a narrow
// line, streams of TCP begin at its rate.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		protocol transport.Protocol
		rtt      time.Duration
		narrow   float64
		before   float64
		bounds   []float64
	}{
		{transport.QUIC, 100 * time.Millisecond, 0, 0, []float64{141e3}},
		{transport.QUIC, 100 * time.Millisecond, 0, 5e6, nil}, // a decision was faster
		{transport.QUIC, 0, 0, 0, nil},
		{transport.TCP, 100 * time.Millisecond, 0, 0, nil},
		{transport.TCP, 700 * time.Millisecond, 60e3, 0, []float64{20e3}},
		{transport.TCP, 700 * time.Millisecond, 60e3, 5e6, nil},
	} {
		p := &paced{info: transport.Info{Protocol: c.protocol, RTT: c.rtt}}
		d := &DataStream{Conn: p, paced: c.before, set: narrowSet(c.narrow, 3)}
		d.begin()
		require.InDeltaSlice(t, c.bounds, p.bounds, 1e-3, "%+v", c)
	}
}

// narrowSet is a set of streams on a line that carries a rate in bytes/s; 0 is not narrow.
func narrowSet(rate float64, streams int) *StreamSet {
	s := NewStreamSet(nil, nil)
	if rate > 0 {
		s.Narrow = func() (float64, int) { return rate, streams }
	}
	return s
}

// Until something has arrived, streams of QUIC and those on a narrow line keep their first bounds. Others
// have none, and nor has anybody on a near path.
func TestWindowBegins(t *testing.T) {
	inf := []float64{math.Inf(1)}
	for _, c := range []struct {
		protocol transport.Protocol
		rtt      time.Duration
		narrow   float64
		bounds   []float64 // before something has arrived
	}{
		{transport.QUIC, 100 * time.Millisecond, 0, nil},
		{transport.QUIC, nearRTT / 2, 0, inf},
		{transport.TCP, 100 * time.Millisecond, 0, inf},
		{transport.TCP, 100 * time.Millisecond, 8e3, nil},
	} {
		p := &paced{info: flying(3, c.rtt)}
		p.info.Protocol = c.protocol
		set := narrowSet(c.narrow, 1)
		set.Add(1, p, 1)
		w := newWindow(set)
		w.seen[1] = seen{Info: p.info}
		w.sum.RTT = c.rtt
		at := w.began
		step := func() {
			at = at.Add(congestion.Every)
			require.Zero(t, w.step(at, congestion.Normal, false))
		}
		step()
		step()
		require.Equal(t, c.bounds, p.bounds, "%+v", c)
		if c.rtt < nearRTT {
			continue
		}
		for range 4 {
			p.info.Delivered += 4
			step()
		}
		last := p.bounds[len(p.bounds)-1]
		require.False(t, math.IsInf(last, 1), "%+v", c)
		if c.protocol == transport.QUIC {
			require.GreaterOrEqual(t, last, quicBegins(c.rtt))
		}
	}
}

// The window notes when there was a queue, and when the controller tried to make one.
func TestWindowQueued(t *testing.T) {
	const rtt = 100 * time.Millisecond
	p := &paced{info: flying(0, rtt)}
	p.info.Protocol = transport.QUIC
	set := NewStreamSet(nil, nil)
	set.Add(1, p, 1)
	w := newWindow(set)
	now := w.began
	step := func(rtt time.Duration) time.Time {
		now = now.Add(congestion.Every)
		p.info.Delivered += 100
		p.info.RTT = rtt
		w.step(now, congestion.Normal, false)
		return w.queued
	}
	require.Zero(t, step(rtt), "nothing is known")
	for range 3 {
		require.Equal(t, now.Add(congestion.Every), step(rtt), "it starts")
	}
	start := now
	for range 40 {
		step(rtt * 6 / 5)
	}
	require.Less(t, w.queued.Sub(start), time.Second, "the start is over, and the queue short")
	require.Equal(t, now.Add(congestion.Every), step(rtt*3/2))
	require.Equal(t, now, step(rtt))
}

// A stream takes what it sends in half a round trip, and little while nothing is known.
func TestUnsent(t *testing.T) {
	for _, c := range []struct {
		rate float64 // bytes/s
		rtt  time.Duration
		want int
	}{
		{math.Inf(1), 100 * time.Millisecond, firstUnsent},
		{0, 100 * time.Millisecond, firstUnsent},
		{1e6, 100 * time.Millisecond, 64 << 10},
		{1e6, 10 * time.Millisecond, 64 << 10},
		{1e6, 500 * time.Millisecond, 256 << 10},
		{60e6, 100 * time.Millisecond, mostUnsent},
	} {
		require.Equal(t, c.want, unsentAt(c.rate, c.rtt), "%+v", c)
	}
}

// What a stream may take is little on a far path until something is known of it, and never on a near one.
func TestWindowUnsent(t *testing.T) {
	for _, c := range []struct {
		rtt     time.Duration
		relayed bool
		want    []int
	}{
		{nearRTT / 2, false, []int{mostUnsent}},
		{100 * time.Millisecond, false, []int{firstUnsent}},
		{100 * time.Millisecond, true, []int{firstUnsent, mostUnsent}},
	} {
		p := &paced{info: flying(3, c.rtt)}
		set := NewStreamSet(nil, nil)
		d := set.Add(1, p, 1)
		d.begin()
		w := newWindow(set)
		w.relayed = c.relayed
		w.step(w.began.Add(congestion.Every), congestion.Normal, false)
		require.Equal(t, c.want, p.unsent, "%+v", c)
	}
}

// At the end of a transfer, streams that have sent all they had leave their part of the rate to the
// others.
func TestWindowEnding(t *testing.T) {
	const rtt = 100 * time.Millisecond
	set := NewStreamSet(nil, nil)
	var conns [4]*paced
	for i := range conns {
		conns[i] = &paced{info: flying(3, rtt)}
		set.Add(uint64(i), conns[i], len(conns))
	}
	w := newWindow(set)
	now := w.began
	step := func(ending bool) {
		now = now.Add(congestion.Every)
		for _, p := range conns {
			p.info.Delivered += 4
		}
		require.Zero(t, w.step(now, congestion.Normal, ending))
	}
	last := func(p *paced) float64 { return p.bounds[len(p.bounds)-1] }
	for range 8 {
		step(false)
	}
	require.InEpsilon(t, last(conns[0]), last(conns[3]), 0.01)
	before, sum := last(conns[0]), 4*last(conns[0])
	conns[0].info.NotSent, conns[1].info.NotSent, conns[2].info.NotSent = 0, 0, 0
	step(true)
	require.InDelta(t, before, last(conns[0]), 0, "it has nothing to send")
	require.InEpsilon(t, sum, last(conns[3]), 0.01, "it has all of the rate")
}

// A session of QUIC that meets others at once, before it has cruised, keeps its part: with each test whether
// they are gone it would have less otherwise.
func TestWindowQUICBesideOthers(t *testing.T) {
	const base, filled = 20 * time.Millisecond, 60 * time.Millisecond
	set := NewStreamSet(nil, nil)
	var conns [4]*paced
	for i := range conns {
		conns[i] = &paced{info: flying(3, base)}
		conns[i].info.Protocol, conns[i].info.MinRTT = transport.QUIC, base
		set.Add(uint64(i), conns[i], len(conns))
	}
	w := newWindow(set)
	now, beside, had, sent := w.began, false, 0.0, [4]float64{}
	for now.Sub(w.began) < time.Minute {
		now = now.Add(congestion.Every)
		rate := 0.0
		for i, p := range conns {
			bound := 5e5 // until it has one
			if n := len(p.bounds); n > 0 {
				bound = min(p.bounds[n-1], 5e6)
			}
			rate += bound
			sent[i] += bound * congestion.Every.Seconds()
			p.info.Delivered = 3 + uint64(sent[i]/1448)
			if now.Sub(w.began) > 200*time.Millisecond {
				p.info.RTT = filled
			}
			p.info.Flying = int(bound * p.info.RTT.Seconds())
			p.info.InFlight = p.info.Flying
		}
		w.step(now, congestion.Normal, false)
		if beside = beside || w.record.Stats(w.control).Shared > 0; beside && had == 0 {
			had = rate
		}
		if beside {
			require.Greater(t, rate, had/4, "after %v", now.Sub(w.began))
		}
	}
	require.True(t, beside, "it has seen others")
}

// More streams send as the rate becomes known, all where that is large or more help against loss.
func TestWindowJoin(t *testing.T) {
	const mbit = 1e6 / 8
	for _, c := range []struct {
		what    string
		before  int
		carries float64 // by handshakes
		rtt     time.Duration
		x       congestion.Decision
		want    int
	}{
		{"nothing is known", 6, 0, 15 * time.Millisecond, congestion.Decision{Rate: math.Inf(1)}, 8},
		{"handshakes show a slow line", 2, 7 * mbit, 60 * time.Millisecond, congestion.Decision{Rate: math.Inf(1)}, 4},
		{"handshakes are as fast as hosts", 2, 40 * mbit, 60 * time.Millisecond, congestion.Decision{Rate: math.Inf(1)}, 0},
		{"slow", 4, 0, 15 * time.Millisecond, congestion.Decision{Rate: 30 * mbit, Line: 30 * mbit}, 4},
		{"faster", 4, 0, 15 * time.Millisecond, congestion.Decision{Rate: 60 * mbit, Line: 60 * mbit}, 8},
		{"the start tries far more", 2, 7 * mbit, 60 * time.Millisecond, congestion.Decision{Rate: 100 * mbit, Line: 5 * mbit}, 3},
		{"a host was late with handshakes", 2, 7 * mbit, 60 * time.Millisecond, congestion.Decision{Rate: 100 * mbit, Line: 50 * mbit}, 0},
		{"slower again", 8, 0, 15 * time.Millisecond, congestion.Decision{Rate: 30 * mbit, Line: 30 * mbit}, 8},
		{"fast", 4, 0, 15 * time.Millisecond, congestion.Decision{Rate: 300 * mbit, Line: 300 * mbit}, 0},
		{"lossy", 4, 0, 15 * time.Millisecond, congestion.Decision{Rate: 30 * mbit, Line: 30 * mbit, Behind: true}, 0},
		{"near", 4, 0, nearRTT / 2, congestion.Decision{Rate: math.Inf(1)}, 0},
		{"all", 0, 0, 15 * time.Millisecond, congestion.Decision{Rate: 30 * mbit, Line: 30 * mbit}, 0},
	} {
		w := newWindow(&StreamSet{Carries: func() float64 { return c.carries }})
		w.joined, w.least = c.before, c.rtt
		w.join(congestion.Sample{RTT: c.rtt, MSS: 1448, Backlog: 1}, c.x, congestion.Normal, false)
		require.Equal(t, c.want, w.joined, c.what)
	}
}

// Fewer streams send where the line needs far fewer for long, and more again once it carries more.
func TestWindowJoinFewer(t *testing.T) {
	const mbit = 1e6 / 8
	slow := congestion.Decision{State: congestion.Cruise, Rate: 5 * mbit, Line: 5 * mbit}
	contest, lossy, fast := slow, slow, slow
	priority, backlog := congestion.Normal, int64(1)
	contest.State, lossy.Behind, fast.Rate, fast.Line = congestion.Compete, true, 300*mbit, 300*mbit
	step := func(w *window, at time.Duration, x congestion.Decision) int {
		w.join(congestion.Sample{At: at, RTT: 90 * time.Millisecond, MSS: 1448, Backlog: backlog}, x, priority, false)
		return w.joined
	}
	begin := func() *window {
		w := newWindow(&StreamSet{})
		w.least = 60 * time.Millisecond
		return w
	}
	for name, x := range map[string]congestion.Decision{"contest": contest, "lossy": lossy, "fast": fast} {
		w := begin()
		step(w, 0, slow)
		step(w, fewerAfter, x)
		require.Zero(t, step(w, fewerAfter+time.Millisecond, slow), name)
	}
	helped := begin()
	step(helped, 0, lossy)
	require.Zero(t, step(helped, helpedFor, slow), "they help against loss")
	priority = congestion.High
	high := begin()
	step(high, 0, slow)
	require.Zero(t, step(high, 2*fewerAfter, slow), "high")
	priority, backlog = congestion.Normal, 0
	source := begin()
	step(source, 0, slow)
	require.Zero(t, step(source, 2*fewerAfter, slow), "the source is slow")
	backlog = 1
	fixed := begin()
	fixed.fixed = true
	step(fixed, 0, slow)
	require.Zero(t, step(fixed, 2*fewerAfter, slow), "the user chose")

	w := begin()
	require.Zero(t, step(w, 0, slow))
	require.Zero(t, step(w, fewerAfter, slow), "not for long")
	require.Equal(t, 3, step(w, fewerAfter+time.Millisecond, slow))
	require.Equal(t, 3, step(w, 3*fewerAfter, slow))
	require.Zero(t, step(w, 3*fewerAfter+time.Millisecond, fast))
}
