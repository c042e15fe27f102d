// Package simulate runs controllers of package congestion in virtual time: over a line with a
// queue, beside other flows, with loss, jitter, a policer or CoDel.
//
// The model moves trains of packets. The line is exact to a packet: it serves trains in order, and
// drops what finds no room. Senders act once in a step, and spread what they send over it. Flows of
// cubic and Reno that are no session's send trains at once, as kernels without pacing do. All delay
// but the queue's lies between the line and the acknowledgement.
package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"
)

// Path is a way from the senders to the receivers and back. Rates count payload alone.
type Path struct {
	Rate    float64       // of the line, bit/s
	Changes []Change      // later rates of the line, in order
	RTT     time.Duration // without a queue
	Queue   int           // bytes before the line
	MSS     int           // bytes; 0 is 1448
	Loss    float64       // share of packets that the path loses by chance, 0 to 1
	Jitter  time.Duration // acknowledgements are up to twice this late, and stay in order
	Stalls  time.Duration // mean time between stalls of 5 to 30 ms, after which ACKs come at once
	Police  float64       // bit/s; what exceeds it is dropped without a queue; 0 is none
	Burst   int           // bytes that the policer lets through at once
	CoDel   bool          // the queue is managed by CoDel (RFC 8289)
	Outages []Outage      // in order
}

// Outage is a time in which nothing passes, either way.
type Outage struct{ From, For time.Duration }

// Change is a new rate of the line, or a longer way.
type Change struct {
	At   time.Duration
	Rate float64       // bit/s
	RTT  time.Duration // 0 is as before
}

// train is a few packets of a stream that travel together.
type train struct {
	stream int     // its number
	at     float64 // when it reaches the queue, s
	n      int     // packets
	lost   int     // packets that were dropped right before or within it
	gone   bool    // an outage swallowed it: the stream learns that by its timer
	chance int     // packets of these that were lost by chance

	sent      float64 // when the stream sent it, s
	delivered float64 // packets that were acknowledged by then
	known     float64 // when the last of them was acknowledged, s
	earlier   float64 // when that one was sent, s
}

// ring is a queue of trains.
type ring struct {
	of   []train
	head int
}

func (r *ring) empty() bool   { return r.head == len(r.of) }
func (r *ring) front() *train { return &r.of[r.head] }
func (r *ring) push(t train)  { r.of = append(r.of, t) }

func (r *ring) pop() {
	r.head++
	if r.head > 1024 && r.head > len(r.of)/2 {
		r.of = append(r.of[:0], r.of[r.head:]...)
		r.head = 0
	}
}

// line is a Path at work.
type line struct {
	Path
	random *rand.Rand
	mss    float64 // bytes
	rate   float64 // packets/s
	queue  ring
	queued int     // packets in the queue
	room   int     // packets that the queue holds
	free   float64 // when the last departure ended, s
	acks   ring    // on their way back; at is when they arrive

	tokens float64 // of the policer, packets
	filled float64 // when they were counted, s

	codel codel

	late    float64 // when the last acknowledgement arrives, s
	from    noise   // the jitter moves from here
	to      noise   // to here
	stalled float64 // end of the present or last stall, s
	stall   float64 // begin of the next one, s
}

// noise is an extra delay at a moment.
type noise struct{ at, delay float64 }

// stallLeast and stallMost bound how long a processor or a Wi-Fi card sleeps.
const (
	stallLeast = 0.005
	stallMost  = 0.030
)

func newLine(p Path, random *rand.Rand) *line {
	if p.MSS == 0 {
		p.MSS = 1448
	}
	l := &line{Path: p, random: random, mss: float64(p.MSS), stall: math.Inf(1)}
	l.room = max(2, p.Queue/p.MSS)
	l.tokens = float64(p.Burst) / l.mss
	l.rate = p.Rate / 8 / l.mss
	if p.Stalls > 0 {
		l.stall = random.ExpFloat64() * p.Stalls.Seconds()
	}
	return l
}

// tick takes a change of the rate.
func (l *line) tick(now float64) {
	for len(l.Changes) > 0 && l.Changes[0].At.Seconds() <= now {
		l.rate = l.Changes[0].Rate / 8 / l.mss
		l.RTT = cmp.Or(l.Changes[0].RTT, l.RTT)
		l.Changes = l.Changes[1:]
	}
}

