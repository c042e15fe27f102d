package transfer

import (
	"sync"

	"github.com/fxfer/fxfer/internal/paged"
	"github.com/fxfer/fxfer/internal/wire"
)

// manifest holds the sender's entries from their announcement until they are resolved. It bounds
// them, and finds the files of several names.
type manifest struct {
	counts *counters
	prune  bool // the receiver is to remove what the source does not have

	mu       sync.Mutex // guards the following; a leaf: nothing else is locked while it is held
	room     *sync.Cond // the walk waits here for room, or for an entry to announce again
	entries  paged.Map[*sending]
	next     uint64 // index of the next entry
	told     uint64 // the announcer has done with entries before this one
	open     int    // sum of weights of entries
	held     int    // bytes of their names and attributes
	memory   memory
	bytes    int64            // of all files announced
	firsts   map[fileID]first // what has several names: the entry that stands for it
	again    []*sending       // entries that changed, to be announced again
	failures bool             // something failed, so nothing may be removed
	listed   bool             // the end of the manifest is about to be sent
	walked   bool             // it was sent
	pruned   bool             // Prune was sent
	over     bool
	spare    []*sending // entries that are resolved and that nobody else has, to be used again
}

// first is the entry that stands for a file, link or special file of several names.
type first struct {
	index uint64
	path  string
	names uint64 // that were not announced yet
}

func newManifest(counts *counters, prune bool, account *Account) *manifest {
	m := &manifest{counts: counts, prune: prune, memory: memory{account: account}}
	m.firsts = make(map[fileID]first)
	m.room = sync.NewCond(&m.mu)
	return m
}

// end makes all waits return.
func (m *manifest) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	m.memory.close()
	m.room.Broadcast()
}

// maxSpare bounds the entries that are kept to be used again: what the receiver settles at a time.
const maxSpare = 2 * announceMost

// spareEntry returns an entry that nobody else has, with whatever it held before.
func (m *manifest) spareEntry() *sending {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := len(m.spare) - 1
	if last < 0 {
		return new(sending)
	}
	e := m.spare[last]
	m.spare = m.spare[:last]
	return e
}

// setTold notes that the announcer has done with the entries before next.
func (m *manifest) setTold(next uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = next
}

// keepSpare keeps resolved entries that nobody else has; nil is none. It leaves out those that a peer
// answered before their announcement. Where the target has all files already, they were most of the
// garbage of a session.
func (m *manifest) keepSpare(all []*sending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range all {
		if e != nil && e.index < m.told && len(m.spare) < maxSpare {
			m.spare = append(m.spare, e)
		}
	}
}

// add numbers an entry. A file that was announced under another name becomes a hard link to that,
// and anything else but a folder says which entry it is another name of.
func (m *manifest) add(e *sending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.index = m.next
	m.next++
	x := &e.item.Entry
	if x.Kind != wire.Dir {
		m.linkLocked(e)
	}
	e.measure(m.counts)
	if x.Kind == wire.File && x.Size >= 0 {
		m.bytes += x.Size
	}
	m.entries.Put(e.index, e)
	m.open += weightOf(x)
	m.held += e.held
	m.memory.used += entryMemory + int64(e.held)
}

// linkLocked makes an entry a hard link if it was announced under another name.
func (m *manifest) linkLocked(e *sending) {
	x := &e.item.Entry
	x.Named = x.Named || e.item.Names > 1 && x.Ino != 0
	if e.item.Names < 2 || x.Ino == 0 || m.walked {
		return
	}
	id := fileID{x.Dev, x.Ino}
	f, known := m.firsts[id]
	if !known {
		m.firsts[id] = first{e.index, x.Path, e.item.Names - 1}
		return
	}
	if f.names--; f.names == 0 {
		delete(m.firsts, id)
	} else {
		m.firsts[id] = f
	}
	if x.Kind != wire.File {
		x.Alias, x.First = f.path, f.index
		return
	}
	*x = wire.Entry{
		Kind: wire.Hardlink, Path: x.Path, Link: f.path, First: f.index,
		ModTime: x.ModTime, Mode: x.Mode,
	}
	e.item.Content, e.size = nil, 0
}

// unlink lets the next name of a file stand for it, since e won't.
func (m *manifest) unlink(e *sending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlinkLocked(e)
}

func (m *manifest) unlinkLocked(e *sending) {
	id := fileID{e.item.Entry.Dev, e.item.Entry.Ino}
	if m.firsts[id].index == e.index {
		delete(m.firsts, id)
	}
}

// find returns an entry, or nil if it is resolved. The error is that it was never announced.
func (m *manifest) find(index uint64) (*sending, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index >= m.next {
		return nil, protocolError("entry %d does not exist", index)
	}
	return m.entries.Get(index), nil
}

