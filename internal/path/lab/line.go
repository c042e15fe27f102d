package lab

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

const (
	never = math.MaxInt64

	// A train that takes at most this long at the line's rate travels whole. Longer trains are
	// cut, so that a slow line delivers packet by packet while a fast one moves whole trains.
	maxTrainTime = 250 * time.Microsecond

	// On a busy link, the pump looks at its devices at most once per tick and at least every second tick. This limits the
	// cost of switching. On a narrow line it need not look more than twice while a full packet is sent, but often enough
	// for the delay, of which a tick is a small part: a quiet line delivers half a tick early.
	minTick, maxTick = 100 * time.Microsecond, 250 * time.Microsecond
	delayTicks       = 32

	// A reordered segment arrives this much later, or four packets later on a slow line: at least three others overtake
	// it on a busy line, which is what makes TCP suspect a loss (RFC 5681 section 3.2).
	minHoldback = time.Millisecond

	chunkSize = 512 << 10
	maxPacket = vnetLen + 65535 + 1 // what one read from a TUN device can return
)

// line is one direction of the link, in virtual time: the caller passes the time in ns since any
// origin. Only its counters are safe for concurrent use.
type line struct {
	// As set by configure.
	rate     int64 // bit/s
	delay    int64 // ns
	buffer   float64
	loss     float64
	reorder  float64
	ber      float64
	double   float64
	forge    float64
	blocked  []uint16
	rebound  []uint16
	unscaled bool
	noTCP    bool
	noUDP    bool
	pmtu     int
	aqm      bool
	mute     bool  // no ICMP messages
	holdback int64 // ns
	impaired bool
	tick     int64 // ns
	full     int64 // wire bytes of a packet of full size

	downUntil int64
	rng       *rand.Rand
	seed      uint64 // of the jitter
	damageLen int    // the IP length damageP was computed for
	damageP   float64

	udp    bucket
	police bucket
	codel  codel
	jitter jitter

	read    int64 // when the pump had the packet that it admits; 0 does not matter
	queue   ring[queued]
	backlog int64 // wire bytes in the queue
	free    int64 // when the line has sent everything it was given
	rem     int64 // bits × 1e9 that free is short of, below rate

	onTime lane // packets in order of arrival
	held   lane // reordered packets in order of arrival
	back   lane // ICMP messages to the sender
	arena  arena

	count counts
}

// queued is a packet in the queue before the line: segments next to end-1 of a train.
type queued struct {
	at        int64 // when it came
	read      int64 // when the pump had it
	pkt       []byte
	chunk     *chunk // of the arena
	train     train
	next, end int
	other     bool // isOther
}

// counts are Counters that can be read while the line runs.
type counts struct {
	sent, delivered, bytes, dropped, policed, early, lost, outage, reordered, doubled, corrupted, tooBig, othersSent, othersDropped atomic.Int64
}

func (c *counts) snapshot() Counters {
	return Counters{
		Sent: c.sent.Load(), Delivered: c.delivered.Load(), Bytes: c.bytes.Load(), Dropped: c.dropped.Load(), Policed: c.policed.Load(), Early: c.early.Load(),
		Lost: c.lost.Load(), Outage: c.outage.Load(), Reordered: c.reordered.Load(), Doubled: c.doubled.Load(),
		Corrupted: c.corrupted.Load(), TooBig: c.tooBig.Load(), OthersSent: c.othersSent.Load(), OthersDropped: c.othersDropped.Load(),
	}
}

// packet is a packet on its way, ready for the receiving TUN device.
type packet struct {
	due    int64  // ns
	answer bool   // from the middle of the path, to the sending host's device
	chunk  *chunk // of the arena, nil if the bytes are elsewhere
	body   []byte // the whole packet, or its payload if hdrLen > 0
	hdrLen int
	hdr    [maxHeader]byte
	segs   int
	ip     int // IP bytes of all segments
}

func newLine(l Link, stream uint64) *line {
	ln := &line{rng: rand.New(rand.NewPCG(l.Seed, stream)), seed: l.Seed ^ stream<<32}
	ln.configure(l)
	return ln
}

