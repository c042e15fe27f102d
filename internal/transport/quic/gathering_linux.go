package quic

import "time"

// gathering makes the reader of a socket wait until the datagrams of a fast flow have come together.
// One wake-up of the reader, of a connection and of who reads its stream is then for many packets,
// and one acknowledgement, too. One goroutine uses it.
type gathering struct {
	last  time.Time // when something was read last
	fast  int       // reads that came soon after the one before; half as many after a late one
	asked time.Time // for far, the last time
	far   bool
}

const (
	// gatherEvery is the time between two reads of a fast flow. Go's timers are no finer where
	// nothing else happens (netpoll in package runtime).
	gatherEvery = time.Millisecond
	// gatherSoon is the longest time between two reads of a fast flow.
	gatherSoon = 2 * gatherEvery
	// gatherAfter is how many such reads make it: the slow start of a connection ends early where
	// acknowledgements are late (HyStart). A busy host may be late twice in a row.
	gatherAfter = 128
	gatherMost  = 4 * gatherAfter
	// gatherPause is the time after which a flow has to prove itself again.
	gatherPause = 100 * time.Millisecond
	// gatherRTT is the round trip time from which on the waits of both ends matter little. They add
	// 1.6 ms to it, in which quic-go's windows hold more than a short queue has room for.
	gatherRTT = 8 * time.Millisecond
	// gatherRoom is the least receive buffer, bytes as the kernel counts, that holds what comes
	// meanwhile.
	gatherRoom = 4 << 20
	// gatherAsks is how often the RTT of all connections is looked at.
	gatherAsks = 100 * time.Millisecond
)

// read notes that something was read.
func (g *gathering) read(now time.Time) {
	switch passed := now.Sub(g.last); {
	case passed > gatherPause:
		g.fast = 0
	case passed > gatherSoon:
		g.fast /= 2
	default:
		g.fast = min(g.fast+1, gatherMost)
	}
	g.last = now
}

// wait returns how long to wait before the next read. The readers of all sockets wait for the same
// moments, counted from a common origin, and so wake up together. far reports whether all paths are
// long enough.
func (g *gathering) wait(now, origin time.Time, far func() bool) time.Duration {
	if g.fast < gatherAfter || now.Sub(g.last) > gatherSoon {
		return 0
	}
	if now.Sub(g.asked) >= gatherAsks {
		g.asked, g.far = now, far()
	}
	if !g.far {
		return 0
	}
	return gatherEvery - now.Sub(origin)%gatherEvery
}

// far reports whether there is any path, and none is shorter than gatherRTT.
func (p *paths) far() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.conn.ConnectionStats().MinRTT < gatherRTT {
			return false
		}
	}
	return len(p.links) > 0
}
