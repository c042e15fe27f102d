package client

import (
	"bytes"
	"crypto/ed25519"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// The matrix has every client do everything everywhere, with every option that changes an effect,
// against a real server, and compares what happened with a model of a few lines: cell.sees and
// cell.changes. It is what notices when one check of internal/access is missing:
// .ci/mutate-access removes them one by one.

const (
	r, w, l, a = identity.Read, identity.Write, identity.List, identity.Append
	marker     = "m4rker"         // a name that no client sends
	victim     = "victim"         // a file in each place
	secret     = "secret content" // of both
)

var tried = flag.Int("cells", 0, "cells of TestMatrix, 0 for those of covering, or a few with -short")

// cell is one thing that one client does.
type cell struct {
	rights identity.Rights
	does   string // an action
	option string
	kind   string // of the entry that is sent
	place  string
	above  bool // the request is for the folder that has all places, the place comes with the entry
}

var (
	allRights = []identity.Rights{r, w, r | w, l, a, w | a, w | l, l | a, r | a}
	reads     = []string{"list", "series", "pull", "verify", "scrub"}
	works     = []string{"ls", "ls -R", "stat", "du", "cat", "mkdir", "mkdir -p", "rm", "rm -r", "rm -n", "mv", "mv in", "mv out", "rm series", "mv series"}
	places    = []string{"plain", "own", "theirs", "own beside", "theirs beside", "own new", "outside", "link", "way"}
	kinds     = []string{"file", "meta", "dir", "symlink", "fifo", "hardlink", "stolen"}
	pushes    = []string{"", "dry", "delete", "checksum", "update", "existing", "ignore", "delta", "backup", "backup own"}
	stores    = []string{"", "dry", "checksum", "allow failed"}
	storedAt  = []string{"own", "theirs", "fresh", "plain", "inside", "link"}
)

func matrix() (all []cell) {
	for _, rights := range allRights {
		for _, place := range places {
			for _, does := range reads {
				if does == "scrub" && place != "own" && place != "theirs" {
					continue
				}
				all = append(all, cell{rights: rights, does: does, place: place})
			}
			for _, does := range works {
				all = append(all, cell{rights: rights, does: does, place: place})
			}
			for _, option := range pushes {
				for _, kind := range kinds {
					all = append(all, cell{rights, "push", option, kind, place, false}, cell{rights, "push", option, kind, place, true})
				}
			}
		}
		for _, place := range storedAt {
			for _, option := range stores {
				all = append(all, cell{rights: rights, does: "store", option: option, place: place})
			}
		}
		for _, place := range []string{"own", "theirs", "plain"} {
			all = append(all, cell{rights: rights, does: "expire", place: place})
		}
	}
	return all
}

// covering leaves out cells as long as any three of client, action, entry and place that meet in all
// still meet in one that it returns.
func covering(all []cell) (some []cell) {
	met := map[[4]string]bool{}
	for _, c := range all {
		four := [4]string{fmt.Sprint(c.rights), c.does + " " + c.option, fmt.Sprint(c.kind, c.above), c.place}
		fresh := false
		for i := range four {
			three := four
			three[i] = "any"
			fresh = fresh || !met[three]
			met[three] = true
		}
		if fresh {
			some = append(some, c)
		}
	}
	return some
}

// The model.

func (c cell) has(x identity.Rights) bool { return c.rights&x != 0 }
func (c cell) appends() bool              { return c.has(a) || c.rights&(r|w) == r|w }

// sees reports whether the client may learn the names, or with content the content, at its place.
func (c cell) sees(content bool) bool {
	if c.place == "outside" || c.place == "link" {
		return false
	}
	return c.has(r) || c.has(l) && !content || c.has(a) && c.place == "own"
}

// works reports whether an operation on files is done.
func (c cell) works() bool {
	there, lists := c.place != "own new", c.has(r) || c.has(l)
	link := lists && (c.place == "link" || c.place == "way") // an entry like others, unless it is followed
	switch c.does {
	case "ls": // a client that may append learns nothing of what is not its own, not even that it exists
		return there && c.sees(false) || link || c.has(a) && !lists && there && c.place != "outside"
	case "ls -R", "du":
		return there && c.sees(false) || link
	case "stat":
		return there && c.sees(false)
	case "cat":
		return there && c.sees(true)
	case "rm -n":
		return c.has(w) && (c.sees(false) && c.writable() || link)
	case "rm -r":
		return c.may() || c.has(w) && (c.place == "link" || c.place == "way")
	}
	return c.may()
}

// writable reports whether a client that may write changes the place without making a snapshot.
func (c cell) writable() bool { return c.place == "plain" || strings.HasSuffix(c.place, "beside") }

// may reports whether the client may change the place, or for snapshots the series.
func (c cell) may() bool {
	switch c.does {
	case "store":
		mine := c.place == "own" || c.place == "fresh"
		may := c.has(w) && (mine || c.place == "theirs" || c.place == "plain") || c.has(a) && mine
		return may && c.option != "dry" && (c.option != "checksum" || c.appends())
	case "expire":
		return c.has(w) && c.place != "plain"
	case "mkdir", "mkdir -p", "rm", "rm -r", "mv", "mv in", "mv out":
		return c.writable() && c.has(w)
	case "push":
		looks := c.option == "dry" || c.option == "delete" || c.option == "checksum"
		return c.writable() && c.has(w) && (!looks || c.has(r)) && c.option != "dry" && c.option != "backup own"
	}
	return false
}

// changes reports whether the place, or the series, is another afterwards.
func (c cell) changes() bool {
	if c.does != "push" || !c.may() || c.option == "delete" {
		return c.may()
	}
	fresh := c.kind == "dir" || c.kind == "hardlink"
	switch {
	case c.kind == "stolen":
		return false
	case c.option == "existing":
		return !fresh
	case c.option == "ignore":
		return fresh
	}
	return true
}

// world is the share's folder with all places, for one cell after the other.
type world struct {
	site  *site
	keys  map[identity.Rights]ed25519.PrivateKey
	at    string // below the share
	n     *atomic.Int64
	names [3]string // of snapshots: two complete ones, and a newer one
}

var when = time.Unix(1_600_000_000, 0)

func (x *world) in(p string) string { return filepath.Join(x.site.dir, x.at, p) }

// fresh makes new places, under a new name.
func (x *world) fresh(t testing.TB, own, theirs identity.Principal) {
	x.at = fmt.Sprintf("w%d", x.n.Add(1))
	owners := map[string]identity.Principal{"own": own, "theirs": theirs}
	for _, dir := range []string{
		"plain", "plain/d", "own/" + x.names[0], "own/" + x.names[1], "own/beside",
		"theirs/" + x.names[0], "theirs/" + x.names[1], "theirs/beside",
	} {
		require.NoError(t, os.MkdirAll(x.in(dir), 0o755))
		for _, name := range []string{marker, victim} {
			require.NoError(t, os.WriteFile(x.in(dir+"/"+name), []byte(secret), 0o600))
			require.NoError(t, os.Chtimes(x.in(dir+"/"+name), when, when))
		}
	}
	for series, owner := range owners {
		require.NoError(t, os.Mkdir(x.in(series+"/.fxfer-snapshots"), 0o700))
		require.NoError(t, os.WriteFile(x.in(series+"/.fxfer-snapshots/owners"), []byte(owner+"\n"), 0o600))
	}
	require.NoError(t, os.Symlink("../../outside", x.in("link")))
	require.NoError(t, os.Symlink("plain/../theirs/"+x.names[0], x.in("way")))
}

func (x *world) principal(rights identity.Rights) identity.Principal {
	return identity.Principal(identity.PinOfPrivate(x.keys[rights]))
}

// pathOf returns where a place is, below at.
func (x *world) pathOf(place string) string {
	switch place {
	case "own", "theirs":
		return place + "/" + x.names[0]
	case "own new":
		return "own/" + x.names[2]
	case "own beside", "theirs beside":
		return strings.Replace(place, " ", "/", 1)
	case "outside":
		return "../../outside"
	case "inside":
		return "own/" + x.names[0] + "/sub"
	}
	return place
}

func newWorlds(t *testing.T, workers int) (all []*world) {
	root := t.TempDir()
	s := &site{dir: filepath.Join(root, "share")}
	for _, dir := range []string{"share", "outside"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, name := range []string{marker, victim} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "outside", name), []byte(secret), 0o600))
	}
	opt := server.Options{
		Home: t.TempDir(), Listen: "127.0.0.1:0", MaxHandshakes: 1e6, MaxHandshakesPerAddress: 1e6, MaxConnections: 4096, MaxConnectionsPerAddress: 4096,
		Shares: []server.Share{{Name: "data", Dir: s.dir, Rights: r | w}},
	}
	keys := map[identity.Rights]ed25519.PrivateKey{}
	for _, rights := range allRights {
		key := keyOfHome(t, t.TempDir())
		keys[rights] = key
		opt.Clients = append(opt.Clients, server.Admission{Key: string(identity.PinOfPrivate(key)), Rights: map[string]identity.Rights{"data": rights}})
	}
	var err error
	s.Server, err = server.New(opt)
	require.NoError(t, err)
	t.Cleanup(sessiontest.Run(t, s.Server))
	n := new(atomic.Int64)
	for range workers {
		all = append(all, &world{site: s, keys: keys, n: n, names: [3]string{hoursAgo(9), hoursAgo(8), hoursAgo(1)}})
	}
	return all
}

