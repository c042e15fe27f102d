// Package connlimit decides which connections a host accepts, and when their handshakes begin.
package connlimit

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
	// maxAddresses bounds the addresses that a Limit remembers. Each takes some 200 bytes.
	maxAddresses = 16 << 10
	// sweepEvery bounds how often all addresses are looked through.
	sweepEvery = 100 * time.Millisecond
)

// Bounds are what a Limit allows. All are positive.
type Bounds struct {
	Connections          int // at a time; at most a quarter of them unauthenticated
	PerAddress           int // the same for one IPv4 address or one IPv6 /64
	Handshakes           int // that begin in a second; further ones wait
	HandshakesPerAddress int
}

// Limit decides which connections are accepted while nothing is known of a peer but its
// address. Unauthenticated connections get at most a quarter of all places, and those of one address
// at most a quarter of that address's places; transport.Places shares them between networks.
type Limit struct {
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

// New returns a Limit within bounds.
func New(b Bounds) *Limit {
	burst := max(quarter(b.Connections), b.Handshakes)
	return &Limit{
		max: b.Connections, maxPerAddress: b.PerAddress,
		pace:            rate.NewLimiter(rate.Limit(b.Handshakes), burst),
		pacePerAddress:  rate.Limit(b.HandshakesPerAddress),
		unauthenticated: transport.NewPlaces(quarter(b.Connections), quarter(b.PerAddress)),
		addresses:       make(map[netip.Prefix]*addressUse),
	}
}

func quarter(n int) int { return max(1, n/4) }

// Slot is the place of an accepted connection.
type Slot struct {
	limit           *Limit
	address         *addressUse
	prefix          netip.Prefix
	unauthenticated bool // guarded by limit.mu
}

// Acquire returns a slot for a connection, or nil if there is none. The caller releases it, once.
func (l *Limit) Acquire(addr net.Addr) *Slot { return l.take(addr, true) }

// AcquireAuthenticated is Acquire for a further connection of a peer that has proven who it is. So
// strangers cannot take its place.
func (l *Limit) AcquireAuthenticated(addr net.Addr) *Slot { return l.take(addr, false) }

func (l *Limit) take(addr net.Addr, unauthenticated bool) *Slot {
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
	return &Slot{limit: l, address: a, prefix: prefix, unauthenticated: unauthenticated}
}

// addressLocked returns the counts of an address, or nil if there is no room for another address.
func (l *Limit) addressLocked(prefix netip.Prefix) *addressUse {
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
func (l *Limit) forgetIdleLocked() {
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

// WaitQUIC waits until a QUIC handshake may begin. The streams of the connection Acquire their
// slots after it.
func (l *Limit) WaitQUIC(ctx context.Context, addr net.Addr) error {
	l.mu.Lock()
	a := l.addressLocked(transport.PrefixOf(addr))
	l.mu.Unlock()
	if a == nil {
		return errConnLimit
	}
	return (&Slot{limit: l, address: a}).Wait(ctx)
}

// Wait waits until the connection's handshake may begin. It waits for its own address first, so
// that a crowd at one address delays itself before it delays others.
func (c *Slot) Wait(ctx context.Context) error {
	if err := c.address.pace.Wait(ctx); err != nil {
		return err
	}
	return c.limit.pace.Wait(ctx)
}

// Authenticated notes that the peer has proven who it is. It may be called again.
func (c *Slot) Authenticated() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.authenticatedLocked()
}

func (c *Slot) authenticatedLocked() {
	if c.unauthenticated {
		c.unauthenticated = false
		c.limit.unauthenticated.Give(c.prefix)
	}
}

// Release gives the slot back.
func (c *Slot) Release() {
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	c.authenticatedLocked()
	l.count--
	if c.address.count--; c.address.idle() {
		delete(l.addresses, c.prefix)
	}
}

// Unauthenticated returns how many connections have peers that have not proven who they are, and how
// many may.
func (l *Limit) Unauthenticated() (n, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unauthenticated.Taken(), quarter(l.max)
}

// Count returns the number of connections.
func (l *Limit) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}
