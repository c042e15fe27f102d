package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fxfer/fxfer/internal/database"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// copiesName is the file of the copies in fxfer's folder.
	copiesName = "copies.db"
	// copiesAtOnce is how many copies run at a time, and copiesOfUserAtOnce how many of one user: others
	// need not wait until hosts answer that do not exist.
	copiesAtOnce       = 4
	copiesOfUserAtOnce = 2
	// copiesOfUser bounds the copies of a user that are remembered, those that have ended included.
	copiesOfUser = 256
	// copyKept is how long a copy that has ended is remembered.
	copyKept = 7 * 24 * time.Hour
)

var copiesBucket = []byte("copies") // ID → copyRecord

// Copies is a server's durable queue of the copies that clients have asked for. It makes them with a
// client of its own, as the user who has asked: the server that sends checks the user's rights, and the
// server that receives does so by the user's capability. It implements fxfer.Copies. The methods are
// safe for concurrent use.
type Copies struct {
	opt fxfer.Options // of all clients
	log *slog.Logger

	wake chan struct{}

	mu   sync.Mutex // guards the following
	db   *bolt.DB
	all  map[string]*copyJob // by ID
	next uint64              // number of the next copy
}

// copyRecord is a copy as the file has it.
type copyRecord struct {
	fxfer.Copy
	Number uint64 // copies have the order of these
	ID     string
	State  fxfer.CopyState
	Added  time.Time
	Ended  time.Time
	Text   string // as in fxfer.CopyStatus
	Tries  int    // that failed in a row
	After  time.Time
	Sum    copySum
}

// copySum counts what a copy has done.
type copySum struct {
	Bytes, TotalBytes, Files, TotalFiles, Failed, Rate int64
}

// copyJob is a copy in memory.
type copyJob struct {
	copyRecord
	stop context.CancelFunc // of the run; nil while none is under way
}

// OpenCopies opens the queue in the folder opt.Home. opt are the options of all its clients. It fails
// while another process has it open. The caller closes it, after Run.
func OpenCopies(opt fxfer.Options, log *slog.Logger) (*Copies, error) {
	if err := os.MkdirAll(opt.Home, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(opt.Home, copiesName)
	c := &Copies{opt: opt, log: log, wake: make(chan struct{}, 1), all: make(map[string]*copyJob)}
	_, err := database.Open(name, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType}, func(db *bolt.DB) error {
		c.db = db
		return c.load()
	})
	if errors.Is(err, database.ErrOpen) {
		err = fmt.Errorf("open %s: another server with the same folder makes copies already", name)
	}
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	return c, nil
}

// load reads all copies. Those that ran when the process ended wait again.
func (c *Copies) load() error {
	return c.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(copiesBucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			x := new(copyJob)
			if err := json.Unmarshal(v, &x.copyRecord); err != nil {
				return fmt.Errorf("%s is damaged at %q: %w", c.db.Path(), k, err)
			}
			if x.State == fxfer.CopyRunning {
				x.State = fxfer.CopyWaiting
			}
			c.all[x.ID] = x
			c.next = max(c.next, x.Number+1)
			return nil
		})
	})
}

// Close closes the file.
func (c *Copies) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.Close()
}

// storeLocked makes a copy as it is now durable.
func (c *Copies) storeLocked(x *copyRecord) error {
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return c.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(copiesBucket).Put([]byte(x.ID), text) })
}

