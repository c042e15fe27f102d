package transfer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

func entriesOf(n, names int) []wire.Entry {
	all := make([]wire.Entry, n)
	for i := range all {
		all[i] = wire.Entry{Kind: wire.Dir, Path: string(make([]byte, names))}
	}
	return all
}

// TestMemoryOfSenders: what a receiver does not resolve takes a bounded part of the memory that
// sessions share, and each session has some of its own.
func TestMemoryOfSenders(t *testing.T) {
	t.Parallel()
	account := NewAccount(1<<20, nil)
	fill := func() (m *manifest, all []*sending) {
		m = newManifest(new(counters), false, account)
		for m.hasRoom() {
			e := newSending(&Item{Entry: wire.Entry{Kind: wire.Dir, Path: string(make([]byte, 3<<10))}}, 0)
			m.add(e)
			all = append(all, e)
		}
		return m, all
	}
	one, entries := fill()
	require.InDelta(t, ownMemory+1<<20, one.memory.used, 8<<10)
	two, others := fill()
	require.InDelta(t, ownMemory, two.memory.used, 8<<10)
	for _, e := range entries {
		require.True(t, one.remove(e, false))
		require.True(t, one.hasRoom())
	}
	require.True(t, two.hasRoom(), "what the other has given back")
	require.True(t, two.remove(others[0], false))
	one.end()
	two.end()
	require.True(t, account.TryTake(1<<20))
}

// TestMemoryOfEntries: sessions share the memory of their entries. Each has a part of its own, waits
// for more, and gives back what it does not need.
func TestMemoryOfEntries(t *testing.T) {
	require.GreaterOrEqual(t, entryMemory, int(unsafe.Sizeof(receiving{})))
	require.GreaterOrEqual(t, entryMemory, int(unsafe.Sizeof(folder{})))
	synctest.Test(t, func(t *testing.T) {
		server := NewAccount(6<<20, nil)
		client, other := NewAccount(4<<20, server), NewAccount(4<<20, server)
		one, two, three := newTable(client, nil), newTable(client, nil), newTable(other, nil)
		batch := entriesOf(1024, 1024) // 2 MiB
		take := func(x *table) error { return x.reserve(t.Context(), batch) }
		for _, x := range []*table{one, two, three} {
			require.NoError(t, take(x), "its own part")
		}
		require.NoError(t, take(one))
		require.NoError(t, take(one))
		require.EqualValues(t, 4<<20, one.memory.borrowed)
		began := time.Now()
		var busy *wire.Error
		require.ErrorAs(t, take(two), &busy, "the client has no more")
		require.Equal(t, wire.CodeBusy, busy.Code)
		require.Equal(t, memoryWithin, time.Since(began))
		two.end()
		require.NoError(t, take(three), "another client goes on")

		done := make(chan error)
		go func() { done <- take(three) }()
		synctest.Wait()
		for range 512 { // half of it is there, but three wants all
			one.remove(&receiving{entry: batch[0], held: 1024}, false)
		}
		synctest.Wait()
		select {
		case err := <-done:
			t.Error("the memory is not there yet", err)
		default:
		}
		one.end()
		require.NoError(t, <-done)
		require.Zero(t, one.memory.borrowed)
		require.EqualValues(t, 4<<20, three.memory.borrowed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, three.reserve(ctx, batch), errClosed)
		three.end()
		require.True(t, server.left.TryAcquire(6<<20), "all was given back")
	})
}

// TestFoldersHold: a folder that waits for its content counts until its metadata is set.
func TestFoldersHold(t *testing.T) {
	x := newTable(nil, nil)
	entry := wire.Entry{Kind: wire.Dir, Path: "d", Xattrs: []wire.Xattr{{Name: "user.a", Value: make([]byte, 60<<10)}}}
	require.NoError(t, x.start(false))
	require.NoError(t, x.reserve(t.Context(), []wire.Entry{entry}))
	e := &receiving{entry: entry, held: heldBy(&entry)}
	x.add(e)
	waits := &folder{entry: entry, held: e.held}
	x.enterFolder(waits)
	x.remove(e, false)
	require.Equal(t, heldBy(&entry), x.held)
	require.Equal(t, memoryOf(&entry), x.memory.used)
	x.leaveFolder(waits)
	require.Zero(t, x.held)
	require.Zero(t, x.memory.used)
}

// TestSizeOfEntries: each entry under way takes one of these, and the next class of sizes is 64 bytes
// larger.
func TestSizeOfEntries(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(sending{}), uintptr(512))
	require.LessOrEqual(t, unsafe.Sizeof(receiving{}), uintptr(640))
}