// delay is that of the queue now, s.
func (l *line) delay() float64 { return float64(l.queued) / l.rate }

// arrive puts a train into the queue, less what is lost. Trains arrive in order.
func (l *line) arrive(t train) {
	l.serve(t.at)
	for range t.n * min(1, int(math.Ceil(l.Loss))) {
		if l.random.Float64() < l.Loss {
			t.chance++
		}
	}
	t.n -= t.chance
	passed := min(t.n, l.police(t.at, t.n), l.room-l.queued)
	t.lost = t.n - passed + t.chance
	t.n = passed
	l.queued += t.n
	l.queue.push(t)
}

// police returns how many of n packets the policer lets through.
func (l *line) police(now float64, n int) int {
	if l.Police == 0 {
		return n
	}
	most := max(float64(l.Burst)/l.mss, 2)
	l.tokens = min(most, l.tokens+(now-l.filled)*l.Police/8/l.mss)
	l.filled = now
	n = min(n, int(l.tokens))
	l.tokens -= float64(n)
	return n
}

// serve sends what leaves the line until then.
func (l *line) serve(until float64) {
	for !l.queue.empty() {
		t := l.queue.front()
		begin := max(l.free, t.at)
		if begin >= until {
			return
		}
		if l.CoDel && t.n > 0 && l.codel.drop(begin, begin-t.at, l.queued) {
			t.n, t.lost = t.n-1, t.lost+1
			l.queued--
			continue
		}
		end := begin + float64(t.n)/l.rate
		if end > until {
			return
		}
		l.free = end
		l.queued -= t.n
		t.at = l.back(t, end)
		l.acks.push(*t)
		l.queue.pop()
	}
}

// outage returns the one at that time, or nil.
func (l *line) outage(at float64) *Outage {
	for i, o := range l.Outages {
		if at >= o.From.Seconds() && at < (o.From+o.For).Seconds() {
			return &l.Outages[i]
		}
	}
	return nil
}

// again is when the timer of a stream finds that an outage is over. It doubles each time.
func (l *line) again(o *Outage) float64 {
	end, timer := (o.From + o.For).Seconds(), 0.2+l.RTT.Seconds()
	at := o.From.Seconds() + timer
	for ; at < end; at += timer {
		timer *= 2
	}
	return at + l.RTT.Seconds()
}

// back returns when the acknowledgement of a train that left the line at that time arrives.
func (l *line) back(t *train, end float64) float64 {
	due := end + l.RTT.Seconds()
	if j := l.Jitter.Seconds(); j > 0 {
		for l.to.at <= due {
			l.from = l.to
			l.to = noise{l.to.at + 0.01 + 0.04*l.random.Float64(), 2 * j * l.random.Float64()}
		}
		part := (due - l.from.at) / (l.to.at - l.from.at)
		due += l.from.delay + part*(l.to.delay-l.from.delay)
	}
	if o := l.outage(due); o != nil {
		due = l.again(o)
		t.gone, t.lost, t.n = true, t.lost+t.n, 0
	}
	due = max(due, l.late)
	for due >= l.stall {
		l.stalled = l.stall + stallLeast + (stallMost-stallLeast)*l.random.Float64()
		l.stall = l.stalled + l.random.ExpFloat64()*l.Stalls.Seconds()
	}
	l.late = max(due, l.stalled)
	return l.late
}

// codel is the state machine of RFC 8289, section 5.
type codel struct {
	above    float64 // when the delay will have been too long for an interval; 0 is not too long
	dropping bool
	next     float64 // drop
	count    int
	last     int
}

const (
	codelTarget   = 0.005
	codelInterval = 0.1
)

// drop says whether to drop a packet that waited so long.
func (c *codel) drop(now, delay float64, queued int) bool {
	tooLong := false
	switch {
	case delay < codelTarget || queued <= 1:
		c.above = 0
	case c.above == 0:
		c.above = now + codelInterval
	default:
		tooLong = now >= c.above
	}
	switch {
	case !tooLong:
		c.dropping = false
		return false
	case !c.dropping:
		c.dropping = true
		if recent := c.count - c.last; recent > 1 && now-c.next < 16*codelInterval {
			c.count = recent
		} else {
			c.count = 1
		}
		c.last = c.count
	case now < c.next:
		return false
	default:
		c.count++
		now = c.next
	}
	c.next = now + codelInterval/math.Sqrt(float64(c.count))
	return true
}
