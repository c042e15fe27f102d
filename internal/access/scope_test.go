package access

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/disk"
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
		"remove": func(p string) error { return s.Remove(t.Context(), p) },
		"stat":   func(p string) error { _, err := s.Stat(p); return err },
		"read":   func(p string) error { _, err := s.OpenFile(p); return err },
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
		r := Request{Share: "data", Client: "me", Rights: 0xff, Intent: intent, DryRun: intent == wire.Push || intent == wire.Store}
		all[r.Client+string(rune('0'+intent))] = folder.Client(r)
	}
	for name, s := range all {
		require.Error(t, s.Mkdir("d", 0o755), name)
		require.Error(t, s.Link("f", "g"), name)
		require.Error(t, s.Remove(t.Context(), "f"), name)
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
