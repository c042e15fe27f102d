package diagnose

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

// Session is what both sides measured in one session.
type Session struct {
	Sender, Receiver         []Sample // in order; all times are from the same clock
	SenderHost, ReceiverHost Host
	// Seen is the side whose sockets or packets were seen, if the programs are not ours: nothing is
	// known of their stages then. It is "" in our own sessions.
	Seen Side
}

// Cell is a short part of a session, with what held it back.
type Cell struct {
	Start, Length time.Duration
	Limiter       Limiter
	Sender        Sample // what changed during the cell
	Receiver      Sample
}

// Rate is the goodput in the cell in bit/s, TLS included.
func (c *Cell) Rate() float64 {
	return float64(max(c.Sender.Acked, c.Receiver.Received)) * 8 / c.Length.Seconds()
}

// Thresholds. Shares are of the time of the streams in use, or of the time with data in flight.
const (
	most    = 0.5  // a stage in which streams spend this share is the bottleneck
	capped  = 0.4  // a window that is closed for this share is the bottleneck
	starved = 0.85 // of the available cores
	// A process that got a noticeable share of the cores lacks CPU only if it wanted at least
	// this share of them.
	delayed = 1.1

	// Segments wait in a queue if the RTT exceeds the least RTT by this share, and by more than a
	// scheduler's noise.
	queueShare = 0.2
	queueLeast = time.Millisecond
	// shortQueue is the part of the least RTT, as a divisor, that the queue of others takes at the least.
	shortQueue = 20
	// A queue is excessive if it multiplies the RTT by this factor and adds at least this much.
	bloatFactor = 3
	bloatLeast  = 50 * time.Millisecond

	someLoss      = 5e-5 // of segments; less is chance
	needlessLeast = 4    // segments sent again without need
	fewDrops      = 3    // cells with drops; fewer are a moment, such as the end of slow start
	clearly       = 3    // times what is carried: loss alone would allow that
	brim          = 0.6  // of the congestion windows: they hold data back, and no pace does
	dwelling      = 0.15 // losses a stream and round trip: without SACK, it spends this share of its time on them
	// rampRTTs is the longest slow start in round trips, from 10 segments to a large BDP,
	// including connection setup.
	rampRTTs = 14
	rising   = 0.5 // of the peak: it comes later
	grown    = 0.8 // of the peak
	noted    = 0.4 // of the time around a cell in which the controller saw something
	// A session that has seen others for seenShare of its time shares the line with them whenever it
	// has less than crowdedBelow of its peak.
	seenShare    = 0.1
	crowdedBelow = 0.85
	flooding     = 0.02  // of segments, lost in a queue of our own
	slowLine     = 2.5e6 // bit/s: a narrow line carries no more
	// queuePackets is how many packets may wait on a narrow line; an initial window is 10.
	queuePackets = 12
	// holePackets is the time, in packets of a narrow line, that an acknowledgement may take.
	holePackets = 16
	// enough is what a transfer has to move, in bytes, or last, to say what held it back.
	enough     = 64 << 10
	enoughTime = time.Second
	// leastTime is how long it has to last at the least.
	leastTime = 100 * time.Millisecond
	smooth    = 500 * time.Millisecond
	shortest  = 10 * time.Millisecond
	apart     = time.Second     // samples are never further apart
	settle    = 2 * time.Second // the time over which the network's state is averaged
)

// Cells cuts a session into cells and finds what held each of them back.
func Cells(s *Session) []Cell {
	var cells []Cell
	for from, to := range cuts(s) {
		cells = append(cells, Cell{Start: from, Length: to - from, Sender: during(s.Sender, from, to), Receiver: during(s.Receiver, from, to)})
	}
	v := see(s, cells)
	for i := range cells {
		cells[i].Limiter = v.beyond(&cells[i], v.limiter(&cells[i]))
	}
	if s.Seen != "" {
		v.steadyProgram(cells)
	}
	return cells
}

