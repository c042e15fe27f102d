package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/blake3tree"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// File is an open source file.
type File interface {
	io.ReaderAt
	io.Closer
	Unchanged() error // whether the file is still the one that was opened; disk.ErrChanged if not
}

// Item is one entry of a Source. Exactly one of Open and Stream is set for a File entry.
type Item struct {
	Entry   wire.Entry
	Open    func() (File, error)
	Refresh func() (Item, error) // the entry as it is now, after it changed
	Stream  io.Reader            // a file of unknown length, read once
}

// Source lists what is to be sent.
type Source interface {
	// Walk calls visit for each item in manifest order, and failed for what cannot be listed. It ends early with
	// visit's error.
	Walk(ctx context.Context, visit func(Item) error, failed func(path string, err error)) error
	// Single tells that there is exactly one entry, a regular file or stream.
	Single() bool
}

// SenderOptions tune a Sender. Zero is right for all.
type SenderOptions struct {
	Event      func(Event)        // progress; nil for none
	Speculate  bool               // send the first blocks before the receiver's answer
	Streams    int                // data streams that will come at once, if known
	Message    func(wire.Message) // messages that are not the engine's
	WalkFailed func(path string, err error)
}

// Sender sends a Source over one session.
//
// Streams claim blocks: whoever is ready takes the next one, so a fast stream carries more. A block is in flight until the
// receiver says that it is written; what a dead stream had in flight goes back to be claimed.
type Sender struct {
	opt    SenderOptions
	source Source
	ctrl   *control
	reader *wire.Reader

	mu         sync.Mutex
	cond       *sync.Cond
	entries    map[uint64]*sending // announced and not resolved
	open       int                 // of these, files of more than one block
	ready      []*sending          // those with blocks to claim, in manifest order
	next       uint64              // number of the next entry
	walked     bool
	answered   bool          // the receiver has answered at all
	speculated int64         // bytes of entries sent ahead of their answers
	changed    []*sending    // to be announced again
	offered    int64         // blocks that became claimable
	acked      bool          // a block was acknowledged
	active     int           // streams that may claim, 0 for all
	latency    time.Duration // of a block, from claim to acknowledgement, smoothed
	timer      *time.Timer   // wakes an idle stream that waits for a block to be overdue
	over       bool          // no more blocks: finished or failed
	streams    map[uint64]*sendStream
	stats      Stats

	running sync.WaitGroup // streams and background checks
	ctx     context.Context
	stop    context.CancelCauseFunc
	events  sync.Mutex
}

// sending is an entry under way. Fields below mu are guarded by Sender.mu.
type sending struct {
	index uint64
	item  Item
	tries int

	file   sync.Mutex // guards the next three
	handle File
	users  int
	unused bool // close when the last user leaves

	answered bool
	queued   bool // in Sender.ready
	resolved bool
	changed  bool  // to be announced again; nothing more is claimed
	told     bool  // EndEntry was sent
	blocks   int64 // number of blocks; of a stream that has not ended: those read so far
	ended    bool  // blocks is final
	size     int64
	todo     extents
	flying   map[int64]flight
	sent     extents // blocks that left at least once
	tree     hashTree
	kept     map[int64][]byte // blocks of a stream until they are acknowledged
}

