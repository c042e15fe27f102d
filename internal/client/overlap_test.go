package client

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestOverlap: sources have entries of the same names. The first counts, and each other one that
// differs is reported. Folders are joined, and keep the time of the first.
func TestOverlap(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serveWith(t, server.Options{MaxSessionsPerClient: 64}, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{Streams: 2})
	for round := range 6 {
		in := path.Join(s.dir, fmt.Sprint("in", round))
		names := drawSources(t, random, in)
		t.Run(fmt.Sprint("send ", names), func(t *testing.T) {
			target := s.plain(t, fmt.Sprint("sent", round))
			target.TrailingSlash = true
			var sources []string
			for _, name := range names {
				sources = append(sources, in+"/"+name)
			}
			want, lost := joined(t, in, names)
			checkOverlap(t, path.Join(s.dir, target.Path), want, lost, func(dry bool) (*session.Report, error) {
				return c.Send(t.Context(), sources, target, Transfer{Target: Target{DryRun: dry, Sync: session.SyncNone}})
			})
		})
		t.Run(fmt.Sprint("get ", names), func(t *testing.T) {
			target := t.TempDir() + "/got/"
			var sources []session.URL
			for _, name := range names {
				u := s.plain(t, fmt.Sprint("in", round)+"/"+strings.TrimSuffix(name, "/"))
				u.TrailingSlash = strings.HasSuffix(name, "/")
				sources = append(sources, u)
			}
			want, lost := joined(t, in, names)
			checkOverlap(t, target, want, lost, func(dry bool) (*session.Report, error) {
				return c.Get(t.Context(), sources, target, Transfer{Target: Target{DryRun: dry, Sync: session.SyncNone}})
			})
		})
	}
}

// checkOverlap transfers sources, first as a dry run.
func checkOverlap(t *testing.T, target string, want map[string]string, lost []string, run func(dry bool) (*session.Report, error)) {
	for _, dry := range []bool{true, false} {
		report, err := run(dry)
		if len(lost) > 0 {
			require.Equal(t, session.KindPartial, session.KindOf(err), "%v", err)
		} else {
			require.NoError(t, err)
		}
		require.Len(t, report.Failures, len(lost), "%v", report.Failures)
		for _, f := range report.Failures {
			named := func(p string) bool { return strings.Contains(f.Failure().Error(), p+": ") }
			require.True(t, slices.ContainsFunc(lost, named), "%v", f.Failure())
			var coded *wire.Error
			require.True(t, errors.As(f.Err, &coded) && coded.Code == wire.CodeTaken)
		}
		if dry {
			require.Equal(t, int64(len(want)), report.Plan.Create)
			require.NoDirExists(t, target)
		}
	}
	got := treeOf(t, target)
	delete(got, ".") // entries of other sources change its time
	delete(want, ".")
	require.Equal(t, want, got)
}

// drawSources makes two to four sources below a folder. Some are folders of the same name, some
// stand for their contents, and some are files.
func drawSources(t *testing.T, random *rand.Rand, in string) (names []string) {
	var files []string
	for i := range 2 + random.IntN(3) {
		name := fmt.Sprintf("%d/%c", i, 'a'+random.IntN(2))
		top := path.Join(in, name)
		require.NoError(t, os.MkdirAll(path.Dir(top), 0o755))
		if random.Float64() < 0.2 {
			files = append(files, drawFile(t, random, top, files))
		} else {
			name += []string{"", "/"}[random.IntN(2)]
			for range random.IntN(8) {
				p := path.Join(top, fmt.Sprintf("%c", 'a'+random.IntN(3)), []string{"", "a", "b/a"}[random.IntN(3)])
				if os.MkdirAll(path.Dir(p), 0o755) == nil {
					files = append(files, drawFile(t, random, p, files))
				}
			}
			require.NoError(t, os.MkdirAll(top, 0o755))
		}
		names = append(names, name)
	}
	for i, name := range names { // folders last, so that nothing changes their times
		require.NoError(t, filepath.WalkDir(path.Join(in, name), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				at := time.Unix(1e9+int64(i), 0)
				err = os.Chtimes(p, at, at)
			}
			return err
		}))
	}
	return names
}

// drawFile makes an entry that is no folder, if nothing has its name: now and then another name of a
// file of the same or another source.
func drawFile(t *testing.T, random *rand.Rand, p string, files []string) string {
	if _, err := os.Lstat(p); err == nil {
		return p
	}
	switch x := random.Float64(); {
	case x < 0.1 && len(files) > 0 && os.Link(files[random.IntN(len(files))], p) == nil: // fails for a folder
	case x < 0.2:
		require.NoError(t, os.Symlink(p, p))
	default:
		size := []int{0, 5, 1<<20 + 1}[random.IntN(3)]
		require.NoError(t, os.WriteFile(p, []byte(p+strings.Repeat(" ", size)), 0o644))
	}
	return p
}

