package client

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// Each of these attacks succeeded once: see SECURITY.md.

func hoursAgo(h int) string { return SnapshotName(time.Now().Add(-time.Duration(h) * time.Hour)) }

// folderOf makes a folder with one file, whose content is its name.
func folderOf(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	return dir
}

// TestAppendReadsNothing: a client that may only append asks for dry runs, so that the server shows
// names or digests that are not the client's own.
func TestAppendReadsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Append)
	defer s.stop()
	evil, victim := enrol(t, s), enrol(t, s)
	_, err := newClient(t, victim, Options{}).Send(t.Context(), []string{folderOf(t, "payroll/salaries.csv") + "/"},
		s.plain(t, "victim"), Transfer{Target: Target{Snapshot: hoursAgo(5)}})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "private"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "private/id_rsa"), []byte("SECRET-KEY-1\n"), 0o600))
	key := keyOfHome(t, evil)
	for _, x := range []struct{ path, snapshot string }{
		{"", "private"}, {"", hoursAgo(1)}, {"victim", hoursAgo(1)}, {"victim", hoursAgo(5)},
		{"nowhere", "../private"}, {"nowhere", "."}, {"private", hoursAgo(1)},
	} {
		p := rawDial(t, s, key, wire.Hello{
			Intent: wire.Store, Share: "data", Paths: []string{x.path}, Snapshot: x.snapshot,
			Target: wire.Target{DryRun: true, Delete: true, MaxDelete: -1, Compare: wire.Compare{Checksum: true}},
		})
		var all []wire.Entry
		for n := range int64(20) { // the size is guessed
			all = append(all, wire.Entry{Kind: wire.File, Path: "id_rsa", Size: n, BlockLog: wire.MinBlockLog})
		}
		p.send(&wire.Manifest{Prune: true}, &wire.Entries{Entries: all}, &wire.EndManifest{Count: 20}, &wire.Prune{Folders: []string{"."}})
		refused := p.until(func(m wire.Message) bool {
			switch m := m.(type) {
			case *wire.Folder:
				t.Errorf("%v: the server lists %q", x, m.Names)
			case *wire.Answers:
				for _, a := range m.Answers {
					require.NotEqual(t, wire.Hash, a.Verdict, "%v: a digest", x)
				}
			}
			return finished(m)
		})
		p.close()
		require.NotNil(t, refused, x)
	}
}

// TestExistenceIsHidden: a client that may only append can't find out which paths there are.
func TestExistenceIsHidden(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Append)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{})
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "a/folder"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "a/file"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/etc", filepath.Join(s.dir, "a/link")))
	_, err := newClient(t, enrol(t, s), Options{}).Send(t.Context(), []string{folderOf(t, "f") + "/"},
		s.plain(t, "theirs"), Transfer{Target: Target{Snapshot: hoursAgo(5)}})
	require.NoError(t, err)
	answers := map[string]bool{}
	for _, p := range []string{"a/folder", "a/file", "a/link", "a/nothing", "a/file/x", "a/link/passwd", "theirs", "theirs/" + hoursAgo(5)} {
		list, err := c.List(t.Context(), s.plain(t, p))
		_, err2 := c.Snapshots(t.Context(), s.plain(t, p))
		_, err3 := c.Get(t.Context(), urls(s.plain(t, p)), t.TempDir(), Transfer{})
		answer := fmt.Sprint(len(list), err, err2, err3)
		answers[strings.ReplaceAll(answer, fmt.Sprintf("%q", p), "it")] = true
	}
	require.Len(t, answers, 1)
	_, err = c.Send(t.Context(), []string{folderOf(t, "f") + "/"}, s.plain(t, "mine"), Transfer{Target: Target{Snapshot: SnapshotAuto}})
	require.NoError(t, err)
}

