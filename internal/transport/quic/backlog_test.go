package quic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader waits until a connection has room, and does not wait for long for one that is stuck.
func TestBacklog(t *testing.T) {
	var b backlog
	done, waits := uint64(1000), 0
	handled := func() uint64 { return done }
	stuck := func() { waits++ }
	for range 4 {
		b.hand(backlogMost/4, handled, stuck)
	}
	require.Zero(t, waits, "it has room for so much")
	b.hand(backlogMost/4, handled, func() { waits++; done += backlogMost / 4 })
	require.Equal(t, 1, waits)

	waits = 0
	b.hand(backlogMost/4, handled, stuck)
	require.Equal(t, backlogLooks, waits)
	for range backlogBlind / backlogMost {
		b.hand(backlogMost, handled, stuck)
	}
	require.Equal(t, backlogLooks, waits, "it was stuck, and the others should not wait again")

	b.hand(backlogMost, handled, stuck) // the rest
	b.hand(backlogMost, handled, stuck)
	require.Equal(t, backlogLooks, waits)
	b.hand(1, handled, stuck)
	require.Equal(t, 2*backlogLooks, waits)
}
