package simulate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
)

// constant is a controller that always decides the same.
type constant congestion.Decision

func (c constant) Update(congestion.Sample) congestion.Decision { return congestion.Decision(c) }

func at(rate float64) func(congestion.Priority) Controller {
	return func(congestion.Priority) Controller { return constant{Rate: rate / 8} }
}

// path of a rate in Mbit/s and an RTT in ms, with a queue in parts of their product.
func path(rate, rtt, queue float64) Path {
	return Path{
		Rate: rate * 1e6, RTT: time.Duration(rtt * float64(time.Millisecond)),
		Queue: int(queue * rate * 1e6 / 8 * rtt / 1e3),
	}
}

// TestPaced shows that what is sent a little slower than the line makes no queue.
func TestPaced(t *testing.T) {
	for _, p := range []Path{path(100, 20, 1), path(1000, 50, 1), path(1000, 5, 1)} {
		r := Run(Scenario{
			Path: p, For: 5 * time.Second, Control: at(0.98 * p.Rate),
			Flows: []Flow{{Kind: Session}},
		})
		from := 2 * time.Second
		assert.InEpsilon(t, 0.98*p.Rate, r.Goodput(0, from, r.Elapsed), 0.005)
		assert.Less(t, r.Delay(0.99, from, r.Elapsed), 2*time.Millisecond)
		assert.Zero(t, r.Dropped(0, from, r.Elapsed))
	}
}

// TestExcess shows that a full queue drops what exceeds the line, and that a policer does so
// without a queue.
func TestExcess(t *testing.T) {
	p := path(100, 20, 1)
	flows := []Flow{{Kind: UDP, Rate: 125e6}}
	r := Run(Scenario{Path: p, For: 10 * time.Second, Flows: flows})
	assert.InDelta(t, 0.2, r.Dropped(0, time.Second, r.Elapsed), 0.002)
	assert.InDelta(t, 0.020, r.Delay(0.5, time.Second, r.Elapsed).Seconds(), 0.001)

	p.Police, p.Burst = 50e6, 60_000
	r = Run(Scenario{Path: p, For: 10 * time.Second, Flows: flows})
	assert.InDelta(t, 0.6, r.Dropped(0, time.Second, r.Elapsed), 0.005)
	assert.Less(t, r.Delay(0.99, time.Second, r.Elapsed), time.Millisecond)
}

// TestCubicAlone shows that a cubic flow fills the line and its queue of one product of rate and
// RTT, with little loss.
func TestCubicAlone(t *testing.T) {
	r := Run(Scenario{Path: path(100, 40, 1), For: 60 * time.Second, Flows: []Flow{{Kind: Cubic}}})
	from := 10 * time.Second
	assert.Greater(t, r.Goodput(0, from, r.Elapsed), 0.98*100e6)
	assert.Less(t, r.Dropped(0, from, r.Elapsed), 0.002)
	assert.Greater(t, r.Delay(1, from, r.Elapsed), 39*time.Millisecond)
	assert.Greater(t, r.Delay(0.5, from, r.Elapsed), 20*time.Millisecond)
}

// TestCubicResponse compares cubic's goodput with random loss with that of RFC 9438, section 5.1:
// 1.054 / (RTT^(1/4) × p^(3/4)) packets a second. Loss by chance gives more than the loss at equal
// distances that the formula is made for.
func TestCubicResponse(t *testing.T) {
	p := path(1000, 100, 4)
	p.Loss = 1e-4
	const flows = 8
	s := Scenario{Path: p, For: 100 * time.Second}
	for range flows {
		s.Flows = append(s.Flows, Flow{Kind: Cubic})
	}
	r := Run(s)
	got := 0.0
	for i := range flows {
		got += r.Goodput(i, 20*time.Second, r.Elapsed) / 1448 / 8 / flows
	}
	want := 1.054 / math.Pow(0.1, 0.25) / math.Pow(1e-4, 0.75)
	assert.InEpsilon(t, want, got, 0.5)
}

// TestShares shows that equal flows share the line, and that reno yields to none.
func TestShares(t *testing.T) {
	for _, kinds := range [][]Kind{{Cubic, Cubic}, {BBR, BBR}, {Reno, Reno}} {
		r := Run(Scenario{
			Path: path(100, 20, 1), For: 160 * time.Second,
			Flows: []Flow{{Kind: kinds[0]}, {Kind: kinds[1], From: 5 * time.Second}},
		})
		from := 40 * time.Second
		assert.Greater(t, r.Jain([]int{0, 1}, from, r.Elapsed), 0.9, kinds)
		sum := r.Goodput(0, from, r.Elapsed) + r.Goodput(1, from, r.Elapsed)
		assert.Greater(t, sum, 0.9*100e6, kinds)
	}
}

