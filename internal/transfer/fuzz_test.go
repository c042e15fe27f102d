package transfer

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"
)

// FuzzRanges parses ranges of data: accepted ones are the same when they are written again.
func FuzzRanges(f *testing.F) {
	f.Add(ranges(0), uint16(64))
	f.Add(append(ranges(2, 0, 3, 8, 2), "abcde"...), uint16(10))
	f.Add(append(ranges(1, 8, 3), "abc"...), uint16(10))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		block := bytes.Repeat([]byte{0xaa}, int(size))
		data, err := parseRanges(b, block)
		if err != nil {
			return
		}
		require.Equal(t, b, appendRanges(nil, block, 0, data))
		end := int64(0)
		for _, r := range data {
			require.Equal(t, make([]byte, r.Off-end), block[end:r.Off], "a hole is zero")
			end = r.Off + r.Len
		}
		require.Equal(t, make([]byte, int64(size)-end), block[end:])
	})
}

// fuzzWithin is how long a session may go on after its peer has ended.
const fuzzWithin = 20 * time.Second

// replay is a stream whose peer sends given bytes, and then ends.
type replay struct {
	net.Conn
	peer net.Conn
	done sync.WaitGroup
}

func newReplay(b []byte) *replay {
	ours, theirs := net.Pipe()
	r := &replay{Conn: ours, peer: theirs}
	r.done.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	r.done.Go(func() { _, _ = theirs.Write(b); theirs.Close() })
	return r
}

func (r *replay) end() { r.Close(); r.peer.Close(); r.done.Wait() }

// FuzzReceiver sends anything to a receiver. The session ends with its peer, and nothing outside of
// the target is touched.
func FuzzReceiver(f *testing.F) {
	say := func(messages ...wire.Message) (b []byte) {
		for _, m := range messages {
			b = wire.Append(b, m)
		}
		return b
	}
	blockOf := func(h wire.BlockHeader, payload string) []byte {
		b := make([]byte, wire.BlockHeaderLen)
		h.Length = uint32(len(payload))
		h.Put(b)
		return append(b, payload...)
	}
	whole := blockOf(wire.BlockHeader{Whole: true, Digest: blake3.Sum256([]byte("hello"))}, "hello")
	sparse := aFile("s", 1<<20)
	sparse.Holes = true
	f.Add(say(&wire.Manifest{}, entries(0, aFile("a", 5)), &wire.EndManifest{Count: 1}), whole)
	f.Add(say(&wire.Manifest{Single: true}, entries(0, aFile("a", 3<<16)), &wire.EndManifest{Count: 1}, &wire.EndEntry{Size: 3 << 16}), blockOf(wire.BlockHeader{Block: 1}, string(make([]byte, smallBlock))))
	f.Add(say(&wire.Manifest{}, entries(0, wire.Entry{Kind: wire.Dir, Path: "d"}, wire.Entry{Kind: wire.Symlink, Path: "d/l", Link: "../../outside"}, aFile("d/l/x", 5))), whole)
	f.Add(say(&wire.Manifest{Prune: true}, entries(0, wire.Entry{Kind: wire.Dir, Path: "."}), &wire.EndManifest{Count: 1}, &wire.Prune{Folders: []string{"."}}, &wire.Extra{Names: []uint64{0}}), whole)
	f.Add(say(&wire.Manifest{}, entries(0, sparse), &wire.EndEntry{Size: 1 << 20, Holes: []wire.Extent{{Count: 16}}}), blockOf(wire.BlockHeader{Sparse: true}, string(ranges(0))))
	f.Add(say(&wire.Manifest{}, entries(0, aFile("a", wire.Unknown)), &wire.EndEntry{Size: 0}, &wire.EntryFailed{Index: 0, Code: wire.CodeAgain}), []byte{2})
	f.Add(say(&wire.Manifest{}, entries(0, aFile("a", 5), wire.Entry{Kind: wire.Hardlink, Path: "b", Link: "a"})), whole)
	f.Fuzz(func(t *testing.T, control, data []byte) {
		receiveAnything(t, control, data, ReceiverOptions{Path: ".", Target: wire.Target{Sync: wire.SyncNone, Delete: true, NumericIDs: true}})
	})
}

