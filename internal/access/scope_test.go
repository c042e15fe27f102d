package access

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	damage "github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestAsked: a user asks for the folder photos, and gets nothing else: a server neither links, makes,
// changes nor removes what is beside it.
func TestAsked(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "photos"), 0o755))
	for _, name := range []string{"other", "photos/p"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	s, err := OpenTarget(dir, Asked{Base: ".", Names: []string{"photos"}, BackupDir: "old"})
	require.NoError(t, err)
	defer s.Close()
	all, err := OpenTarget(dir, Asked{Base: "."})
	require.NoError(t, err)
	defer all.Close()
	for name, refused := range map[string]func(p string) error{
		"link from": func(p string) error { return s.Link(p, "photos/q") },
		"link to":   func(p string) error { return s.Link("photos/p", p) },
		"apply": func(p string) error {
			return s.Apply(disk.Meta{Path: p, Kind: disk.File, Mode: 0o777}, disk.TargetOptions{})
		},
		"mkdir":   func(p string) error { return s.Mkdir(p, 0o755) },
		"symlink": func(p string) error { return s.Symlink(disk.Meta{Path: p, Link: "x"}, disk.TargetOptions{}) },
		"special": func(p string) error { return s.Special(disk.Meta{Path: p, Kind: disk.Fifo}, disk.TargetOptions{}) },
		"put": func(p string) error {
			_, err := s.Put(disk.Meta{Path: p}, nil, disk.TargetOptions{})
			return err
		},
		"partial": func(p string) error {
			_, err := s.Partial(disk.Meta{Path: p}, 1, disk.TargetOptions{})
			return err
		},
		"remove":      func(p string) error { return s.Remove(t.Context(), p) },
		"remove one":  s.RemoveOne,
		"make folder": func(p string) error { return s.MakeDir(p, 0o755) },
		"move from":   func(p string) error { return s.Move(t.Context(), p, "photos/q", true) },
		"move to":     func(p string) error { return s.Move(t.Context(), "photos/p", p, true) },
		"stat":        func(p string) error { _, err := s.Stat(p); return err },
		"read":        func(p string) error { _, err := s.OpenFile(p); return err },
		"read file": func(p string) error {
			return s.ReadFile(p, disk.Identity{Size: 1}, make([]byte, 1))
		},
		"digest":  func(p string) error { _, _, err := s.Digest(t.Context(), p); return err },
		"copy":    func(p string) error { _, err := s.OpenCopy(p); return err },
		"xattrs":  func(p string) error { _, err := s.StatXattrs(p); return err },
		"sweep":   func(p string) error { _, err := s.Sweep(t.Context(), p, 0); return err },
		"sweep 1": s.SweepFolder,
		"commit": func(p string) error {
			m := disk.Meta{Path: p, Kind: disk.File}
			partial, err := all.Partial(m, 1<<16, disk.TargetOptions{})
			require.NoError(t, err)
			defer partial.Close()
			return s.Commit(partial, m)
		},
		"batch": func(p string) error {
			staged, err := all.Put(disk.Meta{Path: p, Kind: disk.File}, nil, disk.TargetOptions{})
			require.NoError(t, err)
			batch := s.NewBatch(disk.TargetOptions{})
			batch.Add(staged)
			refused := batch.Commit()[0]
			require.NoError(t, staged.Discard())
			return refused
		},
		"link from a snapshot": func(p string) error { return s.LinkFrom(all, "photos/p", p) },
		"link from nowhere":    func(p string) error { return all.LinkFrom(s, p, "photos/r") },
	} {
		for _, p := range []string{"other", "photos2", "."} {
			if p == "." && name != "apply" && name != "remove" {
				continue
			}
			require.ErrorIs(t, refused(p), disk.ErrPath, "%s %s", name, p)
		}
	}
	require.NoError(t, s.Link("photos/p", "photos/q"))
	require.NoError(t, s.Mkdir("old/photos", 0o755))
	require.NoError(t, s.Remove(t.Context(), "photos/q"))
	require.FileExists(t, filepath.Join(dir, "old/photos/q"))
	info, err := os.Stat(filepath.Join(dir, "other"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// TestBelow: who works by a capability for a/b makes the way there, and reaches nothing beside it.
func TestBelow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o600))
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	s := folder.Client(Request{Share: "data", Rights: identity.Read | identity.Write, Intent: wire.Copy, Below: "a/b"})
	defer s.Close()
	for _, p := range []string{"other", "a/bc", "a/c", "a", "."} {
		require.Error(t, s.MayTarget(p), p)
		require.Error(t, s.Remove(t.Context(), p), p)
		require.Error(t, s.Names(t.Context(), p, nil), p)
		_, err := s.OpenFile(p)
		require.Error(t, err, p)
		require.Error(t, s.Link(p, "a/b"), p)
		require.Error(t, s.Link("a/b", p), p)
		_, err = s.Put(disk.Meta{Path: p, Kind: disk.File}, nil, disk.TargetOptions{})
		require.Error(t, err, p)
	}
	for _, p := range []string{"other", "a/c"} {
		require.Error(t, s.Mkdir(p, 0o755), p)
		_, err := s.Stat(p)
		require.Error(t, err, p)
	}
	_, err = s.Stat("a")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, s.Mkdir("a", 0o755))
	_, err = s.Stat("a")
	require.NoError(t, err)
	require.NoError(t, s.Mkdir("a/b/c", 0o755))
	require.NoError(t, s.Remove(t.Context(), "a/b/c"))
	reader := folder.Client(Request{Share: "data", Rights: identity.Read, Intent: wire.Copy, Below: "a/b"})
	defer reader.Close()
	require.Error(t, reader.Mkdir("a", 0o755))
}

