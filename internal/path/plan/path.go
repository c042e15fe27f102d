// Package plan computes what a path can carry and how long a transfer takes. It needs only a few
// numbers and sends no packets.
package plan

import (
	"math"
	"time"
)

const (
	// frameBytes is what Ethernet adds to a packet: preamble 8, header 14, checksum 4, gap 12.
	frameBytes = 38
	// headerBytes are IPv4's 20, TCP's 20, and the 12 of the timestamps that Linux sends by
	// default.
	headerBytes = 20 + 20 + 12
)

// MinMTU and MaxMTU limit the MTU of IPv4 (RFC 791).
const (
	MinMTU = 68
	MaxMTU = 65535
)

// MaxLoss is the highest loss for which the formulas hold. Beyond it TCP waits for timers, which
// they ignore.
const MaxLoss = 0.1

// Path describes the network path from a sender to a receiver.
type Path struct {
	Rate float64       // of the bottleneck, on the wire, in bit/s; > 0
	RTT  time.Duration // least round-trip time; > 0
	Loss float64       // fraction of segments lost at random, 0 to MaxLoss
	MTU  int           // largest IP packet in bytes, MinMTU to MaxMTU
}

// BDP is the path's bandwidth-delay product in bytes.
func (p Path) BDP() float64 { return p.Rate * p.RTT.Seconds() / 8 }

// Ample is the payload in bytes that each of the streams should be able to have in flight: twice
// its part of the BDP, which is also what internal/transport asks for. One part would fill the
// line. But BBR keeps up to two BDP in flight (cwnd_gain in net/ipv4/tcp_bbr.c), and another part
// arrives during the round trip in which a lost segment is sent again.
func (p Path) Ample(streams int) float64 { return 2 * p.BDP() / float64(streams) }

// Segment is the payload of a full TCP segment in bytes.
func (p Path) Segment() int { return p.MTU - headerBytes }

// Frame is the size of a full TCP segment on the wire in bytes.
func (p Path) Frame() int { return p.MTU + frameBytes }

// Goodput is the most that TCP carries, in bit/s: the line rate less headers and retransmissions.
func (p Path) Goodput() float64 {
	return p.Rate * float64(p.Segment()) / float64(p.Frame()) * (1 - p.Loss)
}

// Wire is what the line carries for a goodput in bit/s: headers and retransmissions included.
func (p Path) Wire(goodput float64) float64 { return goodput / p.Goodput() * p.Rate }

// Ceiling is the most that a window of the given bytes lets a stream carry, in bit/s, however
// fast the line is.
func (p Path) Ceiling(window int64) float64 { return float64(window) * 8 / p.RTT.Seconds() }

// Control is a congestion control algorithm.
type Control int

// The congestion controls that a sender may use.
const (
	Cubic Control = iota
	Reno
	BBR
)

func (c Control) String() string {
	switch c {
	case Reno:
		return "Reno"
	case BBR:
		return "BBR"
	case Cubic:
	}
	return "CUBIC"
}

// LossLimit is the most that one stream carries with random loss, in bit/s, on a line of infinite
// rate. It is +Inf without loss, and for BBR, which does not treat loss of up to MaxLoss as
// congestion.
func (p Path) LossLimit(c Control) float64 {
	if p.Loss == 0 || c == BBR {
		return math.Inf(1)
	}
	window := renoWindow(p.Loss)
	if c == Cubic {
		window = cubicWindow(p.Loss, p.RTT)
	}
	return window * float64(p.Segment()) * 8 / p.RTT.Seconds()
}

// renoWindow is the mean window in segments with the given loss: C / √loss with C = √(3/4) ≈
// 0.87, for periodic loss and an acknowledgment for every second segment. Source: M. Mathis, J.
// Semke, J. Mahdavi, T. Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm,
// Computer Communication Review 27(3), 1997.
func renoWindow(loss float64) float64 { return math.Sqrt(0.75 / loss) }

// cubicWindow is the mean window in segments with the given loss (RFC 9438). It is the larger of
// two windows: that of the cubic function (section 5.1) and that of the Reno-friendly region
// (section 4.3). The latter is Reno's window with an acknowledgment for each segment, because
// CUBIC counts acknowledged segments, not acknowledgments.
func cubicWindow(loss float64, rtt time.Duration) float64 {
	const c, beta = 0.4, 0.7
	cubic := math.Pow(c*(3+beta)/(4*(1-beta)), 0.25) * math.Pow(rtt.Seconds()/loss, 0.75)
	return max(cubic, math.Sqrt(1.5/loss))
}

// DelayedAck is the least time for which Linux delays an acknowledgment in the hope of data to
// send with it (TCP_DELACK_MIN in net/tcp.h). Nagle's algorithm holds the second of two writes back
// until the first is acknowledged.
const DelayedAck = 40 * time.Millisecond

// Stall is what it adds to a request that sides of the two ends write in two pieces: for each, a
// round trip and a delayed acknowledgment.
func (p Path) Stall(sides int) time.Duration { return time.Duration(sides) * (p.RTT + DelayedAck) }

// Requests is the number of requests per second if each waits for its reply and then for stall.
// The line rate does not matter.
func (p Path) Requests(stall time.Duration) float64 { return 1 / (p.RTT + stall).Seconds() }

const (
	// FibrePerKm is how long light takes through a kilometre of fibre with a refractive index of
	// 1.468.
	FibrePerKm = 4900 * time.Nanosecond
	// RouteFactor is the ratio of a route's delay to that of a straight fibre: cables bend, and
	// routers add delay. Published planning values are 1.3 to 1.5.
	RouteFactor = 1.5
)

// Guide is a published planning value.
type Guide struct {
	Km  int
	RTT time.Duration
}

// Guides returns the RTTs that planners may expect of good routes.
func Guides() []Guide {
	return []Guide{{1000, 15 * time.Millisecond}, {4000, 50 * time.Millisecond}, {8000, 120 * time.Millisecond}}
}

// RTTOver estimates the round-trip time between places that are km kilometres apart.
func RTTOver(km float64) time.Duration {
	return time.Duration(2 * km * RouteFactor * float64(FibrePerKm))
}
