package client

import (
	"context"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// priority is how a transfer shares the line, over all of its sessions: what the user and the
// deadline want, within the bounds that the server set. It is safe for concurrent use.
type priority struct {
	wanted *session.LivePriority

	mu          sync.Mutex // guards what follows
	least, most wire.Priority
	deadline    *session.Deadline // nil is none
	changes     []session.PriorityChange
}

func (c *Client) priority(call *Transfer) *priority {
	p := &priority{wanted: call.Priority}
	if p.wanted == nil {
		p.wanted = session.NewLivePriority(c.opt.Priority)
	}
	if !call.Deadline.IsZero() {
		p.deadline = session.NewDeadline(call.Deadline, time.Now())
	}
	return p
}

// wish is what this client wants now.
func (p *priority) wish() wire.Priority {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wishLocked()
}

func (p *priority) wishLocked() wire.Priority {
	wish, _ := session.WirePriority(p.wanted.Get())
	if p.deadline != nil {
		needed, _ := session.WirePriority(p.deadline.Priority())
		wish = max(wish, needed)
	}
	return session.PriorityWithin(wish, wire.NoPriority, wire.NoPriority)
}

// bound takes the bounds that the server set.
func (p *priority) bound(least, most wire.Priority) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least, p.most = least, most
}

// now is the priority of what this client sends.
func (p *priority) now() wire.Priority {
	p.mu.Lock()
	defer p.mu.Unlock()
	return session.PriorityWithin(p.wishLocked(), p.least, p.most)
}

// follow takes the progress of the transfer. It returns the change that the deadline needs, if any.
func (p *priority) follow(o session.Outlook) (session.PriorityChange, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline == nil {
		return session.PriorityChange{}, false
	}
	change, changed := p.deadline.Update(o)
	if changed {
		p.changes = append(p.changes, change)
	}
	return change, changed
}

// decided returns all changes so far.
func (p *priority) decided() []session.PriorityChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}

// watchDeadline lets the deadline see the progress of the transfer.
func (s *transferSession) watchDeadline(p *session.Progress) {
	left := max(0, p.Bytes-p.BytesDone)
	if s.call.Left != nil {
		left = s.call.Left(*p)
	}
	o := session.Outlook{At: time.Now(), Moved: p.Written, Left: left, Listing: p.Walking}.Ahead(s.ahead(), p.Streams)
	if change, changed := s.priority.follow(o); changed {
		s.client.notice("priority %s", change)
	}
}

// ahead is how much the data streams have carried beyond what is written, in bytes. It is less than 0
// where blocks are compressed.
func (s *transferSession) ahead() int64 { return s.measured.Carried(s.intent.sends()) - s.written() }

// wishEvery bounds how late the server hears of another wish.
const wishEvery = 250 * time.Millisecond

// tellWishes tells the server when the client wants another priority, or to get files at another
// rate, until ctx is done.
func (s *transferSession) tellWishes(ctx context.Context) {
	tick := time.NewTicker(wishEvery)
	defer tick.Stop()
	for priority, rate := s.hello.Priority, s.hello.RateLimit; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if wish := s.priority.wish(); wish != priority {
			priority = wish
			s.engine.Send(&wire.Prefer{Priority: wish})
		}
		if wish := s.throttle.Rate(); wish != rate && !s.intent.sends() {
			rate = wish
			s.engine.Send(&wire.Limit{RateLimit: wish})
		}
	}
}
