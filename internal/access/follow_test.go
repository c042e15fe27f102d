package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestFollow: links in a path lead elsewhere in the share, and never out of it.
func TestFollow(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "share")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "releases/7/sub"), 0o755))
	for name, to := range map[string]string{
		"current": "releases/7", "newest": "./current//", "releases/up": "..", "releases/7/peer": "../../releases/7/sub",
		"gone": "nowhere", "out": "../secret", "releases/out": "../../secret", "back": "../share/releases", "absolute": dir + "/releases",
		"self": "self", "one": "two/x", "two": "one", "wide": "releases/out/../7",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	folder, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	reader := folder.Client(Request{Share: "data", Rights: identity.Read, Intent: wire.Pull})
	for p, c := range map[string]struct{ first, all string }{
		".":                    {".", "."},
		"releases/7":           {"releases/7", "releases/7"},
		"nothing/here":         {"nothing/here", "nothing/here"},
		"current":              {"current", "releases/7"},
		"current/f":            {"releases/7/f", "releases/7/f"},
		"newest/sub/f":         {"releases/7/sub/f", "releases/7/sub/f"},
		"releases/up/current":  {"current", "releases/7"},
		"releases/up":          {"releases/up", "."},
		"current/peer/f":       {"releases/7/sub/f", "releases/7/sub/f"},
		"gone/f":               {"nowhere/f", "nowhere/f"},
		"out/f":                {"out/f", "out/f"},
		"releases/out/f":       {"releases/out/f", "releases/out/f"},
		"back/7/f":             {"back/7/f", "back/7/f"},
		"absolute/7/f":         {"absolute/7/f", "absolute/7/f"},
		"wide/f":               {"wide/f", "wide/f"},
		"../secret":            {"../secret", "../secret"},
		"current/../../secret": {"current/../../secret", "current/../../secret"},
		"self/f":               {"", ""},
		"one/f":                {"", ""},
	} {
		for last, want := range map[bool]string{false: c.first, true: c.all} {
			got, err := reader.Follow(Read, p, last)
			require.Equal(t, want == "", err != nil, "%s: %v", p, err)
			if want != "" {
				require.Equal(t, want, got, p)
			}
		}
	}
	writer := folder.Client(Request{Share: "data", Rights: identity.Write, Intent: wire.Pull})
	got, err := writer.Follow(Read, "current/f", true)
	require.NoError(t, err)
	require.Equal(t, "current/f", got, "who may not read it learns nothing of the link")
}

// TestFollowAppend: for a client that may only append, links lead on in its own series, and there
// only.
func TestFollowAppend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	const night = "2026-01-01T000000Z"
	for series, owner := range map[string]string{"web": "me", "a/b/deep": "me", "other": "you"} {
		made, err := folder.tree.MakeSeries(series, owner)
		require.NoError(t, err)
		made.Close()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, series, night, "etc"), 0o755))
		require.NoError(t, os.Symlink(night, filepath.Join(dir, series, "latest")))
		require.NoError(t, os.Symlink("../../other/latest", filepath.Join(dir, series, night, "peer")))
		require.NoError(t, os.Symlink(night, filepath.Join(dir, series, "beside")))
	}
	require.NoError(t, os.Symlink("web", filepath.Join(dir, "alias")))
	for p, want := range map[string]string{
		"web/latest":             "web/" + night,
		"web/latest/etc/f":       "web/" + night + "/etc/f",
		"a/b/deep/latest/f":      "a/b/deep/" + night + "/f",
		"web/beside/f":           "web/beside/f",
		"other/latest/f":         "other/latest/f",
		"web/latest/peer/etc":    "other/latest/etc",
		"alias/latest/f":         "alias/latest/f",
		"alias/../web/latest/f":  "alias/../web/latest/f",
		"nothing/here/latest/f":  "nothing/here/latest/f",
		"other/../../web/latest": "other/../../web/latest",
	} {
		client := folder.Client(Request{Share: "data", Client: "me", Rights: identity.Append, Intent: wire.Pull})
		got, err := client.Follow(Read, p, true)
		require.NoError(t, err, p)
		require.Equal(t, want, got, p)
		_, err = client.May(Read, got)
		require.Equal(t, strings.Contains(want, night), err == nil, "%s: %v", p, err)
	}
}

// TestFollowRace: a link that is exchanged after it was followed leads nowhere else.
func TestFollowRace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "share")
	for _, d := range []string{"share/a", "outside"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, d, "f"), []byte(d), 0o600))
	}
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "l")))
	folder, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	s := folder.Client(Request{Share: "data", Rights: identity.Read, Intent: wire.Pull})
	at, err := s.Follow(Read, "l/f", true)
	require.NoError(t, err)
	require.Equal(t, "a/f", at)
	require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	require.NoError(t, os.Symlink("../outside", filepath.Join(dir, "a")))
	f, err := s.OpenFile(at)
	if err != nil {
		return
	}
	defer f.Close()
	got := make([]byte, f.Identity().Size)
	_, err = f.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "share/a", string(got), "the folder that was there")
}
