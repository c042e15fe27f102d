package session

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transport"
)

// lowStreams is how many streams a session of low priority uses until something is known of the
// path: the first windows of all of them are more than the queue of a busy line has room for.
const lowStreams = congestion.FewStreams

// window holds all streams of a session to one rate for the path. It measures them at the sending
// end, asks its controller, and spreads the rate. One goroutine uses it.
type window struct {
	control *congestion.Controller
	record  congestion.Recorder
	set     *StreamSet
	line    float64 // rate that a narrow line carries at least, as it was first known, bytes/s; 0 is unknown
	began   time.Time
	free    int           // streams that may send, 0 is all
	cruised float64       // rate before others came, bytes/s
	queued  time.Time     // when there was a queue last, or the controller tried to make one
	least   time.Duration // RTT
	every   time.Duration // between two decisions now
	behind  bool          // streams do not send what they may
	sends   float64       // rate that streams that are not quick may send in the steady state, bytes/s; 0 is none
	quick   bool          // the streams shall be quick
	gentle  bool          // the host does not let them
	relayed bool          // the streams end at a relay
	fixed   bool          // the user chose how many streams
	joined  int           // streams that may send if none are free: more of them for a larger rate; 0 is all
	enough  time.Duration // when there were not far more streams than the line needs, the last time

	held  map[uint64]bool   // streams that only finish what they have
	shown time.Duration     // when another one has shown the RTT last
	seen  map[uint64]seen   // of each stream, the last time
	sum   congestion.Sample // counters of all streams, those that ended too, and the last RTT
}

// seen is what a stream measured, since when nothing of it was acknowledged, and how many of its segments have to be
// delivered until its RTT counts.
type seen struct {
	transport.Info
	stuck time.Time
	fresh uint64
}

// forgets is how many segments make a smoothed RTT new: each acknowledgement counts by an eighth (RFC 6298), and the
// peer acknowledges each second segment.
const forgets = 32

func newWindow(set *StreamSet) *window {
	return &window{
		control: congestion.New(), set: set, began: time.Now(), every: congestion.Every,
		seen: make(map[uint64]seen), held: make(map[uint64]bool),
	}
}

// step measures, decides and acts. It returns how many streams may claim blocks, 0 for all. At the
// end of a transfer, when nothing is left to claim, no stream is held: others would repeat its
// block.
func (w *window) step(now time.Time, p congestion.Priority, ending bool) (free int) {
	streams := w.set.Streams()
	slices.SortFunc(streams, func(a, b *DataStream) int { return cmp.Compare(a.ID, b.ID) })
	streams = slices.DeleteFunc(streams, func(d *DataStream) bool { return d.Retired.Load() })
	infos := make(map[uint64]transport.Info, len(streams))
	for _, d := range streams {
		if i, ok := d.Info(); ok {
			infos[d.ID] = i
		}
	}
	s := w.sample(now, infos)
	if w.quick && len(infos) > 0 {
		w.gentle = all(infos, "cubic") || all(infos, "reno")
	}
	s.Gentle = w.gentle
	w.control.SetPriority(p)
	defer func() { w.set.setControl(w.record.Stats(w.control)) }()
	if len(infos) == 0 && len(streams) > 0 { // the host tells nothing about them
		w.free = 0
	}
	if p == congestion.Low && !w.relayed { // those that have just joined
		for _, d := range streams {
			if i := infos[d.ID]; i.RTT >= nearRTT {
				d.beginAt(congestion.LowBegins(i.RTT, i.SndMSS) / lowStreams)
			}
		}
	}
	if s.Streams == 0 {
		return w.free
	}
	if w.relayed {
		return w.release(streams)
	}
	decided := w.control.Update(s)
	if s.RTT > 0 && (w.least == 0 || s.RTT < w.least) {
		w.least = s.RTT
	}
	w.join(s, decided, p, quic(infos))
	w.every = decided.Every
	searches := decided.State == congestion.Startup || decided.State == congestion.Drain
	if searches && !math.IsInf(decided.Rate, 1) || queues(s.RTT, w.least) {
		w.queued = now
	}
	switch {
	case decided.State == congestion.Cruise:
		w.cruised = min(decided.Rate, decided.Line)
	case decided.Free > 0 && quic(infos):
		// A connection of quic-go would need long for a share of its own. All stay at what the
		// session had when others came, less a part for them. If it never cruised, that is the line that
		// the start found: with the line of each test it would have less and less.
		if w.cruised == 0 {
			w.cruised = decided.Line
		}
		decided.Free, decided.Rate = 0, min(decided.Rate, quicShare*max(w.cruised, decided.Line))
	case decided.Free > 0 && all(infos, "reno"):
		decided.Free *= likeCubic(s.InFlight / int64(max(s.MSS, 1)))
	}
	if ending && decided.Free > 0 { // together they must not be more flows than before
		decided.Free, decided.Rate = 0, min(decided.Rate, max(w.cruised, decided.Line))
	}
	w.record.Add(w.control, s, decided)
	if near := 0 < s.RTT && s.RTT < nearRTT; math.IsInf(decided.Rate, 1) && !near && (quic(infos) || s.Line > 0 || p == congestion.Low) {
		return w.free // nothing is known yet, and each has its first bound, or few may send
	}
	turns := w.turns(streams, infos, s, decided)
	left := 0 // streams with something to send
	for _, i := range infos {
		if i.NotSent > 0 {
			left++
		}
	}
	unsent := mostUnsent
	if decided.State == congestion.Startup && s.RTT >= nearRTT {
		unsent = unsentAt(decided.Rate/float64(s.Streams), s.RTT)
	}
	if ending { // each has a block of its own
		decided.Spread = false
	}
	each := part(decided, s, infos)
	clear(w.held)
	for _, d := range streams {
		d.takeUnsent(unsent)
		switch {
		case decided.Free == 0 && ending && left > 0: // those that are done leave their part to the others
			if infos[d.ID].NotSent > 0 {
				d.pace(decided.Rate / float64(left))
			}
		case decided.Free == 0:
			d.pace(each)
		case turns[d.ID]:
			d.pace(decided.Rate / float64(decided.Free))
		default:
			d.pace(decided.Held / float64(len(streams)))
			w.held[d.ID] = true
		}
		d.use(decided.Control)
		d.yield(p == congestion.Low)
	}
	w.free, w.behind = decided.Free, decided.Behind
	w.quick, w.sends = decided.Control == congestion.Quick, 0
	if decided.State == congestion.Cruise && s.Backlog > 0 && (!w.quick || w.gentle) {
		w.sends = decided.Rate
	}
	return w.free
}

