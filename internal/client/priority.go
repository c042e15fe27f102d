package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// priority is how a transfer shares the line, over all of its sessions: what the user wants, within
// the bounds that the server set. It is safe for concurrent use.
type priority struct {
	wanted      *session.LivePriority
	least, most atomic.Uint32 // of the last Welcome
}

func (c *Client) priority(call *Transfer) *priority {
	p := &priority{wanted: call.Priority}
	if p.wanted == nil {
		p.wanted = session.NewLivePriority(c.opt.Priority)
	}
	return p
}

// wish is what this client wants now.
func (p *priority) wish() wire.Priority { return session.PriorityWithin(p.wanted.Wire(), 0, 0) }

// bound takes the bounds that the server set.
func (p *priority) bound(least, most wire.Priority) {
	p.least.Store(uint32(least))
	p.most.Store(uint32(most))
}

// now is the priority of what this client sends.
func (p *priority) now() wire.Priority {
	return session.PriorityWithin(p.wish(), wire.Priority(p.least.Load()), wire.Priority(p.most.Load()))
}

// preferEvery bounds how late the server hears of another wish.
const preferEvery = 250 * time.Millisecond

// tellPriority tells the server when the client wants another priority, until ctx is done.
func (s *transferSession) tellPriority(ctx context.Context) {
	tick := time.NewTicker(preferEvery)
	defer tick.Stop()
	for told := s.hello.Priority; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if wish := s.priority.wish(); wish != told {
				told = wish
				s.engine.Send(&wire.Prefer{Priority: wish})
			}
		}
	}
}
