package client

import (
	"fmt"
	"os"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

const (
	// otherAfter is how long the first transport may take to answer before the other one is tried. A
	// far and narrow line takes 1.7 s, and a try with QUIC fills it for 10 s.
	otherAfter = 2 * time.Second
	// reachedWithin is how much longer it may take if it has answered a SYN, and reachedTrips how many
	// times the RTT of that: over 9.6 kbit/s with an RTT of 1.5 s, TLS takes 10 s.
	reachedWithin = 5 * time.Second
	reachedTrips  = 8
	// otherWithin is how long the other one may take to answer where the first one has failed.
	otherWithin = 1500 * time.Millisecond

	// quicMost is about the most that QUIC moves on today's hosts, in bytes/s. TCP windows that allow
	// more are not what holds a transfer back.
	quicMost = 2e9 / 8
	// unscaledWindow is the largest window without the window scale option, in bytes (RFC 7323,
	// section 1.1).
	unscaledWindow = 1<<16 - 1
	// smallWindow is the size, in bytes, up to which a window is taken for one that a setting bounds.
	// A server with a slow disk closes a window that was larger.
	smallWindow = 1 << 20

	// QUIC is tried where a window that does not grow was the limit for cappedShare of the busy time,
	// during cappedFor and cappedTrips round trips. An autotuned window that is too small grows with
	// each round trip.
	cappedShare = 0.5
	cappedFor   = time.Second
	cappedTrips = 8
	// filledShare of what the windows allow has to move. Otherwise a slow reader closes them.
	filledShare = 0.5
	// chosenFor is how long a choice is remembered. The network may be another one by then.
	chosenFor = 24 * time.Hour
	// trialFor is the time after which the new transport is compared with the one before.
	trialFor = 4 * time.Second
)

// choice is a transport, and why it was chosen. The zero choice means: no change.
type choice struct {
	transport session.Transport
	reason    string
}

// evidence is what is known of a path where the transport is automatic.
type evidence struct {
	history session.Transport // of the last session, "" if unknown

	// While connecting.
	waited    time.Duration
	tcp, quic bool // whether each has answered

	// Once TCP has answered.
	unscaled bool // it has no window scaling
	rtt      time.Duration
	streams  int // allowed

	// Once TCP carries data.
	window int           // largest that the receiver has advertised to a stream, bytes
	capped float64       // share of the busy time in which the window was the limit
	filled float64       // share of what the window allows that moves
	lasts  time.Duration // how long these have been so
}

// choose decides on the transport.
func choose(x *evidence) choice {
	first := x.history
	if first == "" {
		first = session.TransportTCP
	}
	if !x.tcp && !x.quic {
		if x.waited == 0 && first == session.TransportQUIC {
			return choice{session.TransportQUIC, "it was the better one last time"}
		}
		return choice{}
	}
	switch {
	case !x.tcp && x.waited >= otherAfter && first == session.TransportTCP:
		return choice{session.TransportQUIC, "TCP does not connect"}
	case !x.quic && x.waited >= otherAfter && first == session.TransportQUIC:
		return choice{session.TransportTCP, "QUIC does not connect"}
	case x.tcp && x.unscaled && x.ceiling(unscaledWindow) < quicMost:
		return choice{session.TransportQUIC, "TCP has no window scaling on this path: " + x.explain(unscaledWindow)}
	case x.windowLimited():
		return choice{session.TransportQUIC, fmt.Sprintf("the receiver's TCP window was the limit for %.0f %% of the time: %s",
			100*x.capped, x.explain(x.window))}
	}
	return choice{}
}

// windowLimited reports whether a fixed, small window of the receiver has been the limit for long.
func (x *evidence) windowLimited() bool {
	return x.tcp && x.window > 0 && x.window <= smallWindow && x.ceiling(x.window) < quicMost &&
		x.capped >= cappedShare && x.filled >= filledShare && x.lasts >= max(cappedFor, cappedTrips*x.rtt)
}

// ceiling is the most that all streams can move with a window each, in bytes/s: window / RTT.
func (x *evidence) ceiling(window int) float64 {
	return float64(x.streams) * float64(window) / x.rtt.Seconds() // +Inf where the RTT is unknown
}

// explain puts the ceiling into words.
func (x *evidence) explain(window int) string {
	return fmt.Sprintf("%d streams of %d KiB at %v get %.0f Mbit/s at most",
		x.streams, (window+512)>>10, x.rtt.Round(100*time.Microsecond), x.ceiling(window)*8/1e6)
}

// other is the transport that p is not.
func other(p transport.Protocol) transport.Protocol {
	if p == transport.TCP {
		return transport.QUIC
	}
	return transport.TCP
}

// windowWatch follows the window of a receiver, by samples of the sender.
type windowWatch struct {
	begin diagnose.Sample // since which the window has been the limit and has not grown
	last  diagnose.Sample
}

// add takes the next sample, and fills in what it shows. It returns the goodput since begin, in
// bytes/s.
func (w *windowWatch) add(o *diagnose.Sample, x *evidence) (goodput float64) {
	grown := float64(o.SndWnd) > 1.05*float64(x.window)
	x.window, x.rtt = max(x.window, int(o.SndWnd)), o.MinRTT
	if w.last.At == 0 || grown || o.At > w.last.At && diagnose.WindowShare(&w.last, o) < cappedShare {
		w.begin = *o
	}
	w.last = *o
	x.lasts, x.capped, x.filled = o.At-w.begin.At, diagnose.WindowShare(&w.begin, o), 0
	if x.lasts <= 0 || x.window == 0 || o.Streams == 0 {
		return 0
	}
	ceiling := x.ceiling(x.window) * float64(o.Streams) / float64(x.streams) // of those there are
	x.filled = float64(o.Acked-w.begin.Acked) / x.lasts.Seconds() / ceiling
	return float64(o.Payload-w.begin.Payload) / x.lasts.Seconds()
}

// firstChoice is the transport of a transfer's first streams.
func (c *Client) firstChoice(server string) choice {
	switch c.opt.Transport {
	case session.TransportQUIC:
		return choice{transport: session.TransportQUIC}
	case session.TransportAuto:
		var x evidence
		name := c.pathFile(server + chosen)
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > chosenFor {
			_ = os.Remove(name) // keepChoice may write it again
		}
		if c.learned(server+chosen) == quicChosen {
			x.history = session.TransportQUIC
		}
		if first := choose(&x); first.transport != "" {
			return first
		}
	}
	return choice{transport: session.TransportTCP}
}

// The history of a server's transport is the number quicChosen or tcpChosen under its name and
// chosen.
const (
	chosen     = " transport"
	tcpChosen  = 1
	quicChosen = 2
)

// keepChoice remembers the transport that a session ended with.
func (c *Client) keepChoice(server string, t session.Transport) {
	n := tcpChosen
	if t == session.TransportQUIC {
		n = quicChosen
	}
	if c.opt.Transport == session.TransportAuto && (n == quicChosen || c.learned(server+chosen) != 0) {
		c.learn(server+chosen, n)
	}
}
