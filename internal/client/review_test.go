package client

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// TestReplacedFolderStaysUnread: a client that may only write puts a file in the place of a folder,
// and looks which names the server reports as removed.
func TestReplacedFolderStaysUnread(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write)
	defer s.stop()
	key := keyOfHome(t, enrol(t, s))
	for _, kind := range []wire.Kind{wire.File, wire.Symlink, wire.Fifo} {
		for _, most := range []int64{-1, 0, 5} {
			require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "inbox/sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "inbox/sub", marker), nil, 0o600))
			p := rawDial(t, s, key, wire.Hello{Intent: wire.Push, Share: "data", Paths: []string{""}, Target: wire.Target{MaxDelete: most}})
			entry := wire.Entry{Kind: kind, Path: "inbox", Mode: 0o600, BlockLog: wire.MinBlockLog}
			if kind == wire.Symlink {
				entry.Link = "x"
			}
			p.send(&wire.Manifest{}, &wire.Entries{Entries: []wire.Entry{entry}}, &wire.EndManifest{Count: 1})
			_ = p.until(finished)
			p.close()
			require.NotContains(t, p.got.String(), marker, "%v, %d", kind, most)
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "inbox")))
		}
	}
}

// TestUnfinishedSnapshotsStayUnread: a client that may only write continues a snapshot that somebody
// else began.
func TestUnfinishedSnapshotsStayUnread(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write)
	defer s.stop()
	key := keyOfHome(t, enrol(t, s))
	begun := filepath.Join(s.dir, "web/.fxfer-"+hoursAgo(5)+".snap")
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "web/.fxfer-snapshots"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "web/.fxfer-snapshots/owners"), []byte("ed25519:somebody\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(begun, marker), 0o700))
	for range 2 {
		p := rawDial(t, s, key, wire.Hello{
			Intent: wire.Store, Share: "data", Paths: []string{"web"}, Snapshot: hoursAgo(1),
			Target: wire.Target{MaxDelete: -1, Delete: true},
		})
		p.send(&wire.Manifest{Prune: true}, &wire.Entries{}, &wire.EndManifest{}, &wire.Prune{Folders: []string{"."}})
		answered := time.AfterFunc(5*time.Second, p.close)
		_ = p.until(func(m wire.Message) bool { _, ok := m.(*wire.Folder); return ok || finished(m) })
		answered.Stop()
		p.close()
		require.False(t, bytes.Contains(p.got.Bytes(), []byte(marker)))
	}
}

