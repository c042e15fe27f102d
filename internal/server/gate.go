package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxSources bounds the addresses that a gate remembers. Each takes some 200 bytes.
const maxSources = 16 << 10

// gate decides which connections are taken, before anything is known of a peer but its address. Who is not admitted yet is a stranger:
// strangers have a quarter of all places, and those of one address a quarter of that address's.
type gate struct {
	most, mostFrom int // connections at a time, in all and from one address
	pace           *rate.Limiter
	paceFrom       rate.Limit // handshakes a second from one address

	mu        sync.Mutex
	count     int
	strangers int
	from      map[netip.Prefix]*source
	swept     time.Time // when from was last looked through
}

// source is an address, or the network of an IPv6 address that one host may have all of.
type source struct {
	count, strangers int
	pace             *rate.Limiter
}

func newGate(opt *Options) *gate {
	strangers := quarter(opt.MaxConnections)
	return &gate{
		most: opt.MaxConnections, mostFrom: opt.MaxConnectionsPerAddress,
		pace:     rate.NewLimiter(rate.Limit(opt.MaxHandshakes), max(strangers, opt.MaxHandshakes)),
		paceFrom: rate.Limit(opt.MaxHandshakesPerAddress),
		from:     make(map[netip.Prefix]*source),
	}
}

func quarter(n int) int { return max(1, n/4) }

// prefixOf is what connections of one address are counted by. Who has an IPv6 address usually has its /64 (RFC 6177).
func prefixOf(addr net.Addr) netip.Prefix {
	a, ok := addr.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	ip := a.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // in range
	return p
}

// visit is a connection that a gate has let in.
type visit struct {
	gate     *gate
	source   *source
	prefix   netip.Prefix
	stranger bool // guarded by gate.mu
}

// enter counts a connection, if there is room for it: nil says that there is none. The caller leaves, once.
func (g *gate) enter(addr net.Addr) *visit {
	prefix := prefixOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count >= g.most || g.strangers >= quarter(g.most) {
		return nil
	}
	s := g.sourceLocked(prefix)
	if s == nil {
		return nil
	}
	if s.count >= g.mostFrom || s.strangers >= quarter(g.mostFrom) {
		return nil
	}
	g.count++
	g.strangers++
	s.count++
	s.strangers++
	return &visit{gate: g, source: s, prefix: prefix, stranger: true}
}

// sourceLocked returns what is remembered of an address, nil if there is no room for another one.
func (g *gate) sourceLocked(prefix netip.Prefix) *source {
	s := g.from[prefix]
	if s != nil {
		return s
	}
	if len(g.from) >= maxSources {
		g.forgetLocked()
	}
	if len(g.from) >= maxSources {
		return nil
	}
	s = &source{pace: rate.NewLimiter(g.paceFrom, max(quarter(g.mostFrom), int(g.paceFrom)))}
	g.from[prefix] = s
	return s
}

// errCrowd ends a handshake for which there is no room.
var errCrowd = errors.New("too many clients")

// turn waits for the turn of a handshake over QUIC, whose streams enter when it is over.
func (g *gate) turn(ctx context.Context, addr net.Addr) error {
	g.mu.Lock()
	s := g.sourceLocked(prefixOf(addr))
	g.mu.Unlock()
	if s == nil {
		return errCrowd
	}
	return (&visit{gate: g, source: s}).wait(ctx)
}

// sweepEvery bounds the time that looking through the addresses takes.
const sweepEvery = 100 * time.Millisecond

// forgetLocked drops the addresses without connections whose pace is as if they had never come.
func (g *gate) forgetLocked() {
	if time.Since(g.swept) < sweepEvery {
		return
	}
	g.swept = time.Now()
	for prefix, s := range g.from {
		if s.idle() {
			delete(g.from, prefix)
		}
	}
}

func (s *source) idle() bool { return s.count == 0 && s.pace.Tokens() >= float64(s.pace.Burst()) }

// wait waits for the turn of the connection's handshake. Others of its address go before, so that a crowd there delays itself first.
func (v *visit) wait(ctx context.Context) error {
	if err := v.source.pace.Wait(ctx); err != nil {
		return err
	}
	return v.gate.pace.Wait(ctx)
}

// admitted says that the peer is no stranger any more. It may be called again.
func (v *visit) admitted() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.admittedLocked()
}

func (v *visit) admittedLocked() {
	if v.stranger {
		v.stranger = false
		v.gate.strangers--
		v.source.strangers--
	}
}

// size is the number of strangers.
func (g *gate) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.strangers
}

// leave ends the visit.
func (v *visit) leave() {
	g := v.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	v.admittedLocked()
	g.count--
	if v.source.count--; v.source.idle() {
		delete(g.from, v.prefix)
	}
}

// acceptPause is how long accepting waits where the kernel has no more of something, such as open files: others may end.
const acceptPause = 50 * time.Millisecond
