package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"lukechampine.com/blake3"
)

// session runs a Sender and a Receiver over pipes.
type session struct {
	source  Source
	target  *access.Scope
	path    string
	streams int
	opt     wire.Target
	patient bool                              // wait for answers
	near    bool                              // a path within a building
	memory  *Account                          // of both sides
	early   bool                              // the source is an EarlySource
	part    *wire.Range                       // what is sent of each file
	ended   func()                            // an entry has ended at the sender
	wrap    func(id int, s net.Conn) net.Conn // of the sender's end of each data stream

	sent, got             []Event
	sender                *Sender
	receiver              *Receiver
	sendErr, receiveErr   error
	sendStats, writeStats Stats
}

func (x *session) run(t *testing.T, ctx context.Context) {
	t.Helper()
	a, b := net.Pipe()
	x.sender = NewSender(a, wire.NewReader(a, wire.MaxMessage), x.source, SenderOptions{
		Speculate: !x.patient, Near: x.near, Delta: x.opt.Delta, Event: x.event, Memory: x.memory,
	})
	x.receiver = NewReceiver(b, wire.NewReader(b, wire.MaxMessage), x.target, ReceiverOptions{
		Path: x.path, Target: x.opt, Event: func(e *Event) { x.got = append(x.got, kept(e)) }, Memory: x.memory, Early: x.early, Range: x.part,
	})
	for i := range x.streams {
		c, d := net.Pipe()
		if x.wrap != nil {
			c = x.wrap(i, c)
		}
		x.sender.AddStream(uint64(i), c)
		x.receiver.AddStream(d)
	}
	var both sync.WaitGroup
	both.Go(func() { x.sendErr = x.sender.Run(ctx); a.Close() })
	both.Go(func() { x.receiveErr = x.receiver.Run(ctx); b.Close() })
	both.Wait()
	x.sendStats, x.writeStats = x.sender.Stats(), x.receiver.Stats()
}

// kept is an event that stays valid.
func kept(e *Event) Event {
	ev := *e
	if e.Entry != nil {
		entry := *e.Entry
		ev.Entry = &entry
	}
	return ev
}

func (x *session) event(e *Event) {
	x.sent = append(x.sent, kept(e))
	if x.ended != nil && (e.Kind == Skipped || e.Kind == Failed) {
		x.ended()
	}
}

func (x *session) ok(t *testing.T) {
	t.Helper()
	require.NoError(t, x.sendErr)
	require.NoError(t, x.receiveErr)
	for _, e := range append(x.sent, x.got...) {
		require.NotEqual(t, Failed, e.Kind, "%v", e.Err)
	}
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

func randomBytes(rng *rand.Rand, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], rng.Uint64())
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func openTree(t *testing.T, dir string) *access.Scope {
	tree, err := access.OpenTarget(dir, access.Asked{Base: "."})
	require.NoError(t, err)
	t.Cleanup(func() { tree.Close() })
	return tree
}