// NewSender prepares a session on a control stream whose opening messages have been exchanged. r is the Reader of
// that stream.
func NewSender(stream io.ReadWriteCloser, r *wire.Reader, source Source, opt SenderOptions) *Sender {
	s := &Sender{
		opt: opt, source: source, ctrl: newControl(stream), reader: r,
		entries: make(map[uint64]*sending), streams: make(map[uint64]*sendStream),
	}
	s.cond = sync.NewCond(&s.mu)
	s.timer = time.AfterFunc(time.Hour, s.wake)
	s.timer.Stop()
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// errFinished is the cause of a session's good end.
var errFinished = errors.New("finished")

// Run sends everything. It returns nil when the receiver has resolved each entry, well or badly: the events tell. On an
// error the receiver keeps what it has for a later session. Run closes all data streams, not the control stream, and
// returns after all of its goroutines have ended; only a read from Item.Stream may linger.
func (s *Sender) Run(ctx context.Context) error {
	unhook := context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	defer unhook()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := s.walk(); err != nil {
			s.end(err)
		}
	})
	tasks.Go(func() {
		if err := s.ctrl.write(); err != nil {
			s.end(fmt.Errorf("control stream: %w", err))
		}
	})
	tasks.Go(func() { s.ctrl.ping(s.ctx.Done()) })
	tasks.Go(func() { s.end(s.ctrl.read(s.reader, s.handle)) })
	tasks.Wait()
	s.running.Wait()
	s.closeFiles()
	if cause := context.Cause(s.ctx); !errors.Is(cause, errFinished) {
		return cause
	}
	return nil
}

// end stops claims, messages and waits. The first cause counts; nil is a good end.
func (s *Sender) end(cause error) {
	if cause == nil {
		cause = errFinished
	}
	s.mu.Lock()
	first := !s.over
	s.over = true
	s.cond.Broadcast()
	s.mu.Unlock()
	if first {
		s.timer.Stop()
		s.stop(cause)
		s.closeStreams()
		s.ctrl.end(cause)
	}
}

func (s *Sender) closeStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		s.running.Go(func() { _ = st.stream.Close() }) // may wait for a write under way
	}
}

func (s *Sender) closeFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		e.close()
	}
}

// Done is closed when the session is over on this side, before its streams are closed.
func (s *Sender) Done() <-chan struct{} { return s.ctx.Done() }

// Stats returns the counters so far.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Send queues a message that is not the engine's.
func (s *Sender) Send(m wire.Message) { s.ctrl.send(m) }

func (s *Sender) event(ev Event) {
	if s.opt.Event != nil {
		s.events.Lock()
		defer s.events.Unlock()
		s.opt.Event(ev)
	}
}

// walk announces the source's items.
func (s *Sender) walk() error {
	s.ctrl.send(&wire.Manifest{Single: s.source.Single()})
	var batch []*sending
	var size int // of their names, bytes
	flush := func() {
		s.tell(batch)
		batch, size = batch[:0], 0
	}
	visit := func(item Item) error {
		for !s.room() {
			flush()
			old, ok := s.waitRoom()
			if !ok {
				return context.Cause(s.ctx)
			}
			if old != nil {
				s.again(old) // it keeps its place until then
			}
		}
		batch = append(batch, s.announce(item))
		if size += len(item.Entry.Path) + len(item.Entry.Link); len(batch) == 256 || size > wire.MaxMessage/4 {
			flush()
		}
		return nil
	}
	failed := func(path string, err error) {
		s.ctrl.send(&wire.EntryFailed{Index: wire.NoEntry, Code: wire.CodeSourceDisk, Text: err.Error()})
		if s.opt.WalkFailed != nil {
			s.opt.WalkFailed(path, err)
		}
	}
	err := s.source.Walk(s.ctx, visit, failed)
	flush()
	if s.ctx.Err() != nil {
		return nil // whoever ended the session has the error
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
	}
	s.event(Event{Kind: Listed})
	s.mu.Lock()
	s.walked = true
	count := s.next
	s.mu.Unlock()
	s.ctrl.send(&wire.EndManifest{Count: count})
	for old := s.nextChanged(); old != nil; old = s.nextChanged() {
		s.again(old)
	}
	return nil
}

// nextChanged waits for an entry that is to be announced again. It returns nil when the session is over.
func (s *Sender) nextChanged() *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && len(s.changed) == 0 {
		s.cond.Wait()
	}
	if s.over {
		return nil
	}
	e := s.changed[0]
	s.changed = s.changed[1:]
	return e
}

