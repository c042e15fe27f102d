package lab

import (
	"net/netip"
	"slices"
	"time"
)

// Others on the line have addresses of their own, so that Counters tell their packets from those
// of commands.
var otherAddrs = [2]netip.Addr{netip.MustParseAddr("10.77.0.4"), netip.MustParseAddr("10.77.0.5")}

// isOther reports whether pkt belongs to cross traffic or to a ping.
func isOther(pkt []byte) bool {
	ip := pkt[vnetLen:]
	if len(ip) < 20 || ip[0]>>4 != 4 {
		return false
	}
	src := [4]byte(ip[12:16])
	return src == otherAddrs[0].As4() || src == otherAddrs[1].As4()
}

// Cross describes others on the line: TCP flows that send without end, or UDP at a constant rate.
// The kernel's own sockets carry it.
type Cross struct {
	Congestion string        // of the TCP flows: cubic, bbr, …; "": UDP
	Flows      int           // how many TCP flows
	Rate       int64         // of UDP, bit/s on the wire
	Direction  Direction     // RightToLeft, or else LeftToRight
	From       time.Duration // when it begins, after StartCross
	To         time.Duration // when it ends; 0: with Stop
}

// CrossReport says what cross traffic got.
type CrossReport struct {
	Cross
	Ran       time.Duration // from its beginning to its end
	Bytes     int64         // payload received
	PerFlow   []int64       // the same for each flow
	PerSecond []int64       // the same for each second since StartCross
	Sent      int64         // UDP packets, up to the last one received
	Lost      int64         // those of Sent that were not received
	Err       error         // what ended a flow early, if anything
}

// Goodput returns the payload received per second in bit/s.
func (r *CrossReport) Goodput() float64 {
	if r.Ran <= 0 {
		return 0
	}
	return float64(r.Bytes) * 8 / r.Ran.Seconds()
}

// PingReport has the round trips of a ping.
type PingReport struct {
	Trips []Trip // in the order of the answers
	Lost  int    // pings without an answer
}

// Trip is one round trip.
type Trip struct {
	At    time.Duration // when it began, after StartPing
	Added time.Duration // how much longer it took than on the idle link; jitter can make it negative
}

// Added returns the delay that a share q of the round trips did not exceed, from 0 to 1.
func (r *PingReport) Added(q float64) time.Duration {
	if len(r.Trips) == 0 {
		return 0
	}
	added := make([]time.Duration, len(r.Trips))
	for i, t := range r.Trips {
		added[i] = t.Added
	}
	slices.Sort(added)
	return added[min(len(added)-1, int(q*float64(len(added))))]
}

const (
	pingEvery = 20 * time.Millisecond
	pingFrame = minFrame + frameOverhead // a ping's bytes on the wire
	pingShare = 50                       // on slow lines, pings take at most one part in so many
)

// idleTrip returns how long a ping takes on the idle link.
func idleTrip(there, back Link) time.Duration {
	return there.RTT/2 + back.RTT/2 + wireTime(pingFrame, there.Rate) + wireTime(pingFrame, back.Rate)
}

// pingGap returns the time between two pings.
func pingGap(there, back Link) time.Duration {
	return max(pingEvery, pingShare*wireTime(pingFrame, min(there.Rate, back.Rate)))
}

// wireTime returns how long a line of the given rate takes to send n bytes.
func wireTime(n int, rate int64) time.Duration {
	return time.Duration(int64(n) * 8e9 / rate)
}
