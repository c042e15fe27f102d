package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// attempts is how often a task is tried. Each worker that dies with it takes one.
	attempts = 10
	// hopelessAttempts is how often a task is tried whose error will hardly go away by itself.
	hopelessAttempts = 2
	// longestPause is the longest time until a task is tried again.
	longestPause = 5 * time.Minute
)

// Worker takes tasks of a fleet, one at a time. What it may read is its own to say: a job only names a
// source. Its client decides which servers it trusts.
type Worker struct {
	Queue  Queue
	Name   string   // in records, such as the host's
	Read   []string // folders whose content it may send, absolute
	Client *fxfer.Client
	Log    *slog.Logger
	Line   string // that it shares with other workers, "" for none
	Most   int64  // bit/s that it uses of that, 0 for any rate

	lineClient *lineClient // of the line, or nil
	js         jetstream.JetStream
	jobs       jetstream.KeyValue
	records    jetstream.KeyValue
	dead       jetstream.KeyValue
	lists      jetstream.ObjectStore
	lease      time.Duration
}

// Run takes tasks until ctx is done. While the queue is away, it waits for it, and a transfer goes on.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.Read) == 0 { // of the client, that would mean any
		return errors.New("a worker needs the folders that it may read")
	}
	conn, err := connectPatiently(ctx, w.Queue, w.Name, func(err error) { w.Log.Warn("waiting", "error", err) })
	if ctx.Err() != nil {
		return nil //nolint:nilerr // somebody ends the worker
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { w.announce(ctx, conn) })
	if w.js, err = jetstream.New(conn); err != nil {
		return err
	}
	var stream jetstream.Stream
	err = persist(ctx, func(ctx context.Context) (err error) {
		stream, err = w.open(ctx)
		return err
	})
	if err != nil {
		return nil //nolint:nilerr // ctx is done
	}
	tasks, err := newChooser(conn, stream)
	if err != nil {
		return err
	}
	defer tasks.close()
	if w.Line != "" {
		defer w.joinLine(conn)()
	}
	failed := uint64(0) // tasks in a row, for a reason of this host
	for ctx.Err() == nil {
		m, err := tasks.next(ctx)
		switch {
		case m != nil:
			w.lease = tasks.lease
			err := w.take(ctx, m)
			if errors.Is(err, errPaused) {
				tasks.avoid(m.Subject(), time.Now())
			}
			if fxfer.KindOf(err) != fxfer.KindLocalDisk {
				failed = 0
				continue
			}
			failed++
			pause(ctx, rest(failed))
		case err != nil && ctx.Err() == nil:
			w.Log.Warn("no tasks", "error", err)
			pause(ctx, time.Second)
		}
	}
	return nil
}

// rest is how long a worker leaves tasks to others after so many failures in a row: a worker whose disk
// is full, or that lacks a file system, must not be the one that is always free. It is longer than the
// pause of the task.
func rest(failed uint64) time.Duration { return 2 * backoff(failed) }

// backoff is the time until a task is tried again that was tried so often.
func backoff(tried uint64) time.Duration {
	return min(2*time.Second<<min(tried, 10), longestPause)
}

// open finds what the controller has made.
func (w *Worker) open(ctx context.Context) (tasks jetstream.Stream, err error) {
	for bucket, kv := range map[string]*jetstream.KeyValue{jobBucket: &w.jobs, recordBucket: &w.records, deadBucket: &w.dead} {
		if *kv, err = w.js.KeyValue(ctx, bucket); err != nil {
			return nil, err
		}
	}
	if w.lists, err = w.js.ObjectStore(ctx, listBucket); err != nil {
		return nil, err
	}
	return w.js.Stream(ctx, taskStream)
}

