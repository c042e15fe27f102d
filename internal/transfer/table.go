package transfer

import (
	"hash/maphash"
	"sync"

	"github.com/fxfer/fxfer/internal/paged"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// A peer may announce twice as much ahead as this sender does, so that senders with other
	// bounds fit.
	announceMax = 2 * maxEntries
	openMax     = 2 * maxOpen
	heldMax     = 2 * maxHeld
	// maxOrphans bounds the entries that changed and are awaited. Each comes right after it was
	// given up.
	maxOrphans = 256
	// maxNamed bounds the entries of several names that are known to be in place, and namedMemory is
	// what each takes, bytes.
	maxNamed    = 4 << 20
	namedMemory = 48
)

// table holds the receiver's entries from their announcement until they are resolved. It knows how
// far the manifest is, and bounds what the sender may announce.
type table struct {
	mu     sync.Mutex // guards the following; a leaf: of other locks only that of files is taken under it
	cond   *sync.Cond // streams wait here for their blocks' entries
	active paged.Map[*receiving]
	next   uint64 // index of the next entry
	open   int    // sum of weights of active
	held   int    // bytes of the names and attributes of active, and of folders
	memory memory
	files  *ClientFiles
	opened int // active entries that have files of it
	// named has the entries in place that have several names, by index: hashes of their paths.
	named map[uint64]uint64
	seed  maphash.Seed // of these hashes: no peer can choose paths with the same
	// pending counts the active entries, the folders whose metadata is not set, and the messages of
	// entries that are being answered.
	pending int
	waiting int                // active hard links that wait for another entry
	folders folders            // whose metadata is set when all in them is resolved
	orphans map[string]*orphan // by path: what waits for entries that changed and come again

	started bool        // the manifest has begun
	ended   bool        // it has an end
	count   uint64      // entries in all, once ended
	strange uint64      // a block came before the announcement of entry strange-1, but of no later one
	prunes  bool        // Prune comes
	prune   *wire.Prune // it came
	closing bool        // the end of the session is under way
	over    bool
}

// orphan is what waits for an entry that changed, until that comes again under another index.
type orphan struct {
	folder *folder
	links  []*receiving
}

func newTable(account *Account, files *ClientFiles) *table {
	t := &table{
		memory: memory{account: account}, files: files, seed: maphash.MakeSeed(), named: make(map[uint64]uint64), orphans: make(map[string]*orphan),
	}
	t.folders.open = make(map[string]*folder)
	t.cond = sync.NewCond(&t.mu)
	return t
}

// end makes all waits return.
func (t *table) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.memory.close()
	t.cond.Broadcast()
}

// start begins the manifest, once.
func (t *table) start(prunes bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		return protocolError("two manifests")
	}
	t.started, t.prunes = true, prunes
	return nil
}

// startBatch admits a message of entries. The session cannot end before endBatch.
func (t *table) startBatch(m *wire.Entries) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.started, t.closing, m.First != t.next:
		return protocolError("entries out of order")
	case t.pending+len(m.Entries) > announceMax+wire.MaxPath, t.held > heldMax,
		t.open+weightOfAll(m.Entries) > openMax:
		return protocolError("more entries than allowed")
	}
	t.pending++
	return nil
}

// endBatch notes that the answers to a message of entries are sent.
func (t *table) endBatch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	t.cond.Broadcast()
}

// add takes an entry in, which was reached.
func (t *table) add(e *receiving) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := e.entry.Path
	if again := t.orphans[p]; again != nil { // it comes out of order
		delete(t.orphans, p)
		e.folder, e.links = again.folder, again.links
		for _, link := range e.links {
			link.entry.First = e.index
		}
	} else if e.folder = t.folders.holder(p); e.folder != nil {
		e.folder.wait++
	}
	t.pending++
	t.active.Put(e.index, e)
	t.held += e.held
	t.open += weightOf(&e.entry)
}

// reach goes on with the manifest to a new entry. It returns folders that are complete, since the
// manifest has left them. It returns false if something waits for an entry at this path.
func (t *table) reach(path string) (done []*folder, free bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.orphans[path] != nil { // it comes out of order
		return nil, false
	}
	return t.folders.leave(path), true
}

// pass leaves out an entry that was reached and needs nothing.
func (t *table) pass(x *wire.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memory.free(memoryOf(x))
	t.next++
	t.cond.Broadcast()
}

// ready lets streams find the entry that was added last.
func (t *table) ready() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	t.cond.Broadcast()
}

// takeFiles takes the files that an entry of several blocks has open until it is resolved.
func (t *table) takeFiles(e *receiving) error {
	if err := t.files.Take(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active.Get(e.index) == nil { // the sender gave it up meanwhile
		t.files.Give(1)
		return nil
	}
	e.opened = true
	t.opened++
	return nil
}

// giveFiles gives back the files of all entries, which are closed.
func (t *table) giveFiles() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files.Give(t.opened)
	t.opened = 0
	for _, e := range t.active.All() {
		e.opened = false
	}
}

// find returns an entry, nil if it is resolved or does not exist.
func (t *table) find(index uint64) *receiving {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active.Get(index)
}

// announced reports whether an entry was announced.
func (t *table) announced(index uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return index < t.next
}

