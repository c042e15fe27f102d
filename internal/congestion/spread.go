package congestion

import (
	"math"
	"slices"
)

// mostOver bounds what one stream may send, as a multiple of its part of the rate: with more, the loss of a single
// packet would cost too much of it.
const mostOver = 2

// Spread returns the rate that bounds each stream while all of them together send at rate. A stream whose congestion
// window allows less than its part leaves the rest of it to the others: a part of the line would stand idle for
// seconds after each lost packet otherwise. allow is what the windows of the streams allow, +Inf where that is
// unknown; Spread sorts it. Rates are in bytes/s. This is max-min fairness.
func Spread(rate float64, allow []float64) float64 {
	if math.IsInf(rate, 1) {
		return rate
	}
	part, bound, left := rate/float64(max(1, len(allow))), 0.0, rate
	slices.Sort(allow)
	for i, a := range allow {
		bound = min(a, left/float64(len(allow)-i)) // of it, and of those whose windows allow more
		left -= bound
	}
	return min(max(part, bound), mostOver*part)
}

// Holding returns how many streams hold margin times bdp bytes in flight, the first of those whose congestion windows
// are given, in bytes. If all of them do not, it is how many like them would. Of each window counts what Spread lets it
// send.
func Holding(bdp, margin float64, windows []int) int {
	usable := 0.0
	for n := range len(windows) {
		most := mostOver * bdp / float64(n+1)
		usable = 0
		for _, w := range windows[:n+1] {
			usable += min(float64(w), most)
		}
		if usable >= margin*bdp {
			return n + 1
		}
	}
	if usable <= 0 {
		return len(windows)
	}
	return int(margin*bdp/usable*float64(len(windows))) + 1
}