// joined is a naive model: what a transfer of the sources leaves at its target, and the paths there
// that several have.
func joined(t *testing.T, in string, names []string) (want map[string]string, lost []string) {
	want = map[string]string{}
	first := map[string]string{} // by path at the target
	for _, name := range names {
		top := path.Join(in, name)
		as := ""
		if !strings.HasSuffix(name, "/") {
			as = path.Base(name)
		}
		require.NoError(t, filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			rest, err := filepath.Rel(top, p)
			require.NoError(t, err)
			at := path.Join(as, rest)
			before, have := first[at]
			mine, err := os.Lstat(p)
			require.NoError(t, err)
			if !have {
				first[at], want[at] = p, describeFile(t, p)
				return nil
			}
			other, err := os.Lstat(before)
			require.NoError(t, err)
			switch {
			case mine.IsDir() && other.IsDir(), os.SameFile(mine, other):
				return nil
			case mine.IsDir():
				err = fs.SkipDir
			}
			lost = append(lost, at)
			return err
		}))
	}
	return want, lost
}

// treeOf describes each entry of a tree.
func treeOf(t *testing.T, dir string) map[string]string {
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, p)
		got[rel] = describeFile(t, p)
		return err
	}))
	return got
}

func describeFile(t *testing.T, p string) string {
	info, err := os.Lstat(p)
	require.NoError(t, err)
	switch {
	case info.IsDir():
		return "folder " + info.ModTime().UTC().String()
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(p)
		require.NoError(t, err)
		return "link to " + to
	}
	data, err := os.ReadFile(p)
	require.NoError(t, err)
	return string(data)
}

// TestListed sends what a list names: folders, entries below them before and after, and some twice.
// Each entry goes once.
func TestListed(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{Streams: 3})
	in := t.TempDir()
	paths := []string{"d", "d/e", "d/e/g", "x", "."}
	for _, dir := range paths[:4] {
		require.NoError(t, os.MkdirAll(path.Join(in, dir), 0o700))
		sessiontest.RandomFile(t, path.Join(in, dir, "big"), 1<<20+random.IntN(1<<20)) // takes several streams
		paths = append(paths, dir+"/big")
	}
	for round := range 4 {
		var list []string
		for range 2 + random.IntN(12) {
			list = append(list, paths[random.IntN(len(paths))])
		}
		want := map[string]bool{}
		for _, p := range list {
			require.NoError(t, filepath.WalkDir(path.Join(in, p), func(at string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					want[strings.TrimPrefix(at, in+"/")] = true
				}
				return err
			}))
		}
		target := s.plain(t, fmt.Sprint("listed", round))
		target.TrailingSlash = true
		files := func(yield func(string, error) bool) {
			for _, p := range list {
				if !yield(p, nil) {
					return
				}
			}
		}
		report, err := c.Send(t.Context(), []string{in + "/"}, target, Transfer{Selection: Selection{Files: files}})
		require.NoError(t, err, list)
		got := map[string]bool{}
		require.NoError(t, filepath.WalkDir(path.Join(s.dir, target.Path), func(at string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				got[strings.TrimPrefix(at, path.Join(s.dir, target.Path)+"/")] = true
			}
			return err
		}))
		require.Equal(t, want, got, list)
		require.EqualValues(t, len(want), report.Sent, list)
	}
}

// TestIntact sends only the files of a list that are what they were, and no folder. A file that
// changes after it was listed fails.
func TestIntact(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{})
	in := t.TempDir()
	require.NoError(t, os.Mkdir(path.Join(in, "folder"), 0o700))
	for _, p := range []string{"same", "small", "large", "left out", "folder/below"} {
		sessiontest.RandomFile(t, path.Join(in, p), 3<<20)
	}
	sessiontest.RandomFile(t, path.Join(in, "small"), 3)
	send := func(names ...string) (*session.Report, error) {
		files := func(yield func(string, error) bool) {
			for _, p := range names {
				if !yield(p, nil) {
					return
				}
			}
		}
		intact := func(p string) bool {
			if p == "small" || p == "large" {
				require.NoError(t, os.WriteFile(path.Join(in, p), []byte("torn"), 0o600))
			}
			return p != "left out"
		}
		target := s.plain(t, "in")
		target.TrailingSlash = true
		return c.Send(t.Context(), []string{in + "/"}, target, Transfer{Selection: Selection{Files: files, Intact: intact}})
	}
	report, err := send("same", "small", "large", "left out", "folder")
	require.Equal(t, session.KindPartial, session.KindOf(err), "%v", err)
	require.True(t, report.Complete)
	require.EqualValues(t, 2, report.Failed)
	entries, err := os.ReadDir(path.Join(s.dir, "in"))
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, e.Name() == "same" || strings.HasPrefix(e.Name(), ".fxfer-"), e.Name())
	}
	report, err = send("small")
	require.NotEqual(t, session.KindPartial, session.KindOf(err), "%v", err)
	require.True(t, report.Complete, "although its only file failed")
}
