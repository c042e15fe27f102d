package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBeyond(t *testing.T) {
	s := NewStreamSet(nil, nil)
	for id := range uint64(6) {
		s.conns[id] = &DataStream{set: s, ID: id}
	}
	s.conns[1].Retired.Store(true)
	ids := func(most int) (ids []uint64) {
		for _, d := range s.Beyond(most) {
			ids = append(ids, d.ID)
		}
		return ids
	}
	require.Empty(t, ids(64))
	require.Empty(t, ids(5))
	require.Equal(t, []uint64{4, 5}, ids(3), "the last, and those that are retired are none")
	require.Len(t, ids(1), 4)
}