// configure makes l the state of the line. l must be complete and valid. Packets on their way
// arrive as planned.
func (ln *line) configure(l Link) {
	ln.rate = l.Rate
	ln.delay = int64(l.RTT / 2)
	ln.buffer = float64(l.queueBytes())
	ln.loss, ln.reorder, ln.ber = l.Loss, l.Reorder, l.Corrupt
	ln.double, ln.forge = l.Duplicate, l.Forge
	ln.blocked, ln.rebound = l.Blocked, l.Rebound
	ln.unscaled, ln.noTCP, ln.noUDP = l.Unscaled, l.NoTCP, l.NoUDP
	ln.udp.configure(l.PoliceUDP, float64(l.PoliceUDP)/8*policeUDPBurst.Seconds())
	ln.police.configure(l.Police, float64(l.PoliceBurst))
	if ln.aqm != l.CoDel {
		ln.aqm, ln.codel = l.CoDel, codel{}
	}
	ln.jitter = jitter{span: int64(l.Jitter), seed: ln.seed, step: -1}
	ln.full = int64(l.MTU + frameOverhead)
	ln.pmtu, ln.mute = l.PMTU, l.BlackHole
	ln.impaired = l.Loss > 0 || l.Forge > 0 || l.Reorder > 0 || l.Duplicate > 0 || l.Corrupt > 0 || l.PMTU < l.MTU
	ln.damageLen = 0
	ln.rem = 0
	packetTime := int64(l.MTU+frameOverhead) * 8 * 1e9 / l.Rate
	ln.tick = min(max(min(packetTime/2, ln.delay/delayTicks), int64(minTick)), int64(maxTick))
	ln.holdback = max(int64(minHoldback), 4*packetTime)
}

// admit offers pkt, the first bytes of ln.arena.room(), to the line at time now.
func (ln *line) admit(now int64, pkt []byte) {
	t := parseTrain(pkt)
	ln.count.sent.Add(int64(t.segs))
	other := isOther(pkt)
	if other {
		ln.count.othersSent.Add(int64(t.segs))
	}
	if now < ln.downUntil || len(ln.blocked) > 0 && ln.blocks(pkt) || len(ln.rebound) > 0 && !ln.rebind(pkt) {
		ln.count.outage.Add(int64(t.segs))
		return
	}
	if proto := protocolOf(pkt); ln.noTCP && proto == protoTCP || ln.noUDP && proto == protoUDP {
		ln.count.outage.Add(int64(t.segs))
		return
	}
	if ln.unscaled {
		unscale(pkt)
	}
	n := t.segs
	if protocolOf(pkt) == protoUDP {
		n = ln.udp.pass(now, &t, n)
	}
	n = ln.police.pass(now, &t, n)
	ln.count.policed.Add(int64(t.segs - n))
	ln.serve(now)
	n = ln.fit(now, &t, n)
	ln.drop(other, t.segs-n)
	if n == 0 {
		return
	}
	*ln.queue.push() = queued{at: now, read: ln.read, pkt: pkt, chunk: ln.arena.cur.hold(), train: t, end: n, other: other}
	ln.arena.keep(len(pkt))
	ln.backlog += t.wire(0, n)
	ln.serve(now)
}

// drop counts n dropped segments.
func (ln *line) drop(other bool, n int) {
	ln.count.dropped.Add(int64(n))
	if other {
		ln.count.othersDropped.Add(int64(n))
	}
}

// fit returns how many of the first n segments of t the queue takes at time now. What the line is
// sending counts as in the queue.
func (ln *line) fit(now int64, t *train, n int) int {
	room := ln.buffer - float64(ln.backlog) - float64(max(0, ln.free-now))*float64(ln.rate)/8e9
	switch {
	case n == 0 || float64(t.wire(0, n)) <= room:
		return n
	case n == 1 || room <= 0:
		return 0
	}
	return min(int(room/float64(t.wireFull)), n-1)
}

// serve lets the line send what it begins to send until the given time. It never looks at the
// clock, so a late call changes nothing.
func (ln *line) serve(until int64) {
	for q := ln.queue.front(); q != nil; q = ln.queue.front() {
		if max(ln.free, q.at) > until {
			return
		}
		if ln.free < q.at {
			ln.free, ln.rem = q.at, 0
			ln.codel.idle()
		}
		ln.sendPiece(q)
		if q.next == q.end {
			ln.arena.release(q.chunk)
			*q = queued{}
			ln.queue.pop()
		}
	}
}