// TestMayLink: a file that a session has not transferred gets another name from those alone who may
// read it, and from no server.
func TestMayLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	for rights, may := range map[identity.Rights]bool{
		identity.Write: false, identity.Write | identity.List: false, identity.Read | identity.Write: true,
	} {
		s := folder.Client(Request{Share: "data", Rights: rights, Intent: wire.Push})
		require.Equal(t, may, s.MayLink("f") == nil, rights)
	}
	get, err := OpenTarget(dir, Asked{Base: "."})
	require.NoError(t, err)
	defer get.Close()
	require.ErrorIs(t, get.MayLink("f"), disk.ErrPath)
}

// TestReadOnly: what reads only, or is a dry run, has no way to write.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
	source, err := OpenSource(dir)
	require.NoError(t, err)
	defer source.Close()
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	all := map[string]*Scope{"a source": source, "nothing": nothing()}
	for intent := range intents {
		r := Request{Share: "data", Client: "me", Rights: 0xff, Intent: intent, DryRun: intent == wire.Push || intent == wire.Store || intent == wire.Files || intent == wire.Early || intent == wire.Copy || intent == wire.Ranges}
		all[r.Client+string(rune('0'+intent))] = folder.Client(r)
	}
	for name, s := range all {
		require.Error(t, s.Mkdir("d", 0o755), name)
		require.Error(t, s.Link("f", "g"), name)
		require.Error(t, s.Remove(t.Context(), "f"), name)
		require.Error(t, s.RemoveOne("f"), name)
		require.Error(t, s.RemoveAll(t.Context(), "f"), name)
		require.Error(t, s.Move(t.Context(), "f", "g", false), name)
		require.Error(t, s.MakeDir("d", 0o755), name)
		require.Error(t, s.SweepFolder("."), name)
		require.Error(t, s.Apply(disk.Meta{Path: "f", Kind: disk.File}, disk.TargetOptions{}), name)
		_, err := s.Put(disk.Meta{Path: "g"}, nil, disk.TargetOptions{})
		require.Error(t, err, name)
		_, err = s.Note(t.Context(), "f")
		require.Error(t, err, name)
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// TestSharedFiles: a file that a new snapshot shares with an older one keeps its metadata, and a
// client without the right to read learns nothing of it.
func TestSharedFiles(t *testing.T) {
	dir := t.TempDir()
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	open := func(name string, rights identity.Rights) (series *Series, filling *Scope) {
		s := folder.Client(Request{Share: "data", Client: "me", Rights: rights, Intent: wire.Store})
		series, err := s.AddTo("web", name, func(int64) (func(), error) { return func() {}, nil })
		require.NoError(t, err)
		require.NoError(t, series.Lock())
		filling, _, err = series.Fill(name)
		require.NoError(t, err)
		return series, filling
	}
	const first, second = "2026-01-01T000000Z", "2026-01-02T000000Z"
	series, filling := open(first, identity.Append)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web/.fxfer-"+first+".snap/f"), []byte("x"), 0o600))
	require.NoError(t, filling.Close())
	_, err = series.Publish(t.Context(), first, "", filling, false)
	require.NoError(t, err)
	series.Close()
	for _, rights := range []identity.Rights{identity.Append, identity.Write} {
		series, filling = open(second, rights)
		previous, err := series.Previous(first)
		require.NoError(t, err)
		require.NoError(t, filling.LinkFrom(previous, "f", "f"))
		require.Error(t, filling.Apply(disk.Meta{Path: "f", Kind: disk.File, Mode: 0o777}, disk.TargetOptions{}))
		for _, s := range []*Scope{previous, filling} {
			f, err := s.OpenFile("f")
			require.Equal(t, rights == identity.Append, err == nil)
			if err == nil {
				require.NoError(t, f.Close())
			}
			_, _, err = s.Digest(t.Context(), "f")
			require.Equal(t, rights == identity.Append, err == nil)
		}
		require.NoError(t, previous.Close())
		require.NoError(t, filling.Close())
		series.Close()
	}
	info, err := os.Stat(filepath.Join(dir, "web", first, "f"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// TestSeriesAlone: each step of adding or removing a snapshot asks the gate, whoever holds the series.
func TestSeriesAlone(t *testing.T) {
	dir := t.TempDir()
	const first, second = "2026-01-01T000000Z", "2026-01-02T000000Z"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "web", first), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "web/.fxfer-snapshots"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "web/.fxfer-"+second+".snap"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web/.fxfer-snapshots/owners"), []byte("me\n"), 0o600))
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	open := func(r Request) *Series {
		series, err := folder.Client(r).Series(Names, "web")
		require.NoError(t, err)
		return series
	}
	for name, r := range map[string]Request{
		"a reader": {Client: "you", Rights: identity.Read, Intent: wire.Store},
		"a list":   {Client: "me", Rights: identity.Read | identity.Write, Intent: wire.Series},
		"a dry run": {
			Client: "me", Rights: identity.Read | identity.Write, Intent: wire.Store, DryRun: true,
		},
	} {
		series := open(r)
		_, _, err := series.Fill(second)
		require.Error(t, err, name)
		_, err = series.Previous(first)
		require.Error(t, err, name)
		_, err = series.Publish(t.Context(), second, first, nothing(), true)
		require.Error(t, err, name)
		require.Error(t, series.Remove(first), name)
		series.Close()
	}
	for name, r := range map[string]Request{
		"somebody else":  {Client: "you", Rights: identity.Append, Intent: wire.Series},
		"a write-only":   {Client: "me", Rights: identity.Write, Intent: wire.Series},
		"without intent": {Client: "me", Rights: identity.Read | identity.Write},
	} {
		_, err := folder.Client(r).Series(Names, "web")
		require.Error(t, err, name)
	}
	lister := open(Request{Client: "you", Rights: identity.List, Intent: wire.Scrub})
	_, err = lister.Open(first)
	require.Error(t, err)
	lister.Close()

	room := func(int64) (func(), error) { return func() {}, nil }
	mine := folder.Client(Request{Client: "me", Rights: identity.Append, Intent: wire.Store})
	_, err = mine.AddTo("web", "2099-01-01T000000Z", room)
	require.Error(t, err, "the future")
	series, err := mine.AddTo("web", first, room)
	require.NoError(t, err)
	_, _, err = series.Fill(first)
	var refused *wire.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeExists, refused.Code)
	_, _, err = series.Fill("2025-12-31T000000Z")
	require.Error(t, err, "older than the newest")
	series.Close()

	reader := folder.Client(Request{Client: "you", Rights: identity.Read, Intent: wire.Store})
	for _, p := range []string{"web", "new"} {
		_, err = reader.AddTo(p, second, room)
		require.Error(t, err, p)
		_, err = reader.Newest(p, second)
		require.Error(t, err, p)
	}
	for _, rights := range []identity.Rights{identity.Append, identity.Write, identity.Read | identity.Write} {
		_, err = folder.Client(Request{Client: "me", Rights: rights, Intent: wire.Store}).AddTo(".", second, room)
		require.ErrorContains(t, err, "a folder of their own", "the share itself")
	}
	require.NoDirExists(t, filepath.Join(dir, ".fxfer-snapshots"))
	require.NoDirExists(t, filepath.Join(dir, "new"))
	require.DirExists(t, filepath.Join(dir, "web", first))
	require.NoDirExists(t, filepath.Join(dir, "web", second))

	// A series that begins counts at once, whatever a scope remembers.
	pusher := folder.Client(Request{Client: "you", Rights: identity.Write, Intent: wire.Push})
	require.NoError(t, pusher.Mkdir("later/d", 0o755))
	begun, err := folder.Client(Request{Client: "me", Rights: identity.Write, Intent: wire.Store}).AddTo("later", first, room)
	require.NoError(t, err)
	begun.Close()
	require.Error(t, pusher.Mkdir("later/"+second, 0o755))
}

// TestGateAlone: the gate refuses by itself what requests are refused for before it is asked.
func TestGateAlone(t *testing.T) {
	dir := t.TempDir()
	const snapshot = "2026-01-01T000000Z"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "web", snapshot), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "web/.fxfer-snapshots"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "web/d/inside"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web/.fxfer-snapshots/owners"), []byte("me\n"), 0o600))
	for _, name := range []string{"f", "web/beside", "web/" + snapshot + "/f"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	writer := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Write, Intent: wire.Push})
	_, err = writer.Stat("f")
	require.NoError(t, err, "whoever may write it learns that it is there")
	for _, p := range []string{".", "web", "web/" + snapshot} {
		require.Error(t, writer.Names(t.Context(), p, func([]string, []disk.Kind) error { return nil }))
		require.Error(t, writer.Walk(t.Context(), p, disk.WalkOptions{}, func(disk.Meta) error { return nil }, nil))
		_, err = writer.List(t.Context(), p, func(disk.Meta) error { return nil })
		require.Error(t, err)
	}
	_, err = writer.OpenFile("f")
	require.Error(t, err)
	_, err = writer.Sweep(t.Context(), "web/"+snapshot, 0)
	require.Error(t, err)
	owner := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Append, Intent: wire.List})
	var seen []string
	for _, p := range []string{"web", "web/d"} {
		left, err := owner.List(t.Context(), p, func(m disk.Meta) error {
			seen = append(seen, m.Path)
			return nil
		})
		require.NoError(t, err)
		require.Zero(t, left, "what others have there shows in no way")
	}
	require.Equal(t, []string{snapshot}, seen, "without what lies beside its snapshots")
	require.Error(t, owner.Names(t.Context(), "web/d", func([]string, []disk.Kind) error { return nil }))
	for _, name := range []string{"latest", "Latest", "2026-01-02T000000Z", "2026-01-02t000000z"} {
		require.Error(t, writer.Symlink(disk.Meta{Path: "web/" + name, Link: "d"}, disk.TargetOptions{}), name)
		require.Error(t, writer.Mkdir("web/"+name, 0o755), name)
	}
	require.Error(t, writer.ReadFile("f", disk.Identity{Size: 1}, make([]byte, 1)))
	_, _, err = writer.Digest(t.Context(), "f")
	require.Error(t, err)
	for _, dry := range []bool{true, false} {
		s := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Read | identity.Write, Intent: wire.Push, DryRun: dry, BackupDir: "web"})
		for _, p := range []string{"web", "web/" + snapshot, "web/" + snapshot + "/f", snapshot} {
			_, err := s.Removal(t.Context(), p)
			require.Error(t, err, p)
		}
		require.Error(t, s.KeepOld("web/"+snapshot+"/f"))
		require.Error(t, s.KeepOld(snapshot))
		_, err := s.Removal(t.Context(), "f")
		require.NoError(t, err)
	}
}

