package session

import (
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/stretchr/testify/require"
)

func TestBetween(t *testing.T) {
	const ms = time.Millisecond
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		before, after usage
		want          compress.Path
	}{
		"nothing": {usage{}, usage{}, compress.Path{}},
		"one waits for the path": {
			usage{streams: map[uint64]streamUsage{1: {blocked: 10 * ms, wrote: 1000, acked: 100}}},
			usage{streams: map[uint64]streamUsage{1: {blocked: 110 * ms, wrote: 1000, acked: 1100}}},
			compress.Path{Rate: 10000, Blocked: 1},
		},
		"idle ones don't count": {
			usage{streams: map[uint64]streamUsage{1: {}, 2: {blocked: 50 * ms, wrote: 7}}},
			usage{streams: map[uint64]streamUsage{1: {blocked: 50 * ms, wrote: 500}, 2: {blocked: 50 * ms, wrote: 7}}},
			compress.Path{Rate: 5000, Blocked: 0.5},
		},
		"the peer's window": {
			usage{streams: map[uint64]streamUsage{1: {}, 2: {}}},
			usage{streams: map[uint64]streamUsage{1: {blocked: 100 * ms, closed: 90 * ms, wrote: 1}, 2: {blocked: 20 * ms, closed: 40 * ms, wrote: 9}}},
			compress.Path{Rate: 100, Blocked: 0.05},
		},
		"a new one, and the CPU": {
			usage{streams: map[uint64]streamUsage{1: {acked: 100}}},
			usage{cpu: 150 * ms, streams: map[uint64]streamUsage{2: {wrote: 100}}},
			compress.Path{Rate: 1000, CPU: 0.75},
		},
	} {
		c.before.at, c.after.at = at, at.Add(100*ms)
		got := between(&c.before, &c.after, 2)
		require.InDelta(t, c.want.Rate, got.Rate, 1e-6, name)
		require.InDelta(t, c.want.Blocked, got.Blocked, 1e-9, name)
		require.InDelta(t, c.want.CPU, got.CPU, 1e-9, name)
	}
}
