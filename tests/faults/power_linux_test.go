package faults

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

var cuts = flag.Int("cuts", 6, "power cuts for each workload of TestPowerLoss")

// medium is what a power cut leaves of recorded ops. Everything that was synced is there. Of the
// rest, any part may be there, torn at sectors and out of order.
type medium struct {
	files   map[string][]byte // by path
	nodes   map[string]int    // their files in the record
	folders map[string]bool
	durable int // number of ops that a sync covers
}

// cutAt cuts power after the first n ops on the files of before. Chance decides which unsynced
// pieces remain.
func cutAt(ops []op, n int, before map[string][]byte, rng *rand.Rand) *medium {
	ops = ops[:n]
	// Chance also decides how much remains, whether names appear in order, as with a journal, and
	// what a sector contains that was never written.
	keep := []float64{0, 1, rng.Float64(), rng.Float64()}[rng.IntN(4)]
	journal := -1
	if rng.IntN(2) == 0 {
		journal = rng.IntN(n + 1)
	}
	sector := []int64{512, 4096}[rng.IntN(2)]
	stale := []byte{0, 0xa5}[rng.IntN(2)]

	files, folders, all := map[int]int{}, map[string]int{}, 0 // earlier ops are on the medium
	for _, o := range ops {
		switch o.kind {
		case opSyncFile:
			files[o.node] = max(files[o.node], o.from)
		case opSyncFolder:
			folders[o.path] = max(folders[o.path], o.from)
		case opSyncAll:
			all = max(all, o.from)
		}
	}
	m := &medium{files: map[string][]byte{}, nodes: map[string]int{}, folders: map[string]bool{".": true}}
	content, names := map[int][]byte{}, map[string]int{}
	i := 0
	for _, name := range sorted(before) {
		i++
		content[i], names[name] = bytes.Clone(before[name]), i
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			m.folders[above] = true
		}
	}
	resize := func(node int, size int64, fill byte) {
		b := content[node]
		if grown := size - int64(len(b)); grown > 0 {
			content[node] = append(b, bytes.Repeat([]byte{fill}, int(grown))...)
		} else {
			content[node] = b[:size]
		}
	}
	for i, o := range ops {
		sure := i < max(all, files[o.node])
		if o.kind >= opUnlink && o.kind <= opMkdir || o.kind == opCreate {
			sure = i < max(all, folders[path.Dir(o.path)])
			if journal >= 0 && i < journal {
				sure = true
			}
			if !sure && (journal >= 0 || rng.Float64() >= keep) {
				continue
			}
			m.durable++
		}
		hole := byte(0)
		if !sure {
			hole = stale
		}
		switch o.kind {
		case opCreate, opLink:
			names[o.path] = o.node
		case opUnlink:
			delete(names, o.path)
			delete(m.folders, o.path)
		case opRename:
			names[o.to] = o.node
			delete(names, o.path)
		case opMkdir:
			m.folders[o.path] = true
		case opWrite:
			for from := int64(0); from < int64(len(o.data)); {
				to := min((o.off+from)/sector*sector+sector-o.off, int64(len(o.data)))
				if sure || rng.Float64() < keep {
					if o.off+to > int64(len(content[o.node])) {
						resize(o.node, o.off+to, hole)
					}
					copy(content[o.node][o.off+from:], o.data[from:to])
				}
				from = to
			}
		case opZero:
			if end := min(o.off+o.size, int64(len(content[o.node]))); end > o.off && (sure || rng.Float64() < keep) {
				clear(content[o.node][o.off:end])
			}
		case opResize:
			if sure || rng.Float64() < keep {
				resize(o.node, o.size, hole)
			}
		case opExtend:
			if o.size > int64(len(content[o.node])) && (sure || rng.Float64() < keep) {
				resize(o.node, o.size, 0) // unwritten space reads as zeros
			}
		case opSyncFile, opSyncFolder, opSyncAll:
		}
	}
	for name, node := range names {
		if m.reachable(name) {
			m.files[name], m.nodes[name] = content[node], node
		}
	}
	return m
}

func (m *medium) reachable(name string) bool {
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if !m.folders[above] {
			return false
		}
	}
	return true
}

