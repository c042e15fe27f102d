package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// ReceiverOptions tune a Receiver. Zero is right for all but Path.
type ReceiverOptions struct {
	// Path of the target below the tree, "." for the tree itself. An existing folder, or a path that ends with a slash, takes the
	// entries in; otherwise a single file gets this name, and several entries make a new folder of it.
	Path    string
	Target  wire.Target
	Names   []string           // what was asked for: first elements of the entries' paths; nil is any
	Leave   bool               // return without waiting for the sender to see that all is done
	Event   func(Event)        // progress; nil for none
	Message func(wire.Message) // messages that are not the engine's
	// Finishing is called when all is done, just before the sender is told; nil for none. It may Send.
	Finishing func()
	Clock     *Clock    // takes the times of the stages; nil for none
	Snapshot  *Snapshot // the tree is to be a snapshot; nil for others
	Quota     Quota     // of the target; nil for none
}

// Receiver writes what one session's sender announces below a folder. Everything that it reads from its streams is
// hostile until checked; what goes wrong with one entry fails that entry only.
type Receiver struct {
	opt    ReceiverOptions
	tree   *disk.Tree
	ctrl   *control
	reader *wire.Reader
	meta   disk.TargetOptions
	base   string // what entry paths are below; the file's own name if rename
	rename bool

	mu       sync.Mutex
	cond     *sync.Cond
	active   map[uint64]*receiving // announced and not resolved
	pending  int                   // of these, and of folders whose metadata is not set
	open     int                   // weight of these
	held     int                   // bytes of their names and attributes
	removed  int64                 // entries that Delete has removed, or would
	failed   int64                 // entries
	grave    int64                 // of these, see isGrave
	strange  uint64                // one more than the last entry of which a block came before its announcement
	next     uint64                // number of the next entry
	count    uint64                // entries in all, once ended
	started  bool
	ended    bool // the manifest has an end
	prune    bool // a Prune comes
	over     bool
	told     bool        // the end is under way
	finished bool        // the sender was told
	way      *wire.Prune // it came
	streams  map[Stream]struct{}
	stats    Stats

	folders      folders             // whose metadata is set when all in them is done
	linked       map[fileID]struct{} // files of the target of several names, one of which stays
	orphans      map[string]*orphan  // by path: of entries that changed and come again
	staged       []stagedFile        // complete files without name
	bytes        int64               // in these
	flush        bool                // name them now
	naming       int                 // files that are being named
	stagedMax    int                 // of both
	deltas       bool                // the sender can make use of old versions
	linksWaiting int                 // entries of active that wait for others
	timer        *time.Timer         // flushes
	asked        []chan *wire.Extra  // questions about folders, oldest first
	warned       map[string]*wire.Warning

	hashing   chan struct{} // bounds files that are read to be compared
	offering  chan struct{} // bounds old versions that are read
	busyUntil time.Time
	running   sync.WaitGroup
	ctx       context.Context
	stop      context.CancelCauseFunc
	events    sync.Mutex
}

// receiving is an entry under way. Fields below the first group are guarded by Receiver.mu.
type receiving struct {
	index uint64
	entry wire.Entry
	meta  disk.Meta // Path is the target's
	held  int       // bytes of names and attributes
	lacks bool      // nothing of its kind is there
	over  bool      // a file is there

	part  *disk.Partial
	delta *deltaReceive // nil for none

	reused bool // linked or copied from the previous snapshot; set before its end

	folder      *folder      // that waits for it
	links       []*receiving // hard links that wait for it
	resolved    bool
	hashing     bool      // the target's content is being compared: no data yet
	hashed      *[32]byte // its digest, while the sender compares
	blocks      int64     // -1 while unknown
	done        extents
	size        int64 // -1 while unknown
	busy        map[int64]claim
	tree        hashTree
	emptyBlocks extents // without data
	short       int64   // of a stream: the block that is not full, or -1
	shortLen    int
	checking    bool // recheck is under way
	digest      *[32]byte
	rejected    int
	claimed     claimed // of the quota
}

// small tells whether the file comes whole, with its digest.
func (e *receiving) small() bool { return e.entry.Size >= 0 && e.blocks <= 1 }

// claim is a block that streams are reading and writing. Two may carry the same block when a dead stream
// is not known to be dead yet.
type claim struct {
	digest  [32]byte
	streams int
}

const (
	// What a peer may announce ahead: the sender's bounds, doubled, so that a sender with other ones still fits.
	announceMax = 2 * maxEntries
	openMax     = 2 * maxOpen
	heldMax     = 2 * maxHeld
	// rejectMax is how many blocks of an entry may arrive damaged. TLS makes even one a sign of bad memory.
	rejectMax = 8
	// busyFor is how long a session waits for files that an earlier one holds.
	busyFor   = silence + 2*pingEvery
	busyEvery = 100 * time.Millisecond
	// busyLeast is how long it waits for one at any time.
	busyLeast = 5 * time.Second
)