// makeTree writes files of all sizes around the block's, folders and symlinks.
func makeTree(t *testing.T, rng *rand.Rand, dir string) {
	sizes := []int{0, 1, 1000, 65536, 65537, 300_000, 1 << 20, 3<<20 + 17, 70 << 20}
	for i, n := range sizes {
		sub := filepath.Join(dir, "d"+string(rune('a'+i%3)), "e")
		require.NoError(t, os.MkdirAll(sub, 0o755))
		name := filepath.Join(sub, "f"+string(rune('a'+i)))
		require.NoError(t, os.WriteFile(name, randomBytes(rng, n), os.FileMode(0o600+i)))
		when := time.Unix(1_600_000_000+int64(i), 123456789)
		require.NoError(t, os.Chtimes(name, when, when))
	}
	require.NoError(t, os.Symlink("../nowhere", filepath.Join(dir, "da", "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	old := time.Unix(1_500_000_000, 5)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "da"), old, old))
}

// requireSameTree compares names, kinds, content, modes and times.
func requireSameTree(t *testing.T, want, got string) {
	t.Helper()
	list := func(root string) map[string]os.FileInfo {
		m := map[string]os.FileInfo{}
		require.NoError(t, filepath.Walk(root, func(p string, i os.FileInfo, err error) error {
			rel, _ := filepath.Rel(root, p)
			m[rel] = i
			return err
		}))
		return m
	}
	a, b := list(want), list(got)
	for p, i := range a {
		j, ok := b[p]
		require.True(t, ok, "%s is missing", p)
		require.Equal(t, i.Mode(), j.Mode(), p)
		if p != "." {
			require.True(t, i.ModTime().Equal(j.ModTime()), "%s: %v, %v", p, i.ModTime(), j.ModTime())
		}
		switch {
		case i.Mode().IsRegular():
			x, err := os.ReadFile(filepath.Join(want, p))
			require.NoError(t, err)
			y, err := os.ReadFile(filepath.Join(got, p))
			require.NoError(t, err)
			require.True(t, bytes.Equal(x, y), p)
		case i.Mode()&os.ModeSymlink != 0:
			x, _ := os.Readlink(filepath.Join(want, p))
			y, _ := os.Readlink(filepath.Join(got, p))
			require.Equal(t, x, y)
		}
		delete(b, p)
	}
	require.Empty(t, b)
}

func TestTree(t *testing.T) {
	defer goleak.VerifyNone(t)
	src, dst := t.TempDir(), t.TempDir()
	makeTree(t, seeded(t), src)
	tree, err := access.OpenTarget(src, access.Asked{Base: "."})
	require.NoError(t, err)
	defer tree.Close()
	target, err := access.OpenTarget(dst, access.Asked{Base: "."})
	require.NoError(t, err)
	defer target.Close()
	s := session{source: &TreeSource{Roots: []Root{{Tree: tree, Path: "."}}}, target: target, path: ".", streams: 5}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)

	again := session{source: s.source, target: target, path: ".", streams: 3}
	again.run(t, t.Context())
	again.ok(t)
	require.Less(t, again.sendStats.Read, int64(speculate+1<<maxBlockLog), "unchanged files are not sent")
	require.Zero(t, again.writeStats.Written)
}

// TestNear: within a building, a file without a checkpoint is cut into the largest blocks, and up to one
// of these it travels whole. Other files keep their blocks, of which an earlier session may have left some.
func TestNear(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	makeTree(t, seeded(t), src)
	s := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, target: openTree(t, dst), path: ".", streams: 2, near: true}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)
	for _, e := range s.got {
		if e.Kind != Found || e.Entry.Kind != wire.File {
			continue
		}
		want := uint8(maxBlockLog)
		if e.Entry.Size > disk.CheckpointFrom {
			want = blockLog(e.Entry.Size)
			require.Less(t, want, uint8(maxBlockLog), "the test needs a file between these sizes")
		}
		require.Equal(t, want, e.Entry.BlockLog, "%d bytes", e.Entry.Size)
	}
}

func TestRename(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), []byte("hello"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dst, "in"), 0o755))
	for path, want := range map[string]string{"b": "b", "new/": "new/a", "in": "in/a", "x/y": "x/y"} {
		s := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "a", As: "a"}}}, target: openTree(t, dst), path: path, streams: 1}
		s.run(t, t.Context())
		s.ok(t)
		got, err := os.ReadFile(filepath.Join(dst, want))
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
	}
}

