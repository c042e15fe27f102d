package faults

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

var (
	watchFor   = flag.Duration("watch-time", 12*time.Second, "how long programs write in TestWatch")
	watchFiles = flag.Int("watch-files", 800, "paths of the files that they write")
)

// counter is a Writer that counts bytes.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// cutter passes TCP connections on to a server, and cuts them.
type cutter struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	sent counter // bytes towards the server

	mu   sync.Mutex // guards what follows
	open map[net.Conn]bool
	away bool
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{listener: l, to: to, open: map[net.Conn]bool{}}
	c.all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			c.all.Go(func() { c.pass(near) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.all.Wait()
	})
	return c
}

func (c *cutter) pass(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer far.Close()
	c.mu.Lock()
	away := c.away
	c.open[near], c.open[far] = true, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, near)
		delete(c.open, far)
	}()
	if away {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, io.TeeReader(near, &c.sent))
	_ = far.Close()
	back.Wait()
}

// cut closes all connections. It also closes those that come until restore.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = true
	for conn := range c.open {
		_ = conn.Close()
	}
}

func (c *cutter) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = false
}

// writer is a program that writes files below a folder of its own.
type writer struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	name    string            // of its folder below dir
	last    map[string]string // the seals of the files that it has finished, by their paths below dir
	renamed map[string]bool   // seals of files that it has renamed
	removed func(p, seal string)
	n       int
}

// sealed returns content with its digest behind it, so that anybody can see that it is complete.
func sealed(content []byte) []byte {
	sum := blake3.Sum256(content)
	return append(bytes.Clone(content), hex.EncodeToString(sum[:])...)
}

// sealOf returns the digest behind a content, "" if the content is not complete.
func sealOf(content []byte) string {
	n := len(content) - 64
	if n < 0 || !bytes.Equal(sealed(content[:n]), content) {
		return ""
	}
	return string(content[n:])
}

func (w *writer) content() []byte {
	size := 8 + w.rng.IntN(20_000)
	if w.rng.IntN(30) == 0 {
		size = 8 + w.rng.IntN(3<<20)
	}
	b := make([]byte, size)
	var s [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(s[8*i:], w.rng.Uint64())
	}
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

// pieces writes content in pieces. Between them, the file stays open.
func (w *writer) pieces(f *os.File, content []byte) {
	for len(content) > 0 {
		n := min(len(content), 1+w.rng.IntN(min(2*len(content), 1<<20)))
		_, err := f.Write(content[:n])
		require.NoError(w.t, err)
		content = content[n:]
		pause := 30 * time.Millisecond // a program that is not in a hurry
		if w.rng.IntN(50) == 0 {
			pause = 2 * time.Second // longer than watch waits for a file that nobody has open
		}
		time.Sleep(time.Duration(w.rng.Int64N(int64(pause))))
	}
	require.NoError(w.t, f.Close())
}

func (w *writer) path() string {
	return filepath.Join(w.name, fmt.Sprintf("%c", 'a'+w.rng.IntN(4)), fmt.Sprint(w.rng.IntN(*watchFiles/writers/4)))
}

// writers is the number of programs that write at the same time.
const writers = 4

// step creates, rewrites, appends to, replaces or renames a file. A file that the watcher has
// removed meanwhile is left alone.
func (w *writer) step() {
	w.n++
	p := w.path()
	at := filepath.Join(w.dir, p)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o700))
	if seal := w.last[p]; seal != "" && isGone(w.dir, p) {
		w.removed(p, seal)
	}
	switch w.rng.IntN(5) {
	case 0, 1: // create or rewrite
		content := sealed(w.content())
		f, err := os.Create(at)
		require.NoError(w.t, err)
		w.pieces(f, content)
		w.last[p] = sealOf(content)
	case 2:
		f, err := os.OpenFile(at, os.O_RDWR|os.O_APPEND, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		require.NoError(w.t, err)
		old, err := io.ReadAll(f)
		require.NoError(w.t, err)
		more := sealed(append(bytes.Clone(old), w.content()...))
		w.pieces(f, more[len(old):])
		w.last[p] = sealOf(more)
	case 3:
		content := sealed(w.content())
		temporary := filepath.Join(w.dir, w.name, ".part")
		require.NoError(w.t, os.WriteFile(temporary, content, 0o600))
		require.NoError(w.t, os.Rename(temporary, at))
		w.last[p] = sealOf(content)
	case 4:
		to := w.path()
		require.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, to)), 0o700))
		if to != p && os.Rename(at, filepath.Join(w.dir, to)) == nil {
			w.renamed[w.last[p]] = true
			w.last[to] = w.last[p]
			delete(w.last, p)
		}
	}
}

