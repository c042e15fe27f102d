package hostile

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// TestServerOverFiles: a client gets the folder d over one that it has, with a folder for backups. The
// server sends what would leave d, or change files that d shares with others.
func TestServerOverFiles(t *testing.T) {
	t.Parallel()
	for what, entries := range map[string][][]byte{
		"a file in the folder for backups":                 {entryOf(dir, "d"), fileOf("old/d/f", 0)},
		"the folder for backups as a symlink":              {entryOf(dir, "d"), entryOf(symlink, "old", str("../outside"))},
		"a hard link to a backup":                          {entryOf(dir, "d"), entryOf(hardlink, "d/stolen", str("old/keep"), uv(0))},
		"a hard link in the folder for backups":            {entryOf(dir, "d"), fileOf("d/f", 0), entryOf(hardlink, "old/f", str("d/f"), uv(0))},
		"a file over a symlink that leads outside":         {entryOf(dir, "d"), fileOf("d/link", 0)},
		"a folder over a symlink that leads outside":       {entryOf(dir, "d"), entryOf(dir, "d/link"), fileOf("d/link/keep", 0)},
		"a file over one that has another name outside":    {entryOf(dir, "d"), fileOf("d/shared", 0)},
		"a symlink over one that has another name outside": {entryOf(dir, "d"), entryOf(symlink, "d/shared", str("x"))},
		"one file twice, the second time as a folder":      {entryOf(dir, "d"), fileOf("d/f", 0), entryOf(dir, "d/f"), fileOf("d/f/keep", 0)},
		"a folder of mode 0, and a file in it":             {entryOf(dir, "d"), cat([]byte{dir, 0}, str("d/shut"), iv(0), uv(0)), fileOf("d/shut/f", 0)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tried(t, server, "over what is there, with backups: "+what, "get takes only what it asked for, and replaces files by their names; other names keep theirs")
			v := newVictim(t)
			for _, name := range []string{"target/d", "target/old"} {
				require.NoError(t, os.Mkdir(v.in(name), 0o700))
			}
			require.NoError(t, os.WriteFile(v.in("target/old/keep"), []byte("do not touch"), 0o600))
			require.NoError(t, os.Symlink("../../outside", v.in("target/d/link")))
			require.NoError(t, os.Link(v.in("outside/keep"), v.in("target/d/shared")))
			p := lure(t, "d", func(l *line) { l.say(opened(entries...)) })
			ctx, cancel := timeout(t)
			defer cancel()
			_, _ = p.client(t, fxfer.Options{}).Get(ctx, []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{Target: fxfer.Target{BackupDir: "old"}})
			v.untouched(t, "d", "old")
			got, err := os.ReadFile(v.in("target/old/keep"))
			require.NoError(t, err)
			require.Equal(t, "do not touch", string(got))
			require.NoFileExists(t, v.in("target/d/stolen"))
			info, err := os.Stat(v.in("outside/keep"))
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode())
			require.Equal(t, time.Unix(0, 0), info.ModTime())
		})
	}
}

// TestServerDigestLies: a client gets a file whose content has another digest than the server says.
func TestServerDigestLies(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		size  int64
		lie   block
		after []byte
	}{
		"a whole file of another digest":     {5, block{kind: 3, length: 5, payload: []byte("hello")}, nil},
		"a block of another digest":          {3 << 16, block{kind: 1, length: 1 << 16, payload: make([]byte, 1<<16)}, nil},
		"a file that ends before its blocks": {3 << 16, block{kind: 1, length: 1 << 16, payload: make([]byte, 1<<16)}, message(endEntry, uv(1), uv(3<<16), make([]byte, 32), uv(0))},
		"a block behind the end of its file": {5, block{kind: 1, length: 1 << 16, num: 1 << 40, payload: make([]byte, 1<<16)}, nil},
		"a block of a file it did not send":  {5, block{kind: 1, length: 1 << 16, index: 1 << 40, payload: make([]byte, 1<<16)}, nil},
		"a block that is larger than it is":  {5, block{kind: 3, flags: 1, length: 5, raw: 1 << 31, payload: []byte("hello")}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tried(t, server, "content: "+what, "a file has its name only when all of it has the digest that the sender announced")
			v := newVictim(t)
			c.lie.index++
			p := lure(t, "d", func(l *line) { l.say(opened(entryOf(dir, "d"), fileOf("d/f", c.size)), c.after) })
			for range cap(p.blocks) {
				p.blocks <- c.lie.bytes()
			}
			ctx, cancel := timeout(t)
			defer cancel()
			_, err := p.client(t, fxfer.Options{}).Get(ctx, []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{})
			require.Error(t, err)
			v.untouched(t, "d")
			require.NoFileExists(t, v.in("target/d/f"))
		})
	}
}

