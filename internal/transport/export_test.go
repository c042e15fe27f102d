package transport

import (
	"context"
	"crypto/ed25519"
	"net/netip"
	"time"
)

// Warm connects once, without a stream, for a ticket in cfg.Tickets. It tells whether there is one.
func Warm(ctx context.Context, addr string, cfg Config) bool {
	cert, err := certificate(cfg.Identity)
	if err != nil {
		return false
	}
	box := newTicketBox(cfg.Tickets, addr, cfg.Identity.Public().(ed25519.PublicKey))
	cache := &ticketCache{box: box}
	conf := tlsConfig(cert, func(key ed25519.PublicKey) error {
		cache.server.Store(&key)
		return nil
	})
	conf.SessionTicketsDisabled, conf.ClientSessionCache = false, cache
	c, err := connectQUIC(ctx, addr, netip.AddrPort{}, conf, nil, nil)
	if err != nil {
		return false
	}
	defer c.close()
	for ctx.Err() == nil {
		box.mu.Lock()
		kept := box.kept
		box.mu.Unlock()
		if kept {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