// sends reports whether a stream has something to send, or did so until now. One of QUIC may be between two blocks.
func sends(i transport.Info) bool {
	return i.InFlight > 0 || i.NotSent > 0 || i.Flying >= max(i.SndMSS, 1)
}

// part is the rate that bounds each stream, in bytes/s. If the decision says so, a stream whose congestion window does
// not allow as much leaves the rest to the others. A queue makes that no reason to send more, so the least RTT counts.
func part(x congestion.Decision, s congestion.Sample, infos map[uint64]transport.Info) float64 {
	if !x.Spread || s.Least == 0 || quic(infos) { // more of a connection is more than quic-go can repair (linkShare)
		return x.Rate / float64(s.Streams)
	}
	var allow []float64
	for _, i := range infos {
		switch {
		case !sends(i):
		case i.Cwnd == 0: // unknown
			allow = append(allow, math.Inf(1))
		default:
			allow = append(allow, float64(i.Cwnd)/s.Least.Seconds())
		}
	}
	return congestion.Spread(x.Rate, allow)
}

// pairWindow is from how many segments in its window on a stream of TCP sends two at a time. Linux sends half a window
// at once at most (tcp_cwnd_test), and the peer waits with the acknowledgement of a single segment: that looks like a
// queue. A stream that is paced does not get a larger window.
const pairWindow = 4

// turns returns the streams that may send if some are free: the first that have something to send. Once they have
// nothing, it is the turn of the next. While the session yields, those go first that send two segments at a time: its
// rate is next to nothing then. Otherwise a stream whose window losses have made small keeps its turn, since another
// one would take back from others what it gave them.
func (w *window) turns(streams []*DataStream, infos map[uint64]transport.Info, s congestion.Sample, x congestion.Decision) map[uint64]bool {
	windows := []int{0}
	if x.State == congestion.Yield {
		windows = []int{pairWindow, 0}
	}
	turns := make(map[uint64]bool, x.Free)
	for _, least := range windows {
		for _, d := range streams {
			i := infos[d.ID]
			if len(turns) < x.Free && i.NotSent > 0 && i.Cwnd >= least*i.SndMSS && !w.stuck(d, s) {
				turns[d.ID] = true
			}
		}
	}
	return turns
}

