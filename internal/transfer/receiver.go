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

	"github.com/fxfer/fxfer/internal/blake3tree"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3/guts"
)

// ReceiverOptions tune a Receiver. Zero is right for all but Path.
type ReceiverOptions struct {
	// Path of the target below the tree, "." for the tree itself. An existing folder, or a path that ends with a slash, takes the
	// entries in; otherwise a single file gets this name, and several entries make a new folder of it.
	Path     string
	Leave    bool               // return without waiting for the sender to see that all is done
	Readback bool               // read each file back from the disk before it is committed
	Event    func(Event)        // progress; nil for none
	Message  func(wire.Message) // messages that are not the engine's
}

// Receiver writes what one session's sender announces below a folder. Everything that it reads from its streams is
// hostile until checked; what goes wrong with one entry fails that entry only.
type Receiver struct {
	opt    ReceiverOptions
	tree   *disk.Tree
	ctrl   *control
	reader *wire.Reader

	base   string // what entry paths are below; the file's own name if rename
	rename bool

	mu      sync.Mutex
	cond    *sync.Cond
	active  map[uint64]*receiving // announced, being received
	pending int                   // entries not resolved
	open    int                   // entries with an open partial that has a checkpoint
	small   int                   // entries with an open partial that has none
	next    uint64                // number of the next entry
	count   uint64                // entries in all, once ended
	started bool
	ended   bool // the manifest has an end
	over    bool
	told    bool // Finished is on its way
	folders []folderMeta
	streams map[Stream]struct{}
	stats   Stats

	commits   chan struct{} // bounds concurrent commits
	busyUntil time.Time
	running   sync.WaitGroup
	ctx       context.Context
	stop      context.CancelCauseFunc
	events    sync.Mutex
}

// receiving is a file under way. Fields below the first group are guarded by Receiver.mu.
type receiving struct {
	index  uint64
	entry  wire.Entry
	meta   disk.Meta // Path is the target's
	opened sync.Once
	failed error // of opening
	gone   bool  // nothing may be opened any more
	slot   bool  // holds one of Receiver.small
	part   *disk.Partial

	resolved bool
	blocks   int64 // -1 while unknown
	done     extents
	size     int64 // -1 while unknown
	tracked  bool  // counts in Receiver.open
	busy     map[int64]claim
	tree     hashTree
	short    int64 // of a stream: the block that is not full, or -1
	shortLen int
	checking bool // recheck is under way
	digest   *[32]byte
	rejected int
}

// claim is a block that streams are reading and writing. Two may carry the same block when a dead stream
// is not known to be dead yet.
type claim struct {
	digest  [32]byte
	streams int
}

type folderMeta struct {
	index uint64
	entry wire.Entry
	path  string
}

const (
	// What a peer may announce ahead: the sender's bounds, doubled, so that a sender with other ones still fits.
	announceMax = 2 * maxEntries
	openMax     = 2 * maxOpen
	// rejectMax is how many blocks of an entry may arrive damaged. TLS makes even one a sign of bad memory.
	rejectMax = 8
	// busyFor is how long a session waits for files that an earlier one holds.
	busyFor   = silence + 2*pingEvery
	busyEvery = 100 * time.Millisecond
	// smallAtOnce bounds the open files of one block.
	smallAtOnce = 256
	// foldersMax bounds the folders whose times are set at the end.
	foldersMax = 1 << 22
	// commitsAtOnce lets small files share the time of a sync.
	commitsAtOnce = 16
)

// NewReceiver prepares a session on a control stream whose opening messages have been exchanged. r is the Reader of
// that stream.
func NewReceiver(stream io.ReadWriteCloser, r *wire.Reader, tree *disk.Tree, opt ReceiverOptions) *Receiver {
	v := &Receiver{
		opt: opt, tree: tree, ctrl: newControl(stream), reader: r,
		active: make(map[uint64]*receiving), streams: make(map[Stream]struct{}),
		commits:   make(chan struct{}, commitsAtOnce),
		busyUntil: time.Now().Add(busyFor),
	}
	v.cond = sync.NewCond(&v.mu)
	v.ctx, v.stop = context.WithCancelCause(context.Background())
	return v
}

