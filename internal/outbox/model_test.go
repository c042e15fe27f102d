package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// world is a folder that programs write to, a server, and a watcher that is killed now and then.
type world struct {
	t     *rapid.T
	dir   string
	home  string
	probe string // a file for the file system's clock
	then  Then
	w     *Watcher
	now   time.Time
	n     int

	local   map[string]string   // what programs left in the folder, by path
	open    map[string]*os.File // files that a program has open for writing
	server  map[string][]string // contents that were committed, by path
	durable map[string][]string // those of server that a power cut leaves
	sends   map[string]int      // how often each content was sent by a session that ended well, by path and content
	moved   map[string]bool     // contents that were renamed to a path, by path and content
	leases  bool
	empty   []byte // a new queue: making its file costs a sync
}

const modelSettle = 5 * time.Second

// start starts the watcher, or starts it again after a kill.
func (m *world) start() {
	m.w = &Watcher{
		Queue: OpenQueue(m.home, m.dir, "url"), Dir: m.dir, URL: "url", Settle: modelSettle, Then: m.then,
		Send: m.send, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	m.w.Queue.noSync = true
	require.NoError(m.t, m.w.begin())
}

// tick waits until the file system's clock has moved on. The real watcher is slower than that clock.
func (m *world) tick() {
	before := m.stamp()
	for m.stamp() == before {
	}
}

func (m *world) stamp() int64 {
	require.NoError(m.t, os.WriteFile(m.probe, nil, 0o600))
	info, err := os.Stat(m.probe)
	require.NoError(m.t, err)
	return info.ModTime().UnixNano()
}

func (m *world) at(p string) string { return filepath.Join(m.dir, filepath.FromSlash(p)) }

var modelPaths = []string{"a", "b", "c/d", "c/e", "f/g/h"}

func (m *world) path() string { return rapid.SampledFrom(modelPaths).Draw(m.t, "path") }

// mutate does what some program may do to the folder.
func (m *world) mutate() {
	p := m.path()
	m.n++
	content := fmt.Sprintf("%s %06d", p, m.n) // always of one size for a path
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.at(p)), 0o700))
	kind := rapid.SampledFrom([]string{"rewrite", "grow", "rename", "delete", "replace", "unnoticed", "open", "hold", "close"}).Draw(m.t, "kind")
	_, exists := m.local[p]
	switch {
	case m.open[p] != nil && kind != "close":
		return
	case kind == "rewrite":
		m.write(p, content)
	case kind == "unnoticed" && exists: // another content of the same size and time
		info, err := os.Stat(m.at(p))
		if err != nil {
			return
		}
		m.write(p, content)
		require.NoError(m.t, os.Chtimes(m.at(p), info.ModTime(), info.ModTime()))
	case kind == "grow":
		f, err := os.OpenFile(m.at(p), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		require.NoError(m.t, err)
		if info, _ := f.Stat(); info.Size() == 0 {
			m.local[p] = "" // the watcher has removed it, or it never was
		}
		_, err = f.WriteString("+" + content)
		require.NoError(m.t, errors.Join(err, f.Close()))
		m.local[p] += "+" + content
	case kind == "rename" && exists:
		to := m.path()
		if to == p || m.open[to] != nil {
			return
		}
		require.NoError(m.t, os.MkdirAll(filepath.Dir(m.at(to)), 0o700))
		if os.Rename(m.at(p), m.at(to)) == nil {
			m.local[to] = m.local[p]
			m.moved[to+"\x00"+m.local[p]] = true
			delete(m.local, p)
		}
	case kind == "delete" && exists:
		if os.Remove(m.at(p)) == nil {
			delete(m.local, p)
		}
	case kind == "replace":
		require.NoError(m.t, os.WriteFile(m.probe+".new", []byte(content), 0o600))
		require.NoError(m.t, os.Rename(m.probe+".new", m.at(p)))
		m.local[p] = content
	case kind == "open" && m.leases:
		f, err := os.OpenFile(m.at(p), os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
		require.NoError(m.t, err)
		_, err = f.WriteString("torn")
		require.NoError(m.t, err)
		m.open[p], m.local[p] = f, "torn"
	case kind == "hold" && exists && m.leases: // open, and not written to yet
		if f, err := os.OpenFile(m.at(p), os.O_WRONLY|os.O_APPEND, 0); err == nil {
			m.open[p] = f
		}
	case kind == "close" && m.open[p] != nil:
		m.close(p)
	}
}

func (m *world) write(p, content string) {
	require.NoError(m.t, os.WriteFile(m.at(p), []byte(content), 0o600))
	m.local[p] = content
}

func (m *world) close(p string) {
	m.n++
	content := fmt.Sprintf(" until %06d", m.n)
	_, err := m.open[p].WriteString(content)
	require.NoError(m.t, errors.Join(err, m.open[p].Close()))
	delete(m.open, p)
	m.local[p] += content
}

// send is the session: it commits what it reads, unless the file changes meanwhile. In between,
// programs go on, and the process may be killed. What was committed is durable in the end.
func (m *world) send(_ context.Context, paths iter.Seq[string], intact func(string) bool, result func(Result)) error {
	for p := range paths {
		if !intact(p) {
			continue
		}
		switch rapid.SampledFrom([]string{"", "", "", "", "mutate", "line", "power", "file"}).Draw(m.t, "event") {
		case "line":
			return errors.New("the line is away")
		case "power":
			m.server = maps.Clone(m.durable)
			return errors.New("the server is away")
		case "file":
			result(Result{Path: p, Err: errors.New("permission denied")})
			continue
		case "mutate":
			m.commit(p, result, m.mutate)
			continue
		}
		m.commit(p, result, func() {})
	}
	m.durable = maps.Clone(m.server)
	return nil
}

func (m *world) commit(p string, result func(Result), before func()) {
	content, err := os.ReadFile(m.at(p))
	if err != nil {
		result(Result{Path: p, Err: err})
		return
	}
	require.False(m.t, strings.HasPrefix(string(content), "torn") && !strings.Contains(string(content), "until"), "a file that is open for writing is sent: %s", p)
	if all := m.server[p]; len(all) == 0 || all[len(all)-1] != string(content) {
		m.server[p] = append(all, string(content))
	}
	before()
	m.sends[p+"\x00"+string(content)]++
	result(Result{Path: p})
}

// scan scans once, after time has passed.
func (m *world) scan(passed time.Duration) {
	m.tick()
	m.now = m.now.Add(passed)
	before := m.present()
	_, err := m.w.scan(m.now, make(chan struct{}, 1), nil)
	require.NoError(m.t, err)
	m.checkRemoved(before)
}

// present returns the contents of all files in the folder, those aside included.
func (m *world) present() map[string]string {
	files := map[string]string{}
	require.NoError(m.t, filepath.WalkDir(m.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		rel, _ := filepath.Rel(m.dir, p)
		files[strings.TrimPrefix(filepath.ToSlash(rel), asideName+"/")] += string(content) + "\n"
		return err
	}))
	return files
}

