//go:build unix

package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

// TestFailingProducers: a stream whose reader fails at any point never becomes a file, and never
// replaces one. A stream that ends well is complete.
func TestFailingProducers(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{Streams: 2})
	broken := errors.New("the producer failed")
	now := map[string][]byte{} // what the server has to have
	for n := range 16 {
		name := fmt.Sprint("f", random.IntN(4))
		data := make([]byte, random.IntN(2)*(1<<20)+random.IntN(3)-1+1<<random.IntN(20))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		var in io.Reader = bytes.NewReader(data)
		fails := random.IntN(2) == 0
		if fails {
			in = io.MultiReader(in, failingReader{broken})
		}
		_, err := c.SendStream(t.Context(), in, s.plain(t, name), Transfer{Target: Target{Sync: session.SyncNone}})
		if fails {
			require.ErrorContains(t, err, broken.Error(), "%d", n)
		} else {
			require.NoError(t, err, "%d", n)
			now[name] = data
		}
		got, err := os.ReadFile(filepath.Join(s.dir, name))
		require.Equal(t, now[name] == nil, errors.Is(err, os.ErrNotExist), "%d: %v", n, err)
		require.True(t, bytes.Equal(now[name], got), "%d: %s", n, name)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// TestSpecialTrees gets trees into folders that have pipes, sockets, links and folders where files
// shall go. Each file arrives as a file, or fails by name. Nothing outside of the folder changes.
func TestSpecialTrees(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{Streams: 2})
	for round := range 4 {
		at := fmt.Sprint("tree", round)
		dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
		require.NoError(t, os.WriteFile(outside, []byte("outside"), 0o600))
		want := map[string][]byte{}
		for range 1 + random.IntN(10) {
			name := fmt.Sprintf("d%d/f%d", random.IntN(2), random.IntN(9))
			data := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(2)*(2<<20)+random.IntN(3000))
			require.NoError(t, os.MkdirAll(filepath.Join(s.dir, at, filepath.Dir(name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, at, name), data, 0o600))
			want[name] = data
		}
		for name := range want {
			putSpecial(t, random.IntN(7), filepath.Join(dir, name), outside)
		}
		failed := map[string]bool{}
		u := s.plain(t, at)
		u.TrailingSlash = true
		_, err := c.Get(t.Context(), urls(u), dir+"/", Transfer{Target: Target{Sync: session.SyncNone}, File: func(f session.FileResult) {
			if f.Err != nil {
				failed[f.Path] = true
			}
		}})
		require.Equal(t, len(failed) > 0, err != nil, "%v: %v", err, failed)
		for name, data := range want {
			info, err := os.Lstat(filepath.Join(dir, name))
			if failed[name] {
				continue
			}
			require.NoError(t, err, name)
			require.True(t, info.Mode().IsRegular(), "%s is %v", name, info.Mode())
			got, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got), name)
		}
		text, err := os.ReadFile(outside)
		require.NoError(t, err)
		require.Equal(t, "outside", string(text))
	}
}

// putSpecial puts something into the place of a file.
func putSpecial(t *testing.T, kind int, at, outside string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	var err error
	switch kind {
	case 0:
		err = unix.Mkfifo(at, 0o600)
	case 1:
		err = os.Symlink(outside, at)
	case 2:
		err = os.Symlink("nowhere", at)
	case 3:
		err = os.MkdirAll(filepath.Join(at, "full"), 0o700)
	case 4:
		var l net.Listener
		if l, err = net.Listen("unix", at); err == nil {
			t.Cleanup(func() { _ = l.Close() })
		} else {
			err = nil // the path is too long for a socket
		}
	case 5:
		err = os.WriteFile(at, []byte("old"), 0o400)
	}
	require.NoError(t, err)
}
