package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Verify lets the server read snapshots of a job and compare them with the recorded digests. It
// calls visit for each difference and stores the outcome. It may run at the same time as a run.
// Differences raise an alarm.
func (r *Runner) Verify(ctx context.Context, j *Job, names []string, visit func(snapshot string, d fxfer.Difference)) (*Scrub, error) {
	scrub := &Scrub{At: r.Clock.Now()}
	var failed error
	for _, name := range names {
		sum, err := r.Courier.Scrub(ctx, j, name, func(d fxfer.Difference) { visit(name, d) })
		if ctx.Err() != nil {
			return scrub, ctx.Err()
		}
		if sum != nil {
			scrub.Files += sum.Files
			scrub.Bytes += sum.Bytes
		}
		scrub.Snapshots, scrub.Last = scrub.Snapshots+1, name
		if err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		scrub.Error = failed.Error()
		r.tell(ctx, j, EventAlarm, nil, "verification: "+scrub.Error)
	}
	return scrub, errors.Join(failed, r.Store.Update(j.Name, func(st *State) error {
		st.Scrub = scrub
		return nil
	}))
}

// turn chooses the snapshots to verify: the newest one, and one of the others in turn.
func turn(names []string, last string) []string {
	if len(names) < 2 {
		return names
	}
	newest, others := names[len(names)-1], names[:len(names)-1]
	i, found := slices.BinarySearch(others, last)
	if found {
		i++
	}
	return []string{newest, others[i%len(others)]}
}

// keepVerified verifies a job's snapshots whenever that is due. A missed verification is made once.
// When waiting ends, a verification that is running continues to its end.
func (d *Daemon) keepVerified(ctx, waiting context.Context, j *Job) {
	for waiting.Err() == nil {
		now := d.Clock.Now()
		st, err := d.Store.State(j.Name)
		due := time.Time{}
		if err == nil {
			due = j.Verify.Last(st.Verified, now)
		}
		if due.IsZero() && !st.Verified.IsZero() {
			d.Clock.Sleep(waiting, upTo(j.Verify.Next(now), now, d.Look))
			continue
		}
		first := st.Verified.IsZero()
		if err == nil {
			err = d.Store.Update(j.Name, func(s *State) error {
				s.Verified = now
				return nil
			})
		}
		if err == nil && !first {
			err = d.verifyNext(ctx, j, st.Scrub)
		}
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("verification", "job", j.Name, "error", err)
			d.Clock.Sleep(waiting, d.Look)
		}
	}
}

func (d *Daemon) verifyNext(ctx context.Context, j *Job, before *Scrub) error {
	names, err := d.Courier.Snapshots(ctx, j)
	if err != nil {
		return err
	}
	last := ""
	if before != nil {
		last = before.Last
	}
	scrub, err := d.Verify(ctx, j, turn(names, last), func(snapshot string, x fxfer.Difference) {
		d.Log.Warn("verification", "job", j.Name, "snapshot", snapshot, "path", x.Path, "finding", x.Finding, "detail", x.Detail)
	})
	if err == nil {
		d.Log.Info("verified", "job", j.Name, "snapshots", scrub.Snapshots, "files", scrub.Files, "bytes", scrub.Bytes)
	}
	return err
}

// noteOf returns the text of a notification about an event that does not concern a run.
func (m *message) noteOf(note string) string {
	return fmt.Sprintf("backup %s on %s: %s", m.Job, m.Host, note)
}