// again announces a changed file as a new entry. The manifest's end is told anew before the old entry fails, so the
// receiver cannot finish in between.
func (s *Sender) again(old *sending) {
	item, err := old.item.Refresh()
	if err != nil {
		s.failEntry(old, &wire.Error{Code: wire.CodeChanged, Text: err.Error()})
		return
	}
	s.mu.Lock()
	walked, resolved := s.walked, old.resolved
	s.mu.Unlock()
	if resolved { // the receiver gave it up meanwhile
		return
	}
	e := s.announce(item)
	e.tries = old.tries + 1
	if walked {
		s.ctrl.send(&wire.EndManifest{Count: e.index + 1})
	}
	if s.resolve(old) {
		s.ctrl.send(&wire.EntryFailed{Index: old.index, Code: wire.CodeAgain})
		s.event(Event{Kind: Again, Index: old.index, Entry: &old.item.Entry})
	}
	s.tell([]*sending{e})
}

// tell sends announced entries to the receiver, then offers their blocks: nothing is said of an entry before it is known.
func (s *Sender) tell(batch []*sending) {
	if len(batch) == 0 {
		return
	}
	m := &wire.Entries{First: batch[0].index}
	for _, e := range batch {
		m.Entries = append(m.Entries, e.item.Entry)
	}
	s.ctrl.send(m)
	for _, e := range batch {
		s.offer(e)
	}
}

func (s *Sender) roomLocked() bool { return len(s.entries) < maxEntries && s.open < maxOpen }

func (s *Sender) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLocked()
}

// waitRoom waits for room, or for an entry that is to be announced again, which it returns. It returns false when the session is over.
func (s *Sender) waitRoom() (*sending, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && !s.roomLocked() && len(s.changed) == 0 {
		s.cond.Wait()
	}
	if s.over || s.roomLocked() {
		return nil, !s.over
	}
	e := s.changed[0]
	s.changed = s.changed[1:]
	return e, true
}

// announce numbers an item. Its blocks are not to be had before offer.
func (s *Sender) announce(item Item) *sending {
	e := &sending{item: item, size: item.Entry.Size}
	if item.Entry.Kind == wire.File {
		e.flying = make(map[int64]flight)
		if e.size >= 0 {
			e.blocks, e.ended = blocksOf(e.size, e.item.Entry.BlockLog), true
		} else {
			e.kept = make(map[int64][]byte)
		}
	}
	s.mu.Lock()
	e.index = s.next
	s.next++
	s.entries[e.index] = e
	if e.large() {
		s.open++
	}
	s.mu.Unlock()
	s.event(Event{Kind: Found, Index: e.index, Entry: &e.item.Entry})
	return e
}

// large tells whether the entry counts towards maxOpen.
func (e *sending) large() bool {
	return e.item.Entry.Kind == wire.File && (e.blocks > 1 || e.kept != nil)
}