// try does what the cell says. It returns all that the server sent.
func (x *world) try(t testing.TB, c cell) []byte {
	at := x.pathOf(c.place)
	h := wire.Hello{Share: "data", Paths: []string{path.Join(x.at) + "/" + at}, Target: wire.Target{MaxDelete: -1, Sync: wire.SyncNone}}
	series := func() { h.Paths[0] = x.at + "/" + strings.Split(at, "/")[0] }
	var prune []string
	switch c.does {
	case "list":
		h.Intent = wire.List
	case "series":
		h.Intent = wire.Series
		series()
	case "pull":
		h.Intent = wire.Pull
	case "verify":
		h.Intent = wire.Verify
	case "scrub":
		h.Intent, h.Snapshot = wire.Scrub, x.names[0]
		series()
	case "expire":
		h.Intent = wire.Expire
		series()
	case "store":
		h.Intent, h.Snapshot, h.Target.Delete = wire.Store, x.names[2], true
		if c.place != "inside" {
			series()
		}
		prune = []string{}
	case "push":
		h.Intent = wire.Push
	default:
		h.Intent, h.Paths = wire.Files, nil
	}
	opt := &h.Target
	switch c.option {
	case "dry":
		opt.DryRun = true
	case "delete":
		opt.Delete = true
		prune = []string{"."}
	case "checksum":
		opt.Compare.Checksum = true
	case "update":
		opt.Compare.Update = true
	case "existing":
		opt.Compare.Existing = true
	case "ignore":
		opt.Compare.IgnoreExisting = true
	case "delta":
		opt.Delta = wire.DeltaFixed
	case "backup":
		opt.BackupDir = x.at + "/backup"
	case "backup own":
		opt.BackupDir = x.at + "/own/" + x.names[0] + "/loot"
	case "allow failed":
		opt.AllowFailed = 5
	}
	if c.place == "way" && (c.does == "pull" || c.does == "verify") {
		h.Paths[0] += "/"
	}
	prefix := ""
	if c.above {
		h.Paths[0], prefix = x.at, at+"/"
		if prune != nil {
			prune = []string{at}
		}
	}
	p := rawDial(t, x.site, x.keys[c.rights], h)
	defer p.close()
	switch c.does {
	case "expire":
		p.send(&wire.Prune{Folders: []string{x.names[1]}}, &wire.Prune{})
	case "store", "push":
		x.send(p, c, prefix, prune)
		return p.got.Bytes()
	}
	if h.Intent == wire.Files {
		p.send(x.operation(c))
		_ = p.until(func(m wire.Message) bool {
			_, last := m.(*wire.Operated)
			return last
		})
		return p.got.Bytes()
	}
	_ = p.until(func(m wire.Message) bool {
		_, last := m.(*wire.EndManifest)
		return last
	})
	return p.got.Bytes()
}