// sendPiece sends the first segments of q. They travel as one packet, unless something happens to
// some.
func (ln *line) sendPiece(q *queued) {
	stop := q.end
	if q.train.segs > 1 {
		segTime := int64(q.train.wireFull) * 8 * 1e9 / ln.rate
		stop = min(stop, q.next+int(max(1, int64(maxTrainTime)/max(1, segTime))))
	}
	for i := q.next; i < stop; i++ {
		early := ln.aqm && ln.dropsEarly(q, i)
		what := ordinary
		if !early && ln.impaired {
			what = ln.draw(q.train.ipBytes(i, i+1))
		}
		if !early && what == ordinary {
			continue
		}
		ln.sendOrdinary(q, i)
		if early {
			ln.drop(q.other, 1)
			ln.count.early.Add(1)
		} else {
			ln.send(q, i, i+1, what)
		}
		ln.backlog -= q.train.wire(i, i+1)
		q.next = i + 1
	}
	ln.sendOrdinary(q, stop)
}

// sendOrdinary sends the segments of q up to end-1, if there are any.
func (ln *line) sendOrdinary(q *queued, end int) {
	if q.next == end {
		return
	}
	ln.backlog -= q.train.wire(q.next, end)
	ln.send(q, q.next, end, ordinary)
	q.next = end
}

// dropsEarly asks CoDel about segment i of q. The segments of q before it are sent first.
func (ln *line) dropsEarly(q *queued, i int) bool {
	ahead := int64(0)
	if i > q.next {
		ahead = q.train.wire(q.next, i)
	}
	now := ln.free + ahead*8e9/ln.rate
	behind := ln.backlog - ahead - q.train.wire(i, i+1)
	return ln.codel.drops(now, now-q.at, behind <= ln.full)
}

// fate is the set of things that happen to a segment on the line.
type fate int

const (
	ordinary fate = 0
	lost     fate = 1 << iota
	reordered
	doubled
	damaged
	forged
	tooBig
)

// draw decides the fate of a segment of n IP bytes.
func (ln *line) draw(n int) fate {
	if ln.loss > 0 && ln.rng.Float64() < ln.loss {
		return lost
	}
	if n > ln.pmtu {
		return tooBig
	}
	f := ordinary
	if ln.reorder > 0 && ln.rng.Float64() < ln.reorder {
		f |= reordered
	}
	if ln.double > 0 && ln.rng.Float64() < ln.double {
		f |= doubled
	}
	if ln.ber > 0 {
		if n != ln.damageLen {
			ln.damageLen, ln.damageP = n, -math.Expm1(8*float64(n)*math.Log1p(-ln.ber))
		}
		if ln.rng.Float64() < ln.damageP {
			f |= damaged
		}
	}
	if ln.forge > 0 && ln.rng.Float64() < ln.forge {
		f |= forged
	}
	return f
}

// send puts segments a to b-1 of q on the line. A train arrives when its last segment does.
// Only single segments may have a fate that isn't ordinary.
func (ln *line) send(q *queued, a, b int, what fate) {
	work := q.train.wire(a, b)*8*1e9 + ln.rem
	ln.free += work / ln.rate
	ln.rem = work % ln.rate
	if what&lost != 0 {
		ln.count.lost.Add(1)
		return
	}
	if what&tooBig != 0 {
		ln.stop(q.pkt, &q.train, a)
		return
	}

	// A pump that was held up counts a packet as having come earlier. It must not arrive earlier
	// than it can, or hosts would take the least round trip for that of the path.
	due := max(ln.arrival(), q.read+ln.delay)
	if what&reordered != 0 {
		ln.count.reordered.Add(1)
		ln.put(&ln.held, due+ln.holdback, q, a, b, what)
	} else {
		ln.put(&ln.onTime, due, q, a, b, what)
	}
	if what&doubled != 0 && what&(damaged|forged) == 0 { // these have changed the bytes
		ln.count.doubled.Add(1)
		ln.put(&ln.onTime, due, q, a, b, ordinary)
	}
}