// TestHidden: who sees the snapshots of a series because it owns it does not see, in a walk either, what
// lies beside them. Nobody moves a snapshot, or a folder that holds a series.
func TestHidden(t *testing.T) {
	dir := t.TempDir()
	const snapshot = "2026-01-01T000000Z"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "up/web", snapshot), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "up/web/.fxfer-snapshots"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "up/web/.fxfer-snapshots/owners"), []byte("me\n"), 0o600))
	for _, name := range []string{"f", "up/web/beside", "up/web/" + snapshot + "/f"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	folder, err := Open(dir)
	require.NoError(t, err)
	defer folder.Close()
	walk := func(s *Scope, p string) (seen []string) {
		require.NoError(t, s.Walk(t.Context(), p, disk.WalkOptions{}, func(m disk.Meta) error {
			seen = append(seen, m.Path)
			return nil
		}, func(string, error) {}))
		return seen
	}
	owner := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Append, Intent: wire.Files})
	require.Equal(t, []string{"up/web", "up/web/" + snapshot, "up/web/" + snapshot + "/f"}, walk(owner, "up/web"))
	lister := folder.Client(Request{Share: "data", Client: "me", Rights: identity.List, Intent: wire.Files})
	require.Len(t, walk(lister, "."), 7)

	state, err := os.OpenRoot(filepath.Join(dir, "up/web/.fxfer-snapshots"))
	require.NoError(t, err)
	defer state.Close()
	require.NoError(t, damage.WriteDamage(state, snapshot, damage.Damage{"f": "different"}))
	reader := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Read, Intent: wire.Files})
	require.NoError(t, reader.Intact("f"))
	for _, p := range []string{"/f", "/", "../f", ""} {
		require.ErrorIs(t, reader.Intact(p), disk.ErrPath)
	}
	require.ErrorContains(t, reader.Intact("up/web/"+snapshot+"/f"), "damaged")
	require.ErrorContains(t, lister.Intact("f"), "may not be read")

	writer := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Write, Intent: wire.Files})
	for from, to := range map[string]string{
		"up": "x", "up/web": "x", "up/web/" + snapshot: "x", "up/web/" + snapshot + "/f": "x", "f": "up/web/latest",
	} {
		require.Error(t, writer.Move(t.Context(), from, to, true), from)
	}
	for _, p := range []string{"up/web/" + snapshot + "/g", "up/web/2026-01-02T000000Z", "up/web/Latest"} {
		require.Error(t, writer.MakeDir(p, 0o755), p)
		require.Error(t, writer.Move(t.Context(), "f", p, true), p)
	}
	require.Error(t, writer.RemoveOne("up/web/"+snapshot+"/f"))
	require.Error(t, writer.RemoveAll(t.Context(), "up"))
	require.NoError(t, writer.Move(t.Context(), "up/web/beside", "g", false))
	require.NoError(t, writer.RemoveOne("g"))
}
