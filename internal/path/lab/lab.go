// Package lab is a WAN in a box: two hosts, each a network namespace with one TUN device, joined
// by an emulated link.
//
// The link is a queue in front of a line of a given rate, followed by half the round-trip time,
// once per direction. The queue drops what finds no room, or earlier by CoDel. A policer may stand
// before it. The link can lose, reorder, delay, duplicate, damage and forge segments. It can block ports, or change them like a NAT that has lost its table. Its middle can
// have a smaller MTU than its ends. Time on the line counts Ethernet as it is on the wire: an IP
// packet and 38 bytes of preamble, header, check sequence and gap. So 1448 bytes of TCP payload
// take 1538 bytes.
//
// A lab needs Linux and the right to make network namespaces: root, or a user namespace (see
// [Elevate]). Nothing of it outlives the process that started it, however that process ends.
package lab

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrUnsupported matches the errors of Start and Elevate if this machine or user can't have a
// lab. The error's text says what is missing.
var ErrUnsupported = errors.New("the lab is not available here")

var (
	// ErrName matches the errors of ListenControl and Dial about a name that no lab can have.
	ErrName = errors.New("letters, digits, '.', '_' and '-' are allowed, up to 32")
	// ErrNoLab matches the error of Dial if there is no lab of that name.
	ErrNoLab = errors.New("there is no lab")
)

const (
	frameOverhead = 38   // Ethernet: preamble 8, header 14, check sequence 4, gap 12
	minFrame      = 46   // IP packets are padded to this size on Ethernet
	minMTU        = 576  // of IPv4 (RFC 791)
	minMTU6       = 1280 // of IPv6 (RFC 8200 section 5): with less, the hosts have IPv4 only
	maxMTU        = 65535
	minQueue      = 32 // packets of full size that a queue of unstated size holds at least
	maxQueueBytes = 4 << 30
)

// Link describes both directions of the emulated link. A zero field means the default in its
// comment.
type Link struct {
	Rate        int64         // bit/s on the wire; no default
	RateBack    int64         // the same from right to left; 0: Rate
	RTT         time.Duration // round-trip time of the empty link
	Jitter      time.Duration // how far the round-trip time strays from RTT each way, at most RTT
	Loss        float64       // probability that a segment is lost on the line, 0 to 1
	Reorder     float64       // probability that later segments overtake one, 0 to 1
	Corrupt     float64       // bit error rate, 0 to 1; checksums show the damage
	Buffer      int64         // bytes on the wire that wait in front of the line; 0: BufferBDP
	BufferBDP   float64       // the same in units of Rate × RTT, at least 32 full packets; 0: 1
	MTU         int           // largest IP packet of the hosts' devices in bytes; 0: 1500
	PMTU        int           // largest IP packet that passes the middle of the path; 0: MTU
	Duplicate   float64       // probability that a segment arrives twice, 0 to 1
	Forge       float64       // probability of a flipped payload bit with a right checksum
	Blocked     []uint16      // TCP ports that are blocked in both directions
	Rebound     []uint16      // TCP ports that the other side now sees as other ports
	Unscaled    bool          // remove the window scale option from SYNs
	NoTCP       bool          // drop all TCP
	NoUDP       bool          // drop all UDP
	PoliceUDP   int64         // bit/s on the wire above which UDP is dropped; 0: no limit
	Police      int64         // bit/s on the wire above which packets are dropped before the queue; 0: no limit
	PoliceBurst int64         // bytes on the wire that may come at once in spite of Police; 0: one packet
	CoDel       bool          // the queue drops early, as RFC 8289 says
	BlackHole   bool          // packets larger than PMTU vanish without ICMP
	Seed        uint64        // same seed and same packets: same random decisions
}

// MaxLegs is the largest number of legs that a lab can have.
const MaxLegs = 9