// FuzzRangeReceiver is FuzzReceiver for a range of files.
func FuzzRangeReceiver(f *testing.F) {
	large := aFile("d/a", 5<<20)
	sparse := large
	sparse.Holes = true
	open := []wire.Message{&wire.Manifest{}, entries(0, wire.Entry{Kind: wire.Dir, Path: "d"}, large), &wire.EndManifest{Count: 2}}
	end := &wire.EndEntry{Index: 1, Size: 5 << 20}
	data := make([]byte, smallBlock)
	block := wire.BlockHeader{Index: 1, Block: 64, Digest: digestOfBlock(64, data), Length: smallBlock}
	frame := make([]byte, wire.BlockHeaderLen, wire.BlockHeaderLen+len(data))
	block.Put(frame)
	frame = append(frame, data...)
	say := func(messages ...wire.Message) (b []byte) {
		for _, m := range messages {
			b = wire.Append(b, m)
		}
		return b
	}
	f.Add(say(append(open, end)...), frame, byte(22), uint64(1))
	f.Add(say(append(open, end)...), frame, byte(22), uint64(0))
	f.Add(say(&wire.Manifest{}, entries(0, sparse), &wire.EndManifest{Count: 1}, &wire.EndEntry{Size: 5 << 20, Holes: []wire.Extent{{Start: 64, Count: 16}}}), []byte{2}, byte(22), uint64(1))
	f.Add(say(&wire.Manifest{}, entries(0, aFile("a", 5), large), &wire.EntryFailed{Index: 1, Code: wire.CodeChanged}), frame, byte(60), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, control, data []byte, log byte, number uint64) {
		receiveAnything(t, control, data, ReceiverOptions{
			Path: ".", Target: wire.Target{Sync: wire.SyncNone, Delete: true, NumericIDs: true}, Range: &wire.Range{Log: log, Number: number},
		})
	})
}

// receiveAnything lets a receiver have what a peer sends. The session ends with its peer, and nothing
// outside of the target is touched.
func receiveAnything(t *testing.T, control, data []byte, opt ReceiverOptions) {
	if bytes.Contains(control, []byte("outside/keep")) {
		return // a symlink's target may be anything
	}
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "outside"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "outside", "keep"), []byte("keep"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(root, "target"), 0o700))
	tree, err := access.OpenTarget(filepath.Join(root, "target"), access.Asked{Base: "."})
	require.NoError(t, err)
	defer tree.Close()
	ctrl, stream := newReplay(control), newReplay(data)
	defer ctrl.end()
	defer stream.end()
	v := NewReceiver(ctrl, wire.NewReader(ctrl, wire.MaxMessage), tree, opt)
	v.AddStream(stream)
	late := time.AfterFunc(fuzzWithin, func() { panic("the session does not end with its peer") })
	defer late.Stop()
	_ = v.Run(context.Background())
	names, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, names, 2)
	kept, err := os.ReadDir(filepath.Join(root, "outside"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	got, err := os.ReadFile(filepath.Join(root, "outside", "keep"))
	require.NoError(t, err)
	require.Equal(t, "keep", string(got))
}

// FuzzSender sends anything to a sender. The session ends with its peer.
func FuzzSender(f *testing.F) {
	say := func(messages ...wire.Message) (b []byte) {
		for _, m := range messages {
			b = wire.Append(b, m)
		}
		return b
	}
	need := func(i uint64) *wire.Answers {
		return &wire.Answers{Answers: []wire.Answer{{Index: i, Verdict: wire.Need}}}
	}
	f.Add(say(need(0), &wire.Written{Blocks: []wire.BlockID{{}}}, &wire.Placed{Entries: []wire.Extent{{Count: 1}}}, &wire.Finished{}))
	f.Add(say(need(1), &wire.Resend{Index: 1, Blocks: []wire.Extent{{Count: 2}}}, &wire.Written{Blocks: []wire.BlockID{{Index: 1, Block: 1}}}))
	f.Add(say(&wire.Answers{Answers: []wire.Answer{{Index: 0, Verdict: wire.Hash}, {Index: 1, Verdict: wire.Same}}}, &wire.Folder{Path: ".", Names: []string{"a", "x"}}))
	f.Add(say(&wire.EntryFailed{Index: 1, Code: wire.CodeNoSpace, Text: "full"}, &wire.Warning{What: "owner", Count: 3}, &wire.Removed{Path: "x"}, &wire.Finished{}))
	dir := f.TempDir()
	require.NoError(f, os.WriteFile(filepath.Join(dir, "a"), []byte("hello"), 0o600))
	require.NoError(f, os.WriteFile(filepath.Join(dir, "b"), make([]byte, 3<<20), 0o600))
	tree, err := access.OpenTarget(dir, access.Asked{Base: "."})
	require.NoError(f, err)
	f.Cleanup(func() { tree.Close() })
	f.Fuzz(func(t *testing.T, control []byte) {
		ctrl, stream := newReplay(control), newReplay(nil)
		defer ctrl.end()
		defer stream.end()
		s := NewSender(ctrl, wire.NewReader(ctrl, wire.MaxMessage), &TreeSource{Roots: []Root{{Tree: tree, Path: "."}}}, SenderOptions{Prune: true})
		s.AddStream(1, stream)
		late := time.AfterFunc(fuzzWithin, func() { panic("the session does not end with its peer") })
		defer late.Stop()
		_ = s.Run(context.Background())
	})
}
