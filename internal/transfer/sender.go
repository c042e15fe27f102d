package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// SenderOptions tune a Sender. The zero value is right for all.
type SenderOptions struct {
	Event      func(*Event)       // takes progress; nil for none
	Speculate  bool               // send the first blocks before the receiver's answer
	Streams    int                // how many data streams will come at once; 0 if unknown
	Near       bool               // the path stays within a building: there is no slow start to share among streams
	Delta      wire.Delta         // the kind that the user asked for
	Message    func(wire.Message) // takes messages that are not the engine's
	WalkFailed func(path string, err error)
	Prune      bool            // the receiver removes what the source does not have, if nothing failed
	Coder      *compress.Meter // decides on compression; nil for none
	Clock      *Clock          // takes the times of the stages; nil for none
	Memory     *Account        // for entries under way, with other sessions; nil for no bound
}

// Sender sends a Source in one session.
//
// Locks are taken in this order, and most are leaves: sending.mu, claims.mu, deltaSend.mu. Nothing
// of the engine waits for the receiver with a lock in hand.
type Sender struct {
	opt      SenderOptions
	source   Source
	side     *side
	manifest *manifest
	claims   *claims
	deltas   deltas
	compares comparison
	pruning  *pruneAnswers // nil unless the receiver prunes
}

// NewSender prepares a session on a control stream after its opening messages. r is the Reader of
// that stream.
func NewSender(
	stream io.ReadWriteCloser, r *wire.Reader, source Source, opt SenderOptions,
) *Sender {
	s := &Sender{opt: opt, source: source}
	s.side = newSide(stream, r, opt.Clock, opt.Event, opt.Message)
	s.manifest = newManifest(&s.side.counts, opt.Prune, opt.Memory)
	s.claims = newClaims(&s.side.counts, opt.Clock, opt.Streams, opt.Speculate)
	s.deltas.side, s.deltas.claims, s.deltas.memory = s.side, s.claims, opt.Memory
	s.compares = newComparison(s.side)
	if opt.Prune {
		s.pruning = newPruneAnswers(s.side, source)
	}
	return s
}

// Run sends everything. It returns nil when the receiver has resolved each entry, also where some
// failed: the events say which. After an error the receiver keeps what it has for a later session.
// Run closes all data streams, but not the control stream. It returns after all of its goroutines
// have ended, except a read from Item.Stream that hangs.
func (s *Sender) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()
	var tasks sync.WaitGroup
	endIf := func(err error) {
		if err != nil {
			s.end(err)
		}
	}
	tasks.Go(func() { endIf(s.walk()) })
	if s.pruning != nil {
		tasks.Go(func() { endIf(s.pruning.run()) })
	}
	s.side.pump.start(&tasks, s.side.ctx.Done(), s.handle, s.end)
	tasks.Wait()
	s.side.running.Wait()
	for _, e := range s.manifest.rest() {
		e.file.Load().close()
	}
	return s.side.result()
}

// end ends the session, once. nil is a good end.
func (s *Sender) end(cause error) {
	if cause == nil {
		cause = errFinished
	}
	s.side.ending.Do(func() {
		s.side.stop(cause)
		s.manifest.end()
		for _, st := range s.claims.end() {
			s.side.running.Go(func() { s.close(st) }) // it may wait for a write
		}
		s.side.pump.end(cause)
	})
}

// Done is closed when the session is over on this side, before its streams are closed.
func (s *Sender) Done() <-chan struct{} { return s.side.ctx.Done() }

// Stats returns the counters so far.
func (s *Sender) Stats() Stats {
	now := s.side.counts.stats()
	for _, x := range s.Streams() {
		now.Underway += int64(x.InFlight)
	}
	return now
}

// Send queues a message that is not the engine's.
func (s *Sender) Send(m wire.Message) { s.send(m) }

func (s *Sender) send(m wire.Message) { s.side.pump.send(m) }

// AddStream lets a data stream claim blocks until the session is over or the stream fails. The
// sender closes it. An id must not be used twice.
func (s *Sender) AddStream(id uint64, stream Stream) {
	ok := s.claims.addStream(id, stream, func(st *sendStream) {
		c := carrier{
			stream: st, claims: s.claims, coder: s.opt.Coder, counts: &s.side.counts, events: s,
		}
		s.side.running.Go(func() {
			c.run(s.opt.Clock)
			s.close(st)
			s.claims.lose(st)
		})
		// The carrier would notice the end of the stream only when it writes again. The receiver
		// sends nothing on a data stream but the reason for which it refuses it.
		s.side.running.Go(func() {
			var b [1]byte
			_, _ = stream.Read(b[:])
			s.claims.receiverClosed(st)
		})
	})
	if !ok {
		_ = stream.Close()
	}
}