// TestSnapshotsFromAbove: complete snapshots can't be written from a path above them.
func TestSnapshotsFromAbove(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	evil, victim := enrol(t, s), enrol(t, s)
	old := time.Unix(1_600_000_000, 0)
	dir := folderOf(t, "f")
	require.NoError(t, os.Chtimes(filepath.Join(dir, "f"), old, old))
	a, b := hoursAgo(50), hoursAgo(40)
	for _, n := range []string{a, b} {
		_, err := newClient(t, victim, Options{}).Send(t.Context(), []string{dir + "/"}, s.plain(t, "web"), Transfer{Target: Target{Snapshot: n}})
		require.NoError(t, err)
	}
	before := fingerprint(t, filepath.Join(s.dir, "web", a)) + fingerprint(t, filepath.Join(s.dir, "web", b))
	push := func(from, to string, opt Target) error {
		_, err := newClient(t, evil, Options{}).Send(t.Context(), []string{from + "/"}, s.plain(t, to), Transfer{Target: opt})
		return err
	}
	above := t.TempDir()
	g := filepath.Join(above, "web", b, "f")
	require.NoError(t, os.MkdirAll(filepath.Dir(g), 0o755))
	require.NoError(t, os.WriteFile(g, []byte("x"), 0o600))
	require.NoError(t, os.Chmod(g, 0o777))
	require.NoError(t, os.Chtimes(g, old, old))
	require.Error(t, push(above, "", Target{}), "metadata of a shared file")
	require.NoError(t, os.WriteFile(g, []byte("ransomware"), 0o644))
	require.Error(t, push(above, "", Target{}), "content")
	require.Error(t, push(above, "", Target{Delete: true}), "a mirror")
	forged := hoursAgo(30)
	require.NoError(t, os.Rename(filepath.Join(above, "web", b), filepath.Join(above, "web", forged)))
	require.Error(t, push(filepath.Join(above, "web"), "web", Target{}), "a forged snapshot")
	require.NoFileExists(t, filepath.Join(s.dir, "web", forged, "f"))
	empty := t.TempDir()
	require.Error(t, push(empty, "", Target{Delete: true}), "a mirror of nothing")
	require.NoError(t, os.Mkdir(filepath.Join(empty, "web"), 0o755))
	require.Error(t, push(empty, "", Target{Delete: true}), "a mirror without snapshots")
	require.Error(t, push(empty, "", Target{Delete: true, BackupDir: "away"}), "a mirror with backups")
	require.NoError(t, os.Remove(filepath.Join(empty, "web")))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "web"), nil, 0o600))
	require.Error(t, push(empty, "", Target{Delete: true}), "a file in the place of the series")
	require.Equal(t, before, fingerprint(t, filepath.Join(s.dir, "web", a))+fingerprint(t, filepath.Join(s.dir, "web", b)))

	// What looks like snapshots does not become a series with them.
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "planted", a), 0o755))
	_, err := newClient(t, evil, Options{}).Send(t.Context(), []string{dir + "/"}, s.plain(t, "planted"), Transfer{Target: Target{Snapshot: b}})
	require.Error(t, err)
}

// TestOthersFilesStayUnread: a client that may write and append, but not read, tries to move or link
// what others sent into a snapshot of its own, which it may read.
func TestOthersFilesStayUnread(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write|identity.Append)
	defer s.stop()
	evil := enrol(t, s)
	c := newClient(t, evil, Options{})
	secret := filepath.Join(s.dir, "inbox/secret.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(secret), 0o755))
	require.NoError(t, os.WriteFile(secret, []byte("what another client has sent"), 0o600))
	info, err := os.Stat(secret)
	require.NoError(t, err)
	snap := hoursAgo(2)
	_, err = c.Send(t.Context(), []string{folderOf(t, "x") + "/"}, s.plain(t, "mine"), Transfer{Target: Target{Snapshot: snap}})
	require.NoError(t, err)
	before := fingerprint(t, filepath.Join(s.dir, "mine", snap))
	lure := filepath.Join(folderOf(t, "secret.txt"), "secret.txt")
	for _, backup := range []string{"mine/" + snap, "mine/" + snap + "/loot", "mine/" + hoursAgo(3)} {
		_, err = c.Send(t.Context(), []string{lure}, s.plain(t, "inbox/secret.txt"), Transfer{Target: Target{BackupDir: backup}})
		require.Error(t, err, backup)
	}
	for _, to := range []string{"mine/" + snap + "/loot", "mine/" + snap + "/x"} {
		p := rawDial(t, s, keyOfHome(t, evil), wire.Hello{Intent: wire.Push, Share: "data", Paths: []string{""}, Target: wire.Target{MaxDelete: -1}})
		p.send(&wire.Manifest{}, &wire.Entries{Entries: []wire.Entry{
			{Kind: wire.Symlink, Path: "l", Link: "x"},
			{Kind: wire.Hardlink, Path: to, Link: "inbox/secret.txt", ModTime: info.ModTime().UnixNano()},
		}}, &wire.EndManifest{Count: 2})
		failed := false
		require.Nil(t, p.until(func(m wire.Message) bool {
			if m, ok := m.(*wire.Answers); ok {
				for _, a := range m.Answers {
					failed = failed || a.Index == 1 && a.Verdict == wire.Fail
				}
			}
			return finished(m)
		}))
		p.close()
		require.True(t, failed, to)
	}
	got, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "what another client has sent", string(got))
	require.Equal(t, before, fingerprint(t, filepath.Join(s.dir, "mine", snap)))

	// A folder that looks like a snapshot, before there is a series.
	planted := hoursAgo(4)
	_, err = c.Send(t.Context(), []string{lure}, s.plain(t, "inbox/secret.txt"), Transfer{Target: Target{BackupDir: "new/" + planted}})
	require.NoError(t, err)
	_, err = c.Send(t.Context(), []string{folderOf(t, "x") + "/"}, s.plain(t, "new"), Transfer{Target: Target{Snapshot: hoursAgo(1)}})
	require.Error(t, err)
	_, err = c.Get(t.Context(), urls(s.plain(t, "new/"+planted+"/inbox/secret.txt")), t.TempDir(), Transfer{})
	require.Error(t, err)
}

