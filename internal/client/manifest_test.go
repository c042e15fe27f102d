package client

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

func TestManifest(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{"same": "s", "changed": "new content", "link": "l"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	tree, err := access.OpenSource(dir)
	require.NoError(t, err)
	defer tree.Close()
	same, err := tree.Stat("same")
	require.NoError(t, err)
	name := filepath.Join(out, "m")
	m, err := newManifest(name, func(entry string) (*access.Scope, string) { return tree, strings.TrimPrefix(entry, "to/") })
	require.NoError(t, err)
	defer m.discard()
	m.exact = true
	file := func(path, digest string, o session.Outcome, size, modified int64) {
		m.Add(&session.FileResult{Path: path, Outcome: o, Digest: digest}, &wire.Entry{Kind: wire.File, Size: size, ModTime: modified})
	}
	file("forgotten", digest.Hex([32]byte{9}), session.Committed, 1, 0)
	file("forgotten too", "", session.Unchanged, 1, 0)
	m.Restart()
	file("to/sent", digest.Hex([32]byte{1}), session.Committed, 1, 0)
	file("to/a\n\\b\xff", digest.Hex([32]byte{2}), session.Committed, 1, 0)
	file("to/same", "", session.Unchanged, 1, same.ModTime.UnixNano())
	file("to/changed", "", session.Unchanged, 3, same.ModTime.UnixNano())
	file("to/gone", "", session.Unchanged, 3, 0)
	file("to/skipped", "", session.Skipped, 3, 0)
	file("to/failed", "", session.Failed, 3, 0)
	m.Add(&session.FileResult{Path: "to/link", Outcome: session.Made}, &wire.Entry{Kind: wire.Hardlink, ModTime: same.ModTime.UnixNano()})
	m.Add(&session.FileResult{Path: "to", Outcome: session.Made}, &wire.Entry{Kind: wire.Dir})
	link, err := tree.Stat("link")
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "link"), same.ModTime, same.ModTime), link)

	failed := make(map[string]error)
	var telling = make(chan session.FileResult, 10)
	require.NoError(t, m.finish(t.Context(), func(r session.FileResult) { telling <- r }))
	close(telling)
	for r := range telling {
		failed[r.Path] = r.Err
	}
	require.Len(t, failed, 2)
	require.ErrorIs(t, failed["to/changed"], disk.ErrChanged)
	require.ErrorIs(t, failed["to/gone"], os.ErrNotExist)
	m.discard()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		digest.Hex([32]byte{1}) + "  to/sent", `\` + digest.Hex([32]byte{2}) + "  to/a\\n\\\\b\ufffd",
		digest.Hex(blake3.Sum256([]byte("s"))) + "  to/same", digest.Hex(blake3.Sum256([]byte("l"))) + "  to/link",
	}, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
	left, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing temporary is left")

	read, err := readManifest(name)
	require.NoError(t, err)
	require.Len(t, read, 4)
	require.Equal(t, [32]byte{2}, read["to/a\n\\b\ufffd"])
}

func TestManifestInterrupted(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
	tree, err := access.OpenSource(dir)
	require.NoError(t, err)
	defer tree.Close()
	m, err := newManifest(filepath.Join(dir, "m"), func(entry string) (*access.Scope, string) { return tree, entry })
	require.NoError(t, err)
	m.Add(&session.FileResult{Path: "f", Outcome: session.Unchanged}, &wire.Entry{Kind: wire.File, Size: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, m.finish(ctx, func(session.FileResult) {}), context.Canceled)
	m.discard()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestParseManifestLine(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for line, want := range map[string]string{ // "": refused
		sum + "  a":           "a",
		sum + "  ./a//b":      "a/b",
		sum + "   lead":       " lead",
		sum + "  a\xff\\n":    "a\xff\\n",
		`\` + sum + `  a\nb`:  "a\nb",
		`\` + sum + `  \\\r`:  "\\\r",
		`\` + sum + `  a\tb`:  "",
		`\` + sum + `  a\`:    "",
		sum + " a":            "",
		sum + "  ":            "",
		sum[1:] + "  a":       "",
		"x" + sum[1:] + "  a": "",
		"":                    "",
	} {
		got, digest, ok := parseManifestLine([]byte(line))
		require.Equal(t, want != "", ok, line)
		require.Equal(t, want, got, line)
		require.True(t, !ok || digest[0] == 10)
	}
}

func TestSourceOf(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(a, "photos", "x"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(b, "photos2"), 0o700))
	ta, err := access.OpenSource(a)
	require.NoError(t, err)
	defer ta.Close()
	tb, err := access.OpenSource(b)
	require.NoError(t, err)
	defer tb.Close()
	roots := []transfer.Root{{Tree: ta, Path: "photos", As: "photos"}, {Tree: tb, Path: "."}}
	for entry, want := range map[string]struct {
		tree *access.Scope
		path string
	}{"photos": {ta, "photos"}, "photos/x": {ta, "photos/x"}, "photos2": {tb, "photos2"}, "none": {nil, ""}} {
		tree, path := sourceOf(roots, entry)
		require.True(t, want.tree == tree, entry)
		require.Equal(t, want.path, path, entry)
	}
}
