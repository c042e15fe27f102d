package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// outcome makes the report of a transfer, and the error that stands for the failures in it. err is
// the error of its last session.
func (j *job) outcome(ctx context.Context, err error) (*session.Report, error) {
	r := j.tracker.Report(j.server)
	r.Complete = err == nil
	if err == nil && !j.call.Target.DryRun {
		r.Snapshot = j.snapshot
	}
	r.NotPruned = r.NotPruned && j.call.Target.Delete
	r.Changes = j.priority.decided()
	for i := range r.Failures {
		if f := &r.Failures[i]; isLocal(f.Err) {
			f.Local = j.intent.where(f.Path)
		}
	}
	j.stats.fill(r, j.opt.asked(j.call, j.throttle, j.intent.sends()))
	if diskEnded(r, err) { // the limits would only show how streams waited for it
		r.Limits = nil
	}
	if j.call.Progress != nil {
		j.call.Progress(j.tracker.Progress(0, j.stats.path.MinRTT, 0))
	}
	switch {
	case err != nil:
		return r, j.placed(j.advise(describe(ctx, err, j.server)))
	case r.Failed > 0 && r.Snapshot != "" && j.call.Target.AllowFailed > 0:
		return r, incompleteSnapshot(r)
	case r.Failed > 0:
		return r, j.advise(failures(r))
	case j.call.Target.Strict:
		return r, notStored(r)
	}
	return r, nil
}

// diskEnded reports whether a disk ended a transfer, or failed most of its entries.
func diskEnded(r *session.Report, err error) bool {
	failed := func(err error) bool {
		kind := session.KindOf(err)
		return kind == session.KindLocalDisk || kind == session.KindRemoteDisk
	}
	return failed(err) || slices.ContainsFunc(r.Failures, func(f session.FileResult) bool { return r.Failed > r.Sent && failed(f.Err) })
}

// isLocal reports whether an entry failed on this host.
func isLocal(err error) bool {
	var coded *wire.Error
	return !errors.As(err, &coded) || !coded.Remote
}

// placed adds the folder on this host to an error of its disk that ended a transfer. Such an error
// names a path in that folder only.
func (j *job) placed(err error) error {
	var known *session.Error
	folder := j.intent.folder()
	if !errors.As(err, &known) || known.Kind != session.KindLocalDisk || folder == "" {
		return err
	}
	placed := *known
	placed.Err = fmt.Errorf("%s: %w", folder, known.Err)
	return &placed
}

// fromStart are the kinds of advice for transfers that don't resume, instead of those that promise it.
var fromStart = map[session.Advice]session.Advice{
	session.AdviceResume: session.AdviceAgain, session.AdviceRetry: session.AdviceAgain,
	session.AdviceMakeRoom: session.AdviceMakeRoomAgain,
}

// advise replaces advice that does not suit the transfer.
func (j *job) advise(err error) error {
	var known *session.Error
	if j.intent.resumes() || !errors.As(err, &known) || fromStart[known.Advice] == "" {
		return err
	}
	advised := *known
	advised.Advice = fromStart[known.Advice]
	return &advised
}

// incompleteSnapshot is the error of a snapshot that is visible without all entries.
func incompleteSnapshot(r *session.Report) error {
	err := fmt.Errorf("the snapshot %s is there, without %s that failed", r.Snapshot, units.Count(r.Failed, "entry", "entries"))
	if len(r.Failures) > 0 {
		err = fmt.Errorf("%w: %w", err, r.Failures[0].Failure())
	}
	return &session.Error{Kind: session.KindPartial, Err: err}
}

// failures is the error of a transfer in which entries failed. Its kind is KindPartial if some
// files are in place or planned, or if the entries failed for different reasons.
func failures(r *session.Report) error {
	kind := session.KindPartial
	planned := r.Plan != nil && r.Plan.Create+r.Plan.Update+r.Plan.Set > 0
	if r.Sent+r.Same == 0 && !planned {
		kind = session.KindOf(r.Failures[0].Err)
		for _, f := range r.Failures {
			// A name is taken by an entry that arrived, perhaps a link or a folder.
			if session.KindOf(f.Err) != kind || taken(f.Err) {
				kind = session.KindPartial
			}
		}
	}
	e := &session.Error{Kind: kind, Err: &severalFailed{r.Failed, r.Sent + r.Same, r.Failures[0].Err}}
	if r.Failed == 1 {
		e.Err = r.Failures[0].Failure()
	}
	switch first := r.Failures[0].Err; {
	case noRoom(first):
		e.Advice = session.AdviceMakeRoom
	case errors.Is(first, disk.ErrReserved):
		e.Advice = session.AdviceRename
	}
	return e
}

// noRoom reports whether an entry failed because it does not fit.
func noRoom(err error) bool {
	var coded *wire.Error
	return errors.As(err, &coded) && coded.Code == wire.CodeNoSpace || errors.Is(err, disk.ErrNoSpace)
}

func taken(err error) bool {
	var coded *wire.Error
	return errors.As(err, &coded) && coded.Code == wire.CodeTaken
}

// severalFailed is the error of a transfer in which more than one entry failed.
type severalFailed struct {
	failed, inPlace int64
	first           error // of the first failure
}

func (e *severalFailed) Error() string {
	return fmt.Sprintf("%d entries failed, %s in place", e.failed, units.Count(e.inPlace, "file is", "files are"))
}

func (e *severalFailed) Unwrap() error { return e.first }

// notStored is the error of a transfer with Target.Strict whose target could not store everything.
func notStored(r *session.Report) error {
	if len(r.NotStored) == 0 {
		return nil
	}
	var n int64
	for _, w := range r.NotStored {
		n += w.Count
	}
	return &session.Error{Kind: session.KindPartial, Err: fmt.Errorf("the target could not store everything about %s", units.Count(n, "entry", "entries")),
		Advice: session.AdviceNotStrict}
}
