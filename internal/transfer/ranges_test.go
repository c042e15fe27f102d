package transfer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

const (
	testRangeLog = 23
	rangedSize   = 4<<testRangeLog + 5<<20 + 123 // 5 ranges
)

// rangeOf is range n of the file "sub/f" of a folder, as it is now.
func rangeOf(t *testing.T, source string, n uint64) *FileRange {
	t.Helper()
	m, err := openTree(t, source).Stat("sub/f")
	require.NoError(t, err)
	return &FileRange{Range: wire.Range{Log: testRangeLog, Number: n}, Size: m.Size, ModTime: m.ModTime, Ino: m.ID.Ino}
}

// rangeSession prepares a session for a range.
func rangeSession(t *testing.T, source, target string, r *FileRange) *session {
	t.Helper()
	root := Root{Tree: openTree(t, source), Path: "."}
	paths := func(yield func(string, error) bool) { yield("sub/f", nil) }
	return &session{
		source: &TreeSource{Roots: []Root{root}, Paths: paths, Part: true, Range: r},
		target: openTree(t, target), path: ".", streams: 3, part: &r.Range,
	}
}

// last is the kind of the event that ends the file, 0 if nothing ended.
func (x *session) last() (kind EventKind) {
	for _, e := range x.sent {
		if e.Entry != nil && e.Entry.Kind == wire.File && e.Kind != Found && e.Kind != Started && e.Kind != Written {
			kind = e.Kind
		}
	}
	return kind
}

func sendRange(t *testing.T, source, target string, n uint64) *session {
	t.Helper()
	x := rangeSession(t, source, target, rangeOf(t, source, n))
	x.run(t, t.Context())
	require.NoError(t, x.sendErr)
	require.NoError(t, x.receiveErr)
	return x
}

func makeRanged(t *testing.T, content []byte) (source, target string) {
	t.Helper()
	source, target = t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(source, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(source, "sub", "f"), content, 0o640))
	return source, target
}

// requireRangedFile checks that the file is there, with its time and mode, and nothing beside it.
func requireRangedFile(t *testing.T, source, target string) {
	t.Helper()
	for _, dir := range []string{source, target} { // sessions without the whole set no times of folders
		require.NoError(t, os.Chtimes(filepath.Join(dir, "sub"), time.Unix(1, 0), time.Unix(1, 0)))
	}
	requireSameTree(t, source, target)
}

func requireNoRangedFile(t *testing.T, target string) {
	t.Helper()
	require.NoFileExists(t, filepath.Join(target, "sub", "f"))
}

// TestRangesOfFile: several sessions at a time send ranges of a file, each twice, and some are cut. The
// file comes when the last range is there. No range that was complete travels again.
func TestRangesOfFile(t *testing.T) {
	r := seeded(t)
	source, target := makeRanged(t, randomBytes(r, rangedSize))
	var written, resumed, named int64
	var mu sync.Mutex
	todo := []uint64{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}
	r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	cut := make([]int, 12)
	for i := range cut {
		cut[i] = r.IntN(8 << 20)
	}
	next := make(chan uint64, len(todo))
	for _, n := range todo {
		next <- n
	}
	close(next)
	var hosts sync.WaitGroup
	for range 3 {
		hosts.Go(func() {
			for n := range next {
				for {
					x := rangeSession(t, source, target, rangeOf(t, source, n))
					ctx, cancel := context.WithCancel(t.Context())
					mu.Lock()
					if len(cut) > 0 {
						left := cut[0]
						cut = cut[1:]
						x.streams = 1
						x.wrap = func(_ int, c net.Conn) net.Conn { return &cutting{Conn: c, left: left, cut: cancel} }
					}
					mu.Unlock()
					x.run(t, ctx)
					done := ctx.Err() == nil
					cancel()
					mu.Lock()
					written += x.writeStats.Written
					if resumed += x.writeStats.Resumed; x.last() == Committed {
						named++
					}
					mu.Unlock()
					if done {
						x.ok(t)
						require.Contains(t, []EventKind{Skipped, Same, Committed}, x.last())
						break
					}
				}
			}
		})
	}
	hosts.Wait()
	requireRangedFile(t, source, target)
	require.LessOrEqual(t, named, int64(1), "or the session was cut before it heard of it")
	require.GreaterOrEqual(t, written, int64(rangedSize))
	require.LessOrEqual(t, written, int64(rangedSize)+12<<20, "nothing but what was in flight")
	t.Logf("%d bytes, %d resumed", written, resumed)
}