// Run receives everything. It returns nil once each entry is resolved, well or badly, and the sender knows it. On an error,
// partial files stay for a later session. Run closes all data streams, not the control stream, and returns after
// all of its goroutines have ended.
func (v *Receiver) Run(ctx context.Context) error {
	unhook := context.AfterFunc(ctx, func() { v.end(context.Cause(ctx)) })
	defer unhook()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := v.ctrl.write(); err != nil {
			v.end(fmt.Errorf("control stream: %w", err))
		}
	})
	tasks.Go(func() { v.ctrl.ping(v.ctx.Done()) })
	tasks.Go(func() { v.end(v.ctrl.read(v.reader, v.handle)) })
	tasks.Wait()
	v.running.Wait()
	v.keepPartials()
	if cause := context.Cause(v.ctx); !errors.Is(cause, errFinished) {
		return cause
	}
	return nil
}

// end stops everything, once. A nil cause, and the sender's leaving after Finished, is a good end.
func (v *Receiver) end(cause error) {
	v.mu.Lock()
	if cause == nil || v.finishedLocked() {
		cause = errFinished
	}
	first := !v.over
	v.over = true
	v.cond.Broadcast()
	v.mu.Unlock()
	if first {
		v.stop(cause)
		v.mu.Lock()
		for s := range v.streams {
			v.running.Go(func() { _ = s.Close() }) // may wait for a write under way
		}
		v.mu.Unlock()
		v.ctrl.end(cause)
	}
}

// keepPartials closes what did not finish, for a later session.
func (v *Receiver) keepPartials() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.active {
		e.leavePart()
	}
}

// leavePart ends the partial file of an entry that was not committed. What can be resumed stays.
func (e *receiving) leavePart() {
	switch {
	case e.part == nil:
	case e.entry.Size < 0:
		_ = e.part.Abort()
	default:
		_ = e.part.Close()
	}
}

// Drain makes everything written so far durable and ends the session with CodeDraining.
func (v *Receiver) Drain(ctx context.Context) {
	v.mu.Lock()
	var parts []*disk.Partial
	for _, e := range v.active {
		if e.part != nil {
			parts = append(parts, e.part)
		}
	}
	v.mu.Unlock()
	for _, p := range parts {
		_ = p.Checkpoint(ctx) // what it cannot keep will be sent again
	}
	v.end(wire.Errorf(wire.CodeDraining, "the server is shutting down"))
}

// Done is closed when the session is over on this side, before its streams are closed.
func (v *Receiver) Done() <-chan struct{} { return v.ctx.Done() }

// Stats returns the counters so far.
func (v *Receiver) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stats
}

// Send queues a message that is not the engine's.
func (v *Receiver) Send(m wire.Message) { v.ctrl.send(m) }

func (v *Receiver) event(ev Event) {
	if v.opt.Event != nil {
		v.events.Lock()
		defer v.events.Unlock()
		v.opt.Event(ev)
	}
}

func protocolError(format string, args ...any) error {
	return wire.Errorf(wire.CodeProtocol, format, args...)
}

// handle acts on a message of the sender.
func (v *Receiver) handle(m wire.Message) (bool, error) {
	switch m := m.(type) {
	case *wire.Manifest:
		return true, v.begin(m.Single)
	case *wire.Entries:
		return true, v.entries(m)
	case *wire.EndManifest:
		v.event(Event{Kind: Listed})
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.told || m.Count < v.next || v.ended && m.Count < v.count {
			return false, protocolError("manifest ends twice")
		}
		v.ended, v.count = true, m.Count
		v.finishLocked()
	case *wire.EndEntry:
		return true, v.endEntry(m)
	case *wire.EntryFailed:
		if m.Index == wire.NoEntry {
			v.event(Event{Kind: Failed, Index: m.Index, Entry: new(wire.Entry), Err: &wire.Error{Code: m.Code, Text: m.Text, Remote: true}})
			return true, nil
		}
		if e := v.find(m.Index); e != nil {
			v.fail(e, &wire.Error{Code: m.Code, Text: m.Text, Remote: true})
		}
	default:
		if v.opt.Message != nil {
			v.opt.Message(m)
		}
	}
	return true, nil
}

