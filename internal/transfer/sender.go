package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3/guts"
)

// File is an open source file.
type File interface {
	io.ReaderAt
	io.Closer
	Unchanged() error // whether the file is still the one that was opened; disk.ErrChanged if not
}

// A File that has ranges without data tells those that have some.
type sparseFile interface {
	Data(off, n int64) ([]disk.Range, error)
}

// Item is one entry of a Source. Exactly one of Open and Stream is set for a File entry.
type Item struct {
	Entry   wire.Entry
	Names   uint64 // of the file, hard links
	Unread  error  // why Entry.Xattrs lacks some
	Open    func() (File, error)
	Read    func([]byte) error   // fills it with all of a file of this size, or fails if that changed; nil if there is only Open
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
	// Folders are the paths, in the manifest, of the folders that are sent with all they hold.
	Folders() []string
	// Has tells whether the source has an entry of this path of the manifest, or leaves it to the target.
	Has(path string) (bool, error)
}

// SenderOptions tune a Sender. Zero is right for all.
type SenderOptions struct {
	Event      func(Event)        // progress; nil for none
	Speculate  bool               // send the first blocks before the receiver's answer
	Streams    int                // data streams that will come at once, if known
	Message    func(wire.Message) // messages that are not the engine's
	WalkFailed func(path string, err error)
	Prune      bool            // have the receiver remove what the source does not have, if nothing failed
	Coder      *compress.Meter // decides on compression; nil for none
	Clock      *Clock          // takes the times of the stages; nil for none
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

	mu          sync.Mutex
	cond        *sync.Cond          // streams wait here for blocks, feeds for room
	room        *sync.Cond          // the walk waits here for room
	parked      *sync.Cond          // streams that are not used wait here
	entries     map[uint64]*sending // announced and not resolved
	open        int                 // weight of these
	held        int                 // bytes of their names and attributes
	digestsHeld int                 // bytes of digests of old versions
	ready       []*sending          // files of several blocks, and streams, with blocks to claim, in manifest order
	small       []*sending          // files of one block to claim, in manifest order
	bytes       int64               // of all files announced
	failures    bool                // something failed, so nothing is removed
	pruned      bool                // Prune was sent
	firsts      map[fileID]first    // announced files of several names
	folders     chan *wire.Folder   // questions of the receiver
	next        uint64              // number of the next entry
	listed      bool                // EndManifest is on its way
	walked      bool                // it was queued
	answered    bool                // the receiver has answered at all
	speculated  int64               // bytes of entries sent ahead of their answers
	changed     []*sending          // to be announced again
	offered     int64               // blocks that became claimable
	acked       bool                // a block was acknowledged
	active      int                 // streams that may claim, 0 for all
	latency     time.Duration       // of a block, from claim to acknowledgement, smoothed
	timer       *time.Timer         // wakes an idle stream that waits for a block to be overdue
	scanned     time.Time           // when blocks were last looked through for that
	over        bool                // no more blocks: finished or failed
	streams     map[uint64]*sendStream
	stats       Stats

	warning   *wire.Warning // of the walk
	comparing chan struct{} // bounds files that are read to be compared

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
	held  int // bytes of names and attributes

	file   sync.Mutex // guards the next three
	handle File
	users  int
	unused bool // close when the last user leaves

	answered  bool
	offered   int64 // blocks that may be claimed, or were, from the first on
	queued    bool  // in Sender.ready
	resolved  bool
	comparing bool  // the receiver asked for a comparison
	changed   bool  // to be announced again; nothing more is claimed
	told      bool  // EndEntry was sent
	blocks    int64 // number of blocks; of a stream that has not ended: those read so far
	ended     bool  // blocks is final
	size      int64
	todo      extents
	flying    flights
	sent      extents // blocks that left at least once
	holes     extents // blocks without data
	tree      hashTree
	digest    [32]byte         // of a file of one block, if read
	read      bool             // it was read
	kept      map[int64][]byte // blocks of a stream until they are acknowledged
	delta     *deltaSend       // nil for none
}

// fileID names a file of the source.
type fileID struct{ dev, ino uint64 }

// first is the entry that stands for a file of several names.
type first struct {
	index uint64
	path  string
	names uint64 // that were not announced yet
}

