// Package plan reckons what a path can carry and how long a transfer takes, from a few figures and without a packet sent.
package plan

import (
	"math"
	"time"
)

const (
	// frameBytes are what Ethernet adds to a packet: preamble 8, header 14, checksum 4, gap 12.
	frameBytes = 38
	// headerBytes are IPv4's 20, TCP's 20, and the 12 of its timestamps, which Linux sends by default.
	headerBytes = 20 + 20 + 12
)

// MinMTU and MaxMTU bound the MTU of IPv4, RFC 791.
const (
	MinMTU = 68
	MaxMTU = 65535
)

// MaxLoss is where the formulas end: beyond it TCP waits for timers, which they leave out.
const MaxLoss = 0.1

// Path is the way from a sender to a receiver.
type Path struct {
	Rate float64       // of the bottleneck, on the wire, in bit/s; > 0
	RTT  time.Duration // the least; > 0
	Loss float64       // share of segments lost at random, 0 to MaxLoss
	MTU  int           // largest IP packet in bytes, MinMTU to MaxMTU
}

// BDP is the path's bandwidth-delay product in bytes.
func (p Path) BDP() float64 { return p.Rate * p.RTT.Seconds() / 8 }

// Ample is the payload in bytes that each of so many streams should be able to have in flight: twice its part of the BDP, which
// internal/transport asks for, too. Once would fill the line; but BBR keeps up to two BDP in flight (cwnd_gain in net/ipv4/tcp_bbr.c), and
// as much again arrives in the round trip in which a lost segment is sent anew.
func (p Path) Ample(streams int) float64 { return 2 * p.BDP() / float64(streams) }

// Segment is the payload of a full TCP segment in bytes.
func (p Path) Segment() int { return p.MTU - headerBytes }

// Frame is what a full TCP segment takes of the wire in bytes.
func (p Path) Frame() int { return p.MTU + frameBytes }

// Goodput is the most that TCP carries, in bit/s: what is left of the line by headers, and by what must be sent twice.
func (p Path) Goodput() float64 {
	return p.Rate * float64(p.Segment()) / float64(p.Frame()) * (1 - p.Loss)
}

// Ceiling is the most that a window of so many bytes lets a stream carry, in bit/s, however fast the line is.
func (p Path) Ceiling(window int64) float64 { return float64(window) * 8 / p.RTT.Seconds() }

// Control is a congestion control.
type Control int

// What a sender may use.
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

// LossLimit is what random loss leaves one stream in bit/s, on a line without end: +Inf if there is no loss, and for BBR, to which loss
// of up to MaxLoss does not mean congestion.
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

// renoWindow is the mean window in segments at a loss: C / √loss with C = √(3/4) ≈ 0.87, for periodic loss and an acknowledgment for every
// second segment. M. Mathis, J. Semke, J. Mahdavi, T. Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, Computer
// Communication Review 27(3), 1997.
func renoWindow(loss float64) float64 { return math.Sqrt(0.75 / loss) }

// cubicWindow is the mean window in segments at a loss, RFC 9438: the larger of the cubic function's, section 5.1, and of the Reno-friendly
// region's, section 4.3. The latter is Reno's with an acknowledgment for each segment, since CUBIC counts segments acknowledged, not
// acknowledgments.
func cubicWindow(loss float64, rtt time.Duration) float64 {
	const c, beta = 0.4, 0.7
	cubic := math.Pow(c*(3+beta)/(4*(1-beta)), 0.25) * math.Pow(rtt.Seconds()/loss, 0.75)
	return max(cubic, math.Sqrt(1.5/loss))
}

// DelayedAck is how long Linux withholds an acknowledgment at least, hoping for data to ride on (TCP_DELACK_MIN in net/tcp.h). It is the
// price of a message in two writes: Nagle's algorithm holds the second back until the first is acknowledged.
const DelayedAck = 40 * time.Millisecond

// Requests is how many a second there can be if each waits for its reply and then for stall, whatever the line's rate.
func (p Path) Requests(stall time.Duration) float64 { return 1 / (p.RTT + stall).Seconds() }

const (
	// FibrePerKm is how long light takes through a kilometre of fibre, whose refractive index is 1.468.
	FibrePerKm = 4900 * time.Nanosecond
	// RouteFactor is how much longer a route takes than a straight fibre: cables bend, and routers add their part.
	// Published guide figures lie at 1.3 to 1.5.
	RouteFactor = 1.5
)

// Guide is a published guide figure.
type Guide struct {
	Km  int
	RTT time.Duration
}

// Guides are the RTTs that planners are told to expect of good routes.
func Guides() []Guide {
	return []Guide{{1000, 15 * time.Millisecond}, {4000, 50 * time.Millisecond}, {8000, 120 * time.Millisecond}}
}

// RTTOver estimates the round trip between places so many kilometres apart.
func RTTOver(km float64) time.Duration {
	return time.Duration(2 * km * RouteFactor * float64(FibrePerKm))
}