// restore writes what is left below dir, as the next run of the kernel finds it. The files had these
// inodes.
func (m *medium) restore(dir string, inodes map[int]uint64) error {
	for name := range m.folders {
		if !m.reachable(name) {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(sorted(m.files)) { // a partial file before its checkpoint
		b := m.files[name]
		if reserved, is := strings.CutSuffix(name, ".ckpt"); is {
			b = bytes.Clone(b)
			bootless(b)
			partial := reserved + ".part"
			copied, _ := statOf(filepath.Join(dir, partial))
			beside(b, inodes[m.nodes[partial]], copied.ino)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// resolveRenames finds the file of each rename, so that the rename no longer depends on its old
// name.
func resolveRenames(ops []op, before map[string][]byte) {
	names := map[string]int{}
	for i, name := range sorted(before) {
		names[name] = i + 1
	}
	for i, o := range ops {
		switch o.kind {
		case opCreate, opLink:
			names[o.path] = o.node
		case opUnlink:
			delete(names, o.path)
		case opRename:
			ops[i].node = names[o.path]
			names[o.to] = names[o.path]
			delete(names, o.path)
		}
	}
}

// workload is a transfer during which the power is cut.
type workload struct {
	name   string
	fetch  bool              // the client gets, so it is the receiver
	stdin  string            // the name of the file that standard input becomes
	want   map[string][]byte // content of the target in the end
	before map[string][]byte // content of the target before
	rate   string
	ranges bool // of the only file, by several clients
}

// TestPowerLoss records what a receiver does to its disk during a transfer, cuts the power at
// random points of the record, and runs the same command again on what is left. A name always leads
// to the old content or to the new content, and in the end the target is exact.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	t.Logf("-seed %d", *seed)
	content := func(n int) []byte {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), 1}).Read(b)
		return b
	}
	large := map[string][]byte{"large": content(17<<20 + 777)}
	tree, old := map[string][]byte{"six": content(6 << 20)}, map[string][]byte{"six": content(5 << 20)}
	for i := range 60 {
		name := fmt.Sprintf("%c/%c/%d", 'a'+i%3, 'a'+i%2, i)
		tree[name] = content(i * 997)
		if i%3 == 0 {
			old[name] = content(i*997 + 1)
		}
	}
	stream := map[string][]byte{"stream": content(7<<20 + 1)}
	for i, w := range []workload{
		{name: "file", want: large, rate: "40mbit"},
		{name: "tree", want: tree, before: old, rate: "100mbit"},
		{name: "stdin", want: stream, stdin: "stream", rate: "100mbit"},
		{name: "get", want: tree, before: old, fetch: true, rate: "100mbit"},
		{name: "ranges", want: large, ranges: true},
	} {
		for j, sync := range []string{"batch", "file"} {
			if *cuts <= 10 && (i+j)%2 == 1 {
				continue // a short run skips this one
			}
			t.Run(w.name+"/"+sync, func(t *testing.T) {
				t.Parallel()
				w.cutPower(t, sync, *cuts, rand.New(rand.NewPCG(*seed, uint64(2*i+j))))
			})
		}
	}
}

func (w workload) cutPower(t *testing.T, sync string, cuts int, rng *rand.Rand) {
	source, target, scratch := realDir(t), realDir(t), realDir(t)
	require.NoError(t, (&medium{files: w.want, folders: foldersOf(w.want)}).restore(source, nil))
	require.NoError(t, (&medium{files: w.before, folders: foldersOf(w.before)}).restore(target, nil))
	r, came := w.record(t, source, target, sync)
	require.NoError(t, r.err)
	inodes := r.inodes()
	resolveRenames(r.ops, w.before)
	syncs := 0
	for _, o := range r.ops {
		if o.kind >= opSyncFile {
			syncs++
		}
	}
	require.Equal(t, w.want, contentBelow(t, target))

	left, right := host{t.TempDir()}, host{t.TempDir()}
	share := scratch
	if w.fetch {
		share = source
	}
	srv := right.serve(t, share, "127.0.0.1:0")
	defer srv.kill()
	require.NoError(t, left.command("ls", srv.url).Run())

	var durable atomic.Int64
	check := func(i, at int, seed uint64) error {
		m := cutAt(r.ops, at, w.before, rand.New(rand.NewPCG(seed, 0)))
		durable.Add(int64(m.durable))
		where := fmt.Sprintf("cut %d, after %d of %d ops, seed %d", i, at, len(r.ops), seed)
		for name, b := range m.files {
			if !strings.HasPrefix(path.Base(name), ".fxfer-") && !bytes.Equal(b, w.want[name]) && !bytes.Equal(b, w.before[name]) {
				return fmt.Errorf("%s: %s has wrong content", where, name)
			}
		}
		if at == len(r.ops) {
			for name, b := range w.want {
				if !bytes.Equal(b, m.files[name]) {
					return fmt.Errorf("%s: %s is not durable at the end", where, name)
				}
			}
		}
		dir := filepath.Join(scratch, fmt.Sprintf("cut%d", i))
		defer func() { _ = os.RemoveAll(dir) }()
		if err := m.restore(dir, inodes); err != nil {
			return err
		}
		url := "fxfer://" + srv.address() + "/data/"
		if !w.fetch {
			url += filepath.Base(dir) + "/"
		}
		if w.ranges {
			var rest []int64 // nobody sends ranges again that had come
			for n, op := range came {
				if op > int64(at) {
					rest = append(rest, int64(n))
				}
			}
			if _, err := w.sendRanges(left, url, source, sync, rest, 0, func() int64 { return 0 }); err != nil {
				return fmt.Errorf("%s: ranges %v: %w", where, rest, err)
			}
		} else if out, err := within(time.Minute, w.command(left, url, source, dir, sync, ""), 0); err != nil {
			return fmt.Errorf("%s: %w\n%s", where, err, out)
		}
		for name, b := range w.want {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !bytes.Equal(b, got) {
				return fmt.Errorf("%s: %s is not exact after resuming: %w", where, name, err)
			}
		}
		return nil
	}
	var workers errgroup.Group
	workers.SetLimit(2)
	for i := range cuts {
		at := len(r.ops)
		if i > 0 {
			at = rng.IntN(len(r.ops) + 1)
		}
		seed := rng.Uint64()
		workers.Go(func() error { return check(i, at, seed) })
	}
	require.NoError(t, workers.Wait())
	t.Logf("%d ops with %d syncs recorded, %d cuts, all exact; %.0f changes of names kept in the mean", len(r.ops), syncs, cuts, float64(durable.Load())/float64(cuts))
	keepRow(t, "power", w.name+", "+sync, len(r.ops), syncs, cuts)
}

// record runs the transfer and traces its receiver. came has the number of ops after which each range had
// come.
func (w workload) record(t *testing.T, source, target, sync string) (r *recorder, came []int64) {
	known := map[fileKey]int{}
	for i, name := range sorted(w.before) {
		key, ok := statOf(filepath.Join(target, name))
		require.True(t, ok)
		known[key] = i + 1
	}
	left, right := host{t.TempDir()}, host{t.TempDir()}
	if w.fetch {
		srv := right.serve(t, source, "127.0.0.1:0")
		defer srv.kill()
		require.NoError(t, left.command("ls", srv.url).Run())
		c := w.command(left, "fxfer://"+srv.address()+"/data/", source, target, sync, w.rate)
		c.Stderr = os.Stderr
		r = recorded(t, c, target, known)
		<-r.ended
		require.Zero(t, r.status.ExitStatus())
		return r, nil
	}
	c := right.command("serve", "--quiet", "--invite", "--listen", "127.0.0.1:0", "--share", "data="+target)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	defer out.Close()
	r = recorded(t, c, target, known)
	defer r.kill()
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	srv := &server{url: strings.TrimSpace(url)}
	require.NoError(t, left.command("ls", srv.url).Run())
	if w.ranges {
		came, err = w.sendRanges(left, "fxfer://"+srv.address()+"/data/", source, sync, []int64{2, 0, 4, 3, 1}, 40e6, r.count.Load)
		require.NoError(t, err)
		return r, came
	}
	said, err := w.command(left, "fxfer://"+srv.address()+"/data/", source, target, sync, w.rate).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return r, nil
}

// TestPowerLossFacts: a folder of snapshots never appears on the medium without its owner, whom a server
// asks for whoever may only append, nor a snapshot without its list of digests.
func TestPowerLossFacts(t *testing.T) {
	t.Parallel()
	source, target := realDir(t), realDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(source, "file"), []byte("content"), 0o600))
	left, right := host{t.TempDir()}, host{t.TempDir()}
	c := right.command("serve", "--quiet", "--invite", "--listen", "127.0.0.1:0", "--share", "data="+target)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	defer out.Close()
	r := recorded(t, c, target, map[fileKey]int{})
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	// A server whose every call is recorded may be silent for too long on a busy machine.
	said, err := left.command("send", "--quiet", "--retry-for=2m", "--snapshot=2026-11-20T020000Z", source+"/", strings.TrimSpace(url)+"/series").CombinedOutput()
	r.kill()
	require.NoError(t, err, "%s", said)
	require.NoError(t, r.err)
	find := func(kind opKind, is func(op) bool) int {
		i := slices.IndexFunc(r.ops, func(o op) bool { return o.kind == kind && is(o) })
		require.NotEqual(t, -1, i, "%+v", r.ops)
		return i
	}
	// onMedium reports whether a sync of a file, or of a folder, covers op i and has ended before op end.
	onMedium := func(i, end int, kind opKind, is func(op) bool) bool {
		return slices.ContainsFunc(r.ops[:end], func(o op) bool {
			return o.from > i && (o.kind == opSyncAll || o.kind == kind && is(o))
		})
	}
	const state = "series/.fxfer-snapshots"
	begun := find(opRename, func(o op) bool { return o.to == state })
	fresh := r.ops[begun].path
	owners := find(opCreate, func(o op) bool { return o.path == fresh+"/owners" })
	isOwners := func(o op) bool { return o.node == r.ops[owners].node }
	require.True(t, onMedium(find(opWrite, isOwners), begun, opSyncFile, isOwners), "the owner")
	require.True(t, onMedium(owners, begun, opSyncFolder, func(o op) bool { return o.path == fresh }), "the name of the owners' list")
	published := find(opRename, func(o op) bool { return o.to == "series/2026-11-20T020000Z" })
	digests := find(opRename, func(o op) bool {
		return path.Dir(o.to) == state && strings.HasPrefix(path.Base(o.to), "2026-11-20T020000Z.")
	})
	require.True(t, onMedium(digests, published, opSyncFolder, func(o op) bool { return o.path == state }), "the name of the digests' list")
}

