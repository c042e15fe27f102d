package client

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

const (
	// gatedFrom is the number of data streams from which their first flights could flood a narrow
	// line, and their SYNs show that it is one.
	gatedFrom = 8
	// surelyNarrow is the rate in bytes/s below which SYNs alone decide. Jitter hardly makes a fast
	// line look so narrow.
	surelyNarrow = 200e3 / 8
	// farEnough is the least RTT of a path whose handshakes tell the rate at which streams begin.
	farEnough = 5 * time.Millisecond
	// lateHost is by how much a handshake of QUIC may be late because a host is: less says nothing about the line.
	lateHost = 100 * time.Millisecond
	// widenEvery is how often a session on a narrow line looks whether it carries more.
	widenEvery = 500 * time.Millisecond
)

// errSpare ends a connection that a narrow line, or a near path, does not need.
var errSpare = errors.New("the path needs no other stream")

// startGate holds the TLS handshakes of a session's data streams back until the path has shown how
// many it carries at once, or how few are enough. The zero startGate is open. Its methods are safe
// for concurrent use.
type startGate struct {
	began time.Time
	most  int  // data streams; 0 is an open gate
	alone bool // the data streams connect when the control stream has

	mu      sync.Mutex // guards what follows
	start   congestion.Start
	syns    int           // answered
	least   time.Duration // RTT of these
	passed  int           // data streams
	known   bool          // the control stream's first flight was answered
	quiet   time.Time     // when what the handshake has left in the queues is gone; of an alone gate
	changed chan struct{} // closed when something has changed
}

// hold makes it a gate for a session that connects most data streams at once. It is called before
// anything connects.
func (g *startGate) hold(most int) {
	if most >= gatedFrom {
		g.began, g.most, g.changed = time.Now(), most, make(chan struct{})
	}
}

// holdAll makes it a gate for a session over QUIC. There, first flights are large, and sent again soon: over a
// narrow line, those of two connections would keep each other from ever shaking hands.
func (g *startGate) holdAll(most int) {
	if most >= gatedFrom {
		g.most, g.alone, g.changed = most, true, make(chan struct{})
	}
}

// shook takes how long the handshake of the control stream took, and the RTT.
func (g *startGate) shook(took, rtt time.Duration) {
	if !g.alone {
		return
	}
	g.update(func() {
		if g.least, g.known = rtt, true; rtt < farEnough || took < rtt+lateHost {
			took = rtt
		}
		g.start.Connected(0, rtt)
		g.start.Answered(0, took)
		if g.start.Streams(g.most) < g.most {
			g.quiet = time.Now().Add(took)
		}
	})
}

// rest waits until the line has carried what quic-go has sent again during the handshake of the control
// stream, about as much as the handshake itself. It returns false if ctx ends before.
func (g *startGate) rest(ctx context.Context) bool {
	g.mu.Lock()
	quiet := g.quiet
	g.mu.Unlock()
	return quiet.IsZero() || session.Sleep(ctx, time.Until(quiet))
}

// settled reports whether the gate has decided. Streams that connect later need not ask.
func (g *startGate) settled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settledLocked()
}

func (g *startGate) settledLocked() bool {
	return g.most == 0 || g.known && (g.alone || g.syns >= gatedFrom || g.fewLocked() < gatedFrom)
}

// fewLocked is how many data streams are enough to begin with: less than gatedFrom on a near path.
func (g *startGate) fewLocked() int { return session.StartingStreams(g.least, g.most) }

// roomLocked is how many data streams may send their first flights by now. SYNs that few streams
// have sent say nothing about the line.
func (g *startGate) roomLocked() int {
	if g.known && g.syns < gatedFrom && g.settledLocked() {
		return g.fewLocked()
	}
	return min(g.start.Streams(g.most), g.fewLocked())
}