// TestAttemptsOfAReview: what a review tried against the world of the matrix, one request each. The
// world stays as it is but for what is named, and the client learns nothing of it.
func TestAttemptsOfAReview(t *testing.T) {
	t.Parallel()
	x := newWorlds(t, 1)[0]
	const rw = r | w
	snap, later, victims := x.names[0], x.names[2], "theirs/"+x.names[0]+"/"+victim
	file := func(p string) wire.Entry {
		return wire.Entry{Kind: wire.File, Path: p, Mode: 0o600, BlockLog: wire.MinBlockLog}
	}
	link := func(p, to string) wire.Entry {
		return wire.Entry{Kind: wire.Hardlink, Path: p, Link: to, ModTime: when.UnixNano()}
	}
	symlink := func(p, to string) wire.Entry { return wire.Entry{Kind: wire.Symlink, Path: p, Link: to} }
	folder := func(p string) wire.Entry { return wire.Entry{Kind: wire.Dir, Path: p, Mode: 0o777} }
	many := func(e ...wire.Entry) []wire.Entry { return e }
	for name, try := range map[string]struct {
		rights  identity.Rights
		intent  wire.Intent
		at      string // with more behind "|"
		named   string // the snapshot
		entries []wire.Entry
		prune   string
		may     string // what may change
		target  wire.Target
	}{
		"a name in small letters":                {rights: a, intent: wire.Store, at: "own", named: strings.ToLower(later)},
		"the name latest":                        {rights: a, intent: wire.Store, at: "own", named: "latest"},
		"a name that is complete":                {rights: a, intent: wire.Store, at: "own", named: x.names[1], entries: many(file("f")), may: "own/.fxfer-snapshots"},
		"a name older than the newest":           {rights: a, intent: wire.Store, at: "own", named: hoursAgo(20), entries: many(file("f")), may: "own/.fxfer-snapshots"},
		"a name two hours ahead":                 {rights: a, intent: wire.Store, at: "own", named: hoursAgo(-2)},
		"a name with a way out":                  {rights: a, intent: wire.Store, at: "own", named: "../" + later},
		"no name":                                {rights: a, intent: wire.Store, at: "own"},
		"a series by way of dots":                {rights: a, intent: wire.Store, at: "own/" + snap + "/..", named: later},
		"a series in the folder of notes":        {rights: a, intent: wire.Store, at: "own/.fxfer-snapshots", named: later},
		"a series in capitals of our own names":  {rights: a, intent: wire.Store, at: "own/.FXFER-x", named: later},
		"a series beside one's snapshots":        {rights: a, intent: wire.Store, at: "own/beside", named: later},
		"a series in one's snapshot":             {rights: a, intent: wire.Store, at: "own/" + snap, named: later},
		"a series in somebody's":                 {rights: a, intent: wire.Store, at: "theirs/new", named: later},
		"a series through a symlink":             {rights: a, intent: wire.Store, at: "link/new", named: later},
		"a series in the place of a file":        {rights: a, intent: wire.Store, at: "plain/" + victim, named: later},
		"a series in a folder that is not empty": {rights: a, intent: wire.Store, at: "plain", named: later},
		"somebody's series":                      {rights: a, intent: wire.Store, at: "theirs", named: later},
		"somebody's series, dry":                 {rights: a, intent: wire.Store, at: "theirs", named: later, target: wire.Target{DryRun: true}},
		"somebody's series, dry, with list":      {rights: l | a, intent: wire.Store, at: "theirs", named: later, target: wire.Target{DryRun: true, Compare: wire.Compare{Checksum: true}}},
		"two series":                             {rights: a, intent: wire.Store, at: "own|theirs", named: later},
		"a snapshot with backups":                {rights: a, intent: wire.Store, at: "own", named: later, target: wire.Target{BackupDir: "b"}},
		"a snapshot that only updates":           {rights: a, intent: wire.Store, at: "own", named: later, target: wire.Target{Compare: wire.Compare{Update: true}}},
		"a hard link to the snapshot before":     {rights: a, intent: wire.Store, at: "own", named: later, entries: many(symlink("../w", "x"), link("f", "../"+snap+"/"+victim)), may: "own"},
		"a hard link to somebody's snapshot":     {rights: a, intent: wire.Store, at: "own", named: later, entries: many(symlink("../w", "x"), link("f", "../../"+victims)), may: "own"},
		"an entry above the snapshot":            {rights: a, intent: wire.Store, at: "own", named: later, entries: many(file("../f")), may: "own"},
		"an entry in the notes":                  {rights: a, intent: wire.Store, at: "own", named: later, entries: many(file(".fxfer-snapshots/owners")), may: "own"},
		"an entry through a symlink of its own":  {rights: a, intent: wire.Store, at: "own", named: later, entries: many(symlink("s", "../../theirs"), file("s/f")), may: "own"},
		"the snapshot as a symlink":              {rights: a, intent: wire.Store, at: "own", named: later, entries: many(symlink(".", "../theirs")), may: "own"},
		"pruning above the snapshot":             {rights: a, intent: wire.Store, at: "own", named: later, prune: "..", may: "own"},
		"removing one's snapshots":               {rights: a, intent: wire.Expire, at: "own"},
		"removing somebody's snapshots":          {rights: r | a, intent: wire.Expire, at: "theirs"},
		"removing snapshots through a symlink":   {rights: w, intent: wire.Expire, at: "link"},
		"somebody's digests of the notes":        {rights: a, intent: wire.Scrub, at: "theirs", named: snap},
		"notes by a name with a way out":         {rights: a, intent: wire.Scrub, at: "own", named: "../theirs/" + snap},
		"one's snapshot and somebody's":          {rights: a, intent: wire.Pull, at: "theirs/" + snap + "|own/" + later},
		"somebody's by way of one's own":         {rights: a, intent: wire.Pull, at: "own/" + snap + "/../../theirs/" + snap},
		"the list of owners":                     {rights: r, intent: wire.Pull, at: "theirs/.fxfer-snapshots/owners"},
		"names in the folder of notes":           {rights: r, intent: wire.List, at: "theirs/.fxfer-snapshots"},
		"an unfinished snapshot by its name":     {rights: r, intent: wire.List, at: "theirs/.fxfer-" + later + ".snap"},
		"names above":                            {rights: l, intent: wire.List, at: "../../outside"},
		"names beside one's snapshots":           {rights: a, intent: wire.List, at: "own/beside"},
		"files beside one's snapshots":           {rights: a, intent: wire.Pull, at: "own/beside"},
		"the newest by its link":                 {rights: rw, intent: wire.Push, at: "", entries: many(symlink("theirs/latest", "beside"))},
		"the newest in capitals":                 {rights: rw, intent: wire.Push, at: "", entries: many(symlink("theirs/LATEST", "beside"))},
		"a snapshot in small letters":            {rights: rw, intent: wire.Push, at: "", entries: many(folder("theirs/" + strings.ToLower(later)))},
		"a folder's mode in a snapshot":          {rights: rw, intent: wire.Push, at: "", entries: many(folder("theirs/" + snap))},
		"a snapshot as the target":               {rights: rw, intent: wire.Push, at: "theirs/" + snap, entries: many(folder("."))},
		"a hard link beside to a snapshot":       {rights: rw, intent: wire.Push, at: "", entries: many(symlink("../w", "x"), link("theirs/beside/f", victims))},
		"backups into a snapshot":                {rights: rw, intent: wire.Push, at: "plain", entries: many(file(victim)), target: wire.Target{BackupDir: "AT/theirs/" + snap}},
		"backups into our own names":             {rights: rw, intent: wire.Push, at: "plain", entries: many(file(victim)), target: wire.Target{BackupDir: "AT/.fxfer-b"}},
		"backups through a symlink":              {rights: rw, intent: wire.Push, at: "plain", entries: many(file(victim)), target: wire.Target{BackupDir: "AT/link/b"}, may: "plain"},
		"a file in the place of a series":        {rights: rw, intent: wire.Push, at: "", entries: many(file("theirs")), target: wire.Target{Delete: true}},
		"pruning a snapshot":                     {rights: rw, intent: wire.Push, at: "", prune: "theirs/" + snap, target: wire.Target{Delete: true}},
		"a mirror of nothing, dry":               {rights: w, intent: wire.Push, at: "own", prune: snap, target: wire.Target{Delete: true, DryRun: true}},
		"a file of 2^62 bytes in a snapshot":     {rights: rw, intent: wire.Push, at: "theirs/" + snap, entries: many(wire.Entry{Kind: wire.File, Path: "f", Size: 1 << 62, BlockLog: wire.MinBlockLog})},
	} {
		x.fresh(t, x.principal(try.rights), "ed25519:somebody")
		before := x.photo(t)
		h := wire.Hello{Intent: try.intent, Share: "data", Snapshot: try.named, Target: try.target}
		h.Target.MaxDelete = -1
		h.Target.Delete = h.Target.Delete || try.intent == wire.Store
		h.Target.BackupDir = strings.Replace(h.Target.BackupDir, "AT", x.at, 1)
		for at := range strings.SplitSeq(try.at, "|") {
			h.Paths = append(h.Paths, strings.TrimSuffix(x.at+"/"+at, "/"))
		}
		p := rawDial(t, x.site, x.keys[try.rights], h)
		switch try.intent {
		case wire.Push, wire.Store:
			p.send(&wire.Manifest{Prune: h.Target.Delete}, &wire.Entries{Entries: try.entries}, &wire.EndManifest{Count: uint64(len(try.entries))})
			if h.Target.Delete {
				p.send(&wire.Prune{Folders: slices.DeleteFunc([]string{try.prune}, func(s string) bool { return s == "" })})
			}
		case wire.Expire:
			p.send(&wire.Prune{Folders: []string{x.names[1]}}, &wire.Prune{})
		}
		_ = p.until(func(m wire.Message) bool {
			switch m := m.(type) {
			case *wire.Folder:
				if !try.rights.Has(r) && try.intent == wire.Push {
					t.Errorf("%s: the server lists %q", name, m.Names)
				}
				p.send(&wire.Extra{})
			case *wire.EndManifest:
				return true
			}
			return finished(m)
		})
		p.close()
		y := &play{world: x}
		var changed []string
		if try.may != "" {
			changed = []string{try.may}
		}
		after := x.photo(t)
		require.Equal(t, y.without(before, changed...), y.without(after, changed...), name)
		require.Equal(t, x.snapshots(before), x.snapshots(after), name)
		count := func(photo []string) int { return strings.Count(strings.Join(photo, ""), secret) }
		require.LessOrEqual(t, count(after), count(before), "%s: another name or a copy", name)
		digest := blake3.Sum256([]byte(secret))
		for _, told := range [][]byte{[]byte(marker), []byte(secret), digest[:], []byte("ed25519:somebody")} {
			require.NotContains(t, p.got.String(), string(told), name)
		}
	}
}

// TestForbiddenShareIsNotListed: a client at an address that may not use a share does not see it.
func TestForbiddenShareIsNotListed(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	var err error
	s.Server, err = server.New(server.Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []server.Share{
		{Name: "data", Dir: s.dir, Rights: r | w},
		{Name: marker, Dir: s.dir, Rights: r | w, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
	}})
	require.NoError(t, err)
	s.stop = sessiontest.Run(t, s.Server)
	defer s.stop()
	p := rawDial(t, s, keyOfHome(t, enrol(t, s)), wire.Hello{Intent: wire.List})
	_ = p.until(func(m wire.Message) bool { _, last := m.(*wire.EndManifest); return last })
	p.close()
	require.Contains(t, p.got.String(), "data")
	require.NotContains(t, p.got.String(), marker)
}
