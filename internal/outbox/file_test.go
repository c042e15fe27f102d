package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	one   = Version{Size: 1, ModTime: 1, ChangeTime: 1, Inode: 1}
	two   = Version{Size: 1, ModTime: 1, ChangeTime: 2, Inode: 1}
	never = func() bool { return false }
)

func TestReady(t *testing.T) {
	t.Parallel()
	file := Version{ModTime: 10}
	older, equal := &Version{ModTime: 9}, &Version{ModTime: 10}
	for _, c := range []struct {
		steady     time.Duration
		marker     *Version
		withMarker bool
		open       bool
		want       bool
	}{
		{steady: 4 * time.Second},
		{steady: 5 * time.Second, want: true},
		{steady: 5 * time.Second, open: true},
		{steady: time.Hour, withMarker: true},
		{steady: time.Hour, withMarker: true, marker: older},
		{steady: time.Second, withMarker: true, marker: equal, want: true},
		{steady: time.Second, withMarker: true, marker: equal, open: true},
		{steady: 0, withMarker: true, marker: equal},
	} {
		got := ready(c.steady, 5*time.Second, file, c.marker, c.withMarker, func() bool { return c.open })
		require.Equal(t, c.want, got, "%+v", c)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	always := func() bool { return true }
	for _, state := range []State{Arriving, Waiting, Sending, There} {
		old := &File{State: state, Version: one, Error: "x", Dropped: true}
		require.Equal(t, &File{State: Arriving, Version: two, Arrived: noon}, observe(old, two, always, noon), state)
		require.Same(t, old, observe(old, one, never, noon), state)
	}
	require.Equal(t, &File{State: Arriving, Version: one, Arrived: noon}, observe(nil, one, always, noon))
	require.Equal(t, &File{State: Waiting, Version: one, Dropped: true}, observe(&File{State: Arriving, Version: one, Dropped: true}, one, always, noon))
	gone := &File{State: There, Version: one, Gone: noon}
	require.Equal(t, &File{State: There, Version: one}, observe(gone, one, always, noon))
}

func TestMiss(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Arriving, Waiting, Sending} {
		require.Nil(t, miss(&File{State: state}, noon))
	}
	for _, there := range []File{{State: There}, {State: Waiting, Dropped: true}} {
		gone := miss(&there, noon)
		require.Equal(t, &File{State: there.State, Dropped: there.Dropped, Gone: noon}, gone)
		require.Same(t, gone, miss(gone, noon.Add(forgetAfter)))
		require.Nil(t, miss(gone, noon.Add(forgetAfter+1)))
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	sending := &File{State: Sending, Version: one, Arrived: noon}
	failed := errors.New("permission denied")
	require.Equal(t, &File{State: There, Version: one, Arrived: noon, There: noon, Digest: "d"}, settle(sending, Result{Digest: "d"}, one, &one, noon))
	require.Equal(t, &File{State: Arriving, Version: two, Arrived: noon}, settle(sending, Result{}, one, &two, noon), "it changed while it was sent")
	require.Equal(t, &File{State: Arriving, Version: one, Arrived: noon}, settle(sending, Result{Err: errLeftOut}, one, &one, noon))
	require.Nil(t, settle(sending, Result{Err: failed}, one, nil, noon))
	require.Equal(t, &File{State: Waiting, Version: one, Arrived: noon, Error: "permission denied", Tries: 1, After: noon.Add(time.Minute)},
		settle(sending, Result{Err: failed}, one, &one, noon))
	newer := &File{State: Waiting, Version: two}
	require.Same(t, newer, settle(newer, Result{}, one, &one, noon), "the result of a version that is no longer here says nothing")
	again := &File{State: Sending, Version: two}
	require.Same(t, again, settle(again, Result{}, one, &one, noon))
	require.Nil(t, settle(nil, Result{}, one, nil, noon))
	for tries := range 100 {
		require.LessOrEqual(t, retryAfter(tries), maxRetry)
		require.Positive(t, retryAfter(tries))
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	at := func(path string, arrived time.Duration, f File) named {
		f.Arrived = noon.Add(arrived)
		return named{path, &f}
	}
	list := []named{
		at("later", 2, File{State: Waiting}), at("b", 1, File{State: Waiting}), at("a", 1, File{State: Waiting}),
		at("arriving", 0, File{State: Arriving}), at("dropped", 0, File{State: Waiting, Dropped: true}),
		at("failed", 0, File{State: Waiting, After: noon.Add(time.Minute)}),
		at("due", 3, File{State: Waiting, After: noon}),
		at("clock was set back", 4, File{State: Waiting, After: noon.Add(maxRetry + 1)}),
	}
	var got []string
	for _, n := range next(list, nil, running{}, noon) {
		got = append(got, n.path)
	}
	require.Equal(t, []string{"a", "b", "later", "due", "clock was set back"}, got)

	var many []named
	for i := range maxBatchFiles + 1 {
		many = append(many, at(fmt.Sprint(i), time.Duration(i), File{State: Waiting}))
	}
	require.Len(t, next(many, nil, running{}, noon), maxBatchFiles)
	huge := []named{at("huge", 0, File{State: Waiting, Version: Version{Size: 2 * maxBatchBytes}}), at("small", 1, File{State: Waiting})}
	require.Len(t, next(huge, nil, running{}, noon), 1)

	waits := []named{
		at("old", 0, File{State: Waiting}), at("large", 1, File{State: Waiting, Version: Version{Size: 2 * maxUrgentBytes}}),
		at("urgent", 2, File{State: Waiting}), at("failed", 0, File{State: Waiting, After: noon.Add(2 * time.Minute)}),
	}
	urgent := map[string]bool{"urgent": true, "failed": true}
	late := noon.Add(maxPatience + time.Second)
	for _, c := range []struct {
		urgent map[string]bool
		run    running
		now    time.Time
		want   string
	}{
		{urgent, running{}, noon, "urgent old"},
		{urgent, running{1, true}, noon, "urgent"},
		{urgent, running{1, false}, noon, "urgent"},
		{urgent, running{}, late, "old"},
		{urgent, running{2, false}, late, "old"},
		{urgent, running{2, true}, late, "urgent"},
		{nil, running{2, false}, noon, ""},
		{nil, running{2, false}, late, "old"},
		{nil, running{2, true}, late, ""},
		{nil, running{}, late, "old large urgent"},
	} {
		var got []string
		for _, n := range next(waits, c.urgent, c.run, c.now) {
			got = append(got, n.path)
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%+v", c)
	}
	require.Equal(t, "large", next(waits[1:3], urgent, running{}, late)[0].path)
}

// TestUntilGone lets a file that is there linger, whatever the clock does.
func TestUntilGone(t *testing.T) {
	t.Parallel()
	f := &File{State: There, There: noon}
	require.Equal(t, 5*time.Second, untilGone(f, 5*time.Second, noon))
	require.Equal(t, time.Second, untilGone(f, 5*time.Second, noon.Add(4*time.Second)))
	require.LessOrEqual(t, untilGone(f, 5*time.Second, noon.Add(5*time.Second)), time.Duration(0))
	require.Zero(t, untilGone(f, 5*time.Second, noon.Add(-time.Second)))
	require.Zero(t, untilGone(f, 0, noon))
}