// arrival is when the packet that the line sent last arrives.
func (ln *line) arrival() int64 { return ln.free + ln.delay + ln.jitter.at(ln.free) }

// put lets segments a to b-1 of q arrive when they are due.
func (ln *line) put(on *lane, due int64, q *queued, a, b int, what fate) {
	p := on.add(due)
	p.chunk = q.chunk.hold()
	p.segs, p.ip = b-a, q.train.ipBytes(a, b)
	if b-a == q.train.segs {
		p.body, p.hdrLen = q.pkt, 0
	} else {
		p.hdrLen, p.body = q.train.cut(p.hdr[:], q.pkt, a, b)
	}
	if what&damaged != 0 {
		ln.count.corrupted.Add(1)
		p.damage(ln.rng)
	} else if what&forged != 0 && p.forge(ln.rng) {
		ln.count.corrupted.Add(1)
	}
}

// rebind changes the ports of pkt, if it is TCP and has a rebound port. It returns false if pkt
// is sent to the old port, where nobody is any more.
func (ln *line) rebind(pkt []byte) bool {
	l4 := tcpHeader(pkt)
	if l4 == 0 {
		return true
	}
	src, dst := pkt[l4:l4+2], pkt[l4+2:l4+4]
	if slices.Contains(ln.rebound, binary.BigEndian.Uint16(dst)) {
		return false
	}
	for _, port := range [][]byte{src, dst} {
		was := binary.BigEndian.Uint16(port)
		now := was ^ otherPort
		known := was
		if &port[0] == &dst[0] {
			known = now
		}
		if !slices.Contains(ln.rebound, known) {
			continue
		}
		binary.BigEndian.PutUint16(port, now)
		if pkt[0]&vnetNeedsCsum == 0 { // it covers the ports: RFC 1624, equation 3
			sum := uint32(^binary.BigEndian.Uint16(pkt[l4+16:])) + uint32(^was) + uint32(now)
			for sum > 0xffff {
				sum = sum>>16 + sum&0xffff
			}
			binary.BigEndian.PutUint16(pkt[l4+16:], ^uint16(sum))
		}
	}
	return true
}

// otherPort is the XOR of a rebound port and its replacement.
const otherPort = 0x0400

// blocks reports whether pkt is TCP from or to a blocked port.
func (ln *line) blocks(pkt []byte) bool {
	l4 := tcpHeader(pkt)
	return l4 > 0 && (slices.Contains(ln.blocked, binary.BigEndian.Uint16(pkt[l4:])) || slices.Contains(ln.blocked, binary.BigEndian.Uint16(pkt[l4+2:])))
}

// tcpHeader returns where the TCP header of pkt begins, or 0 if it has none.
func tcpHeader(pkt []byte) int {
	if len(pkt) < vnetLen+40 {
		return 0
	}
	ip := pkt[vnetLen:]
	l4, proto := vnetLen+40, ip[6]
	if ip[0]>>4 == 4 {
		l4, proto = vnetLen+int(ip[0]&15)*4, ip[9]
	}
	if proto != protoTCP || len(pkt) < l4+20 {
		return 0
	}
	return l4
}

// damage completes the checksum and flips one bit behind the IP header, so that the checksum is
// certainly wrong.
func (p *packet) damage(rng *rand.Rand) {
	if p.hdrLen > 0 {
		complete(p.hdr[:p.hdrLen], p.body)
		flip(p.body, rng)
		return
	}
	complete(p.body, nil)
	ip := p.body[vnetLen:]
	skip := 40
	if ip[0]>>4 == 4 {
		skip = int(ip[0]&15) * 4
	}
	if skip < len(ip) {
		flip(ip[skip:], rng)
	}
}

// forge flips one bit of the payload of a TCP segment and keeps its checksum right. It returns
// false if there is no payload.
func (p *packet) forge(rng *rand.Rand) bool {
	hdr, payload := p.hdr[:p.hdrLen], p.body
	if p.hdrLen == 0 {
		l4 := tcpHeader(p.body)
		if l4 == 0 {
			return false
		}
		head := l4 + int(p.body[l4+12]>>4)*4
		hdr, payload = p.body[:min(head, len(p.body))], p.body[min(head, len(p.body)):]
	} else if tcpHeader(hdr) == 0 {
		return false
	}
	// A checksum that is already complete would show the change.
	if len(payload) == 0 || hdr[0]&vnetNeedsCsum == 0 {
		return false
	}
	flip(payload, rng)
	complete(hdr, payload)
	return true
}