// Leg is a link of a chain, and the windows of the hosts at its ends. Zero windows are those of
// the kernel.
type Leg struct {
	Link     Link
	InitCwnd int   // segments that a host may send on a new connection before an answer
	InitRwnd int   // segments that a host offers to take on a new connection
	Window   int64 // payload bytes in flight on a connection from left to right, at most; about
}

// Direction selects one or both directions of the link.
type Direction int

// The directions to which a Change can apply.
const (
	Both Direction = iota
	LeftToRight
	RightToLeft
)

// Change is what Lab.Set changes on a live link. Fields that are nil stay as they are. Packets
// already on the line arrive as planned.
type Change struct {
	Direction   Direction
	Rate        *int64
	RTT         *time.Duration // each changed direction gets half of it as its delay
	Jitter      *time.Duration // each changed direction gets half of it
	Loss        *float64
	Reorder     *float64
	Corrupt     *float64
	Buffer      *int64
	BufferBDP   *float64
	PMTU        *int
	Duplicate   *float64
	Forge       *float64
	Blocked     *[]uint16
	Rebound     *[]uint16
	Unscaled    *bool
	NoTCP       *bool
	NoUDP       *bool
	PoliceUDP   *int64
	Police      *int64
	PoliceBurst *int64
	CoDel       *bool
	BlackHole   *bool
	Down        time.Duration // drop everything that enters the link for this long; 0: no outage
}

// Counters count what one direction did since the lab started. A segment is an IP packet as it
// would be on Ethernet: the kernel's large send units count as the segments they stand for.
type Counters struct {
	Sent      int64 // segments offered to the link by the sending host
	Delivered int64 // segments delivered, damaged ones and copies included
	Bytes     int64 // IP bytes of the delivered segments
	Dropped   int64 // segments dropped by a full queue, by policing or by CoDel
	Policed   int64 // those of Dropped that policing dropped
	Early     int64 // those of Dropped that CoDel dropped
	Lost      int64 // segments lost on the line by Link.Loss
	Outage    int64 // segments lost to an outage or a blocked or rebound port
	Reordered int64 // segments held back
	Doubled   int64 // segments that arrive twice
	Corrupted int64 // segments damaged or forged
	TooBig    int64 // segments larger than Link.PMTU: vanished, answered by ICMP or fragmented

	OthersSent    int64 // those of Sent that belong to cross traffic or pings
	OthersDropped int64 // those of Dropped that belong to cross traffic or pings
}

// Check returns an error if the link is invalid.
func (l Link) Check() error {
	_, err := l.withDefaults()
	return err
}

