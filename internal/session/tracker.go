package session

import (
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/paged"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Tracker turns the events of an engine into progress, results and a report. It lives as long as a
// transfer, over all of its sessions.
type Tracker struct {
	opt   TrackerOptions
	Start time.Time // of the transfer; never changes

	reporting sync.Mutex // held while opt.File is called

	mu sync.Mutex // guards what follows

	// Of all sessions.
	written    int64
	copied     int64
	resumed    int64
	committed  int64
	links      int64 // that were made
	failed     int64
	failures   []FileResult
	digest     [32]byte // of the file that was committed last
	removed    int64
	notPruned  bool
	notStored  []NotStored
	healed     int64
	peak       float64 // bit/s
	reconnects int

	// Of the present session.
	walking   bool
	files     int64
	bytes     int64
	done      int64 // bytes
	filesDone int64
	same      int64 // of these, unchanged
	before    int64 // of these, committed by an earlier session
	skipped   int64
	plan      Plan
	active    paged.Map[activeFile] // by index
	marks     []mark                // of the last seconds, for the rate
}

type activeFile struct {
	entry *wire.Entry
	done  int64 // bytes
}

type mark struct {
	at    time.Time
	moved int64 // bytes that were written, or are ahead
}

// TrackerOptions say where results go.
type TrackerOptions struct {
	DryRun bool
	File   func(FileResult) // is called with each result, one at a time; may be nil
	// Keep is a list of the results that starts again with each session; nil is none.
	Keep resultList
}

// resultList keeps results together with their entries.
type resultList interface {
	Restart()
	Add(r *FileResult, x *wire.Entry)
}

// NewTracker starts the clock of a transfer, before its first session.
func NewTracker(opt TrackerOptions) *Tracker {
	t := &Tracker{opt: opt, Start: time.Now()}
	t.beginLocked()
	return t
}

// Restart forgets what the last session found, because the next one finds everything again. lost
// reports whether a connection was lost, which is counted.
func (t *Tracker) Restart(lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lost {
		t.reconnects++
	}
	t.beginLocked()
}

func (t *Tracker) beginLocked() {
	t.walking = true
	t.files, t.bytes, t.done, t.filesDone, t.same, t.skipped = 0, 0, 0, 0, 0, 0
	t.failed, t.failures, t.notPruned = 0, nil, false
	t.before = t.committed
	t.plan = Plan{}
	t.active = paged.Map[activeFile]{}
	t.marks = nil // what a lost session had ahead is sent again
	if t.opt.Keep != nil {
		t.opt.Keep.Restart()
	}
}

// Reconnects is the number of sessions that were lost and followed by another.
func (t *Tracker) Reconnects() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reconnects
}

// Moved is the payload that was written at the target or copied there, in bytes.
func (t *Tracker) Moved() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written + t.copied
}

// Event takes an event of the engine. Events come one at a time. Results are reported without the
// lock.
func (t *Tracker) Event(e *transfer.Event) {
	if e.Kind == transfer.Listed || e.Kind == transfer.Warned || e.Kind == transfer.NotPruned {
		t.note(e)
		return
	}
	if e.Kind == transfer.Found || e.Kind == transfer.Started || e.Kind == transfer.Written {
		t.progress(e)
		return
	}
	r, over := t.end(e)
	if !over {
		return
	}
	if t.opt.Keep != nil {
		kept := r // so that r stays on the stack where nobody keeps results
		t.opt.Keep.Add(&kept, e.Entry)
	}
	t.reportResult(r)
}

// reportResult calls opt.File.
func (t *Tracker) reportResult(r FileResult) {
	if t.opt.File != nil {
		t.reporting.Lock()
		defer t.reporting.Unlock()
		t.opt.File(r)
	}
}

// note takes an event that is not about one entry.
func (t *Tracker) note(e *transfer.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case transfer.Listed:
		t.walking = false
		return
	case transfer.NotPruned:
		t.notPruned = true
		return
	}
	w := e.Warning
	if w.What == SnapshotHealed {
		t.healed = int64(min(w.Count, 1<<62))
		return
	}
	t.notStoredLocked(NotStored{What: w.What, Count: int64(min(w.Count, 1<<62)), Path: w.Path, Text: w.Text})
}