// cutting is a connection that ends with its session after some bytes.
type cutting struct {
	net.Conn
	left int
	cut  func()
}

func (c *cutting) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		c.cut()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// TestRangeReadsItsPart: a session reads its range and nothing else, on both sides, and the last one
// does not read the others again.
func TestRangeReadsItsPart(t *testing.T) {
	source, target := makeRanged(t, randomBytes(seeded(t), rangedSize))
	for i, n := range []uint64{4, 2, 0, 3, 1} {
		requireNoRangedFile(t, target)
		x := sendRange(t, source, target, n)
		x.ok(t)
		want := int64(1 << testRangeLog)
		if n == 4 {
			want = rangedSize - 4<<testRangeLog
		}
		require.Equal(t, want, x.sendStats.Read)
		require.Equal(t, want, x.writeStats.Written)
		require.Equal(t, i == 4, x.last() == Committed)
		again := sendRange(t, source, target, n)
		again.ok(t)
		require.Zero(t, again.sendStats.Read)
		require.Equal(t, i == 4, again.last() == Same)
	}
	requireRangedFile(t, source, target)
}

// TestRangesThenWhole: the session with the whole tree finds what ranges have left, and a session with
// the last range what the whole has left.
func TestRangesThenWhole(t *testing.T) {
	source, target := makeRanged(t, randomBytes(seeded(t), rangedSize))
	sendRange(t, source, target, 1).ok(t)
	sendRange(t, source, target, 4).ok(t)
	x := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target), path: ".", streams: 3, patient: true}
	x.run(t, t.Context())
	x.ok(t)
	require.EqualValues(t, 3<<testRangeLog, x.writeStats.Written)
	requireSameTree(t, source, target)
}

