package backup

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// maxClockLead is how far the clock of the other site may be ahead of ours, in the name of a snapshot.
const maxClockLead = time.Hour

// missingSnapshots are snapshots of a series that a replica lacks and keep would not remove at once. The oldest
// is the first in each list.
type missingSnapshots struct {
	fetch   []string
	damaged []string // files in them are known to be damaged
	ahead   []string // their time has not come yet
	late    []string // keep would remove others that the replica has
}

// missing returns what a replica lacks. Whoever has broken into the other site could offer a snapshot
// for the end of each day, so that keep removes the true ones here. So names count only until now, and
// one that is older than the newest here does not take the place of any that is here.
func missing(there, here []fxfer.Snapshot, keep snapshot.Keep, zone *time.Location, now time.Time) (x missingSnapshots) {
	has := completeOf(here)
	seen := setOf(has)
	damaged := make(map[string]bool)
	var intact, all []string
	for _, s := range there {
		switch {
		case s.Partial || seen[s.Name]:
			continue
		case s.Time.After(now.Add(maxClockLead)):
			x.ahead = append(x.ahead, s.Name)
			continue
		case s.Damaged > 0:
			damaged[s.Name] = true
		default:
			intact = append(intact, s.Name)
		}
		seen[s.Name], all = true, append(all, s.Name)
	}
	for _, name := range wanted(keep, has, all, zone) {
		if damaged[name] {
			x.damaged = append(x.damaged, name)
		}
	}
	newest := newestOf(has)
	for _, name := range slices.Backward(wanted(keep, has, intact, zone)) { // without damaged ones, which would keep others of their day away
		switch {
		case name > newest:
			x.fetch = append(x.fetch, name)
		case displaces(keep, has, name, zone):
			x.late = append(x.late, name)
		default:
			x.fetch, has = append(x.fetch, name), append(has, name)
		}
	}
	slices.Reverse(x.fetch)
	slices.Reverse(x.late)
	return x
}

// wanted returns the names, in order, that keep would not remove from a series that has others, too.
func wanted(keep snapshot.Keep, others, names []string, zone *time.Location) []string {
	_, remove := keep.Decide(slices.Concat(others, names), zone)
	gone := setOf(remove)
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return gone[name] })
	slices.Sort(names)
	return names
}

// displaces reports whether keep would remove more of a series if name were in it.
func displaces(keep snapshot.Keep, series []string, name string, zone *time.Location) bool {
	if keep == (snapshot.Keep{}) {
		return false
	}
	_, before := keep.Decide(series, zone)
	_, after := keep.Decide(append(slices.Clone(series), name), zone)
	return len(after) > len(before)
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// completeOf returns the names of the complete ones.
func completeOf(all []fxfer.Snapshot) []string {
	return namesOf(slices.DeleteFunc(slices.Clone(all), func(s fxfer.Snapshot) bool { return s.Partial }))
}

// newestOf returns the newest of names, "" for none.
func newestOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return slices.Max(names)
}

// left returns why some were left out, nil if none were.
func (x *missingSnapshots) left(now time.Time) error {
	var why []string
	for _, l := range []struct {
		names  []string
		reason string
	}{
		{x.damaged, "files in them are damaged"},
		{x.ahead, "their time has not come: here it is " + fxfer.SnapshotName(now)},
		{x.late, "keep would remove others for them"},
	} {
		if n := len(l.names); n > 0 {
			names := strings.Join(l.names[:min(n, mostNamed)], ", ")
			if n > mostNamed {
				names += fmt.Sprintf(" and %d more", n-mostNamed)
			}
			why = append(why, fmt.Sprintf("not replicated, because %s: %s", l.reason, names))
		}
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

// mostNamed bounds the snapshots that a message names: the other site decides how many there are.
const mostNamed = 10

// replicate gets the snapshots that the replica lacks. A snapshot that fails keeps none of the later
// ones from coming. The report names the newest one that the replica has then, unless one has failed.
func replicate(ctx context.Context, client *fxfer.Client, t *Task, call fxfer.Transfer) (*fxfer.Report, error) {
	j := t.Job
	there, err := client.Snapshots(ctx, j.Source)
	if err != nil {
		return nil, err
	}
	here, err := client.LocalSnapshots(j.Folder)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	lacks := missing(there, here, j.Keep, j.Zone, now)
	sum := &fxfer.Report{Complete: true}
	var failed error
	for _, name := range lacks.fetch {
		u := j.Source
		u.Path, u.TrailingSlash = path.Join(u.Path, name), true
		call.Target.Snapshot = name
		report, err := client.Get(ctx, []fxfer.URL{u}, j.Target(), call)
		if report != nil {
			sum = added(sum, report)
		}
		switch {
		case err == nil, errors.Is(err, fxfer.ErrSnapshotExists):
		case fxfer.KindOf(err) == fxfer.KindPartial, fxfer.KindOf(err) == fxfer.KindNotFound: // removed there meanwhile
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		default:
			return sum, err
		}
	}
	if failed != nil {
		sum.Snapshot = "" // one stays invisible
		return sum, &fxfer.Error{Kind: fxfer.KindPartial, Err: failed}
	}
	sum.Snapshot = newestOf(append(completeOf(here), lacks.fetch...))
	if left := lacks.left(now); left != nil {
		return sum, &fxfer.Error{Kind: fxfer.KindPartial, Err: left}
	}
	return sum, nil
}

// added returns a report with the sums of both, and what else the later one has.
func added(sum, next *fxfer.Report) *fxfer.Report {
	r := *next
	r.Duration += sum.Duration
	r.Complete = r.Complete && sum.Complete
	for _, x := range []struct{ to, more *int64 }{
		{&r.Files, &sum.Files}, {&r.Sent, &sum.Sent}, {&r.Same, &sum.Same}, {&r.Skipped, &sum.Skipped}, {&r.Links, &sum.Links},
		{&r.Failed, &sum.Failed}, {&r.Healed, &sum.Healed}, {&r.Removed, &sum.Removed}, {&r.Bytes, &sum.Bytes}, {&r.Written, &sum.Written},
		{&r.Copied, &sum.Copied}, {&r.Resumed, &sum.Resumed}, {&r.Resent, &sum.Resent}, {&r.Raw, &sum.Raw}, {&r.Coded, &sum.Coded},
		{&r.Retransmits, &sum.Retransmits},
	} {
		*x.to += *x.more
	}
	r.NotStored = addedNotStored(sum.NotStored, r.NotStored)
	r.Reconnects += sum.Reconnects
	r.Peak = max(r.Peak, sum.Peak)
	r.Changes = slices.Concat(sum.Changes, r.Changes)
	all := slices.Concat(sum.Failures, r.Failures)
	r.Failures = all[:min(len(all), mostFailures)]
	if sum.Files > 0 {
		r.Digest = "" // that of one file
	}
	return &r
}

// addedNotStored returns the sums of both, by what was not stored.
func addedNotStored(sum, more []fxfer.NotStored) []fxfer.NotStored {
	sum = slices.Clone(sum)
	for _, x := range more {
		i := slices.IndexFunc(sum, func(y fxfer.NotStored) bool { return y.What == x.What })
		if i < 0 {
			sum = append(sum, x)
		} else {
			sum[i].Count += x.Count
		}
	}
	return sum
}

// mostFailures is how many failures a report has at most.
const mostFailures = 100