// sendRanges sends ranges of the only file, two at a time. It returns what now says after each.
func (w workload) sendRanges(h host, url, source, sync string, numbers []int64, rate int64, now func() int64) (came []int64, err error) {
	u, err := fxfer.ParseURL(url)
	if err != nil {
		return nil, err
	}
	c, err := fxfer.NewClient(fxfer.Options{Home: h.home, RateLimit: rate})
	if err != nil {
		return nil, err
	}
	var file fxfer.SourceFile
	err = fxfer.ListSource(context.Background(), source+"/", fxfer.Selection{}, func(f fxfer.SourceFile) error { file = f; return nil })
	if err != nil {
		return nil, err
	}
	came = make([]int64, 5)
	var clients errgroup.Group
	clients.SetLimit(2)
	for _, n := range numbers {
		clients.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			opt := fxfer.Transfer{Target: fxfer.Target{Sync: fxfer.Sync(sync)}}
			_, err := c.SendRange(ctx, source+"/", fxfer.Range{File: file, Log: fxfer.MinRangeLog, Number: n}, u, opt)
			came[n] = now()
			return err
		})
	}
	return came, clients.Wait()
}

// recorded calls record. It skips the test if this machine does not allow tracing processes.
func recorded(t *testing.T, c *exec.Cmd, dir string, known map[fileKey]int) *recorder {
	r, err := record(c, dir, known)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("ptrace(2) is not permitted")
	}
	require.NoError(t, err)
	return r
}