// offer starts what may be sent before the receiver's answer. The first blocks of short files go at once, so that a short
// transfer saves a round trip; a long one would risk sending what the receiver has.
func (s *Sender) offer(e *sending) {
	if e.item.Stream != nil {
		s.running.Add(1)
		go s.feed(e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.item.Entry.Kind != wire.File || e.blocks == 0 || !s.opt.Speculate || s.answered || s.speculated > speculate {
		return
	}
	s.speculated += e.size
	e.todo.add(0, e.blocks)
	s.offered += e.blocks
	s.queueLocked(e)
}

func (s *Sender) queueLocked(e *sending) {
	if !e.queued && !e.resolved && !e.changed && len(e.todo) > 0 {
		e.queued = true
		s.ready = append(s.ready, e)
		s.cond.Broadcast()
	}
}

// keptBlocks bounds the blocks of a stream that are read and not acknowledged: it is the window of such a transfer.
const keptBlocks = 64

// feed reads a stream into blocks. It is waited for unless a read from the stream hangs.
func (s *Sender) feed(e *sending) {
	read := make(chan struct{})
	var buf []byte
	var n int
	var err error
	next := func() {
		buf = make([]byte, 1<<maxBlockLog)
		n, err = io.ReadFull(e.item.Stream, buf)
		read <- struct{}{}
	}
	defer s.running.Done()
	for {
		s.mu.Lock()
		for !s.over && !e.resolved && len(e.kept) >= keptBlocks {
			s.cond.Wait()
		}
		stop := s.over || e.resolved
		s.mu.Unlock()
		if stop {
			return
		}
		go next()
		select {
		case <-read:
		case <-s.ctx.Done():
			go func() { <-read }()
			return
		}
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			s.failEntry(e, &wire.Error{Code: wire.CodeSourceDisk, Text: "reading the stream: " + err.Error()})
			return
		}
		s.mu.Lock()
		if n > 0 {
			e.kept[e.blocks] = buf[:n]
			e.todo.add(e.blocks, 1)
			e.blocks++
			s.offered++
			s.queueLocked(e)
		}
		if end {
			e.ended = true
			e.size = max(0, e.blocks-1)<<maxBlockLog + int64(n)
			if n == 0 {
				e.size = e.blocks << maxBlockLog
			}
		}
		s.mu.Unlock()
		if end {
			s.endEntry(e)
			return
		}
	}
}

// read fills payload with a block of a file and digests it on the way.
func (s *Sender) read(e *sending, block int64, payload []byte, hash *blake3tree.Hasher) error {
	f, err := e.acquire()
	if err != nil {
		return err
	}
	defer e.release()
	off := block << e.item.Entry.BlockLog
	for at := 0; at < len(payload); at += piece {
		part := payload[at:min(len(payload), at+piece)]
		if n, err := f.ReadAt(part, off+int64(at)); n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: it is shorter than it was", disk.ErrChanged)
			}
			return err
		}
		hash.Write(part)
	}
	s.mu.Lock()
	s.stats.Read += int64(len(payload))
	s.mu.Unlock()
	return nil
}

// acquire opens the entry's file if it is not open.
func (e *sending) acquire() (File, error) {
	e.file.Lock()
	defer e.file.Unlock()
	if e.handle == nil {
		f, err := e.item.Open()
		if err != nil {
			return nil, err
		}
		e.handle = f
	}
	e.users++
	return e.handle, nil
}

// release undoes acquire.
func (e *sending) release() {
	e.file.Lock()
	defer e.file.Unlock()
	e.users--
	e.closeLocked()
}

// close closes the file when its last user leaves.
func (e *sending) close() {
	e.file.Lock()
	defer e.file.Unlock()
	e.unused = true
	e.closeLocked()
}

func (e *sending) closeLocked() {
	if e.handle != nil && e.users == 0 && (e.unused || e.blocks == 1) {
		_ = e.handle.Close()
		e.handle = nil
	}
}

// endEntry tells size and root digest once each block is digested, if the source is still what it was.
func (s *Sender) endEntry(e *sending) {
	s.mu.Lock()
	digest, whole := e.tree.root(e.blocks)
	size := e.size
	ready := whole && !e.resolved && !e.changed && !e.told
	e.told = e.told || ready
	s.mu.Unlock()
	if !ready {
		return
	}
	if e.item.Open != nil {
		if err := e.unchanged(); err != nil {
			s.sourceFailed(e, err)
			return
		}
	}
	s.ctrl.send(&wire.EndEntry{Index: e.index, Size: size, Digest: digest})
}

func (e *sending) unchanged() error {
	f, err := e.acquire()
	if err != nil {
		return err
	}
	defer e.release()
	return f.Unchanged()
}

// sourceFailed gives an entry up, or has it announced anew where it only changed.
func (s *Sender) sourceFailed(e *sending, err error) {
	if !errors.Is(err, disk.ErrChanged) {
		s.failEntry(e, &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()})
		return
	}
	if e.tries == 2 || e.item.Refresh == nil {
		s.failEntry(e, &wire.Error{Code: wire.CodeChanged, Text: err.Error()})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.changed {
		e.changed, e.todo = true, nil
		s.changed = append(s.changed, e)
		s.cond.Broadcast()
	}
}

