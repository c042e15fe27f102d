package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/transport"
)

// A session of low priority uses few streams until it has decided about a rate, and then all. The few begin at
// the rate of one.
func TestWindowStartsLow(t *testing.T) {
	p := &paced{info: flying(3, 100*time.Millisecond)}
	p.info.Protocol = transport.TCP
	set := NewStreamSet(nil, nil)
	set.Add(1, p, 1)
	w := newWindow(set)
	w.free = lowStreams
	w.seen[1] = seen{Info: p.info}
	at := w.began
	step := func() int {
		at = at.Add(congestion.Every)
		return w.step(at, congestion.Low, false)
	}
	require.Equal(t, lowStreams, step())
	first := congestion.LowBegins(p.info.RTT, p.info.SndMSS) / lowStreams
	require.InDeltaSlice(t, []float64{first}, p.bounds, 1e-3, "before anything is known")
	for range 6 {
		p.info.Delivered += 4
		step()
	}
	require.Zero(t, step())
}