// record writes a file that is large enough to be sent while it grows, slowly.
func (w *writer) record() {
	w.n++
	p := filepath.Join(w.name, fmt.Sprint("record", w.rng.IntN(8)))
	require.NoError(w.t, os.MkdirAll(filepath.Join(w.dir, w.name), 0o700))
	if seal := w.last[p]; seal != "" && isGone(w.dir, p) {
		w.removed(p, seal)
	}
	content := make([]byte, 5<<20+w.rng.IntN(4<<20))
	for i := range content {
		content[i] = byte(w.rng.Uint32())
	}
	content = sealed(content)
	f, err := os.Create(filepath.Join(w.dir, p))
	require.NoError(w.t, err)
	for left := content; len(left) > 0; {
		n := min(len(left), 1+w.rng.IntN(2<<20))
		_, err := f.Write(left[:n])
		require.NoError(w.t, err)
		left = left[n:]
		time.Sleep(time.Duration(w.rng.IntN(800)) * time.Millisecond)
	}
	if w.rng.IntN(2) == 0 { // a header that is written last
		copy(content, "RIFF")
		content = sealed(content[:len(content)-64])
		_, err = f.WriteAt([]byte("RIFF"), 0)
		require.NoError(w.t, err)
		_, err = f.WriteAt(content[len(content)-64:], int64(len(content)-64))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, f.Close())
	w.last[p] = sealOf(content)
}

// isGone reports whether the watcher has removed a file. One that is about to be removed may come
// back to its place meanwhile.
func isGone(dir, p string) bool {
	for _, at := range []string{p, filepath.Join(".fxfer-sent", p), p} {
		if _, err := os.Lstat(filepath.Join(dir, at)); err == nil {
			return false
		}
	}
	return true
}

// queued is a line of `fxfer queue --json`.
type queued struct {
	Type, Path, State, Message         string
	Arriving, Waiting, Sending, Failed int
	Early                              int64
}

func (h host) queue(t *testing.T) (sum queued, files []queued) {
	out, err := h.command("queue", "--json").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		var q queued
		require.NoError(t, json.Unmarshal([]byte(line), &q))
		if q.Type == "queue" {
			sum = q
		} else {
			files = append(files, q)
		}
	}
	return sum, files
}

// observed is a file as it was seen at the server.
type observed struct {
	info fs.FileInfo
	seal string
}

// observer looks at the files below a folder of the server again and again.
type observer struct {
	seen  map[string]observed
	torn  []string    // paths of files that were not complete
	twice [][2]string // paths and seals of files that were replaced by the same content
	read  int         // versions
}

func (o *observer) run(dir string, stop <-chan struct{}) {
	o.seen = map[string]observed{}
	for {
		began := time.Now()
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".fxfer-") {
				o.look(p, d)
			}
			return nil // the server goes on meanwhile
		})
		select {
		case <-stop:
			return
		case <-time.After(20*time.Millisecond + 3*time.Since(began)):
		}
	}
}

func (o *observer) look(p string, d fs.DirEntry) {
	old, known := o.seen[p]
	same := func(info fs.FileInfo, err error) bool {
		return err == nil && known && os.SameFile(old.info, info) && old.info.ModTime().Equal(info.ModTime()) && old.info.Size() == info.Size()
	}
	if same(d.Info()) {
		return
	}
	f, err := os.Open(p)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || same(info, nil) {
		return
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return
	}
	seal := sealOf(content)
	switch {
	case seal == "":
		o.torn = append(o.torn, p)
	case known && seal == old.seal && !os.SameFile(old.info, info):
		o.twice = append(o.twice, [2]string{p, seal})
	}
	o.seen[p] = observed{info, seal}
	o.read++
}

