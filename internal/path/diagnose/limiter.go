// Package diagnose names the limiter of a transfer: the one thing that held it back, with the
// evidence and the remedies as typed facts. Package words turns these into sentences. The package
// consists of pure functions; their input is measured elsewhere, at both ends.
package diagnose

import "time"

// Limiter is what holds a transfer back.
type Limiter string

// The limiters that Judge distinguishes.
const (
	LineRate       Limiter = "line rate"       // the path carries no more
	ReceiverWindow Limiter = "receiver window" // the receiving socket's buffer
	SenderBuffer   Limiter = "sender buffer"   // the sending socket's buffer
	NarrowLine     Limiter = "narrow line"     // the same, and the line is a slow one
	Policed        Limiter = "policed"         // what exceeds a rate is dropped without delay
	OwnQueue       Limiter = "own queue"       // the path is full, and the transfer overfills its queue
	SharedLine     Limiter = "shared with other traffic"
	OwnPriority    Limiter = "own priority"     // others use the line, and the transfer leaves it to them
	RandomLoss     Limiter = "random loss"      // loss without a queue, mistaken for congestion
	NoSACK         Limiter = "SACK off"         // loss, and a host does not say what has arrived
	Reordering     Limiter = "reordering"       // segments overtake others and count as lost
	SlowStart      Limiter = "slow start"       // the transfer ended before the windows had grown
	InitialWindow  Limiter = "initial window"   // slow start with a small initcwnd or initrwnd
	SourceDisk     Limiter = "source disk"      // reading or listing the source
	TargetDisk     Limiter = "target disk"      // writing the target
	Sync           Limiter = "sync"             // making the target durable
	SenderCPU      Limiter = "sender CPU"       // of the process or the host
	ReceiverCPU    Limiter = "receiver CPU"     // of the process or the host
	RateLimit      Limiter = "rate limit"       // the limit that somebody set
	BlackHole      Limiter = "MTU black hole"   // large packets vanish, and no router says so
	Bufferbloat    Limiter = "bufferbloat"      // the path is full, and its queue is too long
	Stalls         Limiter = "request stalls"   // Nagle's algorithm and delayed ACK wait for each other
	Silent         Limiter = "source is silent" // the program that feeds standard input is slow
	Outage         Limiter = "outage"           // nothing gets through for a while
	Relay          Limiter = "relay"            // it takes no more: the leg beyond it, or it itself

	// Of programs that are not ours.
	SendingProgram   Limiter = "sending program"   // it writes less than the connection takes
	ReceivingProgram Limiter = "receiving program" // it reads too slowly
	Requests         Limiter = "request round trips"

	Unknown Limiter = "nothing in particular"
)

// Limiters lists all limiters.
var Limiters = []Limiter{
	LineRate, NarrowLine, Policed, OwnQueue, SharedLine, OwnPriority, ReceiverWindow, SenderBuffer, RandomLoss, NoSACK, Reordering, SlowStart, InitialWindow,
	SourceDisk, TargetDisk, Sync, SenderCPU, ReceiverCPU, RateLimit, BlackHole, Bufferbloat, Stalls, Silent, Outage, Relay,
	SendingProgram, ReceivingProgram, Requests, Unknown,
}

// Side is one end of a transfer.
type Side string

// The sides, and the path between them.
const (
	Sender   Side = "sender"
	Receiver Side = "receiver"
	Path     Side = "path"
)

// Verdict is one limiter with its share of the time.
type Verdict struct {
	Limiter  Limiter
	Side     Side
	Host     string        // name of that side's host, "" if unknown or if Side is Path
	Share    float64       // of the transfer's time, 0 to 1
	Time     time.Duration // the same as a duration
	Evidence []Fact        // the most telling first
	Remedies []Remedy      // the best first
}

func (v *Verdict) found(f Fact) { v.Evidence = append(v.Evidence, f) }
