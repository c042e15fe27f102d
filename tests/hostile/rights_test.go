package hostile

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// The right to append, and the name of a snapshot that each series of these tests has.
const (
	appends = 8
	snap    = "2026-01-01T000000Z"
)

// secretName is a name that no client may learn.
const secretName = "pay-roll"

// answer is what a server said to one operation.
type answer struct {
	code       uint64
	text       string
	entries    int
	bytes      uint64 // of Usage
	everything string // all messages before
}

// do sends an operation on one path.
func (l *line) do(op []byte) (a answer) {
	l.say(op)
	for {
		kind, body := l.next()
		switch kind {
		case 0, refuse:
			a.code, a.text = codeProtocol, "the session ended"
			return a
		case operated:
			n := 0
			a.code, n = binary.Uvarint(body)
			length, m := binary.Uvarint(body[n:])
			a.text = string(body[n+m:][:length])
			a.bytes, _ = binary.Uvarint(body[n+m+int(length):])
			return a
		case entries:
			a.entries++
		}
		a.everything += string(body)
	}
}

// begin begins a session of work on files of a share.
func (s *site) begin(t *testing.T, k key, share string) *line {
	t.Helper()
	l := s.dial(t, k)
	id := byte(sessions.Add(1))
	l.say(request{session: id, secret: id, intent: files, share: share}.bytes())
	l.await(t, welcome)
	return l
}

// dry turns an operation into a dry run.
func dry(op []byte) []byte {
	op[len(op)-1] = 1
	return op
}

// admit writes the list of clients anew: the known key has these grants.
func (s *site) admit(t *testing.T, grants string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.home, "authorized_clients"), []byte(s.known.pin+" "+grants+"\n"), 0o600))
}

// series makes a series with one snapshot and one file beside it.
func series(t *testing.T, dir, owner string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".fxfer-snapshots"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".fxfer-snapshots/owners"), []byte(owner+"\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, snap), 0o700))
	for _, name := range []string{snap + "/f", "beside"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("do not touch"), 0o600))
	}
}

// dropBox is a site with one more share, drop, to which the known key may append. It holds files, a
// series of somebody else, and one of the client.
func dropBox(t *testing.T) *site {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "drop")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/folder", secretName), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/file"), []byte("do not touch"), 0o600))
	require.NoError(t, os.Symlink("folder", filepath.Join(dir, "a/link")))
	s := serve(t, fxfer.ServerOptions{Shares: []fxfer.Share{{Name: "drop", Dir: dir, Rights: appends}}})
	series(t, filepath.Join(dir, "theirs"), "ed25519:somebody")
	series(t, filepath.Join(dir, "mine"), s.known.pin)
	return s
}

// TestWorkHidesNames: who may only append asks in a session of work what exists. What is there and
// is not the client's own, and what is not there, have one answer.
func TestWorkHidesNames(t *testing.T) {
	t.Parallel()
	s := dropBox(t)
	l := s.begin(t, s.known, "drop")
	defer l.Close()
	ops := map[string]func(p string) []byte{}
	for name, do := range map[string]byte{"listing": opList, "asking for": opStat, "counting": opUsage, "reading": opRead, "making": opMkdir, "removing": opRemove} {
		ops[name] = func(p string) []byte { return operationOf(do, "", p) }
	}
	ops["removing in a dry run"] = func(p string) []byte { return dry(operationOf(opRemove, "", p)) }
	ops["moving"] = func(p string) []byte { return operationOf(opMove, "new", p) }
	ops["moving to"] = func(p string) []byte { return operationOf(opMove, p, "mine/"+snap+"/f") }
	for name, op := range ops {
		tried(t, client, "finding out names without the right to list: "+name, "one answer for what is not the client's and for what is not there")
		answers := map[string]string{}
		for _, p := range []string{
			"a/folder", "a/file", "a/link", "a/none", "a/file/x", "a/link/x", "a/" + snap, "a/latest", "none/none/none", "none/" + snap, "none/" + snap + "/f",
			"theirs", "theirs/beside", "theirs/none", "theirs/" + snap, "theirs/" + snap + "/f", "theirs/" + snap + "/none", "theirs/2026-01-02T000000Z", "theirs/latest",
		} {
			if p == "a/folder" && op(p)[5] == opList { // a folder shows nothing, too
				require.Zero(t, l.do(op(p)).entries)
			}
			a := l.do(op(p))
			require.NotContains(t, a.everything+a.text, secretName)
			text := strings.ReplaceAll(strings.ReplaceAll(a.text, fmt.Sprintf("%q", p), "it"), p, "it")
			answers[fmt.Sprint(a.code, a.entries, a.bytes, text)] = p
		}
		require.Len(t, answers, 1, name)
	}
	require.Zero(t, l.do(operationOf(opRead, "", "mine/"+snap+"/f")).code, "what it has appended")
}

