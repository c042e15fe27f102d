package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// flawedSource has files. Those whose content ends with "!" cannot be read.
type flawedSource struct {
	files    map[string]string // what ends with a slash is a folder
	order    []string
	unlisted []string // folders
	mode     uint32   // of folders
}

func (s *flawedSource) Single() bool { return false }

func (s *flawedSource) Folders() []string { return []string{"."} }

func (s *flawedSource) Has(p string) (bool, error) { return true, nil }

func (s *flawedSource) Walk(_ context.Context, visit func(transfer.Item) error, failed func(string, error)) error {
	for _, name := range s.order {
		text, ok := s.files[name]
		if !ok {
			continue
		}
		item := transfer.Item{Entry: wire.Entry{Kind: wire.Dir, Path: strings.TrimSuffix(name, "/"), Mode: s.mode, ModTime: 1e18}}
		if item.Entry.Path == name {
			item.Entry = wire.Entry{Kind: wire.File, Path: name, Mode: 0o644, Size: int64(len(text)), ModTime: int64(len(text)) * 1e17, BlockLog: wire.MinBlockLog}
			item.Content = flawedContent(text)
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	for _, name := range s.unlisted {
		failed(name, &fs.PathError{Op: "read folder", Path: name, Err: syscall.EIO})
	}
	return nil
}

type flawedContent string

func (c flawedContent) Open() (transfer.File, error) {
	return flawedFile{bytes.NewReader([]byte(c))}, nil
}

type flawedFile struct{ *bytes.Reader }

func (flawedFile) Close() error { return nil }

func (flawedFile) Unchanged() error { return nil }

func (f flawedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.Reader.ReadAt(b, off)
	if bytes.Contains(b[:n], []byte("!")) {
		return 0, syscall.EIO
	}
	return n, err
}

// open sets the modes of folders so that they can be removed.
func open(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
}

// TestAllowFailed sends snapshots of sources that are unreadable in part.
func TestAllowFailed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 256)
	order := []string{"a", "b", "big", "gone", "d/", "d/x", "d/y", "d/old", "e/", "e/z", long}
	big := strings.Repeat("0123456789abcdef", 100<<10)
	for _, test := range []struct {
		name     string
		before   map[string]string // sent first, by a session that publishes nothing
		files    map[string]string
		unlisted []string
		mode     uint32
		allowed  int64
		failed   int64             // 0 is that it stays invisible
		want     map[string]string // in the snapshot
		lacking  string
	}{
		{name: "none allowed", files: map[string]string{"a": "1", "b": "2!"}},
		{name: "one allowed", files: map[string]string{"a": "1", "b": "2!"}, allowed: 1, failed: 1, want: map[string]string{"a": "1"}, lacking: "b"},
		{name: "more than allowed", files: map[string]string{"a": "1", "b": "!", "d/": "", "d/x": "!"}, allowed: 1},
		{name: "nothing else", files: map[string]string{"b": "2!"}, allowed: 9},
		{name: "half of a large file", files: map[string]string{"a": "1", "big": big + "!"}, allowed: 1, failed: 1, want: map[string]string{"a": "1"}, lacking: "big"},
		{
			name: "an older version stays away", before: map[string]string{"a": "1", "b": "2", "gone": "g!", "big": "!", "d/": "", "d/x": "3", "d/old": "4", "e/": "", "e/z": "5"},
			files: map[string]string{"a": "1", "b": "22!", "d/": "", "d/x": "33!", "d/y": "6"}, allowed: 2, failed: 2,
			want: map[string]string{"a": "1", "d/y": "6"}, lacking: "b d/x",
		},
		{
			name: "in closed folders", before: map[string]string{"a": "1", "d/": "", "d/x": "3", "d/old": "4", "gone": "!"}, mode: 0o500,
			files: map[string]string{"a": "1", "d/": "", "d/x": "33!", "d/y": "6"}, allowed: 2, failed: 1, want: map[string]string{"a": "1", "d/y": "6"}, lacking: "d/x",
		},
		{name: "a folder", files: map[string]string{"a": "1", "d/": ""}, unlisted: []string{"d"}, allowed: 1, failed: 1, want: map[string]string{"a": "1"}, lacking: ""},
		{name: "a name", files: map[string]string{"a": "1", long: "2"}, allowed: 1, failed: 1, want: map[string]string{"a": "1"}, lacking: long},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, identity.Read|identity.Write)
			defer s.stop()
			t.Cleanup(func() { open(s.dir) })
			home := t.TempDir()
			u := s.invited(t)
			u.Path = "p"
			send := func(n int, allowed int64, source *flawedSource) (*session.Report, error) {
				source.order, source.mode = order, cmp.Or(test.mode, 0o700)
				call := Transfer{Target: Target{Snapshot: night(n), AllowFailed: allowed}}
				defer func() { u = s.plain(t, "p") }()
				return newClient(t, home, Options{}).send(t.Context(), &push{args: []string{"x"}, source: source, once: true}, u, &call)
			}
			_, err := send(0, 0, &flawedSource{files: map[string]string{"a": "1", "b": "before", "d/": "", "d/x": "before"}})
			require.NoError(t, err)
			if test.before != nil {
				_, err := send(1, 0, &flawedSource{files: test.before})
				require.Equal(t, session.KindPartial, session.KindOf(err), err)
			}
			r, err := send(1, test.allowed, &flawedSource{files: test.files, unlisted: test.unlisted})
			require.Error(t, err)
			at := filepath.Join(s.dir, "p", night(1))
			if test.failed == 0 {
				require.Empty(t, r.Snapshot)
				require.NoDirExists(t, at)
				return
			}
			require.Equal(t, session.KindPartial, session.KindOf(err), err)
			require.ErrorContains(t, err, "is there, without")
			require.Equal(t, night(1), r.Snapshot)
			got := map[string]string{}
			if runtime.GOOS != "windows" && test.mode != 0 {
				info, err := os.Stat(filepath.Join(at, "d"))
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(test.mode), info.Mode().Perm())
				require.Equal(t, time.Unix(1e9, 0), info.ModTime())
			}
			require.NoError(t, filepath.WalkDir(at, func(p string, d fs.DirEntry, err error) error {
				if d.IsDir() && err == nil {
					return nil
				}
				name, _ := filepath.Rel(at, p)
				text, readErr := os.ReadFile(p)
				got[filepath.ToSlash(name)] = string(text)
				return errors.Join(err, readErr)
			}))
			require.Equal(t, test.want, got)

			c := newClient(t, home, Options{})
			all, err := c.Snapshots(t.Context(), u)
			require.NoError(t, err)
			require.Len(t, all, 2)
			require.Zero(t, all[0].Failed)
			require.Equal(t, test.failed, all[1].Failed)
			require.False(t, all[1].Partial)
			var lacking []string
			sum, err := c.Scrub(t.Context(), u, night(1), Verification{Difference: func(d Difference) {
				require.Equal(t, session.Lacking, d.Finding, d)
				lacking = append(lacking, d.Path)
			}})
			require.NoError(t, err)
			require.Equal(t, test.failed, sum.Lacking)
			require.Equal(t, int64(len(test.want)), sum.Same)
			require.Equal(t, test.lacking, strings.Join(lacking, " "))

			_, err = send(1, test.allowed, &flawedSource{files: test.files})
			require.ErrorIs(t, err, session.ErrSnapshotExists)
			r, err = send(2, 5, &flawedSource{files: map[string]string{"a": "1", "b": "new", "d/": "", "d/x": "now"}})
			require.NoError(t, err)
			require.Equal(t, night(2), r.Snapshot)
			sum, err = c.Scrub(t.Context(), u, night(2), Verification{Difference: func(d Difference) { t.Error(d) }})
			require.NoError(t, err)
			require.Equal(t, int64(3), sum.Same)
		})
	}
}

// AllowFailed does not cover failures of more than an entry: a source that cannot be listed, a disk,
// a digest.
func TestNotAllowed(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("needs a folder that can't be listed")
	}
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	dir := t.TempDir()
	for _, name := range []string{"a", "b/f"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "b"), 0o300))
	defer open(dir)
	u := s.invited(t)
	u.Path = "p"
	c := newClient(t, t.TempDir(), Options{})
	call := Transfer{Target: Target{Snapshot: night(1), AllowFailed: 9}}
	r, err := c.Send(t.Context(), []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}, u, call)
	require.Equal(t, session.KindPartial, session.KindOf(err), err)
	require.Empty(t, r.Snapshot)
	r, err = c.Send(t.Context(), []string{dir + "/"}, s.plain(t, "p"), call)
	require.Equal(t, session.KindPartial, session.KindOf(err), err)
	require.Equal(t, night(1), r.Snapshot)
}
