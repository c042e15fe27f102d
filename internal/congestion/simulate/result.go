package simulate

import (
	"slices"
	"time"
)

// bins returns the first bin of a span of time, and the first after it.
func (r *Result) bins(from, to time.Duration) (int, int) {
	i := min(int(from/Bin), len(r.Line)-1)
	return i, max(i+1, min(int(to/Bin), len(r.Line)))
}

// between is how much a counter grew.
func (r *Result) between(counter []float64, from, to time.Duration) float64 {
	i, j := r.bins(from, to)
	if i == 0 {
		return counter[j-1]
	}
	return counter[j-1] - counter[i-1]
}

// Goodput of a flow, bit/s.
func (r *Result) Goodput(flow int, from, to time.Duration) float64 {
	i, j := r.bins(from, to)
	return r.between(r.Flows[flow].Delivered, from, to) / (float64(j-i) * Bin.Seconds())
}

// Carries is what the line could carry, bit/s.
func (r *Result) Carries(from, to time.Duration) float64 {
	sum := 0.0
	i, j := r.bins(from, to)
	for _, v := range r.Line[i:j] {
		sum += v
	}
	return sum / float64(j-i)
}

// Dropped is the share of a flow's packets that a queue, a policer or an AQM dropped, 0 to 1.
func (r *Result) Dropped(flow int, from, to time.Duration) float64 {
	sent := r.between(r.Flows[flow].Sent, from, to)
	if sent <= 0 {
		return 0
	}
	return r.between(r.Flows[flow].Dropped, from, to) / sent
}

// Delay that the queue added: the given part of it is less, as 0.5 for the median.
func (r *Result) Delay(part float64, from, to time.Duration) time.Duration {
	var all []float32
	i, j := r.bins(from, to)
	for _, bin := range r.Queue[i:min(j, len(r.Queue))] {
		all = append(all, bin...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return seconds(float64(all[min(len(all)-1, int(part*float64(len(all))))]))
}

// Since is when the flow first had the share of the line, from that time on, in a window of that
// length. It is -1 if never.
func (r *Result) Since(flow int, share float64, from, window time.Duration) time.Duration {
	for t := from; t+window <= r.Elapsed; t += Bin {
		if r.Goodput(flow, t, t+window) >= share*r.Carries(t, t+window) {
			return t + window - from
		}
	}
	return -1
}

// Longest is the longest time in which the flow's share of the line stayed below a bound, measured
// in windows of that length.
func (r *Result) Longest(flow int, share float64, from, to, window time.Duration) time.Duration {
	var longest, run time.Duration
	for t := from; t+window <= to; t += Bin {
		if r.Goodput(flow, t, t+window) < share*r.Carries(t, t+window) {
			run += Bin
			longest = max(longest, run+window-Bin)
		} else {
			run = 0
		}
	}
	return longest
}

// Jain is the index of fairness of some flows: 1 is equal, 1/n is one that has all.
func (r *Result) Jain(flows []int, from, to time.Duration) float64 {
	sum, squares := 0.0, 0.0
	for _, f := range flows {
		g := r.Goodput(f, from, to)
		sum += g
		squares += g * g
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(flows)) * squares)
}
