package faults

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

var watchFor = flag.Duration("watch-time", 12*time.Second, "how long programs write in TestWatch")

// cutter passes TCP connections on to a server, and cuts them.
type cutter struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu   sync.Mutex // guards open
	open map[net.Conn]bool
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
	c.open[near], c.open[far] = true, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, near)
		delete(c.open, far)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait()
}

// cut closes all connections.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
}

// writer is a program that writes files below a folder of its own.
type writer struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string
	name string            // of its folder below dir
	last map[string][]byte // the files that it has finished, by their paths below dir
	n    int
}

// sealed returns content with its digest behind it, so that anybody can see that it is complete.
func sealed(content []byte) []byte {
	sum := blake3.Sum256(content)
	return append(bytes.Clone(content), hex.EncodeToString(sum[:])...)
}

func isSealed(content []byte) bool {
	n := len(content) - 64
	return n >= 0 && bytes.Equal(sealed(content[:n]), content)
}

func (w *writer) content() []byte {
	size := w.rng.IntN(20_000)
	if w.rng.IntN(10) == 0 {
		size = w.rng.IntN(3 << 20)
	}
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(w.rng.Uint32()), byte(w.n), byte(w.n >> 8)}).Read(b)
	return b
}

// pieces writes content in pieces. Between them, the file stays open.
func (w *writer) pieces(f *os.File, content []byte) {
	for len(content) > 0 {
		n := min(len(content), 1+w.rng.IntN(1<<20))
		_, err := f.Write(content[:n])
		require.NoError(w.t, err)
		content = content[n:]
		time.Sleep(time.Duration(w.rng.IntN(30)) * time.Millisecond) // a program that is not in a hurry
	}
	require.NoError(w.t, f.Close())
}

func (w *writer) path() string {
	return filepath.Join(w.name, fmt.Sprintf("%c", 'a'+w.rng.IntN(4)), fmt.Sprint(w.rng.IntN(400)))
}

// step creates, rewrites, appends to, replaces or renames a file. A file that the watcher has
// removed meanwhile is left alone.
func (w *writer) step() {
	w.n++
	p := w.path()
	at := filepath.Join(w.dir, p)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o700))
	switch w.rng.IntN(5) {
	case 0, 1: // create or rewrite
		content := sealed(w.content())
		f, err := os.Create(at)
		require.NoError(w.t, err)
		w.pieces(f, content)
		w.last[p] = content
	case 2:
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_APPEND, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		require.NoError(w.t, err)
		old := w.last[p]
		more := sealed(append(bytes.Clone(old), w.content()...))
		w.pieces(f, more[len(old):])
		w.last[p] = more
	case 3:
		content := sealed(w.content())
		temporary := filepath.Join(w.dir, w.name, ".part")
		require.NoError(w.t, os.WriteFile(temporary, content, 0o600))
		require.NoError(w.t, os.Rename(temporary, at))
		w.last[p] = content
	case 4:
		to := w.path()
		require.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, to)), 0o700))
		if to != p && os.Rename(at, filepath.Join(w.dir, to)) == nil {
			w.last[to] = w.last[p]
			delete(w.last, p)
		}
	}
}

