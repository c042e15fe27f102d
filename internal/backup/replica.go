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

// missing returns the snapshots of a series that a replica lacks, the oldest first, and those of them
// that it does not take because files in them are known to be damaged. It does not want what keep
// would remove at once.
func missing(there, here []fxfer.Snapshot, keep snapshot.Keep, zone *time.Location) (fetch, damaged []string) {
	whole := func(all []fxfer.Snapshot) []string {
		return namesOf(slices.DeleteFunc(slices.Clone(all), func(s fxfer.Snapshot) bool { return s.Partial }))
	}
	has, all := whole(here), whole(there)
	if keep != (snapshot.Keep{}) {
		union := append(slices.Clone(has), all...)
		slices.Sort(union)
		_, remove := keep.Decide(slices.Compact(union), zone)
		all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(remove, name) })
	}
	for _, s := range there {
		switch {
		case !slices.Contains(all, s.Name) || slices.Contains(has, s.Name):
		case s.Damaged > 0:
			damaged = append(damaged, s.Name)
		default:
			fetch = append(fetch, s.Name)
		}
	}
	return fetch, damaged
}

// replicate gets the snapshots that the replica lacks. A snapshot that fails keeps none of the later
// ones from coming.
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
	fetch, damaged := missing(there, here, j.Keep, j.Zone)
	sum := &fxfer.Report{Complete: true}
	var failed error
	for _, name := range fetch {
		u := j.Source
		u.Path, u.TrailingSlash = path.Join(u.Path, name), true
		call.Target.Snapshot = name
		report, err := client.Get(ctx, []fxfer.URL{u}, j.Target(), call)
		if report != nil {
			sum = added(sum, report)
		}
		switch {
		case err == nil, errors.Is(err, fxfer.ErrSnapshotExists):
		case fxfer.KindOf(err) == fxfer.KindPartial:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		default:
			return sum, err
		}
	}
	switch {
	case failed != nil:
		sum.Snapshot = "" // one stays invisible
		return sum, &fxfer.Error{Kind: fxfer.KindPartial, Err: failed}
	case len(damaged) > 0:
		if sum.Snapshot == "" && len(here) > 0 {
			sum.Snapshot = here[len(here)-1].Name
		}
		return sum, &fxfer.Error{Kind: fxfer.KindPartial, Err: fmt.Errorf("not replicated, because files in them are damaged: %s", strings.Join(damaged, ", "))}
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
	r.Reconnects += sum.Reconnects
	r.Failures = append(slices.Clone(sum.Failures), r.Failures...)
	return &r
}
