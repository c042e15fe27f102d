package quic

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A reader waits until a connection has room, and does not wait for long for one that is stuck.
func TestBacklog(t *testing.T) {
	var b backlog
	done, waits := uint64(1000), 0
	handled := func() uint64 { return done }
	const most = 4
	stuck := func() bool { waits++; return waits%most > 0 }
	for range 4 {
		b.hand(backlogMost/4, handled, stuck)
	}
	require.Zero(t, waits, "it has room for so much")
	b.hand(backlogMost/4, handled, func() bool { waits++; done += backlogMost / 4; return true })
	require.Equal(t, 1, waits)

	waits = 0
	b.hand(backlogMost/4, handled, stuck)
	require.Equal(t, most, waits)
	for range backlogBlind / backlogMost {
		b.hand(backlogMost, handled, stuck)
	}
	require.Equal(t, most, waits, "it was stuck, and the others should not wait again")

	b.hand(backlogMost, handled, stuck) // the rest
	b.hand(backlogMost, handled, stuck)
	require.Equal(t, most, waits)
	b.hand(1, handled, stuck)
	require.Equal(t, 2*most, waits)
}

// TestBacklogOfOthers: connections that handle nothing, however many, or who sends what belongs to
// none, hardly delay the others of their socket. A connection that is only slow is waited for.
func TestBacklogOfOthers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, stuck := range []int{0, 1, 10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			const (
				read  = 64 << 10
				slow  = 200e6 // bytes/s
				share = 4     // of what is read, one part is for the slow connection
			)
			var p patience
			var honest backlog
			others := make([]backlog, stuck)
			began := time.Now()
			handed, handled, waited, lost := uint64(0), uint64(0), time.Duration(0), 0
			at := began
			work := func() uint64 { // of the slow connection
				handled = min(handed, handled+uint64(slow*time.Since(at).Seconds()))
				at = time.Now()
				return handled
			}
			for time.Since(began) < 5*time.Second {
				from := time.Now()
				p.begin()
				if i := random.IntN(share * (stuck + 1)); i < stuck*share && stuck > 0 {
					others[i%stuck].hand(read, func() uint64 { return 0 }, p.wait)
					waited += time.Since(from)
				} else {
					honest.hand(read, work, p.wait)
					if handed+read-work() > 256*mss {
						lost++
					}
					handed += read
				}
				time.Sleep(100 * time.Microsecond) // until more comes
			}
			require.LessOrEqual(t, waited, 2*backlogWait+time.Since(began)/backlogRest, "%d are stuck", stuck)
			if stuck == 0 {
				require.Zero(t, lost)
				require.InEpsilon(t, slow, float64(handled)/time.Since(began).Seconds(), 0.05, "it was always busy")
			}
		})
	}
}