func TestStream(t *testing.T) {
	rng := seeded(t)
	for _, n := range []int{0, 1, 1 << 20, 100<<20 + 3} {
		data := randomBytes(rng, n)
		dst := t.TempDir()
		target := openTree(t, dst)
		source := &StreamSource{Entry: wire.Entry{Kind: wire.File, Path: "-", Size: wire.Unknown, Mode: 0o600}, R: bytes.NewReader(data)}
		s := session{source: source, target: target, path: "dump", streams: 4}
		s.wrap = func(id int, c net.Conn) net.Conn {
			if id == 1 {
				return &dying{Conn: c, left: 1 << 19}
			}
			return c
		}
		s.run(t, t.Context())
		s.ok(t)
		got, err := os.ReadFile(filepath.Join(dst, "dump"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		i := slices.IndexFunc(s.got, func(e Event) bool { return e.Kind == Committed })
		require.NotEqual(t, -1, i, "the other end may report more after it")
		require.Equal(t, blake3.Sum256(data), s.got[i].Digest)
	}
}

func TestBrokenStreamLeavesNothing(t *testing.T) {
	dst := t.TempDir()
	r := io.MultiReader(bytes.NewReader(make([]byte, 5<<20)), brokenReader{})
	source := &StreamSource{Entry: wire.Entry{Kind: wire.File, Path: "-", Size: wire.Unknown}, R: r}
	s := session{source: source, target: openTree(t, dst), path: "dump", streams: 2}
	s.run(t, t.Context())
	require.True(t, slices.ContainsFunc(s.sent, func(e Event) bool { return e.Kind == Failed }), "the other end may report more after it")
	names, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Empty(t, names)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// dying is a connection that breaks after some bytes.
type dying struct {
	net.Conn
	left int
}

func (d *dying) Write(p []byte) (int, error) {
	if len(p) > d.left {
		n, _ := d.Conn.Write(p[:d.left])
		d.Conn.Close()
		return n, net.ErrClosed
	}
	d.left -= len(p)
	return d.Conn.Write(p)
}

// TestDeadStreams lets all streams but one die in the middle.
func TestDeadStreams(t *testing.T) {
	defer goleak.VerifyNone(t)
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	makeTree(t, rng, src)
	s := session{streams: 6, path: "."}
	tree, err := access.OpenTarget(src, access.Asked{Base: "."})
	require.NoError(t, err)
	defer tree.Close()
	s.source = &TreeSource{Roots: []Root{{Tree: tree, Path: "."}}}
	s.target, err = access.OpenTarget(dst, access.Asked{Base: "."})
	require.NoError(t, err)
	defer s.target.Close()
	s.wrap = func(id int, c net.Conn) net.Conn {
		if id == 0 {
			return c
		}
		return &dying{Conn: c, left: rng.IntN(8 << 20)}
	}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)
}

// TestSilentStreams lets streams stall in the middle of a block. Once it is overdue, another stream
// sends it as well.
func TestSilentStreams(t *testing.T) {
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	makeTree(t, rng, src)
	s := session{streams: 4, path: ".", source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, target: openTree(t, dst)}
	s.wrap = func(id int, c net.Conn) net.Conn {
		if id == 0 {
			return c
		}
		return &silent{Conn: c, left: rng.IntN(8 << 20), closed: make(chan struct{})}
	}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)
}

// TestAbortedStreams: a stream discards what it has not sent if it was dropped, or the session failed. Otherwise it ends
// as usual.
func TestAbortedStreams(t *testing.T) {
	for name, fails := range map[string]bool{"a stream is dropped": false, "the session fails": true} {
		t.Run(name, func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			makeTree(t, seeded(t), src)
			s := session{streams: 3, path: ".", source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, target: openTree(t, dst)}
			streams := make([]*abortable, s.streams)
			stalls := make(chan struct{})
			s.wrap = func(id int, c net.Conn) net.Conn {
				if id == 1 {
					c = &silent{Conn: c, left: 1 << 20, closed: make(chan struct{}), stalls: func() { close(stalls) }}
				}
				streams[id] = &abortable{Conn: c}
				return streams[id]
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var act sync.WaitGroup
			act.Go(func() {
				<-stalls
				if fails {
					cancel()
				} else {
					s.sender.Drop(1)
				}
			})
			s.run(t, ctx)
			act.Wait()
			for id, stream := range streams {
				require.Equal(t, fails || id == 1, stream.aborted.Load(), "stream %d", id)
			}
			if !fails {
				s.ok(t)
				requireSameTree(t, src, dst)
			}
		})
	}
}

// abortable is a connection that knows whether it was aborted before it was closed.
type abortable struct {
	net.Conn
	closed, aborted atomic.Bool
}

func (a *abortable) Abort() error {
	if a.closed.CompareAndSwap(false, true) {
		a.aborted.Store(true)
	}
	return a.Conn.Close()
}

func (a *abortable) Close() error {
	a.closed.Store(true)
	return a.Conn.Close()
}

// silent is a connection that stalls after some bytes, until it is closed.
type silent struct {
	net.Conn
	left   int
	once   sync.Once
	closed chan struct{}
	stalls func() // nil does nothing
}

func (d *silent) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		if d.stalls != nil {
			d.stalls()
		}
		<-d.closed
		return 0, net.ErrClosed
	}
	return d.Conn.Write(p)
}

