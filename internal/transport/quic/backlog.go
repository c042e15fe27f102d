package quic

import "time"

// backlog bounds what the reader of a socket hands to a connection that has not handled it yet.
// quic-go drops what exceeds the queue of a connection (MaxConnUnprocessedPackets), and a reader that
// catches up after a pause is faster than the connection. One goroutine uses it.
type backlog struct {
	handed uint64 // bytes
	blind  int    // bytes to hand without a look
}

const (
	// backlogMost is about 150 packets of full size, bytes.
	backlogMost = 200 << 10
	// backlogPause is the time between two looks at a connection that has no room.
	backlogPause = 250 * time.Microsecond
	// backlogWait is how long a reader waits at least until it gives a connection up, which then gets
	// the next backlogBlind bytes at once. So does who sends what belongs to no connection, from the
	// address of one.
	backlogWait  = time.Millisecond
	backlogBlind = 4 << 20
	// backlogRest is how many times as long as a wait in vain the reader then waits for nobody. So those
	// that handle nothing, however many they are, take no more than that part of its time from others.
	backlogRest = 32
)

// hand hands n bytes to the connection, which has handled so many, when it has room for them. wait
// waits for a moment, or returns false if the connection has to be given up.
func (b *backlog) hand(n int, handled func() uint64, wait func() bool) {
	if b.blind > 0 {
		b.blind -= n
		b.handed = handled()
		return
	}
	for {
		done := handled()
		if b.handed = max(b.handed, done); b.handed-done+uint64(n) <= backlogMost {
			b.handed += uint64(n)
			return
		}
		if !wait() {
			break
		}
	}
	b.handed, b.blind = handled(), backlogBlind // what is missing was dropped
}

// patience bounds how long the reader of a socket waits for connections, because all others of the
// socket wait meanwhile. One goroutine uses it.
type patience struct {
	since time.Time // of the running wait; zero is none
	until time.Time // no wait begins before
}

// begin begins with another connection, or with more for the same one.
func (p *patience) begin() { p.since = time.Time{} }

// wait waits for a moment, or returns false if there was enough of that.
func (p *patience) wait() bool {
	now := time.Now()
	switch {
	case now.Before(p.until):
		return false
	case p.since.IsZero():
		p.since = now
	case now.Sub(p.since) >= backlogWait:
		p.until = now.Add(backlogRest * now.Sub(p.since))
		return false
	}
	time.Sleep(backlogPause)
	return true
}

// handled is how many bytes the connection has taken from its queue.
func (l *link) handled() uint64 { return l.conn.ConnectionStats().BytesReceived }
