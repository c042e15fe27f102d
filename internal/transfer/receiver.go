package transfer

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// ReceiverOptions tune a Receiver. The zero value is right for all but Path.
type ReceiverOptions struct {
	// Path is the target below the tree, "." for the tree itself. An existing folder, or a path
	// that ends with a slash, takes the entries in. Otherwise a single file gets this name, and
	// several entries make a new folder of it.
	Path    string
	Target  wire.Target
	Names   []string           // the first elements of paths that were asked for; nil for any
	Leave   bool               // return without waiting for the sender to see that all is done
	Event   func(*Event)       // takes progress; nil for none
	Message func(wire.Message) // takes messages that are not the engine's
	// Finishing is called when all is done, just before the sender hears of it; nil for none. It
	// may Send.
	Finishing func()
	Clock     *Clock       // takes the times of the stages; nil for none
	Snapshot  *Snapshot    // the tree is to be a snapshot; nil if not
	Early     bool         // take only files that still grow, and keep them without names
	Range     *wire.Range  // take only this range of each file; nil for whole files
	Quota     Quota        // of the target; nil for none
	Memory    *Account     // for entries under way, with other sessions; nil for no bound
	Files     *ClientFiles // for entries under way, too; nil for no bound
}

// Receiver writes what one session's sender announces below a folder. Everything that it reads from
// its streams is hostile until checked. What goes wrong with one entry fails that entry only.
//
// Where two locks are held, they are taken in this order: committer.mu before table.mu;
// pruner.asking before pruner.mu; receiving.mu before deltaReceive.mu and pump.mu. All others are
// leaves.
type Receiver struct {
	opt       ReceiverOptions
	side      *side
	table     *table
	target    *target
	comparer  *comparer
	links     *linker
	offers    offers
	committer *committer
	pruner    *pruner
	streams   streamSet
	answers   []wire.Answer // room for those to a message of entries; only entries uses it
	lookahead *lookahead    // the same

	failed, grave atomic.Int64 // entries; see isGrave
	finished      atomic.Bool  // the sender is about to hear that all is done
	hopeless      atomic.Bool  // the session ends because nothing more can be written
}

// NewReceiver prepares a session on a control stream after its opening messages. r is the Reader of
// that stream.
func NewReceiver(
	stream io.ReadWriteCloser, r *wire.Reader, tree *access.Scope, opt ReceiverOptions,
) *Receiver {
	v := &Receiver{opt: opt, table: newTable(opt.Memory, opt.Files)}
	v.side = newSide(stream, r, opt.Clock, v.count, opt.Message)
	v.target = &target{
		ctx: v.side.ctx, tree: tree, opt: opt.Target, path: opt.Path, names: opt.Names,
		snapshot: opt.Snapshot,
		usage:    &usage{ctx: v.side.ctx, quota: opt.Quota}, busyUntil: time.Now().Add(busyFor),
	}
	v.target.meta = disk.TargetOptions{
		Sync: disk.Sync(opt.Target.Sync), Owner: true, Xattrs: true, Privileged: tree.Privileged(),
		Warn: v.target.warnings.add, Syncing: opt.Clock.syncing,
	}
	v.target.remover = &remover{side: v.side, target: v.target}
	v.committer = newCommitter(v.side, v.target, opt.Target.Readback, v.table.underWay, v)
	v.target.flush = v.committer.flushNow
	v.lookahead = &lookahead{look: v.target.look}
	v.pruner = newPruner(v.side, v.target, v.end)
	v.links = &linker{target: v.target, table: v.table}
	v.offers = newOffers(v.side, v.target, opt.Memory)
	v.comparer = &comparer{
		side: v.side, target: v.target, table: v.table, links: v.links, offers: &v.offers,
		events: v, slots: make(chan struct{}, comparesAtOnce),
	}
	return v
}

