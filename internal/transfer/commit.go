package transfer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// stagedFile is complete and has no name yet.
type stagedFile struct {
	entry *receiving
	file  *disk.Staged
}

const (
	// Staged files get their names, at the price of one sync of the file system, when there are
	// stagedFiles of them, or stagedBytes, or stagedFor after the first, or when everything waits
	// for them.
	stagedFiles = 1024
	stagedBytes = 64 << 20
	stagedFor   = 200 * time.Millisecond
	// namers is how many batches are made durable and named at a time: one waits for the medium
	// while the other gives names.
	namers = 2
)

// commitEvents hears how resolved entries end. Receiver implements it.
type commitEvents interface {
	failEntry(*receiving, error)
	finishCommitted([]*receiving)
	finishRange(*receiving)
}

// committer checks complete files and gives them their names, many at a time: the sync before costs
// each of them little then.
type committer struct {
	side     *side
	target   *target
	readback bool       // read files once more from the disk
	underWay func() int // how many entries are active and do not wait for others
	events   commitEvents
	most     int // how many files may have no name at a time

	mu     sync.Mutex // guards the following; held before table.mu, by underWay
	cond   *sync.Cond // the naming goroutine waits here for files, others for it
	staged []stagedFile
	spare  []stagedFile // room for the next ones
	bytes  int64        // in these
	flush  bool         // name them now; only set while there are some
	naming int          // how many files are being named
	timer  *time.Timer  // sets flush
	over   bool
}

func newCommitter(
	s *side, t *target, readback bool, underWay func() int, events commitEvents,
) *committer {
	c := &committer{side: s, target: t, readback: readback, underWay: underWay, events: events}
	c.most = t.tree.NewBatch(t.meta).Most()
	c.cond = sync.NewCond(&c.mu)
	c.timer = time.AfterFunc(time.Hour, c.flushNow)
	c.timer.Stop()
	return c
}

// end makes all waits return, and names nothing more.
func (c *committer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
	c.cond.Broadcast()
}

// stageWhole writes a file of one block at most, and leaves its name for later. ranges are those of
// data that hold data, nil for all. It returns nil if the file failed, or is resolved.
func (c *committer) stageWhole(
	lap *lap, e *receiving, digest [32]byte, data []byte, ranges []disk.Range,
) *disk.Staged {
	if !e.resolveWhole(digest) {
		return nil
	}
	c.waitRoom(lap)
	staged, err := c.target.put(e, data, ranges)
	if err == nil && c.readback {
		if err = c.readAgain(staged, e); err != nil {
			_ = staged.Discard()
		}
	}
	if err != nil {
		c.events.failEntry(e, err)
		return nil
	}
	return staged
}

// waitRoom waits while so many files have no name that more might be too many open files.
func (c *committer) waitRoom(lap *lap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.staged)+c.naming < c.most {
		return
	}
	lap.enter(Full)
	for len(c.staged)+c.naming >= c.most && !c.over {
		c.cond.Wait()
	}
	lap.enter(Write)
}

// commitComplete checks a file of several blocks in the background, if all of it is there.
func (c *committer) commitComplete(e *receiving) {
	if c.side.over() || !e.complete() {
		return
	}
	c.side.running.Go(func() {
		defer c.side.checking()()
		if e.isRange() {
			c.events.finishRange(e)
			return
		}
		staged, err := c.check(e)
		if err != nil {
			c.events.failEntry(e, err)
			return
		}
		c.add(stagedFile{e, staged})
	})
}

// check compares a file with its digest and completes it but for its name.
func (c *committer) check(e *receiving) (*disk.Staged, error) {
	part := e.partial()
	if !e.matches() {
		_ = part.Abort()
		return nil, wire.Errorf(wire.CodeIntegrity, "the file's digest differs from the sender's")
	}
	if d := e.oldVersion(); d != nil {
		err := d.old.Unchanged()
		d.close()
		if err != nil && d.isShared() { // it may have changed after it was compared
			_ = part.Abort()
			return nil, wire.Errorf(wire.CodeIntegrity, "the old file changed while it was used")
		}
	}
	if c.readback {
		if err := part.Checkpoint(c.side.ctx); err != nil { // also empties the cache where it can
			return nil, err
		}
		err := c.readAgain(part, e)
		if errors.Is(err, errReadback) {
			_ = part.Abort()
		}
		if err != nil {
			return nil, err
		}
	}
	meta := e.meta
	meta.Size = e.size
	return part.Stage(meta)
}