// begin decides what the entries' paths are below.
func (v *Receiver) begin(single bool) error {
	if v.started {
		return protocolError("two manifests")
	}
	v.started = true
	target := strings.TrimSuffix(v.opt.Path, "/")
	v.base = target
	if target == "." || target == "" {
		v.base = "."
		return nil
	}
	if err := disk.CheckPath(target); err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	m, err := v.tree.Stat(target)
	switch {
	case err == nil && m.Kind == disk.Dir:
		return nil
	case err == nil && !single:
		return &wire.Error{Code: wire.CodePath, Text: fmt.Sprintf("%q is not a folder", target)}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &wire.Error{Code: codeOf(err), Text: err.Error()}
	}
	if single && !strings.HasSuffix(v.opt.Path, "/") {
		v.rename = true
		target = path.Dir(target)
	}
	if target != "." {
		if err := v.tree.Mkdir(target, 0o755); err != nil {
			return &wire.Error{Code: codeOf(err), Text: err.Error()}
		}
	}
	return nil
}

// entries answers newly announced entries.
func (v *Receiver) entries(m *wire.Entries) error {
	v.mu.Lock()
	switch {
	case !v.started, v.told, m.First != v.next:
		v.mu.Unlock()
		return protocolError("entries out of order")
	case v.pending+len(m.Entries) > announceMax:
		v.mu.Unlock()
		return protocolError("more entries than allowed")
	}
	v.mu.Unlock()
	var answers wire.Answers
	for i := range m.Entries {
		a, err := v.entry(v.next, m.Entries[i])
		if err != nil {
			return err
		}
		if a.Verdict != 0 {
			answers.Answers = append(answers.Answers, a)
		}
	}
	if len(answers.Answers) > 0 {
		v.ctrl.send(&answers)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.finishLocked()
	return nil
}

// entry takes one entry in and returns the answer to it; one without verdict comes later.
func (v *Receiver) entry(index uint64, x wire.Entry) (wire.Answer, error) {
	a := wire.Answer{Index: index}
	target := v.base
	var err error
	if !v.rename {
		if err = disk.CheckPath(x.Path); err == nil && x.Path == "." {
			err = fmt.Errorf("%w: %q", disk.ErrPath, x.Path)
		}
		if err == nil {
			target = path.Join(v.base, x.Path)
			err = disk.CheckPath(target)
		}
	}
	e := &receiving{index: index, entry: x, short: -1}
	e.meta = disk.Meta{
		Path: target, Kind: disk.Kind(x.Kind), Size: x.Size, ModTime: x.Time(), Mode: fileMode(x.Mode), Link: x.Link,
		ID: disk.Identity{Size: x.Size, ModTime: x.ModTime, Ino: x.Ino, Dev: x.Dev},
	}
	if err == nil {
		switch x.Kind {
		case wire.Dir:
			a.Verdict, err = wire.Done, v.tree.Mkdir(target, e.meta.Mode)
		case wire.Symlink:
			a.Verdict, err = wire.Done, v.symlink(e)
		case wire.File:
			a.Verdict, a.Have, err = v.file(e)
		default:
			err = wire.Errorf(wire.CodeUnsupported, "kind %d of entry", x.Kind)
		}
	}
	if err != nil {
		a.Verdict, a.Code, a.Text = wire.Fail, codeOf(err), err.Error()
	}
	v.event(Event{Kind: Found, Index: index, Entry: &e.entry})
	ev := Event{Index: index, Entry: &e.entry}
	v.mu.Lock()
	v.next++
	switch a.Verdict {
	case wire.Need:
		v.pending++
		v.active[index] = e
		for _, h := range e.done {
			ev.Bytes += min(x.Size, (h.Start+h.Count)<<x.BlockLog) - h.Start<<x.BlockLog
		}
		v.stats.Resumed += ev.Bytes
		ev.Kind = Started
		if len(e.done) > 0 {
			e.checking = true
			v.running.Add(1)
			go v.recheck(e, slices.Clone(e.done))
		}
		if e.tracked {
			if v.open++; v.open > openMax {
				err = protocolError("more open files than allowed")
			}
		}
	case wire.Done:
		ev.Kind = Done
		if x.Kind == wire.Dir && len(v.folders) < foldersMax {
			v.folders = append(v.folders, folderMeta{index, x, target})
		}
	case wire.Same:
		ev.Kind = Same
	case wire.Fail:
		ev.Kind, ev.Err = Failed, &wire.Error{Code: a.Code, Text: a.Text}
	}
	v.cond.Broadcast()
	v.mu.Unlock()
	v.event(ev)
	if a.Verdict != wire.Need {
		err = nil
	}
	return a, err
}

func (v *Receiver) symlink(e *receiving) error {
	if have, err := v.tree.Stat(e.meta.Path); err == nil && have.Kind == disk.Symlink && have.Link == e.entry.Link {
		return nil
	}
	if err := v.parent(e); err != nil {
		return err
	}
	return v.tree.Symlink(e.meta)
}

// parent makes the folder of an entry whose folder was not announced.
func (v *Receiver) parent(e *receiving) error {
	dir := path.Dir(e.meta.Path)
	if dir == "." {
		return nil
	}
	if m, err := v.tree.Stat(dir); err == nil && m.Kind == disk.Dir {
		return nil
	}
	return v.tree.Mkdir(dir, 0o755)
}

// file decides whether a file is needed and, where an earlier run may have left some of it, opens its partial file.
func (v *Receiver) file(e *receiving) (wire.Verdict, []wire.Extent, error) {
	x := &e.entry
	have, err := v.tree.Stat(e.meta.Path)
	switch {
	case err == nil && have.Kind == disk.Dir:
		return 0, nil, fmt.Errorf("%q: %w", e.meta.Path, disk.ErrExists)
	case err == nil && have.Kind == disk.File && have.Size == x.Size && have.ModTime.Equal(x.Time()):
		return wire.Same, nil, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, nil, err
	case err != nil:
		if err := v.parent(e); err != nil {
			return 0, nil, err
		}
	}
	e.blocks = -1
	if x.Size >= 0 {
		e.blocks = blocksOf(x.Size, x.BlockLog)
	}
	e.size, e.busy = x.Size, make(map[int64]claim)
	if e.blocks == 0 || e.blocks == 1 {
		return wire.Need, nil, nil // opened when its block is there
	}
	if err := v.openPart(e); err != nil {
		return 0, nil, err
	}
	e.tracked = true
	var got []wire.Extent
	for _, h := range e.part.Have() {
		got = append(got, wire.Extent{Start: h.Start, Count: h.Count})
	}
	e.done = slices.Clone(got)
	return wire.Need, got, nil
}

// openPart opens the partial file, once. An earlier session of the same client may still hold it for as long as it takes to
// see that its connection is lost.
func (v *Receiver) openPart(e *receiving) error {
	e.opened.Do(func() {
		part, err := v.tree.Partial(e.meta, 1<<e.entry.BlockLog, disk.PartialOptions{Sync: true})
		for errors.Is(err, disk.ErrBusy) && time.Now().Before(v.busyUntil) && v.ctx.Err() == nil {
			select {
			case <-v.ctx.Done():
			case <-time.After(busyEvery):
				part, err = v.tree.Partial(e.meta, 1<<e.entry.BlockLog, disk.PartialOptions{Sync: true})
			}
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if err == nil && e.gone {
			_ = part.Abort()
			part, err = nil, errClosed
		}
		e.part, e.failed = part, err
	})
	return e.failed
}

// fileMode translates the mode bits of an entry. A peer does not make programs that run as somebody else.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

func (v *Receiver) find(index uint64) *receiving {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.active[index]
}

// AddStream reads blocks from a data stream until it ends, fails, or the session is over. The receiver closes it.
func (v *Receiver) AddStream(stream Stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		_ = stream.Close()
		return
	}
	v.streams[stream] = struct{}{}
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		err := v.carry(stream)
		_ = stream.Close()
		v.mu.Lock()
		delete(v.streams, stream)
		v.mu.Unlock()
		var known *wire.Error
		if errors.As(err, &known) || errors.Is(err, wire.ErrMalformed) {
			v.end(err) // the peer breaks the protocol; a broken connection only costs the stream
		}
	}()
}

