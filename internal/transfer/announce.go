package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// announceWithin is how long an entry may wait for others of its message where the walk is
	// slow.
	announceWithin = 20 * time.Millisecond
	// announceFirst bounds the entries of the first message, so that the receiver begins early.
	// Each may have twice as many as the one before, up to announceMost: every message wakes both
	// sides.
	announceFirst = 64
	announceMost  = 1024
	// handedOver is how many items the walk hands over at once, handedBytes what their names and
	// attributes may take, and handedAhead how often it may do so before anybody takes them.
	handedOver  = 64
	handedBytes = 64 << 10
	handedAhead = 2
)

// announcer announces a source's items to the receiver. One goroutine uses it.
type announcer struct {
	s       *Sender
	lap     *lap
	batch   []*sending // numbered, and not sent
	most    int        // entries of the next message
	held    int        // bytes of their names and attributes
	since   time.Time  // of the first one
	warning *wire.Warning
	room    []wire.Entry // of the last message, empty
}

// walk announces the source's items, and then those that changed while they were sent, until the
// session is over.
func (s *Sender) walk() error {
	a := announcer{s: s, lap: s.side.clock.start(Walk), most: announceFirst}
	defer a.lap.stop()
	s.send(&wire.Manifest{Single: s.source.Single(), Prune: s.opt.Prune, Delta: true})
	err := a.list()
	a.lap.enter(Room)
	a.flush()
	if s.side.over() {
		return nil // whoever ended the session has the error
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
	}
	a.finish()
	for old := s.manifest.nextAgain(); old != nil; old = s.manifest.nextAgain() {
		a.again(old)
	}
	return nil
}

// list walks the source and announces its items. The walk has a goroutine of its own: it asks the
// system for the metadata of each entry, which takes as long as everything else that is done here.
func (a *announcer) list() error {
	ctx, stop := context.WithCancel(a.s.side.ctx)
	defer stop()
	h := handover{ctx: ctx, out: make(chan []Item, handedAhead), spare: make(chan []Item, handedAhead+2)}
	var walked error
	go func() { // whose end the loop below waits for
		defer close(h.out)
		if walked = a.s.source.Walk(ctx, h.visit, a.failed); walked == nil {
			walked = h.flush()
		}
	}()
	var err error
	for items := range h.out {
		for i := 0; err == nil && i < len(items); i++ {
			err = a.visit(&items[i])
		}
		if len(a.batch) > 0 && time.Since(a.since) > announceWithin {
			a.flush()
		}
		if err != nil {
			stop()
		}
		clear(items)
		h.spare <- items[:0]
	}
	if err == nil {
		err = walked
	}
	return err
}

// handover hands the items of a walk over to the announcer, many at a time. One goroutine uses it.
type handover struct {
	ctx   context.Context
	out   chan []Item
	spare chan []Item // that were announced, to be used again
	items []Item
	held  int       // bytes of their names and attributes
	since time.Time // of the first one
}

// visit hands an item over, soon.
func (h *handover) visit(item Item) error {
	if h.items == nil {
		select {
		case h.items = <-h.spare:
		default:
			h.items = make([]Item, 0, handedOver)
		}
		h.held, h.since = 0, time.Now()
	}
	h.items = append(h.items, item)
	h.held += heldBy(&item.Entry)
	if len(h.items) == handedOver || h.held > handedBytes || item.Early || time.Since(h.since) > announceWithin {
		return h.flush()
	}
	return nil
}

// flush hands over what there is.
func (h *handover) flush() error {
	if h.items == nil {
		return nil
	}
	select {
	case h.out <- h.items:
		h.items = nil
		return nil
	case <-h.ctx.Done():
		return context.Cause(h.ctx)
	}
}

// visit announces an item, once there is room for it.
func (a *announcer) visit(item *Item) error {
	for !a.s.manifest.hasRoom() {
		a.flush()
		a.lap.enter(Room)
		old, ok := a.s.manifest.waitRoom()
		a.lap.enter(Walk)
		if !ok {
			return context.Cause(a.s.side.ctx)
		}
		if old != nil {
			a.again(old) // it keeps its room until then
		}
	}
	if item.Unread != nil {
		a.unread(item)
	}
	if len(a.batch) == 0 {
		a.since = time.Now()
	}
	e := a.add(*item, 0)
	a.batch = append(a.batch, e)
	a.held += e.held
	if len(a.batch) >= a.most || a.held > wire.MaxMessage/4 || item.Early { // who knows when another file grows
		a.flush()
	}
	return nil
}