// failEntry ends an entry on both sides.
func (s *Sender) failEntry(e *sending, err *wire.Error) {
	if s.resolve(e) {
		s.ctrl.send(&wire.EntryFailed{Index: e.index, Code: err.Code, Text: err.Text})
		s.event(Event{Kind: Failed, Index: e.index, Entry: &e.item.Entry, Err: err})
	}
}

// resolve removes an entry. It returns false if that was done before.
func (s *Sender) resolve(e *sending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.resolved {
		return false
	}
	e.resolved = true
	for block := range e.flying {
		e.landLocked(block, time.Time{})
	}
	clear(e.kept)
	e.todo = nil
	delete(s.entries, e.index)
	if e.large() {
		s.open--
	}
	s.cond.Broadcast()
	e.close()
	return true
}

// handle acts on a message of the receiver. It returns false after Finished.
func (s *Sender) handle(m wire.Message) (bool, error) {
	switch m := m.(type) {
	case *wire.Answers:
		for i := range m.Answers {
			if err := s.answer(&m.Answers[i]); err != nil {
				return false, err
			}
		}
	case *wire.Written:
		return true, s.written(m.Blocks)
	case *wire.Resend:
		return true, s.resend(m)
	case *wire.EntryFailed:
		if e := s.find(m.Index); e != nil && s.resolve(e) {
			s.event(Event{Kind: Failed, Index: e.index, Entry: &e.item.Entry, Err: &wire.Error{Code: m.Code, Text: m.Text, Remote: true}})
		}
	case *wire.Committed:
		return true, s.committed(m)
	case *wire.Finished:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.walked || len(s.entries) > 0 {
			return false, wire.Errorf(wire.CodeProtocol, "the receiver finished before the sender")
		}
		return false, nil
	default:
		if s.opt.Message != nil {
			s.opt.Message(m)
		}
	}
	return true, nil
}

func (s *Sender) find(index uint64) *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[index]
}

// answer acts on the receiver's verdict on an entry.
func (s *Sender) answer(a *wire.Answer) error {
	e := s.find(a.Index)
	if e == nil {
		return nil // it failed here meanwhile
	}
	ev := Event{Index: e.index, Entry: &e.item.Entry}
	switch a.Verdict {
	case wire.Same, wire.Done:
		if s.resolve(e) {
			ev.Kind = Same
			if a.Verdict == wire.Done {
				ev.Kind = Done
			}
			s.event(ev)
		}
		return nil
	case wire.Fail:
		if s.resolve(e) {
			ev.Kind, ev.Err = Failed, &wire.Error{Code: a.Code, Text: a.Text, Remote: true}
			s.event(ev)
		}
		return nil
	}
	have, bytes, err := s.need(e, a.Have)
	if err != nil {
		return err
	}
	ev.Bytes = bytes
	ev.Kind = Started
	s.event(ev)
	if len(have) > 0 {
		s.running.Add(1)
		go s.recheck(e, have)
	} else if e.item.Stream == nil && e.blocks == 0 {
		s.endEntry(e)
	}
	return nil
}

// need queues what the receiver lacks and returns what it has, and how many bytes that is.
func (s *Sender) need(e *sending, have extents) (_ extents, bytes int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.answered || e.item.Entry.Kind != wire.File {
		return nil, 0, wire.Errorf(wire.CodeProtocol, "entry %d cannot be answered so", e.index)
	}
	s.answered, e.answered = true, true
	if e.item.Stream != nil {
		return nil, 0, nil // feed offers its blocks
	}
	if n := len(have); n > 0 && have[n-1].Start+have[n-1].Count > e.blocks {
		return nil, 0, wire.Errorf(wire.CodeProtocol, "entry %d has no such blocks", e.index)
	}
	if e.sent == nil && len(e.todo) == 0 {
		e.todo.add(0, e.blocks)
		s.offered += e.blocks
	}
	for _, x := range have {
		e.todo.remove(x.Start, x.Count)
	}
	s.queueLocked(e)
	bytes = bytesOf(have, e.size, e.item.Entry.BlockLog)
	s.stats.Resumed += bytes
	return have, bytes, nil
}