// TestServerShowsSnapshots: a server lists snapshots with names that lead elsewhere. Nothing but names
// of snapshots arrives, and what it says of others is left out.
func TestServerShowsSnapshots(t *testing.T) {
	t.Parallel()
	tried(t, server, "listing snapshots with paths, capitals and control characters as names", "a name of a snapshot is a time, and anything else is left out")
	share := func(name string) []byte { return cat([]byte{4, 0}, str(name), iv(0), uv(0), str("complete")) }
	p := lure(t, "", func(l *line) {
		l.say(announce(0, share(snap), share("../"+snap), share(snap+"/.."), share("latest"), share(strings.ToLower(snap)), share("2026-99-99T000000Z"), share("\x1b[2J"), share("")))
		l.say(message(warn, str("damaged"), str("../../x"), str("\x1b[2J"), uv(huge)), message(endManifest, uv(8), uv(0)))
		l.finish()
	})
	all, err := p.client(t, fxfer.Options{}).Snapshots(t.Context(), p.url)
	for _, x := range all {
		require.Equal(t, snap, x.Name)
		require.Zero(t, x.Damaged)
	}
	require.True(t, err != nil || len(all) == 1, "%v", all)
}

// TestServerShowsManySnapshots: a host that gets snapshots asks for a list, which has more than anybody
// keeps.
func TestServerShowsManySnapshots(t *testing.T) {
	t.Parallel()
	tried(t, server, "listing 300,000 snapshots", "a client keeps a list of about 100,000")
	one := cat([]byte{4, 0}, str(snap), iv(0), uv(0), str("complete"))
	p := lure(t, "", func(l *line) {
		for range 300 {
			l.say(announce(0, slices.Repeat([][]byte{one}, 1000)...))
		}
		l.say(message(endManifest, uv(300_000), uv(0)))
		l.finish()
	})
	all, err := p.client(t, fxfer.Options{}).Snapshots(t.Context(), p.url)
	require.ErrorContains(t, err, "the listing does not end")
	require.Empty(t, all)
}

// TestLocalUserWhereFilesArrive: a local user exchanges folders of the target for symlinks while a
// client gets files into them from an honest server.
func TestLocalUserWhereFilesArrive(t *testing.T) {
	t.Parallel()
	tried(t, user, "exchanging folders of the target for symlinks while a client gets files", "folders are held open, and never opened through a symlink")
	s := serve(t, fxfer.ServerOptions{})
	for i := range 40 {
		name := filepath.Join(s.root, "data/d", fmt.Sprint(i))
		require.NoError(t, os.MkdirAll(name, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(name, "keep"), []byte("stolen"), 0o666))
	}
	v := newVictim(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for i := range 40 {
				select {
				case <-stop:
					return
				default:
				}
				name := v.in(fmt.Sprint("target/d/", i))
				_ = os.Rename(name, name+"x")
				_ = os.Symlink("../../../outside", name)
				_ = os.Remove(name)
				_ = os.Rename(name+"x", name)
			}
		}
	}()
	c, err := fxfer.NewClient(fxfer.Options{Home: t.TempDir(), Transport: carrier})
	require.NoError(t, err)
	for range 5 {
		_, _ = c.Get(t.Context(), []fxfer.URL{s.url(t, "d")}, v.in("target"), fxfer.Transfer{})
	}
	close(stop)
	<-done
	v.untouched(t, "d")
}