// TestRefusedSeriesLeaveNothing: what a refused snapshot would need counts before it is made, and
// the first client that may only append does not get the whole share.
func TestRefusedSeriesLeaveNothing(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	var err error
	s.Server, err = server.New(server.Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []server.Share{
		{Name: "data", Dir: s.dir, Rights: identity.Append, QuotaFiles: 20},
	}})
	require.NoError(t, err)
	s.stop = sessiontest.Run(t, s.Server)
	defer s.stop()
	key := keyOfHome(t, enrol(t, s))
	for i, snapshot := range []string{"2099-01-01T000000Z", "latest", "../x", hoursAgo(1)} {
		p := rawDial(t, s, key, wire.Hello{
			Intent: wire.Store, Share: "data", Paths: []string{fmt.Sprint(i, "/", strings.Repeat("a/", 500), "a")}, Snapshot: snapshot,
			Target: wire.Target{Delete: true, MaxDelete: -1},
		})
		require.NotNil(t, p.until(finished), snapshot)
		p.close()
	}
	p := rawDial(t, s, key, wire.Hello{
		Intent: wire.Store, Share: "data", Paths: []string{""}, Snapshot: hoursAgo(1), Target: wire.Target{Delete: true, MaxDelete: -1},
	})
	require.NotNil(t, p.until(finished), "the root")
	p.close()
	names, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestExpireIsAudited: the audit log names each snapshot that is removed.
func TestExpireIsAudited(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := serveWith(t, server.Options{Audit: slog.New(slog.NewJSONHandler(&log, nil))}, identity.Read|identity.Write)
	c := newClient(t, enrol(t, s), Options{})
	a, b := hoursAgo(9), hoursAgo(8)
	for _, n := range []string{a, b} {
		_, err := c.Send(t.Context(), []string{folderOf(t, "x") + "/"}, s.plain(t, "web"), Transfer{Target: Target{Snapshot: n}})
		require.NoError(t, err)
	}
	removed, err := c.PruneSnapshots(t.Context(), s.plain(t, "web"), []string{b})
	require.NoError(t, err)
	require.Equal(t, []string{a}, removed)
	s.stop()
	require.Contains(t, log.String(), `"path":"web/`+a+`","outcome":"removed"`)
}

// TestExpireTakesNames: a server keeps only names of snapshots in memory.
func TestExpireTakesNames(t *testing.T) {
	t.Parallel()
	s := serveWith(t, server.Options{}, identity.Read|identity.Write)
	defer s.stop()
	p := rawDial(t, s, keyOfHome(t, enrol(t, s)), wire.Hello{Intent: wire.Expire, Share: "data", Paths: []string{"web"}})
	defer p.close()
	p.send(&wire.Prune{Folders: slices.Repeat([]string{strings.Repeat("x", wire.MaxPath)}, 200)})
	refused := p.until(func(wire.Message) bool { return false })
	require.NotNil(t, refused)
	require.Equal(t, wire.CodePath, refused.Code, refused.Text)
}

// TestNoPrivilegeFromData: setuid, setgid, devices and privileged attributes are left out and
// reported, in both directions, unless the receiving side asks for them.
func TestNoPrivilegeFromData(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux")
	}
	t.Parallel()
	for _, privileged := range []bool{false, true} {
		s := &site{dir: t.TempDir()}
		var err error
		s.Server, err = server.New(server.Options{Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []server.Share{
			{Name: "data", Dir: s.dir, Rights: identity.Read | identity.Write, Privileged: privileged},
		}})
		require.NoError(t, err)
		s.stop = sessiontest.Run(t, s.Server)
		c := newClient(t, enrol(t, s), Options{})
		from := privilegedFolder(t)
		report, err := c.Send(t.Context(), []string{from + "/"}, s.plain(t, ""), Transfer{})
		require.NoError(t, err)
		require.Equal(t, privileged, fingerprintOf(t, s.dir) == fingerprintOf(t, from), fingerprintOf(t, s.dir))
		told := fmt.Sprint(report.NotStored)
		require.Equal(t, !privileged, strings.Contains(told, "privilege"), told)
		require.Equal(t, !privileged, strings.Contains(told, "it is left out, because a device gives privilege"), told)

		back := t.TempDir()
		source := privilegedFolder(t)
		require.NoError(t, os.RemoveAll(s.dir+"/d"))
		require.NoError(t, os.Rename(source, s.dir+"/d"))
		u := s.plain(t, "d")
		u.TrailingSlash = true
		_, err = c.Get(t.Context(), urls(u), back, Transfer{Target: Target{Privileged: privileged}})
		require.NoError(t, err)
		require.Equal(t, privileged, fingerprintOf(t, back) == fingerprintOf(t, s.dir+"/d"), fingerprintOf(t, back))
		if !privileged {
			for _, dir := range []string{s.dir, back} {
				info, err := os.Stat(dir + "/program")
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o755), info.Mode())
				require.NoFileExists(t, dir+"/device")
			}
		}
		s.stop()
	}
}
