package session

import (
	"container/list"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Tracker turns the engine's events into progress, results and a report. It outlives the sessions of one transfer: the first
// block of counters is of all of them, the second of the present one.
type Tracker struct {
	opt   TrackerOptions
	Start time.Time

	telling sync.Mutex // held while opt.File is called

	mu         sync.Mutex
	Written    int64
	Copied     int64
	resumed    int64
	committed  int64
	failed     int64
	failures   []FileResult
	digest     string
	removed    int64
	warnings   []Warning
	peak       float64
	Reconnects int

	walking   bool
	files     int64
	bytes     int64
	done      int64 // bytes
	filesDone int64
	same      int64 // of these, unchanged
	before    int64 // of these, committed by an earlier session
	skipped   int64
	plan      Plan
	active    *list.List // of *activeFile, oldest first
	byIndex   map[uint64]*list.Element
	marks     []mark // of the last seconds, for the rate
}

type activeFile struct {
	path string
	size int64
	done int64
}

type mark struct {
	at      time.Time
	written int64
}

// TrackerOptions say who hears of the results.
type TrackerOptions struct {
	DryRun bool
	File   func(FileResult) // is called with each result, one at a time; nil is nobody
	// Keep is a list of the results that begins anew with each session; nil is none.
	Keep resultList
}

// resultList keeps results with the entries that they belong to.
type resultList interface {
	Restart()
	Add(r *FileResult, x *wire.Entry)
}

func NewTracker(opt TrackerOptions) *Tracker {
	t := &Tracker{opt: opt, Start: time.Now()}
	t.Begin()
	return t
}

// Begin forgets what the last session found: the next one finds everything anew.
func (t *Tracker) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.walking = true
	t.files, t.bytes, t.done, t.filesDone, t.same, t.skipped, t.failed, t.failures = 0, 0, 0, 0, 0, 0, 0, nil
	t.before = t.committed
	t.plan = Plan{}
	t.active = list.New()
	t.byIndex = make(map[uint64]*list.Element)
	if t.opt.Keep != nil {
		t.opt.Keep.Restart()
	}
}

var KindNames = map[wire.Kind]string{
	wire.File: "file", wire.Dir: "folder", wire.Symlink: "symlink", wire.Share: "share", wire.Fifo: "fifo", wire.Hardlink: "hard link",
	wire.CharDevice: "character device", wire.BlockDevice: "block device", wire.Socket: "socket",
}

// Event takes one of the engine's. It reports results outside of its lock: events come one at a time.
func (t *Tracker) Event(e transfer.Event) {
	if e.Kind == transfer.Listed || e.Kind == transfer.Warned {
		t.note(&e)
		return
	}
	r, over := t.count(&e)
	if !over {
		return
	}
	if t.opt.Keep != nil {
		t.opt.Keep.Add(&r, e.Entry)
	}
	t.tell(r)
}

// tell reports a result.
func (t *Tracker) tell(r FileResult) {
	if t.opt.File != nil {
		t.telling.Lock()
		defer t.telling.Unlock()
		t.opt.File(r)
	}
}

// note takes an event that is not of an entry.
func (t *Tracker) note(e *transfer.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Kind == transfer.Listed {
		t.walking = false
		return
	}
	t.warnLocked(Warning{What: e.Warning.What, Count: int64(min(e.Warning.Count, 1<<62)), Path: e.Warning.Path, Text: e.Warning.Text})
}

// maxWarnings bounds the kinds of warnings, which the peer chooses.
const maxWarnings = 32

func (t *Tracker) warnLocked(w Warning) {
	for i := range t.warnings {
		if t.warnings[i].What == w.What {
			t.warnings[i].Count += w.Count
			return
		}
	}
	if len(t.warnings) < maxWarnings {
		t.warnings = append(t.warnings, w)
	}
}

// count takes an event of an entry, and returns its result if that is known now.
func (t *Tracker) count(e *transfer.Event) (r FileResult, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r = FileResult{Path: e.Entry.Path, Kind: KindNames[e.Entry.Kind], Bytes: max(0, e.Entry.Size)}
	switch e.Kind {
	case transfer.Found:
		if e.Entry.Kind == wire.File {
			t.files++
			t.bytes += r.Bytes
		}
		return r, false
	case transfer.Started:
		t.touchLocked(e).done += e.Bytes
		t.done += e.Bytes
		if t.Reconnects == 0 { // later sessions also find what the earlier ones of this transfer wrote
			t.resumed += e.Bytes
		}
		return r, false
	case transfer.Written:
		t.touchLocked(e).done += e.Bytes
		t.done += e.Bytes
		if e.Bytes > 0 {
			t.Written += e.Bytes - e.Copied
			t.Copied += e.Copied
		} else if t.Reconnects == 0 {
			t.resumed += e.Bytes
		}
		if e.Entry.Size < 0 {
			t.bytes += e.Bytes
		}
		return r, false
	case transfer.Removed:
		t.removed++
		r.Outcome = Removed
		if t.opt.DryRun {
			r.Outcome = WouldRemove
		}
		return r, true
	}
	f := t.leaveLocked(e.Index)
	switch e.Kind {
	case transfer.Again:
		t.files--
		t.bytes -= r.Bytes
		if f != nil {
			t.done -= f.done
		}
		return r, false
	case transfer.Failed:
		r.Outcome, r.Err = Failed, e.Err
		t.failLocked(r)
		return r, true
	}
	t.outcomeLocked(e, f, &r)
	return r, true
}

