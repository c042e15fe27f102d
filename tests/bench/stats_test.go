package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{7, 1, 3, 100}, 5},
	} {
		before := append([]float64(nil), c.xs...)
		require.InDelta(t, c.want, median(c.xs), 1e-12, "%v", c.xs)
		require.Equal(t, before, c.xs, "the runs keep their order")
	}
}

func TestLimit(t *testing.T) {
	require.InDelta(t, 941.5e6, goodputLimit(gbit), 0.1e6)
	require.InDelta(t, 39.94, secondsAt(4700*mb, goodputLimit(gbit)), 0.01, "the DVD")
}

func TestProjected(t *testing.T) {
	at := func(ms, bytes int64) point { return point{time.Duration(ms) * time.Millisecond, bytes} }
	for name, c := range map[string]struct {
		points []point
		total  int64
		want   time.Duration // 0 means none
	}{
		"nothing seen":             {nil, 100, 0},
		"one look":                 {[]point{at(100, 50)}, 100, 0},
		"nothing moved":            {[]point{at(100, 0), at(200, 0), at(300, 0)}, 100, 0},
		"stuck in the end":         {[]point{at(0, 0), at(1000, 50), at(2000, 50)}, 100, 0},
		"steady":                   {[]point{at(0, 0), at(1000, 10), at(2000, 20), at(3000, 30), at(4000, 40)}, 100, 10 * time.Second},
		"a slow start counts once": {[]point{at(0, 0), at(2000, 0), at(3000, 10), at(4000, 20)}, 100, 12 * time.Second},
		"all there":                {[]point{at(0, 0), at(1000, 50), at(2000, 100)}, 100, 2 * time.Second},
	} {
		got, ok := projected(c.points, c.total)
		require.Equal(t, c.want > 0, ok, name)
		require.Equal(t, c.want, got, name)
	}
}