// TestRangesWithHoles: holes stay holes, also those over a whole range.
func TestRangesWithHoles(t *testing.T) {
	r := seeded(t)
	source, target := makeRanged(t, nil)
	f := filepath.Join(source, "sub", "f")
	require.NoError(t, os.Truncate(f, rangedSize))
	w, err := os.OpenFile(f, os.O_WRONLY, 0)
	require.NoError(t, err)
	for _, off := range []int64{3 << 20, 1<<testRangeLog - 5000, 2<<testRangeLog + 100_000} {
		_, err := w.WriteAt(randomBytes(r, 20_000), off)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	for _, n := range []uint64{3, 1, 4, 2, 0} {
		x := sendRange(t, source, target, n)
		x.ok(t)
		require.LessOrEqual(t, x.writeStats.Written, int64(3<<20))
	}
	requireRangedFile(t, source, target)
	size, allocated := diskUse(t, f)
	gotSize, got := diskUse(t, filepath.Join(target, "sub", "f"))
	require.Equal(t, size, gotSize)
	require.LessOrEqual(t, got, allocated+1<<20)
}

func diskUse(t *testing.T, path string) (size, allocated int64) {
	tree := openTree(t, filepath.Dir(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	f, err := tree.OpenFile(filepath.Base(path))
	require.NoError(t, err)
	defer f.Close()
	data, err := f.Data(0, info.Size())
	require.NoError(t, err)
	for _, r := range data {
		allocated += r.Len
	}
	return info.Size(), allocated
}

// TestRangeOfAnotherFile: nothing is sent of a file that is not what was listed, and a file that changes
// while it is sent fails. An older version at the target stays for a delta. None of it is ever torn.
func TestRangeOfAnotherFile(t *testing.T) {
	r := seeded(t)
	content := randomBytes(r, rangedSize)
	source, target := makeRanged(t, content)
	f := filepath.Join(source, "sub", "f")
	listed := rangeOf(t, source, 2)
	for _, n := range []uint64{0, 1, 3, 4} {
		sendRange(t, source, target, n).ok(t)
	}
	changed := randomBytes(r, rangedSize)
	require.NoError(t, os.WriteFile(f, changed, 0o640))
	require.NoError(t, os.Chtimes(f, time.Time{}, listed.ModTime.Add(time.Second)))
	x := rangeSession(t, source, target, listed)
	x.run(t, t.Context())
	x.ok(t)
	require.Zero(t, x.last())
	requireNoRangedFile(t, target)
	sendRange(t, source, target, 2).ok(t) // of the new one: what came of the old one is gone
	requireNoRangedFile(t, target)
	for _, n := range []uint64{4, 0, 3, 1} {
		sendRange(t, source, target, n).ok(t)
	}
	requireRangedFile(t, source, target)

	require.NoError(t, os.WriteFile(f, content[:rangedSize-1], 0o640))
	x = sendRange(t, source, target, 0)
	require.Equal(t, Failed, x.last())
	var known *wire.Error
	require.ErrorAs(t, x.sent[len(x.sent)-1].Err, &known)
	require.Equal(t, wire.CodeTaken, known.Code)
	require.NoError(t, os.Remove(filepath.Join(target, "sub", "f")))

	x = rangeSession(t, source, target, rangeOf(t, source, 0))
	var once sync.Once
	x.wrap = func(_ int, c net.Conn) net.Conn {
		return &meanwhile{c, func() {
			once.Do(func() { require.NoError(t, os.Chtimes(f, time.Time{}, time.Unix(rand.Int64N(1e9), 0))) })
		}}
	}
	x.run(t, t.Context())
	require.Equal(t, Failed, x.last())
	requireNoRangedFile(t, target)
}

// meanwhile is a connection on whose first write something happens.
type meanwhile struct {
	net.Conn
	happen func()
}

func (m *meanwhile) Write(p []byte) (int, error) {
	m.happen()
	return m.Conn.Write(p)
}

// TestRangeOfSnapshot: a file with a known digest is not sent in ranges.
func TestRangeOfSnapshot(t *testing.T) {
	item := Item{Entry: wire.Entry{Kind: wire.File, Size: rangedSize, BlockLog: 18, ModTime: 7}, Compare: func([32]byte) error { return nil }}
	r := FileRange{Range: wire.Range{Log: testRangeLog}, Size: rangedSize, ModTime: time.Unix(0, 7)}
	ok, err := r.limit(&item)
	require.False(t, ok)
	require.ErrorIs(t, err, ErrNotRanged)
}

func TestSpanOf(t *testing.T) {
	file := func(size int64, log uint8) *wire.Entry {
		return &wire.Entry{Kind: wire.File, Size: size, BlockLog: log}
	}
	for _, c := range []struct {
		r     wire.Range
		x     *wire.Entry
		start int64
		count int64 // 0: no such range
	}{
		{wire.Range{Log: 22}, file(5<<20, 16), 0, 64},
		{wire.Range{Log: 22, Number: 1}, file(5<<20, 16), 64, 16},
		{wire.Range{Log: 22, Number: 1}, file(4<<20+1, 20), 4, 1},
		{wire.Range{Log: 22, Number: 2}, file(5<<20, 16), 0, 0},
		{wire.Range{Log: 22, Number: 1<<64 - 1}, file(5<<20, 16), 0, 0},
		{wire.Range{Log: 22, Number: 1 << 42}, file(wire.MaxSize, 20), 0, 0},
		{wire.Range{Log: 22, Number: 1<<38 - 1}, file(wire.MaxSize, 20), 1<<40 - 4, 4},
		{wire.Range{Log: 60}, file(wire.MaxSize, 16), 0, 1 << 44},
		{wire.Range{Log: 61}, file(wire.MaxSize, 16), 0, 0},
		{wire.Range{Log: 21}, file(5<<20, 16), 0, 0},
		{wire.Range{}, file(5<<20, 16), 0, 0},
		{wire.Range{Log: 22}, file(4<<20, 16), 0, 0},
		{wire.Range{Log: 22}, file(wire.Unknown, 20), 0, 0},
		{wire.Range{Log: 22}, &wire.Entry{Kind: wire.Dir}, 0, 0},
	} {
		span, ok := spanOf(&c.r, c.x)
		require.Equal(t, c.count > 0, ok, c)
		if ok {
			require.Equal(t, blockset.Run{Start: c.start, Count: c.count}, span)
		}
	}
}

// TestHostileRange: what is outside of the range, or not what was announced, ends the session or the
// entry, and never gets a name.
func TestHostileRange(t *testing.T) {
	file := func(size int64) wire.Entry {
		return wire.Entry{Kind: wire.File, Path: "a", Size: size, BlockLog: maxBlockLog, Mode: 0o600, ModTime: 7}
	}
	holes := file(9 << 20)
	holes.Holes = true
	data := make([]byte, 1<<maxBlockLog)
	node := func(n int64) digest.Node {
		var h digest.Hasher
		h.Reset(n << maxBlockLog)
		h.Write(data)
		return h.Sum()
	}
	block := func(n int64) wire.BlockHeader {
		top := node(n)
		return wire.BlockHeader{Block: n, Digest: digest.ChainingValue(&top)}
	}
	all := func(p *rawPeer) { // of range 1
		for n := int64(4); n < 8; n++ {
			p.block(block(n), data)
		}
	}
	right := func() [32]byte {
		var tree digest.Tree
		for n := int64(4); n < 8; n++ {
			tree.Add(n, node(n))
		}
		top, ok := tree.Subtree(4, 4)
		require.True(t, ok)
		return top
	}()
	end := func(m wire.EndEntry) func(p *rawPeer) { return func(p *rawPeer) { p.send(&m); p.wait() } }
	for name, c := range map[string]struct {
		x       wire.Entry
		n       uint64
		refused bool // the session ends
		failed  bool // the entry fails
		then    func(p *rawPeer)
	}{
		"before":              {file(9 << 20), 1, true, false, func(p *rawPeer) { p.block(block(3), data); p.wait() }},
		"behind":              {file(9 << 20), 1, true, false, func(p *rawPeer) { p.block(block(8), data); p.wait() }},
		"beyond the end":      {file(9 << 20), 1, true, false, func(p *rawPeer) { p.block(block(9), data); p.wait() }},
		"no end":              {file(9 << 20), 1, false, false, all},
		"an end without data": {file(9 << 20), 1, false, false, func(p *rawPeer) { p.send(&wire.EndEntry{Size: 9 << 20}) }},
		"another digest":      {file(9 << 20), 1, false, true, func(p *rawPeer) { all(p); end(wire.EndEntry{Size: 9 << 20, Digest: [32]byte{1}})(p) }},
		"two ends": {file(9 << 20), 1, true, false, func(p *rawPeer) {
			p.send(&wire.EndEntry{Size: 9 << 20})
			end(wire.EndEntry{Size: 9 << 20})(p)
		}},
		"another size":        {file(9 << 20), 1, true, false, end(wire.EndEntry{Size: 8 << 20})},
		"holes of none":       {file(9 << 20), 1, true, false, end(wire.EndEntry{Size: 9 << 20, Holes: []wire.Extent{{Start: 4, Count: 4}}})},
		"holes before":        {holes, 1, true, false, end(wire.EndEntry{Size: 9 << 20, Holes: []wire.Extent{{Start: 3, Count: 5}}})},
		"holes behind":        {holes, 1, true, false, end(wire.EndEntry{Size: 9 << 20, Holes: []wire.Extent{{Start: 5, Count: 4}}})},
		"holes beyond":        {holes, 1, true, false, end(wire.EndEntry{Size: 9 << 20, Holes: []wire.Extent{{Start: 5, Count: 1 << 50}}})},
		"a patch":             {file(9 << 20), 1, true, false, func(p *rawPeer) { h := block(4); h.Patch = true; p.block(h, data); p.wait() }},
		"whole":               {file(9 << 20), 1, true, false, func(p *rawPeer) { h := block(0); h.Whole = true; p.block(h, data); p.wait() }},
		"no such range":       {file(9 << 20), 3, false, true, nil},
		"no range at all":     {file(9 << 20), 1<<64 - 1, false, true, nil},
		"a small file":        {file(1 << 20), 0, false, true, nil},
		"an empty file":       {file(0), 0, false, true, nil},
		"a stream":            {file(wire.Unknown), 0, false, true, nil},
		"a symlink":           {wire.Entry{Kind: wire.Symlink, Path: "a", Link: "b"}, 0, false, true, nil},
		"a pipe":              {wire.Entry{Kind: wire.Fifo, Path: "a"}, 0, false, true, nil},
		"a hard link":         {wire.Entry{Kind: wire.Hardlink, Path: "a", Link: "b"}, 0, false, true, nil},
		"a name of our own":   {func() wire.Entry { x := file(9 << 20); x.Path = ".fxfer-a"; return x }(), 1, false, true, nil},
		"a way out":           {func() wire.Entry { x := file(9 << 20); x.Path = "../a"; return x }(), 1, false, true, nil},
		"all":                 {file(9 << 20), 1, false, false, func(p *rawPeer) { all(p); end(wire.EndEntry{Size: 9 << 20, Digest: right})(p) }},
		"more than there can": {file(wire.MaxSize), 1, false, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree := openTree(t, dir)
			o := faceSender(t, tree, ReceiverOptions{Range: &wire.Range{Log: 22, Number: c.n}, Leave: true}, func(p *rawPeer) {
				p.send(&wire.Manifest{}, entries(0, c.x))
				m := await[*wire.Answers](p)
				if m == nil {
					return
				}
				if c.then == nil {
					p.send(&wire.EndManifest{Count: 1})
					p.wait()
					return
				}
				p.send(&wire.EndManifest{Count: 1})
				c.then(p)
			})
			if c.refused {
				o.requireRefused(t)
			}
			require.Equal(t, c.failed, o.has(Failed))
			require.Equal(t, name == "all", o.has(Skipped))
			require.False(t, o.has(Committed))
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, n := range names {
				require.Regexp(t, `^\.fxfer-[0-9a-f]{32}\.`, n.Name())
			}
			if !c.failed { // nothing hinders the next one
				part, err := tree.PartialRange(disk.Meta{Path: "a", Size: 9 << 20, Holes: c.x.Holes, ID: disk.Identity{Size: 9 << 20, ModTime: 7}}, 1<<maxBlockLog, 4, 4, disk.TargetOptions{})
				require.NoError(t, err)
				own, whole := part.Complete()
				require.Equal(t, name == "all", own)
				require.False(t, whole)
				require.NoError(t, part.Close())
			}
		})
	}
}

// TestHostileTarget: a receiver of ranges can't have blocks of others, or a delta.
func TestHostileTarget(t *testing.T) {
	source, _ := makeRanged(t, make([]byte, rangedSize))
	item := rangeSession(t, source, t.TempDir(), rangeOf(t, source, 1)).source
	log := blockLog(rangedSize)
	first := int64(1 << (testRangeLog - log))
	need := func(a wire.Answer) *wire.Answers {
		a.Index, a.Verdict = 2, wire.Need
		return &wire.Answers{Answers: []wire.Answer{a}}
	}
	for name, c := range map[string]struct{ answers []wire.Message }{
		"blocks before":   {[]wire.Message{need(wire.Answer{Have: []wire.Extent{{Start: first - 1, Count: 2}}})}},
		"blocks behind":   {[]wire.Message{need(wire.Answer{Have: []wire.Extent{{Start: 2*first - 1, Count: 2}}})}},
		"a delta":         {[]wire.Message{need(wire.Answer{Delta: wire.DeltaFixed, Old: 1})}},
		"again outside":   {[]wire.Message{need(wire.Answer{}), &wire.Resend{Index: 2, Blocks: []wire.Extent{{Start: 0, Count: 1}}}}},
		"written outside": {[]wire.Message{need(wire.Answer{}), &wire.Written{Blocks: []wire.BlockID{{Index: 2, Block: 0}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := faceReceiver(t, item, SenderOptions{}, func(p *rawPeer) {
				for list := 0; list < 3; {
					m := await[*wire.Entries](p)
					if m == nil {
						return
					}
					list += len(m.Entries)
				}
				p.send(c.answers...)
				p.wait()
			})
			o.requireRefused(t)
		})
	}
}

// TestRangeDamaged: a block of an earlier session that is damaged comes again.
func TestRangeDamaged(t *testing.T) {
	content := randomBytes(seeded(t), rangedSize)
	source, target := makeRanged(t, content)
	x := rangeSession(t, source, target, rangeOf(t, source, 1))
	ctx, cancel := context.WithCancel(t.Context())
	x.streams = 1
	x.wrap = func(_ int, c net.Conn) net.Conn { return &cutting{Conn: c, left: 5 << 20, cut: cancel} }
	x.run(t, ctx)
	left, err := filepath.Glob(filepath.Join(target, "sub", ".fxfer-*.part*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	f, err := os.OpenFile(left[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damaged"), 1<<testRangeLog+1000)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	x = sendRange(t, source, target, 1)
	x.ok(t)
	require.Positive(t, x.writeStats.Rejected)
	for _, n := range []uint64{0, 2, 3, 4} {
		sendRange(t, source, target, n).ok(t)
	}
	requireRangedFile(t, source, target)
	got, err := os.ReadFile(filepath.Join(target, "sub", "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
}

// TestRangeDamagedLater: damage to a complete range is found before the file gets its name. Only what is
// damaged comes again, from whoever sends that range next, or with the whole tree.
func TestRangeDamagedLater(t *testing.T) {
	for _, whole := range []bool{false, true} {
		source, target := makeRanged(t, randomBytes(seeded(t), rangedSize))
		for _, n := range []uint64{0, 1, 2, 3} {
			sendRange(t, source, target, n).ok(t)
		}
		left, err := filepath.Glob(filepath.Join(target, "sub", ".fxfer-*.part*"))
		require.NoError(t, err)
		require.Len(t, left, 1)
		f, err := os.OpenFile(left[0], os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("damaged"), 1<<testRangeLog+1000)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		x := sendRange(t, source, target, 4)
		require.Equal(t, Failed, x.last())
		var known *wire.Error
		require.ErrorAs(t, x.sent[len(x.sent)-1].Err, &known)
		require.Equal(t, wire.CodeIntegrity, known.Code)
		requireNoRangedFile(t, target)
		if whole {
			x = &session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target), path: ".", streams: 3}
			x.run(t, t.Context())
		} else {
			again := sendRange(t, source, target, 4)
			again.ok(t)
			require.Equal(t, Skipped, again.last())
			requireNoRangedFile(t, target)
			x = sendRange(t, source, target, 1)
		}
		x.ok(t)
		require.EqualValues(t, 1<<blockLog(rangedSize), x.writeStats.Written)
		requireRangedFile(t, source, target)
	}
}

// TestRangesReadByMany: while one session reads what came before, others come with ranges that are complete.
// One of them gives the file its name, and none fails.
func TestRangesReadByMany(t *testing.T) {
	content := randomBytes(seeded(t), rangedSize)
	for range 5 {
		source, target := makeRanged(t, content)
		for _, n := range []uint64{0, 1, 2, 3} {
			sendRange(t, source, target, n).ok(t)
		}
		left, err := filepath.Glob(filepath.Join(target, "sub", ".fxfer-*.part*"))
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, os.Chmod(left[0], 0o640)) // somebody may have changed it
		var others sync.WaitGroup
		done := make(chan struct{})
		for n := range uint64(3) {
			others.Go(func() {
				for over := false; !over; {
					select {
					case <-done:
						over = true
					default:
					}
					x := sendRange(t, source, target, n)
					x.ok(t)
					require.Contains(t, []EventKind{Skipped, Same, Committed}, x.last())
				}
			})
		}
		last := sendRange(t, source, target, 4)
		close(done)
		others.Wait()
		last.ok(t)
		requireRangedFile(t, source, target)
	}
}

// TestRangeBusy: a range that another session has is not written twice at the same time: the second
// session waits, and then finds it complete.
func TestRangeBusy(t *testing.T) {
	source, target := makeRanged(t, randomBytes(seeded(t), rangedSize))
	held := make(chan struct{})
	first := rangeSession(t, source, target, rangeOf(t, source, 1))
	started := make(chan struct{})
	var once sync.Once
	first.wrap = func(_ int, c net.Conn) net.Conn {
		return &meanwhile{c, func() { once.Do(func() { close(started) }); <-held }}
	}
	var both sync.WaitGroup
	both.Go(func() { first.run(t, t.Context()) })
	<-started
	second := rangeSession(t, source, target, rangeOf(t, source, 1))
	both.Go(func() { second.run(t, t.Context()) })
	sendRange(t, source, target, 0).ok(t) // others are free
	close(held)
	both.Wait()
	first.ok(t)
	second.ok(t)
	require.EqualValues(t, 1<<testRangeLog, first.writeStats.Written)
	require.Zero(t, second.writeStats.Written)
	require.False(t, slices.ContainsFunc(second.sent, func(e Event) bool { return errors.Is(e.Err, disk.ErrBusy) }))
}