// checkRemoved checks that what the watcher removed is at the server.
func (m *world) checkRemoved(before map[string]string) {
	after := m.present()
	for p, contents := range before {
		for content := range strings.Lines(contents) {
			content = strings.TrimSuffix(content, "\n")
			if strings.Contains(after[p], content) {
				continue
			}
			require.True(m.t, m.then.Delete, "%s is gone", p)
			require.Contains(m.t, m.server[p], content, "%s is gone, and the server does not have it", p)
			if m.local[p] == content {
				delete(m.local, p)
			}
		}
	}
}

// transmit sends a batch. If killed is set, the queue becomes what it was in the middle of that.
func (m *world) transmit(killed bool) {
	m.now = m.now.Add(time.Second)
	batch, err := m.w.take(m.now)
	require.NoError(m.t, err)
	if len(batch) == 0 {
		return
	}
	state, err := os.ReadFile(m.w.Queue.path)
	require.NoError(m.t, err)
	before := maps.Clone(m.sends)
	err = m.w.sendBatch(m.t.Context(), batch, make(chan struct{}, 1))
	if killed || err != nil { // the line is away now and then
		m.sends = before
	}
	if killed {
		m.restart(state)
	}
}

// restart starts the watcher again with this state of the queue.
func (m *world) restart(queue []byte) {
	require.NoError(m.t, os.WriteFile(m.w.Queue.path, queue, 0o600))
	m.start()
}

// killAtRemoval removes what was aside, and is killed before it notes that.
func (m *world) killAtRemoval() {
	state, err := os.ReadFile(m.w.Queue.path)
	require.NoError(m.t, err)
	root, err := os.OpenRoot(m.dir)
	require.NoError(m.t, err)
	defer root.Close()
	before := m.present()
	m.now = m.now.Add(time.Second)
	_, err = m.w.finishAside(root, m.now)
	require.NoError(m.t, err)
	m.checkRemoved(before)
	m.restart(state)
}

