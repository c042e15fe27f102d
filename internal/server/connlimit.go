package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fxfer/fxfer/internal/transport"
)

const (
	// maxAddresses bounds the addresses that a connLimit remembers. Each takes some 200 bytes.
	maxAddresses = 16 << 10
	// sweepEvery bounds how often all addresses are looked through.
	sweepEvery = 100 * time.Millisecond
)

// connLimit decides which connections are accepted while nothing is known of a peer but its
// address. Unauthenticated connections get at most a quarter of all places, and those of one address
// at most a quarter of that address's places; transport.Places shares them between networks.
type connLimit struct {
	max, maxPerAddress int           // connections at a time
	pace               *rate.Limiter // of all handshakes
	pacePerAddress     rate.Limit    // handshakes a second of one address

	mu              sync.Mutex // guards all fields below, also those of addresses and slots
	count           int
	unauthenticated *transport.Places
	addresses       map[netip.Prefix]*addressUse
	swept           time.Time // when idle addresses were removed last
}

// addressUse counts the connections of an address, or of an IPv6 /64 (see transport.PrefixOf).
type addressUse struct {
	count int
	pace  *rate.Limiter // of its handshakes
}

func newConnLimit(opt *Options) *connLimit {
	burst := max(quarter(opt.MaxConnections), opt.MaxHandshakes)
	return &connLimit{
		max: opt.MaxConnections, maxPerAddress: opt.MaxConnectionsPerAddress,
		pace:            rate.NewLimiter(rate.Limit(opt.MaxHandshakes), burst),
		pacePerAddress:  rate.Limit(opt.MaxHandshakesPerAddress),
		unauthenticated: transport.NewPlaces(quarter(opt.MaxConnections), quarter(opt.MaxConnectionsPerAddress)),
		addresses:       make(map[netip.Prefix]*addressUse),
	}
}

func quarter(n int) int { return max(1, n/4) }

// connSlot is the place of an accepted connection.
type connSlot struct {
	limit           *connLimit
	address         *addressUse
	prefix          netip.Prefix
	unauthenticated bool // guarded by limit.mu
}

// acquire returns a slot for a connection, or nil if there is none. The caller releases it, once.
func (l *connLimit) acquire(addr net.Addr) *connSlot { return l.take(addr, true) }

// acquireAuthenticated is acquire for a further connection of a peer that has proven who it is. So
// strangers cannot take its place.
func (l *connLimit) acquireAuthenticated(addr net.Addr) *connSlot { return l.take(addr, false) }

func (l *connLimit) take(addr net.Addr, unauthenticated bool) *connSlot {
	prefix := transport.PrefixOf(addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.max {
		return nil
	}
	a := l.addressLocked(prefix)
	if a == nil || a.count >= l.maxPerAddress || unauthenticated && !l.unauthenticated.Take(prefix) {
		return nil
	}
	l.count++
	a.count++
	return &connSlot{limit: l, address: a, prefix: prefix, unauthenticated: unauthenticated}
}

// addressLocked returns the counts of an address, or nil if there is no room for another address.
func (l *connLimit) addressLocked(prefix netip.Prefix) *addressUse {
	a := l.addresses[prefix]
	if a != nil {
		return a
	}
	if len(l.addresses) >= maxAddresses {
		l.forgetIdleLocked()
	}
	if len(l.addresses) >= maxAddresses {
		return nil
	}
	burst := max(quarter(l.maxPerAddress), int(l.pacePerAddress))
	a = &addressUse{pace: rate.NewLimiter(l.pacePerAddress, burst)}
	l.addresses[prefix] = a
	return a
}

// forgetIdleLocked removes addresses without connections whose handshakes need not wait.
func (l *connLimit) forgetIdleLocked() {
	if time.Since(l.swept) < sweepEvery {
		return
	}
	l.swept = time.Now()
	for prefix, a := range l.addresses {
		if a.idle() {
			delete(l.addresses, prefix)
		}
	}
}

func (a *addressUse) idle() bool {
	return a.count == 0 && a.pace.Tokens() >= float64(a.pace.Burst())
}

// errConnLimit ends a QUIC handshake for which there is no room.
var errConnLimit = errors.New("too many clients")

// waitQUIC waits until a QUIC handshake may begin. The streams of the connection acquire their
// slots after it.
func (l *connLimit) waitQUIC(ctx context.Context, addr net.Addr) error {
	l.mu.Lock()
	a := l.addressLocked(transport.PrefixOf(addr))
	l.mu.Unlock()
	if a == nil {
		return errConnLimit
	}
	return (&connSlot{limit: l, address: a}).wait(ctx)
}

// wait waits until the connection's handshake may begin. It waits for its own address first, so
// that a crowd at one address delays itself before it delays others.
func (c *connSlot) wait(ctx context.Context) error {
	if err := c.address.pace.Wait(ctx); err != nil {
		return err
	}
	return c.limit.pace.Wait(ctx)
}

// authenticated notes that the peer has proven who it is. It may be called again.
func (c *connSlot) authenticated() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.authenticatedLocked()
}

func (c *connSlot) authenticatedLocked() {
	if c.unauthenticated {
		c.unauthenticated = false
		c.limit.unauthenticated.Give(c.prefix)
	}
}

// release gives the slot back.
func (c *connSlot) release() {
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	c.authenticatedLocked()
	l.count--
	if c.address.count--; c.address.idle() {
		delete(l.addresses, c.prefix)
	}
}

// countUnauthenticated returns the connections whose peers have not proven who they are.
func (l *connLimit) countUnauthenticated() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unauthenticated.Taken()
}