// eachOf iterates over the blocks of a set.
func (e *sending) eachOf(x extents) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		for _, run := range x {
			for b := run.Start; b < run.Start+run.Count; b++ {
				if !yield(b) {
					return
				}
			}
		}
	}
}

// recheck digests the blocks that the receiver already has, while the others travel: the root digest is of the file as it
// is now.
func (s *Sender) recheck(e *sending, have extents) {
	defer s.running.Done()
	buf := make([]byte, 1<<maxBlockLog)
	var hash blake3tree.Hasher
	for b := range e.eachOf(have) {
		s.mu.Lock()
		skip := e.tree.has(b)
		stop := s.over || e.resolved
		s.mu.Unlock()
		if stop {
			return
		}
		if skip {
			continue
		}
		hash.Reset(b << e.item.Entry.BlockLog)
		if err := s.read(e, b, buf[:lengthOf(e.size, e.item.Entry.BlockLog, b)], &hash); err != nil {
			s.sourceFailed(e, err)
			return
		}
		node := hash.Sum()
		s.mu.Lock()
		e.tree.add(b, node)
		s.mu.Unlock()
	}
	s.endEntry(e)
}

// written counts acknowledged blocks.
func (s *Sender) written(blocks []wire.BlockID) error {
	now := time.Now()
	var last *sending
	var bytes int64
	tell := func() {
		if last != nil && bytes > 0 {
			s.event(Event{Kind: Written, Index: last.index, Entry: &last.item.Entry, Bytes: bytes})
		}
		bytes = 0
	}
	for _, id := range blocks {
		s.mu.Lock()
		e := s.entries[id.Index]
		if e == nil {
			s.mu.Unlock()
			continue
		}
		_, ok := e.flying[id.Block]
		if !ok && !e.sent.has(id.Block) {
			s.mu.Unlock()
			return wire.Errorf(wire.CodeProtocol, "block %d of entry %d was never sent", id.Block, id.Index)
		}
		var n int64
		if ok {
			n = s.lengthLocked(e, id.Block)
			s.tookLocked(e.landLocked(id.Block, now))
			delete(e.kept, id.Block)
			s.stats.Written += n
			if e.kept != nil || !s.acked {
				s.acked = true
				s.cond.Broadcast()
			}
		} else if e.todo.has(id.Block) { // written, though its stream died
			n = s.lengthLocked(e, id.Block)
			e.todo.remove(id.Block, 1)
			delete(e.kept, id.Block)
			s.stats.Written += n
		}
		s.mu.Unlock()
		if e != last {
			tell()
			last = e
		}
		bytes += n
	}
	tell()
	return nil
}

// resend queues blocks that the receiver had and found damaged.
func (s *Sender) resend(m *wire.Resend) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[m.Index]
	if e == nil {
		return nil
	}
	for _, x := range m.Blocks {
		if x.Start+x.Count > e.blocks || e.kept != nil {
			return wire.Errorf(wire.CodeProtocol, "entry %d has no such blocks", m.Index)
		}
		s.stats.Rejected += x.Count
		for b := range e.flying {
			if b >= x.Start && b < x.Start+x.Count {
				e.landLocked(b, time.Time{})
			}
		}
		e.todo.add(x.Start, x.Count)
	}
	s.queueFrontLocked(e)
	return nil
}

// committed compares the digest that the receiver committed with ours.
func (s *Sender) committed(m *wire.Committed) error {
	e := s.find(m.Index)
	if e == nil {
		return nil
	}
	s.mu.Lock()
	digest, whole := e.tree.root(e.blocks)
	s.mu.Unlock()
	if !whole || digest != m.Digest {
		return wire.Errorf(wire.CodeIntegrity, "the receiver committed %q with another digest", e.item.Entry.Path)
	}
	if s.resolve(e) {
		s.event(Event{Kind: Committed, Index: e.index, Entry: &e.item.Entry, Digest: digest})
	}
	return nil
}
