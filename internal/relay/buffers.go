package relay

import (
	"time"

	"github.com/fxfer/fxfer/internal/transport"
)

const (
	// tuneEvery is the time between two decisions about the buffers of a connection.
	tuneEvery = 100 * time.Millisecond
	// leastRTT is the least round trip time that a window is made for: a busy host needs as long.
	leastRTT = 20 * time.Millisecond
	// pieceTime is how long a piece takes to leave. With large ones, the window of the sender would open
	// rarely, and then by much.
	pieceTime = 5 * time.Millisecond
	// leastWindow is the window of a connection whose rate is not known yet: that of Linux.
	leastWindow = 64 << 10
	// allWindows is what the windows of all connections hold together, bytes, unless they are so many
	// that each has leastWindow. The kernel may need four times as much memory for it.
	allWindows = 8 << 20

	leastPiece = 4 << 10
	mostPiece  = 32 << 10
)

// buffers are how much of one direction of a connection waits at the relay, in bytes.
type buffers struct {
	window int // what the sender may send before the relay has read it
	unsent int // what the kernel takes beyond what it sends
	piece  int // what is read and written at once
}

// buffersFor sizes the buffers of a direction that carries a rate, in bytes/s, from a sender at a round trip
// time. most bounds the window, and two pieces: each direction of a connection has a buffer for one.
// The window is twice what the path takes, as in the kernel's own adaptation, so that the rate may
// double in a round trip. With more, the first bytes would fill the relay instead of showing the sender
// what the next leg carries, and the last ones would wait there.
func buffersFor(rate float64, rtt time.Duration, most int) buffers {
	piece := min(max(leastPiece, int(rate*pieceTime.Seconds())), mostPiece, max(leastPiece, most/2))
	return buffers{
		window: min(max(leastWindow, int(2*rate*max(rtt, leastRTT).Seconds())), max(leastWindow, most)),
		unsent: 2 * piece, // Linux wakes the writer when half of it is left
		piece:  piece,
	}
}

// bufferTuner sizes the buffers of one direction of a connection. One goroutine uses it.
type bufferTuner struct {
	from, to transport.Conn
	passed   int64 // so far, bytes

	at   time.Time // of the last decision
	seen int64     // passed by then
	set  buffers
}

// adapt sizes the buffers by what has passed. It returns the size of a piece. The window only grows: what is
// under way may need it.
func (g *bufferTuner) adapt(now time.Time, most int) (piece int) {
	info, _ := g.from.Info()
	took := now.Sub(g.at)
	if took < info.MinRTT {
		return g.set.piece
	}
	next := buffersFor(float64(g.passed-g.seen)/took.Seconds(), info.MinRTT, most)
	g.at, g.seen = now, g.passed
	if next.window = max(next.window, g.set.window); next.window > g.set.window {
		g.from.LimitUnread(next.window)
	}
	if next.unsent != g.set.unsent {
		g.to.LimitUnsent(next.unsent)
	}
	g.set = next
	return next.piece
}