// maxNotStored bounds the values of NotStored.What, which the peer chooses.
const maxNotStored = 32

func (t *Tracker) notStoredLocked(n NotStored) {
	for i := range t.notStored {
		if t.notStored[i].What == n.What {
			t.notStored[i].Count += n.Count
			return
		}
	}
	if len(t.notStored) < maxNotStored {
		t.notStored = append(t.notStored, n)
	}
}

// progress takes an event of an entry that goes on.
func (t *Tracker) progress(e *transfer.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case transfer.Found:
		if e.Entry.Kind == wire.File {
			t.files++
			t.bytes += max(0, e.Entry.Size)
		}
	case transfer.Started:
		t.moveLocked(e)
		if t.reconnects == 0 { // later sessions also find what the earlier ones of this transfer wrote
			t.resumed += e.Bytes
		}
	case transfer.Written:
		t.moveLocked(e)
		if e.Bytes > 0 {
			t.written += e.Bytes - e.Copied
			t.copied += e.Copied
		} else if t.reconnects == 0 {
			t.resumed += e.Bytes
		}
		if e.Entry.Size < 0 {
			t.bytes += e.Bytes
		}
	}
}

// end takes an event that ends an entry, and returns the result. It returns false if the entry
// comes again.
func (t *Tracker) end(e *transfer.Event) (r FileResult, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r = FileResult{Path: e.Entry.Path, Kind: KindName(e.Entry.Kind), Bytes: max(0, e.Entry.Size)}
	if e.Kind == transfer.Removed {
		t.removed++
		r.Outcome = Removed
		if t.opt.DryRun {
			r.Outcome = WouldRemove
		}
		return r, true
	}
	f := t.active.Delete(e.Index)
	switch e.Kind {
	case transfer.Again:
		t.files--
		t.bytes -= r.Bytes
		t.done -= f.done
		return r, false
	case transfer.Failed:
		r.Outcome, r.Err = Failed, e.Err
		t.failLocked(r)
		return r, true
	}
	t.outcomeLocked(e, f, &r)
	return r, true
}

// outcomeLocked fills in and counts the outcome of an entry that has not failed. f is its file in
// active, if it was there.
func (t *Tracker) outcomeLocked(e *transfer.Event, f activeFile, r *FileResult) {
	isFile := e.Entry.Kind == wire.File
	switch e.Kind {
	case transfer.Committed:
		t.committed++
		r.Outcome = Committed
		if t.opt.File != nil || t.opt.Keep != nil {
			r.Digest = hexDigest(e.Digest)
		}
		if e.Entry.Size < 0 {
			r.Bytes = f.done
		}
		t.digest = e.Digest
	case transfer.Same:
		r.Outcome = Unchanged
		if isFile {
			t.same++
		}
	case transfer.Done:
		r.Outcome = Made
		if e.Entry.Kind == wire.Symlink {
			t.links++
		}
	case transfer.Skipped:
		r.Outcome = Skipped
		if isFile {
			t.skipped++
		}
	case transfer.WouldSend:
		r.Outcome = WouldUpdate
		t.plan.Update++
		if e.New {
			r.Outcome = WouldCreate
			t.plan.Update--
			t.plan.Create++
		}
		t.plan.Bytes += r.Bytes
	case transfer.WouldSet:
		r.Outcome = WouldSet
		t.plan.Set++
	}
	if isFile {
		t.filesDone++
		if e.Kind != transfer.Committed && f.entry == nil { // its bytes were not counted as they were written
			t.done += r.Bytes
		}
	}
}

// hexDigest returns a digest as text, "" for that of a file with holes, which has none.
func hexDigest(d [32]byte) string {
	if d == [32]byte{} {
		return ""
	}
	return digest.Hex(d)
}

// moveLocked adds the bytes of an event to its file in active.
func (t *Tracker) moveLocked(e *transfer.Event) {
	t.done += e.Bytes
	t.active.Put(e.Index, activeFile{e.Entry, t.active.Get(e.Index).done + e.Bytes})
}

