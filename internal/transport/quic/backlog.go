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
	// backlogLooks times backlogPause is how long a reader waits at most. A connection that handles
	// nothing meanwhile must not hold up the others, so it gets the next backlogBlind bytes at once. So
	// does who sends what belongs to no connection, from the address of one.
	backlogLooks = 4
	backlogPause = 250 * time.Microsecond
	backlogBlind = 4 << 20
)

// hand hands n bytes to the connection, which has handled so many, when it has room for them. wait
// waits for a moment.
func (b *backlog) hand(n int, handled func() uint64, wait func()) {
	if b.blind > 0 {
		b.blind -= n
		b.handed = handled()
		return
	}
	for range backlogLooks {
		done := handled()
		if b.handed = max(b.handed, done); b.handed-done+uint64(n) <= backlogMost {
			b.handed += uint64(n)
			return
		}
		wait()
	}
	b.handed, b.blind = handled(), backlogBlind // what is missing was dropped
}

// handled is how many bytes the connection has taken from its queue.
func (l *link) handled() uint64 { return l.conn.ConnectionStats().BytesReceived }