// findRun returns the entries of a run that are not resolved. The error is that one was never
// announced.
func (m *manifest) findRun(start, count uint64) (all []*sending, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := start + count
	if end > m.next {
		return nil, protocolError("entry %d does not exist", end-1)
	}
	if count <= uint64(m.entries.Len()) {
		for i := start; i < end; i++ {
			if e := m.entries.Get(i); e != nil {
				all = append(all, e)
			}
		}
		return all, nil
	}
	for i, e := range m.entries.All() {
		if i >= start && i < end {
			all = append(all, e)
		}
	}
	return all, nil
}

// hasRoomLocked is hasRoom. Where other sessions have all memory, there is room again when the
// receiver has resolved entries of this one.
func (m *manifest) hasRoomLocked() bool {
	return m.entries.Len() < maxEntries && m.open < maxOpen && m.held < maxHeld && m.memory.cover()
}

// hasRoom reports whether one more entry may be announced.
func (m *manifest) hasRoom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasRoomLocked()
}

// waitRoom waits for room, or for an entry to announce again, which it returns. It returns false
// when the session is over.
func (m *manifest) waitRoom() (*sending, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.over && !m.hasRoomLocked() && len(m.again) == 0 {
		m.room.Wait()
	}
	if m.over || m.hasRoomLocked() {
		return nil, !m.over
	}
	return m.popAgainLocked(), true
}

// nextAgain waits for an entry to announce again. It returns nil when the session is over.
func (m *manifest) nextAgain() *sending {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.over && len(m.again) == 0 {
		m.room.Wait()
	}
	if m.over {
		return nil
	}
	return m.popAgainLocked()
}

func (m *manifest) popAgainLocked() *sending {
	e := m.again[0]
	m.again = m.again[1:]
	return e
}

// change queues an entry to be announced again. It returns false if that was done before.
func (m *manifest) change(e *sending) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.changed {
		return false
	}
	e.changed = true
	m.again = append(m.again, e)
	m.room.Broadcast()
	return true
}

// remove takes a resolved entry out. It returns false if that was done before.
func (m *manifest) remove(e *sending, failed bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.resolved {
		return false
	}
	if failed {
		m.failures = true
		m.unlinkLocked(e)
	}
	m.removeLocked(e)
	return true
}

func (m *manifest) removeLocked(e *sending) {
	e.resolved = true
	m.entries.Delete(e.index)
	m.open -= weightOf(&e.item.Entry)
	m.held -= e.held
	m.memory.free(entryMemory + int64(e.held))
	m.room.Broadcast()
}

// place takes entries out that have their names at the target. It replaces those by nil that were
// removed before.
func (m *manifest) place(all []*sending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, e := range all {
		if e.resolved {
			all[i] = nil
		} else {
			m.removeLocked(e)
		}
	}
}

// settle takes the entries of answers out, of which nothing is to be sent. It returns those that
// were there, each in the place of its answer, up to an error: an answer that breaks the protocol.
func (m *manifest) settle(all []wire.Answer) (ended []*sending, err error) {
	ended = make([]*sending, len(all))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range all {
		a := &all[i]
		if a.Index >= m.next {
			return ended, protocolError("entry %d does not exist", a.Index)
		}
		e := m.entries.Get(a.Index)
		if e == nil { // it failed here meanwhile
			continue
		}
		if a.Verdict == wire.Done && e.item.Entry.Kind == wire.File {
			return ended, protocolError("entry %d is a file", a.Index)
		}
		m.removeLocked(e)
		ended[i] = e
	}
	return ended, nil
}

// isResolved reports whether an entry was removed.
func (m *manifest) isResolved(e *sending) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.resolved
}

// fail notes that something failed that is not an entry.
func (m *manifest) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = true
}

// list returns the message that ends the manifest.
func (m *manifest) list() *wire.EndManifest {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = true
	clear(m.firsts)
	return &wire.EndManifest{Count: m.next, Bytes: m.bytes}
}

// setWalked notes that the end of the manifest was sent. From now on Prune may follow.
func (m *manifest) setWalked() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.walked = true
}

func (m *manifest) isWalked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.walked
}

// finished reports whether everything was listed and resolved.
func (m *manifest) finished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed && m.entries.Len() == 0
}

// pruneNow reports, once, that all entries are resolved and Prune is due, and whether anything
// failed.
func (m *manifest) pruneNow() (now, failures bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = m.prune && m.walked && !m.pruned && m.entries.Len() == 0
	m.pruned = m.pruned || now
	return now, m.failures
}

// rest returns the entries that are left.
func (m *manifest) rest() []*sending {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := make([]*sending, 0, m.entries.Len())
	for _, e := range m.entries.All() {
		rest = append(rest, e)
	}
	return rest
}
