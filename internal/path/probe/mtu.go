package probe

import (
	"maps"
	"slices"
)

const (
	// mtuTries is the number of lost tries after which a size counts as too large.
	mtuTries = 3
	// mtuSplit is how many sizes between two bounds are tried at once.
	mtuSplit = 8
	// largest is the size of the largest IP packet.
	largest = 65535
)

// customary are common path MTUs: the minima of IPv4 and IPv6, a tunnel, PPPoE, Ethernet, jumbo
// frames, loopback.
var customary = []int{576, 1280, 1308, 1492, 1500, 9000, largest}

// mtuSearch finds the exact size of the largest packet that passes. Lost packets only slow it
// down.
type mtuSearch struct {
	passed map[int]bool
	tries  map[int]int // tries without an answer
	named  int         // smallest MTU that a router named, 0 if none did
	device int         // MTU of the sender's interface, if the interface refused a packet
}

func newMTUSearch() *mtuSearch {
	return &mtuSearch{passed: make(map[int]bool), tries: make(map[int]int)}
}

// bounds returns the largest size that passed, and the smallest larger size that did not, or 0.
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

// next returns the sizes to send next, in ascending order, or none when the search has ended.
// Sizes below least do not matter.
func (s *mtuSearch) next(least int) []int {
	low, high := s.bounds()
	if len(s.tries) == 0 && low == 0 {
		i, _ := slices.BinarySearch(customary, least)
		return customary[i:]
	}
	switch {
	case low == 0 && s.tries[high] >= mtuTries, high == 0: // nothing passes, or everything does
		return nil
	case high == low+1 && s.tries[high] >= mtuTries:
		return nil
	}
	// A size without an answer may have been lost. It is tried again while the search goes on
	// below the smallest such size.
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

// result returns what the search has found.
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
	// The router is silent, or it names a size that does not pass either.
	p.BlackHole = low > 0 && high > 0 && !p.Device && (s.named == 0 || s.named > low)
	return p
}
