package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// FuzzPatch parses patches: each stretch of an accepted one lies in the block and in the old file.
func FuzzPatch(f *testing.F) {
	f.Add(appendPatch(nil, []byte("hello, world"), []stretch{{7, 5}, {noOldStretch, 7}}), 12, int64(100))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9}, 5, int64(13))
	f.Add([]byte{255, 255, 255, 255}, 1, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, length int, oldSize int64) {
		if length < 0 || length > 1<<20 || oldSize < 0 || oldSize > wire.MaxSize {
			return
		}
		all, fresh, err := parsePatch(b, length, oldSize)
		if err != nil {
			return
		}
		sum, need := int64(0), 0
		for _, x := range all {
			require.Positive(t, x.n)
			if sum += x.n; x.old < 0 {
				need += int(x.n)
			} else {
				require.LessOrEqual(t, x.old+x.n, oldSize)
			}
		}
		require.Equal(t, int64(length), sum)
		require.Len(t, fresh, need)
	})
}

func TestPatch(t *testing.T) {
	r := seeded(t)
	block := randomBytes(r, 10_000)
	for range 200 {
		var all []stretch
		for at := int64(0); at < int64(len(block)); {
			n := min(1+r.Int64N(3000), int64(len(block))-at)
			old := int64(noOldStretch)
			if r.IntN(2) == 0 {
				old = r.Int64N(1 << 40)
			}
			all = appendStretch(all, old, n)
			at += n
		}
		b := appendPatch(nil, block, all)
		size, _ := patchSize(all)
		require.Len(t, b, int(size))
		got, fresh, err := parsePatch(b, len(block), 1<<41)
		require.NoError(t, err)
		require.Equal(t, all, got)
		at := int64(0)
		for _, x := range all {
			if x.old < 0 {
				require.True(t, bytes.Equal(block[at:at+x.n], fresh[:x.n]))
				fresh = fresh[x.n:]
			}
			at += x.n
		}
		_, _, err = parsePatch(b[:len(b)-1-r.IntN(len(b)-1)], len(block), 1<<41)
		require.Error(t, err)
		_, _, err = parsePatch(b, len(block)+1, 1<<41)
		require.Error(t, err)
	}
}

// TestHostileDelta lets a sender break the rules of deltas in every way. The session ends, the old
// file stays, and nothing waits.
func TestHostileDelta(t *testing.T) {
	old := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // 640 KiB: ten blocks
	size := int64(len(old))
	patch := func(all ...stretch) []byte { return appendPatch(nil, make([]byte, 64<<10), all) }
	for name, c := range map[string]struct {
		how  wire.Delta
		act  func(p *deltaPeer)
		code wire.Code // of the session's end; 0 if the entry fails or goes on
	}{
		"a pick of another way": {wire.DeltaFixed, func(p *deltaPeer) { p.send(&wire.Pick{Index: 0, Delta: wire.DeltaChunks}) }, wire.CodeProtocol},
		"two picks": {wire.DeltaAuto, func(p *deltaPeer) {
			p.send(&wire.Pick{Delta: wire.DeltaFixed})
			p.send(&wire.Pick{Delta: wire.DeltaChunks})
		}, wire.CodeProtocol},
		"a question before the pick": {wire.DeltaFixed, func(p *deltaPeer) { p.send(&wire.Ask{Blocks: []wire.Extent{{Start: 0, Count: 1}}}) }, wire.CodeProtocol},
		"a question beyond the end": {wire.DeltaFixed, func(p *deltaPeer) {
			p.picked(wire.DeltaFixed)
			p.send(&wire.Ask{Blocks: []wire.Extent{{Start: 9, Count: 2}}})
		}, wire.CodeProtocol},
		"a question about too much": {wire.DeltaFixed, func(p *deltaPeer) {
			p.picked(wire.DeltaFixed)
			p.send(&wire.Ask{Blocks: []wire.Extent{{Start: 0, Count: 1 << 40}}})
		}, wire.CodeProtocol},
		"a question about chunks": {wire.DeltaChunks, func(p *deltaPeer) {
			p.picked(wire.DeltaChunks)
			p.send(&wire.Ask{Blocks: []wire.Extent{{Start: 0, Count: 1}}})
		}, wire.CodeProtocol},
		"a stretch beyond the old file": {wire.DeltaFixed, func(p *deltaPeer) { p.block(patch(stretch{size - 100, 64 << 10})) }, wire.CodeProtocol},
		"a stretch that overflows":      {wire.DeltaFixed, func(p *deltaPeer) { p.block(patch(stretch{1<<63 - 2, 64 << 10})) }, wire.CodeProtocol},
		"a patch that is too short":     {wire.DeltaFixed, func(p *deltaPeer) { p.block(patch(stretch{0, 100})) }, wire.CodeProtocol},
		"a patch of nothing":            {wire.DeltaFixed, func(p *deltaPeer) { p.block([]byte{0, 0, 0, 0}) }, wire.CodeProtocol},
		"more stretches than there are": {wire.DeltaFixed, func(p *deltaPeer) { p.block(binary.BigEndian.AppendUint32(nil, 1<<31)) }, wire.CodeProtocol},
		"patches with wrong digests":    {wire.DeltaFixed, func(p *deltaPeer) { p.wrong(patch(stretch{0, 64 << 10})) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "f")
			require.NoError(t, os.WriteFile(file, old, 0o644))
			ctrl, end := net.Pipe()
			data, dataEnd := net.Pipe()
			v := NewReceiver(end, wire.NewReader(end, wire.MaxMessage), openTree(t, dir), ReceiverOptions{Path: ".", Target: wire.Target{Delta: c.how}})
			v.AddStream(dataEnd)
			over := make(chan error, 1)
			go func() { over <- v.Run(context.Background()); end.Close() }()
			p := &deltaPeer{t: t, ctrl: ctrl, data: data, heard: make(chan wire.Message, 1000)}
			go p.listen()
			p.send(&wire.Manifest{Delta: true})
			p.send(&wire.Entries{Entries: []wire.Entry{{Kind: wire.File, Path: "f", Size: size, ModTime: 1, Mode: 0o644, BlockLog: wire.MinBlockLog}}})
			p.send(&wire.EndManifest{Count: 1})
			c.act(p)
			if c.code == 0 {
				ctrl.Close()
				require.Error(t, <-over)
			} else {
				select {
				case err := <-over:
					var known *wire.Error
					require.ErrorAs(t, err, &known)
					require.Equal(t, c.code, known.Code, "%v", err)
				case <-time.After(10 * time.Second):
					require.Fail(t, "it goes on")
				}
			}
			ctrl.Close()
			data.Close()
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, bytes.Equal(old, got))
		})
	}
}