func (d *silent) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// TestUnderway: both ends know that a block is on its way while a peer sends its bytes slowly, and only then.
func TestUnderway(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), randomBytes(seeded(t), 1<<20), 0o600))
	s := session{streams: 1, path: ".", source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, target: openTree(t, dst)}
	slow := 0
	s.wrap = func(_ int, c net.Conn) net.Conn {
		return writes{c, func(p []byte) (int, error) {
			if slow > 0 || len(p) < wire.BlockHeaderLen*2 {
				return c.Write(p)
			}
			n, err := c.Write(p[:len(p)/2])
			require.Eventually(t, func() bool { return s.receiver.Stats().Underway == 1 }, time.Minute, time.Millisecond)
			require.EqualValues(t, 1, s.sender.Stats().Underway)
			slow++
			m, err2 := c.Write(p[n:])
			return n + m, errors.Join(err, err2)
		}}
	}
	s.run(t, t.Context())
	s.ok(t)
	require.Equal(t, 1, slow)
	require.Zero(t, s.sendStats.Underway)
	require.Zero(t, s.writeStats.Underway)
}

// writes is a connection with another Write.
type writes struct {
	net.Conn
	write func(p []byte) (int, error)
}

func (w writes) Write(p []byte) (int, error) { return w.write(p) }