// Run receives everything. It returns nil once each entry is resolved, well or badly, and the
// sender knows it. After an error, partial files stay for a later session. Run closes all data
// streams, but not the control stream. It returns after all of its goroutines have ended.
func (v *Receiver) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { v.end(context.Cause(ctx)) })()
	var tasks sync.WaitGroup
	for range namers {
		tasks.Go(v.committer.run)
	}
	v.side.pump.start(&tasks, v.side.ctx.Done(), v.handle, v.end)
	tasks.Wait()
	v.side.running.Wait()
	v.keepPartials()
	return v.side.result()
}

// end ends the session, once. nil is a good end, and so is anything after the sender has heard that
// all is done.
func (v *Receiver) end(cause error) {
	if cause == nil || v.finished.Load() {
		cause = errFinished
	}
	v.side.ending.Do(func() {
		v.side.stop(cause)
		v.table.end()
		v.committer.end()
		for _, s := range v.streams.end() {
			v.side.running.Go(func() { _ = s.Close() }) // it may wait for a write that is under way
		}
		v.side.pump.end(cause)
	})
}

// keepPartials closes what is not finished, for a later session.
func (v *Receiver) keepPartials() {
	rest := v.table.rest()
	for _, e := range rest {
		e.leavePart(false)
		v.target.usage.settle(e, e.partial() != nil)
	}
	v.table.giveFiles()
	if len(rest) > 0 {
		v.target.usage.freed() // what cannot be resumed
	}
	v.committer.discard()
}

// Drain makes everything written so far durable and ends the session with CodeDraining.
func (v *Receiver) Drain(ctx context.Context) {
	v.committer.flushNow()
	for _, p := range v.partials() {
		_ = p.Checkpoint(ctx) // what it cannot keep will be sent again
	}
	v.committer.drain(ctx)
	v.end(wire.Errorf(wire.CodeDraining, "the server is shutting down"))
}

// AtRisk returns for how long something has been written that a power cut would still take, in
// files that have checkpoints.
func (v *Receiver) AtRisk() (longest time.Duration) {
	for _, p := range v.partials() {
		longest = max(longest, p.AtRisk())
	}
	return longest
}

// partials returns the partial files under way.
func (v *Receiver) partials() (parts []partialFile) {
	for _, e := range v.table.rest() {
		if p := e.partial(); p != nil {
			parts = append(parts, p)
		}
	}
	return parts
}

// Done is closed when the session is over on this side, before its streams are closed.
func (v *Receiver) Done() <-chan struct{} { return v.side.ctx.Done() }

// Stats returns the counters so far.
func (v *Receiver) Stats() Stats { return v.side.counts.stats() }

// Send queues a message that is not the engine's.
func (v *Receiver) Send(m wire.Message) { v.send(m) }

func (v *Receiver) send(m wire.Message) { v.side.pump.send(m) }

// count counts the failures among the events, and passes all on.
func (v *Receiver) count(ev *Event) {
	if ev.Kind == Failed {
		v.failed.Add(1)
		if isGrave(ev.Err) {
			v.grave.Add(1)
		}
	}
	if v.opt.Event != nil {
		v.opt.Event(ev)
	}
}

// AddStream reads blocks from a data stream until it ends, fails, or the session is over. The
// receiver closes it.
func (v *Receiver) AddStream(stream Stream) {
	in := inbox{
		side: v.side, table: v.table, target: v.target, committer: v.committer, fail: v.fail, keep: v.keepEarly,
	}
	in.from.stream = stream
	ok := v.streams.add(stream, func() {
		v.side.running.Go(func() {
			err := in.run(v.opt.Clock)
			var known *wire.Error
			if errors.As(err, &known) || errors.Is(err, wire.ErrMalformed) {
				v.end(err) // it breaks the protocol; a broken connection costs only the stream
			}
			_ = stream.Close() // not before: a peer that sees it may end the session, and the reason would be lost
			v.streams.remove(stream)
		})
	})
	if !ok {
		_ = stream.Close()
	}
}

