package congestion

import (
	"math"
	"slices"
	"time"
)

// model is what is known of the path.
type model struct {
	past    []Sample        // at least one rateWindow of them, oldest first
	rates   []rated         // steady rates of late, falling, for their maximum
	changes []time.Duration // of the RTT, from one sample to the next, the last ones
	paused  bool            // nothing was measured since a pause

	base      time.Duration // least smoothed RTT: without a queue
	queue     time.Duration // delay in queues now
	standing  time.Duration // the least of it in the last standingTime: what does not pass by itself
	usual     time.Duration // mean queue of the last second, or two round trips
	mss       int           // bytes
	acked     int64         // delivered, at the last sample
	noise     time.Duration // by how much the RTT changes from one sample to the next
	delivered float64       // rate over the last rateWindow, bytes/s
	steady    float64       // rate over the last steadyWindow, bytes/s
	lost      float64       // share of what was sent then that was lost, 0 to 1
	losses    float64       // share lost over the last steadyWindow
	windowed  float64       // Sample.Windowed, the mean over about a steadyWindow
}

// rated is a rate that was measured at a moment.
type rated struct {
	at   time.Duration
	rate float64
}

const (
	// leastWindow is the shortest time over which a rate is measured. Acknowledgements come in
	// bursts, where a processor sleeps or a Wi-Fi card gathers frames.
	leastWindow = 50 * time.Millisecond
	// noiseMemory is the number of samples that tell the noise of the RTT.
	noiseMemory = 64
	// windowPackets is the least number of packets over which a rate is measured.
	windowPackets = 12
	// steadyTrips and leastSteady are the time over which a rate is measured that must be exact: it
	// is blind to bursts of acknowledgements.
	steadyTrips = 4
	leastSteady = 250 * time.Millisecond
	// steadyPackets is the least number of packets for that, unless they take mostSteady.
	steadyPackets = 32
	mostSteady    = 8 * time.Second
	// memory is how long the largest delivered rate is remembered, in round trips.
	memory = 10
	// leastMemory is the least such time.
	leastMemory = time.Second
	// standingTime is the shortest time over which a queue must stay to count: what passes by
	// itself is a burst, or a processor that slept (the thought is CoDel's, RFC 8289).
	standingTime = 100 * time.Millisecond
)

// update takes a sample.
func (m *model) update(s Sample) {
	news := s.Delivered > m.acked || m.base == 0
	m.mss, m.acked = s.MSS, s.Delivered
	if s.RTT > 0 && news { // without news it is that of long ago
		switch {
		case m.base == 0:
			m.base = s.RTT
		case s.RTT < m.base: // one sample may be wrong
			m.base -= (m.base - s.RTT) / 4
		}
		m.queue = max(0, s.RTT-m.base)
		if len(m.past) > 0 { // as long ago as decisions mostly are
			if before := m.before(s.At - Every*9/10); before.RTT > 0 {
				m.changes = append(m.changes, (s.RTT - before.RTT).Abs())
				m.noise = m.change()
			}
		}
	}
	if n := len(m.past); n > 0 {
		recent := (s.At - m.past[n-1].At).Seconds() / m.steadyWindow().Seconds()
		m.windowed += (s.Windowed - m.windowed) * min(1, recent)
		part := (s.At - m.past[n-1].At).Seconds() / max(time.Second, 2*s.RTT).Seconds()
		m.usual += time.Duration(float64(m.queue-m.usual) * min(1, part))
	}
	m.past = append(m.past, s)
	m.standing = min(m.queue, m.stood(s.At, max(s.RTT, standingTime)))
	if m.paused && s.At-m.past[0].At < leastWindow {
		m.lost, m.losses = 0, 0
		return // the rates are those before the pause
	}
	m.paused = false
	from := m.before(s.At - m.rateWindow(s))
	m.delivered, m.lost = rateSince(from, s), lossSince(from, s)
	from = m.before(s.At - m.steadyWindow())
	m.steady, m.losses = rateSince(from, s), lossSince(from, s)
	// A count that begins in a pause shows more than the line carries: what waited comes at once.
	m.steady = min(m.steady, rateSince(m.before(s.At-m.steadyWindow()-leastWindow), s))
	if s.At-m.past[0].At >= m.steadyWindow()*3/4 { // few packets show no rate
		m.remember(s.At)
	}
	m.forget(s.At - 2*max(m.rateWindow(s), m.steadyWindow()))
}

