package fxfer

import (
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// tracker turns the engine's events into progress, results and a report. It outlives the sessions of one transfer: the first
// block of counters is of all of them, the second of the present one.
type tracker struct {
	opt   *Options
	start time.Time

	mu         sync.Mutex
	written    int64
	resumed    int64
	committed  int64
	failed     int64
	failures   []FileResult
	digest     string
	peak       float64
	reconnects int

	walking   bool
	files     int64
	bytes     int64
	done      int64 // bytes
	filesDone int64
	active    []*activeFile
	byIndex   map[uint64]*activeFile
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

func newTracker(opt *Options) *tracker {
	t := &tracker{opt: opt, start: time.Now()}
	t.begin()
	return t
}

// begin forgets what the last session found: the next one finds everything anew.
func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.walking = true
	t.files, t.bytes, t.done, t.filesDone, t.failed, t.failures = 0, 0, 0, 0, 0, nil
	t.active = nil
	t.byIndex = make(map[uint64]*activeFile)
}

var kindNames = map[wire.Kind]string{wire.File: "file", wire.Dir: "folder", wire.Symlink: "symlink", wire.Share: "share"}

// event takes one of the engine's. It reports results outside of its lock: events come one at a time.
func (t *tracker) event(e transfer.Event) {
	if r, ok := t.count(&e); ok && t.opt.File != nil {
		t.opt.File(r)
	}
}

func (t *tracker) count(e *transfer.Event) (FileResult, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Kind == transfer.Listed {
		t.walking = false
		return FileResult{}, false
	}
	r := FileResult{Path: e.Entry.Path, Kind: kindNames[e.Entry.Kind], Bytes: max(0, e.Entry.Size)}
	isFile := e.Entry.Kind == wire.File
	f := t.byIndex[e.Index]
	switch e.Kind {
	case transfer.Found:
		if isFile {
			t.files++
			t.bytes += max(0, e.Entry.Size)
		}
		return r, false
	case transfer.Started:
		t.touch(e).done += e.Bytes
		t.done += e.Bytes
		if t.reconnects == 0 { // later sessions also find what the earlier ones of this transfer wrote
			t.resumed += e.Bytes
		}
		return r, false
	case transfer.Written:
		t.touch(e).done += e.Bytes
		t.done += e.Bytes
		if e.Bytes > 0 {
			t.written += e.Bytes
		} else if t.reconnects == 0 {
			t.resumed += e.Bytes
		}
		if e.Entry.Size < 0 {
			t.bytes += e.Bytes
		}
		return r, false
	case transfer.Committed:
		t.committed++
		t.filesDone++
		r.Outcome, r.Digest = Committed, hexDigest(e.Digest)
		if f != nil && e.Entry.Size < 0 {
			r.Bytes = f.done
		}
		t.digest = r.Digest
	case transfer.Same:
		t.filesDone++
		t.done += r.Bytes
		r.Outcome = Unchanged
	case transfer.Done:
		r.Outcome = Made
	case transfer.Again:
		t.files--
		t.bytes -= r.Bytes
		if f != nil {
			t.done -= f.done
		}
	case transfer.Failed:
		r.Outcome, r.Err = Failed, e.Err
		t.failLocked(r)
	}
	if f != nil {
		delete(t.byIndex, e.Index)
		t.active = slices.DeleteFunc(t.active, func(x *activeFile) bool { return x == f })
	}
	return r, e.Kind != transfer.Again
}

// touch returns the file of an event, as one under way.
func (t *tracker) touch(e *transfer.Event) *activeFile {
	f := t.byIndex[e.Index]
	if f == nil {
		f = &activeFile{path: e.Entry.Path, size: e.Entry.Size}
		t.byIndex[e.Index] = f
		t.active = append(t.active, f)
	}
	return f
}

// walkFailed reports what could not be listed.
func (t *tracker) walkFailed(path string, err error) {
	r := FileResult{Path: path, Outcome: Failed, Err: err}
	t.mu.Lock()
	t.failLocked(r)
	t.mu.Unlock()
	if t.opt.File != nil {
		t.opt.File(r)
	}
}

const maxFailures = 100

func (t *tracker) failLocked(r FileResult) {
	t.failed++
	if len(t.failures) < maxFailures {
		t.failures = append(t.failures, r)
	}
}

// maxActive bounds the files of a Progress.
const maxActive = 8

// rateSpan is what a goodput is averaged over.
const rateSpan = 3 * time.Second

func (t *tracker) progress(streams int, rtt time.Duration) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p := Progress{
		Elapsed: now.Sub(t.start), Walking: t.walking, Files: t.files, FilesDone: t.filesDone, FilesFailed: t.failed,
		Bytes: t.bytes, BytesDone: t.done, Streams: streams, RTT: rtt,
	}
	t.marks = append(t.marks, mark{now, t.written})
	for len(t.marks) > 2 && now.Sub(t.marks[0].at) > rateSpan {
		t.marks = t.marks[1:]
	}
	if first := t.marks[0]; now.Sub(first.at) > 0 {
		p.Goodput = float64(t.written-first.written) * 8 / now.Sub(first.at).Seconds()
		if now.Sub(first.at) >= time.Second {
			t.peak = max(t.peak, p.Goodput)
		}
	}
	for _, f := range t.active[:min(len(t.active), maxActive)] {
		p.Active = append(p.Active, FileProgress{Path: f.path, Bytes: f.size, Done: f.done})
	}
	return p
}

func (t *tracker) report(server string) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Report{
		Server: server, Duration: time.Since(t.start), Files: t.files, Sent: t.committed, Same: max(0, t.filesDone-t.committed),
		Failed: t.failed, Bytes: t.bytes, Written: t.written, Resumed: t.resumed, Failures: t.failures, Peak: t.peak, Reconnects: t.reconnects,
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