// handle acts on a message of the sender.
func (v *Receiver) handle(m wire.Message) (bool, error) {
	if v.hopeless.Load() {
		return true, nil // the end is under way
	}
	switch m := m.(type) {
	case *wire.Manifest:
		return true, v.begin(m)
	case *wire.Entries:
		lap := v.opt.Clock.start(Compare)
		defer lap.stop()
		return true, v.entries(m)
	case *wire.EndManifest:
		v.side.event(Event{Kind: Listed})
		done, err := v.table.endManifest(m.Count)
		if err != nil {
			return false, err
		}
		v.setFolders(done)
		v.finish()
	case *wire.Compared:
		return true, v.comparer.compared(v.table.find(m.Index), m)
	case *wire.Pick:
		return true, v.offers.handle(v.table.find(m.Index), m)
	case *wire.Ask:
		return true, v.offers.handle(v.table.find(m.Index), m)
	case *wire.Empty:
		return true, v.offers.handle(v.table.find(m.Index), m)
	case *wire.EndEntry:
		return true, v.endEntry(m)
	case *wire.EntryFailed:
		v.entryFailed(m)
	case *wire.Warning:
		v.side.event(warned(m))
	case *wire.Prune:
		if err := v.table.setPrune(m); err != nil {
			return false, err
		}
		v.finish()
	case *wire.Extra:
		return true, v.pruner.answer(m)
	default:
		v.side.other(m)
	}
	return true, nil
}

// begin takes the beginning of the manifest.
func (v *Receiver) begin(m *wire.Manifest) error {
	if err := v.table.start(m.Prune); err != nil {
		return err
	}
	if m.Prune != v.opt.Target.Delete {
		return protocolError("one side prunes, the other does not")
	}
	v.offers.on = m.Delta
	return v.target.begin(m.Single)
}

// entries answers newly announced entries. It keeps nothing of m but strings and attributes.
func (v *Receiver) entries(m *wire.Entries) error {
	if err := v.table.startBatch(m); err != nil {
		return err
	}
	if err := v.table.reserve(v.side.ctx, m.Entries); err != nil {
		return err
	}
	answers := wire.Answers{Answers: v.answers[:0]}
	v.lookahead.begin(m.Entries)
	defer v.lookahead.end()
	var needed []*receiving
	for i := range m.Entries {
		e, a := v.entry(m.First+uint64(i), &m.Entries[i], v.lookahead.at(i))
		if v.side.over() {
			return errClosed
		}
		if v.hopeless.Load() {
			return nil // the end is under way
		}
		if a.Verdict != 0 {
			answers.Answers = append(answers.Answers, a)
		}
		if a.Verdict == wire.Need {
			needed = append(needed, e)
		}
	}
	if len(answers.Answers) > 0 {
		v.send(&answers)
	}
	for i := range answers.Answers {
		if a := &answers.Answers[i]; a.Verdict == wire.Need {
			v.goOn(needed[0], a)
			needed = needed[1:]
		}
	}
	if cap(answers.Answers) <= 2*announceMost {
		v.answers = answers.Answers
	}
	v.table.endBatch()
	v.committer.flushIdle()
	v.finish()
	return nil
}

// entry takes one entry in and returns the answer to it; one without verdict comes later. Once a
// Need is on its way, the caller calls goOn.
func (v *Receiver) entry(index uint64, x *wire.Entry, seen *destination) (e *receiving, a wire.Answer) {
	a = wire.Answer{Index: index}
	placed, err := seen.misplaced == nil, seen.err
	done, free := v.table.reach(x.Path)
	if len(done) > 0 {
		v.setFolders(done)
	}
	v.side.event(Event{Kind: Found, Index: index, Entry: x})
	if err == nil && free && !v.opt.Early && v.opt.Range == nil && v.comparer.isSameFile(x, &seen.meta, &seen.have) {
		a.Verdict = wire.Same
		v.table.pass(x)
		v.side.event(Event{Kind: Same, Index: index, Entry: x, At: seen.meta.Path})
		return nil, a
	}
	e = &receiving{index: index, entry: *x, meta: seen.meta, held: heldBy(x), short: -1, early: v.opt.Early}
	v.table.add(e)
	switch {
	case placed && v.opt.Early:
		err = v.comparer.early(e, err, &a)
	case placed && v.opt.Range != nil && x.Kind != wire.Dir:
		err = v.comparer.ranged(e, v.opt.Range, &a)
	case placed:
		err = v.comparer.decide(e, seen.have, err, &a)
	}
	if v.endIfHopeless(err) {
		return e, wire.Answer{}
	}
	setFailed(&a, err, e.meta.Path)
	if a.Verdict != 0 && a.Verdict != wire.Hash && a.Verdict != wire.Need {
		e.resolve() // before a block that came without waiting is let in
	}
	v.table.ready()
	switch a.Verdict {
	case 0, wire.Hash: // more comes
		if e.isRange() {
			v.stageRange(e)
		}
	case wire.Need:
		v.need(e, &a)
	default:
		v.finishEntry(e, verdictEvent(e, &a))
	}
	return e, a
}

