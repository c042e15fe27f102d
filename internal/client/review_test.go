package client

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestReplacedFolderStaysUnread: a client that may only write puts a file in the place of a folder,
// and looks which names the server reports as removed.
func TestReplacedFolderStaysUnread(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write)
	defer s.stop()
	key := keyOfHome(t, enrol(t, s))
	for _, kind := range []wire.Kind{wire.File, wire.Symlink, wire.Fifo} {
		for _, most := range []int64{-1, 0, 5} {
			require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "inbox/sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "inbox/sub", marker), nil, 0o600))
			p := rawDial(t, s, key, wire.Hello{Intent: wire.Push, Share: "data", Paths: []string{""}, Target: wire.Target{MaxDelete: most}})
			entry := wire.Entry{Kind: kind, Path: "inbox", Mode: 0o600, BlockLog: wire.MinBlockLog}
			if kind == wire.Symlink {
				entry.Link = "x"
			}
			p.send(&wire.Manifest{}, &wire.Entries{Entries: []wire.Entry{entry}}, &wire.EndManifest{Count: 1})
			_ = p.until(finished)
			p.close()
			require.NotContains(t, p.got.String(), marker, "%v, %d", kind, most)
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "inbox")))
		}
	}
}

// TestUnfinishedSnapshotsStayUnread: a client that may only write continues a snapshot that somebody
// else began.
func TestUnfinishedSnapshotsStayUnread(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write)
	defer s.stop()
	key := keyOfHome(t, enrol(t, s))
	begun := filepath.Join(s.dir, "web/.fxfer-"+hoursAgo(5)+".snap")
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "web/.fxfer-snapshots"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "web/.fxfer-snapshots/owners"), []byte("ed25519:somebody\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(begun, marker), 0o700))
	for range 2 {
		p := rawDial(t, s, key, wire.Hello{
			Intent: wire.Store, Share: "data", Paths: []string{"web"}, Snapshot: hoursAgo(1),
			Target: wire.Target{MaxDelete: -1, Delete: true},
		})
		p.send(&wire.Manifest{Prune: true}, &wire.Entries{}, &wire.EndManifest{}, &wire.Prune{Folders: []string{"."}})
		answered := time.AfterFunc(5*time.Second, p.close)
		_ = p.until(func(m wire.Message) bool { _, ok := m.(*wire.Folder); return ok || finished(m) })
		answered.Stop()
		p.close()
		require.False(t, bytes.Contains(p.got.Bytes(), []byte(marker)))
	}
}
