package congestion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLonger: a way becomes longer at once. A queue of others that grows step by step is none, even if it
// does not change while a session with a small part of the line sends less.
func TestLonger(t *testing.T) {
	const ms = time.Millisecond
	longer := doubts{jump: 24 * ms, dip: 25 * ms, top: 26 * ms, part: 8, best: 10}
	for _, c := range []struct {
		what string
		set  func(*doubts)
		want bool
	}{
		{"at once", func(*doubts) {}, true},
		{"step by step", func(d *doubts) { d.jump = 6 * ms }, false},
		{"it falls with the rate", func(d *doubts) { d.dip = 18 * ms }, false},
		{"others have taken a part", func(d *doubts) { d.part = 4 }, false},
	} {
		x := New()
		x.model.base, x.doubts = 50*ms, longer
		c.set(&x.doubts)
		require.Equal(t, c.want, x.longer(), c.what)
	}
	x := New()
	x.model.base, x.model.lost, x.doubts = 50*ms, 0.02, longer
	require.False(t, x.longer(), "something is lost")
}
