package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// A walk hands over each item once and in order, no more than may wait at a time, and at once what
// may be the last one for long.
func TestHandover(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		h := handover{ctx: t.Context(), out: make(chan []Item, handedAhead), spare: make(chan []Item, handedAhead+2)}
		n, long := random.IntN(10*handedOver), random.IntN(2*handedBytes/handedOver)
		walked := make(chan error, 1)
		go func() {
			defer close(h.out)
			for i := range n {
				item := Item{Entry: wire.Entry{Path: fmt.Sprint(i), Link: strings.Repeat("x", long)}, Early: i%100 == 99}
				if err := h.visit(item); err != nil {
					walked <- err
					return
				}
			}
			walked <- h.flush()
		}()
		next := 0
		for items := range h.out {
			held := 0
			for i := range items {
				require.Equal(t, fmt.Sprint(next), items[i].Entry.Path)
				require.True(t, !items[i].Early || i == len(items)-1, "item %d", next)
				held += heldBy(&items[i].Entry)
				next++
			}
			require.LessOrEqual(t, len(items), handedOver)
			require.LessOrEqual(t, held, handedBytes+long+20)
			h.spare <- items[:0]
		}
		require.NoError(t, <-walked)
		require.Equal(t, n, next)
	}
}

// A walk ends with the session, even if nobody takes what it hands over.
func TestHandoverEnds(t *testing.T) {
	t.Parallel()
	over := errors.New("over")
	ctx, end := context.WithCancelCause(t.Context())
	h := handover{ctx: ctx, out: make(chan []Item), spare: make(chan []Item, 2)}
	walked := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = h.visit(Item{})
		}
		walked <- err
	}()
	end(over)
	require.ErrorIs(t, <-walked, over)
}
