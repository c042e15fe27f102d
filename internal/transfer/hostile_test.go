package transfer

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"lukechampine.com/blake3"
)

// long has hostile peers do all that they do at night. Without it they do a quarter of what costs most.
var long = flag.Bool("long", false, "hostile peers send four times as much of what takes long")

// rounds is how often something is repeated: all of n with -long, else a quarter.
func rounds(n int) int {
	if *long {
		return n
	}
	return n / 4
}

const (
	// hostileTime is how long a peer may keep a session from ending, with a margin for slow
	// machines.
	hostileTime = 2 * time.Minute
	// hostileHeap is how many bytes a peer may make a session allocate, including garbage.
	hostileHeap = 384 << 20
)

// rawPeer lets a test speak one side of the protocol. What it sends goes nowhere once the session
// is over.
type rawPeer struct {
	ctrl net.Conn
	data net.Conn
	r    *wire.Reader
	in   chan wire.Message // closed when the session is over
}

// newRawPeer returns the peer and the session's ends of its streams.
func newRawPeer() (p *rawPeer, ctrl, data net.Conn) {
	p = &rawPeer{in: make(chan wire.Message, 1<<16)}
	p.ctrl, ctrl = net.Pipe()
	p.data, data = net.Pipe()
	p.r = wire.NewReader(p.ctrl, wire.MaxMessage)
	return p, ctrl, data
}

// read takes the session's messages. It keeps only those that a script may wait for.
func (p *rawPeer) read() {
	defer close(p.in)
	for {
		m, err := p.r.Next()
		if err != nil {
			return
		}
		select {
		case p.in <- m:
		default: // nobody waits for it
		}
	}
}

// send sends messages, and reports whether the session took them.
func (p *rawPeer) send(messages ...wire.Message) bool {
	for _, m := range messages {
		if _, err := p.ctrl.Write(wire.Append(nil, m)); err != nil {
			return false
		}
	}
	return true
}

// block sends a block on the data stream.
func (p *rawPeer) block(h wire.BlockHeader, payload []byte) bool {
	b := make([]byte, wire.BlockHeaderLen, wire.BlockHeaderLen+len(payload))
	h.Length = uint32(len(payload))
	h.Put(b)
	_, err := p.data.Write(append(b, payload...))
	return err == nil
}

// await returns the next message that is one of want, nil when the session is over.
func await[M wire.Message](p *rawPeer) (want M) {
	for m := range p.in {
		if got, ok := m.(M); ok {
			return got
		}
	}
	return want
}

// outcome is how a session with a hostile peer ended.
type outcome struct {
	err    error
	events []Event
	heap   uint64 // bytes allocated at most
}

func (o *outcome) has(kind EventKind) bool {
	for _, e := range o.events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// requireRefused checks that the session ended because the peer broke the protocol.
func (o *outcome) requireRefused(t *testing.T) {
	t.Helper()
	var known *wire.Error
	require.ErrorAs(t, o.err, &known)
	require.Equal(t, wire.CodeProtocol, known.Code, "%v", o.err)
}

// face runs a session against a script. The session must end by itself or when the script is over,
// in time, in little memory, and without leaving goroutines. Those of other tests would count, so a
// test with it is not parallel.
func face(t *testing.T, run func(context.Context) error, p *rawPeer, ctrl io.Closer, events *[]Event, script func(*rawPeer)) *outcome {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	o := &outcome{}
	var peer sync.WaitGroup
	done := make(chan struct{})
	start := heapInUse()
	peer.Go(p.read)
	peer.Go(func() { script(p); _ = p.ctrl.Close(); _ = p.data.Close() })
	peer.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				now := heapInUse()
				o.heap = max(o.heap, now-min(start, now))
			}
		}
	})
	late := time.AfterFunc(hostileTime, func() { panic("a session with a hostile peer does not end: " + t.Name()) })
	o.err = run(t.Context())
	_ = ctrl.Close()
	close(done)
	peer.Wait()
	late.Stop()
	o.events = *events
	require.Less(t, o.heap, uint64(hostileHeap))
	return o
}

