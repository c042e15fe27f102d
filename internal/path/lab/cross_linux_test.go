package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Others get the line, and their packets are told from those of commands.
func TestCross(t *testing.T) {
	l := startLab(t, Link{Rate: 50e6, RTT: 4 * time.Millisecond})
	ping, err := l.StartPing()
	require.NoError(t, err)
	udp, err := l.StartCross(Cross{Rate: 2e6, Direction: RightToLeft})
	require.NoError(t, err)
	tcp, err := l.StartCross(Cross{Congestion: "reno", Flows: 2, From: time.Millisecond})
	require.NoError(t, err)
	never, err := l.StartCross(Cross{Congestion: "reno", Flows: 1, From: time.Hour})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // both directions carry much, and the queue overflows
		there, back := l.Counters()
		return there.OthersDropped > 0 && there.OthersSent > 5000 && back.OthersSent > 100
	}, 30*time.Second, 10*time.Millisecond)

	require.Equal(t, CrossReport{Cross: Cross{Congestion: "reno", Flows: 1, From: time.Hour}, PerFlow: []int64{0}}, *never.Stop())
	r := tcp.Stop()
	require.NoError(t, r.Err)
	require.Positive(t, r.PerFlow[0])
	require.Positive(t, r.PerFlow[1])
	require.Equal(t, r.Bytes, r.PerFlow[0]+r.PerFlow[1])
	sum := int64(0)
	for _, n := range r.PerSecond {
		sum += n
	}
	require.Equal(t, r.Bytes, sum)
	require.Less(t, r.Goodput(), 50e6)
	r = udp.Stop()
	require.NoError(t, r.Err)
	require.Positive(t, r.Bytes)
	require.Zero(t, r.Lost, "its direction has room")
	trips := ping.Stop()
	require.NotEmpty(t, trips.Trips)
	require.Positive(t, trips.Added(0.9), "the ping waits in the queue")
	require.Eventually(t, func() bool { // once the last packets have left the queues
		there, back := l.Counters()
		return there.Sent == there.OthersSent && back.Sent == back.OthersSent
	}, 10*time.Second, 10*time.Millisecond, "there are no commands")
}

func TestCrossEnds(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9})
	c, err := l.StartCross(Cross{Congestion: "reno", Flows: 1, To: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.last.IsZero()
	}, 10*time.Second, time.Millisecond)
	r := c.Stop()
	require.NoError(t, r.Err)
	require.Positive(t, r.Bytes)

	_, err = l.StartCross(Cross{Congestion: "no-such", Flows: 1})
	require.ErrorContains(t, err, `congestion control "no-such"`)
	_, err = l.StartCross(Cross{Rate: 1e6, From: 2 * time.Second, To: time.Second})
	require.ErrorContains(t, err, "it would end at 1s")
}

// UDP beyond the rate is lost, and counted.
func TestCrossLoss(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, Police: 1e6, PoliceBurst: 5000})
	c, err := l.StartCross(Cross{Rate: 4e6})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		there, _ := l.Counters()
		return there.Policed >= 100
	}, 30*time.Second, 10*time.Millisecond)
	r := c.Stop()
	require.NoError(t, r.Err)
	require.Positive(t, r.Lost)
	require.Greater(t, r.Sent, r.Lost)
}

// No ping is faster than the idle link. How much slower it is, the machine decides.
func TestPing(t *testing.T) {
	l := startLab(t, Link{Rate: 1e6, RTT: 10 * time.Millisecond})
	p, err := l.StartPing()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, back := l.Counters()
		return back.Delivered >= 10
	}, 30*time.Second, time.Millisecond)
	r := p.Stop()
	require.GreaterOrEqual(t, len(r.Trips), 9)
	least := r.Added(0)
	t.Logf("%v added, at least %v", r.Added(0.5), least)
	require.Greater(t, least, -500*time.Microsecond, "faster than the link")
	require.Zero(t, r.Lost)
}
