package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
)

// flying is a stream with data under way, of which so many segments have arrived.
func flying(delivered uint64, rtt time.Duration) transport.Info {
	return transport.Info{
		SndMSS: 1448, RTT: rtt, InFlight: 1448, Flying: 1448, NotSent: 1448, Delivered: delivered,
	}
}

// A stream of which nothing arrives loses its turn, and gets it back as soon as something does.
func TestWindowStuck(t *testing.T) {
	w := newWindow(nil)
	d := &DataStream{ID: 1}
	const rtt = 300 * time.Millisecond
	for _, c := range []struct {
		at        time.Duration
		delivered uint64
		flying    int
		stuck     bool
	}{
		{0, 5, 1448, false},
		{leastStuck + time.Millisecond, 5, 1448, false}, // four round trips take longer
		{4*rtt + time.Millisecond, 5, 1448, true},
		{4*rtt + 50*time.Millisecond, 6, 1448, false},
		{8 * rtt, 6, 1448, false},
		{9 * rtt, 6, 1448, true},
		{9*rtt + time.Millisecond, 6, 0, false}, // nothing is under way that could arrive
	} {
		i := flying(c.delivered, rtt)
		i.Flying = c.flying
		s := w.sample(w.began.Add(c.at), map[uint64]transport.Info{1: i})
		require.Equal(t, c.stuck, w.stuck(d, s), "at %v", c.at)
	}
}

// The RTT of a stream that only finishes what it has includes the wait of its peer with the
// acknowledgement. It counts where there is no other, and so does none of what is long past.
func TestWindowHeldRTTs(t *testing.T) {
	w := newWindow(nil)
	rtt := func(at time.Duration, infos map[uint64]transport.Info) time.Duration {
		return w.sample(w.began.Add(at), infos).RTT
	}
	w.held[1], w.held[2] = true, true
	const short, long = 20 * time.Millisecond, 60 * time.Millisecond
	of := func(first, second, third transport.Info) map[uint64]transport.Info {
		return map[uint64]transport.Info{1: first, 2: second, 3: third}
	}
	all := of(flying(1, short), flying(1, short), flying(1, long))
	require.Equal(t, long, rtt(0, all), "of the one that is not held")
	all = of(flying(2, short), flying(1, long), flying(1, long))
	require.Equal(t, short, rtt(1, all), "of the only one that says something")
	all = of(flying(2, long), flying(1, long), flying(1, long))
	require.Equal(t, short, rtt(2, all), "nothing is new")
}