func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// faceSender runs a Receiver against a hostile sender.
func faceSender(t *testing.T, tree *access.Scope, opt ReceiverOptions, script func(*rawPeer)) *outcome {
	t.Helper()
	p, ctrl, data := newRawPeer()
	var events []Event
	opt.Event = func(e *Event) {
		if e.Kind != Warned && len(events) < 1<<16 {
			events = append(events, *e)
		}
	}
	if opt.Path == "" {
		opt.Path = "."
	}
	v := NewReceiver(ctrl, wire.NewReader(ctrl, wire.MaxMessage), tree, opt)
	v.AddStream(data)
	return face(t, v.Run, p, ctrl, &events, script)
}

// faceReceiver runs a Sender against a hostile receiver.
func faceReceiver(t *testing.T, source Source, opt SenderOptions, script func(*rawPeer)) *outcome {
	t.Helper()
	p, ctrl, data := newRawPeer()
	var events []Event
	opt.Event = func(e *Event) {
		if e.Kind != Warned && len(events) < 1<<16 {
			events = append(events, *e)
		}
	}
	s := NewSender(ctrl, wire.NewReader(ctrl, wire.MaxMessage), source, opt)
	s.AddStream(1, data)
	return face(t, s.Run, p, ctrl, &events, script)
}

func entries(first uint64, x ...wire.Entry) *wire.Entries {
	return &wire.Entries{First: first, Entries: x}
}

// aFile is an entry of a file with blocks of 64 KiB.
func aFile(path string, size int64) wire.Entry {
	return wire.Entry{Kind: wire.File, Path: path, Size: size, BlockLog: wire.MinBlockLog, Mode: 0o600}
}

const smallBlock = 1 << wire.MinBlockLog

// everyOther is n runs of one block with a gap of one between them.
func everyOther(n int64) []wire.Extent {
	x := make([]wire.Extent, 0, n)
	for i := range n {
		x = append(x, wire.Extent{Start: 2 * i, Count: 1})
	}
	return x
}

