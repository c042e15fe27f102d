package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestGrave(t *testing.T) {
	require.True(t, isGrave(errors.New("who knows")))
	light := map[wire.Code]bool{wire.CodeSourceDisk: true, wire.CodeNotFound: true, wire.CodeChanged: true, wire.CodePath: true, wire.CodeUnsupported: true}
	for _, code := range wire.Codes() {
		require.Equal(t, !light[code], isGrave(&wire.Error{Code: code}), code)
	}
}

// A hostile sender sends a block of a file that is being copied from the previous snapshot. There
// is no partial file to write it to.
func TestBlockOfReusedFile(t *testing.T) {
	previous := t.TempDir()
	const size = 64 << 20 // long enough for the block to arrive meanwhile
	name := filepath.Join(previous, "a")
	require.NoError(t, os.WriteFile(name, nil, 0o644))
	require.NoError(t, os.Truncate(name, size))
	x := aFile("a", size) // of another mode, so that it is copied and not linked
	require.NoError(t, os.Chtimes(name, time.Time{}, x.Time()))
	opt := ReceiverOptions{Snapshot: &Snapshot{Previous: openTree(t, previous)}}
	o := faceSender(t, openTree(t, t.TempDir()), opt, func(p *rawPeer) {
		sent := make(chan struct{})
		go func() { // it waits for its entry
			defer close(sent)
			block := make([]byte, smallBlock)
			p.block(wire.BlockHeader{Block: 1, Digest: digestOfBlock(1, block)}, block)
		}()
		p.send(&wire.Manifest{}, entries(0, x))
		p.wait()
		<-sent
	})
	o.requireRefused(t)
}
