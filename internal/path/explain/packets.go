package explain

import "time"

// Packets is what a capture shows of a connection and its sockets do not, in the direction that moved
// more data.
type Packets struct {
	Opened      bool // the capture has the handshake; it says MSS, scaling, SACK and timestamps
	MSS         int64
	ScaleFrom   int // of the sender's windows, -1 for none
	ScaleTo     int
	SACK        bool
	Timestamps  bool
	AtSender    bool // the capture was made nearer to the sender
	RTT         time.Duration
	FirstFlight int64 // segments before the first acknowledgement, 0 if unknown
	Plateau     int64 // most bytes in flight that lasted, 0 if there was none

	ZeroWindows int64 // times that the receiver closed its window
	ZeroTime    time.Duration

	Segments, Offloaded                 int64 // with data; larger than the MSS
	Fast, Timeouts, Needless, Overtaken int64 // segments sent again, or that came out of order
	Missed                              int64 // bytes that the capture lacks
	Stalls, Delayed                     int64 // Nagle's algorithm; with a delayed acknowledgement
	StallTime                           time.Duration
}

// Resent is the number of segments sent again.
func (p *Packets) Resent() int64 { return p.Fast + p.Timeouts + p.Needless }