// deltaPeer is a sender that a test controls by hand.
type deltaPeer struct {
	t          *testing.T
	ctrl, data net.Conn
	heard      chan wire.Message
}

func (p *deltaPeer) send(m wire.Message) { _, _ = p.ctrl.Write(wire.Append(nil, m)) } // the other side may have ended

func (p *deltaPeer) listen() {
	r := wire.NewReader(p.ctrl, wire.MaxMessage)
	for {
		m, err := r.Next()
		if err != nil {
			close(p.heard)
			return
		}
		select {
		case p.heard <- m:
		default:
		}
	}
}

// picked sends Pick, and waits for digests.
func (p *deltaPeer) picked(how wire.Delta) {
	p.send(&wire.Pick{Delta: how})
	for m := range p.heard {
		switch m.(type) {
		case *wire.Pieces, *wire.Chunks:
			return
		}
	}
}

func (p *deltaPeer) block(payload []byte) {
	var head [wire.BlockHeaderLen]byte
	(&wire.BlockHeader{Patch: true, Length: uint32(len(payload))}).Put(head[:])
	_, _ = p.data.Write(append(head[:], payload...))
}

// wrong sends a patch whose digest is wrong, until the receiver asks for the block again.
func (p *deltaPeer) wrong(payload []byte) {
	for range 20 {
		p.block(payload)
		again := false
		for m := range p.heard {
			if _, again = m.(*wire.Resend); again {
				break
			}
		}
		require.True(p.t, again)
	}
}

// TestDeltaResumes ends a session in the middle of a delta. The next one goes on, and the file is
// right.
func TestDeltaResumes(t *testing.T) {
	r := seeded(t)
	size := 12 << 20
	if testing.Short() {
		size /= 2
	}
	old := lines(r, size)
	fresh := edit(r, old, 300, r.IntN(2) == 0)
	source, target := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(target, "f"), old, 0o644))
	require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
	require.NoError(t, os.WriteFile(filepath.Join(source, "f"), fresh, 0o644))
	for try := 0; ; try++ {
		x := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
			path: ".", streams: 2, opt: wire.Target{Delta: wire.DeltaAuto}, patient: true}
		ctx, cancel := context.WithCancel(t.Context())
		if limit := int64(1+r.IntN(4)) << 20; try < 3 {
			x.wrap = func(_ int, s net.Conn) net.Conn { return &cutter{Conn: s, left: limit / 8, cut: cancel} }
		}
		x.run(t, ctx)
		cancel()
		if x.sendErr == nil {
			x.ok(t)
			t.Logf("try %d: %d bytes resumed, %d copied, %d sent", try, x.sendStats.Resumed, x.sendStats.Copied, x.sendStats.Written)
			break
		}
		require.Less(t, try, 3)
	}
	got, err := os.ReadFile(filepath.Join(target, "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(fresh, got))
}

// cutter ends everything after a number of bytes.
type cutter struct {
	net.Conn
	left int64
	cut  func()
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.left -= int64(len(b)); c.left < 0 {
		c.cut()
	}
	return c.Conn.Write(b)
}