// carry is the way of a block on the receiving side: read the header, check it against the manifest, read and digest
// the payload, write, acknowledge.
func (v *Receiver) carry(stream Stream) error {
	var head [wire.BlockHeaderLen]byte
	buf := make([]byte, 1<<maxBlockLog)
	hash := new(blake3tree.Hasher)
	for {
		if _, err := io.ReadFull(stream, head[:]); err != nil {
			return err
		}
		h, err := wire.ParseBlockHeader(head[:])
		if err != nil || h.End {
			return err
		}
		e, wanted, err := v.expect(&h)
		if errors.Is(err, errVersions) {
			v.fail(e, wire.Errorf(wire.CodeChanged, "the file changed while it was sent"))
			e, wanted, err = nil, false, nil
		}
		if err != nil {
			return err
		}
		payload := buf[:h.Length]
		if !wanted {
			if _, err := io.ReadFull(stream, payload); err != nil {
				return err
			}
			if e != nil {
				v.ctrl.ack(h.Index, h.Block)
			}
			continue
		}
		hash.Reset(h.Block << e.entry.BlockLog)
		if err := readBlock(stream, payload, hash); err != nil {
			v.leave(e, h.Block)
			return err
		}
		node := hash.Sum()
		if chaining(&node) != h.Digest {
			v.reject(e, h.Block)
			continue
		}
		if err := v.write(e, &h, payload); err != nil {
			v.leave(e, h.Block)
			v.fail(e, err)
			continue
		}
		v.accept(e, &h, node)
	}
}