// oldestLocked returns the first files of active, by index.
func (t *Tracker) oldestLocked() (files []FileProgress) {
	var first []uint64
	for index := range t.active.All() {
		if len(first) < MaxActive {
			first = append(first, index)
		} else if last := slices.Max(first); index < last {
			first[slices.Index(first, last)] = index
		}
	}
	slices.Sort(first)
	for _, index := range first {
		f := t.active.Get(index)
		files = append(files, FileProgress{Path: f.entry.Path, Bytes: f.entry.Size, Done: f.done})
	}
	return files
}

// WalkFailed reports a path that could not be listed.
func (t *Tracker) WalkFailed(path string, err error) {
	t.Fail(FileResult{Path: path, Outcome: Failed, Err: err})
}

// Fail reports a failure that the engine does not know.
func (t *Tracker) Fail(r FileResult) {
	t.mu.Lock()
	t.failLocked(r)
	t.mu.Unlock()
	t.reportResult(r)
}

// SetFailed sets the number of failed entries where only a lost session knew the details.
func (t *Tracker) SetFailed(failed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = max(t.failed, failed)
}

// SetHealed sets how many files a snapshot has healed that this host has filled.
func (t *Tracker) SetHealed(files int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.healed = files
}

// maxFailures bounds Report.Failures.
const maxFailures = 100

func (t *Tracker) failLocked(r FileResult) {
	t.failed++
	if len(t.failures) < maxFailures {
		t.failures = append(t.failures, r)
	}
}

// rateSpan is the time over which Progress.Goodput is averaged.
const rateSpan = 3 * time.Second

// Progress returns a look at the transfer. streams and rtt are of its data streams, and ahead is what
// these have carried of blocks that are not complete, in bytes: on a narrow line, all streams complete
// their blocks at about the same time, and nothing is written in between for longer than rateSpan. It is
// to be called regularly, because it also keeps the highest goodput.
func (t *Tracker) Progress(streams int, rtt time.Duration, ahead int64) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p := Progress{
		Elapsed: now.Sub(t.Start), Walking: t.walking, Files: t.files, FilesDone: t.filesDone, FilesFailed: t.failed,
		Bytes: t.bytes, BytesDone: t.done, Written: t.written, Streams: streams, RTT: rtt,
	}
	moved := t.written + ahead
	if n := len(t.marks); n > 0 { // what is ahead was looked at before what is written
		moved = max(moved, t.marks[n-1].moved)
	}
	t.marks = append(t.marks, mark{now, moved})
	for len(t.marks) > 2 && now.Sub(t.marks[0].at) > rateSpan {
		t.marks = t.marks[1:]
	}
	if first := t.marks[0]; now.Sub(first.at) > 0 {
		p.Goodput = float64(moved-first.moved) * 8 / now.Sub(first.at).Seconds()
		if now.Sub(first.at) >= time.Second {
			t.peak = max(t.peak, p.Goodput)
		}
	}
	p.Active = t.oldestLocked()
	return p
}

// Report sums up what the engine has reported so far. server is Report.Server.
func (t *Tracker) Report(server string) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Report{
		Server: server, Duration: time.Since(t.Start), Reconnects: t.reconnects,
		Files: t.files, Sent: t.committed, Same: max(0, t.same-t.before), Skipped: t.skipped, Links: t.links, Failed: t.failed, Removed: t.removed,
		Bytes: t.bytes, Written: t.written, Copied: t.copied, Resumed: t.resumed,
		Failures: t.failures, NotStored: t.notStored, NotPruned: t.notPruned, Peak: t.peak, Healed: t.healed,
	}
	if t.opt.DryRun {
		plan := t.plan
		r.Plan = &plan
	}
	if s := r.Duration.Seconds(); s > 0 {
		r.Goodput = float64(r.Written) * 8 / s
	}
	r.Peak = max(r.Peak, r.Goodput)
	if t.files == 1 {
		r.Digest = hexDigest(t.digest)
	}
	return r
}
