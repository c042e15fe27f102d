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
)

// wakes knows for how many bytes a reader on a far path may wait at once. To wake up costs as much as
// many bytes, and a paced stream delivers only two segments at a time. The zero wakes waits for one.
type wakes struct {
	pause time.Duration // longest time between two wake-ups
	bytes int           // that arrive in it
	since time.Time     // start of the present measurement
	count int           // bytes since then
}

// arrived takes how many bytes a read has returned.
func (w *wakes) arrived(bytes int, now time.Time) {
	w.count += bytes
	took := now.Sub(w.since)
	if took < arrivalTime {
		return
	}
	w.bytes = min(mostWake, int(float64(w.count)*w.pause.Seconds()/took.Seconds()))
	if w.bytes < leastWake {
		w.bytes = 1
	}
	w.since, w.count = now, 0
}