// readBlock fills payload and digests each piece while it is in the cache.
func readBlock(stream Stream, payload []byte, hash *blake3tree.Hasher) error {
	digested := 0
	for at := 0; at < len(payload); {
		n, err := stream.Read(payload[at:])
		at += n
		if at == len(payload) {
			break
		}
		if err != nil {
			return err
		}
		if whole := at &^ (blake3tree.GroupSize - 1); whole-digested >= blake3tree.GroupSize {
			hash.Write(payload[digested:whole])
			digested = whole
		}
	}
	hash.Write(payload[digested:])
	return nil
}

// errVersions marks a block that two streams carry with different digests: its source changed in between.
var errVersions = errors.New("a block comes in two versions")

// expect waits until the block's entry is known and checks the header against it. An unwanted block belongs to an entry that is
// resolved, and then e is nil, or is there already.
func (v *Receiver) expect(h *wire.BlockHeader) (e *receiving, wanted bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !v.over && h.Index >= v.next && !(v.ended && h.Index >= v.count) {
		v.cond.Wait()
	}
	if v.over {
		return nil, false, errClosed
	}
	if h.Index >= v.next {
		return nil, false, protocolError("block of entry %d, which does not exist", h.Index)
	}
	e = v.active[h.Index]
	if e == nil {
		return nil, false, nil
	}
	if err := e.check(h); err != nil {
		return nil, false, err
	}
	if e.done.has(h.Block) {
		return e, false, nil
	}
	c := e.busy[h.Block]
	if c.streams > 0 && c.digest != h.Digest {
		return e, false, errVersions
	}
	e.busy[h.Block] = claim{h.Digest, c.streams + 1}
	return e, true, nil
}