// NewSender prepares a session on a control stream whose opening messages have been exchanged. r is the Reader of
// that stream.
func NewSender(stream io.ReadWriteCloser, r *wire.Reader, source Source, opt SenderOptions) *Sender {
	s := &Sender{
		opt: opt, source: source, ctrl: newControl(stream), reader: r,
		entries: make(map[uint64]*sending), streams: make(map[uint64]*sendStream),
		firsts: make(map[fileID]first), folders: make(chan *wire.Folder, maxQuestions),
	}
	s.cond, s.room, s.parked = sync.NewCond(&s.mu), sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	s.comparing = make(chan struct{}, comparesAtOnce)
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
	if s.opt.Prune {
		tasks.Go(s.answerFolders)
	}
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
	s.room.Broadcast()
	s.parked.Broadcast()
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
	s.ctrl.send(&wire.Manifest{Single: s.source.Single(), Prune: s.opt.Prune, Delta: true})
	var batch []*sending
	var size int // of their names and attributes, bytes
	lap := s.opt.Clock.start(Walk)
	defer lap.stop()
	var since time.Time
	flush := func() {
		s.tell(batch)
		batch, size = batch[:0], 0
	}
	visit := func(item Item) error {
		for !s.hasRoom() {
			flush()
			lap.enter(Room)
			old, ok := s.waitRoom()
			lap.enter(Walk)
			if !ok {
				return context.Cause(s.ctx)
			}
			if old != nil {
				s.again(old) // it keeps its place until then
			}
		}
		if item.Unread != nil {
			s.unread(&item)
		}
		if len(batch) == 0 {
			since = time.Now()
		}
		batch = append(batch, s.announce(item))
		size += batch[len(batch)-1].held
		if len(batch) == 256 || time.Since(since) > announceWithin || size > wire.MaxMessage/4 {
			flush()
		}
		return nil
	}
	failed := func(path string, err error) {
		s.tooMuchOpen(err)
		s.mu.Lock()
		s.failures = true
		s.mu.Unlock()
		code := wire.CodeSourceDisk
		if root := (rootError{}); errors.As(err, &root) {
			code = wire.CodeOther
		}
		s.ctrl.send(&wire.EntryFailed{Index: wire.NoEntry, Code: code, Text: err.Error()})
		if s.opt.WalkFailed != nil {
			s.opt.WalkFailed(path, err)
		}
	}
	err := s.source.Walk(s.ctx, visit, failed)
	lap.enter(Room)
	flush()
	if s.ctx.Err() != nil {
		return nil // whoever ended the session has the error
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
	}
	s.event(Event{Kind: Listed})
	if s.warning != nil {
		s.event(Event{Kind: Warned, Index: wire.NoEntry, Entry: new(wire.Entry), Warning: s.warning})
		s.ctrl.send(s.warning)
	}
	s.mu.Lock()
	s.listed = true
	end := wire.EndManifest{Count: s.next, Bytes: s.bytes}
	clear(s.firsts)
	s.mu.Unlock()
	s.ctrl.send(&end)
	s.mu.Lock()
	s.walked = true // now Prune may follow
	s.cond.Broadcast()
	s.mu.Unlock()
	s.prune()
	for old := s.nextChanged(); old != nil; old = s.nextChanged() {
		s.again(old)
	}
	return nil
}

// unread counts an entry whose attributes could not be read.
func (s *Sender) unread(item *Item) {
	if s.warning == nil {
		s.warning = &wire.Warning{What: "xattr", Path: item.Entry.Path, Text: item.Unread.Error()}
	}
	s.warning.Count++
}

// prune has the receiver remove what the source does not have, once each entry is resolved. It must not know less than everything.
func (s *Sender) prune() {
	s.mu.Lock()
	now := s.opt.Prune && s.walked && !s.pruned && len(s.entries) == 0
	s.pruned = s.pruned || now
	failures := s.failures
	s.mu.Unlock()
	if !now {
		return
	}
	m := &wire.Prune{}
	if !failures {
		m.Folders = s.source.Folders()
	}
	s.ctrl.send(m)
}

