package server

import (
	"testing"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestCountTakesMemory: a count of files with several names takes what it remembers from the memory
// of its client, ends when there is none, and gives it back.
func TestCountTakesMemory(t *testing.T) {
	t.Parallel()
	account := transfer.NewAccount(2*linksAtOnce*linkMemory, nil)
	counted := links{memory: account}
	for n := range uint64(2 * linksAtOnce) {
		again, err := counted.again(disk.Identity{Ino: n + 1, Dev: 1, Size: int64(n)})
		require.NoError(t, err)
		require.False(t, again)
	}
	again, err := counted.again(disk.Identity{Ino: 1, Dev: 1, Size: 7})
	require.NoError(t, err)
	require.True(t, again, "the size does not matter")
	again, err = counted.again(disk.Identity{Dev: 1})
	require.NoError(t, err)
	require.False(t, again, "a file system without numbers")
	_, err = counted.again(disk.Identity{Ino: 1, Dev: 2})
	var busy *wire.Error
	require.ErrorAs(t, err, &busy)
	require.Equal(t, wire.CodeBusy, busy.Code)
	require.False(t, account.TryTake(1))
	counted.forget()
	require.True(t, account.TryTake(2*linksAtOnce*linkMemory))
}
