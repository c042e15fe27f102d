package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/ssh"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestPlaceOf(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	require.NoError(t, os.MkdirAll(filepath.Join(home, "a", "b"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(home, "ab"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "a", "file"), nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(home, "a"), filepath.Join(home, "link")))
	base := filepath.Base(home)
	for _, c := range []struct {
		paths []string
		want  oncePlace
	}{
		{[]string{""}, oncePlace{home, base, []string{""}}},
		{[]string{"~"}, oncePlace{home, base, []string{""}}},
		{[]string{"a"}, oncePlace{filepath.Join(home, "a"), "a", []string{""}}},
		{[]string{"~/a/"}, oncePlace{filepath.Join(home, "a"), "a", []string{""}}},
		{[]string{"a/file"}, oncePlace{filepath.Join(home, "a"), "a", []string{"file"}}},
		{[]string{"a/file/x"}, oncePlace{filepath.Join(home, "a"), "a", []string{"file/x"}}},
		{[]string{"a/x/y"}, oncePlace{filepath.Join(home, "a"), "a", []string{"x/y"}}},
		{[]string{"a/../ab/x"}, oncePlace{filepath.Join(home, "ab"), "ab", []string{"x"}}},
		{[]string{"link"}, oncePlace{filepath.Join(home, "a"), "link", []string{""}}},
		{[]string{"link/x"}, oncePlace{filepath.Join(home, "a"), "link", []string{"x"}}},
		{[]string{home + "/a/b"}, oncePlace{filepath.Join(home, "a", "b"), "b", []string{""}}},
		{[]string{"a", "ab"}, oncePlace{home, base, []string{"a", "ab"}}},
		{[]string{"a/b", "a"}, oncePlace{filepath.Join(home, "a"), "a", []string{"b", ""}}},
		{[]string{"a", "a/b/x", "link/y"}, oncePlace{filepath.Join(home, "a"), "a", []string{"", "b/x", "y"}}},
		{[]string{"a", "link"}, oncePlace{home, base, []string{"a", "link"}}},
		{[]string{"link", "a/b"}, oncePlace{home, base, []string{"link", "a/b"}}},
		{[]string{"a", "link/"}, oncePlace{filepath.Join(home, "a"), "a", []string{"", ""}}},
	} {
		got, err := placeOf(c.paths)
		require.NoError(t, err, c.paths)
		require.Equal(t, c.want, got, c.paths)
	}
	for _, paths := range [][]string{nil, {"a\x00"}} {
		_, err := placeOf(paths)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), paths)
	}
}

func TestEmpty(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(home, "full", "folder"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "full", "file"), nil, 0o600))
	for _, c := range []struct {
		paths []string
		want  bool
	}{
		{[]string{"new"}, true},
		{[]string{"new/x", "full/folder"}, true},
		{[]string{"full/new/"}, true},
		{[]string{"full/"}, false},
		{[]string{"full/file"}, false},
		{[]string{"full/file/x"}, false},
		{[]string{"new", "full"}, false},
		{[]string{""}, false},
	} {
		for i, path := range c.paths {
			c.paths[i] = home + "/" + path
		}
		p, err := placeOf(c.paths)
		require.NoError(t, err)
		require.Equal(t, c.want, p.empty(), c.paths)
	}
}

// TestCallsAtOnce: a call beyond the limit fails at once.
func TestCallsAtOnce(t *testing.T) {
	var out bytes.Buffer
	c := caller{client: "127.0.0.1", out: &out, slots: make(chan struct{})} // none is free
	call := ssh.Call{Port: 1, ID: ssh.CallID{1}}
	c.call(t.Context(), &call)
	var want bytes.Buffer
	require.NoError(t, ssh.WriteFailed(&want, call.ID))
	require.Equal(t, want.String(), out.String())
}

// FuzzPlaceOf: what a client asks for stays what it asked for: folder and rest make the path again.
func FuzzPlaceOf(f *testing.F) {
	f.Add("a/b", "/tmp/../x")
	f.Add("~//", "..")
	f.Add("", "/")
	f.Fuzz(func(t *testing.T, a, b string) {
		t.Setenv("HOME", os.TempDir())
		t.Setenv("USERPROFILE", os.TempDir())
		got, err := placeOf([]string{a, b})
		if err != nil {
			return
		}
		require.DirExists(t, got.dir)
		require.Len(t, got.paths, 2)
		for _, path := range got.paths {
			require.True(t, path == "" || filepath.IsLocal(filepath.FromSlash(path)), "%q", path)
		}
	})
}

func TestListenWithin(t *testing.T) {
	opt := fxfer.ServerOptions{Ephemeral: true, Shares: []fxfer.Share{{Name: "a", Dir: t.TempDir(), Rights: fxfer.Read}}}
	for _, ports := range []ssh.Ports{{First: -1}, {First: 1, Last: 65536}} {
		_, err := listenWithin(opt, ports)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))
	}
}