// TestHyStart shows that slow start ends once acknowledgements have come one after the other for half a
// round trip, or once all of a round are late, and not before.
func TestHyStart(t *testing.T) {
	const trip = 0.08
	for _, c := range []struct {
		what  string
		gap   float64 // between acknowledgements, s
		delay float64 // of each, s
		want  int     // of a round that end it; 0 is none
	}{
		{"a train", 0.001, 0, 41},
		{"a few packets now and then", 0.004, 0, 0},
		{"all of them late", 0.004, 0.011, 9},
		{"all of them a little late", 0.004, 0.009, 0},
	} {
		h, got := hystart{base: math.Inf(1)}, 0
		h.late(ack{rtt: trip, round: true})
		for i := range 50 {
			if h.late(ack{now: 1 + float64(i)*c.gap, rtt: trip + c.delay, round: i == 0}) {
				got = i
				break
			}
		}
		assert.InDelta(t, c.want, got, 1, c.what)
	}
}

// TestBBRAlone shows that BBR fills the line with a small queue, through loss too.
func TestBBRAlone(t *testing.T) {
	p := path(1000, 50, 1)
	for _, p.Loss = range []float64{0, 0.01} {
		r := Run(Scenario{Path: p, For: 20 * time.Second, Flows: []Flow{{Kind: BBR}}})
		from := 4 * time.Second
		assert.Greater(t, r.Goodput(0, from, r.Elapsed), 0.93*1000e6)
		assert.Less(t, r.Delay(0.5, from, r.Elapsed), 10*time.Millisecond)
	}
}

// TestBBRLate shows that BBR starts as quickly whenever it begins.
func TestBBRLate(t *testing.T) {
	const from = 12 * time.Second
	r := Run(Scenario{Path: path(1000, 50, 1), For: from + 4*time.Second, Flows: []Flow{{Kind: BBR, From: from}}})
	assert.Greater(t, r.Goodput(0, from+time.Second, r.Elapsed), 0.9*1000e6)
}

// TestBBRProbeInStart shows that BBR goes on with its start after it has probed the RTT.
func TestBBRProbeInStart(t *testing.T) {
	b := newBBR(initialWindow)
	for _, a := range []ack{
		{now: 1, rtt: 1, rate: 10},
		{now: 11.5, rtt: 1.1, rate: 20}, // the RTT is old
		{now: 12, rtt: 1.1, rate: 20},
	} {
		b.acked(a)
	}
	assert.InDelta(t, 4, b.window(), 0)
	b.acked(ack{now: 13.2, rtt: 1.1, rate: 20})
	assert.InDelta(t, bbrHigh*20, b.pace(), 1e-9)
}

// TestCoDel shows that CoDel holds a cubic flow's queue near 5 ms.
func TestCoDel(t *testing.T) {
	p := path(100, 40, 4)
	p.CoDel = true
	r := Run(Scenario{Path: p, For: 30 * time.Second, Flows: []Flow{{Kind: Cubic}}})
	from := 10 * time.Second
	assert.Less(t, r.Delay(0.5, from, r.Elapsed), 10*time.Millisecond)
	assert.Greater(t, r.Goodput(0, from, r.Elapsed), 0.8*100e6)
}

// TestChange shows that the line follows its changes.
func TestChange(t *testing.T) {
	p := path(100, 20, 1)
	p.Changes = []Change{{At: 2 * time.Second, Rate: 30e6}, {At: 4 * time.Second, Rate: 100e6}}
	r := Run(Scenario{
		Path: p, For: 6 * time.Second, Flows: []Flow{{Kind: UDP, Rate: 50e6}},
	})
	assert.InEpsilon(t, 30e6, r.Goodput(0, 2500*time.Millisecond, 4*time.Second), 0.01)
	assert.InEpsilon(t, 30e6, r.Carries(2500*time.Millisecond, 4*time.Second), 0.01)
	assert.InEpsilon(t, 50e6, r.Goodput(0, 5*time.Second, 6*time.Second), 0.01)
}