// outcomeLocked fills in what became of an entry that has not failed, and counts it. f is the file under way, if it was.
func (t *Tracker) outcomeLocked(e *transfer.Event, f *activeFile, r *FileResult) {
	isFile := e.Entry.Kind == wire.File
	switch e.Kind {
	case transfer.Committed:
		t.committed++
		r.Outcome = Committed
		if e.Digest != [32]byte{} { // that of a file with holes is not known
			r.Digest = HexDigest(e.Digest)
		}
		if f != nil && e.Entry.Size < 0 {
			r.Bytes = f.done
		}
		t.digest = r.Digest
	case transfer.Same:
		r.Outcome = Unchanged
		if isFile {
			t.same++
		}
	case transfer.Done:
		r.Outcome = Made
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
		if e.Kind != transfer.Committed { // its bytes were counted as they were written
			t.done += r.Bytes
		}
	}
}

// touchLocked returns the file of an event, as one under way.
func (t *Tracker) touchLocked(e *transfer.Event) *activeFile {
	at := t.byIndex[e.Index]
	if at == nil {
		at = t.active.PushBack(&activeFile{path: e.Entry.Path, size: e.Entry.Size})
		t.byIndex[e.Index] = at
	}
	return at.Value.(*activeFile)
}

// leaveLocked returns a file that is no longer under way, nil if it never was.
func (t *Tracker) leaveLocked(index uint64) *activeFile {
	at := t.byIndex[index]
	if at == nil {
		return nil
	}
	delete(t.byIndex, index)
	return t.active.Remove(at).(*activeFile)
}

// WalkFailed reports what could not be listed.
func (t *Tracker) WalkFailed(path string, err error) {
	t.Fail(FileResult{Path: path, Outcome: Failed, Err: err})
}

// Fail reports a failure that is no event.
func (t *Tracker) Fail(r FileResult) {
	t.mu.Lock()
	t.failLocked(r)
	t.mu.Unlock()
	t.tell(r)
}

// SetFailed takes note of how many entries failed of which an earlier session has known the details.
func (t *Tracker) SetFailed(failed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = max(t.failed, failed)
}

const maxFailures = 100

func (t *Tracker) failLocked(r FileResult) {
	t.failed++
	if len(t.failures) < maxFailures {
		t.failures = append(t.failures, r)
	}
}

// MaxActive bounds the files of a Progress.
const MaxActive = 8

// rateSpan is what a goodput is averaged over.
const rateSpan = 3 * time.Second

func (t *Tracker) Progress(streams int, rtt time.Duration) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p := Progress{
		Elapsed: now.Sub(t.Start), Walking: t.walking, Files: t.files, FilesDone: t.filesDone, FilesFailed: t.failed,
		Bytes: t.bytes, BytesDone: t.done, Written: t.Written, Streams: streams, RTT: rtt,
	}
	t.marks = append(t.marks, mark{now, t.Written})
	for len(t.marks) > 2 && now.Sub(t.marks[0].at) > rateSpan {
		t.marks = t.marks[1:]
	}
	if first := t.marks[0]; now.Sub(first.at) > 0 {
		p.Goodput = float64(t.Written-first.written) * 8 / now.Sub(first.at).Seconds()
		if now.Sub(first.at) >= time.Second {
			t.peak = max(t.peak, p.Goodput)
		}
	}
	for at := t.active.Front(); at != nil && len(p.Active) < MaxActive; at = at.Next() {
		f := at.Value.(*activeFile)
		p.Active = append(p.Active, FileProgress{Path: f.path, Bytes: f.size, Done: f.done})
	}
	return p
}

func (t *Tracker) Report(server string) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Report{
		Server: server, Duration: time.Since(t.Start), Files: t.files, Sent: t.committed, Same: max(0, t.same-t.before), Skipped: t.skipped, Failed: t.failed,
		Removed: t.removed, Bytes: t.bytes, Written: t.Written, Copied: t.Copied, Resumed: t.resumed, Failures: t.failures, Warnings: t.warnings, Peak: t.peak,
		Reconnects: t.Reconnects,
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
		r.Digest = t.digest
	}
	return r
}