// command returns the transfer from or to the folder dir.
func (w workload) command(h host, url, source, dir, sync, rate string) *exec.Cmd {
	flags := []string{"--quiet", "--sync", sync}
	if rate != "" {
		flags = append(flags, "--rate-limit", rate)
	}
	switch {
	case w.fetch:
		return h.command(append([]string{"get", url, dir}, flags...)...)
	case w.stdin != "":
		c := h.command(append([]string{"send", "-", url + w.stdin}, flags...)...)
		c.Stdin = bytes.NewReader(w.want[w.stdin])
		return c
	}
	return h.command(append([]string{"send", source + "/", url}, flags...)...)
}

// within runs c. After a while it calls disturb. If c takes longer than the limit, within ends it
// with a trace of its goroutines.
func within(limit time.Duration, c *exec.Cmd, while time.Duration, disturb ...func()) (said []byte, err error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer time.AfterFunc(limit, func() { _ = c.Process.Signal(unix.SIGQUIT) }).Stop()
	defer time.AfterFunc(while, func() {
		for _, f := range disturb {
			f()
		}
	}).Stop()
	err = c.Wait()
	return out.Bytes(), err
}

// realDir makes a folder and returns its path without symlinks, as the kernel names it.
func realDir(t *testing.T) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// foldersOf returns the folders above files.
func foldersOf(files map[string][]byte) map[string]bool {
	folders := map[string]bool{".": true}
	for name := range files {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			folders[above] = true
		}
	}
	return folders
}

// contentBelow reads all files below dir. It ignores partial files that vanish meanwhile.
func contentBelow(t *testing.T, dir string) map[string][]byte {
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rest, _ := filepath.Rel(dir, name)
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(d.Name(), ".fxfer-") {
			return nil
		}
		files[rest] = b
		return err
	}))
	return files
}