// join lets more streams send, as the rate of the path becomes known, or where more help against loss. On a line that
// needs far fewer for long, it lets fewer send, but with high priority: beside others it has as many as it may.
func (w *window) join(s congestion.Sample, x congestion.Decision, p congestion.Priority, quic bool) {
	rtt := cmp.Or(s.RTT, w.least)
	if rtt == 0 {
		return
	}
	carries, rate := w.set.carries(), x.Rate
	if congestion.Slow(carries) { // the rate of a start is far more than such a line carries
		rate = min(rate, x.Line)
	}
	n := congestion.Joined(rate, w.least, s.MSS, InitialStreams)
	switch used := cmp.Or(w.joined, InitialStreams); {
	case x.Behind:
		w.joined, w.enough = 0, s.At+helpedFor
		return
	case rtt < nearRTT || p == congestion.High:
		w.joined = 0
		return
	case math.IsInf(x.Rate, 1):
		n = congestion.Begin(carries, rtt, s.MSS, InitialStreams)
	case w.fixed || quic || x.State != congestion.Cruise || s.Backlog == 0:
		w.enough = max(w.enough, s.At)
	default:
		if m := congestion.Joined(x.Line, w.least, s.MSS, InitialStreams); 2*m > used {
			w.enough = max(w.enough, s.At)
		} else if s.At-w.enough > fewerAfter {
			w.joined, w.enough = m, s.At
			return
		}
	}
	if w.joined > 0 {
		if w.joined = max(w.joined, n); w.joined == InitialStreams {
			w.joined = 0
		}
	}
}

// help lets all streams send for a while, against loss.
func (w *window) help(now time.Time) { w.joined, w.enough = 0, now.Sub(w.began)+helpedFor }

const (
	// fewerAfter is for how long a line must need far fewer streams: it may only have paused.
	fewerAfter = 3 * time.Second
	// helpedFor is for how long streams stay that have helped against loss.
	helpedFor = time.Minute
)

// release leaves streams to a relay to the congestion control of each. A relay takes what its next leg
// carries, of each stream for itself: the kernel then acknowledges late, which looks like the queue of
// others on this leg, and to send on few streams would use little of the next one.
func (w *window) release(streams []*DataStream) (free int) {
	for _, d := range streams {
		d.pace(math.Inf(1))
		d.takeUnsent(mostUnsent)
	}
	return 0
}

// stuck reports whether nothing that a stream sent arrives: it must not keep the turn of others.
func (w *window) stuck(d *DataStream, s congestion.Sample) bool {
	i := w.seen[d.ID]
	return i.Flying > 0 && w.began.Add(s.At).Sub(i.stuck) > max(4*s.RTT, leastStuck)
}

// heldShows is for how long nothing else must show the RTT until that of streams counts which only finish what
// they have, or did so until now: it follows changes slowly.
const heldShows = time.Second

// leastStuck is longer than a kernel waits for an acknowledgement at first (RFC 6298).
const leastStuck = time.Second

// likeCubic is how many streams with reno share a line like one with cubic, at a number of segments
// in flight: reno adds a segment in each round trip, which is little where the window is large.
func likeCubic(segments int64) int { return int(min(1+segments/renoSegments, 4)) }

// renoSegments is up to how large a window reno grows about as cubic does.
const renoSegments = 1000

// quicBegins is the rate, in bytes/s, of a connection of quic-go until something is known of the
// path. Its own first window is three times that of TCP (RFC 6928), which this is.
func quicBegins(rtt time.Duration) float64 { return 10 * quicSegment / rtt.Seconds() }

// quicShare is the part of its rate that a session of QUIC keeps beside others.
const quicShare = 0.8

// quic reports whether the streams are of QUIC. They differ only for moments.
func quic(infos map[uint64]transport.Info) bool {
	for _, i := range infos {
		return i.Protocol == transport.QUIC
	}
	return false
}

// all reports whether all streams have a congestion control.
func all(infos map[uint64]transport.Info, congestion string) bool {
	for _, i := range infos {
		if i.Congestion != congestion {
			return false
		}
	}
	return true
}

