package server

import (
	"context"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// family is what sessions have in common that share the line by their weights.
type family struct {
	host  netip.Addr // of the clients
	sends bool       // the server
	low   bool       // they yield to all others
}

// keepTellingSiblings tells sessions of those that share their path, until ctx is done.
func (s *Server) keepTellingSiblings(ctx context.Context) {
	tick := time.NewTicker(session.SiblingsEvery)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, all := range s.families() {
				tellSiblings(now.Sub(began), all)
			}
		}
	}
}

// families returns the transfers that run, by what they have in common. Where a relay or this host
// itself is the client, nothing is known of the path.
func (s *Server) families() map[family][]*transferSession {
	s.mu.Lock()
	all := s.transfersLocked()
	s.mu.Unlock()
	by := make(map[family][]*transferSession)
	for _, x := range all {
		if !x.hello.Relayed && !x.from.IsLoopback() {
			f := family{x.from, x.engine.Sends(), x.priority() == wire.LowPriority}
			by[f] = append(by[f], x)
		}
	}
	return by
}

func tellSiblings(now time.Duration, all []*transferSession) {
	siblings := make([]*session.Sibling, len(all))
	for i, x := range all {
		siblings[i] = x.sibling
	}
	for i, m := range session.TellSiblings(now, siblings) {
		switch x := all[i]; {
		case m == nil:
		case x.engine.Sends():
			x.siblings.Hear(m)
		default:
			x.engine.Send(m)
		}
	}
}
