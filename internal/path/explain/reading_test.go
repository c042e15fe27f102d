package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// TestFullWindow: a full window is the limit if it is only small. If it becomes smaller now and then
// while acknowledgements wait, the program that reads is.
func TestFullWindow(t *testing.T) {
	t.Parallel()
	const mss, least = 1448, 10 * time.Millisecond
	for _, c := range []struct {
		name    string
		windows []int64 // in turn
		rtt     time.Duration
		reader  bool
	}{
		{"small", []int64{65_536}, least, false},
		{"small, behind a queue", []int64{65_536}, 5 * least, false},
		{"small, of a program that is late at times", []int64{65_536, 58_000}, least, false},
		{"of a slow reader", []int64{65_536, 58_000}, 3 * least, true},
	} {
		var f follow
		for i := range int64(50) {
			window := c.windows[i%int64(len(c.windows))]
			f.add(time.Duration(i)*step, &reading{
				sndBuf: 4 << 20, rcvBuf: 128 << 10, mss: mss, inFlight: window - mss, notSent: 500_000, cwnd: 200_000, sndWnd: window,
				rtt: c.rtt, minRTT: least, busy: time.Duration(i) * step, rwnd: time.Duration(i) * step / 2, acked: i * 65_000, segments: i * 45,
				sinceReceived: time.Hour, control: "cubic",
			}, nil, false)
		}
		got := f.connection(diagnose.Host{}).Verdicts
		require.NotEmpty(t, got, c.name)
		require.Equal(t, c.reader, got[0].Limiter == diagnose.ReceivingProgram, "%s: %s", c.name, got[0].Limiter)
	}
}
