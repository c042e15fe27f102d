package client

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// rawSource announces whatever a hostile client likes.
type rawSource struct {
	entries []wire.Entry
	folders []string // to be pruned
	content []byte
}

func (s *rawSource) Single() bool { return false }

func (s *rawSource) Folders() []string { return s.folders }

func (s *rawSource) Has(string) (bool, error) { return false, nil }

func (s *rawSource) Walk(_ context.Context, visit func(transfer.Item) error, _ func(string, error)) error {
	for _, e := range s.entries {
		item := transfer.Item{Entry: e}
		if e.Kind == wire.File {
			item.Entry.Size, item.Entry.BlockLog = int64(len(s.content)), wire.MinBlockLog
			item.Content = rawContent(s.content)
		}
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

type rawContent []byte

func (c rawContent) Open() (transfer.File, error) { return rawFile{bytes.NewReader(c)}, nil }

type rawFile struct{ *bytes.Reader }

func (rawFile) Close() error { return nil }

func (rawFile) Unchanged() error { return nil }

// fingerprint describes everything below a folder: names, modes, times and content.
func fingerprint(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(data)
		}
		fmt.Fprintf(&b, "%s %v %v %q\n", p, info.Mode(), info.ModTime().UnixNano(), text)
		return nil
	}))
	return b.String()
}