// NewReceiver prepares a session on a control stream whose opening messages have been exchanged. r is the Reader of
// that stream.
func NewReceiver(stream io.ReadWriteCloser, r *wire.Reader, tree *disk.Tree, opt ReceiverOptions) *Receiver {
	v := &Receiver{
		opt: opt, tree: tree, ctrl: newControl(stream), reader: r,
		active: make(map[uint64]*receiving), streams: make(map[Stream]struct{}),
		orphans: make(map[string]*orphan), linked: make(map[fileID]struct{}), warned: make(map[string]*wire.Warning),
		folders:   folders{open: make(map[string]*folder)},
		hashing:   make(chan struct{}, comparesAtOnce),
		offering:  make(chan struct{}, offersAtOnce),
		busyUntil: time.Now().Add(busyFor),
	}
	v.meta = disk.TargetOptions{Sync: disk.Sync(opt.Target.Sync), Owner: true, Xattrs: true, Warn: v.warn, Syncing: opt.Clock.syncing}
	v.stagedMax = disk.NewBatch(tree, v.meta).Most()
	v.cond = sync.NewCond(&v.mu)
	v.timer = time.AfterFunc(time.Hour, v.flushNow)
	v.timer.Stop()
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
	tasks.Go(v.nameStaged)
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
	if cause == nil || v.finished {
		cause = errFinished
	}
	first := !v.over
	v.over = true
	v.cond.Broadcast()
	v.mu.Unlock()
	if first {
		v.timer.Stop()
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
		e.leavePart(false)
		v.settleEntry(e, e.part != nil)
	}
	if len(v.active) > 0 {
		v.freed() // what could not be resumed
	}
	for _, s := range v.staged {
		_ = s.file.Discard()
	}
	v.staged = nil
}

// leavePart ends the partial file of an entry that was not committed. What can be resumed stays; gone tells that its source is not
// what it was.
func (e *receiving) leavePart(gone bool) {
	e.closeOld()
	switch {
	case e.part == nil:
	case e.entry.Size < 0 || gone:
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
	v.flush = true
	v.cond.Broadcast()
	v.mu.Unlock()
	for _, p := range parts {
		_ = p.Checkpoint(ctx) // what it cannot keep will be sent again
	}
	v.mu.Lock()
	for (len(v.staged) > 0 || v.naming > 0) && !v.over && ctx.Err() == nil {
		v.flush = true
		v.cond.Wait()
	}
	v.mu.Unlock()
	v.end(wire.Errorf(wire.CodeDraining, "the server is shutting down"))
}

// AtRisk is for how long something has been written that a power cut would still take, of the files that have checkpoints.
func (v *Receiver) AtRisk() (longest time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.active {
		if e.part != nil {
			longest = max(longest, e.part.AtRisk())
		}
	}
	return longest
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
	if ev.Kind == Failed {
		v.mu.Lock()
		v.failed++
		if isGrave(ev.Err) {
			v.grave++
		}
		v.mu.Unlock()
	}
	if v.opt.Event != nil {
		v.events.Lock()
		defer v.events.Unlock()
		v.opt.Event(ev)
	}
}

// warn counts what the target cannot hold.
func (v *Receiver) warn(w disk.Warning) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.warned[w.What]
	if known == nil {
		known = &wire.Warning{What: w.What, Path: w.Path, Text: w.Err.Error()}
		v.warned[w.What] = known
	}
	known.Count++
}

func protocolError(format string, args ...any) error {
	return wire.Errorf(wire.CodeProtocol, format, args...)
}

// handle acts on a message of the sender.
func (v *Receiver) handle(m wire.Message) (bool, error) {
	switch m := m.(type) {
	case *wire.Manifest:
		return true, v.begin(m)
	case *wire.Entries:
		lap := v.opt.Clock.start(Compare)
		defer lap.stop()
		return true, v.entries(m)
	case *wire.EndManifest:
		v.event(Event{Kind: Listed})
		v.mu.Lock()
		if v.told || m.Count < v.next || v.ended && m.Count < v.count {
			v.mu.Unlock()
			return false, protocolError("manifest ends twice")
		}
		v.ended, v.count = true, m.Count
		done := v.folders.leave("")
		v.cond.Broadcast() // blocks of entries that do not come
		v.mu.Unlock()
		v.setFolders(done)
		v.finish()
	case *wire.Compared:
		return true, v.compared(m)
	case *wire.Pick:
		return true, v.pick(m)
	case *wire.Ask:
		return true, v.ask(m)
	case *wire.Empty:
		return true, v.empty(m)
	case *wire.EndEntry:
		return true, v.endEntry(m)
	case *wire.EntryFailed:
		err := &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		if m.Index == wire.NoEntry {
			v.event(Event{Kind: Failed, Index: m.Index, Entry: new(wire.Entry), Err: err})
		} else if e := v.find(m.Index); e != nil {
			v.fail(e, err)
		}
	case *wire.Warning:
		v.event(Event{Kind: Warned, Index: wire.NoEntry, Entry: new(wire.Entry), Warning: m})
	case *wire.Prune:
		v.mu.Lock()
		if !v.prune || v.way != nil || !v.ended || v.next != v.count { // our own bookkeeping may still be under way
			v.mu.Unlock()
			return false, protocolError("unexpected order to prune")
		}
		v.way = m
		v.mu.Unlock()
		v.finish()
	case *wire.Extra:
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.asked) == 0 {
			return false, protocolError("an answer without a question")
		}
		v.asked[0] <- m
		v.asked = v.asked[1:]
	default:
		if v.opt.Message != nil {
			v.opt.Message(m)
		}
	}
	return true, nil
}

