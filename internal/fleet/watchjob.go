package fleet

import (
	"context"
	"errors"
	"time"
)

// watchJobEvery is how often a worker looks whether its task is still wanted.
const watchJobEvery = 2 * time.Second

var (
	// errPaused ends a task whose job is paused.
	errPaused = errors.New("the job is paused")
	// errUnwanted ends a task that is of no use to its job any more.
	errUnwanted = errors.New("the task is not wanted any more")
)

// watchJob cancels ctx when the job of the task is paused, or does not want the task any more.
func (h *held) watchJob(ctx context.Context, cancel context.CancelCauseFunc) {
	for pause(ctx, watchJobEvery) {
		once, stop := context.WithTimeout(ctx, watchJobEvery)
		job, err := h.look(once)
		stop()
		switch {
		case err != nil: // the controller is away
		case job == nil, !wanted(h.task, job):
			cancel(errUnwanted)
			return
		case job.Paused:
			cancel(errPaused)
			return
		}
	}
}

// giveBack publishes the task anew, for the time after the pause: a pause is no attempt. If that fails,
// the task comes again when its lease has ended.
func (h *held) giveBack(ctx context.Context) {
	once, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	if h.began {
		if _, err := h.record(once, Record{Outcome: Waiting, Bytes: h.bytes.Load(), Reason: errPaused.Error()}); err != nil {
			h.Log.Warn("not given back", "key", h.task.key(), "error", err)
			return
		}
	}
	if _, err := h.js.Publish(once, h.task.subject(), h.m.Data()); err != nil {
		h.Log.Warn("not given back", "key", h.task.key(), "error", err)
		return
	}
	h.Log.Info("given back", "key", h.task.key())
	_ = h.m.DoubleAck(once)
}
