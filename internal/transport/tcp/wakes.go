package tcp

import "time"

const (
	// wakesInTrip is how often, in a round trip, a reader on a far path wakes up at the least. Bytes that wait
	// for it take no more than that part of the window.
	wakesInTrip = 4
	// mostWake is the most bytes that a reader waits for: more would save little. It does not wait for less
	// than leastWake, since the kernel hands over a pair of segments at once.
	mostWake  = 64 << 10
	leastWake = 4 << 10
	// arrivalTime is the time over which the rate of arrival is measured.
	arrivalTime = 100 * time.Millisecond

	// usualSegment is about the size of a segment, bytes.
	usualSegment = 1448
	// pairShare is the part of a round trip that two segments take on a sparse stream: several times the queue that
	// a session of low priority aims at. On faster streams, to acknowledge each segment would fill the way back of
	// many a line for little, so that time has bounds. A stream is no longer sparse at denseAgain times that rate.
	pairShare  = 0.2
	leastPair  = time.Millisecond
	mostPair   = 8 * time.Millisecond
	denseAgain = 2
	// singlesShare is the part of its reads that return one segment, half of the usual time or more after the one before,
	// if a stream's segments come one by one.
	singlesShare = 0.75
)

// wakes knows for how many bytes a reader on a far path may wait at once. To wake up costs as much as
// many bytes, and a paced stream delivers only two segments at a time. The zero wakes waits for one.
//
// It also knows whether single segments come far from each other. The peer acknowledges the first only with the
// second, and the sender takes that time for a queue. A pair is acknowledged at once.
type wakes struct {
	pause  time.Duration // longest time between two wake-ups
	pair   time.Duration // two segments take more of a sparse stream; 0 is unknown
	bytes  int           // that arrive in the pause
	sparse bool
	since  time.Time     // start of the present measurement
	count  int           // bytes since then
	reads  int           // that returned some of them
	apart  int           // how many of these were single segments that came at least half after the one before
	last   time.Time     // read
	half   time.Duration // of the mean time between two segments, by the last measurement
	lone   bool          // that had one read, as after a time without any
}

// pathIs sets the round trip time of the path.
func (w *wakes) pathIs(rtt time.Duration) {
	w.pause = rtt / wakesInTrip
	if rtt > 0 {
		w.pair = min(max(time.Duration(pairShare*float64(rtt)), leastPair), mostPair)
	}
}

// arrived takes how many bytes a read has returned.
func (w *wakes) arrived(bytes int, now time.Time) {
	if w.since.IsZero() { // what came before it is of no known time
		w.since, w.last = now, now
		return
	}
	if bytes > 0 {
		w.count += bytes
		w.reads++
	}
	if bytes <= usualSegment*3/2 && now.Sub(w.last) >= w.half {
		w.apart++
	}
	w.last = now
	took := now.Sub(w.since).Seconds()
	if took < arrivalTime.Seconds() {
		return
	}
	rate := float64(w.count) / took
	most := 2 * usualSegment / max(w.pair, 1).Seconds()
	if w.sparse {
		most *= denseAgain
	}
	slow := w.pair > 0 && rate < most
	lone := w.reads == 1
	if !lone || w.lone { // one read may be the first for long
		w.sparse = slow && float64(w.apart) >= singlesShare*float64(w.reads)
	}
	w.lone = lone
	w.bytes = min(mostWake, int(rate*w.pause.Seconds()))
	if w.bytes < leastWake || slow { // otherwise single segments could not be told
		w.bytes = 1
	}
	w.half = time.Duration(usualSegment / max(rate, 1) / 2 * float64(time.Second))
	w.since, w.count, w.reads, w.apart = now, 0, 0, 0
}