// earlier is the delivered rate a round trip before a sample, bytes/s; 0 at the very start.
func (m *model) earlier(s Sample) float64 {
	to := m.before(s.At - s.RTT)
	from := m.before(to.At - m.rateWindow(s))
	if from.Delivered == 0 {
		return 0
	}
	return rateSince(from, to)
}

// stood is the least delay in queues for some time until a moment.
func (m *model) stood(until, since time.Duration) time.Duration {
	least := time.Duration(math.MaxInt64)
	for i := len(m.past) - 1; i >= 0 && m.past[i].At > until-since; i-- {
		if rtt := m.past[i].RTT; rtt > 0 && m.past[i].At <= until {
			least = min(least, max(0, rtt-m.base))
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// longest is the largest delay in queues since a moment.
func (m *model) longest(since time.Duration) (most time.Duration) {
	for i := len(m.past) - 1; i >= 0 && m.past[i].At >= since; i-- {
		most = max(most, m.past[i].RTT-m.base)
	}
	return most
}

// overdue is what was sent longer ago than packets take without a queue, and is not acknowledged yet, bytes. A
// host that was late with its acknowledgements sends them all at once, so that nothing is overdue when the
// RTT shows them.
func (m *model) overdue(s Sample) float64 {
	at := s.At - m.base
	from, to := m.past[0], m.past[0]
	for _, x := range m.past {
		if to = x; to.At > at {
			break
		}
		from = x
	}
	sent := from.sent()
	if to.At > from.At && at > from.At {
		sent += (to.sent() - from.sent()) * (at - from.At).Seconds() / (to.At - from.At).Seconds()
	}
	return max(0, sent-float64(s.Delivered))
}

// made is the longest queue that what was sent in some time until a moment makes on a line of a rate, bytes/s.
func (m *model) made(until, since time.Duration, line float64) (most time.Duration) {
	queue := time.Duration(0)
	for i := 1; i < len(m.past) && m.past[i].At <= until; i++ {
		if from, to := m.past[i-1], m.past[i]; from.At >= until-since {
			queue = max(0, queue+seconds((to.sent()-from.sent())/line)-(to.At-from.At))
			most = max(most, queue)
		}
	}
	return most
}

// sent is what was sent so far and is not lost, bytes.
func (s *Sample) sent() float64 { return float64(s.Delivered + s.InFlight) }

// mean is a sample with the mean RTT of some time until a moment, and what was in flight in the mean by the
// rate delivered then (Little's law): both are exact where packets come in bursts.
func (m *model) mean(until, since time.Duration) Sample {
	end := len(m.past) - 1
	for end > 1 && m.past[end].At > until {
		end--
	}
	s := m.past[end]
	from, sum, n := s, time.Duration(0), 0
	for i := end; i >= 0 && (m.past[i].At >= until-since || n < 2); i-- {
		from = m.past[i]
		sum += from.RTT
		n++
	}
	if n < 2 {
		return s
	}
	s.RTT = sum / time.Duration(n)
	s.InFlight = int64(rateSince(from, s) * s.RTT.Seconds())
	return s
}

// newest is the delivered rate of the last half of a rateWindow, where that is long enough. Right after a pause
// it is the one before.
func (m *model) newest(s Sample) float64 {
	if m.paused {
		return m.delivered
	}
	return rateSince(m.before(s.At-max(m.rateWindow(s)/2, leastWindow)), s)
}

// surely is a delivered rate of late that no burst after a pause has made.
func (m *model) surely(s Sample) float64 {
	window := max(m.rateWindow(s)/2, leastWindow)
	return min(m.newest(s), rateSince(m.before(s.At-window-leastWindow), s))
}

// next is the delivered rate in the time until the next decision, if it grows on as it did in the
// last round trip: at most twofold in one.
func (m *model) next(s Sample, dt time.Duration) float64 {
	window := max(m.rateWindow(s)/2, leastWindow)
	from := m.before(s.At - window)
	rate := rateSince(from, s)
	growth := 2.0
	to := m.before(s.At - s.RTT)
	if before := rateSince(m.before(to.At-window), to); before > 0 {
		growth = min(growth, max(1, rate/before))
	}
	ahead := min((window+dt).Seconds()/2/s.RTT.Seconds(), mostAhead*min(1, s.RTT.Seconds()/leastWindow.Seconds()))
	return rate * math.Pow(growth, ahead)
}

// mostAhead bounds how far a rate is foretold, in round trips.
const mostAhead = 0.75

// change is by how much the RTT changes mostly. It is the median, because a queue changes the RTT
// much only now and then.
func (m *model) change() time.Duration {
	m.changes = m.changes[max(0, len(m.changes)-noiseMemory):]
	sorted := slices.Clone(m.changes)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// jitter is by how much the RTT may exceed its base without a queue.
func (m *model) jitter() time.Duration { return min(3*m.noise, m.base/4) }

// rateSince is the delivered rate between two samples, bytes/s.
func rateSince(from, to Sample) float64 {
	if to.At <= from.At {
		return 0
	}
	return float64(to.Delivered-from.Delivered) / (to.At - from.At).Seconds()
}

// lossSince is the share of what was sent between two samples that was sent again, 0 to 1.
func lossSince(from, to Sample) float64 {
	lost := float64(to.Lost - from.Lost)
	if lost <= 0 {
		return 0
	}
	return lost / (lost + float64(to.Delivered-from.Delivered))
}

// steadyWindow is the time over which a rate is measured that must be exact.
func (m *model) steadyWindow() time.Duration {
	w := max(steadyTrips*m.base, leastSteady)
	if m.steady > 0 {
		w = max(w, min(mostSteady, seconds(steadyPackets*float64(m.mss)/m.steady)))
	}
	return w
}

// pause forgets the rates and the queue that were measured: a pause is no slow line, and what waited
// before it is gone.
func (m *model) pause() {
	m.past, m.rates, m.queue, m.standing, m.paused = nil, nil, 0, 0, m.base > 0
}

// rateWindow is the time over which the delivered rate is measured now.
func (m *model) rateWindow(s Sample) time.Duration {
	w := max(s.RTT, leastWindow)
	if m.delivered > 0 {
		w = max(w, min(4*time.Second, seconds(windowPackets*float64(s.MSS)/m.delivered)))
	}
	return w
}

// before returns the last sample that is not younger than at, or the oldest.
func (m *model) before(at time.Duration) Sample {
	i := len(m.past) - 1
	for i > 0 && m.past[i].At > at {
		i--
	}
	return m.past[i]
}

// bursts is what was lost since a moment, bytes, the largest first: what was lost within some time counts as one.
func (m *model) bursts(since, within time.Duration) (all []int64) {
	until := time.Duration(0)
	for i := 1; i < len(m.past); i++ {
		s, lost := m.past[i], m.past[i].Lost-m.past[i-1].Lost
		if s.At <= since || lost <= 0 {
			continue
		}
		if s.At >= until {
			until = s.At + within
			all = append(all, 0)
		}
		all[len(all)-1] += lost
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// forget drops samples that are older than at, except for the youngest of these.
func (m *model) forget(at time.Duration) {
	n := 0
	for n+1 < len(m.past) && m.past[n+1].At <= at {
		n++
	}
	m.past = m.past[n:]
}

// remember keeps the largest rates of the last round trips.
func (m *model) remember(now time.Duration) {
	for len(m.rates) > 0 && m.rates[len(m.rates)-1].rate <= m.steady {
		m.rates = m.rates[:len(m.rates)-1]
	}
	m.rates = append(m.rates, rated{now, m.steady})
	for m.rates[0].at < now-max(memory*m.base, leastMemory) {
		m.rates = m.rates[1:]
	}
}

// most is the largest delivered rate of late, bytes/s.
func (m *model) most() float64 {
	if len(m.rates) == 0 {
		return 0
	}
	return m.rates[0].rate
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, math.MaxInt64/2e9) * float64(time.Second))
}
