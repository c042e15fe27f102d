package client

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// night returns the name of a snapshot.
func night(n int) string {
	return SnapshotName(time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, n))
}

func inode(t *testing.T, name string) os.FileInfo {
	t.Helper()
	info, err := os.Lstat(name)
	require.NoError(t, err)
	return info
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	put("same", "same")
	put("sub/changed", "before")
	put("sub/gone", "gone")
	put("mode", "mode")
	require.NoError(t, os.Link(filepath.Join(dir, "same"), filepath.Join(dir, "same2")))
	require.NoError(t, os.Chmod(dir, 0o750))
	sessiontest.RandomFile(t, filepath.Join(dir, "big"), 3<<20)
	u := s.invited(t)
	u.Path = "hosts/web"
	send := func(n int) (*session.Report, error) {
		r, err := newClient(t, home, Options{}).Send(t.Context(), []string{dir + "/"}, u, Transfer{Target: Target{Snapshot: night(n)}})
		u = s.plain(t, "hosts/web")
		return r, err
	}
	r, err := send(0)
	require.NoError(t, err)
	require.Equal(t, night(0), r.Snapshot)
	put("sub/changed", "after!")
	require.NoError(t, os.Remove(filepath.Join(dir, "sub/gone")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "mode"), 0o600))
	r, err = send(1)
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Sent)

	at := func(n int, name string) string { return filepath.Join(s.dir, "hosts/web", night(n), name) }
	require.True(t, os.SameFile(inode(t, at(0, "same")), inode(t, at(1, "same"))))
	require.True(t, os.SameFile(inode(t, at(1, "same")), inode(t, at(1, "same2"))))
	require.True(t, os.SameFile(inode(t, at(0, "big")), inode(t, at(1, "big"))))
	require.False(t, os.SameFile(inode(t, at(0, "mode")), inode(t, at(1, "mode"))))
	require.Equal(t, os.FileMode(0o644), inode(t, at(0, "mode")).Mode().Perm())
	require.Equal(t, os.FileMode(0o600), inode(t, at(1, "mode")).Mode().Perm())
	require.Equal(t, os.FileMode(0o750), inode(t, at(1, ".")).Mode().Perm())
	require.FileExists(t, at(0, "sub/gone"))
	require.NoFileExists(t, at(1, "sub/gone"))
	text, err := os.ReadFile(at(0, "sub/changed"))
	require.NoError(t, err)
	require.Equal(t, "before", string(text))
	link, err := os.Readlink(filepath.Join(s.dir, "hosts/web/latest"))
	require.NoError(t, err)
	require.Equal(t, night(1), link)

	_, err = send(1)
	require.ErrorIs(t, err, session.ErrSnapshotExists)
	for n := 2; n < 5; n++ {
		r, err = send(n)
		require.NoError(t, err)
		require.Zero(t, r.Sent)
	}
	c := newClient(t, home, Options{})
	all, err := c.Snapshots(t.Context(), u)
	require.NoError(t, err)
	require.Len(t, all, 5)
	_, err = c.PruneSnapshots(t.Context(), u, []string{night(9)})
	require.NoError(t, err)
	removed, err := c.PruneSnapshots(t.Context(), u, []string{night(1), night(3)})
	require.NoError(t, err)
	require.Equal(t, []string{night(0), night(2)}, removed)
	all, err = c.Snapshots(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, []string{night(1), night(3), night(4)}, []string{all[0].Name, all[1].Name, all[2].Name})

	from := s.plain(t, "hosts/web/"+night(1))
	from.TrailingSlash = true
	back := t.TempDir()
	_, err = c.Get(t.Context(), []session.URL{from}, back, Transfer{})
	require.NoError(t, err)
	text, err = os.ReadFile(filepath.Join(back, "sub/changed"))
	require.NoError(t, err)
	require.Equal(t, "after!", string(text))
}

func TestScrub(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b", "odd\n\\name", "c  d"} {
		sessiontest.RandomFile(t, filepath.Join(dir, name), 70_000)
	}
	require.NoError(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "a2")))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	_, err = sparse.WriteAt([]byte("x"), 5<<20)
	require.NoError(t, err)
	require.NoError(t, sparse.Close())
	u := s.invited(t)
	u.Path = "p"
	for n := range 2 {
		_, err := newClient(t, home, Options{}).Send(t.Context(), []string{dir + "/"}, u, Transfer{Target: Target{Snapshot: night(n)}})
		require.NoError(t, err)
		u = s.plain(t, "p")
		sessiontest.RandomFile(t, filepath.Join(dir, "b"), 80_000)
	}
	c := newClient(t, home, Options{})
	for n := range 2 {
		sum, err := c.Scrub(t.Context(), u, night(n), Verification{Difference: func(d Difference) { t.Error(d) }})
		require.NoError(t, err)
		require.Equal(t, int64(6), sum.Same)
		require.Equal(t, int64(6), sum.Files)
	}
	at := func(name string) string { return filepath.Join(s.dir, "p", night(1), name) }
	require.NoError(t, os.WriteFile(at("b"), []byte("rot"), 0o600))
	require.NoError(t, os.WriteFile(at("new"), []byte("?"), 0o600))
	require.NoError(t, os.Remove(at("c  d")))
	found := map[string]session.Finding{}
	_, err = c.Scrub(t.Context(), u, night(1), Verification{Difference: func(d Difference) { found[d.Path] = d.Finding }})
	require.Equal(t, session.KindIntegrity, session.KindOf(err))
	require.Equal(t, map[string]session.Finding{"b": session.Different, "c  d": session.Missing, "new": session.Extra}, found)
	_, err = c.Scrub(t.Context(), u, night(5), Verification{})
	require.Error(t, err)
	_, err = c.Scrub(t.Context(), u, night(0), Verification{Difference: func(d Difference) { t.Error(d) }})
	require.NoError(t, err)
}

