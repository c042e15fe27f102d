package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/wire"
)

func TestPriorityWithin(t *testing.T) {
	const none, low, normal, high = wire.NoPriority, wire.LowPriority, wire.NormalPriority, wire.HighPriority
	for _, test := range []struct{ wish, least, most, want wire.Priority }{
		{none, none, none, normal},
		{low, none, none, low},
		{high, none, none, high},
		{high, none, normal, normal},
		{none, none, low, low},
		{low, none, high, low},
		{low, high, high, high},
		{high, low, low, low},
		{low, normal, none, normal},
	} {
		require.Equal(t, test.want, PriorityWithin(test.wish, test.least, test.most), "%+v", test)
	}
	require.Equal(t, congestion.Low, Following(func() wire.Priority { return low })())
	require.Equal(t, congestion.Normal, Following(func() wire.Priority { return normal })())
	require.Equal(t, congestion.High, Following(func() wire.Priority { return high })())
}

func TestLivePriority(t *testing.T) {
	var l LivePriority
	require.Equal(t, Priority(""), l.Get())
	for _, p := range []Priority{PriorityLow, PriorityHigh, "", PriorityNormal} {
		l.Set(p)
		require.Equal(t, p, l.Get())
	}
	l.Set("urgent")
	require.Equal(t, Priority(""), l.Get())
	require.Error(t, CheckPriority("urgent"))
	require.NoError(t, CheckPriority(""))
}