// TestResume cuts a session at random moments until the file is there. Nothing that the receiver
// has recorded travels again.
func TestResume(t *testing.T) {
	defer goleak.VerifyNone(t)
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	data := randomBytes(rng, 90<<20+5)
	require.NoError(t, os.WriteFile(filepath.Join(src, "big"), data, 0o640))
	tree, err := access.OpenTarget(src, access.Asked{Base: "."})
	require.NoError(t, err)
	defer tree.Close()
	target, err := access.OpenTarget(dst, access.Asked{Base: "."})
	require.NoError(t, err)
	defer target.Close()
	var written, resumed int64
	for try := 0; ; try++ {
		s := session{source: &TreeSource{Roots: []Root{{Tree: tree, Path: "big", As: "big"}}}, target: target, path: ".", streams: 4}
		ctx, cancel := context.WithCancel(t.Context())
		// Blocks that are under way at the end count for nothing, and on a busy machine that can be all
		// of a short try. So later tries last longer.
		after := (10+2*try)<<20 + rng.IntN(15<<20)
		total := 0
		var mu sync.Mutex
		s.wrap = func(_ int, c net.Conn) net.Conn {
			return counting{c, func(n int) {
				mu.Lock()
				defer mu.Unlock()
				if total += n; total > after {
					cancel()
				}
			}}
		}
		s.run(t, ctx)
		cancel()
		require.GreaterOrEqual(t, s.writeStats.Resumed, written, "everything written is still there")
		resumed = s.writeStats.Resumed
		written = resumed + s.writeStats.Written
		if s.sendErr == nil {
			break
		}
		require.NoFileExists(t, filepath.Join(dst, "big"))
		require.Less(t, try, 20)
	}
	require.Positive(t, resumed)
	got, err := os.ReadFile(filepath.Join(dst, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	names, err := os.ReadDir(dst)
	require.NoError(t, err)
	require.Len(t, names, 1)
}

type counting struct {
	net.Conn
	wrote func(int)
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote(n)
	return n, err
}

// TestDamagedPartial damages what an interrupted session left: the bad blocks are sent again.
func TestDamagedPartial(t *testing.T) {
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	data := randomBytes(rng, 80<<20)
	require.NoError(t, os.WriteFile(filepath.Join(src, "big"), data, 0o640))
	tree, target := openTree(t, src), openTree(t, dst)
	ctx, cancel := context.WithCancel(t.Context())
	first := session{source: &TreeSource{Roots: []Root{{Tree: tree, Path: "big", As: "big"}}}, target: target, path: ".", streams: 2}
	var total int
	var mu sync.Mutex
	first.wrap = func(_ int, c net.Conn) net.Conn {
		return counting{c, func(n int) {
			mu.Lock()
			defer mu.Unlock()
			if total += n; total > 50<<20 {
				cancel()
			}
		}}
	}
	first.run(t, ctx)
	require.Error(t, first.sendErr)
	parts, err := filepath.Glob(filepath.Join(dst, ".fxfer-*.part"))
	require.NoError(t, err)
	require.Len(t, parts, 1)
	f, err := os.OpenFile(parts[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), 10<<20+99)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	second := session{source: first.source, target: target, path: ".", streams: 2}
	second.run(t, t.Context())
	second.ok(t)
	require.Equal(t, int64(1), second.writeStats.Rejected)
	got, err := os.ReadFile(filepath.Join(dst, "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// TestDamagedPartialAmongMany damages all that an interrupted session left. So the receiver knows
// it before it has answered for the entries of the message. The blocks are sent again all the same.
func TestDamagedPartialAmongMany(t *testing.T) {
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	data := randomBytes(rng, 12<<20)
	require.NoError(t, os.Mkdir(filepath.Join(src, "many"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(src, "many", "big"), data, 0o640))
	tree, target := openTree(t, src), openTree(t, dst)
	ctx, cancel := context.WithCancel(t.Context())
	first := session{source: &TreeSource{Roots: []Root{{Tree: tree, Path: "many", As: "many"}}}, target: target, path: ".", streams: 1}
	var total atomic.Int64
	first.wrap = func(_ int, c net.Conn) net.Conn {
		return counting{c, func(n int) {
			if total.Add(int64(n)) > 4<<20 {
				cancel()
			}
		}}
	}
	first.run(t, ctx)
	require.Error(t, first.sendErr)
	parts, err := filepath.Glob(filepath.Join(dst, "many", ".fxfer-*.part"))
	require.NoError(t, err)
	require.Len(t, parts, 1)
	f, err := os.OpenFile(parts[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	for off := range int64(4) {
		_, err = f.WriteAt([]byte("damage"), off<<20)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	for i := range 1000 {
		require.NoError(t, os.WriteFile(filepath.Join(src, "many", strconv.Itoa(i)), nil, 0o644))
	}

	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	second := session{source: &TreeSource{Roots: []Root{{Tree: tree, Path: "many", As: "many"}}}, target: target, path: ".", streams: 2}
	second.run(t, ctx)
	second.ok(t)
	require.Positive(t, second.writeStats.Rejected)
	got, err := os.ReadFile(filepath.Join(dst, "many", "big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// TestChangingSource changes a file between the walk and the reading. The new file arrives whole.
func TestChangingSource(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	name := filepath.Join(src, "f")
	require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("old"), 1<<20), 0o644))
	s := session{target: openTree(t, dst), path: ".", streams: 2}
	s.source = changer{&TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "f", As: "f"}}}, func() {
		require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("newer"), 1<<20), 0o644))
	}}
	s.run(t, t.Context())
	s.ok(t)
	got, err := os.ReadFile(filepath.Join(dst, "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(bytes.Repeat([]byte("newer"), 1<<20), got))
}

// TestVanishedSource removes a file while it is read. It is missing, which is no difference of data.
func TestVanishedSource(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	name := filepath.Join(src, "f")
	require.NoError(t, os.WriteFile(name, make([]byte, 3<<20), 0o644))
	s := session{target: openTree(t, dst), path: ".", streams: 2}
	tree := &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "f", As: "f"}}}
	s.source = walker{tree, func(i *Item) { i.Content = vanishing{i.Content.(*treeFile), name} }}
	s.run(t, t.Context())
	var failed *wire.Error
	for _, e := range s.sent {
		if e.Kind == Failed {
			require.ErrorAs(t, e.Err, &failed)
		}
	}
	require.NotNil(t, failed)
	require.Equal(t, wire.CodeNotFound, failed.Code, "%v", failed)
	require.NoFileExists(t, filepath.Join(dst, "f"))
}

// vanishing is a file that changes and is gone when it is opened.
type vanishing struct {
	*treeFile
	name string
}

func (v vanishing) Open() (File, error) {
	return nil, errors.Join(disk.ErrChanged, os.Remove(v.name))
}

// Each part of a file is said to be sent once, after it was read. Then the file may leave the page cache.
func TestSent(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	const size = 9<<20 + 5
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), randomBytes(seeded(t), size), 0o644))
	s := session{target: openTree(t, dst), path: ".", streams: 4}
	tree := &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "f", As: "f"}}}
	var leaving *leavingSource
	s.source = walker{tree, func(i *Item) {
		leaving = &leavingSource{Content: i.Content, t: t, left: map[int64]int64{0: size}}
		i.Content = leaving
	}}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)
	require.Empty(t, leaving.left)
}