// operation returns what a cell does with files.
func (x *world) operation(c cell) *wire.Operation {
	at := x.at + "/" + x.pathOf(c.place)
	series := x.at + "/" + strings.Split(x.pathOf(c.place), "/")[0]
	switch c.place {
	case "plain", "outside", "link", "way":
		series = x.at + "/theirs"
	}
	switch c.does {
	case "ls":
		return &wire.Operation{Do: wire.OpList, Paths: []string{at}}
	case "ls -R":
		return &wire.Operation{Do: wire.OpList, Paths: []string{at}, Recursive: true}
	case "stat":
		return &wire.Operation{Do: wire.OpStat, Paths: []string{at + "/" + victim}}
	case "du":
		return &wire.Operation{Do: wire.OpUsage, Paths: []string{at}}
	case "cat":
		return &wire.Operation{Do: wire.OpRead, Paths: []string{at + "/" + victim}}
	case "mkdir":
		return &wire.Operation{Do: wire.OpMkdir, Paths: []string{at + "/made"}}
	case "mkdir -p":
		return &wire.Operation{Do: wire.OpMkdir, Paths: []string{at + "/made/below"}, Recursive: true}
	case "rm":
		return &wire.Operation{Do: wire.OpRemove, Paths: []string{at + "/" + victim}}
	case "rm -r":
		return &wire.Operation{Do: wire.OpRemove, Paths: []string{at}, Recursive: true}
	case "rm -n":
		return &wire.Operation{Do: wire.OpRemove, Paths: []string{at}, Recursive: true, DryRun: true}
	case "mv":
		return &wire.Operation{Do: wire.OpMove, Paths: []string{at + "/" + victim}, To: at + "/moved"}
	case "mv in":
		return &wire.Operation{Do: wire.OpMove, Paths: []string{x.at + "/plain/d/" + victim}, To: at + "/" + victim, Replace: true}
	case "mv out":
		return &wire.Operation{Do: wire.OpMove, Paths: []string{at + "/" + victim}, To: x.at + "/plain/d", Into: true, Replace: true}
	case "rm series":
		return &wire.Operation{Do: wire.OpRemove, Paths: []string{series}, Recursive: true}
	case "mv series":
		return &wire.Operation{Do: wire.OpMove, Paths: []string{series}, To: x.at + "/plain/s"}
	}
	panic("no operation: " + c.does)
}

