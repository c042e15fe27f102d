package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Verify lets the server read snapshots of a job and compare them with the recorded digests. It
// calls visit for each difference and stores the outcome. It may run at the same time as a run.
// Differences raise an alarm.
func (r *Runner) Verify(ctx context.Context, j *Job, names []string, visit func(snapshot string, d fxfer.Difference)) (*Scrub, error) {
	scrub := &Scrub{At: r.Clock.Now()}
	var read []string
	var failed error
	for _, name := range names {
		sum, err := r.Transferrer.Scrub(ctx, j, name, fxfer.Verification{
			Difference: func(d fxfer.Difference) { visit(name, d) },
			Progress:   r.scrubbing(j, name),
		})
		if ctx.Err() != nil {
			return scrub, errors.Join(ctx.Err(), r.Store.Update(j.Name, func(st *State) error {
				st.Scrubbing = nil
				return nil
			}))
		}
		if sum != nil {
			scrub.Files += sum.Files
			scrub.Bytes += sum.Bytes
			scrub.Damaged += sum.Different + sum.Missing + sum.Unreadable
		}
		scrub.Snapshots, scrub.Last = scrub.Snapshots+1, name
		if err == nil || fxfer.KindOf(err) == fxfer.KindIntegrity {
			read = append(read, name)
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		scrub.Error = failed.Error()
		r.tell(ctx, j, EventAlarm, nil, "verification: "+scrub.Error)
	}
	err := r.Store.Update(j.Name, func(st *State) error {
		st.Scrub, st.Scrubbing = scrub, nil
		st.noteRead(read)
		return nil
	})
	r.checkDamage(ctx, j, "")
	return scrub, errors.Join(failed, err)
}

// noteRead notes that a verification has read snapshots. It counts verifications, since clocks jump.
func (st *State) noteRead(names []string) {
	var last int64
	for _, n := range st.Snapshots {
		last = max(last, n)
	}
	if st.Snapshots == nil {
		st.Snapshots = make(map[string]int64)
	}
	for _, name := range names {
		st.Snapshots[name] = last + 1
	}
}

// scrubbing returns what shows and stores the progress of a verification.
func (r *Runner) scrubbing(j *Job, name string) func(fxfer.Progress) {
	var stored time.Time
	return func(p fxfer.Progress) {
		if r.Watch != nil {
			r.Watch(j.Name, p)
		}
		now := r.Clock.Now()
		if now.Sub(stored) < progressGap {
			return
		}
		stored = now
		err := r.Store.Update(j.Name, func(st *State) error {
			st.Scrubbing = &Scrubbing{At: now, Snapshot: name, Done: p.FilesDone, Files: p.Files, Bytes: p.BytesDone}
			return nil
		})
		if err != nil {
			r.Log.Warn("the progress was not stored", "error", err)
		}
	}
}

// checkDamage stores which snapshots there are, and which have files that are known to be damaged. If those of the newest
// are gone, which healing explains, it notifies.
func (r *Runner) checkDamage(ctx context.Context, j *Job, healing string) {
	if j.Mode == Mirror || ctx.Err() != nil {
		return
	}
	all, err := r.Transferrer.Snapshots(ctx, j)
	var before *Damage
	if err == nil {
		err = r.Store.Update(j.Name, func(st *State) error {
			before, st.Damage = st.Damage, damageOf(all)
			maps.DeleteFunc(st.Snapshots, func(name string, _ int64) bool {
				return !slices.Contains(namesOf(all), name)
			})
			return nil
		})
	}
	if err != nil {
		r.Log.Warn("damaged snapshots are not known", "job", j.Name, "error", err)
		return
	}
	if now := damageOf(all); before != nil && before.Newest > 0 && (now == nil || now.Newest == 0) {
		r.tell(ctx, j, EventRecovered, nil, cmp.Or(healing, "the newest backup has no damaged files any more"))
	}
}

// damageOf sums up the damage of snapshots, of which the last is the newest.
func damageOf(all []fxfer.Snapshot) *Damage {
	d := Damage{}
	for i, s := range all {
		switch {
		case s.Damaged == 0:
		case i == len(all)-1:
			d.Newest = s.Damaged
		default:
			d.Older = append(d.Older, s.Name)
		}
	}
	if d.Newest == 0 && d.Older == nil {
		return nil
	}
	return &d
}

// turn chooses the snapshots to verify: the newest, and of the others the one that was verified
// longest ago. So each is verified after at most as many times as there are others, whatever
// retention removes meanwhile.
func turn(names []string, verified map[string]int64) []string {
	if len(names) < 2 {
		return names
	}
	newest, others := names[len(names)-1], names[:len(names)-1]
	return []string{newest, slices.MinFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(verified[a], verified[b]), cmp.Compare(a, b))
	})}
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
			err = d.verifyNext(ctx, j, st.Snapshots)
		}
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("verification", "job", j.Name, "error", err)
			d.Clock.Sleep(waiting, d.Look)
		}
	}
}

// verifyNext verifies the newest snapshot, and the one whose turn it is.
func (d *Daemon) verifyNext(ctx context.Context, j *Job, verified map[string]int64) error {
	all, err := d.Transferrer.Snapshots(ctx, j)
	if err != nil {
		return err
	}
	scrub, err := d.Verify(ctx, j, turn(namesOf(all), verified), func(snapshot string, x fxfer.Difference) {
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