// SetActive lets only n streams claim blocks; the others wait. Those that were used go first. 0 is all. Fewer streams
// cost less work where work is the limit.
func (s *Sender) SetActive(n int) { s.claims.setActive(n) }

// Retire lets a stream claim no more. It ends when what it has in flight is acknowledged, soon
// after at the next SetActive. It is safe for streams that are gone.
func (s *Sender) Retire(id uint64) { s.claims.retire(id) }

// Drop ends a stream, so that its blocks go to others. It is safe for streams that are gone.
func (s *Sender) Drop(id uint64) {
	if st := s.claims.kill(id); st != nil {
		s.close(st)
	}
}

// close closes a stream. What it was given and has not sent is worth nothing where others send it, or the session failed:
// it would leave long after, and take the line from them.
func (s *Sender) close(st *sendStream) {
	if a, ok := st.stream.(interface{ Abort() error }); ok && (s.side.result() != nil || s.claims.dead(st)) {
		_ = a.Abort()
	}
	_ = st.stream.Close()
}

// StreamState describes a data stream.
type StreamState struct {
	ID       uint64
	InFlight int       // blocks that are not acknowledged
	Moved    time.Time // of the last acknowledgement, or since when the first block waits for one
}

// Streams returns the state of each data stream that lives.
func (s *Sender) Streams() []StreamState { return s.claims.states() }

// Ending reports whether all blocks are claimed, so that the transfer ends with those on their way.
func (s *Sender) Ending() bool { return s.claims.ending() }

// offer starts what may be sent of an entry before the receiver's answer.
func (s *Sender) offer(e *sending) {
	if e.item.Stream == nil {
		s.claims.speculateOn(e)
		return
	}
	s.side.running.Go(func() {
		lap := s.opt.Clock.start(Feed)
		defer lap.stop()
		ended, err := newFeed(e, s.claims, lap).run(s.side.ctx)
		var known *wire.Error
		switch {
		case errors.As(err, &known):
			s.failEntry(e, known)
		case ended:
			s.entryRead(e)
		}
	})
}

// handle acts on a message of the receiver. It returns false after Finished.
func (s *Sender) handle(m wire.Message) (bool, error) {
	switch m := m.(type) {
	case *wire.Answers:
		return true, s.answers(m.Answers)
	case *wire.Written:
		return true, s.written(m.Blocks)
	case *wire.Resend:
		e, err := s.manifest.find(m.Index)
		if e == nil {
			return true, err
		}
		return true, s.claims.resend(e, m.Blocks)
	case *wire.EntryFailed:
		return true, s.entryFailed(m)
	case *wire.Placed:
		return true, s.placed(m)
	case *wire.Pieces:
		return true, s.digests(m.Index, m)
	case *wire.Chunks:
		return true, s.digests(m.Index, m)
	case *wire.Warning:
		s.side.event(warned(m))
	case *wire.Folder:
		return true, s.pruning.ask(m)
	case *wire.Removed:
		entry := wire.Entry{Kind: m.Kind, Path: m.Path}
		s.side.event(Event{Kind: Removed, Index: wire.NoEntry, Entry: &entry})
	case *wire.Finished:
		if !s.manifest.finished() {
			return false, protocolError("the receiver finished before the sender")
		}
		return false, nil
	default:
		s.side.other(m)
	}
	return true, nil
}

// entryFailed ends an entry that failed at the receiver.
func (s *Sender) entryFailed(m *wire.EntryFailed) error {
	err := &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
	if m.Index == wire.NoEntry {
		s.manifest.fail()
		s.side.event(Event{Kind: Failed, Index: m.Index, Entry: new(wire.Entry), Err: err})
		return nil
	}
	e, unknown := s.manifest.find(m.Index)
	if e != nil && s.resolve(e, true) {
		s.report(e, Event{Kind: Failed, Err: err})
	}
	return unknown
}

// digests takes digests of an entry's old version in.
func (s *Sender) digests(index uint64, m wire.Message) error {
	e, _ := s.manifest.find(index)
	return s.deltas.digests(e, m)
}

// answers acts on the receiver's verdicts. Neighbours that end their entries do so together.
func (s *Sender) answers(all []wire.Answer) error {
	for len(all) > 0 {
		n := 0
		for n < len(all) && outcomes[all[n].Verdict] != 0 {
			n++
		}
		if n > 0 {
			if err := s.settle(all[:n]); err != nil {
				return err
			}
			all = all[n:]
			continue
		}
		if err := s.answer(&all[0]); err != nil {
			return err
		}
		all = all[1:]
	}
	return nil
}