// TestManyDigests makes snapshots, most of which store only the digests that differ from those of
// another one, and removes some.
func TestManyDigests(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	home, dir := t.TempDir(), t.TempDir()
	const files = 1200
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%04d", i)) }
	for i := range files {
		require.NoError(t, os.WriteFile(name(i), []byte(name(i)), 0o600))
	}
	u := s.invited(t)
	u.Path = "p"
	for n := range 4 {
		_, err := newClient(t, home, Options{}).Send(t.Context(), []string{dir + "/"}, u, Transfer{Target: Target{Snapshot: night(n)}})
		require.NoError(t, err)
		u = s.plain(t, "p")
		for i := range 3 {
			require.NoError(t, os.WriteFile(name(10*n+i), fmt.Append(nil, "changed by night ", n), 0o600))
			require.NoError(t, os.Remove(name(100+10*n+i)))
			require.NoError(t, os.WriteFile(name(files+10*n+i), fmt.Append(nil, "new of night ", n), 0o600))
		}
	}
	c := newClient(t, home, Options{})
	root, err := os.OpenRoot(filepath.Join(s.dir, "p", ".fxfer-snapshots"))
	require.NoError(t, err)
	defer root.Close()
	verify := func(nights ...int) {
		for _, n := range nights {
			found := 0
			require.NoError(t, snapshot.Digests(root, night(n), func(path string, digest [32]byte) error {
				found++
				text, err := os.ReadFile(filepath.Join(s.dir, "p", night(n), path))
				require.NoError(t, err)
				require.Equal(t, blake3.Sum256(text), digest, path)
				return nil
			}))
			require.Equal(t, files, found)
		}
	}
	verify(0, 1, 2, 3)
	state := func(file string) string { return filepath.Join(s.dir, "p", ".fxfer-snapshots", file) }
	require.True(t, os.SameFile(inode(t, state(night(0)+".b3")), inode(t, state(night(3)+".base"))))
	require.Less(t, inode(t, state(night(3)+".diff")).Size(), int64(5000))
	removed, err := c.PruneSnapshots(t.Context(), u, []string{night(1), night(3)})
	require.NoError(t, err)
	require.Equal(t, []string{night(0), night(2)}, removed)
	verify(1, 3)
}

// TestDeltaOverFile sends and gets changed versions of a file. Only the change travels, unless the
// client has no right to read the old version.
func TestDeltaOverFile(t *testing.T) {
	t.Parallel()
	for rights, delta := range map[identity.Rights]bool{identity.Read | identity.Write: true, identity.Write: false} {
		s := serve(t, rights)
		home, dir := t.TempDir(), t.TempDir()
		name := filepath.Join(dir, "image")
		data := sessiontest.RandomFile(t, name, 5<<20)
		u := s.invited(t)
		for n := range 2 {
			data[3<<20] += byte(n)
			require.NoError(t, os.WriteFile(name, data, 0o644))
			require.NoError(t, os.Chtimes(name, time.Time{}, time.Unix(1e9+int64(n), 0)))
			r, err := newClient(t, home, Options{}).Send(t.Context(), []string{name}, u, Transfer{})
			require.NoError(t, err)
			require.Equal(t, int64(len(data)), r.Written+r.Copied)
			if n > 0 {
				require.Equal(t, delta, r.Copied > int64(len(data))*9/10, "%d", r.Copied)
			}
			u = s.plain(t, "")
			got, err := os.ReadFile(filepath.Join(s.dir, "image"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, got))
		}
		if delta {
			back := filepath.Join(t.TempDir(), "image")
			data[1<<20]++
			require.NoError(t, os.WriteFile(back, data, 0o644))
			r, err := newClient(t, home, Options{}).Get(t.Context(), []session.URL{s.plain(t, "image")}, back, Transfer{Target: Target{Delta: DeltaFixed}})
			require.NoError(t, err)
			require.Greater(t, r.Copied, int64(len(data))*9/10)
			require.Less(t, r.Written, int64(100_000))
		}
		s.stop()
	}
}

// TestDeltaOfSmallFile: a small file has a delta where the user asked for a kind, on a near path, too. What
// auto does there depends on the RTT that a loaded machine shows, so TestNearDelta has it.
func TestDeltaOfSmallFile(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	home, dir := t.TempDir(), t.TempDir()
	name := filepath.Join(dir, "image")
	data := sessiontest.RandomFile(t, name, 600_000)
	_, err := newClient(t, home, Options{}).Send(t.Context(), []string{name}, s.invited(t), Transfer{})
	require.NoError(t, err)
	edits := int64(0)
	change := func() {
		edits++
		data[300_000]++
		require.NoError(t, os.WriteFile(name, data, 0o644))
		require.NoError(t, os.Chtimes(name, time.Time{}, time.Unix(1e9+edits, 0)))
	}
	for _, c := range []struct {
		how   Delta
		delta bool
	}{{DeltaFixed, true}, {DeltaChunks, true}, {DeltaNone, false}} {
		opt := Transfer{Target: Target{Delta: c.how}}
		change()
		r, err := newClient(t, home, Options{}).Send(t.Context(), []string{name}, s.plain(t, ""), opt)
		require.NoError(t, err)
		require.Equal(t, c.delta, r.Copied > 500_000, "send, %s: %d of %d", c.how, r.Copied, len(data))
		change()
		r, err = newClient(t, home, Options{}).Get(t.Context(), []session.URL{s.plain(t, "image")}, name, opt)
		require.NoError(t, err)
		require.Equal(t, c.delta, r.Copied > 500_000, "get, %s: %d of %d", c.how, r.Copied, len(data))
	}
	s.stop()
}
