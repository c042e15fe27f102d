package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ownerKey is where the controller that gives out shares has its name. The bucket forgets it after
// ownerFor. Two of them would each give out all of a line.
const (
	ownerKey = "controller"
	ownerFor = 10 * time.Second
)

const (
	// mostLineClients and longestWorkerName bound what the controller remembers of a line: members can say what
	// they like.
	mostLineClients   = 10_000
	longestWorkerName = 256
)

// lineServer gives out shares of lines. Its methods run one at a time: they are one subscription's.
type lineServer struct {
	lines map[string]*allocations
	owns  func(now time.Time) (since time.Time, ok bool) // since when nobody else gives out shares
}

// serveLines answers workers about lines, until the connection ends.
func (c *Controller) serveLines(ctx context.Context, conn *nats.Conn) (stop func(), err error) {
	l := &lineServer{lines: make(map[string]*allocations)}
	for name, line := range c.Lines {
		l.lines[name] = &allocations{line: line}
	}
	began := time.Now()
	l.owns = func(time.Time) (time.Time, bool) { return began, true }
	stop = func() {}
	if c.External != nil {
		o := &owner{js: c.js, name: nats.NewInbox()}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); o.run(ctx) }()
		l.owns, stop = o.owns, func() { cancel(); <-done }
	}
	_, err = conn.Subscribe(lineSubjects, func(m *nats.Msg) {
		if answer := l.answer(time.Now(), m.Subject, m.Data); answer != nil && m.Reply != "" {
			_ = m.Respond(answer) // or the worker asks again
		}
	})
	return stop, err
}

// answer returns what to answer, nil for nothing.
func (l *lineServer) answer(now time.Time, subject string, data []byte) []byte {
	since, owns := l.owns(now)
	if !owns {
		return nil
	}
	for _, allocations := range l.lines {
		allocations.from(since)
	}
	var answer any
	switch subject {
	case askSubject:
		a, err := decode[LineAsk](data)
		if err != nil {
			return nil
		}
		answer = l.ask(now, a)
	case statusSubject:
		answer = l.status(now)
	default:
		return nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil
	}
	return text
}

func (l *lineServer) ask(now time.Time, a *LineAsk) *LineAnswer {
	line, answer := l.lines[a.Line], &LineAnswer{Version: Version, Number: a.Number}
	if line != nil {
		line.forget(now) // they may be too many
	}
	switch {
	case line == nil:
		answer.Reason = "the controller knows no line of this name"
	case len(a.Worker) > longestWorkerName, len(line.given) >= mostLineClients && line.given[a.Worker] == nil:
		answer.Reason = "the line has too many workers, or they have too long names"
	default:
		answer.Rate, answer.Priority = line.ask(now, a), line.line.Priority
	}
	return answer
}

func (l *lineServer) status(now time.Time) []*LineStatus {
	all := []*LineStatus{}
	for name, line := range l.lines {
		s := &LineStatus{Version: Version, Line: name, Rate: line.line.Rate, Priority: line.line.Priority, Given: map[string]int64{}}
		line.forget(now)
		for worker, g := range line.given {
			s.Given[worker] = g.most
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *LineStatus) int { return strings.Compare(a.Line, b.Line) })
	return all
}

// owner is a controller that may be one of several.
type owner struct {
	js   jetstream.JetStream
	name string
	is   atomic.Pointer[ownership] // nil before the first
}

// ownership is since when a controller is the owner, and when it last began to renew that.
type ownership struct{ since, renewed time.Time }

// owns reports whether the controller is the only one now, and since when.
func (o *owner) owns(now time.Time) (time.Time, bool) {
	is := o.is.Load()
	if is == nil {
		return time.Time{}, false
	}
	return is.since, passed(is.renewed, now) < ownerFor/2
}

// run becomes the owner when there is none, and stays that until ctx is done.
func (o *owner) run(ctx context.Context) {
	const every = ownerFor / 5
	for {
		once, cancel := context.WithTimeout(ctx, every)
		o.renew(once)
		cancel()
		if !pause(ctx, every) {
			return
		}
	}
}

func (o *owner) renew(ctx context.Context) {
	now := time.Now()
	kv, err := o.js.KeyValue(ctx, lineBucket)
	if err != nil {
		return
	}
	entry, err := kv.Get(ctx, ownerKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		if _, err = kv.Create(ctx, ownerKey, []byte(o.name)); err == nil {
			o.is.Store(&ownership{now, now})
		}
	case err == nil && string(entry.Value()) == o.name:
		if _, err = kv.Update(ctx, ownerKey, entry.Value(), entry.Revision()); err == nil {
			since := now
			if is := o.is.Load(); is != nil { // or the answer to Create got lost
				since = is.since
			}
			o.is.Store(&ownership{since, now})
		}
	}
}