// TestModel lets programs write to a folder at random while its watcher scans, sends and is killed,
// and its server loses what is not durable.
// No file is sent while a program has it open for writing. A file is removed here only if the
// server has its content. In the end, the server has each file that stayed, the queue is empty, and
// what was sent and noted was not sent again.
func TestModel(t *testing.T) {
	t.Parallel()
	leases, empty := hasLeases(t), emptyQueue(t)
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp("", "fxfer-outbox-")
		require.NoError(rt, err)
		defer func() { _ = os.RemoveAll(base) }()
		m := &world{
			t: rt, dir: filepath.Join(base, "dir"), home: filepath.Join(base, "home"), probe: filepath.Join(base, "probe"),
			then: Then{Delete: rapid.Bool().Draw(rt, "delete")}, now: time.Now(), leases: leases, empty: empty,
			local: map[string]string{}, open: map[string]*os.File{}, server: map[string][]string{}, durable: map[string][]string{}, sends: map[string]int{}, moved: map[string]bool{},
		}
		defer func() {
			for _, f := range m.open {
				_ = f.Close()
			}
		}()
		require.NoError(rt, os.Mkdir(m.dir, 0o700))
		require.NoError(rt, os.MkdirAll(filepath.Join(m.home, queuesName), 0o700))
		m.w = &Watcher{Queue: OpenQueue(m.home, m.dir, "url")}
		m.restart(m.empty)
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"mutate", "mutate", "mutate", "scan", "settle", "settle", "send", "send", "killed", "restart", "killed at removal"}).Draw(rt, "step") {
			case "mutate":
				m.mutate()
			case "scan":
				m.scan(500 * time.Millisecond)
			case "settle":
				m.scan(modelSettle)
			case "send":
				m.transmit(false)
			case "killed":
				m.transmit(true)
			case "restart":
				m.start()
			case "killed at removal":
				m.killAtRemoval()
			}
		}
		m.end()
	})
}

// end lets everything settle, and compares the folder, the queue and the server.
func (m *world) end() {
	for _, p := range slices.Collect(maps.Keys(m.open)) {
		m.close(p)
	}
	m.w.Send = func(_ context.Context, paths iter.Seq[string], intact func(string) bool, result func(Result)) error {
		for p := range paths {
			if intact(p) {
				m.commit(p, result, func() {})
			}
		}
		return nil
	}
	var files []Listing
	for range 10 {
		m.scan(modelSettle)
		m.now = m.now.Add(2 * maxRetry)
		m.transmit(false)
		m.scan(modelSettle)
		var err error
		_, files, err = m.w.Queue.List()
		require.NoError(m.t, err)
		rest := slices.ContainsFunc(files, func(f Listing) bool { return f.State != There })
		if !rest && (!m.then.Delete || len(m.present()) == 0) {
			break
		}
	}
	for _, f := range files {
		require.Equal(m.t, There, f.State, f.Path)
	}
	for p, content := range m.present() {
		require.False(m.t, m.then.Delete, "%s stays", p)
		require.Equal(m.t, m.local[p]+"\n", content, "the watcher changes nothing")
		all := m.server[p]
		require.Equal(m.t, m.local[p], all[len(all)-1], "the server has the last version of %s", p)
	}
	for content, n := range m.sends {
		require.True(m.t, n == 1 || m.moved[content], "%q was sent %d times", content, n)
	}
	if m.then.Delete {
		require.Empty(m.t, m.local, "what was written is lost")
	} else {
		require.Len(m.t, m.present(), len(m.local))
	}
}

// emptyQueue returns the content of the file of a new queue.
func emptyQueue(t *testing.T) []byte {
	q := OpenQueue(t.TempDir(), "dir", "url")
	require.NoError(t, q.Pause(false))
	content, err := os.ReadFile(q.path)
	require.NoError(t, err)
	return content
}

// hasLeases reports whether the system says who has a file open for writing.
func hasLeases(t *testing.T) bool {
	f, err := os.Create(filepath.Join(t.TempDir(), "probe"))
	require.NoError(t, err)
	defer f.Close()
	r, err := os.Open(f.Name())
	require.NoError(t, err)
	defer r.Close()
	return isOpenForWriting(r)
}