// persist calls f until it succeeds or ctx is done. The controller may be away meanwhile.
func persist(ctx context.Context, f func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(once)
		cancel()
		if err == nil {
			return nil
		}
		if !pause(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// pause waits. It returns false when ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// held is a task that this worker has.
type held struct {
	*Worker
	m       jetstream.Msg
	task    *Task
	job     *Job
	message uint64 // as in Record
	attempt uint64
	list    string // names what this attempt lists
	began   bool   // there is a record of this attempt
	bytes   atomic.Int64
	note    atomic.Value // a string, as in Record
}

// take does a task, and answers for it. It returns why the task failed.
func (w *Worker) take(ctx context.Context, m jetstream.Msg) error {
	task, err := decode[Task](m.Data())
	if err == nil {
		err = task.check(m.Subject())
	}
	about, errAbout := m.Metadata()
	if err != nil || errAbout != nil {
		w.Log.Warn("a task makes no sense", "subject", m.Subject(), "error", errors.Join(err, errAbout))
		_ = m.Term()
		return nil
	}
	h := &held{Worker: w, m: m, task: task, message: about.Sequence.Stream, attempt: about.NumDelivered}
	h.list = fmt.Sprintf("%d-%d", about.Sequence.Stream, about.NumDelivered)
	if found, err := h.load(ctx); err != nil { // ctx is done
		_ = m.Nak()
		return nil
	} else if !found || !wanted(task, h.job) {
		_ = m.Ack()
		return nil
	} else if h.job.Paused {
		h.giveBack(ctx)
		return errPaused
	}
	before, err := h.begin(ctx)
	switch {
	case errors.Is(err, errOver):
		if before.Outcome != Dead || h.noteDead(ctx, before) == nil {
			_ = m.Ack()
		}
		return nil
	case err != nil: // another worker has it, or ctx is done
		w.Log.Warn("not begun", "key", task.key(), "attempt", h.attempt, "error", err)
		return nil
	case h.attempt > attempts:
		h.bury(ctx, lastReason(before))
		return nil
	}
	w.Log.Info("task", "key", task.key(), "attempt", h.attempt)
	r, err := h.keeping(ctx)
	switch {
	case errors.Is(err, errLost):
		w.Log.Warn("lost", "key", task.key(), "attempt", h.attempt)
	case errors.Is(err, errPaused):
		h.giveBack(ctx)
		return err
	case errors.Is(err, errUnwanted):
		w.Log.Info("not wanted any more", "key", task.key())
		_ = m.Ack()
	case ctx.Err() != nil:
		_ = m.Nak() // another worker begins at once, where this one ended
	case err == nil:
		h.end(ctx, r)
	case h.attempt >= allowed(err):
		h.bury(ctx, err.Error())
		return err
	default:
		h.retry(ctx, err)
		return err
	}
	return nil
}

// load reads the task's job.
func (h *held) load(ctx context.Context) (found bool, err error) {
	err = persist(ctx, func(ctx context.Context) (err error) {
		h.job, err = h.look(ctx)
		return err
	})
	return h.job != nil, err
}

// look reads the task's job as it is now, nil if it makes no sense or is not there.
func (h *held) look(ctx context.Context) (*Job, error) {
	entry, err := h.jobs.Get(ctx, h.task.Job)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	job, err := readJob(h.task.Job, entry.Value())
	if err != nil {
		h.Log.Warn("a job makes no sense", "job", h.task.Job, "error", err)
		return nil, nil
	}
	return job, nil
}

// allowed is how often a task may be tried that ends with this error.
func allowed(err error) uint64 {
	switch fxfer.KindOf(err) {
	case fxfer.KindPartial, fxfer.KindTrust, fxfer.KindUsage, fxfer.KindNotFound:
		return hopelessAttempts
	}
	return attempts
}

var (
	// errLost ends a task whose lease this worker could not renew: another one may have it.
	errLost = errors.New("another worker may have the task")
	// errOver means that a task has ended before.
	errOver = errors.New("the task has ended")
)

// begin notes that this worker has the task. It returns what was known before, nil for nothing.
func (h *held) begin(ctx context.Context) (before *Record, err error) {
	before, err = h.persistRecord(ctx, Record{Outcome: Running})
	h.began = err == nil
	return before, err
}

// persistRecord is record that waits for the controller.
func (h *held) persistRecord(ctx context.Context, r Record) (before *Record, err error) {
	var final error
	err = persist(ctx, func(ctx context.Context) (err error) {
		if before, err = h.record(ctx, r); errors.Is(err, errLost) || errors.Is(err, errOver) {
			final, err = err, nil
		}
		return err
	})
	if err == nil {
		err = final
	}
	return before, err
}

// keeping does the task while it renews its lease and reports progress. It ends with errLost before
// another worker may get the task: that one must not meet this one's files. It ends with errPaused or
// errUnwanted if its job changes so.
func (h *held) keeping(ctx context.Context) (*Record, error) {
	held, cancel := context.WithCancelCause(ctx)
	var keepers sync.WaitGroup
	keepers.Go(func() { h.renew(held, cancel) })
	keepers.Go(func() { h.watchJob(held, cancel) })
	r, err := h.do(held)
	if ctx.Err() == nil && held.Err() != nil {
		err = context.Cause(held)
	}
	cancel(nil)
	keepers.Wait()
	return r, err
}

// renew renews the lease until ctx is done. It cancels ctx when the lease is lost, also while a question
// to the queue does not return.
func (h *held) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	every := h.lease / 5
	last := time.Now()
	lost := time.AfterFunc(4*every, func() { cancel(errLost) })
	defer lost.Stop()
	for pause(ctx, every) {
		now := time.Now()
		if passed(last, now) > h.lease { // this host slept; the transfer would go on while we ask
			cancel(errLost)
			return
		}
		once, stop := context.WithTimeout(ctx, every)
		_, err := h.record(once, h.running())
		stop()
		if err == nil {
			err = h.m.InProgress()
		}
		switch {
		case err == nil:
			last = now
			lost.Reset(4*every - time.Since(last))
		case errors.Is(err, errLost), errors.Is(err, errOver):
			cancel(errLost)
			return
		}
	}
}

// running is the record of the task while it is under way.
func (h *held) running() Record {
	note, _ := h.note.Load().(string)
	return Record{Outcome: Running, Bytes: h.bytes.Load(), Note: note}
}

// passed is the time between two moments, also if a host was suspended meanwhile: then its monotonic
// clock stood still.
func passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

func (h *held) do(ctx context.Context) (*Record, error) {
	if err := h.job.Check(); err != nil {
		return nil, err
	}
	switch h.task.Kind {
	case List:
		return h.doList(ctx)
	case Send:
		return h.doShard(ctx)
	case Finish:
		if err := h.missing(ctx); err != nil {
			return nil, err
		}
		return h.send(ctx, h.job.Options.selection())
	}
	return nil, fmt.Errorf("there is no task %q", h.task.Kind)
}

// missing refuses to finish a job that deletes if the source has no file here, though files were listed:
// its file system may not be mounted on this host, and all would be removed at the target.
func (h *held) missing(ctx context.Context) error {
	j := h.job
	if !j.Options.Delete || j.Files == 0 {
		return nil
	}
	found := errors.New("a file")
	err := fxfer.ListSource(ctx, j.Source, fxfer.Selection{Within: h.Read}, func(fxfer.SourceFile) error { return found })
	switch {
	case errors.Is(err, found):
		return nil
	case err == nil:
		return fmt.Errorf("%s has no files here, and had %d when it was listed: is it mounted?", j.Source, j.Files)
	}
	return err
}

// doList lists the source, and publishes a task for each shard.
func (h *held) doList(ctx context.Context) (*Record, error) {
	l := &lister{put: func(number int, list []byte) error {
		t := &Task{Version: Version, Job: h.job.ID, Kind: Send, List: h.list, Number: number}
		ctx, cancel := context.WithTimeout(ctx, h.lease) // longer than the controller may be away
		defer cancel()
		return persist(ctx, func(ctx context.Context) error {
			if _, err := h.lists.PutBytes(ctx, t.key(), list); err != nil {
				return err
			}
			return publish(ctx, h.js, t, 0) // its list is its own
		})
	}}
	err := l.run(ctx, h.job, h.Read)
	return &Record{List: h.list, Shards: l.shards, Files: l.total, Bytes: l.totalBytes}, err
}

// doShard sends the files of a shard.
func (h *held) doShard(ctx context.Context) (*Record, error) {
	once, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	object, err := h.lists.Get(once, h.task.key())
	if err != nil {
		return nil, fmt.Errorf("the list of a shard: %w", err)
	}
	var list []byte
	info, err := object.Info()
	if err == nil && info.Size > maxList { // nobody waits for all of it
		err = refused("is too long")
	}
	if err == nil {
		list, err = io.ReadAll(io.LimitReader(object, maxList+1))
	}
	err = errors.Join(err, object.Close())
	if err == nil && len(list) > maxList {
		err = refused("is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("the list of a shard: %w", err)
	}
	prefix := prefixOf(h.job.Source)
	if r, err := rangeIn(list, prefix); err != nil {
		return nil, err
	} else if r != nil {
		return h.sendRange(ctx, r)
	}
	for _, err := range paths(list, prefix) { // nothing of a refused list is sent
		if err != nil {
			return nil, err
		}
	}
	return h.sendFiles(ctx, paths(list, prefix))
}

// sendFiles sends files of the source.
func (h *held) sendFiles(ctx context.Context, files iter.Seq2[string, error]) (*Record, error) {
	return h.send(ctx, fxfer.Selection{Files: files, Part: true, OneFileSystem: h.job.Options.OneFileSystem})
}

// send sends what is selected of the source.
func (h *held) send(ctx context.Context, selection fxfer.Selection) (*Record, error) {
	u, err := fxfer.ParseURL(h.job.URL)
	if err != nil {
		return nil, err
	}
	o := &h.job.Options
	selection.Within = h.Read
	transfer := fxfer.Transfer{
		Selection: selection,
		Target:    fxfer.Target{Delete: o.Delete, Checksum: o.Checksum, NumericIDs: o.NumericIDs},
		Progress:  func(p fxfer.Progress) { h.bytes.Store(p.Written) },
	}
	defer h.onLine(&transfer)()
	report, err := h.Client.Send(ctx, []string{h.job.Source}, u, transfer)
	if report != nil {
		h.bytes.Store(report.Written)
	}
	return &Record{Bytes: h.bytes.Load()}, because(err, report)
}

// onLine has a transfer keep the worker's share of its line until done is called.
func (h *held) onLine(t *fxfer.Transfer) (done func()) {
	if h.lineClient == nil {
		return func() {}
	}
	t.Throttle, t.Priority = h.lineClient.limit, h.lineClient.priority
	return h.lineClient.task(weightOf[h.job.Options.Priority])
}

// because adds the first failure of a report to the error that stands for all. If nothing failed but what
// another session is sending, such as that of another job, the error is one that goes away by itself.
func because(err error, report *fxfer.Report) error {
	if err == nil || report == nil || len(report.Failures) == 0 {
		return err
	}
	first := report.Failures[0]
	err = fmt.Errorf("%w: %s: %w", err, first.Path, first.Failure())
	if !slices.ContainsFunc(report.Failures, func(f fxfer.FileResult) bool { return fxfer.KindOf(f.Err) != fxfer.KindUnreachable }) {
		err = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
	}
	return err
}

// record writes what is known of the task, and returns what was known before, nil for nothing. It fails
// with errLost if a later attempt has the task or its job has ended, and with errOver if another one has
// ended it. So the end of a task stays known.
func (h *held) record(ctx context.Context, r Record) (before *Record, err error) {
	r.Version, r.Worker, r.Message, r.Attempt, r.At = Version, h.Name, h.message, h.attempt, time.Now().UTC()
	text, err := json.Marshal(&r)
	if err != nil {
		return nil, err
	}
	entry, err := h.records.Get(ctx, h.task.key())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		if h.began { // the job has ended, and its records are gone
			return nil, errLost
		}
		_, err = h.records.Create(ctx, h.task.key(), text)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if before, err = decode[Record](entry.Value()); err == nil { // else it is worth nothing
		if err := h.follows(before); err != nil {
			return before, err
		}
	}
	_, err = h.records.Update(ctx, h.task.key(), text, entry.Revision())
	return before, err
}

// follows reports whether this attempt may change a record: nil, errLost or errOver.
func (h *held) follows(before *Record) error {
	order := cmp.Or(cmp.Compare(before.Message, h.message), cmp.Compare(before.Attempt, h.attempt))
	switch {
	case order > 0:
		return errLost
	case order < 0 && (before.Outcome == Ready || before.Outcome == Dead):
		return errOver
	}
	return nil
}

// end notes that the task is done. Only then is its message removed.
func (h *held) end(ctx context.Context, r *Record) {
	r.Outcome = Ready
	h.conclude(ctx, *r)
}

// bury gives the task up.
func (h *held) bury(ctx context.Context, reason string) {
	h.conclude(ctx, Record{Outcome: Dead, Reason: reason})
}

// conclude writes the last record of the task. If ctx ends before, the task comes again.
func (h *held) conclude(ctx context.Context, r Record) {
	_, err := h.persistRecord(ctx, r)
	if err == nil && r.Outcome == Dead {
		r.Worker, r.Attempt, r.At = h.Name, h.attempt, time.Now().UTC()
		err = h.noteDead(ctx, &r)
	}
	if err != nil {
		h.Log.Warn("lost", "key", h.task.key(), "attempt", h.attempt, "error", err)
		return
	}
	h.Log.Info("ended", "key", h.task.key(), "outcome", string(r.Outcome), "bytes", r.Bytes, "reason", r.Reason)
	once, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	_ = h.m.DoubleAck(once) // if it gets lost, the task comes again, and has ended
}

// noteDead adds a task to the list of dead ones.
func (h *held) noteDead(ctx context.Context, r *Record) error {
	return persist(ctx, func(ctx context.Context) error {
		text, err := json.Marshal(&DeadTask{Version: Version, Task: *h.task, Worker: r.Worker, Attempt: r.Attempt, At: r.At, Reason: r.Reason})
		if err == nil {
			_, err = h.dead.Put(ctx, h.task.key(), text)
		}
		return err
	})
}

// retry gives the task back, for later.
func (h *held) retry(ctx context.Context, failure error) {
	h.Log.Warn("failed", "key", h.task.key(), "attempt", h.attempt, "error", failure)
	once, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	_, err := h.record(once, Record{Outcome: Waiting, Reason: failure.Error()})
	if errors.Is(err, errLost) || errors.Is(err, errOver) { // it is not this worker's to give back
		h.Log.Warn("lost", "key", h.task.key(), "attempt", h.attempt, "error", err)
		return
	}
	_ = h.m.NakWithDelay(backoff(h.attempt)) // or the lease ends
}

// lastReason says why a task was given up that was delivered too often. before is its last record.
func lastReason(before *Record) string {
	switch {
	case before == nil:
		return fmt.Sprintf("%d workers ended before the task did", attempts)
	case before.Reason != "":
		return before.Reason
	}
	return fmt.Sprintf("%d workers ended before the task did, the last one was %s", attempts, before.Worker)
}