// check holds a header against what is known of the entry.
func (e *receiving) check(h *wire.BlockHeader) error {
	size := int64(1) << e.entry.BlockLog
	length := int64(h.Length)
	switch {
	case e.blocks >= 0 && h.Block >= e.blocks:
		return protocolError("block %d beyond the end of entry %d", h.Block, h.Index)
	case e.entry.Size >= 0 && length != int64(lengthOf(e.entry.Size, e.entry.BlockLog, h.Block)):
		return protocolError("block %d of entry %d has %d bytes", h.Block, h.Index, length)
	case length == 0 || length > size || h.Block > (1<<62)>>e.entry.BlockLog:
		return protocolError("block %d of entry %d has %d bytes", h.Block, h.Index, length)
	case e.entry.Size < 0 && length < size:
		if e.short >= 0 && e.short != h.Block {
			return protocolError("entry %d ends twice", h.Index)
		}
		e.short, e.shortLen = h.Block, int(length)
	}
	return nil
}

func (v *Receiver) write(e *receiving, h *wire.BlockHeader, payload []byte) error {
	if !e.tracked {
		if err := v.takeSlot(e); err != nil {
			return err
		}
	}
	if err := v.openPart(e); err != nil {
		return err
	}
	if _, err := e.part.WriteAt(payload, h.Block<<e.entry.BlockLog); err != nil {
		return err
	}
	return e.part.Mark(h.Block, h.Digest)
}

// takeSlot waits until one more file of one block may be open. finishEntry gives the slot back.
func (v *Receiver) takeSlot(e *receiving) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !e.slot && !e.gone && !v.over && v.small >= smallAtOnce {
		v.cond.Wait()
	}
	if e.gone || v.over {
		return errClosed
	}
	if !e.slot {
		e.slot = true
		v.small++
	}
	return nil
}

// leave gives up the claim on a block that expect granted.
func (v *Receiver) leave(e *receiving, block int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.leaveLocked(block)
}

func (e *receiving) leaveLocked(block int64) {
	if c := e.busy[block]; c.streams > 1 {
		e.busy[block] = claim{c.digest, c.streams - 1}
	} else {
		delete(e.busy, block)
	}
}

// reject asks for a block again whose digest is wrong.
func (v *Receiver) reject(e *receiving, block int64) {
	v.leave(e, block)
	v.mu.Lock()
	e.rejected++
	v.stats.Rejected++
	many := e.rejected > rejectMax
	v.mu.Unlock()
	if many || e.entry.Size < 0 {
		v.fail(e, wire.Errorf(wire.CodeIntegrity, "blocks arrive with wrong digests"))
		return
	}
	v.ctrl.send(&wire.Resend{Index: e.index, Blocks: []wire.Extent{{Start: block, Count: 1}}})
}

// accept counts a written block and commits the file after its last one.
func (v *Receiver) accept(e *receiving, h *wire.BlockHeader, node guts.Node) {
	v.ctrl.ack(h.Index, h.Block)
	v.mu.Lock()
	e.leaveLocked(h.Block)
	first := e.tree.add(h.Block, node)
	e.done.add(h.Block, 1)
	v.stats.Read += int64(h.Length)
	if first {
		v.stats.Written += int64(h.Length)
		v.commitLocked(e)
	}
	v.mu.Unlock()
	if !first {
		return
	}
	v.event(Event{Kind: Written, Index: e.index, Entry: &e.entry, Bytes: int64(h.Length)})
}

