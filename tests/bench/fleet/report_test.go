package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
)

// A worker's log says when its tasks begin and end.
func TestReadEvent(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]event{
		"time=2026-11-26T11:00:00Z level=INFO msg=task key=20261126-110000-abcdef.list attempt=1":                 {begins: true, kind: fleet.List, key: "20261126-110000-abcdef.list"},
		"time=2026-11-26T11:00:00Z level=INFO msg=ended key=j.1-1.17 outcome=done bytes=5 reason=\"\"":            {kind: fleet.Send, key: "j.1-1.17"},
		"time=2026-11-26T11:00:00Z level=INFO msg=ended key=j.finish outcome=done bytes=5 reason=\"\"":            {kind: fleet.Finish, key: "j.finish"},
		"time=2026-11-26T11:00:00Z level=WARN msg=failed key=j.1-1.17 attempt=1 error=\"can't msg=ended it yet\"": {},
		"fxfer: something else": {},
	} {
		got, ok := readEvent(line)
		require.Equal(t, want.key != "", ok, line)
		if ok {
			require.Equal(t, want, got)
		}
	}
}

// What a shard takes and what a file takes is found from two sizes of shards, in the time that others
// left.
func TestFit(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Time{}.Add(time.Duration(s * 1e9)) }
	var few, many []event
	add := func(all []event, key string, from, wall, cpu float64) []event {
		return append(all, event{at: at(from), begins: true, kind: fleet.Send, key: key, left: from},
			event{at: at(from + wall), kind: fleet.Send, key: key, worker: cpu, left: from + wall}) // one of two processors
	}
	few = add(few, "j.1-1.0", 0, 2*(0.5+1000*0.001), 0.3) // a shard 0.5 s, a file 1 ms
	for i := range 10 {
		many = add(many, "j.1-1."+string(rune('0'+i)), float64(3*i), 2*(0.5+100*0.001), 0.03)
	}
	fewSum, n := sum(tasksOf(few), fleet.Send)
	manySum, m := sum(tasksOf(many), fleet.Send)
	require.Equal(t, 1, n)
	require.Equal(t, 10, m)
	shard, file := fit(fewSum, n, manySum, m, 1000)
	require.InEpsilon(t, 0.5, shard.Wall, 1e-6)
	require.InEpsilon(t, 0.001, file.Wall, 1e-6)
	require.InDelta(t, 0, shard.Worker, 1e-9)
	require.InEpsilon(t, 0.0003, file.Worker, 1e-6)
}

// Charts have all curves within their bounds.
func TestCurves(t *testing.T) {
	t.Parallel()
	svg := drawCurves("Time", "workers", count, long, []curve{{"full", []float64{1, 10, 1000}, []float64{5e7, 5e6, 4e5}}, {"again", []float64{1, 10, 1000}, []float64{100, 30, 20}}})
	require.Equal(t, 2, strings.Count(svg, "<polyline"))
	require.NotContains(t, svg, "NaN")
	for _, points := range regexp.MustCompile(`points="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		require.NotContains(t, points[1], "-")
	}
	require.Contains(t, svg, ">1,000</text>")
}

// Paragraphs fit on a screen, and nothing of them is lost.
func TestWrap(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("many words ", 40)
	wrapped := wrap(text, "  ")
	require.Equal(t, strings.Fields(text), strings.Fields(wrapped))
	for line := range strings.Lines(wrapped) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 100)
	}
}