// operated reports whether the server did an operation.
func operated(got []byte) bool {
	r := wire.NewReader(bytes.NewReader(got), wire.MaxMessage)
	for {
		m, err := r.Next()
		if err != nil {
			return false
		}
		if m, ok := m.(*wire.Operated); ok {
			return m.Code == 0
		}
	}
}

// send announces entries, and answers the server until it has finished.
func (x *world) send(p *rawPeer, c cell, prefix string, prune []string) {
	name, now := prefix+victim, time.Now().UnixNano()
	file := wire.Entry{Kind: wire.File, Path: name, Mode: 0o640, ModTime: now, BlockLog: wire.MinBlockLog}
	entries := []wire.Entry{file}
	switch c.kind {
	case "meta":
		entries[0].Size, entries[0].ModTime = int64(len(secret)), when.UnixNano()
	case "dir":
		entries = []wire.Entry{{Kind: wire.Dir, Path: prefix + "new", Mode: 0o755}}
	case "symlink":
		entries = []wire.Entry{{Kind: wire.Symlink, Path: name, Link: "x", ModTime: now}}
	case "fifo":
		entries = []wire.Entry{{Kind: wire.Fifo, Path: name, Mode: 0o600, ModTime: now}}
	case "hardlink":
		entries[0].Path, entries[0].Named = prefix+"first", true
		entries = append(entries, wire.Entry{Kind: wire.Hardlink, Path: name, Link: prefix + "first", ModTime: now})
	case "stolen": // another name for a file of theirs; the first entry fails, so the link need not wait
		theirs := "theirs/" + x.names[0] + "/" + victim
		if !c.above {
			theirs = "../../" + theirs
		}
		entries = []wire.Entry{
			{Kind: wire.Symlink, Path: "../way", Link: "x"},
			{Kind: wire.Hardlink, Path: name, Link: theirs, ModTime: when.UnixNano()},
		}
	}
	end := uint64(len(entries))
	p.send(&wire.Manifest{Prune: prune != nil}, &wire.Entries{Entries: entries})
	p.send(&wire.EndManifest{Count: end})
	if prune != nil {
		p.send(&wire.Prune{Folders: prune})
	}
	_ = p.until(func(m wire.Message) bool {
		switch m := m.(type) {
		case *wire.Folder: // the client has nothing of it
			extra := &wire.Extra{}
			for i := range m.Names {
				extra.Names = append(extra.Names, uint64(i))
			}
			p.send(extra)
		case *wire.Answers:
			for _, a := range m.Answers {
				switch {
				case a.Verdict == wire.Need && c.kind == "meta": // there is no stream for its data
					p.send(&wire.EntryFailed{Index: a.Index, Code: wire.CodeSourceDisk, Text: "no"})
				case a.Verdict == wire.Hash:
					p.send(&wire.Compared{Index: a.Index, Same: a.Digest == blake3.Sum256([]byte(secret))})
				}
			}
		}
		return finished(m)
	})
}

// photo describes the world, and what is outside of the share, a line for each entry.
func (x *world) photo(t testing.TB) (lines []string) {
	all := fingerprint(t, x.in(".")) + fingerprint(t, x.in("../../outside"))
	return strings.Split(all, "\n")
}