// recheck re-reads the blocks of an earlier run, missing, while others arrive. A damaged one is asked for again.
func (v *Receiver) recheck(e *receiving, missing extents) {
	defer v.running.Done()
	buf := make([]byte, 1<<e.entry.BlockLog)
	var hash blake3tree.Hasher
	var bad extents
	err := e.part.Recorded(func(block int64, cv [32]byte) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		if !missing.has(block) {
			return nil
		}
		data := buf[:lengthOf(e.entry.Size, e.entry.BlockLog, block)]
		hash.Reset(block << e.entry.BlockLog)
		if _, err := e.part.ReadAt(data, block<<e.entry.BlockLog); err == nil {
			hash.Write(data)
			if node := hash.Sum(); chaining(&node) == cv {
				v.mu.Lock()
				e.tree.add(block, node)
				v.mu.Unlock()
				missing.remove(block, 1)
				return nil
			}
		}
		bad.add(block, 1)
		missing.remove(block, 1)
		return nil
	})
	if v.ctx.Err() != nil || err != nil && errors.Is(err, fs.ErrClosed) {
		return
	}
	for _, x := range missing {
		bad.add(x.Start, x.Count)
	}
	var lost int64
	for _, x := range bad {
		for b := x.Start; b < x.Start+x.Count; b++ {
			_ = e.part.Drop(b)
			lost += int64(lengthOf(e.entry.Size, e.entry.BlockLog, b))
		}
	}
	v.mu.Lock()
	for _, x := range bad {
		e.done.remove(x.Start, x.Count)
		v.stats.Rejected += x.Count
	}
	v.stats.Resumed -= lost
	e.checking = false
	v.commitLocked(e)
	v.mu.Unlock()
	if len(bad) > 0 {
		v.ctrl.send(&wire.Resend{Index: e.index, Blocks: bad})
		v.event(Event{Kind: Written, Index: e.index, Entry: &e.entry, Bytes: -lost})
	}
}

// endEntry learns size and root digest.
func (v *Receiver) endEntry(m *wire.EndEntry) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.active[m.Index]
	if e == nil {
		if m.Index >= v.next {
			return protocolError("end of an entry that does not exist")
		}
		return nil
	}
	blocks := blocksOf(m.Size, e.entry.BlockLog)
	switch {
	case e.digest != nil:
		return protocolError("entry %d ends twice", m.Index)
	case e.entry.Size >= 0 && m.Size != e.entry.Size:
		return protocolError("entry %d ends with another size", m.Index)
	case e.entry.Size < 0 && e.short >= 0 && (e.short != blocks-1 || e.shortLen != lengthOf(m.Size, e.entry.BlockLog, e.short)):
		return protocolError("entry %d ends with another size", m.Index)
	case len(e.done) > 0 && e.done[len(e.done)-1].Start+e.done[len(e.done)-1].Count > blocks:
		return protocolError("entry %d ends before its last block", m.Index)
	}
	e.blocks, e.size, e.digest = blocks, m.Size, &m.Digest
	v.commitLocked(e)
	return nil
}

// commitLocked starts the commit of a file of which everything is there.
func (v *Receiver) commitLocked(e *receiving) {
	if e.resolved || e.checking || e.digest == nil || e.tree.count != e.blocks || v.over {
		return
	}
	e.resolved = true
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		select {
		case v.commits <- struct{}{}:
		case <-v.ctx.Done(): // keepPartials closes it
			return
		}
		defer func() { <-v.commits }()
		v.finishEntry(e, v.commit(e))
	}()
}

// commit compares the root digest and gives the file its name.
func (v *Receiver) commit(e *receiving) error {
	root, whole := e.tree.root(e.blocks)
	if !whole || root != *e.digest {
		if e.part != nil {
			_ = e.part.Abort()
		}
		return wire.Errorf(wire.CodeIntegrity, "the file's digest is not the sender's")
	}
	if err := v.openPart(e); err != nil {
		return err
	}
	if v.opt.Readback {
		if err := v.readback(e, root); err != nil {
			return err
		}
	}
	meta := e.meta
	meta.Size = e.size
	return e.part.Commit(meta)
}