// TestServerTalksToTerminal: a server sends names, texts and content with control characters to the
// commands that show them.
func TestServerTalksToTerminal(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\x9b31m\r\u202e"
	say := func(ms ...[]byte) func(*line) {
		return func(l *line) {
			l.say(ms...)
			l.finish()
		}
	}
	done := message(operated, uv(0), str(evil), uv(1), uv(1), make([]byte, 32))
	failed := message(operated, uv(codeNotFound), str(evil), uv(0), uv(0), make([]byte, 32))
	one := announce(0, fileOf("a"+evil, 1))
	for what, c := range map[string]struct {
		args   []string
		script func(*line)
	}{
		"ls":           {[]string{"ls"}, say(one, message(endManifest, uv(1), uv(0)))},
		"ls -R":        {[]string{"ls", "-R"}, say(one, done)},
		"stat":         {[]string{"stat"}, say(one, done)},
		"rm -n":        {[]string{"rm", "-r", "-n"}, say(message(removed, []byte{file}, str("a"+evil)), done)},
		"rm":           {[]string{"rm"}, say(failed)},
		"du":           {[]string{"du"}, say(failed)},
		"cat":          {[]string{"cat"}, say(failed)},
		"mkdir":        {[]string{"mkdir"}, say(failed)},
		"ls of shares": {[]string{"ls"}, say(message(refuse, uv(codeBusy), str(evil)))},
		"verify": {[]string{"verify", "--against", "."}, say(one, message(entryFailed, uv(huge), uv(codeNotFound), str(evil)),
			message(25, uv(1), uv(0), make([]byte, 32)), message(endManifest, uv(1), uv(0)))},
		"verify of a snapshot": {[]string{"verify", "--snapshot", snap}, say(
			message(warn, str(evil), str("a"+evil), str(evil), uv(1)), message(warn, str("extra"), str("a"+evil), str(evil), uv(1)),
			message(endManifest, uv(0), uv(0)))},
		"get, a notice": {[]string{"get"}, say(message(warn, str(evil), str(evil), str(evil), uv(1)), message(refuse, uv(codeRight), str(evil)))},
	} {
		t.Run(what, func(t *testing.T) {
			tried(t, server, "control characters for a terminal: "+what, "texts and names of a peer are shown without control characters")
			p := lure(t, "x", c.script)
			args := slices.Concat(c.args, []string{"--pin", p.pin, p.url.String()})
			if c.args[0] == "get" {
				args = append(args, t.TempDir())
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Env = append(os.Environ(), serveEnv+"=1", "FXFER_HOME="+t.TempDir(), "FXFER_RETRY_FOR=0")
			out, _ := cmd.CombinedOutput()
			require.NotEmpty(t, out)
			for _, bad := range []string{"\x1b", "\x9b", "\r", "\u202e"} {
				require.NotContains(t, string(out), bad, "%q", out)
			}
		})
	}
}

// TestServerScrubLies: a client has a snapshot verified, and the server answers with numbers that there are not, or
// with a finding that there is not.
func TestServerScrubLies(t *testing.T) {
	t.Parallel()
	tried(t, server, "verifying a snapshot, with numbers that there are not", "a peer's numbers are clamped, and decide nothing beyond bounds")
	tried(t, server, "verifying a snapshot, with a finding that there is not", "findings are known words; others end the session")
	values := func(n int64) []byte {
		var all []byte
		for _, name := range []string{"total", "files", "bytes", "same"} {
			all = append(all, cat(str(name), iv(n))...)
		}
		return message(sample, uv(4), all)
	}
	for _, n := range []int64{math.MinInt64, -1, math.MaxInt64} {
		p := lure(t, "", func(l *line) {
			l.say(values(n), message(endManifest, uv(0), uv(0)))
			l.finish()
		})
		look := func(p fxfer.Progress) {
			if p.Files < 0 || p.FilesDone < 0 || p.Bytes < 0 || p.BytesDone < 0 {
				t.Errorf("%+v", p)
			}
		}
		sum, err := p.client(t, fxfer.Options{}).Scrub(t.Context(), p.url, snap, fxfer.Verification{
			Difference: func(d fxfer.Difference) { t.Errorf("%+v", d) }, Progress: look,
		})
		require.NoError(t, err)
		require.GreaterOrEqual(t, min(sum.Files, sum.Bytes, sum.Same), int64(0))
	}
	for _, what := range []string{"fine", ""} {
		p := lure(t, "", func(l *line) {
			l.say(message(warn, str(what), str("a"), str(""), uv(1)), message(endManifest, uv(0), uv(0)))
			l.finish()
		})
		_, err := p.client(t, fxfer.Options{}).Scrub(t.Context(), p.url, snap, fxfer.Verification{
			Difference: func(d fxfer.Difference) { t.Errorf("%+v", d) },
		})
		require.Error(t, err, what)
	}
}

// TestServerPrunesSnapshots: a client has snapshots removed, and the server says that it has removed what is none, or
// what was to be kept.
func TestServerPrunesSnapshots(t *testing.T) {
	t.Parallel()
	const old = "2025-01-01T000000Z"
	for name, what := range map[string]string{
		"a path": "../" + old, "control characters": "\x1b[2J", "nothing": "", "a path of 4,096 bytes": strings.Repeat("x", 4096), "one to keep": snap,
	} {
		tried(t, server, "having removed, of a series: "+name, "what was removed is a snapshot, and not one to keep")
		p := lure(t, "", func(l *line) {
			l.say(message(removed, []byte{dir}, str(old)), message(removed, []byte{dir}, str(what)), message(endManifest, uv(0), uv(0)))
			l.finish()
		})
		gone, err := p.client(t, fxfer.Options{}).PruneSnapshots(t.Context(), p.url, []string{snap})
		require.Error(t, err, name)
		require.Equal(t, []string{old}, gone, name)
	}
}

// TestInvitationByMany: one invitation is redeemed by many keys at the same moment, and asks for more
// than it grants.
func TestInvitationByMany(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	text, err := s.Invite(fxfer.InviteOptions{Host: "127.0.0.1", Shares: []string{"ro"}})
	require.NoError(t, err)
	u, err := fxfer.ParseURL(text)
	require.NoError(t, err)
	prove := func(l *line) []byte {
		state := stateOf(l.Conn)
		exported, err := state.ExportKeyingMaterial("EXPORTER-fxfer-invitation", nil, 32)
		require.NoError(t, err)
		mac := hmac.New(sha256.New, []byte(u.Token))
		mac.Write([]byte("fxfer invitation v1\x00"))
		mac.Write(exported)
		return mac.Sum(nil)
	}
	tried(t, stranger, "one invitation, redeemed by 16 keys at the same moment", "an invitation is valid once")
	var all sync.WaitGroup
	keys := make([]key, 16)
	admitted := make(chan int, len(keys))
	for i := range keys {
		keys[i] = newKey(t)
		l := s.dial(t, keys[i])
		proof := prove(l)
		all.Go(func() {
			l.say(request{intent: list, share: "ro", paths: []string{""}, proof: proof}.bytes())
			if kind, _ := l.next(); kind != refuse && kind != 0 {
				admitted <- i
			}
		})
	}
	all.Wait()
	close(admitted)
	var first []int
	for i := range admitted {
		first = append(first, i)
	}
	require.Len(t, first, 1)
	for _, share := range []string{"data", "wo", "none"} {
		tried(t, client, "an invitation for one share, used for the share "+share, guardOf(codeRight))
		l := s.dial(t, keys[first[0]])
		l.say(request{intent: list, share: share, paths: []string{""}}.bytes())
		code, said := l.refusal()
		require.EqualValues(t, codeRight, code, said)
		require.Contains(t, said, "there is no share", "one answer for all")
		l.Close()
	}
}

// timeout bounds what a server may keep waiting.
func timeout(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}