// TestRightTakenAway: a session of work began with the right to write and did not use it. Then the
// right is taken from the client.
func TestRightTakenAway(t *testing.T) {
	t.Parallel()
	tried(t, client, "using a right for the first time in a running session, after it was taken away", "the lists decide again when a session needs one more right")
	s := serve(t, fxfer.ServerOptions{})
	l := s.working(t)
	defer l.Close()
	require.Zero(t, l.do(operationOf(opStat, "", "secret")).code)
	s.admit(t, "*=ro")
	require.EqualValues(t, codeRight, l.do(operationOf(opRemove, "", "secret")).code)
	require.FileExists(t, filepath.Join(s.root, "data/secret"))
}

// TestDryRunTellsNothing: who may write and not list asks what a removal would remove.
func TestDryRunTellsNothing(t *testing.T) {
	t.Parallel()
	tried(t, client, "names of a write-only share by the dry run of a removal", guardOf(codeRight))
	s := serve(t, fxfer.ServerOptions{})
	require.NoError(t, os.Mkdir(filepath.Join(s.root, "wo/d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "wo/d", secretName), nil, 0o600))
	s.before = s.look(t)
	l := s.begin(t, s.known, "wo")
	defer l.Close()
	for _, p := range []string{"d", "d/" + secretName, "secret", "none", "."} {
		a := l.do(dry(operationOf(opRemove, "", p)))
		require.EqualValues(t, codeRight, a.code, p)
		require.NotContains(t, a.everything+a.text, secretName)
	}
}

// TestWorkOnSeries: who may write moves, removes and makes what belongs to a series, from inside,
// from above and by the names of what is moved.
func TestWorkOnSeries(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	data := filepath.Join(s.root, "data")
	series(t, filepath.Join(data, "up/web"), "ed25519:somebody")
	series(t, filepath.Join(data, "mine"), s.known.pin)
	require.NoError(t, os.MkdirAll(filepath.Join(data, "x", snap, "d"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(data, "x/2026-02-02t000000z"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "x/latest"), nil, 0o600))
	into := func(folder string, paths ...string) []byte {
		op := operationOf(opMove, folder, paths...)
		op[len(op)-4] = 1
		return op
	}
	l := s.working(t)
	defer l.Close()
	for what, op := range map[string][]byte{
		"removing a folder above a series":              operationOf(opRemove, "", "up"),
		"the same in a dry run":                         dry(operationOf(opRemove, "", "up")),
		"moving a folder above a series":                operationOf(opMove, "down", "up"),
		"moving one's own series":                       operationOf(opMove, "web", "mine"),
		"moving a series into another":                  operationOf(opMove, "mine/2026-02-02T000000Z", "up/web"),
		"moving a file out of a snapshot":               operationOf(opMove, "f", "up/web/"+snap+"/f"),
		"moving a file over one in a snapshot":          operationOf(opMove, "up/web/"+snap+"/f", "secret"),
		"a folder with the name of a snapshot, into":    into("up/web", "x/"+snap),
		"the same in small letters":                     into("mine", "x/2026-02-02t000000z"),
		"a file as the newest, into":                    into("up/web", "x/latest"),
		"the facts about snapshots":                     operationOf(opMove, "facts", "up/web/.fxfer-snapshots"),
		"the owners of a series":                        operationOf(opRead, "", "up/web/.fxfer-snapshots/owners"),
		"a folder in a snapshot, with those above":      operationOf(opMkdir, "", "up/web/"+snap+"/a/b/c"),
		"a folder with the name of the next snapshot":   operationOf(opMkdir, "", "up/web/2026-03-03T000000Z/a"),
		"removing a snapshot through a folder and back": operationOf(opRemove, "", "x/../up/web/"+snap),
	} {
		tried(t, client, "work on a series: "+what, "complete snapshots, and folders that hold any, are changed by nobody")
		require.NotZero(t, l.do(op).code, what)
	}
	for _, name := range []string{"up/web", "mine"} {
		for _, p := range []string{"beside", snap + "/f"} {
			require.FileExists(t, filepath.Join(data, name, p))
		}
	}
	names, err := os.ReadDir(filepath.Join(data, "up/web"))
	require.NoError(t, err)
	require.Len(t, names, 3)
}

// TestQuotaOfWork: sessions at the same time make folders, links and files beyond a quota, and give
// room back that they do not have.
func TestQuotaOfWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, fxfer.ServerOptions{Shares: []fxfer.Share{{Name: "small", Dir: dir, Rights: 3, QuotaFiles: 20}}})
	held := func() (n int) {
		require.NoError(t, filepath.WalkDir(dir, func(string, os.DirEntry, error) error { n++; return nil }))
		return n - 1
	}
	const guard = "room is claimed before an entry is made, and counted anew before it is given again"
	tried(t, client, "folders beyond a quota, by 8 sessions at once", guard)
	var all sync.WaitGroup
	lines := make([]*line, 8)
	for i := range lines {
		lines[i] = s.begin(t, s.known, "small")
		defer lines[i].Close()
		all.Go(func() {
			for n := range 10 {
				lines[i].do(operationOf(opMkdir, "", fmt.Sprint("d", i, "/", n, "/", n)))
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, held(), 20)
	tried(t, client, "room given back twice, by removing and moving what is there and what is not", guard)
	for i, l := range lines {
		all.Go(func() {
			for n := range 6 {
				l.do(operationOf(opRemove, "", "none"))
				l.do(operationOf(opMove, fmt.Sprint("d", i), "none"))
				l.do(operationOf(opMove, fmt.Sprint("moved", i, n), fmt.Sprint("d", i)))
				l.do(operationOf(opMkdir, "", fmt.Sprint("more", i, n)))
				l.do(operationOf(opMove, fmt.Sprint("d", i), fmt.Sprint("moved", i, n)))
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, held(), 20)
	tried(t, client, "hard links and links beyond a quota", guard)
	l := s.dial(t, s.known)
	defer l.Close()
	id := byte(sessions.Add(1))
	l.say(request{session: id, secret: id, intent: push, share: "small", paths: []string{""}}.bytes())
	many := [][]byte{fileOf("first", 0)}
	for n := range 30 {
		many = append(many, entryOf(symlink, fmt.Sprint("s", n), str("x")), entryOf(hardlink, fmt.Sprint("h", n), str("first"), uv(0)))
	}
	l.say(message(manifest, []byte{0, 0}), announce(0, many...), message(endManifest, uv(uint64(len(many))), uv(0)))
	l.finish()
	l.refusal()
	require.LessOrEqual(t, held(), 20)
	require.Zero(t, lines[0].do(operationOf(opRemove, "", "d0")).code)
	require.LessOrEqual(t, held(), 20)
}

// TestDeepAndWide: who may write makes trees that are as deep and as wide as names allow, deeper by
// moving them into each other, and works on them.
func TestDeepAndWide(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	l := s.working(t)
	defer l.Close()
	const guard = "walks keep few folders open and few names, and paths have 4 KiB at most"
	tried(t, client, "listing, counting, moving and removing a tree 310 folders deep, of long names", guard)
	below := strings.Repeat("/a long name", 310)
	for _, top := range []string{"a", "b"} {
		require.Zero(t, l.do(operationOf(opMkdir, "", top+below)).code)
	}
	require.Zero(t, l.do(operationOf(opUsage, "", "a")).code)
	require.Equal(t, 310, l.do(operationOf(opList, "", "a")).entries)
	tried(t, client, "the same tree moved to the end of another, so that its paths are too long", guard)
	require.Zero(t, l.do(operationOf(opMove, "b"+below+"/c", "a")).code)
	for _, op := range []byte{opUsage, opList, opStat} {
		l.do(operationOf(op, "", "b"))
	}
	require.Zero(t, l.do(operationOf(opRemove, "", "b")).code)
	require.NoDirExists(t, filepath.Join(s.root, "data/b"))
	tried(t, client, "1,024 paths in each of many messages, without reading the answers", guard)
	paths := make([]string, 1024)
	for i := range paths {
		paths[i] = "none"
	}
	flood := s.working(t)
	require.NoError(t, flood.SetDeadline(time.Now().Add(time.Second)))
	for range 20 {
		flood.say(operationOf(opStat, "", paths...))
	}
	flood.Close()
	s.honest(t)
}

// TestLinksOfTheShare: work on a tree with symlinks that lead outside, to itself and to the series of
// somebody sees and changes the links alone.
func TestLinksOfTheShare(t *testing.T) {
	t.Parallel()
	s := serve(t, fxfer.ServerOptions{})
	data := filepath.Join(s.root, "data")
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "outside", secretName), []byte(secretName), 0o600))
	s.before = s.look(t)
	require.NoError(t, os.Mkdir(filepath.Join(data, "d"), 0o700))
	for name, to := range map[string]string{"out": "../../outside", "self": "self", "up": "..", "absolute": filepath.Join(s.root, "outside"), "file": "../../outside/" + secretName} {
		require.NoError(t, os.Symlink(to, filepath.Join(data, "d", name)))
	}
	l := s.working(t)
	defer l.Close()
	for _, x := range []struct {
		what string
		op   []byte
		code uint64
	}{
		{"listing a tree", operationOf(opList, "", "d"), 0},
		{"counting a tree", operationOf(opUsage, "", "d"), 0},
		{"counting behind a link", operationOf(opUsage, "", "d/out/"+secretName), codePath},
		{"reading by a link", operationOf(opRead, "", "d/file"), codeUnsupported},
		{"making folders behind a link", operationOf(opMkdir, "", "d/out/new/more"), codeTaken},
		{"moving into a link to a folder", operationOf(opMove, "d/out/stolen", "secret"), codePath},
		{"removing a tree", operationOf(opRemove, "", "d"), 0},
	} {
		tried(t, client, "symlinks in a share that lead outside: "+x.what, "symlinks are entries, and nothing follows them")
		a := l.do(x.op)
		require.Equal(t, x.code, a.code, "%s: %s", x.what, a.text)
		require.NotContains(t, strings.ReplaceAll(a.everything, "../../outside/"+secretName, ""), secretName, x.what)
	}
	require.NoDirExists(t, filepath.Join(data, "d"))
	require.FileExists(t, filepath.Join(data, "secret"))
}