// settle ends entries of which nothing is to be sent.
func (s *Sender) settle(all []wire.Answer) error {
	ended, err := s.manifest.settle(all)
	s.ended(ended, func(i int) Event {
		return Event{Kind: outcomes[all[i].Verdict], New: all[i].New}
	})
	s.claims.dropShared(ended)
	s.manifest.keepSpare(ended)
	return err
}

// ended ends entries that the manifest has removed; nil is none. last returns the last event of
// each.
func (s *Sender) ended(entries []*sending, last func(i int) Event) {
	s.claims.forget(entries...)
	for i, e := range entries {
		if e != nil {
			e.file.Load().close()
			ev := last(i)
			ev.Index, ev.Entry = e.index, &e.item.Entry
			s.side.event(ev)
		}
	}
	s.prune()
}

// answer acts on a verdict that does not settle its entry.
func (s *Sender) answer(a *wire.Answer) error {
	e, err := s.manifest.find(a.Index)
	if e == nil {
		return err // nil if it failed here meanwhile
	}
	switch a.Verdict {
	case wire.Fail:
		if s.resolve(e, true) {
			err := &wire.Error{Code: a.Code, Text: a.Text, Remote: true}
			s.report(e, Event{Kind: Failed, Err: err})
		}
	case wire.Hash:
		return s.compares.start(e, a.Digest, s.readFailed)
	case wire.Need:
		return s.need(e, a)
	}
	return nil
}

// need offers the blocks that the receiver lacks, and digests those that it has: the root digest is
// that of the file as it is now.
func (s *Sender) need(e *sending, a *wire.Answer) error {
	have, err := s.offerNeeded(e, a)
	if err != nil {
		return err
	}
	bytes := int64(0)
	if e.item.Stream == nil {
		bytes = bytesOf(have, e.item.Entry.Size, e.item.Entry.BlockLog)
	}
	s.side.counts.resumed.Add(bytes)
	s.side.event(Event{Kind: Started, Index: e.index, Entry: &e.item.Entry, Bytes: bytes})
	if !have.Empty() && !e.item.Early {
		known := have // a copy, so that only such entries pay for the closure
		s.side.running.Go(func() { s.recheck(e, known) })
	}
	return nil
}

// offerNeeded offers what the receiver lacks, and returns what it has.
func (s *Sender) offerNeeded(e *sending, a *wire.Answer) (have blockset.Set, err error) {
	delta := a.Delta != wire.DeltaNone
	switch {
	case e.answered || e.item.Entry.Kind != wire.File:
		return have, protocolError("entry %d cannot have this answer", e.index)
	case delta && (e.item.Content == nil || e.fixed < 2 || e.item.part() != nil):
		return have, protocolError("entry %d takes no delta", e.index)
	case e.item.Stream != nil: // its feed offers the blocks
		e.answered = true
		s.claims.setAnswered()
		return have, nil
	}
	if have = blockset.Of(a.Have); have.End() > e.fixed || e.outside(have) {
		return have, protocolError("entry %d has no such blocks", e.index)
	}
	e.answered = true
	if delta {
		d := newDeltaSend(a.Delta, a.Old)
		s.deltas.start(e, d, s.claims.needDelta(e, have, d), s)
	} else {
		s.claims.need(e, e.notNeeded(have))
	}
	return have, nil
}

// recheck digests blocks that the receiver has already, while the others travel.
func (s *Sender) recheck(e *sending, have blockset.Set) {
	defer s.side.checking()()
	buf := make([]byte, 1<<e.item.Entry.BlockLog)
	var hash digest.Hasher
	for b := range have.Blocks() {
		if s.side.over() || e.closed.Load() {
			return
		}
		if e.hasNode(b) {
			continue
		}
		if err := s.recheckBlock(e, b, buf, &hash); err != nil {
			s.readFailed(e, err)
			return
		}
	}
	s.entryRead(e)
}

func (s *Sender) recheckBlock(e *sending, block int64, buf []byte, hash *digest.Hasher) error {
	if e.item.Entry.Holes {
		if hole, err := e.skipHole(s.claims, block); hole || err != nil {
			return err
		}
	}
	if _, _, err := e.readBlock(nil, block, buf, hash); err != nil {
		return err
	}
	e.addNode(block, hash.Sum())
	return nil
}

