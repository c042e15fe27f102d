// Package diagnose names the limiter of a transfer: the one thing that held it back, with the
// evidence and the remedies, as typed facts. Package words puts these into sentences. It consists of
// pure functions from measurements of both ends; others take the measurements.
package diagnose

import "time"

// Limiter is what holds a transfer back.
type Limiter string

// The limiters that are told apart.
const (
	LineRate       Limiter = "line rate"        // the path carries no more
	ReceiverWindow Limiter = "receiver window"  // the receiving socket's buffer
	SenderBuffer   Limiter = "sender buffer"    // the sending socket's buffer
	Congestion     Limiter = "congestion"       // others fill the path's queue
	RandomLoss     Limiter = "random loss"      // loss without a queue, which the congestion control takes for one
	Reordering     Limiter = "reordering"       // segments that overtake each other, taken for lost
	SlowStart      Limiter = "slow start"       // over before the windows had grown
	InitialWindow  Limiter = "initial window"   // the same, and initcwnd or initrwnd is smaller than usual
	SourceDisk     Limiter = "source disk"      // reading, or walking, the source
	TargetDisk     Limiter = "target disk"      // writing the target
	Sync           Limiter = "sync"             // making the target durable
	SenderCPU      Limiter = "sender CPU"       // of its process or host
	ReceiverCPU    Limiter = "receiver CPU"     // of its process or host
	RateLimit      Limiter = "rate limit"       // asked for
	BlackHole      Limiter = "MTU black hole"   // large segments vanish, and nobody says so
	Bufferbloat    Limiter = "bufferbloat"      // the path is full, and so is a queue of excessive length
	Stalls         Limiter = "request stalls"   // Nagle's algorithm and delayed ACK wait for each other
	Silent         Limiter = "source is silent" // the program that feeds standard input
	Outage         Limiter = "outage"           // nothing gets through for a while
	Unknown        Limiter = "nothing in particular"
)

// Limiters are all of them.
var Limiters = []Limiter{
	LineRate, ReceiverWindow, SenderBuffer, Congestion, RandomLoss, Reordering, SlowStart, InitialWindow, SourceDisk, TargetDisk, Sync, SenderCPU, ReceiverCPU,
	RateLimit, BlackHole, Bufferbloat, Stalls, Silent, Outage, Unknown,
}

// Side is one end of a transfer.
type Side string

// The sides, and where neither is to blame.
const (
	Sender   Side = "sender"
	Receiver Side = "receiver"
	Path     Side = "path"
)

// Verdict is one limiter with its share of the time.
type Verdict struct {
	Limiter  Limiter
	Side     Side
	Host     string        // the name of that side's host, "" if unknown or of the path
	Share    float64       // of the transfer's time, 0 to 1
	Time     time.Duration // the same
	Evidence []Fact        // the most telling first
	Remedies []Remedy      // the best first
}

func (v *Verdict) found(f Fact) { v.Evidence = append(v.Evidence, f) }