func (l Link) withDefaults() (Link, error) {
	if l.MTU == 0 {
		l.MTU = 1500
	}
	if l.PMTU == 0 {
		l.PMTU = l.MTU
	}
	if l.BufferBDP == 0 {
		l.BufferBDP = 1
	}
	probability := func(name string, p float64) error {
		if math.IsNaN(p) || p < 0 || p > 1 {
			return fmt.Errorf("link: %s %v is not between 0 and 1", name, p)
		}
		return nil
	}
	switch {
	case l.Rate < 1000 || l.Rate > 1e12:
		return l, fmt.Errorf("link: rate %d bit/s is not between 1 kbit/s and 1 Tbit/s", l.Rate)
	case l.PoliceUDP != 0 && (l.PoliceUDP < 1000 || l.PoliceUDP > 1e12):
		return l, fmt.Errorf("link: a rate of %d bit/s for UDP is not between 1 kbit/s and 1 Tbit/s", l.PoliceUDP)
	case l.RateBack != 0 && (l.RateBack < 1000 || l.RateBack > 1e12):
		return l, fmt.Errorf("link: rate %d bit/s is not between 1 kbit/s and 1 Tbit/s", l.RateBack)
	case l.Police != 0 && (l.Police < 1000 || l.Police > 1e12):
		return l, fmt.Errorf("link: a policer's rate of %d bit/s is not between 1 kbit/s and 1 Tbit/s", l.Police)
	case l.PoliceBurst < 0 || l.PoliceBurst > maxQueueBytes:
		return l, fmt.Errorf("link: a policer's burst of %d bytes is not between 0 and %d", l.PoliceBurst, int64(maxQueueBytes))
	case l.RTT < 0 || l.RTT > time.Minute:
		return l, fmt.Errorf("link: round-trip time %v is not between 0 and 1m", l.RTT)
	case l.Jitter < 0 || l.Jitter > l.RTT:
		return l, fmt.Errorf("link: jitter %v is not between 0 and the round-trip time %v", l.Jitter, l.RTT)
	case l.MTU < minMTU || l.MTU > maxMTU:
		return l, fmt.Errorf("link: MTU %d is not between %d and %d", l.MTU, minMTU, maxMTU)
	case l.PMTU < minMTU || l.PMTU > l.MTU:
		return l, fmt.Errorf("link: path MTU %d is not between %d and the MTU %d", l.PMTU, minMTU, l.MTU)
	case l.Buffer < 0 || l.Buffer > maxQueueBytes:
		return l, fmt.Errorf("link: buffer of %d bytes is not between 0 and %d", l.Buffer, int64(maxQueueBytes))
	case l.Buffer > 0 && l.Buffer < int64(l.MTU+frameOverhead):
		return l, fmt.Errorf("link: a buffer of %d bytes can't hold one packet of %d", l.Buffer, l.MTU+frameOverhead)
	case math.IsNaN(l.BufferBDP) || l.BufferBDP < 0 || l.queueBytes() > maxQueueBytes:
		return l, fmt.Errorf("link: a buffer of %v BDP is negative or more than %d bytes", l.BufferBDP, int64(maxQueueBytes))
	}
	return l, errors.Join(probability("loss", l.Loss), probability("reorder", l.Reorder), probability("corrupt", l.Corrupt),
		probability("duplicate", l.Duplicate), probability("forge", l.Forge))
}

// directions returns the link from left to right, and that from right to left.
func (l Link) directions() (there, back Link) {
	there, back = l, l
	if l.RateBack != 0 {
		back.Rate = l.RateBack
	}
	there.RateBack, back.RateBack = 0, 0
	return there, back
}

// with returns l with the fields of c, and an error if the result is invalid.
func (l Link) with(c Change) (Link, error) {
	set(&l.Rate, c.Rate)
	set(&l.RTT, c.RTT)
	set(&l.Jitter, c.Jitter)
	set(&l.Loss, c.Loss)
	set(&l.Reorder, c.Reorder)
	set(&l.Corrupt, c.Corrupt)
	if c.BufferBDP != nil {
		l.Buffer = 0
	}
	set(&l.Buffer, c.Buffer)
	set(&l.BufferBDP, c.BufferBDP)
	set(&l.PMTU, c.PMTU)
	set(&l.Duplicate, c.Duplicate)
	set(&l.Forge, c.Forge)
	set(&l.Blocked, c.Blocked)
	set(&l.Rebound, c.Rebound)
	set(&l.Unscaled, c.Unscaled)
	set(&l.NoTCP, c.NoTCP)
	set(&l.NoUDP, c.NoUDP)
	set(&l.PoliceUDP, c.PoliceUDP)
	set(&l.Police, c.Police)
	set(&l.PoliceBurst, c.PoliceBurst)
	set(&l.CoDel, c.CoDel)
	set(&l.BlackHole, c.BlackHole)
	if c.Down < 0 {
		return l, fmt.Errorf("link: an outage of %v is negative", c.Down)
	}
	return l.withDefaults()
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// queueBytes is the size of the queue in bytes on the wire.
func (l Link) queueBytes() int64 {
	if l.Buffer > 0 {
		return l.Buffer
	}
	bdp := float64(l.Rate) / 8 * l.RTT.Seconds() * l.BufferBDP
	return int64(math.Max(bdp, float64(minQueue*(l.MTU+frameOverhead))))
}
