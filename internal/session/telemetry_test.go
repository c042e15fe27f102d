package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// samplesIn counts the samples that the peer gets within a time, of those that are taken every 250
// ms, while the line moves rate bytes/s.
func samplesIn(span time.Duration, rate float64) (sent int) {
	var c cadence
	for at := time.Duration(0); at <= span; at += laterEvery {
		s := diagnose.Sample{At: at, Acked: int64(rate * at.Seconds())}
		if at == 0 || c.due(&s) {
			c.sent(&s)
			sent++
		}
	}
	return sent
}

func TestSamplesLeaveNarrowLinesToTheData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64 // bit/s
		sent int     // in a minute
	}{
		{0, 61},
		{2400, 3},
		{9600, 3},
		{64e3, 13},
		{512e3, 81},
		{1.25e6, 241},
		{1e9, 241},
	} {
		require.Equal(t, c.sent, samplesIn(time.Minute, c.rate/8), "%v bit/s", c.rate)
	}
}

// A short transfer over a fast path shows where its time went.
func TestSamplesOfShortTransfer(t *testing.T) {
	t.Parallel()
	var c cadence
	c.sent(&diagnose.Sample{})
	require.False(t, c.due(&diagnose.Sample{At: 100 * time.Millisecond, InFlight: 14600}))
	require.True(t, c.due(&diagnose.Sample{At: 200 * time.Millisecond, Acked: 230_000, InFlight: 460_000}))
	require.True(t, c.due(&diagnose.Sample{At: 200 * time.Millisecond, Received: 230_000}))
}
