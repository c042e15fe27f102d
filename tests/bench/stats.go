package main

import (
	"slices"
	"time"
)

// tcpShare is the part of a line rate that is left for TCP payload over Ethernet: 1448 of 1538
// bytes.
const tcpShare = 1448.0 / 1538.0

// goodputLimit is the most payload that TCP can carry over a line of this rate, in bit/s.
func goodputLimit(rate int64) float64 { return float64(rate) * tcpShare }

// secondsAt returns the time that bytes take at rate bit/s.
func secondsAt(bytes int64, rate float64) float64 { return float64(bytes) * 8 / rate }

// median returns the middle of xs, or the mean of the middle two. It is 0 if xs is empty.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(xs))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// point is how many bytes had arrived at a time after the start.
type point struct {
	at    time.Duration
	bytes int64
}

// projected estimates how long all of total would have taken at the rate of the second half of the
// run, so that the start counts only once. It returns false if nothing moved in that half.
func projected(points []point, total int64) (time.Duration, bool) {
	if len(points) < 2 {
		return 0, false
	}
	last := points[len(points)-1]
	mid, _ := slices.BinarySearchFunc(points, last.at/2, func(p point, at time.Duration) int { return int(p.at - at) })
	span, moved := last.at-points[mid].at, last.bytes-points[mid].bytes
	if span <= 0 || moved <= 0 {
		return 0, false
	}
	rest := float64(max(0, total-last.bytes)) / float64(moved) * float64(span)
	return last.at + time.Duration(rest), true
}
