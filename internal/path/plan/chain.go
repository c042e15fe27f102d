package plan

import (
	"math"
	"math/bits"
	"time"
)

// The initial windows that suffice, in segments. AmpleCwnd is 46 kB, which routers' queues hold as
// a burst; RFC 6928 chose DefaultInitial in 2013. AmpleRwnd is 64 KiB, the most that a SYN can
// offer, and what Linux offers since 4.20.
const (
	AmpleCwnd = 32
	AmpleRwnd = 44
)

// The limiters of a leg, beside those of a transfer.
const (
	InitCwnd  Limiter = "initcwnd"   // slow start; the sending host's initial window is the lower one
	InitRwnd  Limiter = "initrwnd"   // slow start; the receiving host's is
	RoundTrip Limiter = "round trip" // nothing but the distance
)

// legLimiters are those of a leg. Of equal ones, the last is named.
var legLimiters = []Limiter{RoundTrip, LineRate, Loss, Window, InitRwnd, InitCwnd}

// Leg is one TCP connection of a chain, from a sending host to a receiving one.
type Leg struct {
	Path    Path
	Window  int64 // payload bytes in flight at most; 0: MaxWindow
	Control Control
	Cwnd    int // initcwnd of the sending host in segments; 0: DefaultInitial
	Rwnd    int // initrwnd of the receiving host in segments; 0: AmpleRwnd
}

// Course is how a leg carries an object over an open connection.
type Course struct {
	Time    time.Duration // from the request until the last byte arrives
	Trips   int           // round trips until the last byte is sent, or until the line is full
	Limiter Limiter       // what took most of the time
}

// course is a Course under way. Times are in seconds.
type course struct {
	spent map[Limiter]float64
	trips int
}

func (c *course) seconds() float64 {
	sum := 0.0
	for _, why := range legLimiters { // not in the map's order, which changes the last digit
		sum += c.spent[why]
	}
	return sum
}

// Carry computes how the leg carries an object of the given bytes.
//
// A sender has a flight of segments on the way in each round trip. Flights follow the counters of
// Linux: cwnd grows by what was acknowledged if the flight was more than half of it
// (tcp_is_cwnd_limited), and the receiver's window by twice what arrived (tcp_grow_window). Once
// the line is full, or the flight as large as the window, the rest moves at that rate.
//
// With random loss, slow start ends with the first loss. Source of its expected place, and of the
// split into phases: N. Cardwell, S. Savage, T. Anderson: Modeling TCP Latency, INFOCOM 2000. The
// rest moves at Path.LossLimit, after a round trip of recovery.
func (l Leg) Carry(size int64) Course {
	c := l.carry(size)
	out := Course{Time: duration(c.seconds()), Trips: c.trips, Limiter: RoundTrip}
	for _, why := range legLimiters {
		if c.spent[why] >= c.spent[out.Limiter] {
			out.Limiter = why
		}
	}
	return out
}

func (l Leg) carry(size int64) course {
	c := course{spent: map[Limiter]float64{}}
	all := float64(size)
	rate, why := Transfer{Path: l.Path, Window: l.window(), Streams: 1, Control: l.Control}.EachRate()
	if math.IsInf(l.Path.LossLimit(l.Control), 1) {
		l.ramp(&c, all)
		return c
	}
	segment := float64(l.Path.Segment())
	lost := -math.Expm1(all / segment * math.Log1p(-l.Path.Loss)) // the probability of any loss
	before := min(all, segment*(lost*(1-l.Path.Loss)/l.Path.Loss+1))
	l.ramp(&c, before)
	c.spent[Loss] += lost * l.Path.RTT.Seconds()
	c.spent[why] += (all - before) * 8 / rate
	return c
}

func (l Leg) window() int64 {
	if l.Window == 0 {
		return MaxWindow
	}
	return l.Window
}

// ramp adds slow start, and what follows it without loss.
func (l Leg) ramp(c *course, left float64) {
	segment, rtt, line := float64(l.Path.Segment()), l.Path.RTT.Seconds(), l.Path.Goodput()
	first := float64(l.Path.Frame()) * 8 / l.Path.Rate // each flight begins with a segment on the line
	cwnd, rwnd, window := float64(l.cwnd())*segment, float64(l.rwnd())*segment, float64(l.window())
	lower := InitCwnd
	if rwnd < cwnd {
		lower = InitRwnd
	}
	why := RoundTrip
	for ; ; why = lower {
		c.trips++
		c.spent[why] += rtt
		flight := min(cwnd, rwnd, window)
		if left <= flight || flight*8 >= line*rtt {
			c.spent[LineRate] += left * 8 / line
			return
		}
		c.spent[LineRate] += first
		if flight == window {
			more := math.Ceil(left/flight) - 1
			c.trips += int(min(more, math.MaxInt32))
			c.spent[Window] += more * rtt
			c.spent[LineRate] += (more-1)*first + (left-more*flight)*8/line
			return
		}
		left -= flight
		if cwnd < 2*flight {
			cwnd += flight
		}
		rwnd += 2 * flight
	}
}