// TestHostileSenderBreaksProtocol lets a sender break the protocol, which ends the session.
func TestHostileSenderBreaksProtocol(t *testing.T) {
	sparse := aFile("a", 1<<40)
	sparse.Holes = true
	sparseStream := aFile("a", wire.Unknown)
	sparseStream.Holes = true
	for name, c := range map[string]struct {
		opt    ReceiverOptions
		there  int64 // size of a file "a" at the target, if any
		script func(*rawPeer)
	}{
		"a block of a file that is being compared": {checksums, 10 << 20, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 10<<20)))
			for p.block(wire.BlockHeader{}, make([]byte, smallBlock)) {
			}
		}},
		"a block of a file that is to be compared": {checksums, 1 << 20, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)))
			await[*wire.Answers](p)
			for p.block(wire.BlockHeader{}, make([]byte, smallBlock)) {
			}
		}},
		"the end of a file that is being compared": {checksums, 10 << 20, func(p *rawPeer) {
			x := aFile("a", 10<<20)
			x.Holes = true
			p.send(&wire.Manifest{}, entries(0, x), &wire.EndEntry{Size: 10 << 20, Holes: []wire.Extent{{Count: 1}}})
			p.wait()
		}},
		"a comparison that nobody asked for": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)), &wire.Compared{Same: true})
			p.wait()
		}},
		"two answers to one question": {checksums, 1 << 20, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)))
			await[*wire.Answers](p)
			p.send(&wire.Compared{}, &wire.Compared{})
			p.wait()
		}},
		"more files of several blocks than allowed": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			for i := uint64(0); p.send(entries(i, aFile(fmt.Sprint(i), 1<<20))); i++ {
			}
		}},
		"more files of several blocks than allowed, in one message": {ReceiverOptions{}, 0, func(p *rawPeer) {
			var files []wire.Entry
			for i := range openMax + 1 {
				files = append(files, aFile(fmt.Sprint(i), 1<<20))
			}
			p.send(&wire.Manifest{}, entries(0, files...))
			await[*wire.Answers](p)
		}},
		"more entries than allowed": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			for i := uint64(0); p.send(entries(i, aFile(fmt.Sprint(i), 1), aFile(fmt.Sprint(i, "+"), 1))); i += 2 {
			}
		}},
		"holes in a file that has none": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)), &wire.EndEntry{Size: 1 << 20, Holes: []wire.Extent{{Count: 1}}})
			p.wait()
		}},
		"holes beyond the end": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparse), &wire.EndEntry{Size: 1 << 40, Holes: []wire.Extent{{Start: 1 << 23, Count: 1 << 24}}})
			p.wait()
		}},
		"a block with holes of a file without": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)))
			p.block(wire.BlockHeader{Sparse: true}, make([]byte, 4))
			p.wait()
		}},
		"a block with holes of a stream": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparseStream))
			p.block(wire.BlockHeader{Sparse: true, Block: 1 << 47}, make([]byte, 4))
			p.wait()
		}},
		"a block with holes so far out that its offset wraps": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparseStream))
			p.block(wire.BlockHeader{Sparse: true, Block: 1 << 46}, make([]byte, 4)) // (1<<46)<<16 < 0
			p.wait()
		}},
		"ranges of data that overlap": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparse))
			p.block(wire.BlockHeader{Sparse: true}, ranges(2, 0, 8, 4, 8))
			p.wait()
		}},
		"more ranges of data than there is room for": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparse))
			p.block(wire.BlockHeader{Sparse: true}, ranges(1<<31))
			p.wait()
		}},
		"a range of data beyond its block": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparse))
			p.block(wire.BlockHeader{Sparse: true}, append(ranges(1, smallBlock-4, 8), make([]byte, 8)...))
			p.wait()
		}},
		"a frame that is none": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)))
			p.block(wire.BlockHeader{Raw: smallBlock}, make([]byte, 100))
			p.wait()
		}},
		"a whole file as a block of another one": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)))
			p.block(wire.BlockHeader{Whole: true}, make([]byte, smallBlock))
			p.wait()
		}},
		"a block of a folder": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 5), wire.Entry{Kind: wire.Hardlink, Path: "b", Link: "a"}))
			p.block(wire.BlockHeader{Index: 1, Whole: true}, []byte("hello"))
			p.wait()
		}},
		"a stream that ends twice": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", wire.Unknown)))
			p.block(wire.BlockHeader{Digest: digestOfBlock(0, []byte("short"))}, []byte("short"))
			p.block(wire.BlockHeader{Block: 1}, []byte("short"))
			p.wait()
		}},
		"an answer without a question": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{}, &wire.Extra{Names: []uint64{0}})
			p.wait()
		}},
		"an answer about names that were not asked for": {deletes, 1, func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true}, &wire.EndManifest{}, &wire.Prune{Folders: []string{"."}})
			await[*wire.Folder](p)
			p.send(&wire.Extra{Names: []uint64{1}})
			p.wait()
		}},
		"an order to prune that the client did not give": {ReceiverOptions{}, 1, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("b", 1)), &wire.EndManifest{Count: 1}, &wire.Prune{Folders: []string{"."}})
			p.wait()
		}},
		"an order to prune before the end": {deletes, 1, func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true}, &wire.Prune{Folders: []string{"."}})
			p.wait()
		}},
		"a manifest that prunes, of a client that did not ask for it": {ReceiverOptions{}, 0, func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true})
			p.wait()
		}},
		"entries after the order to prune": {deletes, 1, func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true}, &wire.EndManifest{}, &wire.Prune{Folders: []string{"."}})
			await[*wire.Folder](p)
			p.send(&wire.EndManifest{Count: 1}, entries(0, aFile("b", 1)))
			p.wait()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			if c.there > 0 {
				require.NoError(t, os.WriteFile(filepath.Join(dst, "a"), make([]byte, c.there), 0o600))
			}
			o := faceSender(t, openTree(t, dst), c.opt, c.script)
			o.requireRefused(t)
			require.False(t, o.has(Committed))
			if c.there > 0 {
				require.FileExists(t, filepath.Join(dst, "a"))
			}
		})
	}
}

var (
	checksums = ReceiverOptions{Target: wire.Target{Compare: wire.Compare{Checksum: true}}}
	deletes   = ReceiverOptions{Target: wire.Target{Delete: true, MaxDelete: -1}}
)

// wait waits until the session is over.
func (p *rawPeer) wait() {
	for range p.in {
	}
}