// leavingSource is a Content that knows which parts of its file are left to send.
type leavingSource struct {
	Content
	t    *testing.T
	mu   sync.Mutex
	left map[int64]int64 // the lengths of parts by their offsets
}

func (l *leavingSource) Open() (File, error) {
	f, err := l.Content.Open()
	return leavingHandle{f, l}, err
}

type leavingHandle struct {
	File
	of *leavingSource
}

func (l leavingHandle) Sent(off, n int64) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	for from, length := range l.of.left {
		if from <= off && off+n <= from+length {
			delete(l.of.left, from)
			if off > from {
				l.of.left[from] = off - from
			}
			if rest := from + length - off - n; rest > 0 {
				l.of.left[off+n] = rest
			}
			return
		}
	}
	l.of.t.Errorf("%d bytes from %d were sent before, or are not of the file", n, off)
}

// TestManyChangingSources changes more files than may be under way at a time.
func TestManyChangingSources(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and other tests have its goroutines as well")
	}
	src, dst := t.TempDir(), t.TempDir()
	for i := range 2 * maxOpen {
		require.NoError(t, os.WriteFile(filepath.Join(src, string(rune('A'+i))), make([]byte, 200_000), 0o644))
	}
	s := session{target: openTree(t, dst), path: ".", streams: 2}
	tree := &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: ".", As: ""}}}
	s.source = walker{tree, func(i *Item) {
		if i.Content != nil {
			name := filepath.Join(src, i.Entry.Path)
			require.NoError(t, os.WriteFile(name, make([]byte, 300_000), 0o644))
		}
	}}
	s.run(t, t.Context())
	s.ok(t)
	requireSameTree(t, src, dst)
}

// walker looks at each item before it is announced.
type walker struct {
	Source
	look func(*Item)
}