// maxQuestions bounds the Folders that the receiver may have asked about and that are not answered.
const maxQuestions = 64

// answerFolders tells the receiver which names of its folders the source does not have.
func (s *Sender) answerFolders() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case m := <-s.folders:
			var extra wire.Extra
			for i, name := range m.Names {
				if strings.Contains(name, "/") || name == "." || name == ".." || disk.CheckPath(m.Path) != nil {
					s.end(wire.Errorf(wire.CodeProtocol, "a question about %q in %q", name, m.Path))
					return
				}
				has, err := s.source.Has(path.Join(m.Path, name))
				if err != nil {
					s.end(&wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}) // what cannot be seen might be there
					return
				}
				if !has {
					extra.Names = append(extra.Names, uint64(i))
				}
			}
			s.ctrl.send(&extra)
		}
	}
}

// announceWithin is how long an entry may wait for others of its message where the walk is slow.
const announceWithin = 20 * time.Millisecond

// nextChanged waits for an entry that is to be announced again. It returns nil when the session is over.
func (s *Sender) nextChanged() *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && len(s.changed) == 0 {
		s.room.Wait()
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
	s.mu.Lock()
	s.unlinkLocked(old)
	s.mu.Unlock()
	e := s.announce(item)
	e.tries = old.tries + 1
	if walked {
		s.ctrl.send(&wire.EndManifest{Count: e.index + 1, Bytes: e.size})
	}
	if s.resolve(old, false) {
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
		e.item.Entry.Xattrs = nil // the receiver has them
		s.offer(e)
	}
}

func (s *Sender) roomLocked() bool {
	return len(s.entries) < maxEntries && s.open < maxOpen && s.held < maxHeld
}

func (s *Sender) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLocked()
}