// begin decides what the entries' paths are below.
func (v *Receiver) begin(m *wire.Manifest) error {
	if v.started {
		return protocolError("two manifests")
	}
	v.started = true
	v.prune = m.Prune && v.opt.Target.Delete
	v.deltas = m.Delta
	if m.Prune != v.opt.Target.Delete {
		return protocolError("one side prunes, the other does not")
	}
	if dir := v.opt.Target.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil {
			return &wire.Error{Code: wire.CodePath, Text: err.Error()}
		}
	}
	target := strings.TrimSuffix(v.opt.Path, "/")
	v.base = target
	if target == "." || target == "" {
		v.base = "."
		return nil
	}
	if err := disk.CheckPath(target); err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	have, err := v.tree.Stat(target)
	switch {
	case err == nil && have.Kind == disk.Dir:
		return nil
	case err == nil && !m.Single:
		return &wire.Error{Code: wire.CodePath, Text: fmt.Sprintf("%q is not a folder", target)}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &wire.Error{Code: codeOf(err), Text: err.Error()}
	}
	if m.Single && !strings.HasSuffix(v.opt.Path, "/") {
		v.rename = true
		target = path.Dir(target)
	}
	if target != "." && !v.opt.Target.DryRun {
		if err := v.mkdir(target); err != nil {
			return &wire.Error{Code: codeOf(err), Text: err.Error()}
		}
	}
	return nil
}

func (v *Receiver) find(index uint64) *receiving {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.active[index]
}

// finishedLocked tells whether every entry is resolved.
func (v *Receiver) finishedLocked() bool {
	return v.ended && v.next == v.count && v.pending == 0
}

// finish ends the session on this side after the last entry, in the background: what the sender does not have is removed, all is made
// durable, and the sender is told.
func (v *Receiver) finish() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.finishedLocked() || v.told || v.over || v.prune && v.way == nil {
		return
	}
	v.told = true
	v.cond.Broadcast()
	strange := v.strange > v.next
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		if strange {
			v.end(protocolError("a block of an entry that does not exist"))
			return
		}
		switch s := v.opt.Snapshot; {
		case v.way == nil:
		case s == nil:
			v.pruneAll(v.way.Folders)
		case s.Resumed && len(v.way.Folders) > 0: // also what other sources left in the snapshot itself
			v.pruneAll([]string{"."})
		}
		if !v.opt.Target.DryRun && v.opt.Target.Sync != wire.SyncNone {
			synced := v.opt.Clock.syncing()
			err := v.tree.SyncAll()
			synced()
			if err != nil {
				v.end(&wire.Error{Code: codeOf(err), Text: err.Error()})
				return
			}
		}
		v.mu.Lock()
		failed, grave, over := v.failed, v.grave, v.over
		v.mu.Unlock()
		if s := v.opt.Snapshot; s != nil && !over {
			if err := s.Publish(failed, grave); err != nil {
				v.end(&wire.Error{Code: codeOf(err), Text: err.Error()})
				return
			}
		}
		v.mu.Lock()
		v.finished = true
		warned := v.warned
		v.mu.Unlock()
		for _, w := range warned {
			v.ctrl.send(w)
			v.event(Event{Kind: Warned, Index: wire.NoEntry, Entry: new(wire.Entry), Warning: w})
		}
		if v.opt.Finishing != nil {
			v.opt.Finishing()
		}
		v.ctrl.send(&wire.Finished{})
		if v.opt.Leave {
			v.end(nil)
		}
	}()
}

// hopeless tells whether what a disk says of one entry holds for all others as well: it is full, takes nothing, or too
// much is open here. That one large file does not fit says nothing of the next.
func hopeless(err error) bool {
	var large *disk.NoSpaceError
	return errors.Is(err, disk.ErrNoSpace) && !errors.As(err, &large) || errors.Is(err, syscall.EROFS) || errors.Is(err, disk.ErrTooManyFiles)
}

// endIfHopeless ends the session with err if that is hopeless: then nothing is to be said of single entries.
func (v *Receiver) endIfHopeless(err error) bool {
	if !hopeless(err) {
		return false
	}
	v.end(&wire.Error{Code: codeOf(err), Text: err.Error()})
	return true
}

// codeOf maps an error of this host's target disk to a code.
func codeOf(err error) wire.Code {
	var known *wire.Error
	switch {
	case errors.As(err, &known):
		return known.Code
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrExists),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EILSEQ):
		return wire.CodePath
	case errors.Is(err, disk.ErrBusy), errors.Is(err, disk.ErrTooManyFiles):
		return wire.CodeBusy
	case errors.Is(err, disk.ErrNoSpace):
		return wire.CodeNoSpace
	case errors.Is(err, disk.ErrUnsupportedKind):
		return wire.CodeUnsupported
	}
	return wire.CodeTargetDisk
}