// TestJitterAndStalls shows that acknowledgements come late, in order, and as many.
func TestJitterAndStalls(t *testing.T) {
	p := path(100, 50, 1)
	p.Jitter, p.Stalls = 10*time.Millisecond, 100*time.Millisecond
	var least, most time.Duration
	r := Run(Scenario{
		Path: p, For: 5 * time.Second, Control: at(90e6), Flows: []Flow{{Kind: Session}},
		Trace: func(m Moment) {
			if m.At > time.Second {
				if least == 0 {
					least = m.Sample.RTT
				}
				least, most = min(least, m.Sample.RTT), max(most, m.Sample.RTT)
			}
		},
	})
	assert.InEpsilon(t, 90e6, r.Goodput(0, 2*time.Second, r.Elapsed), 0.03)
	assert.Greater(t, most-least, 8*time.Millisecond)
	assert.Less(t, most, 100*time.Millisecond)
}

// TestSample shows what a session tells its controller.
func TestSample(t *testing.T) {
	p := path(100, 20, 1)
	p.Loss = 0.01
	var last Moment
	r := Run(Scenario{
		Path: p, For: 5 * time.Second, Control: at(50e6),
		Flows: []Flow{{Kind: Session, Count: 4}}, Trace: func(m Moment) { last = m },
	})
	s := last.Sample
	assert.Equal(t, 4, s.Streams)
	assert.InDelta(t, 5, s.At.Seconds(), 0.03)
	assert.InDelta(t, 0.021, s.RTT.Seconds(), 0.002)
	assert.Positive(t, s.Backlog)
	assert.InDelta(t, 0.01, float64(s.Lost)/float64(s.Lost+s.Delivered), 0.002)
	assert.Zero(t, r.Dropped(0, time.Second, r.Elapsed))
}

// TestLimits shows the bounds of a source and of a socket's buffers.
func TestLimits(t *testing.T) {
	p := path(100, 50, 1)
	run := func(f Flow) (float64, congestion.Sample) {
		var last Moment
		r := Run(Scenario{
			Path: p, For: 5 * time.Second, Control: at(math.Inf(1)), Flows: []Flow{f},
			Trace: func(m Moment) { last = m },
		})
		return r.Goodput(0, 3*time.Second, r.Elapsed), last.Sample
	}
	got, s := run(Flow{Rate: 20e6})
	assert.InEpsilon(t, 20e6, got, 0.02)
	assert.LessOrEqual(t, s.Backlog, int64(1448))

	got, _ = run(Flow{Count: 2, Window: 100 * 1448})
	assert.InEpsilon(t, 2*100*1448*8/0.050, got, 0.05)
}

// TestFree shows that a session whose streams are free competes as as many cubic flows do.
func TestFree(t *testing.T) {
	control := func(congestion.Priority) Controller {
		return constant{Rate: math.Inf(1), Free: 1, Control: congestion.Gentle}
	}
	r := Run(Scenario{
		Path: path(100, 20, 1), For: 120 * time.Second, Control: control,
		Flows: []Flow{{Kind: Session}, {Kind: Cubic}},
	})
	require.Greater(t, r.Jain([]int{0, 1}, 40*time.Second, r.Elapsed), 0.9)
}

// TestPauses shows what a session sees of a pause of a host.
func TestPauses(t *testing.T) {
	p := path(100, 20, 1)
	for _, c := range []struct {
		where          Side
		decides, hears bool
		needless       int64 // packets sent again
	}{{Process, false, true, 0}, {Host, false, false, 2 * 4}, {Peer, true, false, 2 * 4}} {
		pause := Pause{From: time.Second, For: 300 * time.Millisecond, Where: c.where}
		var before, during, after []Moment
		Run(Scenario{
			Path: p, For: 2 * time.Second, Control: at(50e6),
			Flows: []Flow{{Kind: Session, Count: 4, Pauses: []Pause{pause}}},
			Trace: func(m Moment) {
				switch {
				case m.At < pause.From:
					before = append(before, m)
				case m.At < pause.From+pause.For:
					during = append(during, m)
				default:
					after = append(after, m)
				}
			},
		})
		was, end := before[len(before)-1].Sample, after[len(after)-1].Sample
		require.Equal(t, c.decides, len(during) > 1, c.where)
		require.Equal(t, c.needless, (end.Lost-was.Lost)/1448, c.where)
		if len(during) > 1 {
			last := during[len(during)-1].Sample
			require.Equal(t, during[1].Sample.Delivered, last.Delivered, c.where)
		}
		late := after[0].Sample.RTT > was.RTT+30*time.Millisecond
		require.Equal(t, !c.hears, late, c.where)
		got := float64(end.Delivered-was.Delivered) * 8 / (end.At - was.At).Seconds()
		require.Less(t, got, 0.85*50e6, c.where)
	}
}
