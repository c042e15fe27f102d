package quic

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	// linkFlight is the most that a connection has in flight, bytes: 10,000 packets
	// (MaxCongestionWindowPackets in quic-go).
	linkFlight = 10_000 * 1452

	// unadmittedWindow is what a client may send on a connection before it is admitted, bytes.
	unadmittedWindow = 64 << 10
	// firstWindow is the initial size of the other windows, bytes.
	firstWindow = 512 << 10
	// streamWindow and linkWindow bound the data that a peer may send and nobody has read, per
	// stream and per connection, bytes. quic-go doubles a window that is used up within two round
	// trips.
	streamWindow = 8 << 20
	linkWindow   = 2 * linkFlight
	// allWindows is the size of windows, bytes.
	allWindows = 256 << 20

	// idleTimeout is how long a connection may be silent until it counts as dead. A session ends
	// after the same time.
	idleTimeout = 20 * time.Second
	keepAlive   = 5 * time.Second
	// lingerTimeout is how long a connection without open streams is kept for data that the peer
	// has not received yet.
	lingerTimeout = 10 * time.Second

	// handshakeWithin is how long a handshake may take, and half of it how long the peer may be silent. A
	// client waits longer: over 9.6 kbit/s with an RTT of 1.5 s, the first answer takes 4 s, and what
	// each end sends again meanwhile takes 10 s.
	handshakeWithin = stream.HandshakeTimeout
	dialWithin      = 30 * time.Second

	// maxLinkStreams bounds the streams that a peer may have open on a connection.
	maxLinkStreams = 128
)

// preface is the first byte of each stream. It makes the stream known to the peer before there is
// data.
const preface = 0

// Codes with which a connection or a stream ends.
const (
	codeDone   = 0 // all streams are closed
	codeClosed = 1 // this stream is closed
	codeIdle   = 2 // no stream for a long time
	codeGone   = 3 // the server's process is gone
)

// link is one QUIC connection, on either side.
type link struct {
	// Set before any stream.
	conn   *quic.Conn
	udp    *udpSocket
	tls    tls.ConnectionState
	pool   *windowPool
	client string // the key of a client's certificate; "" at the client

	admitted atomic.Bool
	onAdmit  func()       // accepted links only
	writing  atomic.Int64 // bytes of running Writes that quic-go does not have yet

	mu     sync.Mutex // guards what follows
	open   map[*Conn]bool
	opened int64       // streams so far
	total  int64       // streams, as the client announces at the end; 0 before
	unused *time.Timer // ends an accepted link that has no stream
	figures

	windowMu sync.Mutex // guards the following; held before that of pool
	granted  int64      // of pool
	gone     bool       // no window is granted any more
}

// linkKey finds a link in the context of its connection.
type linkKey struct{}

// config is for both sides. quic-go adapts the windows to the RTT and to the speed of the reader.
func config() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           handshakeWithin / 2, // quic-go allows twice that for the whole
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		InitialStreamReceiveWindow:     firstWindow,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: firstWindow,
		MaxConnectionReceiveWindow:     linkWindow,
		AllowConnectionWindowIncrease: func(conn *quic.Conn, delta uint64) bool {
			l, ok := conn.Context().Value(linkKey{}).(*link)
			return ok && l.grant(int64(delta))
		},
	}
}

// grant takes window from what is left, once the peer is admitted.
func (l *link) grant(n int64) bool {
	l.windowMu.Lock()
	defer l.windowMu.Unlock()
	if !l.admitted.Load() || l.gone || !l.pool.take(l.client, n) {
		return false
	}
	l.granted += n
	return true
}

// giveWindows gives back what grant took.
func (l *link) giveWindows() {
	l.windowMu.Lock()
	defer l.windowMu.Unlock()
	l.pool.give(l.client, l.granted)
	l.granted, l.gone = 0, true
}

// connected takes over a connection whose handshake is done.
func (l *link) connected(conn *quic.Conn) {
	l.conn, l.tls, l.pool = conn, conn.ConnectionState().TLS, windows
	if l.onAdmit != nil {
		l.client = string(l.tls.PeerCertificates[0].RawSubjectPublicKeyInfo) // presented checked that there is one
	}
	l.udp.paths.add(l)
	context.AfterFunc(conn.Context(), func() {
		l.giveWindows()
		l.udp.paths.remove(l)
		l.udp.lower.forget(l)
	})
}

// admit lets the windows grow.
func (l *link) admit() {
	l.admitted.Store(true)
	if l.onAdmit != nil {
		l.onAdmit()
	}
}

// enter registers a stream.
func (l *link) enter(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[*Conn]bool)
	}
	l.open[c] = true
	l.opened++
	if l.unused != nil {
		l.unused.Stop()
	}
}

// leave unregisters a stream.
func (l *link) leave(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open[c] {
		return
	}
	delete(l.open, c)
	l.forgetLocked(c)
	if len(l.open) == 0 && l.unused != nil {
		patience := lingerTimeout
		if !l.admitted.Load() {
			patience = stream.CloseTimeout
		}
		l.unused.Reset(patience)
	}
	if l.overLocked() {
		go func() { _ = l.conn.CloseWithError(codeDone, "") }()
	}
}

// overLocked reports whether the client has opened all its streams and none is open any more.
func (l *link) overLocked() bool { return l.total > 0 && l.opened >= l.total && len(l.open) == 0 }
