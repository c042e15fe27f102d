package probe

import (
	"maps"
	"slices"
)

const (
	// mtuTries is how often a size goes unanswered until it counts as too large.
	mtuTries = 3
	// mtuSplit is how many sizes between two are tried at once.
	mtuSplit = 8
	// largest is the largest IP packet.
	largest = 65535
)

// customary are sizes that paths have: the least of IPv4 and of IPv6, a tunnel's, PPPoE's, Ethernet's, jumbo frames', loopback's.
var customary = []int{576, 1280, 1308, 1492, 1500, 9000, largest}

// mtuSearch finds the largest packet that passes, exactly, from what became of those sent. Loss only costs it time.
type mtuSearch struct {
	passed map[int]bool
	tries  map[int]int // without an answer
	named  int         // least MTU that a router named, 0 if none did
	device int         // MTU of the sender's interface, if that refused a packet
}

func newMTUSearch() *mtuSearch {
	return &mtuSearch{passed: make(map[int]bool), tries: make(map[int]int)}
}

// low is the largest size that passed, high the least above it that did not, or 0.
func (s *mtuSearch) bounds() (low, high int) {
	for n := range s.passed {
		low = max(low, n)
	}
	for n := range s.tries {
		if n > low && (high == 0 || n < high) {
			high = n
		}
	}
	return low, high
}

// next returns the sizes to send, ascending, none when all is known. least is the smallest of interest.
func (s *mtuSearch) next(least int) []int {
	low, high := s.bounds()
	if len(s.tries) == 0 && low == 0 {
		i, _ := slices.BinarySearch(customary, least)
		return customary[i:]
	}
	switch {
	case low == 0 && s.tries[high] >= mtuTries, high == 0: // nothing passes, or everything
		return nil
	case high == low+1 && s.tries[high] >= mtuTries:
		return nil
	}
	// What went unanswered may have been lost: it is tried again, while the search goes on below the least of it.
	want := map[int]bool{}
	for _, n := range slices.Sorted(maps.Keys(s.tries)) {
		if n <= low {
			continue
		}
		if s.tries[n] >= mtuTries || len(want) == mtuSplit {
			break
		}
		want[n] = true
	}
	if low > 0 {
		for _, n := range []int{s.named, s.named + 1, s.device, s.device + 1} {
			if n > low && n < high {
				want[n] = true
			}
		}
		for i := range mtuSplit {
			if n := low + (high-low)*(i+1)/(mtuSplit+1); n > low && n < high {
				want[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(want))
}

// result is what the search has found.
func (s *mtuSearch) result(d Direction) PathMTU {
	low, high := s.bounds()
	p := PathMTU{Direction: d, Measured: low > 0, MTU: low, Named: s.named}
	for _, n := range slices.Sorted(maps.Keys(s.passed)) {
		if n == low || slices.Contains(customary, n) {
			p.Passed = append(p.Passed, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.tries)) {
		if n > low && (n == high || slices.Contains(customary, n)) {
			p.Failed = append(p.Failed, n)
		}
	}
	p.Device = low > 0 && s.device == low
	// A router that is silent, or one that names a size that does not pass either.
	p.BlackHole = low > 0 && high > 0 && !p.Device && (s.named == 0 || s.named > low)
	return p
}