// cuts iterates over the boundaries of the cells, which are the sample times of the side with
// more samples. Where the other side has no sample at the beginning or the end, that time joins
// the cell beside it, unless it is longer than samples are apart, or nothing is acknowledged in it.
func cuts(s *Session) iter.Seq2[time.Duration, time.Duration] {
	base, other := s.Sender, s.Receiver
	if len(other) > len(base) {
		base, other = other, base
	}
	return func(yield func(from, to time.Duration) bool) {
		if len(base) == 0 {
			return
		}
		from, last := base[0].At, len(base)-1
		for i := 1; i <= last; i++ {
			to := base[i].At
			if i < last && len(other) > 0 {
				begin, end := other[0].At, other[len(other)-1].At
				late := to >= end && base[last].At-end < apart && !silent(&base[i-1], &base[i]) && !silent(&base[i], &base[i+1])
				if to <= begin && begin-base[0].At < apart || late {
					continue
				}
			}
			if to-from < shortest && i < last {
				continue
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// silent reports whether nothing was acknowledged between two samples of a sender.
func silent(a, b *Sample) bool { return b.InFlight > 0 && b.Acked == a.Acked }

func during(samples []Sample, from, to time.Duration) Sample {
	if len(samples) == 0 {
		return Sample{}
	}
	a, b := at(samples, from), at(samples, to)
	return sub(&b, &a)
}

// view is what the whole session says about each of its cells.
type view struct {
	*Session
	minRTT time.Duration
	peak   float64 // highest rate of the cells, bit/s
	peakAt time.Duration
	began  time.Duration
	length time.Duration
	shared time.Duration // the controller noticed others
	steady Sample        // the sender's counters after slow start, without outages
	packet time.Duration // the mean time of a full segment; 0 is unknown
	holes  []span        // in which nothing large arrived
	cuts   []span        // in which nothing arrived
	pauses []span        // the same, but too short to be sure
	queue  time.Duration // the largest mean queue of the cells
	drops  drops         // after slow start
}

// drops is when segments were sent again without a queue of the session's own.
type drops struct {
	cells       int
	first, last time.Duration
}

// span is a part of a session, from the start of its first cell to the end of its last one.
type span struct{ from, to time.Duration }

func see(s *Session, cells []Cell) view {
	v := view{Session: s, began: -1}
	var sent, received, base time.Duration
	for i := range cells {
		c := &cells[i]
		sent, received, base = least(sent, c.Sender.MinRTT), least(received, c.Receiver.MinRTT), least(base, c.Sender.BaseRTT)
		if v.began < 0 && max(c.Sender.Acked, c.Receiver.Received) > 0 {
			v.began = c.Start
		}
		v.length = c.Start + c.Length
		v.shared += c.Sender.Shared
	}
	if v.minRTT = base; base == 0 {
		v.minRTT = minRTT(sent, received)
	}
	packet := packetTime(cells)
	v.peak, v.peakAt = peak(cells, max(smooth, 4*v.minRTT, queuePackets*packet))
	v.holes, v.cuts, v.pauses = silences(s, cells, max(v.minRTT, holePackets/4*packet))
	v.packet = packet
	for i := range cells {
		c, out := &cells[i], slices.Concat(v.cuts, v.pauses)
		if c.Start >= v.began+rampRTTs*v.minRTT && !within(out, c) && !v.regaining(out, c) {
			add(&v.steady, &c.Sender)
			v.queue = max(v.queue, c.Sender.MeanRTT()-v.minRTT)
		}
	}
	for i := range cells {
		c, out := &cells[i], slices.Concat(v.cuts, v.pauses)
		if c.Sender.Retrans > c.Sender.Spurious && !v.own(&c.Sender) && c.Start >= v.began+rampRTTs*v.minRTT && !within(out, c) && !v.regaining(out, c) {
			v.drops.add(c)
		}
	}
	return v
}

func (d *drops) add(c *Cell) {
	if d.cells == 0 {
		d.first = c.Start
	}
	d.cells++
	d.last = c.Start + c.Length
}

// own reports whether a queue of at least half of the largest one is there: what is lost then is lost
// in it.
func (v *view) own(s *Sample) bool {
	queue := s.MeanRTT() - v.minRTT
	return s.queued(v.minRTT) || v.queue >= queueLeast && v.queue.Seconds() >= queueShare*v.minRTT.Seconds() && queue >= v.queue/2
}

// scattered reports whether drops without a queue come all the time, as random ones do.
func (v *view) scattered() bool {
	return v.drops.cells >= fewDrops && v.drops.last-v.drops.first >= (v.length-v.began)/3
}

// policed reports whether the controller stayed below a rate beyond which segments are lost without a queue.
func (v *view) policed(s *Sample) bool {
	return !s.queued(v.minRTT) && (s.noted(s.Policed) || v.steady.noted(v.steady.Policed))
}

// packetTime is the mean time that a full segment took on the path, 0 if it is unknown.
func packetTime(cells []Cell) time.Duration {
	var bytes, mss int64
	var length time.Duration
	for i := range cells {
		c := &cells[i]
		mss = max(mss, c.Sender.MSS)
		if n := max(c.Sender.Acked, c.Receiver.Received); n > 0 {
			bytes, length = bytes+n, length+c.Length
		}
	}
	if bytes < 4*mss || bytes <= 0 {
		return 0
	}
	return time.Duration(float64(length) * min(1, float64(mss)/float64(bytes)))
}

// peak is the highest rate over a period, in bit/s, and when it began. It averages because
// acknowledgements come in bunches.
func peak(cells []Cell, over time.Duration) (most float64, at time.Duration) {
	var bits float64
	var length time.Duration
	first := 0
	for i := range cells {
		c := &cells[i]
		bits += c.Rate() * c.Length.Seconds()
		length += c.Length
		for ; length-cells[first].Length >= over; first++ {
			bits -= cells[first].Rate() * cells[first].Length.Seconds()
			length -= cells[first].Length
		}
		if rate := bits / length.Seconds(); rate > most && (length >= over || i == len(cells)-1 && most == 0) {
			most, at = rate, cells[first].Start
		}
	}
	return most, at
}

// Peak is the highest rate over a second, in bit/s, and the mean of all cells, TLS included. It counts
// what the network carried: files are written in large parts, several at once after a pause.
func Peak(cells []Cell) (most, mean float64) {
	var bits float64
	var length time.Duration
	for i := range cells {
		c := &cells[i]
		if c.Length > 0 {
			bits, length = bits+c.Rate()*c.Length.Seconds(), length+c.Length
		}
	}
	if length <= 0 {
		return 0, 0
	}
	most, _ = peak(cells, time.Second)
	return most, bits / length.Seconds()
}

// least returns the smaller of two round-trip times. Zero means unknown.
func least(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// minRTT finds the least round-trip time where no controller did, from those that both sides have seen. The sender's value
// may be too small: a socket that has paced stamps segments with the time at which they are due
// (tcp_wstamp_ns in net/ipv4/tcp_output.c), which may be in the future. The receiver's value
// comes from handshakes and is never too small, but may include a queue.
func minRTT(sent, received time.Duration) time.Duration {
	if sent > 0 && received > sent && received <= sent*5/4 {
		return received
	}
	return least(sent, received)
}

const (
	// A time without acknowledgements is an outage from cutLeast on, and a black hole only from
	// holeLeast on. A shorter one from pauseLeast on, or one that lasts still, says nothing about
	// the path. On a path with a long queue, it must last for some of the longest RTTs, too.
	pauseLeast = 350 * time.Millisecond
	cutLeast   = time.Second
	holeLeast  = 3 * time.Second
	cutRTTs    = 2
	holeRTTs   = 4
	// After an outage, kernels send again what it lost, for so many round trips or so long.
	regainRTTs  = 10
	regainLeast = time.Second
	// helloSegments is more than new streams send in small segments, which pass a black hole, as full ones.
	helloSegments = 4
)

// silences finds where nothing that is sent is acknowledged any more. It is a black hole if the
// receiver's samples, which are small, still arrive. If data flows again in segments of the same
// size, it was an outage, after which samples that were held up arrive, too. It lasts while there are no
// streams because all were given up.
func silences(s *Session, cells []Cell, rtt time.Duration) (holes, cuts, pauses []span) {
	var longest time.Duration
	for i := range cells {
		longest = max(longest, cells[i].Sender.RTT)
	}
	for i := 0; i < len(cells); i++ {
		first, retrans := i, int64(0)
		for ; i < len(cells) && cells[i].Sender.Acked == 0 && cells[i].Sender.InFlight > 0; i++ {
			retrans += cells[i].Sender.Retrans
		}
		if i == first {
			continue
		}
		end := i
		for end < len(cells) && cells[end].Sender.Streams == 0 {
			end++
		}
		if end == len(cells) {
			end = i
		}
		x := span{cells[first].Start, cells[end-1].Start + cells[end-1].Length}
		over := flows(cells[end:], cells[i-1].Sender.MSS)
		alive := 0
		for j := range s.Receiver {
			if at := s.Receiver[j].At; at > x.from+holeLeast/2 && at <= x.to {
				alive++
			}
		}
		long, least := x.to-x.from, max(4*rtt, cutRTTs*longest)
		if i < len(cells) { // it is over
			least = max(least, pauseLeast)
		}
		switch {
		case retrans == 0 || long < least:
		case long < cutLeast:
			pauses = append(pauses, x)
		case long >= max(holeLeast, holeRTTs*longest) && alive > 1 && !over:
			holes = append(holes, x)
		default:
			cuts = append(cuts, x)
		}
	}
	return holes, cuts, pauses
}

// flows reports whether data is acknowledged that was sent in segments of at least that size, in bytes.
func flows(cells []Cell, mss int64) bool {
	var acked int64
	for i := range cells {
		s := &cells[i].Sender
		if acked += s.Acked; acked >= helloSegments*mss*max(1, s.Streams) {
			return s.MSS >= mss
		}
		if s.Acked == 0 && s.InFlight > 0 {
			break
		}
	}
	return false
}

// within reports whether a cell is in one of the spans.
func within(spans []span, c *Cell) bool {
	return slices.ContainsFunc(spans, func(x span) bool { return c.Start >= x.from && c.Start < x.to })
}

func share(part, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return part.Seconds() / of.Seconds()
}

// used is the time of the streams that are not parked.
func (s *Sample) used() time.Duration { return s.Idle + s.Read + s.Digest + s.Code + s.Send }

// taking is the time of a receiver's streams.
func (s *Sample) taking() time.Duration { return s.Receive + s.Digest + s.Code + s.Write + s.Full }

// short returns the CPU that a process used and the CPU that it wanted, both as shares of the
// cores.
func (s *Sample) short(d time.Duration) (used, wanted float64) {
	if s.Cores <= 0 || d <= 0 {
		return 0, 0
	}
	cores := float64(s.Cores) / 1000 * d.Seconds()
	return s.CPU.Seconds() / cores, (s.CPU + s.RunDelay).Seconds() / cores
}

// starved reports whether a process lacks CPU.
func (s *Sample) starved(d time.Duration) bool {
	used, wanted := s.short(d)
	return used >= starved || wanted >= delayed && used >= starved/4
}

// limiter finds what held a cell back. It looks from the end of the path to its beginning: behind
// the bottleneck everything is empty, and before it everything is full.
func (v *view) limiter(c *Cell) Limiter {
	s, d := &c.Sender, c.Length
	used := s.used()
	// The kernel does not count a pacing sender as limited by the window that its pace comes
	// from. So data in flight counts, too.
	busy := max(s.Busy, d/2) // less than one stream for half of the time proves nothing
	backlog := share(s.Backlog, busy)
	rwnd, sndbuf := share(s.closed(v.minRTT), busy), share(s.crammed(d), busy)
	switch {
	case within(v.holes, c):
		return BlackHole
	case within(v.cuts, c):
		return Outage
	case within(v.pauses, c):
		return Unknown
	case v.Seen != "":
		return v.program(c, backlog, rwnd, sndbuf)
	case share(s.RateWait, used) >= capped, share(c.Receiver.RateWait, c.Receiver.taking()) >= capped:
		return RateLimit
	case share(s.Feed, d) >= most && share(s.Idle, used) >= most:
		return Silent
	}
	if l := v.target(c, backlog >= capped || rwnd >= capped); l != "" {
		return l
	}
	if l := v.source(c); l != "" {
		return l
	}
	if v.SenderHost.Loopback == 1 || v.ReceiverHost.Loopback == 1 { // there is no path
		if s.starved(d) {
			return SenderCPU
		}
		return Unknown
	}
	if around := v.around(c); around.noted(around.Yielded) && !v.regaining(v.cuts, c) {
		return OwnPriority
	}
	if s.Priority > 0 && s.queued(v.minRTT) { // the line is full, so a larger window fills its queue
		rwnd, sndbuf = 0, 0
	}
	switch {
	case rwnd >= capped && rwnd >= sndbuf && (v.beginsSmall() || v.opened()) && v.ramping(c):
		return v.slowStart() // the window follows what arrives: a larger buffer would not help yet
	case rwnd >= capped && rwnd >= sndbuf:
		return ReceiverWindow
	case sndbuf >= capped:
		return SenderBuffer
	case backlog >= capped:
		return v.path(c)
	}
	if s.starved(d) {
		return SenderCPU
	}
	if v.ramping(c) || s.InFlight > 0 && share(s.Idle, used) >= most && v.brief() {
		return v.slowStart()
	}
	switch { // the weaker signs
	case backlog+rwnd+sndbuf < 0.2:
		return Unknown
	case rwnd > max(backlog, sndbuf) && v.beginsSmall() && v.brief():
		return v.slowStart()
	case rwnd > max(backlog, sndbuf):
		return ReceiverWindow
	case sndbuf > backlog:
		return SenderBuffer
	}
	return v.path(c)
}

// beyond names the relay where one holds data back. It takes no more than it can pass on, by its
// window and by late acknowledgements: that looks like the end of the line, or like a queue, but a full
// line of its own would lose segments now and then.
func (v *view) beyond(c *Cell, l Limiter) Limiter {
	if v.SenderHost.Relayed != 1 && v.ReceiverHost.Relayed != 1 {
		return l
	}
	switch l {
	case LineRate, NarrowLine, Bufferbloat, ReceiverWindow:
		if s := v.around(c); float64(s.Retrans) < someLoss*float64(s.Segments) || s.Segments == 0 {
			return Relay
		}
	default: // it is on this side of the relay, or at the end of the way
	}
	return l
}

// closed is how long the receiver's window held data back. If segments wait in a queue, the line
// is full, so a nearly full window does not count.
func (s *Sample) closed(minRTT time.Duration) time.Duration {
	if s.queued(minRTT) {
		return s.RwndLimited
	}
	return max(s.RwndLimited, s.Windowed)
}

// crammed is how long the send buffer held data back. A controller that has found the line's rate
// leaves as much in flight as the line takes, so a nearly full buffer does not count then.
func (s *Sample) crammed(d time.Duration) time.Duration {
	if s.Priority > 0 && share(s.Starting, d) < most {
		return s.SndbufLimited
	}
	return max(s.SndbufLimited, s.Buffered)
}

// noted reports whether a time that the controller counted is a good part of the sample's.
func (s *Sample) noted(d time.Duration) bool { return share(d, s.At) >= noted }

// WindowShare compares two samples of a sender, a before b. It returns for which share of the
// time with data in flight the receiver's window held data back.
func WindowShare(a, b *Sample) float64 {
	d := sub(b, a)
	return min(1, share(d.closed(b.MinRTT), d.Busy))
}

// queued reports whether segments wait in a queue on the path.
func (s *Sample) queued(minRTT time.Duration) bool {
	queue := s.MeanRTT() - minRTT
	return queue >= queueLeast && queue.Seconds() >= queueShare*minRTT.Seconds()
}

// target finds the limiter behind the network, at the receiver. full says that data waits in
// front of it.
func (v *view) target(c *Cell, full bool) Limiter {
	s, r, d := &c.Sender, &c.Receiver, c.Length
	waiting := full || share(s.Idle, s.used()) >= most || share(s.Send-s.RateWait, s.used()) >= most
	if !waiting {
		return ""
	}
	busy := r.Receive + r.Digest + r.Code + r.Write + r.Full - s.Parked
	working := share(r.Digest+r.Code+r.Write+r.Full, busy)
	syncing := share(r.Sync, d)
	switch {
	case r.starved(d) && !v.mostStarvedSender(c) && (r.busyCPU(d) || v.closing(s)):
		return ReceiverCPU
	case syncing >= most && (working >= most || share(r.Sync, r.Write) >= most || share(s.Idle, s.used()) >= most):
		return Sync
	case working >= most && share(r.Digest+r.Code, busy) > share(r.Write+r.Full, busy):
		if r.Cores > 0 && r.CPU < (r.Digest+r.Code)/2 { // it computes less than it seems
			return Unknown
		}
		return ReceiverCPU
	case working >= most:
		return TargetDisk
	case share(s.Idle, s.used()) >= most && share(r.Compare+r.Name, d) >= most:
		return TargetDisk
	}
	return ""
}

// busyCPU reports whether a process uses most of the cores that it may use.
func (s *Sample) busyCPU(d time.Duration) bool {
	used, _ := s.short(d)
	return used >= starved
}

// closing reports whether the receiver's window closes at times: then it does not read in time.
// Threads that wake at once also wait for one another, without being late.
func (v *view) closing(s *Sample) bool {
	return share(s.closed(v.minRTT), s.Busy) >= capped/2
}

// mostStarvedSender reports whether the sender lacks more CPU than the receiver. Both may be on
// one host.
func (v *view) mostStarvedSender(c *Cell) bool {
	if !c.Sender.starved(c.Length) {
		return false
	}
	usedS, _ := c.Sender.short(c.Length)
	usedR, _ := c.Receiver.short(c.Length)
	return usedS >= usedR
}

// source finds the limiter before the network, at the sender. If streams gather there, or the
// process gets no CPU to fill the sockets, the network only gets what is still in the sockets.
func (v *view) source(c *Cell) Limiter {
	s, d := &c.Sender, c.Length
	used := s.used()
	cpu, wanted := s.short(d)
	switch {
	case cpu >= starved, cpu >= most && wanted >= delayed:
		return SenderCPU
	case share(s.Read, used) >= most, share(s.Idle, used) >= most && share(s.Walk, d) >= most:
		return SourceDisk
	case share(s.Digest+s.Code, used) >= most:
		return SenderCPU
	}
	return ""
}

// ramping reports whether windows still grow.
func (v *view) ramping(c *Cell) bool {
	if v.began < 0 || c.Start < v.began {
		return true // connecting
	}
	cwnd, rwnd := initialWindows(&v.SenderHost, &v.ReceiverHost)
	small := min(cwnd, rwnd) < usualCwnd && v.brief() // it looks like a narrow line for some round trips
	if !small && v.narrow() && c.Sender.Priority > 0 && share(c.Sender.Starting, c.Length) < most {
		return false // it has found the line's rate
	}
	return c.Start-v.began < rampRTTs*v.minRTT && (c.Rate() < grown*v.peak || v.brief())
}

// narrow reports whether the session was never faster than a narrow line.
func (v *view) narrow() bool { return v.peak > 0 && v.peak <= slowLine }

// brief reports whether the session was over before windows could have grown.
func (v *view) brief() bool { return v.length < (rampRTTs+4)*v.minRTT }

// around sums up what the sender measured around the time of a cell. A single moment of a network
// says little.
func (v *view) around(c *Cell) Sample {
	from, to := max(c.Start-settle/2, v.began+rampRTTs*v.minRTT), min(c.Start+c.Length+settle/2, v.length)
	if from >= c.Start+c.Length {
		from = c.Start
	}
	for _, x := range slices.Concat(v.cuts, v.pauses) { // what these lost is not the network's usual state
		if x.from >= c.Start+c.Length {
			to = min(to, x.from)
		} else if x.to <= c.Start {
			from = max(from, x.to)
		}
	}
	return during(v.Sender, from, to)
}

// regaining reports whether one of the spans was over only just before a cell.
func (v *view) regaining(spans []span, c *Cell) bool {
	return slices.ContainsFunc(spans, func(x span) bool {
		return c.Start >= x.to && c.Start < x.to+max(regainRTTs*v.minRTT, regainLeast)
	})
}

// Initial windows of routes that set none, in segments of 1448 bytes: RFC 6928, and what Linux
// announces since 4.20.
const (
	usualCwnd = 10
	usualRwnd = 44
)

// initialWindows is how many segments a new connection may send before the first answer, and how many
// its peer lets it send. The lower one counts.
func initialWindows(sender, receiver *Host) (cwnd, rwnd int64) {
	return cmp.Or(sender.InitCwnd, usualCwnd), cmp.Or(receiver.InitRwnd, usualRwnd)
}

// beginsSmall reports whether the receiver's route sets a window that holds new connections back.
func (v *view) beginsSmall() bool {
	cwnd, rwnd := initialWindows(&v.SenderHost, &v.ReceiverHost)
	return rwnd < usualCwnd || rwnd < cwnd
}

// opened reports whether a session was over before windows could have grown, and the receiver's had
// grown by then to hold all that was sent, or could still grow.
func (v *view) opened() bool {
	if !v.brief() {
		return false
	}
	var window, acked int64 // the last sample may be from a time without streams
	for i := range v.Sender {
		window, acked = max(window, v.Sender[i].SndWnd), max(acked, v.Sender[i].Acked)
	}
	h := &v.ReceiverHost
	grows := h.SockBuf == 0 && h.NoAutotuning == 0 && h.RmemMax/2 >= 2*window // half of a buffer becomes window
	return window > 0 && (grows || window >= acked)
}

// slowStart names the cause of windows that grow for long: one that begins small, or none but the
// length of the transfer.
func (v *view) slowStart() Limiter {
	if cwnd, rwnd := initialWindows(&v.SenderHost, &v.ReceiverHost); min(cwnd, rwnd) < usualCwnd || rwnd < cwnd {
		return InitialWindow
	}
	return SlowStart
}

// path finds the limiter in the network when data waits for the congestion window.
func (v *view) path(c *Cell) Limiter {
	s := v.around(c)
	switch {
	case v.regaining(v.cuts, c):
		return Outage
	case v.regaining(v.pauses, c), s.Acked == 0 && s.InFlight == 0: // or nothing uses the network
		return Unknown
	case v.unselective(&s) && !v.ramping(c):
		return NoSACK
	case v.waits(&s) && s.noted(s.Shared), v.crowded(&s):
		return SharedLine
	}
	if v.ramping(c) {
		return v.slowStart()
	}
	rtt := s.MeanRTT()
	retrans, segments, spurious, reordered := s.Retrans, s.Segments, s.Spurious, s.Reordered
	if retrans == 0 { // what shrank the window may have happened before this cell
		retrans, segments, spurious, reordered = v.steady.Retrans, v.steady.Segments, v.steady.Spurious, v.steady.Reordered
	}
	lossy := segments > 0 && float64(retrans) >= someLoss*float64(segments)
	switch {
	case rtt-v.minRTT >= max(bloatLeast, queuePackets*v.packet) && rtt >= bloatFactor*v.minRTT && !v.stale(&s):
		return Bufferbloat
	case float64(s.LostOwn) >= flooding*float64(max(1, s.Segments)):
		return OwnQueue
	case v.policed(&s):
		return Policed
	case c.Start < v.peakAt && float64(s.Acked)*8 < rising*v.peak*s.At.Seconds() && !lossy && !s.queued(v.minRTT):
		return v.slowStart() // the controller has not found the line's rate yet
	case s.Control == BBR:
		return v.line(&s) // it does not take loss or reordering for a full line
	case needless(&s), needless(&v.steady) && s.Retrans < needlessLeast:
		return Reordering // delays acknowledgements, too
	case s.queued(v.minRTT), segments == 0:
		return v.line(&s)
	case reordered > 0 && lossy && float64(spurious) >= most*float64(retrans): // else it is harmless
		return Reordering
	case lossy && v.scattered() && !harmless(&s, rtt, float64(retrans)/float64(segments)):
		return RandomLoss
	}
	return cmp.Or(v.shrunk(c, rtt), v.line(&s))
}

// unselective reports whether streams lose much because a host does not say what has arrived after a
// loss: each lost segment takes a round trip. Others and policers cannot be told from that: in such a
// round trip the RTT grows and little is delivered.
func (v *view) unselective(s *Sample) bool {
	if v.SenderHost.NoSACK == 0 && v.ReceiverHost.NoSACK == 0 || float64(s.Retrans) < max(1, someLoss*float64(s.Segments)) {
		return false
	}
	much := s.lossesATrip(s.At) >= dwelling || s.Control == BBR && v.below(s)
	return much && !s.queued(v.minRTT) || s.noted(s.Shared) || s.noted(s.Policed)
}

// below reports whether the line has carried clearly more at another time.
func (v *view) below(s *Sample) bool { return float64(s.Acked)*8 < crowdedBelow*v.peak*s.At.Seconds() }

// lossesATrip is how many segments a stream loses in a round trip, on average over d.
func (s *Sample) lossesATrip(d time.Duration) float64 {
	return float64(s.Retrans) / float64(max(1, s.Streams)) * share(s.MeanRTT(), d)
}

// shrunk is the limiter of streams that fill their windows, but not the line: there is no queue. Windows
// that are small have lost something, perhaps long ago. It is "" if the line may be full.
func (v *view) shrunk(c *Cell, rtt time.Duration) Limiter {
	full := c.Sender.InFlight > 0 && float64(c.Sender.InFlight) >= brim*float64(c.Sender.Cwnd)
	s := during(v.Sender, 0, c.Start+c.Length)
	switch {
	case !full || rtt-v.minRTT >= queueLeast:
		return ""
	case s.Retrans > 0 && float64(s.Spurious) >= most*float64(s.Retrans):
		return Reordering
	case s.LostLine > s.LostOwn+s.LostOthers:
		return RandomLoss
	case v.below(&c.Sender): // something else did that, such as a moment in which a host stood still
		return Unknown
	}
	return ""
}

// harmless reports whether loss without a queue leaves cubic streams windows that carry clearly more
// than the session does. The mean windows are those of RFC 9438, section 5.4, and of the part of it that
// does as reno does.
func harmless(s *Sample, rtt time.Duration, loss float64) bool {
	segments := max(1.054*math.Pow(rtt.Seconds()/loss, 0.75), math.Sqrt(1.5/loss))
	carried := float64(max(1, s.Streams)*s.MSS) * segments / rtt.Seconds()
	return s.MSS > 0 && float64(s.Acked) < carried*s.At.Seconds()/clearly
}

// stale reports whether the mean RTT of a narrow line is that of the past: it follows acknowledgements
// slowly, and there are few. The session has too little in flight for a long queue.
func (v *view) stale(s *Sample) bool {
	return v.narrow() && s.Priority > 0 && s.InFlight <= queuePackets*s.MSS
}

// crowded reports whether others hold the session back in a time in which its controller does not
// notice them: it has noticed them in a part of the session, there is a queue, and the line has
// carried clearly more.
func (v *view) crowded(s *Sample) bool {
	return v.shared >= time.Second && v.shared.Seconds() >= seenShare*v.length.Seconds() && s.queued(v.minRTT) && v.below(s)
}

// waits reports whether segments wait in a queue, however short. Without one, others that the controller
// has noticed are an error, as after a moment in which the machine stood still.
func (v *view) waits(s *Sample) bool {
	return s.MeanRTT()-v.minRTT >= max(queueLeast, v.minRTT/shortQueue)
}

// line is the limiter of a full line. It is not full while the controller holds back for others who are
// not there.
func (v *view) line(s *Sample) Limiter {
	switch {
	case s.noted(s.Shared) && !v.waits(s):
		return Unknown
	case v.narrow():
		return NarrowLine
	}
	return LineRate
}

// needless reports whether most of the segments sent again had arrived, and more often than tail
// loss probes explain.
func needless(s *Sample) bool {
	return s.Spurious >= needlessLeast && float64(s.Spurious) >= most*float64(s.Retrans) && float64(s.Spurious) >= 4*someLoss*float64(s.Segments)
}

// Join merges cells that follow each other. The result has the limiter that held for most of the
// time.
func Join(cells []Cell) Cell {
	x := Cell{Start: cells[0].Start}
	times := make(map[Limiter]time.Duration)
	for i := range cells {
		c := &cells[i]
		x.Length += c.Length
		add(&x.Sender, &c.Sender)
		add(&x.Receiver, &c.Receiver)
		if times[c.Limiter] += c.Length; times[c.Limiter] > times[x.Limiter] || x.Limiter == "" {
			x.Limiter = c.Limiter
		}
	}
	return x
}

// Judge names what held a transfer back. A black hole comes first, then the limiters by their
// time, longest first. The cells may be of several sessions, one after the other. There are no
// verdicts where too little was measured.
func Judge(cells []Cell, sender, receiver *Host, asked *Asked) []Verdict {
	sums := make(map[Limiter]*Cell)
	var total time.Duration
	var all Cell
	for i := range cells {
		c := &cells[i]
		x := sums[c.Limiter]
		if x == nil {
			x = &Cell{Limiter: c.Limiter}
			sums[c.Limiter] = x
		}
		x.Length += c.Length
		total += c.Length
		add(&x.Sender, &c.Sender)
		add(&x.Receiver, &c.Receiver)
		add(&all.Sender, &c.Sender)
		add(&all.Receiver, &c.Receiver)
	}
	all.Length = total
	if !all.telling() {
		return nil
	}
	fastest, _ := peak(cells, smooth)
	began := narrowStart(sums, &all, fastest)
	var verdicts []Verdict
	for _, x := range sums {
		f := facts{Cell: *x, mean: all.Rate(), peak: fastest, sender: sender, receiver: receiver, asked: asked}
		w := f.verdict()
		if w.Time = x.Length; x.Limiter == NarrowLine {
			w.Time += began
		}
		w.Share = share(w.Time, total)
		verdicts = append(verdicts, w)
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		switch {
		case (a.Limiter == BlackHole) != (b.Limiter == BlackHole): // the worst fault of a path
			if a.Limiter == BlackHole {
				return -1
			}
			return 1
		case a.Time > b.Time || a.Time == b.Time && a.Limiter < b.Limiter:
			return -1
		case a.Time == b.Time && a.Limiter == b.Limiter:
			return 0
		}
		return 1
	})
	return verdicts
}

// narrowStart takes the time in which a session connected and began out of the sums, and returns it, where a
// narrow line is to blame for that, too: the first windows already fill it, at the fastest rate that it showed
// in bit/s.
func narrowStart(sums map[Limiter]*Cell, all *Cell, fastest float64) time.Duration {
	start := sums[SlowStart]
	rtt := cmp.Or(all.Sender.BaseRTT, all.Sender.MinRTT, all.Receiver.MinRTT)
	if start == nil || sums[NarrowLine] == nil || fastest/8*rtt.Seconds() > 2*usualCwnd*1448 {
		return 0
	}
	delete(sums, SlowStart)
	return start.Length
}

// telling reports whether enough was measured to say what held it back.
func (c *Cell) telling() bool {
	moved := max(c.Sender.Acked, c.Receiver.Received, c.Sender.Payload, c.Receiver.Payload)
	return c.Length >= leastTime && (moved >= enough || c.Length >= enoughTime)
}