func flip(b []byte, rng *rand.Rand) {
	bit := rng.IntN(len(b) * 8)
	b[bit/8] ^= 1 << (bit % 8)
}

// next returns the packet that arrives next and its time, after the line has sent what it begins
// to send until now. The packet stays valid until pop. Without a packet, nothing arrives before
// the time that next returns.
func (ln *line) next(now int64) (*packet, int64) {
	ln.serve(now)
	var first *packet
	due := int64(never)
	if ln.queue.n > 0 {
		due = ln.free + ln.delay - ln.jitter.span/2
	}
	for _, r := range [...]*lane{&ln.onTime, &ln.held, &ln.back} {
		if p := r.front(); p != nil && (first == nil || p.due < first.due) {
			first = p
		}
	}
	if first != nil {
		return first, first.due
	}
	return nil, due
}

// pop removes p, which next returned, after it was delivered or the receiving device was down.
func (ln *line) pop(p *packet, delivered bool) {
	switch {
	case p.answer:
	case delivered:
		ln.count.delivered.Add(int64(p.segs))
		ln.count.bytes.Add(int64(p.ip))
	default:
		ln.count.outage.Add(int64(p.segs))
	}
	if p.chunk != nil {
		ln.arena.release(p.chunk)
	}
	p.chunk, p.body = nil, nil
	for _, r := range [...]*lane{&ln.onTime, &ln.held, &ln.back} {
		if p == r.front() {
			r.pop()
			return
		}
	}
}

// lane holds packets on their way, in order of arrival.
type lane struct {
	ring[packet]
	last int64 // when the last one is due
}

// add appends a packet that is due at the given time, or later if the packets before it are due
// later. It returns the packet for the caller to fill in.
func (l *lane) add(due int64) *packet {
	l.last = max(l.last, due)
	p := l.push()
	p.due, p.answer = l.last, false
	return p
}

// ring is a growing queue.
type ring[T any] struct {
	slots   []T // a power of two
	head, n int
}

// push appends an element with old contents, for the caller to fill in.
func (r *ring[T]) push() *T {
	if r.n == len(r.slots) {
		grown := make([]T, max(64, 2*r.n))
		k := copy(grown, r.slots[r.head:])
		copy(grown[k:], r.slots[:r.head])
		r.slots, r.head = grown, 0
	}
	r.n++
	return &r.slots[(r.head+r.n-1)&(len(r.slots)-1)]
}

func (r *ring[T]) front() *T {
	if r.n == 0 {
		return nil
	}
	return &r.slots[r.head]
}

func (r *ring[T]) pop() {
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.n--
}

// arena holds the bytes of the packets on their way, one after the other in chunks. Free chunks
// are reused, the latest first, so that the memory in use, and in the CPU's caches, follows what
// is on its way.
type arena struct {
	cur  *chunk
	free []*chunk
}

type chunk struct {
	buf  []byte
	used int
	refs int // packets on their way that have bytes here
}

// room returns space for one packet of up to maxPacket bytes.
func (a *arena) room() []byte {
	if a.cur != nil && a.cur.refs == 0 {
		a.cur.used = 0
	}
	if a.cur == nil || len(a.cur.buf)-a.cur.used < maxPacket {
		if n := len(a.free); n > 0 {
			a.cur, a.free = a.free[n-1], a.free[:n-1]
			a.cur.used = 0
		} else {
			a.cur = &chunk{buf: make([]byte, chunkSize)}
		}
	}
	return a.cur.buf[a.cur.used:][:maxPacket]
}

// keep marks the first n bytes of room as in use until all holds on the chunk are released.
func (a *arena) keep(n int) {
	a.cur.used += (n + 63) &^ 63
}

// hold adds a hold on the chunk.
func (c *chunk) hold() *chunk {
	c.refs++
	return c
}

func (a *arena) release(c *chunk) {
	c.refs--
	if c.refs == 0 && c != a.cur {
		a.free = append(a.free, c)
	}
}