// unread counts an entry whose attributes could not be read.
func (a *announcer) unread(item *Item) {
	if a.warning == nil {
		a.warning = &wire.Warning{What: "xattr", Path: item.Entry.Path, Text: item.Unread.Error()}
	}
	a.warning.Count++
}

// failed reports a path that cannot be listed.
func (a *announcer) failed(path string, err error) {
	a.s.endIfTooManyFiles(err)
	a.s.manifest.fail()
	code := wire.CodeSourceDisk
	var root rootError
	isRoot := errors.As(err, &root)
	var known *wire.Error
	switch {
	case errors.As(err, &known) && (!isRoot || known.Code == wire.CodeIntegrity):
		code = known.Code
	case isRoot:
		code = wire.CodeOther
	}
	a.s.send(&wire.EntryFailed{Index: wire.NoEntry, Code: code, Text: err.Error()})
	if a.s.opt.WalkFailed != nil {
		a.s.opt.WalkFailed(path, err)
	}
}

// add numbers an item. Its blocks cannot be claimed before tell.
func (a *announcer) add(item Item, tries int) *sending {
	if x := &item.Entry; a.s.opt.Near && x.Kind == wire.File && x.Size <= nearLargest && item.part() == nil && !a.deltaAsked(x.Size) {
		x.BlockLog = maxBlockLog
	}
	e := a.s.manifest.spareEntry()
	e.begin(&item, tries)
	a.s.manifest.add(e)
	a.s.side.event(Event{Kind: Found, Index: e.index, Entry: &e.item.Entry})
	return e
}

// deltaAsked reports whether the user asked for a kind of delta that a file of this size can have. A
// file of one block has none, so it keeps its small ones then.
func (a *announcer) deltaAsked(size int64) bool {
	how := a.s.opt.Delta
	return (how == wire.DeltaFixed || how == wire.DeltaChunks) && size >= deltaFrom
}

// flush sends the batch.
func (a *announcer) flush() {
	a.tell(a.batch)
	a.batch, a.held, a.most = a.batch[:0], 0, min(2*a.most, announceMost)
}

// tell sends entries to the receiver, and then offers their blocks: the receiver must know an entry
// before it hears more of it.
func (a *announcer) tell(batch []*sending) {
	if len(batch) == 0 {
		return
	}
	m := &wire.Entries{First: batch[0].index, Entries: a.room[:0]}
	for _, e := range batch {
		m.Entries = append(m.Entries, e.item.Entry)
		e.item.Entry.Xattrs = nil // once the receiver has them, an event may show the entry
	}
	a.s.send(m)
	a.room = m.Entries
	clear(a.room)
	for _, e := range batch {
		a.s.offer(e)
	}
	a.s.manifest.setTold(m.First + uint64(len(batch)))
}

// finish ends the manifest.
func (a *announcer) finish() {
	s := a.s
	s.side.event(Event{Kind: Listed})
	if a.warning != nil {
		s.side.event(warned(a.warning))
		s.send(a.warning)
	}
	s.send(s.manifest.list())
	s.manifest.setWalked()
	s.claims.setWalked()
	s.prune()
}

// again announces a file that changed as a new entry. The end of the manifest is sent anew before
// the old entry fails, so that the receiver cannot finish in between.
func (a *announcer) again(old *sending) {
	s := a.s
	item, err := old.item.Content.(refresher).Refresh()
	if err != nil {
		s.failEntry(old, &wire.Error{Code: unreadable(err), Text: err.Error()})
		return
	}
	if s.manifest.isResolved(old) { // the receiver gave it up meanwhile
		return
	}
	s.manifest.unlink(old)
	e := a.add(item, old.tries+1)
	if s.manifest.isWalked() {
		s.send(&wire.EndManifest{Count: e.index + 1, Bytes: e.item.Entry.Size})
	}
	if s.resolve(old, false) {
		s.send(&wire.EntryFailed{Index: old.index, Code: wire.CodeAgain})
		s.side.event(Event{Kind: Again, Index: old.index, Entry: &old.item.Entry})
	}
	a.tell([]*sending{e})
}
