// Package outbox makes a folder send itself: it finds files that are complete, keeps a durable queue
// of them, sends them, and sees to the local files once the server has them.
//
// Scans of the folder are the truth, and notifications of the kernel only say when to scan. Every
// decision is a pure function of this file, over a File as the queue has it and a Version as a scan
// found it.
package outbox

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// State says how far a file is on its way.
type State string

// The states. A file that changes is arriving again, whatever it was before.
const (
	Arriving State = "arriving" // it is not complete, as far as this host can see
	Waiting  State = "waiting"  // it is complete and waits for its turn
	Sending  State = "sending"  // it is part of the present session
	There    State = "there"    // the server has committed this version
)

// Version identifies the content of a file without reading it. Whoever writes to a file changes its
// ChangeTime, which programs cannot set.
type Version struct {
	Size       int64  `json:"size"`            // bytes
	ModTime    int64  `json:"mtime"`           // ns since 1970
	ChangeTime int64  `json:"ctime,omitzero"`  // ns since 1970; 0 where the system has none
	Inode      uint64 `json:"inode,omitempty"` // 0 where the system has none
}

// versionOf returns the version of a file by its metadata.
func versionOf(info fs.FileInfo) Version {
	changed, inode := changeOf(info)
	return Version{Size: info.Size(), ModTime: info.ModTime().UnixNano(), ChangeTime: changed, Inode: inode}
}

// sameButRenamed reports whether a file can have become another one by being renamed only, which
// changes ChangeTime.
func (v Version) sameButRenamed(w Version) bool {
	v.ChangeTime = w.ChangeTime
	return v == w
}

// File is a file in the queue.
type File struct {
	State   State     `json:"state"`
	Version Version   `json:"version"`           // as the last scan found it
	Arrived time.Time `json:"arrived"`           // when a scan first found this version
	There   time.Time `json:"there,omitzero"`    // when the server had it
	Gone    time.Time `json:"gone,omitzero"`     // when a scan missed it here; only if it is There or Dropped
	Digest  string    `json:"digest,omitempty"`  // BLAKE3 of what was sent, "" if unknown
	Dropped bool      `json:"dropped,omitempty"` // this version is not to be sent
	Early   int64     `json:"early,omitempty"`   // bytes that the server has of it while it is arriving
	// Error says why the last try failed for the sake of this file alone; After is when the next is.
	Error string    `json:"error,omitempty"`
	Tries int       `json:"tries,omitempty"`
	After time.Time `json:"after,omitzero"`
}

// Bounds of a batch, which is sent in one session. A session has to end before files that came
// later get their turn.
const (
	maxBatchFiles = 1000
	maxBatchBytes = 1 << 30
	// maxUrgentBytes is that of a batch while somebody waits for files.
	maxUrgentBytes = 16 << 20
)

// maxPatience is how long a file gives way to those that somebody waits for.
const maxPatience = time.Minute

// forgetAfter is how long the queue remembers a file that is there and no longer here.
const forgetAfter = 24 * time.Hour

// observe returns what becomes of a file that a scan found. old is nil if the queue does not have
// it. ready is asked only if the version is the one that the queue has. observe returns old if
// nothing changes.
func observe(old *File, found Version, ready func() bool, now time.Time) *File {
	switch {
	case old == nil || old.Version != found:
		return &File{State: Arriving, Version: found, Arrived: now}
	case !old.Gone.IsZero():
		back := *old
		back.Gone = time.Time{}
		return &back
	case old.State == Arriving && ready():
		complete := *old
		complete.State = Waiting
		return &complete
	}
	return old
}

// miss returns what becomes of a file that a scan did not find: nil to forget it, old if nothing
// changes. A version that is there stays known for a day, so that people can look it up. So does one
// that was dropped, because it may come back.
func miss(old *File, now time.Time) *File {
	switch {
	case old.State != There && !old.Dropped:
		return nil
	case old.Gone.IsZero():
		gone := *old
		gone.Gone = now
		return &gone
	case now.Sub(old.Gone) > forgetAfter:
		return nil
	}
	return old
}