func (l Leg) cwnd() int {
	if l.Cwnd == 0 {
		return DefaultInitial
	}
	return l.Cwnd
}

func (l Leg) rwnd() int {
	if l.Rwnd == 0 {
		return AmpleRwnd
	}
	return l.Rwnd
}

// Raise is a set of changes to the hosts of a leg. A zero field stays as it is.
type Raise struct {
	Cwnd   int   // initcwnd of the sending host
	Rwnd   int   // initrwnd of the receiving host
	Window int64 // of both hosts
	BBR    bool  // on the sending host
	Time   time.Duration
}

// Nothing reports whether the set is empty.
func (r Raise) Nothing() bool { return r == Raise{Time: r.Time} }

// enough is how much longer than with every change a leg may take with the changes of a Raise.
const enough = 1.05

// Raise returns the fewest changes after which the leg carries an object of the given bytes about
// as fast as its line and its distance allow.
func (l Leg) Raise(size int64) Raise {
	apply := func(set uint) (Leg, Raise, bool) {
		u, r, news := l, Raise{}, uint(0)
		if set&1 != 0 && l.cwnd() < AmpleCwnd {
			u.Cwnd, r.Cwnd, news = AmpleCwnd, AmpleCwnd, news|1
		}
		if set&2 != 0 && l.rwnd() < AmpleRwnd {
			u.Rwnd, r.Rwnd, news = AmpleRwnd, AmpleRwnd, news|2
		}
		if bdp := int64(min(math.Ceil(l.Path.BDP()), MaxWindow)); set&4 != 0 && l.window() < bdp {
			u.Window, r.Window, news = bdp, bdp, news|4
		}
		if set&8 != 0 && !math.IsInf(l.Path.LossLimit(l.Control), 1) {
			u.Control, r.BBR, news = BBR, true, news|8
		}
		return u, r, news == set
	}
	every, _, _ := apply(15)
	goal := every.carry(size)
	best, fewest, least := Raise{}, 5, 0.0
	for set := range uint(16) {
		changed, raise, ok := apply(set)
		done := changed.carry(size)
		n, seconds := bits.OnesCount(set), done.seconds()
		if ok && seconds <= goal.seconds()*enough && (n < fewest || n == fewest && seconds < least) {
			best, fewest, least = raise, n, seconds
			best.Time = duration(seconds)
		}
	}
	return best
}

// Chain are the legs of a path in the order in which data goes: the first leaves the origin, and
// the last one is the last mile. A relay stands between two legs. There is at least one leg.
type Chain []Leg

// Cold is the time of an object of the given bytes if no relay has it, and each stores the whole
// object before it sends it on: all legs, one after the other.
func (c Chain) Cold(size int64) time.Duration {
	sum := 0.0
	for _, l := range c {
		course := l.carry(size)
		sum += course.seconds()
	}
	return duration(sum)
}

// Streamed is like Cold for relays that pass bytes on as they come. The slowest leg determines
// the time, and each other leg adds a round trip: half of it for the request, half for the bytes.
func (c Chain) Streamed(size int64) time.Duration {
	trips, most := 0.0, 0.0
	for _, l := range c {
		trips += l.Path.RTT.Seconds()
	}
	for _, l := range c {
		course := l.carry(size)
		most = max(most, course.seconds()+trips-l.Path.RTT.Seconds())
	}
	return duration(most)
}

// Cached is the time of an object that the last relay has: that of the last mile.
func (c Chain) Cached(size int64) time.Duration { return c[len(c)-1].Carry(size).Time }

// Whole is the chain without relays: one connection from the origin to the receiver.
func (c Chain) Whole() Leg {
	last := c[len(c)-1]
	whole := Leg{Path: c[0].Path, Control: c[0].Control, Cwnd: c[0].Cwnd, Rwnd: last.Rwnd, Window: min(c[0].window(), last.window())}
	for _, l := range c[1:] {
		whole.Path.RTT = duration(whole.Path.RTT.Seconds() + l.Path.RTT.Seconds())
		whole.Path.Rate = min(whole.Path.Rate, l.Path.Rate)
		whole.Path.MTU = min(whole.Path.MTU, l.Path.MTU)
		whole.Path.Loss += l.Path.Loss * (1 - whole.Path.Loss)
	}
	return whole
}
