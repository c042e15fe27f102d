package chart

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func constant(n int, v float64) (all []Value) {
	for i := range n {
		all = append(all, Value{At: float64(i), Value: v})
	}
	return all
}

// One spike does not flatten the rest. The page says that it was cut off, and how high it is.
func TestSpike(t *testing.T) {
	t.Parallel()
	points := constant(50, 100e6)
	points[20].Value = 10e9
	c, ok := Draw("Goodput", Rate, Elapsed(49), Series{Name: "up", Points: points})
	require.True(t, ok)
	require.Equal(t, "150 Mbit/s", c.Y[len(c.Y)-1].Text)
	require.Equal(t, []key{{Class: "s0", Name: "up", Text: "median 100 Mbit/s, highest 10.0 Gbit/s"}, {Mark: "cut", Name: "more than 150 Mbit/s"}}, c.Keys)
	require.Contains(t, c.Paths[0].D, "L408.2 0.0", "the spike ends at the top")

	var text strings.Builder
	Plot(&text, "up", points, func(p *Value) float64 { return p.Value }, Rate)
	require.Contains(t, text.String(), "  110 Mbit/s │")
	require.Contains(t, text.String(), "\n↑10.0 Gbit/s │")
	require.Equal(t, 2, strings.Count(text.String(), "↑"), "a label and a column:\n%s", text.String())
}

// A gap in the measurements is a gap in the line, not a fall to zero. Things that have nothing to
// do with each other are not joined.
func TestShapes(t *testing.T) {
	t.Parallel()
	points := []Value{{0, 0, false}, {1, 5, false}, {2, 10, false}, {3, 0, false}, {4, 10, true}}
	draw := func(s Style) string {
		c, ok := Draw("X", Seconds, Elapsed(4), Series{Name: "a", Style: s, Points: points})
		require.True(t, ok)
		return fmt.Sprint(c.Paths)
	}
	require.Equal(t, "[{s0 M250.0 50.0h0L500.0 0.0M1000.0 0.0h0}]", draw(Line))
	require.Equal(t, "[{s0 dots M250.0 50.0h0M500.0 0.0h0} {bad M1000.0 0.0h0}]", draw(Dots))
	require.Contains(t, draw(Joined), "{s0 joins M250.0 50.0h0L500.0 0.0M1000.0 0.0h0}")

	_, ok := Draw("X", Seconds, Elapsed(4), Series{Name: "a", Points: []Value{{1, 0, false}}})
	require.False(t, ok, "nothing to see")
	now := time.Now()
	c, ok := Draw("X", Seconds, Calendar(now, now), Series{Name: "a", Style: Dots, Points: []Value{{0, 1, false}}})
	require.True(t, ok)
	require.Equal(t, "M500.0 0.0h0", c.Paths[0].D)
	require.Len(t, c.X, 1)
}

// Labels are round.
func TestTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit Unit
		top  float64
		want string
	}{
		{Rate, 842e6, "0, 500 Mbit/s, 1 Gbit/s"},
		{Rate, 310e6, "0, 100 Mbit/s, 200 Mbit/s, 300 Mbit/s, 400 Mbit/s"},
		{Seconds, 0.081, "0, 50 ms, 100 ms"},
		{Seconds, 55 * 60, "0, 15m, 30m, 45m, 1h"},
		{Seconds, 7, "0, 2 s, 4 s, 6 s, 8 s"},
		{Bytes, 320e9, "0, 100 GB, 200 GB, 300 GB, 400 GB"},
		{Bytes, 1, "0, 1 B"},
	} {
		chart, ok := Draw("X", c.unit, Elapsed(1), Series{Name: "a", Points: constant(2, c.top)})
		require.True(t, ok)
		var got []string
		for _, y := range chart.Y {
			got = append(got, y.Text)
		}
		require.Equal(t, c.want, strings.Join(got, ", "))
	}
	first := time.Date(2026, 11, 1, 8, 0, 0, 0, time.Local)
	require.Equal(t, "[{0 2026-11-01} {50 2026-11-11} {100 2026-11-21}]", fmt.Sprint(dates(first, first.AddDate(0, 0, 20))))
	require.Equal(t, "[{0 11-01 08:00} {50 11-01 09:00} {100 11-01 10:00}]", fmt.Sprint(dates(first, first.Add(2*time.Hour))))
}
