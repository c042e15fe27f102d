package fxfer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBeyond(t *testing.T) {
	s := newStreamSet(nil, nil)
	for id := range uint64(6) {
		s.conns[id] = &dataStream{set: s, id: id}
	}
	s.conns[1].retired.Store(true)
	ids := func(most int) (ids []uint64) {
		for _, d := range s.beyond(most) {
			ids = append(ids, d.id)
		}
		return ids
	}
	require.Empty(t, ids(64))
	require.Empty(t, ids(5))
	require.Equal(t, []uint64{4, 5}, ids(3), "the last, and those that are retired are none")
	require.Len(t, ids(1), 4)
}
