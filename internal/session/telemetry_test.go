package session

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/transfer"
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

// TestSampleIsOfThen: on a busy host, a sample takes long. Its time is when the sockets were asked, which comes last,
// or rates would be wrong by as much.
func TestSampleIsOfThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written := func() int64 { time.Sleep(time.Second); return 7 }
		s := NewTelemetry(transfer.NewClock(), NewStreamSet(nil, nil), written, diagnose.Host{}).Sample()
		require.Equal(t, time.Second, s.At)
		require.EqualValues(t, 7, s.Payload)
	})
}

// TestPeerExaggerates: whatever a peer reports, its figures stay within what can be after that time, so that
// the sums of many sessions stay far from overflow.
func TestPeerExaggerates(t *testing.T) {
	t.Parallel()
	for _, value := range []int64{math.MinInt64, -1, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			m := NewTelemetry(transfer.NewClock(), NewStreamSet(nil, nil), func() int64 { return 0 }, diagnose.Host{})
			time.Sleep(2 * time.Second)
			said := make(map[string]int64)
			diagnose.Fill(new(diagnose.Sample), nil, 0, func(name string) (int64, bool) { said[name] = value; return 0, false })
			m.AddPeerSample(said)
			_, peer := m.Latest(true)
			require.Equal(t, 2*time.Second, peer.At)
			diagnose.Each(&peer, nil, func(name string, v int64) {
				require.GreaterOrEqual(t, v, int64(0), name)
				require.LessOrEqual(t, v, int64(1<<40), name)
			})
		})
	}
}