func (w walker) Walk(ctx context.Context, visit func(Item) error, failed func(string, error)) error {
	return w.Source.Walk(ctx, func(i Item) error { w.look(&i); return visit(i) }, failed)
}

// hostile runs a script of the sender's side against a Receiver.
func hostile(t *testing.T, target *access.Scope, messages ...wire.Message) (data net.Conn, done chan struct{}) {
	t.Helper()
	a, b := net.Pipe()
	c, d := net.Pipe()
	v := NewReceiver(b, wire.NewReader(b, wire.MaxMessage), target, ReceiverOptions{Path: "."})
	v.AddStream(d)
	done = make(chan struct{})
	go func() {
		defer close(done)
		_ = v.Run(t.Context())
		b.Close()
	}()
	go func() { _, _ = io.Copy(io.Discard, a) }()
	for _, m := range messages {
		_, _ = a.Write(wire.Append(nil, m))
	}
	t.Cleanup(func() { a.Close(); c.Close(); <-done })
	return c, done
}

// TestHostileSender sends what no sender may send. The session ends or the entry fails, and nothing
// outside of the target changes.
func TestHostileSender(t *testing.T) {
	file := func(path string, size int64) *wire.Entries {
		return &wire.Entries{Entries: []wire.Entry{{Kind: wire.File, Path: path, Size: size, BlockLog: 20, Mode: 0o600}}}
	}
	head := func(index uint64, block int64, length uint32) []byte {
		b := make([]byte, wire.BlockHeaderLen)
		(&wire.BlockHeader{Index: index, Block: block, Length: length}).Put(b)
		return b
	}
	for name, c := range map[string]struct {
		messages []wire.Message
		data     []byte
	}{
		"entries before the manifest":   {[]wire.Message{file("a", 5)}, nil},
		"numbers with a gap":            {[]wire.Message{&wire.Manifest{}, &wire.Entries{First: 3}}, nil},
		"two manifests":                 {[]wire.Message{&wire.Manifest{}, &wire.Manifest{}}, nil},
		"a block beyond the end":        {[]wire.Message{&wire.Manifest{}, file("a", 5)}, head(0, 1, 5)},
		"a block of another length":     {[]wire.Message{&wire.Manifest{}, file("a", 5)}, head(0, 0, 6)},
		"a block of no entry":           {[]wire.Message{&wire.Manifest{}, file("a", 5), &wire.EndManifest{Count: 1}}, head(7, 0, 5)},
		"an end of no entry":            {[]wire.Message{&wire.Manifest{}, &wire.EndEntry{Index: 2}}, nil},
		"another size at the end":       {[]wire.Message{&wire.Manifest{}, file("a", 5), &wire.EndEntry{Index: 0, Size: 6}}, nil},
		"fewer entries than there were": {[]wire.Message{&wire.Manifest{}, file("a", 5), &wire.EndManifest{Count: 0}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			data, done := hostile(t, openTree(t, dst), c.messages...)
			if c.data != nil {
				_, _ = data.Write(c.data)
			}
			<-done
			entries, err := os.ReadDir(dst)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
	for name, x := range map[string]wire.Entry{
		"the target itself":  {Kind: wire.Symlink, Path: ".", Link: "/etc"},
		"above the target":   {Kind: wire.Dir, Path: "../x", Mode: 0o777},
		"an absolute path":   {Kind: wire.File, Path: "/tmp/x", BlockLog: 16},
		"a name of our own":  {Kind: wire.File, Path: ".fxfer-0.part", BlockLog: 16},
		"a share":            {Kind: wire.Share, Path: "s"},
		"through a symlink":  {Kind: wire.File, Path: "out/x", BlockLog: 16},
		"a name with a zero": {Kind: wire.Symlink, Path: "a\x00b", Link: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dst, outside := t.TempDir(), t.TempDir()
			require.NoError(t, os.Symlink(outside, filepath.Join(dst, "out")))
			require.NoError(t, os.Chmod(dst, 0o700))
			a, b := net.Pipe()
			v := NewReceiver(b, wire.NewReader(b, wire.MaxMessage), openTree(t, dst), ReceiverOptions{Path: "."})
			done := make(chan error, 1)
			go func() { done <- v.Run(t.Context()); b.Close() }()
			go func() {
				for _, m := range []wire.Message{&wire.Manifest{}, &wire.Entries{Entries: []wire.Entry{x}}, &wire.EndManifest{Count: 1}} {
					_, _ = a.Write(wire.Append(nil, m))
				}
			}()
			r := wire.NewReader(a, wire.MaxMessage)
			m, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, wire.Fail, m.(*wire.Answers).Answers[0].Verdict)
			_, err = r.Next()
			require.NoError(t, err, "the session goes on to its end")
			a.Close()
			require.NoError(t, <-done)
			info, err := os.Stat(dst)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
			entries, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

// changer changes each file once, before it is opened for the first time.
type changer struct {
	Source
	change func()
}

func (c changer) Walk(ctx context.Context, visit func(Item) error, failed func(string, error)) error {
	var once sync.Once
	return c.Source.Walk(ctx, func(i Item) error {
		if file, ok := i.Content.(*treeFile); ok {
			i.Content = changing{file, func() { once.Do(c.change) }}
		}
		return visit(i)
	}, failed)
}

type changing struct {
	*treeFile
	change func()
}

func (c changing) Open() (File, error) { c.change(); return c.treeFile.Open() }

// TestEndFailsNoEntry ends a session while both sides read files to compare them. No file is to blame.
func TestEndFailsNoEntry(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	content := randomBytes(seeded(t), 3<<20)
	for _, dir := range []string{src, dst} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), content, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), content, 0o600))
	}
	ctx, lose := context.WithCancelCause(t.Context())
	defer lose(nil)
	s := session{target: openTree(t, dst), path: "."}
	s.opt.Compare.Checksum = true
	s.source = changer{&TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, func() {
		lose(io.ErrUnexpectedEOF)
		<-s.sender.Done() // before the second block
		<-s.receiver.Done()
	}}
	s.run(t, ctx)
	require.ErrorContains(t, s.sendErr, io.ErrUnexpectedEOF.Error()) // may be by the peer's word

	late := &receiving{meta: disk.Meta{Path: "late"}, short: -1} // such as one whose copy of the old version gave up
	s.receiver.fail(late, s.receiveErr)
	s.receiver.conclude(late, &wire.Answer{}, s.receiveErr)
	for _, e := range append(s.sent, s.got...) {
		require.NotEqual(t, Failed, e.Kind, "%v", e.Err)
	}
}

// reset is a stream whose blocks never arrive. Its reader learns that once the first was written.
type reset struct {
	net.Conn
	lost chan struct{} // closed with the first write
	once sync.Once
}

func (r *reset) Write(p []byte) (int, error) { r.once.Do(func() { close(r.lost) }); return len(p), nil }

func (r *reset) Read([]byte) (int, error) { <-r.lost; return 0, io.ErrUnexpectedEOF }

// after is a stream that begins to write when a channel is closed.
type after struct {
	net.Conn
	begin chan struct{}
}

func (a *after) Write(p []byte) (int, error) { <-a.begin; return a.Conn.Write(p) }

// TestResetStream ends a stream that has blocks in flight and nothing more to send. The blocks go
// to another stream.
func TestResetStream(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	want := randomBytes(seeded(t), 2<<20)
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), want, 0o600))
	lost := make(chan struct{})
	s := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "a", As: "a"}}}, target: openTree(t, dst), path: ".", streams: 2, wrap: func(id int, c net.Conn) net.Conn {
		if id == 0 {
			return &reset{Conn: c, lost: lost}
		}
		return &after{c, lost}
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.run(t, ctx)
	s.ok(t)
	got, err := os.ReadFile(filepath.Join(dst, "a"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