// sample sums up what the streams measured.
func (w *window) sample(now time.Time, infos map[uint64]transport.Info) congestion.Sample {
	s := w.sum
	s.At = now.Sub(w.began)
	var rtts, held []transport.Info
	var busy, windowed time.Duration
	// On other lines the small packets of handshakes count as full ones: a fast line carries as much, and a start that
	// counts them ends sooner.
	slow := congestion.Slow(w.set.carries())
	for id, i := range infos {
		before, known := w.seen[id]
		if !known && (i.Protocol == transport.QUIC || slow) { // its handshake shows no rate
			before.Info = i
		}
		stuck := now
		if i.Flying > 0 && i.Delivered <= before.Delivered && !before.stuck.IsZero() {
			stuck = before.stuck
		}
		s.Delivered += int64(i.Delivered-min(i.Delivered, before.Delivered)) * int64(i.SndMSS)
		s.Lost += int64(i.RetransSegs-min(i.RetransSegs, before.RetransSegs)) * int64(i.SndMSS)
		if sends(i) {
			s.Streams++
		}
		fresh := before.fresh
		if w.held[id] { // the peer waits with the acknowledgement of a single segment
			fresh = i.Delivered + forgets
		}
		switch {
		case i.Delivered <= before.Delivered || i.RTT == 0: // it shows what was, not what is
		case i.Delivered < fresh:
			held = append(held, i)
		default:
			rtts = append(rtts, i)
		}
		busy += i.BusyTime - before.BusyTime
		windowed += i.RwndLimited - before.RwndLimited
		s.InFlight += int64(i.Flying)
		s.Backlog += int64(i.NotSent)
		s.MSS = max(s.MSS, i.SndMSS)
		if i.MinRTT > 0 && (s.Least == 0 || i.MinRTT < s.Least) {
			s.Least = i.MinRTT
		}
		w.seen[id] = seen{i, stuck, fresh}
	}
	w.sum.Delivered, w.sum.Lost = s.Delivered, s.Lost
	for id := range w.seen {
		if _, ok := infos[id]; !ok {
			delete(w.seen, id)
		}
	}
	if len(rtts) > 0 {
		w.shown = s.At
	} else if s.At-w.shown > heldShows { // between two packets of those that may send, theirs is that of long ago
		rtts = held
	}
	if len(rtts) > 0 {
		slices.SortFunc(rtts, func(a, b transport.Info) int { return cmp.Compare(a.RTT, b.RTT) })
		shows := rtts[len(rtts)/4]
		w.sum.RTT, w.sum.Deviation = shows.RTT, shows.RTTVar
	}
	if s.RTT, s.Deviation = w.sum.RTT, w.sum.Deviation; busy > 0 {
		s.Windowed = min(1, windowed.Seconds()/busy.Seconds())
	}
	switch {
	case quic(infos):
		if s.RTT > 0 {
			s.Began = quicBegins(s.RTT) * float64(s.Streams)
		}
	case w.line == 0:
		w.line, _ = w.set.narrow()
	}
	s.Line = w.line
	return s
}

// use changes the congestion control of the stream, where the user has not chosen one and the
// kernel has it.
func (d *DataStream) use(c congestion.Control) {
	if d.control == c {
		return
	}
	d.control = c
	_ = d.Conn.Prefer(c == congestion.Quick)
}

// yield asks the network to put the stream's packets behind all others, or no longer. Where that is
// not possible, the controller alone yields.
func (d *DataStream) yield(on bool) {
	if d.yields != on {
		d.yields = on
		_ = d.SetLowerEffort(on)
	}
}

// paceBy is how much a bound must change, as a share, to be set again.
const paceBy = 0.003

// pace bounds the rate of the stream, in bytes/s.
func (d *DataStream) pace(rate float64) {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if rate == d.paced || math.Abs(rate-d.paced) < paceBy*d.paced {
		return
	}
	d.paced = rate
	d.Pace(rate)
}

const (
	// firstUnsent and mostUnsent bound what a stream may take beyond what it has sent, in bytes. What a
	// stream has taken no other can send: at first, it takes no more than it will send soon. Then all
	// streams of a short transfer end at about the same time.
	firstUnsent = 32 << 10
	mostUnsent  = 512 << 10
	// leastAhead is the time for which a stream has something to send, at its rate, at the least.
	leastAhead = 50 * time.Millisecond
)

// unsentAt is how much a stream may take beyond what it has sent, at a rate in bytes/s: what it sends
// in half a round trip.
func unsentAt(rate float64, rtt time.Duration) int {
	if math.IsInf(rate, 1) {
		return firstUnsent
	}
	unsent := firstUnsent
	for unsent < mostUnsent && float64(unsent) < rate*max(rtt/2, leastAhead).Seconds() {
		unsent *= 2
	}
	return unsent
}

// takeUnsent bounds what the stream takes beyond what it has sent, in bytes.
func (d *DataStream) takeUnsent(bytes int) {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if bytes != d.unsent {
		d.unsent = bytes
		d.LimitUnsent(bytes)
	}
}

// begin bounds what a new stream takes, and the rate of one of QUIC or on a narrow line, until the first
// decision.
func (d *DataStream) begin() {
	i, ok := d.Info()
	if ok && i.RTT >= nearRTT {
		d.takeUnsent(firstUnsent)
	}
	if !ok {
		return
	}
	rate := math.Inf(1)
	if i.Protocol == transport.QUIC && i.RTT > 0 {
		rate = quicBegins(i.RTT)
	}
	if line, streams := d.set.narrow(); line > 0 {
		rate = min(rate, line/float64(streams))
	}
	if !math.IsInf(rate, 1) {
		d.beginAt(rate)
	}
}

// beginAt bounds the rate of a stream that has no bound yet, in bytes/s.
func (d *DataStream) beginAt(rate float64) {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if d.paced == 0 {
		d.paced = rate
		d.Pace(rate)
	}
}