// TestAppendOnly: a client with the right to append cannot change or remove what it and others have
// appended before, whatever it tries.
func TestAppendOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and other tests have its goroutines as well")
	}
	if runtime.GOOS == "windows" {
		t.Skip("symlinks take a right")
	}
	t.Parallel()
	s := serveWith(t, server.Options{MaxHandshakes: 1e6, MaxHandshakesPerAddress: 1e6, MaxConnections: 4096, MaxConnectionsPerAddress: 4096}, identity.Append)
	defer s.stop()
	mine, other := t.TempDir(), t.TempDir()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	old := time.Unix(1_600_000_000, 0)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	write("f", "precious")
	write("sub/g", "also")
	write("big", strings.Repeat("0123456789abcdef", 40<<10))
	past := func(hours int) string { return SnapshotName(time.Now().Add(time.Duration(hours) * time.Hour)) }
	first, second := past(-200), past(-100)
	send := func(home, series, name string, from ...string) (*session.Report, error) {
		if from == nil {
			from = []string{dir + "/"}
		}
		return newClient(t, home, Options{}).Send(t.Context(), from, s.plain(t, series), Transfer{Target: Target{Snapshot: name}})
	}
	for _, home := range []string{mine, other} {
		u := s.invited(t)
		u.Share = ""
		_, err := newClient(t, home, Options{}).List(t.Context(), u) // enrols
		require.NoError(t, err)
	}
	for _, x := range []struct{ home, series, name string }{{mine, "web", first}, {mine, "web", second}, {other, "other", first}} {
		_, err := send(x.home, x.series, x.name)
		require.NoError(t, err)
	}

	c := newClient(t, mine, Options{})
	sendTo := func(to string, opt Target, from ...string) error {
		if from == nil {
			from = []string{dir + "/"}
		}
		_, err := newClient(t, mine, Options{}).Send(t.Context(), from, s.plain(t, to), Transfer{Target: opt})
		return err
	}
	n := 0
	store := func(source *rawSource) error {
		n++
		_, err := c.send(t.Context(), &push{args: []string{"x"}, source: source, once: true}, s.plain(t, "web"), &Transfer{Target: Target{Snapshot: past(-50 + n)}})
		return err
	}
	hello := func(m wire.Hello, target Target) error {
		m.Share = "data"
		source := &rawSource{entries: []wire.Entry{{Kind: wire.File, Path: "f"}}, content: []byte("ransom")}
		_, err := c.transfer(t.Context(), s.plain(t, ""), m, &push{args: []string{"x"}, source: source, once: true}, &Transfer{Target: target})
		return err
	}
	file := func(path string) *rawSource {
		return &rawSource{entries: []wire.Entry{{Kind: wire.File, Path: path, Mode: 0o600}}, content: []byte("ransom")}
	}
	empty := t.TempDir()
	named := filepath.Join(t.TempDir(), first)
	require.NoError(t, os.Mkdir(named, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(named, "f"), []byte("ransom"), 0o644))
	above := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(above, "web", first), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(above, "web", first, "f"), []byte("ransom"), 0o644))
	inSnapshot := "web/" + first

	before := fingerprint(t, filepath.Join(s.dir, "web", first)) + fingerprint(t, filepath.Join(s.dir, "web", second)) +
		fingerprint(t, filepath.Join(s.dir, "other", first))
	for name, way := range map[string]func() error{
		"send over a file":           func() error { return sendTo(inSnapshot+"/f", Target{}, filepath.Join(dir, "f")) },
		"send into a snapshot":       func() error { return sendTo(inSnapshot, Target{}) },
		"mirror an empty folder":     func() error { return sendTo(inSnapshot, Target{Delete: true}, empty+"/") },
		"mirror over the series":     func() error { return sendTo("web", Target{Delete: true}, empty+"/") },
		"mirror over the share":      func() error { return sendTo("", Target{Delete: true}, empty+"/") },
		"send a folder of that name": func() error { return sendTo("web", Target{}, named) },
		"send a tree from above":     func() error { return sendTo("", Target{}, above+"/") },
		"move it to a backup folder": func() error { return sendTo(inSnapshot, Target{Delete: true, BackupDir: "away"}, empty+"/") },
		"stream over a file": func() error {
			_, err := c.SendStream(t.Context(), strings.NewReader("x"), s.plain(t, inSnapshot+"/f"), Transfer{})
			return err
		},
		"prune":                              func() error { _, err := c.PruneSnapshots(t.Context(), s.plain(t, "web"), []string{second}); return err },
		"the same name again":                func() error { _, err := send(mine, "web", second, empty+"/"); return err },
		"an older name":                      func() error { _, err := send(mine, "web", past(-300)); return err },
		"a name in the future":               func() error { _, err := send(mine, "web", past(48)); return err },
		"a series in a snapshot":             func() error { _, err := send(mine, inSnapshot, past(-9)); return err },
		"a series in a folder of a snapshot": func() error { _, err := send(mine, inSnapshot+"/sub", past(-9)); return err },
		"somebody else's series":             func() error { _, err := send(mine, "other", past(-9)); return err },
		"a series around others":             func() error { _, err := send(mine, "", past(-9)); return err },
		"a name that leads up": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web"}, Snapshot: "../" + first}, Target{Delete: true})
		},
		"the name of the link": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web"}, Snapshot: "latest"}, Target{Delete: true})
		},
		"a reserved name": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web/.fxfer-snapshots"}, Snapshot: past(-9)}, Target{Delete: true})
		},
		"a path that leads up": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web/../other"}, Snapshot: past(-9)}, Target{Delete: true})
		},
		"store with a backup folder": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web"}, Snapshot: past(-9)}, Target{Delete: true, BackupDir: first})
		},
		"store only what exists": func() error {
			return hello(wire.Hello{Intent: wire.Store, Paths: []string{"web"}, Snapshot: past(-9)}, Target{Delete: true, Existing: true})
		},
		"an entry that leads up": func() error { return store(file("../" + first + "/f")) },
		"an absolute entry":      func() error { return store(file(filepath.Join(s.dir, "web", first, "f"))) },
		"an entry in the state":  func() error { return store(file(".fxfer-snapshots/owners")) },
		"a partial of another":   func() error { return store(file("../.fxfer-" + first + ".snap/f")) },
		"a hard link to an old file": func() error {
			return store(&rawSource{entries: []wire.Entry{{Kind: wire.File, Path: "a"}, {Kind: wire.Hardlink, Path: "b", Link: "../" + first + "/f"}}, content: []byte("x")})
		},
		"a file through a symlink": func() error {
			return store(&rawSource{entries: []wire.Entry{{Kind: wire.Symlink, Path: "l", Link: "../" + first}, {Kind: wire.File, Path: "l/f"}}, content: []byte("x")})
		},
		"a folder's metadata through a symlink": func() error {
			return store(&rawSource{entries: []wire.Entry{{Kind: wire.Symlink, Path: "l", Link: "../" + first}, {Kind: wire.Dir, Path: "l/sub", Mode: 0o777}}})
		},
		"metadata of a file that is not the same": func() error {
			return store(&rawSource{entries: []wire.Entry{{Kind: wire.File, Path: "f", Mode: 0o777, ModTime: old.UnixNano()}, {Kind: wire.File, Path: "../x"}}, content: []byte("precious")})
		},
		"prune a folder that leads up": func() error {
			return store(&rawSource{folders: []string{"../" + first}, entries: []wire.Entry{{Kind: wire.File, Path: "../x"}}, content: []byte("x")})
		},
		"read another's": func() error {
			_, err := c.Get(t.Context(), []session.URL{s.plain(t, "other/"+first+"/f")}, t.TempDir(), Transfer{})
			return err
		},
		"read the share": func() error {
			_, err := c.Get(t.Context(), []session.URL{s.plain(t, "")}, t.TempDir(), Transfer{})
			return err
		},
		"list another's": func() error { _, err := c.Snapshots(t.Context(), s.plain(t, "other")); return err },
		"digests of another's": func() error {
			_, err := c.Verify(t.Context(), s.plain(t, "other/"+first), dir, Verification{})
			return err
		},
	} {
		require.Error(t, way(), name)
		after := fingerprint(t, filepath.Join(s.dir, "web", first)) + fingerprint(t, filepath.Join(s.dir, "web", second)) +
			fingerprint(t, filepath.Join(s.dir, "other", first))
		require.Equal(t, before, after, name)
	}

	// An interrupted snapshot shares files with the one before. Changes of them must not reach that.
	name := past(-2)
	require.Error(t, func() error {
		_, err := c.send(t.Context(), &push{args: []string{"x"}, once: true, source: &rawSource{entries: []wire.Entry{
			{Kind: wire.File, Path: "f", Mode: 0o644, ModTime: old.UnixNano(), Owned: runtime.GOOS != "windows", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
			{Kind: wire.File, Path: "../x"},
		}, content: []byte("precious")}}, s.plain(t, "web"), &Transfer{Target: Target{Snapshot: name}})
		return err
	}())
	require.NoError(t, os.Chmod(filepath.Join(dir, "f"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/g"), []byte("new!"), 0o644))
	_, err := send(mine, "web", name)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), inode(t, filepath.Join(s.dir, "web", name, "f")).Mode().Perm())
	require.Equal(t, before, fingerprint(t, filepath.Join(s.dir, "web", first))+fingerprint(t, filepath.Join(s.dir, "web", second))+
		fingerprint(t, filepath.Join(s.dir, "other", first)))

	// With AllowFailed, entries may fail, but everything else is denied as before.
	allowing := func(name string, source *rawSource) error {
		call := Transfer{Target: Target{Snapshot: name, AllowFailed: session.MaxAllowFailed}}
		_, err := c.send(t.Context(), &push{args: []string{"x"}, source: source, once: true}, s.plain(t, "web"), &call)
		return err
	}
	flawed := &rawSource{entries: []wire.Entry{
		{Kind: wire.File, Path: "fine", Mode: 0o644}, {Kind: wire.File, Path: "../" + first + "/f"}, {Kind: wire.File, Path: ".fxfer-snapshots/owners"},
		{Kind: wire.Symlink, Path: "l", Link: "../" + second}, {Kind: wire.File, Path: "l/f"}, {Kind: wire.Dir, Path: "l/sub", Mode: 0o777},
		{Kind: wire.Hardlink, Path: "h", Link: "../" + first + "/f"},
	}, folders: []string{"../" + first}, content: []byte("ransom")}
	for _, old := range []string{first, second, name, past(-150), past(48)} {
		require.NotEqual(t, session.KindPartial, session.KindOf(allowing(old, flawed)), old)
	}
	lacking := past(-1)
	require.Equal(t, session.KindPartial, session.KindOf(allowing(lacking, flawed)))
	require.FileExists(t, filepath.Join(s.dir, "web", lacking, "fine"))
	require.ErrorIs(t, allowing(lacking, flawed), session.ErrSnapshotExists)
	require.Equal(t, before, fingerprint(t, filepath.Join(s.dir, "web", first))+fingerprint(t, filepath.Join(s.dir, "web", second))+
		fingerprint(t, filepath.Join(s.dir, "other", first)))

	// The client may list and get what is its own.
	list, err := c.List(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "web", list[0].Path)
	list, err = c.List(t.Context(), s.plain(t, "web"))
	require.NoError(t, err)
	require.Len(t, list, 5) // four snapshots and the link
	all, err := c.Snapshots(t.Context(), s.plain(t, "web"))
	require.NoError(t, err)
	complete := 0
	for _, x := range all {
		if !x.Partial {
			complete++
		}
	}
	require.Equal(t, 4, complete)
	from := s.plain(t, inSnapshot)
	from.TrailingSlash = true
	back := t.TempDir()
	_, err = c.Get(t.Context(), []session.URL{from}, back, Transfer{})
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(back, "f"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}