// queued is a line of `fxfer queue --json`.
type queued struct {
	Type, Path, State, Message         string
	Arriving, Waiting, Sending, Failed int
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

// tornFiles looks at the files below a folder again and again until stop is closed. It returns the
// paths of those that were not whole at any time, and how many versions it has read.
func tornFiles(dir string, stop <-chan struct{}) (torn []string, read int) {
	seen := map[string]fs.FileInfo{}
	for {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".fxfer-") {
				return nil //nolint:nilerr // the server goes on meanwhile
			}
			f, err := os.Open(p)
			if err != nil {
				return nil //nolint:nilerr // the same
			}
			defer f.Close()
			info, err := f.Stat()
			if old := seen[p]; err != nil || old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
				return nil //nolint:nilerr // the same
			}
			seen[p] = info
			read++
			if content, err := io.ReadAll(f); err == nil && !isSealed(content) {
				torn = append(torn, p)
			}
			return nil
		})
		select {
		case <-stop:
			return torn, read
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestWatch lets programs create, grow, rewrite, replace and rename files while `fxfer watch`, the
// server and the connection between them end again and again. In the end the server has the last
// version of every file, and the queue is empty. Every file there is whole at any time. With --then
// delete, all files are gone here, so none was removed before the server had it.
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
	dir, target := t.TempDir(), t.TempDir()
	srv := right.serve(t, target, "127.0.0.1:0")
	defer func() { srv.kill() }()
	line := newCutter(t, srv.address())
	require.NoError(t, left.command("ls", strings.Replace(srv.url, srv.address(), line.listener.Addr().String(), 1)).Run())
	url := "fxfer://" + line.listener.Addr().String() + "/data/in"
	var log bytes.Buffer
	start := func() *exec.Cmd {
		c := left.command("watch", "--settle", "300ms", "--exclude", ".part", "--transport", "tcp", "--then", then, dir, url)
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

	var torn []string
	versions, looked := 0, make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() { torn, versions = tornFiles(filepath.Join(target, "in"), looked) })
	defer looking.Wait()
	endLooking := sync.OnceFunc(func() { close(looked) })
	defer endLooking()

	var writers []*writer
	var writing sync.WaitGroup
	stop := time.Now().Add(*watchFor)
	for i := range 4 {
		w := &writer{t: t, rng: rand.New(rand.NewPCG(*seed, uint64(100+i))), dir: dir, name: fmt.Sprint("w", i), last: map[string][]byte{}}
		writers = append(writers, w)
		writing.Go(func() {
			for time.Now().Before(stop) {
				w.step()
			}
		})
	}
	ends := map[string]int{}
	for time.Now().Before(stop) {
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // a random moment
		what := []string{"watcher", "server", "line"}[rng.IntN(3)]
		ends[what]++
		switch what {
		case "watcher":
			_ = watch.Process.Kill()
			_ = watch.Wait()
			watch = start()
		case "server":
			srv.kill()
			srv = right.serve(t, target, srv.address())
		case "line":
			line.cut()
		}
	}
	writing.Wait()
	last := map[string][]byte{}
	steps := 0
	for _, w := range writers {
		maps.Copy(last, w.last)
		steps += w.n
	}
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		sum, _ := left.queue(t)
		rest := regular(t, dir)
		if sum.Arriving+sum.Waiting+sum.Sending == 0 && missing(rest, last) == 0 && (then == "keep" || len(rest) == 0) && queuedAll(t, left, rest) {
			break
		}
		require.Less(t, time.Since(began), 4*time.Minute, "the queue does not become empty: %+v", sum)
	}
	endLooking()
	looking.Wait()
	require.Empty(t, torn, "torn at the server")
	there := regular(t, filepath.Join(target, "in"))
	for p, content := range there {
		partial := strings.HasPrefix(filepath.Base(p), ".fxfer-") // of a file that was renamed here, and never came again
		require.True(t, partial || isSealed(content), "%s is torn at the server", p)
	}
	for p, want := range last {
		require.True(t, bytes.Equal(want, there[p]), "%s: the server has another version, of %d bytes instead of %d", p, len(there[p]), len(want))
	}
	t.Logf("%s: %d steps of 4 programs, %d files in the end, %d at the server, %d versions looked at there; ended: %v", then, steps, len(last), len(there), versions, ends)
}

// regular returns the contents of the files below a folder.
func regular(t *testing.T, dir string) map[string][]byte {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() {
			return nil
		}
		content, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rel, _ := filepath.Rel(dir, p)
		files[rel] = content
		return err
	})
	require.NoError(t, err)
	return files
}

// missing counts the files of have that are not in want.
func missing(have, want map[string][]byte) (n int) {
	for p := range have {
		if _, ok := want[p]; !ok {
			n++
		}
	}
	return n
}

// queuedAll reports whether the watcher has seen the last version of all files that stay.
func queuedAll(t *testing.T, h host, rest map[string][]byte) bool {
	_, files := h.queue(t)
	there := map[string]bool{}
	for _, f := range files {
		there[f.Path] = f.State == "there"
	}
	for p := range rest {
		if !there[p] {
			return false
		}
	}
	return true
}