// follow makes the gate follow the connection of a stream by the hooks of cfg and the check of the
// server's key, which it returns. A data stream waits.
func (g *startGate) follow(cfg *transport.Config, control bool, expect checkKey) checkKey {
	if g.alone || g.settled() {
		return expect
	}
	var began time.Time // of the handshake; all hooks run in the goroutine of Dial
	before := cfg.Connected
	cfg.Connected = func(ctx context.Context, sent time.Time, rtt time.Duration) error {
		if err := before(ctx, sent, rtt); err != nil {
			return err
		}
		g.connected(sent, rtt)
		if !control {
			if err := g.wait(ctx); err != nil {
				return err
			}
		}
		began = time.Now()
		return nil
	}
	return func(key ed25519.PublicKey) error {
		g.answered(began, time.Now(), control)
		return expect(key)
	}
}

// update changes what is known of the path.
func (g *startGate) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// connected takes a SYN that was answered.
func (g *startGate) connected(sent time.Time, rtt time.Duration) {
	g.update(func() {
		g.start.Connected(sent.Sub(g.began), rtt)
		if g.syns++; g.syns == 1 || rtt < g.least {
			g.least = rtt
		}
	})
}

// wait returns when a data stream may send its first flight. It fails with errSpare when it turns
// out that the stream is one too many.
func (g *startGate) wait(ctx context.Context) error {
	for {
		changed, err := g.pass()
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pass decides about one data stream. Without a decision it returns a channel that is closed when
// more is known.
func (g *startGate) pass() (changed <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.passed < g.roomLocked():
		g.passed++
		return nil, nil
	case g.settledLocked() || g.syns >= gatedFrom && g.start.Rate() < surelyNarrow:
		return nil, errSpare
	}
	return g.changed, nil
}

// answered takes the times of a first flight and its answer.
func (g *startGate) answered(sent, at time.Time, control bool) {
	g.update(func() {
		g.start.Answered(sent.Sub(g.began), at.Sub(g.began))
		g.known = g.known || control
	})
}

// delivered takes a rate in bytes/s at which payload has arrived.
func (g *startGate) delivered(rate float64) { g.update(func() { g.start.Delivered(rate) }) }

// first returns how many data streams a session begins with, of n that it would on a far path.
func (g *startGate) first(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most == 0 || g.alone {
		return n
	}
	return min(n, session.StartingStreams(g.least, n))
}

// bound returns how many of n data streams the path carries, as far as that is known.
func (g *startGate) bound(n int) int {
	if _, streams := g.narrow(); streams > 0 {
		return min(n, streams)
	}
	return n
}

// carries returns the rate in bytes/s that the line carries at least, by the handshakes so far; 0 is unknown.
func (g *startGate) carries() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most == 0 || g.alone {
		return 0
	}
	return min(g.start.Rate(), fastest)
}

// fastest is more than any line carries, bytes/s: handshakes that take no time show no rate.
const fastest = 1e12 / 8

// narrow returns the rate in bytes/s that a narrow line carries at least, and the number of data streams
// that it carries. Both are 0 where the line is not narrow, and while nothing is known. On a near path the
// rate is 0: a host that is late says more there than the line.
func (g *startGate) narrow() (rate float64, streams int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most == 0 || !g.known || !g.alone && g.syns < gatedFrom {
		return 0, 0
	}
	if streams = g.start.Streams(g.most); streams >= g.most {
		return 0, 0
	}
	if g.least < farEnough {
		return 0, streams
	}
	return g.start.Rate(), streams
}

// widen connects more data streams once the path carries more than it seemed to. It returns when
// the gate is open, or when ctx is done.
func (s *transferSession) widen(ctx context.Context) {
	began, before := time.Now(), s.written()
	for s.gate.bound(s.first) < s.first {
		if !session.Sleep(ctx, widenEvery) {
			return
		}
		// Blocks arrive at once. Only the mean since the beginning is a lower bound of the rate.
		s.gate.delivered(float64(s.written()-before) / time.Since(began).Seconds())
		s.streams.grow(0)
	}
}
