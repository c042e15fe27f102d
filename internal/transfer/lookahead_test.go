package transfer

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// A lookahead looks once at each entry, and whoever asks in order gets the destination of that very entry. It
// looks ahead only at files, and only where the target had the last one.
func TestLookahead(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		entries := make([]wire.Entry, random.IntN(4*lookaheadMost))
		there := random.IntN(4) // of four files
		for i := range entries {
			entries[i] = wire.Entry{Kind: wire.File, Path: fmt.Sprint(i), Size: int64(random.IntN(4) - there)}
			if random.IntN(2*lookaheadMost) == 0 {
				entries[i].Kind = wire.Dir
			}
		}
		var mu sync.Mutex
		at, looked := -1, make([]int, len(entries))
		s := &lookahead{look: func(x *wire.Entry, seen *destination) {
			var i int
			_, err := fmt.Sscan(x.Path, &i)
			seen.meta.Path, seen.err = x.Path, nil
			if x.Size >= 0 {
				seen.err = fs.ErrNotExist
			}
			mu.Lock()
			defer mu.Unlock()
			require.NoError(t, err)
			looked[i]++
			require.True(t, i == at || i > at && i < at+lookaheadMost && x.Kind == wire.File, "%d at %d", i, at)
		}}
		s.begin(entries)
		for i := range entries {
			mu.Lock()
			at = i
			mu.Unlock()
			seen := s.at(i)
			require.Equal(t, entries[i].Path, seen.meta.Path)
			require.Equal(t, entries[i].Size >= 0, seen.err != nil)
		}
		s.end()
		for i := range looked {
			require.Equal(t, 1, looked[i], "entry %d", i)
		}
	}
}

// Where the target has nothing, nobody looks ahead: in a new folder, that takes no system call.
func TestLookaheadNothingThere(t *testing.T) {
	t.Parallel()
	looked := 0
	s := &lookahead{look: func(_ *wire.Entry, seen *destination) { looked++; seen.err = fs.ErrNotExist }}
	entries := make([]wire.Entry, 3*lookaheadMost)
	for i := range entries {
		entries[i].Kind = wire.File
	}
	s.begin(entries)
	for i := range entries {
		s.at(i)
		require.Equal(t, i+1, looked)
	}
	s.end()
	require.Empty(t, s.destinations)
}