// TestAnswersComeBeforeTheEnd checks that the receiver has answered for each entry before it says
// that it is finished.
func TestAnswersComeBeforeTheEnd(t *testing.T) {
	content := []byte("hello")
	whole := wire.BlockHeader{Whole: true, Digest: blake3.Sum256(content)}
	for name, c := range map[string]struct {
		last   uint64 // the entry that is answered last
		script func(*rawPeer)
	}{
		"another name of a file": {1, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("new", 5), wire.Entry{Kind: wire.Hardlink, Path: "b", Link: "new", First: 0}), &wire.EndManifest{Count: 2})
			p.block(whole, content)
		}},
		"a file that changed and is the same then": {1, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 1<<20)), &wire.EndManifest{Count: 1},
				&wire.EndManifest{Count: 2}, &wire.EntryFailed{Code: wire.CodeAgain}, entries(1, aFile("a", 5)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds(200) {
				dst := t.TempDir()
				there := filepath.Join(dst, "a")
				require.NoError(t, os.WriteFile(there, content, 0o600))
				require.NoError(t, os.Chtimes(there, time.Time{}, time.Unix(0, 0)))
				answered, finished := false, false
				faceSender(t, openTree(t, dst), ReceiverOptions{Target: wire.Target{Sync: wire.SyncNone}}, func(p *rawPeer) {
					c.script(p)
					for m := range p.in {
						switch m := m.(type) {
						case *wire.Answers:
							for _, a := range m.Answers {
								answered = answered || a.Index == c.last
							}
						case *wire.Finished:
							finished = true
						}
						if finished {
							return
						}
					}
				})
				require.True(t, finished)
				require.True(t, answered)
			}
		})
	}
}

// ranges encodes the head of a payload with holes.
func ranges(n uint32, offLen ...uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, n)
	for _, x := range offLen {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

// TestHostileSenderExhausts lets a sender announce more than a receiver should hold. Whether it is
// refused or not, memory and time are bounded.
func TestHostileSenderExhausts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies the memory and the work that are measured here")
	}
	if testing.Short() {
		t.Skip("sends a lot")
	}
	compared := rounds(20 * openMax)
	const most = 64 << 20 // bytes of messages that a script sends, mostly
	sparse := aFile("a", 1<<40)
	sparse.Holes = true
	// flood sends messages until they have that many bytes, or are refused.
	flood := func(p *rawPeer, most int, next func(i uint64) wire.Message) {
		for i, sent := uint64(0), 0; sent < most; i++ {
			b := wire.Append(nil, next(i))
			if _, err := p.ctrl.Write(b); err != nil {
				return
			}
			sent += len(b)
		}
	}
	for name, c := range map[string]struct {
		opt    ReceiverOptions
		script func(*rawPeer)
	}{
		"attributes of no bytes": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			flood(p, most, func(i uint64) wire.Message {
				x := aFile(fmt.Sprint(i), 1)
				x.Owned, x.Xattrs = true, make([]wire.Xattr, 500_000)
				return entries(i, x)
			})
		}},
		"long attributes": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			value := make([]byte, 60<<10)
			flood(p, 12*most, func(i uint64) wire.Message {
				x := aFile(fmt.Sprint(i), 1)
				x.Owned, x.Xattrs = true, []wire.Xattr{{Name: "user.x", Value: value}}
				return entries(i, x)
			})
		}},
		"many holes": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, sparse), &wire.EndEntry{Size: 1 << 40, Holes: everyOther(120_000)})
		}},
		"many holes of many files": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			for i := range uint64(openMax) {
				x := sparse
				x.Path = fmt.Sprint(i)
				if !p.send(entries(i, x), &wire.EndEntry{Index: i, Size: 1 << 40, Holes: everyOther(100_000)}) {
					return
				}
			}
		}},
		"a file of empty blocks with gaps": {ReceiverOptions{}, func(p *rawPeer) {
			zeros := make([]byte, smallBlock)
			p.send(&wire.Manifest{}, entries(0, sparse))
			for i := int64(rounds(1 << 16)); i > 0; i-- { // from the end on, so that each comes first
				if !p.block(wire.BlockHeader{Sparse: true, Block: 2 * i, Digest: digestOfBlock(2*i, zeros)}, ranges(0)) {
					return
				}
			}
		}},
		"files that are all compared and then all open": {checksums, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			for i := range uint64(compared) {
				if !p.send(entries(i, aFile(fmt.Sprint("there/", i), smallBlock+1))) {
					return
				}
			}
			for asked := 0; asked < compared; {
				m := await[*wire.Answers](p)
				if m == nil {
					return
				}
				for _, a := range m.Answers {
					if a.Verdict != wire.Hash {
						continue
					}
					asked++
					if !p.send(&wire.Compared{Index: a.Index}) {
						return
					}
				}
			}
		}},
		"hard links without end to a file that does not come": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{}, entries(0, aFile("a", 5)))
			flood(p, most, func(i uint64) wire.Message {
				return entries(i+1, wire.Entry{Kind: wire.Hardlink, Path: fmt.Sprint("b", i), Link: "a"})
			})
		}},
		"files that change and do not come again": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			long := strings.Repeat(strings.Repeat("x", 200)+"/", 19)
			for i := uint64(0); i < maxEntries/2; i++ {
				if !p.send(entries(i, aFile(fmt.Sprint(long, i), 5)), &wire.EntryFailed{Index: i, Code: wire.CodeAgain}) {
					return
				}
			}
		}},
		"warnings without end": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			flood(p, most, func(i uint64) wire.Message {
				return &wire.Warning{What: fmt.Sprint(i), Path: strings.Repeat("x", 4000), Text: strings.Repeat("y", 1000), Count: 1 << 63}
			})
		}},
		"failures of nothing without end": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			flood(p, most, func(uint64) wire.Message {
				return &wire.EntryFailed{Index: wire.NoEntry, Text: strings.Repeat("y", 1000)}
			})
		}},
		"owners without end": {ReceiverOptions{}, func(p *rawPeer) {
			p.send(&wire.Manifest{})
			for i := range uint64(rounds(20_000)) {
				x := wire.Entry{Kind: wire.Symlink, Path: "l", Link: "x", Owned: true, User: fmt.Sprint("no such user ", i)}
				if !p.send(entries(i, x)) {
					return
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			if c.opt.Target.Compare.Checksum {
				require.NoError(t, os.Mkdir(filepath.Join(dst, "there"), 0o700))
				for i := range compared {
					require.NoError(t, os.WriteFile(filepath.Join(dst, fmt.Sprint("there/", i)), make([]byte, smallBlock+1), 0o600))
				}
			}
			start := openFiles(t)
			var most int
			opt := c.opt
			o := faceSender(t, openTree(t, dst), opt, func(p *rawPeer) { c.script(p); most = openFiles(t) })
			require.Less(t, most-start, 2*openMax*3, "open files")
			require.False(t, o.has(Committed))
		})
	}
}

