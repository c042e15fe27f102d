package session

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

// Answers ends a session in which a client asks and the server answers, if nothing comes of it: it is to such sessions
// what Crawl is to transfers. Its methods are safe for concurrent use.
type Answers struct {
	waiting atomic.Bool
	steps   atomic.Int64 // answers, and files of a scrub
	work    atomic.Int64 // of the server, as it says, ns
	files   atomic.Int64
}

// Wait notes whether the client waits for the server. Else it may take as long as it wants.
func (a *Answers) Wait(waiting bool) { a.waiting.Store(waiting) }

// Take notes a message of the server.
func (a *Answers) Take(m wire.Message) {
	switch m := m.(type) {
	case *wire.Ping, *wire.Pong, *wire.Welcome:
	case *wire.Sample:
		for _, x := range m.Values {
			switch {
			case x.Name == WorkTime && x.Value > a.work.Load():
				a.work.Store(x.Value)
			case x.Name == ScrubFiles && x.Value > a.files.Load():
				a.files.Store(x.Value)
				a.steps.Add(1)
			}
		}
	default:
		a.steps.Add(1)
	}
}

// Watch ends a session in which nothing happens, and says so before, until ctx is done.
func (a *Answers) Watch(ctx context.Context, peer string, notice func(text string), end func(error)) {
	w := crawlWatch{peer: peer}
	w.run(ctx, func() crawlLook {
		return crawlLook{steps: a.steps.Load(), claimed: time.Duration(a.work.Load()), patient: !a.waiting.Load()}
	}, notice, end)
}