// TestWatch lets programs create, grow, rewrite, replace and rename files while `fxfer watch`, the
// server and the connection between them end again and again. In the end the server has the last
// version of every file, and the queue is empty. Every file there is whole at any time, and none is
// replaced by what it was already. With --then delete, a file that is gone here is at the server.
func TestWatch(t *testing.T) {
	for _, then := range []string{"keep", "delete"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			testWatch(t, then)
		})
	}
}

func testWatch(t *testing.T, then string) {
	t.Logf("-seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, uint64(len(then))))
	left, right := host{t.TempDir()}, host{t.TempDir()}
	dir, share := t.TempDir(), t.TempDir()
	target := filepath.Join(share, "in")
	srv := right.serve(t, share, "127.0.0.1:0")
	defer func() { srv.kill() }()
	line := newCutter(t, srv.address())
	require.NoError(t, left.command("ls", strings.Replace(srv.url, srv.address(), line.listener.Addr().String(), 1)).Run())
	url := "fxfer://" + line.listener.Addr().String() + "/data/in"
	var log bytes.Buffer
	start := func() *exec.Cmd {
		c := left.command("watch", "--grow", "--settle", "300ms", "--exclude", ".part", "--transport", "tcp", "--then", then, dir, url)
		c.Stderr = &log
		require.NoError(t, c.Start())
		return c
	}
	watch := start()
	defer func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
		if t.Failed() {
			t.Logf("%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	}()

	var seen observer
	looked := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() { seen.run(target, looked) })
	defer looking.Wait()
	endLooking := sync.OnceFunc(func() { close(looked) })
	defer endLooking()

	var programs []*writer
	var writing sync.WaitGroup
	stop := time.Now().Add(*watchFor)
	for i := range writers + 1 {
		w := &writer{
			t: t, rng: rand.New(rand.NewPCG(*seed, uint64(100+i))), dir: dir, name: fmt.Sprint("w", i),
			last: map[string]string{}, renamed: map[string]bool{}, removed: func(p, seal string) {
				content, err := os.ReadFile(filepath.Join(target, p))
				if err != nil || sealOf(content) != seal || then == "keep" {
					t.Errorf("%s was removed here before the server had it: %v", p, err)
				}
			},
		}
		programs = append(programs, w)
		writing.Go(func() {
			for time.Now().Before(stop) {
				if i == writers {
					w.record()
				} else {
					w.step()
				}
			}
		})
	}
	defer writing.Wait()
	// A pause is as likely to be short as long, so that some sessions end at once and others run for long.
	pause := func() {
		const shortest = 100 * time.Millisecond
		longest := max(shortest, *watchFor/16)
		time.Sleep(time.Duration(float64(shortest) * math.Pow(float64(longest)/float64(shortest), rng.Float64())))
	}
	ends := map[string]int{}
	for pause(); time.Now().Before(stop); pause() {
		what := []string{"watcher", "server", "line"}[rng.IntN(3)]
		ends[what]++
		away := func() {
			if rng.IntN(2) == 0 {
				pause()
			}
		}
		switch what {
		case "watcher":
			_ = watch.Process.Kill()
			_ = watch.Wait()
			away()
			watch = start()
		case "server":
			srv.kill()
			away()
			srv = right.serve(t, share, srv.address())
		case "line":
			line.cut()
			away()
			line.restore()
		}
	}
	writing.Wait()
	last, renamed := map[string]string{}, map[string]bool{}
	steps := 0
	for _, w := range programs {
		maps.Copy(last, w.last)
		maps.Copy(renamed, w.renamed)
		steps += w.n
	}
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		sum, files := left.queue(t)
		rest := regular(t, dir)
		if sum.Arriving+sum.Waiting+sum.Sending == 0 && (then == "keep" || len(rest) == 0) && allThere(files, rest) {
			require.Subset(t, slices.Collect(maps.Keys(last)), rest)
			break
		}
		require.Less(t, time.Since(began), 8*time.Minute, "the queue does not become empty: %+v", sum)
	}
	endLooking()
	looking.Wait()
	require.Empty(t, seen.torn, "torn at the server")
	require.Empty(t, slices.DeleteFunc(seen.twice, func(x [2]string) bool { return renamed[x[1]] }), "arrived twice")
	there := regular(t, target)
	for _, p := range there {
		content, err := os.ReadFile(filepath.Join(target, p))
		require.NoError(t, err)
		partial := strings.HasPrefix(filepath.Base(p), ".fxfer-") // of a file that was renamed here, and never came again
		seal := sealOf(content)
		require.True(t, partial || seal != "", "%s is torn at the server", p)
		if want, ok := last[p]; ok {
			require.Equal(t, want, seal, "%s: the server has another version", p)
			delete(last, p)
		}
	}
	require.Empty(t, last, "not at the server")
	t.Logf("%s: %d steps of %d programs, %d files at the server, %d versions looked at there; ended: %v", then, steps, writers, len(there), seen.read, ends)
}

// TestGrow lets a file grow while the watcher, the server and the line end. What came of the file is
// not sent again, neither after that nor when the file is complete, with another header.
func TestGrow(t *testing.T) {
	t.Parallel()
	t.Logf("-seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 3))
	left, right := host{t.TempDir()}, host{t.TempDir()}
	dir, share := t.TempDir(), t.TempDir()
	srv := right.serve(t, share, "127.0.0.1:0")
	defer func() { srv.kill() }()
	line := newCutter(t, srv.address())
	require.NoError(t, left.command("ls", strings.Replace(srv.url, srv.address(), line.listener.Addr().String(), 1)).Run())
	start := func() *exec.Cmd {
		c := left.command("watch", "--grow", "--settle", "2s", "--transport", "tcp", dir, "fxfer://"+line.listener.Addr().String()+"/data/in")
		require.NoError(t, c.Start())
		return c
	}
	watch := start()
	defer func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}()
	const mib, flight = 1 << 20, 4
	f, err := os.Create(filepath.Join(dir, "f"))
	require.NoError(t, err)
	defer f.Close()
	var content []byte
	grow := func(n int) {
		more := make([]byte, n*mib)
		for i := range more {
			more[i] = byte(rng.Uint32())
		}
		content = append(content, more...)
		_, err := f.Write(more)
		require.NoError(t, err)
	}
	await := func(what string, is func(f queued) bool) {
		require.Eventually(t, func() bool {
			_, files := left.queue(t)
			return len(files) == 1 && is(files[0])
		}, 5*time.Minute, 200*time.Millisecond, what)
	}
	ends := map[string]func(){
		"watcher": func() { _ = watch.Process.Kill(); _ = watch.Wait(); watch = start() },
		"server":  func() { srv.kill(); srv = right.serve(t, share, srv.address()) },
		"line":    func() { line.cut(); line.restore() },
	}
	for what, end := range ends {
		grow(12)
		await("early before the end of the "+what, func(f queued) bool { return f.State == "arriving" && f.Early == int64(len(content)) })
		require.NoFileExists(t, filepath.Join(share, "in", "f"))
		grow(flight)
		end()
	}
	copy(content, "RIFF")
	_, err = f.WriteAt([]byte("RIFF"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	await("there", func(f queued) bool { return f.State == "there" })
	got, err := os.ReadFile(filepath.Join(share, "in", "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	require.Len(t, regular(t, share), 1, "what came early is left")
	t.Logf("%d bytes sent of a file of %d", line.sent.Load(), len(content))
	require.Less(t, line.sent.Load(), int64(len(content)+len(ends)*flight*mib+3*mib))
}

// regular returns the paths of the files below a folder.
func regular(t *testing.T, dir string) (files []string) {
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		rel, _ := filepath.Rel(dir, p)
		files = append(files, rel)
		return err
	})
	require.NoError(t, err)
	return files
}

// allThere reports whether a queue has all these files in state there.
func allThere(queue []queued, files []string) bool {
	there := map[string]bool{}
	for _, f := range queue {
		there[f.Path] = f.State == "there"
	}
	return !slices.ContainsFunc(files, func(p string) bool { return !there[p] })
}