// openFiles counts the process's descriptors, where the system tells.
func openFiles(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Log("open files are not counted")
	}
	return len(names)
}

// digestOfBlock is the digest in the header of a block of a file with blocks of 64 KiB.
func digestOfBlock(block int64, payload []byte) [32]byte {
	var hash digest.Hasher
	hash.Reset(block * smallBlock)
	hash.Write(payload)
	node := hash.Sum()
	return digest.ChainingValue(&node)
}

// TestHostileReceiver lets a receiver break the protocol, which ends the session of the sender.
func TestHostileReceiver(t *testing.T) {
	answer := func(p *rawPeer, a wire.Answer) { p.send(&wire.Answers{Answers: []wire.Answer{a}}) }
	for name, c := range map[string]struct {
		opt    SenderOptions
		script func(*rawPeer, uint64) // with the index of a file of 3 blocks
	}{
		"blocks that there are not": {SenderOptions{}, func(p *rawPeer, i uint64) {
			answer(p, wire.Answer{Index: i, Verdict: wire.Need, Have: []wire.Extent{{Start: 1, Count: 1 << 40}}})
		}},
		"an answer for several entries, twice": {SenderOptions{}, func(p *rawPeer, i uint64) {
			answer(p, wire.Answer{Index: i, Verdict: wire.Need})
			answer(p, wire.Answer{Index: i, Verdict: wire.Need})
		}},
		"data of a folder": {SenderOptions{}, func(p *rawPeer, i uint64) {
			for j := range uint64(4) {
				answer(p, wire.Answer{Index: j, Verdict: wire.Need})
			}
		}},
		"a comparison of a folder": {SenderOptions{}, func(p *rawPeer, i uint64) {
			for j := range uint64(4) {
				if j != i {
					answer(p, wire.Answer{Index: j, Verdict: wire.Hash})
				}
			}
		}},
		"an answer for what was not announced": {SenderOptions{}, func(p *rawPeer, _ uint64) {
			answer(p, wire.Answer{Index: 1 << 40, Verdict: wire.Same})
		}},
		"a failure of what was not announced": {SenderOptions{}, func(p *rawPeer, _ uint64) {
			p.send(&wire.EntryFailed{Index: 1 << 40, Code: wire.CodeTargetDisk})
		}},
		"a block written of what was not announced": {SenderOptions{}, func(p *rawPeer, _ uint64) {
			p.send(&wire.Written{Blocks: []wire.BlockID{{Index: 1 << 40}}})
		}},
		"a block again of what was not announced": {SenderOptions{}, func(p *rawPeer, _ uint64) {
			p.send(&wire.Resend{Index: 1 << 40, Blocks: []wire.Extent{{Count: 1}}})
		}},
		"two comparisons": {SenderOptions{}, func(p *rawPeer, i uint64) {
			answer(p, wire.Answer{Index: i, Verdict: wire.Hash})
			answer(p, wire.Answer{Index: i, Verdict: wire.Hash})
		}},
		"a comparison after the answer": {SenderOptions{}, func(p *rawPeer, i uint64) {
			answer(p, wire.Answer{Index: i, Verdict: wire.Need, Have: []wire.Extent{{Count: 3}}})
			answer(p, wire.Answer{Index: i, Verdict: wire.Hash})
		}},
		"a block written that was not sent": {SenderOptions{}, func(p *rawPeer, i uint64) {
			p.send(&wire.Written{Blocks: []wire.BlockID{{Index: i, Block: 1 << 62}}})
		}},
		"a block again that there is not": {SenderOptions{}, func(p *rawPeer, i uint64) {
			p.send(&wire.Resend{Index: i, Blocks: []wire.Extent{{Start: 1 << 46, Count: 1 << 46}}})
		}},
		"a block of a folder again": {SenderOptions{}, func(p *rawPeer, i uint64) {
			for j := range uint64(4) {
				if j != i {
					p.send(&wire.Resend{Index: j, Blocks: []wire.Extent{{Count: 1}}})
				}
			}
		}},
		"a file placed before it was sent": {SenderOptions{}, func(p *rawPeer, i uint64) {
			p.send(&wire.Placed{Entries: []wire.Extent{{Start: int64(i), Count: 1}}})
		}},
		"an entry placed that there is not": {SenderOptions{}, func(p *rawPeer, _ uint64) {
			p.send(&wire.Placed{Entries: []wire.Extent{{Start: 1 << 47, Count: 1 << 47}}})
		}},
		"a folder placed": {SenderOptions{}, func(p *rawPeer, i uint64) {
			for j := range int64(4) {
				if j != int64(i) {
					p.send(&wire.Placed{Entries: []wire.Extent{{Start: j, Count: 1}}})
				}
			}
		}},
		"the end before there is one": {SenderOptions{}, func(p *rawPeer, _ uint64) { p.send(&wire.Finished{}) }},
		"a question without leave":    {SenderOptions{}, func(p *rawPeer, _ uint64) { p.send(&wire.Folder{Path: ".", Names: []string{"a"}}) }},
		"a question about what is not below the source": {SenderOptions{Prune: true}, func(p *rawPeer, _ uint64) {
			p.send(&wire.Folder{Path: "../beside", Names: []string{"x"}})
		}},
		"a question about a path instead of a name": {SenderOptions{Prune: true}, func(p *rawPeer, _ uint64) {
			p.send(&wire.Folder{Path: ".", Names: []string{"../beside"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(src, "in"), 0o700))
			require.NoError(t, os.Mkdir(filepath.Join(src, "in", "d"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(src, "in", "f"), make([]byte, 3*smallBlock), 0o600))
			require.NoError(t, os.Symlink("f", filepath.Join(src, "in", "l")))
			source := &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "in"}}}
			o := faceReceiver(t, source, c.opt, func(p *rawPeer) {
				m := await[*wire.Entries](p)
				if m == nil {
					return
				}
				for i, x := range m.Entries {
					if x.Kind == wire.File {
						c.script(p, m.First+uint64(i))
					}
				}
				p.wait()
			})
			o.requireRefused(t)
			require.False(t, o.has(Committed))
		})
	}
}