// readback reads the file from the disk once more.
func (v *Receiver) readback(e *receiving, root [32]byte) error {
	if err := e.part.Checkpoint(v.ctx); err != nil { // also empties the cache where it can
		return err
	}
	buf := make([]byte, 1<<e.entry.BlockLog)
	var hash blake3tree.Hasher
	var tree hashTree
	for b := range e.blocks {
		if err := v.ctx.Err(); err != nil {
			return context.Cause(v.ctx)
		}
		data := buf[:lengthOf(e.size, e.entry.BlockLog, b)]
		if _, err := e.part.ReadAt(data, b<<e.entry.BlockLog); err != nil {
			return err
		}
		hash.Reset(b << e.entry.BlockLog)
		hash.Write(data)
		tree.add(b, hash.Sum())
	}
	if got, _ := tree.root(e.blocks); got != root {
		_ = e.part.Abort()
		return wire.Errorf(wire.CodeIntegrity, "read back from the disk, the file's digest is not the sender's")
	}
	return nil
}

// finishEntry reports the end of an entry that commitLocked or fail resolved.
func (v *Receiver) finishEntry(e *receiving, err error) {
	ev := Event{Kind: Committed, Index: e.index, Entry: &e.entry}
	if err == nil {
		ev.Digest = *e.digest
		v.ctrl.send(&wire.Committed{Index: e.index, Digest: ev.Digest})
	} else {
		var known *wire.Error
		if !errors.As(err, &known) {
			known = &wire.Error{Code: codeOf(err), Text: err.Error()}
		}
		ev.Kind, ev.Err = Failed, known
		if known.Code == wire.CodeAgain {
			ev.Kind = Again
		}
		if !known.Remote {
			v.ctrl.send(&wire.EntryFailed{Index: e.index, Code: known.Code, Text: known.Text})
		}
		v.mu.Lock()
		e.gone = true
		part := e.part
		v.mu.Unlock()
		if part != nil {
			e.leavePart() // may wait for the disk
		}
	}
	v.event(ev)
	v.mu.Lock()
	defer v.mu.Unlock()
	e.gone = true
	if e.slot {
		e.slot = false
		v.small--
	}
	delete(v.active, e.index)
	v.pending--
	if e.tracked {
		v.open--
	}
	v.finishLocked()
	v.cond.Broadcast()
}

// fail ends an entry that is not resolved yet. What is there stays for a later session, if the source stays the same.
func (v *Receiver) fail(e *receiving, err error) {
	v.mu.Lock()
	first := !e.resolved
	e.resolved = true
	v.mu.Unlock()
	if first {
		v.finishEntry(e, err)
	}
}

// finishedLocked tells whether every entry is resolved.
func (v *Receiver) finishedLocked() bool {
	return v.ended && v.next == v.count && v.pending == 0
}

// finishLocked ends the session on this side after the last entry.
func (v *Receiver) finishLocked() {
	if !v.finishedLocked() || v.told || v.over {
		return
	}
	v.told = true
	v.running.Add(1)
	go v.finish(v.folders)
}

// finish sets the folders' times, last because each file in them changes those, and tells the sender.
func (v *Receiver) finish(folders []folderMeta) {
	defer v.running.Done()
	for _, f := range slices.Backward(folders) {
		err := v.tree.SetDirMeta(f.path, disk.Meta{Kind: disk.Dir, ModTime: f.entry.Time(), Mode: fileMode(f.entry.Mode)})
		if err != nil {
			known := &wire.Error{Code: codeOf(err), Text: err.Error()}
			v.ctrl.send(&wire.EntryFailed{Index: f.index, Code: known.Code, Text: known.Text})
			v.event(Event{Kind: Failed, Index: f.index, Entry: &f.entry, Err: known})
		}
	}
	v.ctrl.send(&wire.Finished{})
	if v.opt.Leave {
		v.end(nil)
	}
}

// codeOf maps an error of this host's target disk to a code.
func codeOf(err error) wire.Code {
	var known *wire.Error
	switch {
	case errors.As(err, &known):
		return known.Code
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrExists):
		return wire.CodePath
	case errors.Is(err, disk.ErrBusy):
		return wire.CodeBusy
	case errors.Is(err, disk.ErrNoSpace):
		return wire.CodeNoSpace
	case errors.Is(err, disk.ErrUnsupportedKind):
		return wire.CodeUnsupported
	}
	return wire.CodeTargetDisk
}