// written counts acknowledged blocks. Neighbours of one entry make one event.
func (s *Sender) written(blocks []wire.BlockID) error {
	now := s.claims.now()
	var e *sending
	ev := Event{Kind: Written}
	report := func() {
		if ev.Bytes > 0 {
			s.side.event(ev)
		}
		ev.Bytes, ev.Copied = 0, 0
	}
	for i, id := range blocks {
		if i == 0 || id.Index != blocks[i-1].Index {
			report()
			var err error
			if e, err = s.manifest.find(id.Index); err != nil {
				return err
			}
			if e != nil {
				ev.Index, ev.Entry = e.index, &e.item.Entry
			}
		}
		if e == nil {
			continue
		}
		n, fresh, err := s.claims.written(e, id.Block, now)
		if err != nil {
			return err
		}
		ev.Bytes += n
		ev.Copied += n - fresh
	}
	report()
	return nil
}

// placed ends entries whose digests the receiver has compared, and which have their names at the
// target.
func (s *Sender) placed(m *wire.Placed) error {
	for _, x := range m.Entries {
		all, err := s.manifest.findRun(uint64(x.Start), uint64(x.Count))
		if err != nil {
			return err
		}
		digests := make([][32]byte, len(all))
		for i, e := range all {
			var ok bool
			if digests[i], ok = e.sentWhole(); !ok {
				return protocolError("the receiver committed %q before it had all of it", e.item.Entry.Path)
			}
		}
		s.manifest.place(all)
		s.ended(all, func(i int) Event { return Event{Kind: Committed, Digest: digests[i]} })
	}
	return nil
}

// entryRead sends size and root digest once each block is digested, if the source is still what it
// was.
func (s *Sender) entryRead(e *sending) {
	m := e.end()
	if m == nil {
		return
	}
	if f := e.file.Load(); f != nil {
		if err := f.unchanged(); err != nil {
			s.readFailed(e, err)
			return
		}
	}
	if err := e.compare(m); err != nil {
		s.readFailed(e, err)
		return
	}
	s.send(m)
}

// readFailed gives up an entry that cannot be read. One that only changed is announced again. After
// the end of the session nothing is wrong with the entry: its reader gave up.
func (s *Sender) readFailed(e *sending, err error) {
	if s.side.over() {
		return
	}
	s.endIfTooManyFiles(err)
	changed := errors.Is(err, disk.ErrChanged)
	var known *wire.Error
	text := withoutPath(err.Error(), err, func(at string) bool { return strings.HasSuffix("/"+e.item.Entry.Path, "/"+at) })
	switch {
	case changed && e.tries < 2 && e.canRefresh():
		if s.manifest.change(e) {
			s.claims.close(e)
		}
	case changed:
		s.failEntry(e, &wire.Error{Code: wire.CodeChanged, Text: text})
	case errors.As(err, &known) && known.Code == wire.CodeIntegrity:
		s.failEntry(e, known)
	default:
		s.failEntry(e, &wire.Error{Code: unreadable(err), Text: text})
	}
}

// unreadable is the code of an entry that cannot be read.
func unreadable(err error) wire.Code {
	if errors.Is(err, fs.ErrNotExist) {
		return wire.CodeNotFound
	}
	return wire.CodeSourceDisk
}

// endIfTooManyFiles ends the session, to be tried again, if too many files are open here: other
// entries would fail as well.
func (s *Sender) endIfTooManyFiles(err error) {
	if errors.Is(err, disk.ErrTooManyFiles) {
		s.end(&wire.Error{Code: wire.CodeBusy, Text: err.Error()})
	}
}

// failEntry ends an entry on both sides.
func (s *Sender) failEntry(e *sending, err *wire.Error) {
	if s.resolve(e, true) {
		s.send(&wire.EntryFailed{Index: e.index, Code: err.Code, Text: err.Text})
		s.report(e, Event{Kind: Failed, Err: err})
	}
}

// resolve removes an entry. It returns false if that was done before.
func (s *Sender) resolve(e *sending, failed bool) bool {
	if !s.manifest.remove(e, failed) {
		return false
	}
	s.claims.forget(e)
	e.file.Load().close()
	return true
}

// report reports the last event of an entry that the caller has resolved.
func (s *Sender) report(e *sending, ev Event) {
	ev.Index, ev.Entry = e.index, &e.item.Entry
	s.side.event(ev)
	s.prune()
}

// prune has the receiver remove what the source does not have, once each entry is resolved. If
// something failed, the source may have more than is known, and nothing is removed.
func (s *Sender) prune() {
	now, failures := s.manifest.pruneNow()
	if !now {
		return
	}
	m := &wire.Prune{}
	if failures {
		s.side.event(Event{Kind: NotPruned})
	} else {
		m.Folders = s.source.Folders()
	}
	s.send(m)
}