// missing is the content of a file that does not exist.
type missing struct{}

func (missing) Open() (File, error) { return nil, fs.ErrNotExist }

// endless is a Source of small files that do not exist.
type endless struct{ n int }

func (endless) Single() bool             { return false }
func (endless) Folders() []string        { return nil }
func (endless) Has(string) (bool, error) { return true, nil }
func (s endless) Walk(_ context.Context, visit func(Item) error, _ func(string, error)) error {
	for i := range s.n {
		item := Item{Entry: aFile(fmt.Sprint(i), 1)}
		item.Content = missing{}
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

// TestHostileReceiverExhausts lets a receiver ask for more than a sender should do.
func TestHostileReceiverExhausts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies the memory and the work that are measured here")
	}
	if testing.Short() {
		t.Skip("sends a lot")
	}
	turns := rounds(20_000)
	for name, script := range map[string]func(*rawPeer, uint64){
		"all placed again and again": func(p *rawPeer, next uint64) {
			for range turns {
				if !p.send(&wire.Placed{Entries: []wire.Extent{{Start: 0, Count: int64(next)}}}) {
					return
				}
			}
		},
		"answers for nothing": func(p *rawPeer, next uint64) {
			m := &wire.Answers{Answers: make([]wire.Answer, 100_000)}
			for i := range m.Answers {
				m.Answers[i] = wire.Answer{Index: 1, Verdict: wire.Same}
			}
			for range rounds(120) {
				if !p.send(m) {
					return
				}
			}
		},
		"everything removed": func(p *rawPeer, _ uint64) {
			for range turns {
				if !p.send(&wire.Removed{Path: strings.Repeat("x", 4000)}) {
					return
				}
			}
		},
		"everything compared": func(p *rawPeer, next uint64) {
			for i := range next {
				if !p.send(&wire.Answers{Answers: []wire.Answer{{Index: i, Verdict: wire.Hash}}}) {
					return
				}
			}
		},
		"warnings of all kinds": func(p *rawPeer, _ uint64) {
			for i := range turns {
				if !p.send(&wire.Warning{What: fmt.Sprint(i), Path: strings.Repeat("x", 4000), Count: 1 << 63}) {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			o := faceReceiver(t, endless{200_000}, SenderOptions{}, func(p *rawPeer) {
				var next uint64
				for next < 100_000 { // it skips some
					m := await[*wire.Entries](p)
					if m == nil {
						return
					}
					next = m.First + uint64(len(m.Entries))
					answers := &wire.Answers{}
					for i := range m.Entries {
						answers.Answers = append(answers.Answers, wire.Answer{Index: m.First + uint64(i), Verdict: wire.Skip})
					}
					p.send(answers)
				}
				script(p, next)
			})
			require.False(t, o.has(Committed))
			require.Less(t, time.Since(start), hostileTime/2)
		})
	}
}

// TestHostileSenderLeavesTree lets a sender name what it must not write, link or remove. The entry
// fails, the session may go on, and nothing outside of the target changes.
func TestHostileSenderLeavesTree(t *testing.T) {
	into := ReceiverOptions{Path: "in"}
	there := []string{"in/own", "beside/keep", "out/keep"} // in the tree, below which "in" is the target
	for name, c := range map[string]struct {
		opt    ReceiverOptions
		script func(*rawPeer)
		fails  int // entries
		own    bool
	}{
		"entries above the target": {into, func(p *rawPeer) {
			p.finish(&wire.Manifest{},
				wire.Entry{Kind: wire.Dir, Path: "../new"}, wire.Entry{Kind: wire.Symlink, Path: "../beside/l", Link: "/"},
				aFile("x/../../beside/keep", 0), aFile("/in/abs", 0), aFile("", 0), aFile(".", 0), aFile("./x", 0), aFile("x//y", 0),
				wire.Entry{Kind: wire.Fifo, Path: ".."}, aFile(".FXFER-1.part", 0), aFile(strings.Repeat("x", 256), 0))
		}, 11, true},
		"entries through a symlink": {into, func(p *rawPeer) {
			p.finish(&wire.Manifest{},
				wire.Entry{Kind: wire.Symlink, Path: "way", Link: "../beside"},
				aFile("way/keep", 0), wire.Entry{Kind: wire.Dir, Path: "way/new"}, wire.Entry{Kind: wire.Symlink, Path: "way/l", Link: "x"},
				wire.Entry{Kind: wire.Hardlink, Path: "way/h", Link: "own"}, wire.Entry{Kind: wire.Hardlink, Path: "h", Link: "way/keep"})
		}, 5, true},
		"links to what is not the sender's": {into, func(p *rawPeer) {
			p.finish(&wire.Manifest{}, aFile("a", 5),
				wire.Entry{Kind: wire.Hardlink, Path: "b", Link: "../beside/keep"}, wire.Entry{Kind: wire.Hardlink, Path: "c", Link: "."},
				wire.Entry{Kind: wire.Hardlink, Path: "d", Link: ".fxfer-1.part"}, wire.Entry{Kind: wire.Hardlink, Path: "e", Link: "a", First: 4},
				wire.Entry{Kind: wire.Hardlink, Path: "f", Link: "a", First: 1 << 60})
		}, 6, true},
		"several entries where one was to be renamed": {ReceiverOptions{Path: "file"}, func(p *rawPeer) {
			p.finish(&wire.Manifest{Single: true}, aFile("../beside/keep", 0),
				wire.Entry{Kind: wire.Hardlink, Path: "../h", Link: "beside/keep"})
		}, 1, true},
		"folders to be pruned outside of the target": {prunes("in"), func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true}, &wire.EndManifest{},
				&wire.Prune{Folders: []string{"..", "../beside", "/", "", "own/..", "way", "own"}})
			p.answerAll()
		}, 0, true},
		"everything pruned": {prunes("in"), func(p *rawPeer) {
			p.send(&wire.Manifest{Prune: true}, entries(0, wire.Entry{Kind: wire.Symlink, Path: "way", Link: "../beside"}), &wire.EndManifest{Count: 1})
			p.send(&wire.Prune{Folders: []string{".", "way"}})
			p.answerAll()
		}, 0, false},
		"a folder instead of the target": {prunes("in"), func(p *rawPeer) {
			p.finish(&wire.Manifest{Prune: true}, aFile(".", 0), wire.Entry{Kind: wire.Symlink, Path: ".", Link: "beside"})
		}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			dst := t.TempDir()
			for _, p := range there {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dst, p)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(dst, p), []byte("keep"), 0o600))
			}
			o := faceSender(t, openTree(t, dst), c.opt, c.script)
			fails := 0
			for _, e := range o.events {
				if e.Kind == Failed && e.Index != wire.NoEntry {
					fails++
				}
			}
			require.Equal(t, c.fails, fails)
			for _, p := range there {
				if p == "in/own" && !c.own {
					require.NoFileExists(t, filepath.Join(dst, p))
					continue
				}
				got, err := os.ReadFile(filepath.Join(dst, p))
				require.NoError(t, err)
				require.Equal(t, "keep", string(got))
			}
			for _, folder := range []string{"beside", "out"} {
				names, err := os.ReadDir(filepath.Join(dst, folder))
				require.NoError(t, err)
				require.Len(t, names, 1)
			}
			names, err := os.ReadDir(dst)
			require.NoError(t, err)
			for _, e := range names {
				require.Contains(t, []string{"in", "beside", "out", "file"}, e.Name())
			}
		})
	}
}

func prunes(path string) ReceiverOptions {
	return ReceiverOptions{Path: path, Target: wire.Target{Delete: true, MaxDelete: -1}}
}

// finish sends a manifest of some entries, waits for the answers, and fails those that need data.
func (p *rawPeer) finish(m *wire.Manifest, x ...wire.Entry) {
	p.send(m, entries(0, x...))
	for left := len(x); left > 0; {
		a := await[*wire.Answers](p)
		if a == nil {
			return
		}
		for _, a := range a.Answers {
			left--
			if a.Verdict == wire.Need {
				p.send(&wire.EntryFailed{Index: a.Index})
			}
		}
	}
}

// answerAll answers that the source has none of the names, until the session is over.
func (p *rawPeer) answerAll() {
	for m := range p.in {
		switch m := m.(type) {
		case *wire.Folder:
			var all wire.Extra
			for i := range m.Names {
				all.Names = append(all.Names, uint64(i))
			}
			p.send(&all)
		case *wire.Finished:
			return
		}
	}
}