// await waits until the entry of a block is announced, and returns it; nil if it is resolved.
func (t *table) await(index uint64) (*receiving, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The announcement is on its way. After the end of the manifest only what changed comes again,
	// a few times at most.
	for !t.over && !t.closing && index >= t.next && !(t.ended && index >= t.count+3*uint64(t.pending)) {
		t.strange = max(t.strange, index+1)
		t.cond.Wait()
	}
	switch {
	case t.over:
		return nil, errClosed
	case index >= t.next:
		return nil, protocolError("block of entry %d, which does not exist", index)
	}
	return t.active.Get(index), nil
}

// waitFor lets a hard link wait for a file that is not resolved. It returns false if that is
// resolved, or no file.
func (t *table) waitFor(first uint64, link *receiving) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.active.Get(first)
	if e == nil || e.entry.Kind != wire.File {
		return false
	}
	e.links = append(e.links, link)
	t.waiting++
	return true
}

// stopWaiting notes that hard links wait no more.
func (t *table) stopWaiting(links int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting -= links
}

// underWay returns how many entries are active and do not wait for others.
func (t *table) underWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active.Len() - t.waiting
}

// remove takes a resolved entry out. It returns what waited for it: hard links, and a folder if
// that is complete now. If the entry comes again, they wait on.
func (t *table) remove(e *receiving, again bool) (links []*receiving, done []*folder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cond.Broadcast()
	return t.removeLocked(e, again)
}

// removeInPlace is inPlace and remove for many entries, which do not come again.
func (t *table) removeInPlace(all []*receiving) (links []*receiving, done []*folder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cond.Broadcast()
	for _, e := range all {
		t.inPlaceLocked(e)
		waited, complete := t.removeLocked(e, false)
		links, done = append(links, waited...), append(done, complete...)
	}
	return links, done
}

func (t *table) removeLocked(e *receiving, again bool) (links []*receiving, done []*folder) {
	t.active.Delete(e.index)
	t.pending--
	t.held -= e.held
	t.memory.free(entryMemory + int64(e.held))
	t.open -= weightOf(&e.entry)
	if e.opened {
		e.opened = false
		t.opened--
		t.files.Give(1)
	}
	if again && len(t.orphans) < maxOrphans {
		t.orphans[e.entry.Path] = &orphan{e.folder, e.links}
	} else {
		links, done = e.links, t.folders.release(e.folder)
	}
	return links, done
}

// enterFolder has a folder's metadata wait for all in it.
func (t *table) enterFolder(x *folder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending++
	t.held += x.held
	t.memory.used += entryMemory + int64(x.held) // it was counted as an entry, which is about to be resolved
	t.folders.enter(x)
}

// leaveFolder notes that a folder's metadata is set. It returns the folder above if that is
// complete now.
func (t *table) leaveFolder(x *folder) (done []*folder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	t.held -= x.held
	t.memory.free(entryMemory + int64(x.held))
	t.cond.Broadcast()
	return t.folders.release(x.parent)
}

// endManifest takes the end of the manifest, which may come again with a higher count. It returns
// folders that are complete.
func (t *table) endManifest(count uint64) (done []*folder, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing || count < t.next || t.ended && count < t.count {
		return nil, protocolError("the manifest ends twice")
	}
	t.ended, t.count = true, count
	t.cond.Broadcast() // for blocks of entries that do not come
	return t.folders.leave(""), nil
}

// setPrune takes the message that names what to prune. Our own bookkeeping of the last entries may
// still be under way.
func (t *table) setPrune(m *wire.Prune) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.prunes || t.prune != nil || !t.ended || t.next != t.count {
		return protocolError("unexpected order to prune")
	}
	t.prune = m
	return nil
}

// close reports, once, that every entry is resolved and the session can end. Then start is called
// before the session can end otherwise.
func (t *table) close(start func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	resolved := t.ended && t.next == t.count && t.pending == 0
	if !resolved || t.closing || t.over || t.prunes && t.prune == nil {
		return
	}
	t.closing = true
	t.cond.Broadcast()
	start()
}

// toPrune returns the message that names what to prune, nil for none. The error is that a block
// came of an entry that does not exist.
func (t *table) toPrune() (*wire.Prune, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.strange > t.next {
		return nil, protocolError("a block of an entry that does not exist")
	}
	return t.prune, nil
}

// inPlace notes that an entry has its name. Others of its names may follow.
func (t *table) inPlace(e *receiving) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inPlaceLocked(e)
}

func (t *table) inPlaceLocked(e *receiving) {
	if !e.entry.Named {
		return
	}
	if len(t.named) < maxNamed && t.memory.tryTake(namedMemory) {
		t.named[e.index] = maphash.String(t.seed, e.entry.Path)
	}
}

// isInPlace reports whether an entry of this session has its name, the path, and may get others.
func (t *table) isInPlace(index uint64, path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash, ok := t.named[index]
	return ok && hash == maphash.String(t.seed, path)
}

// rest returns the active entries.
func (t *table) rest() []*receiving {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := make([]*receiving, 0, t.active.Len())
	for _, e := range t.active.All() {
		rest = append(rest, e)
	}
	return rest
}