// of returns the lines about p and what is below it.
func (x *world) of(photo []string, p string) (lines []string) {
	at := x.in(p)
	for _, line := range photo {
		if rest, ok := strings.CutPrefix(line, at); ok && (rest[0] == ' ' || rest[0] == filepath.Separator) {
			lines = append(lines, line)
		}
	}
	return lines
}

// snapshots returns the lines about all snapshots that were complete at first.
func (x *world) snapshots(photo []string) (lines []string) {
	for _, series := range []string{"own", "theirs"} {
		for _, name := range x.names[:2] {
			lines = append(lines, x.of(photo, series+"/"+name)...)
		}
	}
	return lines
}

// check tries a cell, and compares what happened with the model. before is the world as it is, and
// after as it is then.
func (x *world) check(t testing.TB, c cell, before []string) (after []string) {
	at := x.pathOf(c.place)
	switch {
	case c.does == "store":
		at = strings.Split(at, "/")[0] + "/" + x.names[2]
	case c.does == "expire":
		at = strings.Split(at, "/")[0]
	case c.place == "link":
		at = "../../outside"
	case c.place == "way":
		at = "theirs/" + x.names[0]
	}
	got := x.try(t, c)
	after = x.photo(t)
	require.Equal(t, c.changes(), !slices.Equal(x.of(before, at), x.of(after, at)), "%+v changes the place", c)
	if c.does != "expire" {
		require.Equal(t, x.snapshots(before), x.snapshots(after), "%+v changes snapshots", c)
	}
	digest := blake3.Sum256([]byte(secret))
	sees := bytes.Contains(got, []byte(marker))
	if slices.Contains(works, c.does) {
		require.Equal(t, c.works(), operated(got), "%+v is done", c)
		if c.does != "cat" {
			require.NotContains(t, string(got), secret, "%+v", c)
		}
	}
	switch c.does {
	case "list", "pull", "verify":
		require.Equal(t, c.does == "list" && c.place != "own new" && c.sees(false) || c.does != "list" && c.place != "own new" && c.sees(true), sees, "%+v sees names", c)
		require.Equal(t, c.does == "verify" && sees, bytes.Contains(got, digest[:]), "%+v sees digests", c)
	case "series":
		own := strings.HasPrefix(c.place, "own")
		may := (c.has(r) || c.has(l) || c.has(a) && own) && (own || strings.HasPrefix(c.place, "theirs"))
		require.Equal(t, may, bytes.Contains(got, []byte(x.names[0])), "%+v sees snapshots", c)
	case "ls", "ls -R", "rm -n":
		followed := c.place != "way" || c.does != "rm -n"
		require.Equal(t, c.works() && c.place != "own new" && c.sees(false) && followed, sees, "%+v sees names", c)
	case "cat":
		require.Equal(t, c.works(), bytes.Contains(got, []byte(secret)), "%+v sees content", c)
		require.Equal(t, c.works(), bytes.Contains(got, digest[:]), "%+v sees digests", c)
	default:
		require.False(t, sees && !c.sees(false) && !c.has(r), "%+v is told names", c)
		require.False(t, bytes.Contains(got, digest[:]) && !c.has(r) && !(c.has(a) && c.place == "own"), "%+v is told digests", c)
	}
	return after
}

func TestMatrix(t *testing.T) {
	cells, n := matrix(), *tried
	if n == 0 && testing.Short() {
		n = 200
	}
	// The same cells in each run: a fault appears with the change that made it.
	rng := rand.New(rand.NewPCG(1, 0))
	rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	if n > 0 {
		cells = cells[:min(n, len(cells))]
	} else {
		cells = covering(cells)
	}
	t.Logf("%d cells", len(cells))
	// Cells of the same client share a world until one changes it.
	slices.SortStableFunc(cells, func(a, b cell) int { return int(a.rights) - int(b.rights) })
	var next atomic.Int64
	var failed atomic.Bool
	for i, x := range newWorlds(t, 4) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			defer func() { failed.Store(failed.Load() || t.Failed()) }()
			var last cell
			var now []string // nil if the world is not as it was made
			for i := next.Add(1) - 1; i < int64(len(cells)) && !failed.Load(); i = next.Add(1) - 1 {
				if now == nil || last.rights != cells[i].rights {
					x.fresh(t, x.principal(cells[i].rights), "ed25519:somebody")
					now = x.photo(t)
				}
				last = cells[i]
				if after := x.check(t, last, now); !slices.Equal(now, after) {
					now = nil
				}
			}
		})
	}
}