// forgetLocked forgets copies.
func (c *Copies) forgetLocked(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	err := c.db.Update(func(tx *bolt.Tx) error {
		for _, id := range ids {
			if err := tx.Bucket(copiesBucket).Delete([]byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		for _, id := range ids {
			delete(c.all, id)
		}
	}
	return err
}

// Add implements fxfer.Copies.
func (c *Copies) Add(asked fxfer.Copy) (fxfer.CopyStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.ofLocked(asked.User)
	if len(of) >= copiesOfUser {
		oldest := slices.IndexFunc(of, func(x *copyJob) bool { return x.State.Ended() && x.stop == nil })
		if oldest < 0 {
			return fxfer.CopyStatus{}, fxfer.ErrCopiesFull
		}
		if err := c.forgetLocked([]string{of[oldest].ID}); err != nil {
			return fxfer.CopyStatus{}, err
		}
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	x := &copyJob{copyRecord: copyRecord{
		Copy: asked, Number: c.next, ID: hex.EncodeToString(id), State: fxfer.CopyWaiting, Added: time.Now(),
	}}
	if err := c.storeLocked(&x.copyRecord); err != nil {
		return fxfer.CopyStatus{}, err
	}
	c.next++
	c.all[x.ID] = x
	signal(c.wake)
	return x.status(), nil
}

// ofLocked returns the copies of a user, "" for all, in their order.
func (c *Copies) ofLocked(user string) (of []*copyJob) {
	for _, x := range c.all {
		if user == "" || x.User == user {
			of = append(of, x)
		}
	}
	slices.SortFunc(of, func(a, b *copyJob) int { return cmp.Compare(a.Number, b.Number) })
	return of
}

// List implements fxfer.Copies.
func (c *Copies) List(user string) (all []fxfer.CopyStatus, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.ofLocked(user) {
		all = append(all, x.status())
	}
	return all, nil
}

// Change implements fxfer.Copies. A run of a copy that is paused or cancelled ends soon after.
func (c *Copies) Change(user, id string, to fxfer.CopyChange) (fxfer.CopyStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.all[id]
	switch {
	case x == nil || x.User != user:
		return fxfer.CopyStatus{}, fxfer.ErrNoCopy
	case x.State.Ended():
		return fxfer.CopyStatus{}, fxfer.ErrCopyEnded
	}
	changed := x.change(to, time.Now())
	if err := c.storeLocked(&changed); err != nil {
		return fxfer.CopyStatus{}, err
	}
	x.copyRecord = changed
	if x.stop != nil && x.State != fxfer.CopyRunning {
		x.stop()
	}
	signal(c.wake)
	return x.status(), nil
}

// change returns a copy that has not ended after a change.
func (r copyRecord) change(to fxfer.CopyChange, now time.Time) copyRecord {
	switch to {
	case fxfer.PauseCopy:
		r.State, r.Text, r.Sum.Rate = fxfer.CopyPaused, "", 0
	case fxfer.ResumeCopy:
		if r.State != fxfer.CopyRunning {
			r.State, r.Text, r.Tries, r.After = fxfer.CopyWaiting, "", 0, time.Time{}
		}
	case fxfer.CancelCopy:
		r.State, r.Text, r.Ended, r.Sum.Rate = fxfer.CopyCancelled, "", now, 0
	}
	return r
}

// status is what people see of a copy.
func (r *copyRecord) status() fxfer.CopyStatus {
	return fxfer.CopyStatus{
		ID: r.ID, From: path.Join(r.Share, r.Path), To: r.To.Redacted(), State: r.State,
		Added: r.Added, Ended: r.Ended, Until: r.Until, Text: r.Text,
		Bytes: r.Sum.Bytes, TotalBytes: r.Sum.TotalBytes, Files: r.Sum.Files, TotalFiles: r.Sum.TotalFiles,
		Failed: r.Sum.Failed, Rate: r.Sum.Rate,
	}
}

// Run makes the copies until ctx ends, and returns when none is under way any more. They go on with the
// next Run, of this process or of another one. open opens what a copy sends: see Server.OpenCopy.
func (c *Copies) Run(ctx context.Context, open func(context.Context, fxfer.Copy) (*fxfer.CopySource, error)) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		due, again := c.begin(ctx, time.Now())
		for _, x := range due {
			running.Go(func() {
				c.run(x.ctx, open, x.copyRecord)
				signal(c.wake)
			})
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// begun is a copy whose run begins.
type begun struct {
	copyRecord
	ctx context.Context //nolint:containedctx // of the run
}

// begin marks the copies that are due as running, as many as may run, and returns them. It returns
// after which time to look again at the latest.
func (c *Copies) begin(ctx context.Context, now time.Time) (due []begun, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again = maxBackoff
	room, running := copiesAtOnce, map[string]int{} // by user
	var old []string
	for _, x := range c.all {
		switch {
		case x.stop != nil:
			room--
			running[x.User]++
		case x.State.Ended() && now.Sub(x.Ended) > copyKept:
			old = append(old, x.ID)
		}
	}
	if err := c.forgetLocked(old); err != nil {
		c.log.Error("forget copies that have ended", "error", err)
	}
	for _, x := range c.ofLocked("") {
		if x.State.Ended() || x.stop != nil {
			continue
		}
		if !now.Before(x.Until) {
			c.setLocked(x, x.fail("it may not be sent any more: the capability has expired", now))
			continue
		}
		if x.State != fxfer.CopyWaiting {
			continue
		}
		if wait := x.After.Sub(now); wait > 0 {
			again = min(again, wait)
			continue
		}
		if room == 0 || running[x.User] == copiesOfUserAtOnce {
			continue
		}
		room--
		running[x.User]++
		run, stop := context.WithCancel(ctx)
		x.State, x.Text, x.stop = fxfer.CopyRunning, "", stop // durable as waiting
		due = append(due, begun{x.copyRecord, run})
	}
	return due, again
}

// fail returns a copy that has failed for a reason.
func (r copyRecord) fail(why string, now time.Time) copyRecord {
	r.State, r.Text, r.Ended, r.Sum.Rate = fxfer.CopyFailed, why, now, 0
	return r
}

// setLocked replaces a copy, durably if possible.
func (c *Copies) setLocked(x *copyJob, to copyRecord) {
	x.copyRecord = to
	if err := c.storeLocked(&to); err != nil {
		c.log.Error("copies", "id", to.ID, "error", err)
	}
}

// run runs a copy once.
func (c *Copies) run(ctx context.Context, open func(context.Context, fxfer.Copy) (*fxfer.CopySource, error), r copyRecord) {
	log := c.log.With("copy", r.ID, "share", r.Share, "path", r.Path, "to", r.To.Redacted())
	log.Info("copy begins")
	report, err := c.send(ctx, open, r, log)
	stopped := ctx.Err() != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.all[r.ID]
	x.stop()
	x.stop = nil
	now := x.settle(report, err, stopped, time.Now())
	c.setLocked(x, now)
	log.Info("copy ends", "state", string(now.State), "bytes", now.Sum.Bytes, "files", now.Sum.Files, "failed", now.Sum.Failed, "error", err)
}

// send sends what a copy is about in one session. It goes only to the server that has the key which the
// user has named, and notes nothing about it: users do not say whom this server knows.
func (c *Copies) send(ctx context.Context, open func(context.Context, fxfer.Copy) (*fxfer.CopySource, error), r copyRecord, log *slog.Logger) (*fxfer.Report, error) {
	opt := c.opt
	opt.Pin, opt.Forget, opt.Priority = r.Pin, true, r.Priority
	opt.Notice = func(text string) { log.Info(text) }
	client, err := fxfer.NewClient(opt)
	if err != nil {
		return nil, err
	}
	source, err := open(ctx, r.Copy)
	if err != nil {
		return nil, err
	}
	report, err := client.SendFrom(ctx, source, r.Capability, r.To, fxfer.Transfer{
		Progress: func(p fxfer.Progress) { c.progress(r.ID, &p) },
	})
	if why := source.Err(); why != nil && ctx.Err() == nil {
		err = why
	}
	source.Close(err)
	return report, err
}

// progress notes how far a copy is.
func (c *Copies) progress(id string, p *fxfer.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.all[id]; x.State == fxfer.CopyRunning {
		x.Sum = copySum{p.BytesDone, p.Bytes, p.FilesDone, p.Files, p.FilesFailed, int64(p.Goodput)}
		x.Text = p.Limiter
	}
}

// settle returns a copy after a run that ended with a report, which may be nil, and an error. stopped
// says that the run was ended from here.
func (r copyRecord) settle(report *fxfer.Report, err error, stopped bool, now time.Time) copyRecord {
	if report != nil {
		r.Sum.Failed, r.Sum.Rate = report.Failed, int64(report.Goodput)
		if report.Complete {
			r.Sum.TotalBytes, r.Sum.Files, r.Sum.TotalFiles = report.Bytes, report.Sent+report.Same, report.Files
		}
	}
	switch {
	case r.State != fxfer.CopyRunning: // paused or cancelled meanwhile
		r.Sum.Rate = 0
		return r
	case err == nil:
		r.State, r.Ended, r.Text = fxfer.CopyDone, now, ""
		r.Sum.Bytes = r.Sum.TotalBytes
		if report != nil && len(report.Limits) > 0 {
			r.Text = words.Name(&report.Limits[0])
		}
		return r
	case stopped: // the server ends
		r.State, r.Text, r.Sum.Rate = fxfer.CopyWaiting, "", 0
		return r
	case fxfer.KindOf(err) != fxfer.KindUnreachable:
		return r.fail(err.Error(), now)
	}
	if report != nil && report.Written > 0 {
		r.Tries = 0
	}
	r.State, r.Text, r.Sum.Rate = fxfer.CopyWaiting, err.Error(), 0
	r.After = now.Add(pauseAfter(r.Tries))
	r.Tries++
	return r
}
