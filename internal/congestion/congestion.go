// Package congestion decides how fast a whole session sends, whatever the number of its streams: as
// fast as the path delivers, with the queue before its narrowest line nearly empty.
//
// A Controller takes what the transports measure (Sample) and answers with one rate for all
// streams together (Decision). It keeps a model of the path: the delivered rate, the round trip
// time without a queue, the loss. All of it is arithmetic over a clock that the caller owns, so a
// simulator can test hours of it in milliseconds.
//
// The congestion control of each stream stays below as a safety net. Ideas came from BBR (the model
// of rate and RTT), Copa and TCP Vegas (a small queue as the aim, others recognized by a queue that
// does not drain) and LEDBAT (RFC 6817: how to yield).
package congestion

import "time"

// Sample is what all streams of a session show together at one moment, at the end that sends.
// Counters run from the start of the session.
type Sample struct {
	At        time.Duration // since the session's start
	Delivered int64         // payload that the peer's kernel has acknowledged, selectively too, bytes
	Lost      int64         // payload that was sent again, bytes
	InFlight  int64         // payload sent and neither acknowledged nor lost, bytes
	Backlog   int64         // bytes that wait at this host because of a rate, a window or the network
	RTT       time.Duration // smoothed, the lower quartile of the streams that send; 0 while unknown
	Deviation time.Duration // mean deviation from RTT (RFC 6298) of that stream; 0 while unknown
	Least     time.Duration // least RTT that any stream saw, in its handshake too; 0 while unknown
	MSS       int           // payload of a segment, bytes
	Streams   int           // that may send
	Gentle    bool          // none of them is quick, whatever was decided
	Began     float64       // rate at which they began, bytes/s; 0 is at once, with firstWindow
	Line      float64       // what a narrow line carries at least, by the handshakes, bytes/s; 0 is unknown
	Windowed  float64       // part of the time since the last one in which the peer's windows held them, 0 to 1

	waits time.Duration // what RTT held until spaced has subtracted it
}

// Decision is what a session does until the next one.
type Decision struct {
	Rate    float64 // of all streams together, bytes/s; +Inf is no bound
	Free    int     // streams that send, each as its own congestion control wants; 0 is all, at Rate
	Held    float64 // of all other streams together, to finish what was written to them, bytes/s
	Line    float64 // what the line carries of ours, bytes/s
	Spread  bool    // a stream that its window holds back leaves the rest of its part of Rate to the others
	Behind  bool    // the streams do not send what they may: more of them may help
	Control Control // of the streams
	State   State
	Every   time.Duration // the next decision follows after that
}

// Control is a congestion control of streams. It does the work while a stream is free, and is a
// safety net otherwise.
type Control int

// The controls.
const (
	Quick  Control = iota // finds the rate of a long path soon, and ignores random loss: BBR
	Gentle                // shares a line as most traffic does, without pauses: cubic
)

// State says what a Controller does at a moment.
type State int

// The states.
const (
	Startup State = iota // doubles the rate each round trip
	Drain                // lets the queue that the start made flow off
	Cruise               // sends what the line carries, with a small queue
	Doubt                // sends less for a moment, to see whose queue it is
	Compete              // others keep the queue full: shares the line with them as one flow would
	Yield                // others use the line: takes what they leave
)

var stateNames = [...]string{"startup", "drain", "cruise", "doubt", "compete", "yield"}

func (s State) String() string { return stateNames[s] }

// Priority says how a session shares the line with others.
type Priority int

// The priorities. The zero value is the default.
const (
	Normal Priority = iota // takes a fair part
	Low                    // takes what others leave
	High                   // takes most of it
)
