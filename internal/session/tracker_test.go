package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// feed feeds a tracker with events of files, named by their numbers, each of 10 bytes.
func feed(t *Tracker, events ...transfer.Event) {
	for _, e := range events {
		if e.Entry == nil && e.Kind != transfer.Listed && e.Kind != transfer.Warned {
			e.Entry = &wire.Entry{Kind: wire.File, Path: string(rune('a' + e.Index)), Size: 10}
		}
		t.Event(&e)
	}
}

func TestOutcomes(t *testing.T) {
	var got []FileResult
	tr := NewTracker(TrackerOptions{File: func(r FileResult) { got = append(got, r) }})
	bad := errors.New("bad")
	for i := range uint64(5) {
		feed(tr, transfer.Event{Kind: transfer.Found, Index: i})
	}
	require.True(t, tr.Progress(1, 0, 0).Walking)
	feed(tr,
		transfer.Event{Kind: transfer.Listed},
		transfer.Event{Kind: transfer.Started, Index: 0, Bytes: 4}, transfer.Event{Kind: transfer.Started, Index: 1},
		transfer.Event{Kind: transfer.Written, Index: 0, Bytes: 6}, transfer.Event{Kind: transfer.Written, Index: 1, Bytes: 10},
	)
	p := tr.Progress(1, 0, 0)
	require.Equal(t, []FileProgress{{"a", 10, 10}, {"b", 10, 10}}, p.Active)
	feed(tr,
		transfer.Event{Kind: transfer.Committed, Index: 0, Digest: [32]byte{1}}, transfer.Event{Kind: transfer.Committed, Index: 1},
		transfer.Event{Kind: transfer.Same, Index: 2}, transfer.Event{Kind: transfer.Skipped, Index: 3}, transfer.Event{Kind: transfer.Failed, Index: 4, Err: bad},
		transfer.Event{Kind: transfer.Done, Index: 5, Entry: &wire.Entry{Kind: wire.Fifo, Path: "p"}},
		transfer.Event{Kind: transfer.Removed, Entry: &wire.Entry{Kind: wire.Dir, Path: "d"}},
		transfer.Event{Kind: transfer.Warned, Warning: &wire.Warning{What: "owner", Path: "a", Text: "no", Count: 3}},
		transfer.Event{Kind: transfer.Warned, Warning: &wire.Warning{What: "owner", Path: "b", Text: "no", Count: 2}},
	)
	require.Equal(t, []FileResult{
		{Path: "a", Kind: "file", Bytes: 10, Outcome: Committed, Digest: digest.Hex([32]byte{1})},
		{Path: "b", Kind: "file", Bytes: 10, Outcome: Committed},
		{Path: "c", Kind: "file", Bytes: 10, Outcome: Unchanged},
		{Path: "d", Kind: "file", Bytes: 10, Outcome: Skipped},
		{Path: "e", Kind: "file", Bytes: 10, Outcome: Failed, Err: bad},
		{Path: "p", Kind: "fifo", Outcome: Made},
		{Path: "d", Kind: "folder", Outcome: Removed},
	}, got)
	p = tr.Progress(1, 0, 0)
	require.Empty(t, p.Active)
	require.Equal(t, []int64{5, 4, 1, 40}, []int64{p.Files, p.FilesDone, p.FilesFailed, p.BytesDone})
	r := tr.Report("s")
	require.Equal(t, []int64{2, 1, 1, 1, 1, 16, 4}, []int64{r.Sent, r.Same, r.Skipped, r.Failed, r.Removed, r.Written, r.Resumed})
	require.Equal(t, []NotStored{{"owner", 5, "a", "no"}}, r.NotStored)
	require.Nil(t, r.Plan)
}

// TestOutcomesOfSessions: the second session finds what the first one committed.
func TestOutcomesOfSessions(t *testing.T) {
	tr := NewTracker(TrackerOptions{})
	feed(tr, transfer.Event{Kind: transfer.Found, Index: 0}, transfer.Event{Kind: transfer.Committed, Index: 0},
		transfer.Event{Kind: transfer.Found, Index: 1}, transfer.Event{Kind: transfer.Started, Index: 1})
	tr.Restart(true)
	require.Empty(t, tr.Progress(1, 0, 0).Active)
	for i := range uint64(3) {
		feed(tr, transfer.Event{Kind: transfer.Found, Index: i})
	}
	feed(tr, transfer.Event{Kind: transfer.Same, Index: 0}, transfer.Event{Kind: transfer.Committed, Index: 1}, transfer.Event{Kind: transfer.Same, Index: 2})
	r := tr.Report("s")
	require.Equal(t, []int64{3, 2, 1}, []int64{r.Files, r.Sent, r.Same})
}

func TestDryRunOutcomes(t *testing.T) {
	var got []Outcome
	tr := NewTracker(TrackerOptions{DryRun: true, File: func(r FileResult) { got = append(got, r.Outcome) }})
	feed(tr,
		transfer.Event{Kind: transfer.WouldSend, Index: 0, New: true}, transfer.Event{Kind: transfer.WouldSend, Index: 1},
		transfer.Event{Kind: transfer.WouldSet, Index: 2}, transfer.Event{Kind: transfer.Same, Index: 3}, transfer.Event{Kind: transfer.Removed, Index: 4},
	)
	require.Equal(t, []Outcome{WouldCreate, WouldUpdate, WouldSet, Unchanged, WouldRemove}, got)
	r := tr.Report("s")
	require.Equal(t, &Plan{Create: 1, Update: 1, Set: 1, Bytes: 20}, r.Plan)
	require.Equal(t, []int64{0, 1, 1}, []int64{r.Sent, r.Same, r.Removed})
}

// TestNotStoredBounded: a peer invents values of What.
func TestNotStoredBounded(t *testing.T) {
	tr := NewTracker(TrackerOptions{})
	for i := range 1000 {
		feed(tr, transfer.Event{Kind: transfer.Warned, Warning: &wire.Warning{What: string(rune('0' + i)), Count: 1 << 63}})
	}
	require.Len(t, tr.Report("s").NotStored, maxNotStored)
}

// TestNarrowProgress: streams complete their blocks every 13 s. The rate shows what they carry before,
// also after the connection was lost.
func TestNarrowProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, streams, round = 5e6 / 8, 16, 16 << 19
		tr := NewTracker(TrackerOptions{})
		began, written := time.Now(), int64(0)
		for range 40 * 5 {
			time.Sleep(ReportEvery)
			carried := int64(time.Since(began).Seconds() * rate)
			for ; carried-written >= round; written += round {
				feed(tr, transfer.Event{Kind: transfer.Written, Entry: &wire.Entry{Kind: wire.File, Size: 1 << 30}, Bytes: round})
			}
			p := tr.Progress(streams, 0, AheadOf(carried-written, streams))
			require.Equal(t, written, p.Written)
			if p.Elapsed > ReportEvery {
				require.InEpsilon(t, rate*8, p.Goodput, 0.01, "%v", p.Elapsed)
			}
		}
		require.InEpsilon(t, rate*8, tr.Report("").Peak, 0.01)
		tr.Restart(true)
		tr.Progress(streams, 0, 0)
		time.Sleep(ReportEvery)
		require.InEpsilon(t, rate*8, tr.Progress(streams, 0, rate*ReportEvery.Milliseconds()/1000).Goodput, 0.01)
	})
}