var errReadback = wire.Errorf(wire.CodeIntegrity,
	"read back from the disk, the file's digest differs from the sender's")

// readAgain reads a complete file from the disk once more and compares the digest.
func (c *committer) readAgain(f io.ReaderAt, e *receiving) error {
	got, err := c.target.digest(f, e.size, e.entry.BlockLog, e.empty)
	if err == nil && got != e.digest {
		err = errReadback
	}
	return err
}

// add queues a complete file for its name.
func (c *committer) add(f stagedFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.staged) == 0 {
		c.timer.Reset(stagedFor)
	}
	c.staged = append(c.staged, f)
	c.bytes += max(0, f.entry.size)
	c.flushIdleLocked()
}

// flushNow gives staged files their names without waiting for more.
func (c *committer) flushNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush = len(c.staged) > 0
	c.cond.Broadcast()
}

// flushIdle does so if it is time, or if nothing else is under way.
func (c *committer) flushIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushIdleLocked()
}

func (c *committer) flushIdleLocked() {
	n := len(c.staged)
	if n == 0 || c.flush {
		return
	}
	enough := n >= min(stagedFiles, c.most/2) || c.bytes >= stagedBytes
	if enough || c.target.meta.Sync != disk.SyncBatch || c.naming == 0 && c.underWay() <= n {
		c.flush = true
		c.cond.Broadcast()
	}
}

// drain names everything that is staged, and waits for that.
func (c *committer) drain(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (len(c.staged) > 0 || c.naming > 0) && !c.over && ctx.Err() == nil {
		c.flush = len(c.staged) > 0
		c.cond.Broadcast()
		c.cond.Wait()
	}
}

// run gives staged files their names until the session is over.
func (c *committer) run() {
	for {
		files := c.next()
		if files == nil {
			return
		}
		lap := c.side.clock.start(Name)
		c.name(files)
		lap.stop()
		clear(files)
		c.mu.Lock()
		c.naming -= len(files)
		c.spare = files[:0]
		c.flushIdleLocked()
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

// next waits for files to name. It returns nil when the session is over.
func (c *committer) next() []stagedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.flush && !c.over {
		c.cond.Wait()
	}
	if c.over {
		return nil
	}
	files := c.staged
	c.staged, c.spare, c.bytes, c.flush = c.spare, nil, 0, false
	c.naming += len(files)
	return files
}

// name makes files durable and gives them their names.
func (c *committer) name(files []stagedFile) {
	batch := c.target.tree.NewBatch(c.target.meta)
	for _, f := range files {
		batch.Add(f.file)
	}
	for _, f := range files {
		c.target.keepOld(f.entry)
	}
	errs := batch.Commit()
	var placed blockset.Set
	for i, f := range files {
		if errors.Is(errs[i], disk.ErrExists) && c.target.opt.Delete {
			if errs[i] = c.target.remover.makeWay(f.entry.meta.Path); errs[i] == nil {
				batch.Add(f.file)
				errs[i] = batch.Commit()[0]
			}
		}
		if errs[i] == nil {
			placed.Add(int64(f.entry.index))
		}
	}
	if !placed.Empty() {
		c.side.pump.send(&wire.Placed{Entries: blockset.Runs[wire.Extent](placed)})
	}
	named := make([]*receiving, 0, len(files))
	for i, f := range files {
		if errs[i] != nil {
			_ = f.file.Discard()
			c.events.failEntry(f.entry, errs[i])
			continue
		}
		c.target.removeEarly(f.entry)
		named = append(named, f.entry)
	}
	c.events.finishCommitted(named)
}

// discard gives up what has no name yet, after the session.
func (c *committer) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.staged {
		_ = f.file.Discard()
	}
	c.staged = nil
}
