package client

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

// TestFiles works on files over each transport.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, transport := range []session.Transport{session.TransportTCP, session.TransportQUIC} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			s := serve(t, r|w)
			defer s.stop()
			in := func(p string) string { return filepath.Join(s.dir, p) }
			large := sessiontest.RandomFile(t, in("large"), 1<<20+77)
			require.NoError(t, os.MkdirAll(in("d/e"), 0o755))
			require.NoError(t, os.WriteFile(in("d/one"), []byte("1"), 0o640))
			require.NoError(t, os.Link(in("d/one"), in("d/two")))
			f, err := newClient(t, t.TempDir(), Options{Transport: transport}).Files(t.Context(), s.invited(t))
			require.NoError(t, err)
			defer f.Close()

			e, err := f.Stat("d/one")
			require.NoError(t, err)
			require.Equal(t, []any{"d/one", "file", int64(1), uint32(0o640)}, []any{e.Path, e.Kind, e.Bytes, e.Mode})
			var got bytes.Buffer
			require.NoError(t, f.Read("large", &got))
			require.Equal(t, large, got.Bytes())
			u, err := f.Usage("d")
			require.NoError(t, err)
			require.Equal(t, Usage{Bytes: 1, Entries: 3}, u, "one file with two names, and a folder")
			all, err := f.List("", true)
			require.NoError(t, err)
			require.Len(t, all, 5)
			fits, err := f.Glob("", []string{"*", "[o-t]*"})
			require.NoError(t, err)
			require.Equal(t, []string{"d/one", "d/two"}, []string{fits[0].Path, fits[1].Path})

			require.ErrorIs(t, f.Mkdir("d", false), fs.ErrExist)
			require.NoError(t, f.Mkdir("n/m", true))
			require.ErrorIs(t, f.Move("d", "x/y", false), fs.ErrNotExist)
			require.NoError(t, f.Move("d", "n/d", false))
			_, err = f.Stat("d")
			require.ErrorIs(t, err, fs.ErrNotExist)
			var failed []string
			var gone []string
			each := func(p string, err error) {
				if err != nil {
					failed = append(failed, p)
					return
				}
				gone = append(gone, p)
			}
			require.NoError(t, f.MoveInto([]string{"large", "none"}, "n", false, each))
			var would []string
			require.NoError(t, f.WouldRemove([]string{"n/d", "n/large"}, true, func(e Entry) { would = append(would, e.Path) }, each))
			require.ElementsMatch(t, []string{"n/d", "n/d/e", "n/d/one", "n/d/two", "n/large"}, would)
			require.NoError(t, f.Remove([]string{"n/d", "n/m", "n/none"}, false, each))
			require.Equal(t, []string{"none", "n/d", "n/none"}, failed)
			require.Equal(t, []string{"large", "n/d", "n/large", "n/m"}, gone)
			many := make([]string, 2500) // more than a message has
			for i := range many {
				many[i] = "n/large"
			}
			gone, failed = nil, nil
			require.NoError(t, f.Remove(many, true, each))
			require.Len(t, gone, 1)
			require.Len(t, failed, len(many)-1)
			require.NoError(t, f.Err())
		})
	}
}

// TestFilesQuota: folders count, and what is removed makes room.
func TestFilesQuota(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	var err error
	s.Server, err = server.New(server.Options{
		Home: t.TempDir(), Listen: "127.0.0.1:0",
		Shares: []server.Share{{Name: "data", Dir: s.dir, Rights: r | w, QuotaFiles: 2}},
	})
	require.NoError(t, err)
	defer sessiontest.Run(t, s.Server)()
	f, err := newClient(t, t.TempDir(), Options{}).Files(t.Context(), s.invited(t))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Mkdir("a/b", true))
	require.ErrorContains(t, f.Mkdir("c", false), "quota")
	require.NoDirExists(t, filepath.Join(s.dir, "c"))
	require.NoError(t, f.Mkdir("a/b", true), "nothing is made")
	require.NoError(t, f.Remove([]string{"a"}, true, func(_ string, err error) { require.NoError(t, err) }))
	require.NoError(t, f.Mkdir("c", false))
}

// TestFilesRevoked: a session of work ends when its client loses its rights.
func TestFilesRevoked(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	home, mine := t.TempDir(), t.TempDir()
	pin := identity.PinOfPrivate(keyOfHome(t, mine))
	list := filepath.Join(home, "authorized_clients")
	require.NoError(t, os.WriteFile(list, []byte(pin+" *=rw\n"), 0o600))
	var err error
	s.Server, err = server.New(server.Options{
		Home: home, Listen: "127.0.0.1:0", Shares: []server.Share{{Name: "data", Dir: s.dir, Rights: r | w}},
	})
	require.NoError(t, err)
	defer sessiontest.Run(t, s.Server)()
	f, err := newClient(t, mine, Options{}).Files(t.Context(), s.invited(t))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Mkdir("d", false))
	require.NoError(t, os.WriteFile(list, nil, 0o600))
	require.Eventually(t, func() bool {
		err := f.Mkdir("d", true)
		return session.KindOf(err) == session.KindTrust && f.Err() != nil
	}, 30*time.Second, 10*time.Millisecond)
}
