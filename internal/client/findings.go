package client

import (
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/session"
)

// findings collects and reports what a verification finds.
type findings struct {
	call  Verification
	start time.Time

	mu    sync.Mutex // guards what follows, and is held while call is used
	sum   Comparison
	total int64     // files to be compared; 0 if that is unknown
	shown time.Time // when progress was shown last
}

func newFindings(u session.URL, call Verification) findings {
	return findings{call: call, start: time.Now(), sum: Comparison{Server: serverOf(u)}}
}

// done returns the sums, when nothing more will be found.
func (f *findings) done() *Comparison {
	f.sum.Duration = time.Since(f.start)
	return &f.sum
}

// found reports a difference.
func (f *findings) found(path string, what session.Finding, detail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch what {
	case session.Missing:
		f.sum.Missing++
	case session.Extra:
		f.sum.Extra++
	case session.Different:
		f.sum.Different++
	case session.Unreadable:
		f.sum.Unreadable++
	case session.Lacking:
		f.sum.Lacking++
	}
	if f.call.Difference != nil {
		f.call.Difference(Difference{Path: path, Finding: what, Detail: detail})
	}
}

// show reports progress now and then.
func (f *findings) show() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.call.Progress == nil || now.Sub(f.shown) < session.ReportEvery {
		return
	}
	f.shown = now
	elapsed := now.Sub(f.start)
	f.call.Progress(session.Progress{
		Elapsed: elapsed, Walking: f.total == 0, Files: max(f.total, f.sum.Files), FilesDone: f.sum.Files,
		Bytes: f.sum.Bytes, BytesDone: f.sum.Bytes, Goodput: float64(f.sum.Bytes) * 8 / elapsed.Seconds(),
	})
}