// setFailed makes an answer that of an entry that failed, if it did. The entry has this path in the
// target's tree.
func setFailed(a *wire.Answer, err error, path string) {
	if err != nil {
		known := entryError(err, path)
		a.Verdict, a.Code, a.Text = wire.Fail, known.Code, known.Text
	}
}

// verdictEvent is the event of a verdict that ends an entry.
func verdictEvent(e *receiving, a *wire.Answer) Event {
	if a.Verdict == wire.Fail {
		return Event{Kind: Failed, Err: &wire.Error{Code: a.Code, Text: a.Text}}
	}
	return Event{Kind: outcomes[a.Verdict], New: a.New, Reused: e.reused}
}

// conclude answers for an entry later than with the others of its message.
func (v *Receiver) conclude(e *receiving, a *wire.Answer, err error) {
	if v.endIfHopeless(err) {
		return
	}
	setFailed(a, err, e.meta.Path)
	v.send(&wire.Answers{Answers: []wire.Answer{*a}})
	if a.Verdict == wire.Need {
		v.need(e, a)
		v.goOn(e, a)
	} else {
		v.resolve(e, verdictEvent(e, a))
	}
}

// need begins to receive a file that is ready for its data. Its first blocks may be there already.
func (v *Receiver) need(e *receiving, a *wire.Answer) {
	bytes := bytesOf(blockset.Of(a.Have), e.entry.Size, e.entry.BlockLog)
	v.side.counts.resumed.Add(bytes)
	v.side.event(Event{Kind: Started, Index: e.index, Entry: &e.entry, Bytes: bytes})
	if e.entry.Size == 0 {
		if staged := v.committer.stageWhole(nil, e, digest.Empty(), nil, nil); staged != nil {
			v.committer.add(stagedFile{e, staged})
		}
	}
}

// goOn rechecks the blocks of an earlier run, and offers the old version. The answer that they are
// there must be on its way: if damaged blocks were asked for before it, the sender would take it
// for the later news.
func (v *Receiver) goOn(e *receiving, a *wire.Answer) {
	if len(a.Have) > 0 && !e.early {
		have := blockset.Of(a.Have)
		v.side.running.Go(func() { v.recheck(e, have) })
	}
	if d := e.oldVersion(); d != nil {
		v.offers.start(e, d, v.fail)
	}
}

// endEntry takes the end of a file of several blocks.
func (v *Receiver) endEntry(m *wire.EndEntry) error {
	e := v.table.find(m.Index)
	if e == nil {
		if !v.table.announced(m.Index) {
			return protocolError("end of an entry that does not exist")
		}
		return nil
	}
	partErr, err := e.finish(m)
	if partErr != nil {
		v.fail(e, partErr)
	} else if err == nil {
		v.committer.commitComplete(e)
	}
	return err
}

// entryFailed ends an entry that failed at the sender.
func (v *Receiver) entryFailed(m *wire.EntryFailed) {
	err := &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
	if m.Index == wire.NoEntry {
		v.side.event(Event{Kind: Failed, Index: m.Index, Entry: new(wire.Entry), Err: err})
	} else if e := v.table.find(m.Index); e != nil {
		v.fail(e, err)
	}
}
