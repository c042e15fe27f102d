package explain

import (
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// traffic follows one TCP connection through a capture. Its memory is bounded.
type traffic struct {
	ends   [2]end // who opened it, or was seen first, and the other one
	opened bool   // its SYN is in the capture
	kept   bool   // samples are kept
	left   bool   // it was left out, because there are too many
	last   time.Duration
	spoke  *end // sent data last

	syn, synAck, firstAck time.Duration // of the handshake
	shaken                int           // packets of the handshake seen
}

// end is one end of a connection, as a sender. Positions count from its first byte.
type end struct {
	addr  netip.AddrPort
	mss   int64
	scale int // -1 without the option
	sack  bool
	stamp bool

	began    bool
	ended    bool // it has sent a FIN, which counts as a byte
	base     uint32
	next     int64 // after the last byte sent
	acked    int64
	fresh    int64 // bytes sent for the first time
	edge     int64 // the peer's window ends here
	window   int64 // of the peer
	widest   int64
	lately   time.Duration // last data sent
	answered time.Duration // last acknowledgement that came
	dups     int
	sacked   bool

	flights []flight // sent, not acknowledged
	holes   []hole   // not seen
	pending struct { // the peer's time stamp whose answer measures the rest of the round trip
		value uint32
		at    time.Duration
		on    bool
	}
	rttTo   time.Duration // data to acknowledgement, the last
	rttBack time.Duration // acknowledgement to data, the least lately
	minTo   time.Duration
	minBack time.Duration

	small struct { // the last segment of a little data in flight, and its acknowledgement
		at, acked time.Duration
		sent, got bool
	}
	first struct { // flight
		at              time.Duration
		segments, bytes int64
		over            bool
	}
	zeroSince time.Duration
	zero      bool

	p        Packets
	samples  diagnose.Series
	sum      diagnose.Sample
	stepAt   time.Duration // of the last sample
	clocked  int64         // bytes sent just after an acknowledgement, in this step
	prompt   int64         // bytes sent just after data of the peer, in this step
	sent     int64         // bytes in this step
	count    int64         // segments in this step
	gap      time.Duration // longest between them
	most     int64         // in flight in this step
	full     bool          // the peer's window was, in this step
	answers  bool          // the last data answered the peer
	flying   int64         // in flight, as the last sample has it
	lostAt   time.Duration // the end of the last step in which segments were sent again
	resentAt int64         // segments sent again, at the last sample
	plateau  plateau
}

type flight struct {
	end   int64
	at    time.Duration
	again bool
}

type hole struct {
	from, to int64
	at       time.Duration
}

const (
	flights = 512 // most that are remembered; more are not measured
	holes   = 64

	// Data that an acknowledgement released follows it within a twentieth of the round trip, but at
	// least and at most so soon: the program may have to wake up.
	ackClock     = 300 * time.Microsecond
	longestClock = 2 * time.Millisecond

	overtaking = 3 * time.Millisecond   // a hole is filled so soon if segments only overtook each other
	rto        = 200 * time.Millisecond // the least of Linux
	delayedAck = 30 * time.Millisecond  // 40 ms with Linux, 200 ms with others
	longestAck = 600 * time.Millisecond
	leastStall = 2 * time.Millisecond
	restSoon   = 2 * time.Millisecond
)

func newTraffic(s *segment) *traffic {
	c := &traffic{}
	c.ends[0].addr, c.ends[1].addr = s.from, s.to
	if s.syn && s.isAck {
		c.ends[0].addr, c.ends[1].addr = s.to, s.from
	}
	c.ends[0].scale, c.ends[1].scale = -1, -1
	return c
}

// over reports whether a SYN belongs to a new connection with the same ports.
func (c *traffic) over(s *segment) bool { return c.moved() > 0 || s.at-c.last > time.Minute }

func (c *traffic) moved() int64 { return c.ends[0].fresh + c.ends[1].fresh }

// add follows the connection by one segment.
func (c *traffic) add(s *segment) {
	from, to := &c.ends[0], &c.ends[1]
	if s.from == to.addr {
		from, to = to, from
	}
	c.last = s.at
	c.step(from, s.at)
	c.step(to, s.at)
	if s.syn {
		c.handshake(from, s)
	} else if c.shaken == 2 && s.isAck && from == &c.ends[0] {
		c.firstAck, c.shaken = s.at, 3
	}
	if !from.began {
		from.began, from.base = true, s.seq
		if s.syn {
			from.base++
		}
	}
	if s.isAck {
		to.acknowledged(s, from, c)
	}
	from.ended = from.ended || s.fin
	if s.length > 0 && !s.syn {
		from.data(s, c)
		if c.spoke != from { // the direction turns: this may be a request
			c.spoke = from
			to.sum.Asked++
		}
		to.small.sent, to.small.got = false, false // an answer is no stall
	}
}

func (c *traffic) peer(e *end) *end {
	if e == &c.ends[0] {
		return &c.ends[1]
	}
	return &c.ends[0]
}

// backOf is how long a round trip between the capture and a sender takes, as the handshake showed.
func (c *traffic) backOf(e *end) time.Duration {
	if c.shaken < 3 {
		return 0
	}
	if e == &c.ends[0] {
		return c.firstAck - c.synAck
	}
	return c.synAck - c.syn
}

// toward is how long the round trip between the capture and the peer of a sender takes.
func (c *traffic) toward(e *end) time.Duration {
	if c.shaken < 3 {
		return e.minTo
	}
	return c.firstAck - c.syn - c.backOf(e)
}

func (c *traffic) handshake(from *end, s *segment) {
	from.mss, from.scale, from.sack, from.stamp = s.mss, s.scale, s.sackOK, s.stamped
	switch {
	case !s.isAck:
		c.opened, c.syn, c.shaken = true, s.at, 1
	case c.shaken == 1:
		c.synAck, c.shaken = s.at, 2
	}
}

// position is where a sequence number lies, near to what was sent last.
func (e *end) position(seq uint32) int64 {
	return e.next + int64(int32(seq-e.base-uint32(e.next)))
}

// data is a segment with data from this end.
func (e *end) data(s *segment, c *traffic) {
	mss := c.segmentSize()
	at, after := e.position(s.seq), e.position(s.seq)+s.length
	e.p.Segments++
	if s.length > mss {
		e.p.Offloaded++
		e.sum.Segments += (s.length + mss - 1) / mss
	} else {
		e.sum.Segments++
	}
	again := at < e.next
	switch {
	case again && after <= e.next:
		e.resent(s.at, at, after, c)
	case at > e.next:
		if e.next > 0 || e.fresh > 0 {
			e.missing(hole{e.next, at, s.at})
		}
	}
	if after > e.next {
		e.fresh += after - max(at, e.next)
		e.next = after
		if len(e.flights) < flights {
			e.flights = append(e.flights, flight{after, s.at, again})
		}
		if e.released(s.at, c) {
			e.clocked += s.length
		}
		if e.edge > 0 && e.edge-e.next < mss {
			e.full = true
		}
	}
	if peer := c.peer(e); peer.lately > 0 && s.at-peer.lately-e.minBack <= max(prompt, c.minRTT(e)/4) {
		e.prompt += s.length
	}
	if e.sent > 0 {
		e.gap = max(e.gap, s.at-e.lately)
	}
	e.count++
	e.sent += s.length
	e.most = max(e.most, e.inFlight())
	e.firstFlight(s, mss, c)
	e.nagle(s, mss, c)
	e.echo(s)
	e.lately = s.at
}

// released reports whether an acknowledgement has just made room for data.
func (e *end) released(at time.Duration, c *traffic) bool {
	since, soon := at-e.answered-e.minBack, max(ackClock, min(c.minRTT(e)/20, longestClock))
	return e.answered > 0 && since >= -soon && since <= soon
}

func (e *end) inFlight() int64 { return max(0, e.next-e.acked) }

// missing remembers a part that the capture has not seen: it was lost before, or comes later.
func (e *end) missing(h hole) {
	if len(e.holes) < holes && h.to-h.from < 1<<26 {
		e.holes = append(e.holes, h)
	}
}

// resent finds out why a segment came again.
func (e *end) resent(now time.Duration, at, after int64, c *traffic) {
	for i, h := range e.holes {
		if at < h.to && after > h.from { // it fills a hole
			if e.holes = append(e.holes[:i], e.holes[i+1:]...); now-h.at < overtaking {
				e.p.Overtaken++
				e.sum.Reordered++
				return
			}
			e.p.Fast++
			e.sum.Retrans++
			return
		}
	}
	e.sum.Retrans++
	switch {
	case after <= e.acked:
		e.p.Needless++
		e.sum.Spurious++
	case e.dups == 0 && !e.sacked && now-max(e.lately, e.answered) >= max(rto, c.rtt(e)):
		e.p.Timeouts++
	default:
		e.p.Fast++
	}
	for i := range e.flights { // Karn's rule: their round trips mean nothing
		e.flights[i].again = e.flights[i].again || e.flights[i].end > at
	}
}

// firstFlight counts the segments before the first acknowledgement of data can have arrived.
func (e *end) firstFlight(s *segment, mss int64, c *traffic) {
	x := &e.first
	switch half := c.handshakeRTT() / 2; {
	case x.over:
		return
	case x.segments == 0:
		x.at = s.at
	case !c.atSender(e) && s.at-x.at > half:
		x.over = true
		return
	}
	x.segments += (s.length + mss - 1) / mss
	x.bytes += s.length
}

// nagle finds a rest, less than a segment, that left only after the acknowledgement of the little data
// before it, which may have been a delayed one.
func (e *end) nagle(s *segment, mss int64, c *traffic) {
	x := &e.small
	if x.sent && x.got {
		wait, rest := s.at-x.at, s.at-x.acked-max(0, c.backOf(e))
		if s.length < mss && wait >= leastStall && wait <= longestAck+c.handshakeRTT() && rest <= restSoon {
			e.p.Stalls++
			e.p.StallTime += wait
			e.sum.Nagled += wait
			if x.acked-x.at-c.toward(e) >= delayedAck {
				e.p.Delayed++
			}
		}
	}
	x.sent, x.got, x.at = e.inFlight() <= 2*mss, false, s.at
}

// echo measures the round trip between the capture and this end by time stamps (RFC 7323).
func (e *end) echo(s *segment) {
	if !s.stamped || !e.pending.on || int32(s.stampAnswer-e.pending.value) < 0 {
		return
	}
	e.pending.on = false
	back := s.at - e.pending.at
	e.minBack, e.rttBack = least(e.minBack, max(1, back)), back
}

// acknowledged is an acknowledgement that came for this end's data.
func (e *end) acknowledged(s *segment, peer *end, c *traffic) {
	back := c.backOf(e)
	if !e.began {
		e.began, e.base = true, s.ack
	}
	if s.stamped && !e.pending.on {
		e.pending.value, e.pending.at, e.pending.on = s.stampValue, s.at, true
	}
	if e.minBack == 0 && back > 0 {
		e.minBack = back
	}
	ack := e.position(s.ack)
	if e.ended && ack == e.next+1 {
		ack--
	}
	scale := 0
	if !s.syn && peer.scale > 0 && e.scale >= 0 {
		scale = peer.scale
	}
	e.window = s.window << scale
	e.widest = max(e.widest, e.window)
	e.zeroWindow(s.at)
	e.sacked = s.sacks
	switch {
	case ack > e.acked:
		e.advance(ack, s.at, c.atSender(e))
	case ack == e.acked && s.length == 0 && e.inFlight() > 0:
		e.dups++
	}
	e.edge = max(e.edge, ack+e.window)
	if s.length == 0 && e.small.sent && !e.small.got && e.inFlight() == 0 {
		e.small.got, e.small.acked = true, s.at
	}
}

func (e *end) advance(ack int64, at time.Duration, nearby bool) {
	if ack > e.next { // the capture has not seen what was acknowledged
		e.p.Missed += ack - e.next
		e.fresh += ack - e.next
		e.next = ack
	}
	n := 0
	for ; n < len(e.flights) && e.flights[n].end <= ack; n++ {
		if f := &e.flights[n]; !f.again {
			e.rttTo = max(1, at-f.at)
			e.minTo = least(e.minTo, e.rttTo)
		}
	}
	e.flights = append(e.flights[:0], e.flights[n:]...)
	for i := 0; i < len(e.holes); i++ {
		if h := e.holes[i]; h.to <= ack { // it arrived, and only the capture lacks it
			e.p.Missed += h.to - h.from
			e.holes = append(e.holes[:i], e.holes[i+1:]...)
			i--
		}
	}
	if e.fresh > 0 && nearby {
		e.first.over = true
	}
	e.acked, e.dups, e.answered = ack, 0, at
}

// zeroWindow notes how long the peer's window is closed.
func (e *end) zeroWindow(at time.Duration) {
	switch closed := e.window == 0 && e.fresh > 0; {
	case closed && !e.zero:
		e.zero, e.zeroSince = true, at
		e.p.ZeroWindows++
	case !closed && e.zero:
		e.zero = false
		e.p.ZeroTime += at - e.zeroSince
	}
}

func (c *traffic) segmentSize() int64 {
	mss := int64(1460)
	for i := range c.ends {
		if m := c.ends[i].mss; m >= 64 && m < mss || i == 0 && m > mss {
			mss = m
		}
	}
	if c.ends[0].stamp && c.ends[1].stamp {
		mss -= 12 // RFC 7323
	}
	return mss
}