// waitRoom waits for room, or for an entry that is to be announced again, which it returns. It returns false when the session is over.
func (s *Sender) waitRoom() (*sending, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && !s.roomLocked() && len(s.changed) == 0 {
		s.room.Wait()
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
	e := &sending{item: item, size: item.Entry.Size, held: heldBy(&item.Entry)}
	s.mu.Lock()
	s.held += e.held
	e.index = s.next
	s.next++
	x := &e.item.Entry
	if x.Kind == wire.File {
		s.linkLocked(e)
	}
	if x.Kind == wire.File {
		if e.size >= 0 {
			e.blocks, e.ended = blocksOf(e.size, x.BlockLog), true
			s.bytes += e.size
		} else {
			e.kept = make(map[int64][]byte)
		}
	}
	s.entries[e.index] = e
	s.open += weightOf(x)
	s.mu.Unlock()
	s.event(Event{Kind: Found, Index: e.index, Entry: x})
	return e
}

// linkLocked makes an entry a hard link if its file was announced under another name.
func (s *Sender) linkLocked(e *sending) {
	x := &e.item.Entry
	if e.item.Names < 2 || x.Ino == 0 || s.walked {
		return
	}
	id := fileID{x.Dev, x.Ino}
	if f, ok := s.firsts[id]; ok {
		if f.names--; f.names == 0 {
			delete(s.firsts, id)
		} else {
			s.firsts[id] = f
		}
		*x = wire.Entry{Kind: wire.Hardlink, Path: x.Path, Link: f.path, First: f.index, ModTime: x.ModTime, Mode: x.Mode}
		e.item.Open, e.item.Refresh, e.size = nil, nil, 0
		return
	}
	s.firsts[id] = first{e.index, x.Path, e.item.Names - 1}
}

// unlinkLocked lets the next name of a file stand for it, since e won't.
func (s *Sender) unlinkLocked(e *sending) {
	id := fileID{e.item.Entry.Dev, e.item.Entry.Ino}
	if s.firsts[id].index == e.index {
		delete(s.firsts, id)
	}
}

// small tells whether the entry is a file of one block at most, which travels with its digest in one piece.
func (e *sending) small() bool {
	return e.item.Entry.Kind == wire.File && e.blocks <= 1 && e.kept == nil
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
	if e.item.Entry.Kind != wire.File || e.blocks == 0 || !s.opt.Speculate || s.answered || s.speculated >= speculate {
		return
	}
	e.offered = min(e.blocks, max(1, (speculate-s.speculated)>>e.item.Entry.BlockLog))
	s.speculated += min(e.size, e.offered<<e.item.Entry.BlockLog)
	e.todo.add(0, e.offered)
	s.offered += e.offered
	s.queueLocked(e)
}

func (s *Sender) queueLocked(e *sending) {
	if e.queued || e.resolved || e.changed || len(e.todo) == 0 {
		return
	}
	e.queued = true
	if e.small() {
		s.small = append(s.small, e)
		if s.acked {
			s.cond.Signal()
		} else {
			s.cond.Broadcast() // some may have their share
		}
		return
	}
	s.ready = append(s.ready, e)
	s.cond.Broadcast()
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
	lap := s.opt.Clock.start(Feed)
	defer lap.stop()
	for {
		lap.enter(Room)
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
		lap.enter(Feed)
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

// read fills payload with a block of a file and digests it on the way. It returns the ranges of the block that hold data, nil for all of it.
func (s *Sender) read(lap *lap, e *sending, block int64, payload []byte, hash *digest.Hasher) ([]disk.Range, error) {
	f, err := e.acquire()
	if err != nil {
		return nil, err
	}
	defer e.release()
	off := block << e.item.Entry.BlockLog
	s.mu.Lock()
	s.stats.Read += int64(len(payload))
	s.mu.Unlock()
	if sparse, ok := f.(sparseFile); ok && e.item.Entry.Holes {
		data, err := sparse.Data(off, int64(len(payload)))
		if err != nil {
			return nil, err
		}
		if data == nil {
			data = []disk.Range{} // none is not all
		}
		if len(data) != 1 || data[0].Len < int64(len(payload)) {
			return data, readRanges(f, off, data, payload, hash)
		}
	}
	for at := 0; at < len(payload); at += piece {
		part := payload[at:min(len(payload), at+piece)]
		if err := readFull(f, part, off+int64(at)); err != nil {
			return nil, err
		}
		lap.enter(Digest)
		hash.Write(part)
		lap.enter(Read)
	}
	return nil, nil
}

var errShort = fmt.Errorf("%w: it is shorter than it was", disk.ErrChanged)

func readFull(f io.ReaderAt, part []byte, off int64) error {
	if n, err := f.ReadAt(part, off); n < len(part) {
		if err == nil || errors.Is(err, io.EOF) {
			err = errShort
		}
		return err
	}
	return nil
}

// readRanges fills payload, which begins at off, with the ranges of data and with zeros between them.
func readRanges(f File, off int64, data []disk.Range, payload []byte, hash *digest.Hasher) error {
	clear(payload)
	for _, r := range data {
		if err := readFull(f, payload[r.Off-off:][:r.Len], r.Off); err != nil {
			return err
		}
	}
	hash.Write(payload)
	return nil
}

// skipHole takes the blocks without data from block on out of those to be sent, and tells whether block is one.
func (s *Sender) skipHole(e *sending, block int64) (bool, error) {
	f, err := e.acquire()
	if err != nil {
		return false, err
	}
	defer e.release()
	sparse, ok := f.(sparseFile)
	if !ok {
		return false, nil
	}
	log := e.item.Entry.BlockLog
	from := block << log
	end := from
	for end < e.size {
		n := min(holeScan, e.size-end)
		data, err := sparse.Data(end, n)
		if err != nil {
			return false, err
		}
		if len(data) > 0 {
			end = data[0].Off
			break
		}
		end += n
	}
	last := end >> log // block of the first data
	if end >= e.size {
		last = e.blocks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case last <= block || len(e.holes) >= maxHoles:
		return false, nil
	case e.holes.has(block):
		return true, nil
	case e.tree.has(block):
		return false, fmt.Errorf("%w: it has a hole where data was", disk.ErrChanged)
	}
	// Others have claimed what is not to be sent any more, and find out for themselves.
	hole := e.todo.within(block, last-block)
	hole.add(block, 1)
	for _, x := range hole {
		e.tree.addRun(x.Start, x.Count, holeNode)
		e.holes.add(x.Start, x.Count)
		e.todo.remove(x.Start, x.Count)
	}
	return true, nil
}

// holeScan is looked through at once, in bytes.
const holeScan = 1 << 30

// holeNode stands in the tree of digests for a block without data: to digest its zeros would take as long as if they were data.
var holeNode guts.Node

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
	size, holes := e.size, slices.Clone(e.holes)
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
	s.ctrl.send(&wire.EndEntry{Index: e.index, Size: size, Digest: digest, Holes: holes})
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
	s.tooMuchOpen(err)
	if !errors.Is(err, disk.ErrChanged) {
		code := wire.CodeSourceDisk
		if errors.Is(err, fs.ErrNotExist) {
			code = wire.CodeNotFound
		}
		s.failEntry(e, &wire.Error{Code: code, Text: err.Error()})
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
		s.room.Broadcast()
		s.cond.Broadcast() // who compares it with its old version
	}
}

// tooMuchOpen ends the session, to be tried again, if an error says that too much is open here: other entries would fail as well.
func (s *Sender) tooMuchOpen(err error) {
	if errors.Is(err, disk.ErrTooManyFiles) {
		s.end(&wire.Error{Code: wire.CodeBusy, Text: err.Error()})
	}
}

// failEntry ends an entry on both sides.
func (s *Sender) failEntry(e *sending, err *wire.Error) {
	if s.resolve(e, true) {
		s.ctrl.send(&wire.EntryFailed{Index: e.index, Code: err.Code, Text: err.Text})
		s.failed(e, err)
	}
}

// failed reports a failed entry that resolve has ended.
func (s *Sender) failed(e *sending, err error) {
	s.event(Event{Kind: Failed, Index: e.index, Entry: &e.item.Entry, Err: err})
	s.prune()
}

// resolve removes an entry. It returns false if that was done before.
func (s *Sender) resolve(e *sending, failed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.resolved {
		return false
	}
	if failed {
		s.failures = true
		s.unlinkLocked(e)
	}
	s.held -= e.held
	e.resolved = true
	for block := range e.flying.all() {
		e.landLocked(block, time.Time{})
	}
	clear(e.kept)
	e.todo = nil
	delete(s.entries, e.index)
	s.open -= weightOf(&e.item.Entry)
	s.room.Broadcast()
	if e.kept != nil || e.delta != nil || len(s.entries) == 0 {
		s.cond.Broadcast()
	}
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
		err := &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		if m.Index == wire.NoEntry {
			s.mu.Lock()
			s.failures = true
			s.mu.Unlock()
			s.event(Event{Kind: Failed, Index: m.Index, Entry: new(wire.Entry), Err: err})
			return true, nil
		}
		e, unknown := s.known(m.Index)
		if e != nil && s.resolve(e, true) {
			s.failed(e, err)
		}
		return true, unknown
	case *wire.Placed:
		return true, s.placed(m)
	case *wire.Pieces:
		return true, s.digests(m.Index, m)
	case *wire.Chunks:
		return true, s.digests(m.Index, m)
	case *wire.Warning:
		s.event(Event{Kind: Warned, Index: wire.NoEntry, Entry: new(wire.Entry), Warning: m})
	case *wire.Folder:
		if !s.opt.Prune || len(s.folders) == cap(s.folders) {
			return false, wire.Errorf(wire.CodeProtocol, "unexpected question about a folder")
		}
		s.folders <- m
	case *wire.Removed:
		s.event(Event{Kind: Removed, Index: wire.NoEntry, Entry: &wire.Entry{Kind: m.Kind, Path: m.Path}})
	case *wire.Finished:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.listed || len(s.entries) > 0 {
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

// known returns an entry, nil if it is resolved. The error is that it was never announced.
func (s *Sender) known(index uint64) (*sending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knownLocked(index)
}

func (s *Sender) knownLocked(index uint64) (*sending, error) {
	if index >= s.next {
		return nil, wire.Errorf(wire.CodeProtocol, "entry %d does not exist", index)
	}
	return s.entries[index], nil
}

// answer acts on the receiver's verdict on an entry.
func (s *Sender) answer(a *wire.Answer) error {
	e, err := s.known(a.Index)
	if e == nil {
		return err // or it failed here meanwhile
	}
	ev := Event{Index: e.index, Entry: &e.item.Entry}
	switch a.Verdict {
	case wire.Same, wire.Done, wire.Skip, wire.Meta, wire.Lack:
		if a.Verdict == wire.Done && e.item.Entry.Kind == wire.File {
			return wire.Errorf(wire.CodeProtocol, "entry %d is a file", e.index)
		}
		if s.resolve(e, false) {
			ev.Kind = outcomes[a.Verdict]
			ev.New = a.New
			s.event(ev)
			s.prune()
		}
		return nil
	case wire.Fail:
		if s.resolve(e, true) {
			s.failed(e, &wire.Error{Code: a.Code, Text: a.Text, Remote: true})
		}
		return nil
	case wire.Hash:
		return s.compare(e, a.Digest)
	case wire.Need:
	}
	need := s.need
	if a.Delta != wire.DeltaNone {
		need = s.useOld
	}
	have, bytes, err := need(e, a)
	if err != nil {
		return err
	}
	ev.Bytes = bytes
	ev.Kind = Started
	s.event(ev)
	if len(have) > 0 {
		s.running.Add(1)
		go s.recheck(e, have)
	}
	return nil
}

// outcomes are the events of the verdicts that end an entry.
var outcomes = map[wire.Verdict]EventKind{
	wire.Same: Same, wire.Done: Done, wire.Skip: Skipped, wire.Meta: WouldSet, wire.Lack: WouldSend,
}

// compare tells the receiver whether a file is what the target has.
func (s *Sender) compare(e *sending, digest [32]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.answered || e.item.Entry.Kind != wire.File || e.item.Open == nil {
		return wire.Errorf(wire.CodeProtocol, "entry %d cannot be compared", e.index)
	}
	if e.comparing {
		return wire.Errorf(wire.CodeProtocol, "entry %d is compared twice", e.index)
	}
	e.comparing = true
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		select {
		case s.comparing <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		defer func() { <-s.comparing }()
		have, err := s.digestOf(e)
		if err != nil {
			s.sourceFailed(e, err)
			return
		}
		s.ctrl.send(&wire.Compared{Index: e.index, Same: have == digest})
	}()
	return nil
}

// comparesAtOnce bounds the files that are read only to be compared.
const comparesAtOnce = 4

// digestOf reads a whole file.
func (s *Sender) digestOf(e *sending) (root [32]byte, err error) {
	buf := make([]byte, 1<<maxBlockLog)
	var hash digest.Hasher
	var tree hashTree
	for block := range e.blocks {
		if s.ctx.Err() != nil {
			return root, context.Cause(s.ctx)
		}
		hash.Reset(block << e.item.Entry.BlockLog)
		if _, err := s.read(nil, e, block, buf[:lengthOf(e.size, e.item.Entry.BlockLog, block)], &hash); err != nil {
			return root, err
		}
		tree.add(block, hash.Sum())
	}
	root, _ = tree.root(e.blocks)
	return root, nil
}

// need queues what the receiver lacks and returns what it has, and how many bytes that is.
func (s *Sender) need(e *sending, a *wire.Answer) (_ extents, bytes int64, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := extents(a.Have)
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
	e.todo.add(e.offered, e.blocks-e.offered)
	s.offered += e.blocks - e.offered
	e.offered = e.blocks
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
	var hash digest.Hasher
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
		if e.item.Entry.Holes {
			if hole, err := s.skipHole(e, b); err != nil {
				s.sourceFailed(e, err)
				return
			} else if hole {
				continue
			}
		}
		hash.Reset(b << e.item.Entry.BlockLog)
		if _, err := s.read(nil, e, b, buf[:lengthOf(e.size, e.item.Entry.BlockLog, b)], &hash); err != nil {
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
	var bytes, copied int64
	tell := func() {
		if last != nil && bytes > 0 {
			s.event(Event{Kind: Written, Index: last.index, Entry: &last.item.Entry, Bytes: bytes, Copied: copied})
		}
		bytes, copied = 0, 0
	}
	for _, id := range blocks {
		s.mu.Lock()
		e, err := s.knownLocked(id.Index)
		if e == nil {
			s.mu.Unlock()
			if err != nil {
				return err
			}
			continue
		}
		_, ok := e.flying.get(id.Block)
		if !ok && !e.sent.has(id.Block) {
			s.mu.Unlock()
			return wire.Errorf(wire.CodeProtocol, "block %d of entry %d was never sent", id.Block, id.Index)
		}
		var n, fresh int64
		if ok {
			n, fresh = s.wroteLocked(e, id.Block)
			took := e.landLocked(id.Block, now)
			if fresh == n { // or a short patch would make whole blocks look late
				s.tookLocked(took)
			}
			s.opt.Clock.block(took)
			if e.kept != nil || e.delta != nil || !s.acked {
				s.acked = true
				s.cond.Broadcast()
			}
		} else if e.todo.has(id.Block) { // written, though its stream died
			n, fresh = s.wroteLocked(e, id.Block)
			e.todo.remove(id.Block, 1)
		}
		s.mu.Unlock()
		if e != last {
			tell()
			last = e
		}
		bytes += n
		copied += n - fresh
	}
	tell()
	return nil
}

// wroteLocked counts a block that is written, and returns its length and how much of it was sent.
func (s *Sender) wroteLocked(e *sending, block int64) (n, fresh int64) {
	n, fresh = s.lengthLocked(e, block), s.freshLocked(e, block)
	if e.delta != nil {
		delete(e.delta.patches, block)
	}
	delete(e.kept, block)
	s.stats.Written += fresh
	s.stats.Copied += n - fresh
	return n, fresh
}

// resend queues blocks that the receiver had and found damaged.
func (s *Sender) resend(m *wire.Resend) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.knownLocked(m.Index)
	if e == nil {
		return err
	}
	for _, x := range m.Blocks {
		if x.Start+x.Count > e.blocks || e.kept != nil {
			return wire.Errorf(wire.CodeProtocol, "entry %d has no such blocks", m.Index)
		}
		s.stats.Rejected += x.Count
		for b := range e.flying.all() {
			if b >= x.Start && b < x.Start+x.Count {
				e.landLocked(b, time.Time{})
			}
		}
		if e.delta != nil { // it comes whole
			for b := range e.delta.patches {
				if b >= x.Start && b < x.Start+x.Count {
					delete(e.delta.patches, b)
				}
			}
		}
		e.todo.add(x.Start, x.Count)
	}
	s.queueFrontLocked(e)
	return nil
}

// placed ends entries whose digests the receiver has compared.
func (s *Sender) placed(m *wire.Placed) error {
	for _, x := range m.Entries {
		from, end := uint64(x.Start), uint64(x.Start+x.Count)
		s.mu.Lock()
		known := end <= s.next
		var all []*sending
		if uint64(x.Count) <= uint64(len(s.entries)) {
			for i := from; i < end; i++ {
				if e := s.entries[i]; e != nil {
					all = append(all, e)
				}
			}
		} else if known {
			for i, e := range s.entries {
				if i >= from && i < end {
					all = append(all, e)
				}
			}
		}
		s.mu.Unlock()
		if !known {
			return wire.Errorf(wire.CodeProtocol, "entry %d does not exist", end-1)
		}
		for _, e := range all {
			digest, ok := s.sentWhole(e)
			if !ok {
				return wire.Errorf(wire.CodeProtocol, "the receiver placed %q before it had it", e.item.Entry.Path)
			}
			s.place(e, digest)
		}
	}
	return nil
}

// sentWhole returns the digest of an entry that the receiver may have placed.
func (s *Sender) sentWhole(e *sending) (digest [32]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.item.Entry.Kind != wire.File || !e.ended:
		return digest, false
	case e.small() && e.blocks == 0:
		return emptyDigest(), true
	case e.small():
		return e.digest, e.read
	}
	digest, whole := e.tree.root(e.blocks)
	return digest, whole && e.told
}

// place ends an entry that has its name at the target. There is no digest of a file with holes.
func (s *Sender) place(e *sending, digest [32]byte) {
	if !s.resolve(e, false) {
		return
	}
	if len(e.holes) > 0 {
		digest = [32]byte{}
	}
	s.event(Event{Kind: Committed, Index: e.index, Entry: &e.item.Entry, Digest: digest})
	s.prune()
}