// ready decides whether a file is complete: it has not changed for settle, and no program has it
// open for writing.
//
// With a marker, the marker decides instead of the time. It must not be older than the file: a file
// that is written again waits for its marker to be written again.
func ready(steady, settle time.Duration, found Version, marker *Version, withMarker bool, isOpen func() bool) bool {
	if withMarker {
		settle = MinSettle
		if marker == nil || marker.ModTime < found.ModTime {
			return false
		}
	}
	return steady >= settle && !isOpen()
}

// untilGone returns how long a file that is there still lingers here. A clock that was set back does
// not keep it.
func untilGone(f *File, linger time.Duration, now time.Time) time.Duration {
	if age := now.Sub(f.There); age >= 0 {
		return linger - age
	}
	return 0
}

// named is a file with its path below the folder, separated by slashes.
type named struct {
	path string
	file *File
}

// running are the sessions that run: how many, and whether one of them has files that nobody waits for.
type running struct {
	n      int
	others bool
}

// next returns the files of the next batch, those that somebody waits for first, then the oldest. While
// sessions run, these are only files that somebody waits for: for others, one session at a time will do.
// But others that have waited for long go ahead, or clients that always wait would hold them up for ever.
// Dropped files and those whose next try is later are left out. While somebody waits, a batch is small:
// who comes next waits for its end.
func next(waiting []named, urgent map[string]bool, run running, now time.Time) []named {
	var wanted, others []named
	for _, n := range waiting {
		switch later := n.file.After.Sub(now); {
		case n.file.State != Waiting, n.file.Dropped, later > 0 && later <= maxRetry:
		case urgent[n.path]:
			wanted = append(wanted, n)
		default:
			others = append(others, n)
		}
	}
	for _, all := range [][]named{wanted, others} {
		slices.SortFunc(all, func(a, b named) int {
			return cmp.Or(a.file.Arrived.Compare(b.file.Arrived), cmp.Compare(a.path, b.path))
		})
	}
	most := int64(maxUrgentBytes)
	batch := wanted
	switch {
	case len(others) > 0 && !run.others && (run.n > 0 || len(wanted) > 0) && now.Sub(others[0].file.Arrived) > maxPatience:
		batch = others
	case run.n > 0:
	case len(wanted) > 0:
		batch = slices.Concat(wanted, others)
	default:
		batch, most = others, maxBatchBytes
	}
	var bytes int64
	for i, n := range batch {
		if bytes += n.file.Version.Size; i == maxBatchFiles || i > 0 && bytes > most {
			return batch[:i]
		}
	}
	return batch
}

// Result is the outcome of one file of a batch.
type Result struct {
	Path   string
	Digest string // "" if unknown
	Err    error  // nil if the server has committed the file, or had it
}

// errLeftOut is the result of a file that was not intact any more, so a session left it out.
var errLeftOut = errors.New("it is being written")

// settle returns what becomes of a file in state Sending after its result. sent is the version that
// the batch was made of, and present the one that is here after the result, nil if none is. If both
// are equal, nothing has changed in between, so what the server committed is that version.
func settle(old *File, r Result, sent Version, present *Version, now time.Time) *File {
	if old == nil || old.State != Sending || old.Version != sent {
		return old // a scan has seen a newer version
	}
	f := *old
	switch {
	case present == nil:
		return nil
	case *present != sent, errors.Is(r.Err, errLeftOut):
		return &File{State: Arriving, Version: *present, Arrived: now}
	case r.Err != nil:
		f.State, f.Error, f.Tries = Waiting, r.Err.Error(), f.Tries+1
		f.After = now.Add(retryAfter(f.Tries))
	default:
		f = File{State: There, Version: sent, Arrived: f.Arrived, There: now, Digest: r.Digest}
	}
	return &f
}

// retryAfter is the pause after so many tries of a file that failed for its own sake.
func retryAfter(tries int) time.Duration {
	return min(30*time.Second<<min(tries, 10), maxRetry)
}

// maxRetry is the longest such pause.
const maxRetry = time.Hour
