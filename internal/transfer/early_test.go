package transfer

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// sendEarly sends the beginnings of a file "sub/f" in one session, and returns the events of the sender.
func sendEarly(t *testing.T, source, target string, sizes ...int64) session {
	t.Helper()
	ended := make(chan struct{}, 1)
	ended <- struct{}{}
	x := session{target: openTree(t, target), path: ".", streams: 3, patient: true, early: true}
	next := func(ctx context.Context) (string, int64, bool) {
		select {
		case <-ended:
		case <-ctx.Done():
			return "", 0, false
		}
		if len(sizes) == 0 {
			return "", 0, false
		}
		size := sizes[0]
		sizes = sizes[1:]
		return "sub/f", size, true
	}
	x.source = &EarlySource{Tree: openTree(t, source), Next: next}
	x.ended = func() { ended <- struct{}{} }
	x.run(t, t.Context())
	require.NoError(t, x.sendErr)
	require.NoError(t, x.receiveErr)
	return x
}

// TestEarly: what came of a file while it grew is not sent again, whatever became of the file. A
// wrong early byte costs time, never content.
func TestEarly(t *testing.T) {
	r := seeded(t)
	const mib = 1 << 20
	content := randomBytes(r, 12*mib+12345)
	for name, c := range map[string]struct {
		become func(t *testing.T, f string)
		most   int64 // bytes that the last session sends
	}{
		"as it was": {func(*testing.T, string) {}, 2*mib + 12345},
		"a new header": {func(t *testing.T, f string) {
			require.NoError(t, os.WriteFile(f, slices.Concat([]byte("RIFF"), content[4:]), 0o644))
		}, 2*mib + 12345 + 2*pieceSize},
		"replaced": {func(t *testing.T, f string) {
			require.NoError(t, os.WriteFile(f+"2", randomBytes(r, 9*mib+1), 0o644))
			require.NoError(t, os.Rename(f+"2", f))
		}, 9*mib + 1},
		"written anew": {func(t *testing.T, f string) {
			require.NoError(t, os.WriteFile(f, randomBytes(r, 9*mib+1), 0o644))
		}, 10 * mib},
		"cut": {func(t *testing.T, f string) { require.NoError(t, os.Truncate(f, 5*mib+1)) }, mib + 1},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := t.TempDir(), t.TempDir()
			f := filepath.Join(source, "sub", "f")
			require.NoError(t, os.Mkdir(filepath.Dir(f), 0o755))
			require.NoError(t, os.WriteFile(f, content, 0o644))
			x := sendEarly(t, source, target, 5*mib, 5*mib, 7*mib)
			require.EqualValues(t, 7*mib, x.writeStats.Written)
			x = sendEarly(t, source, target, 10*mib)
			x.ok(t)
			require.EqualValues(t, 3*mib, x.writeStats.Written, "the session before has left the rest")
			require.NoFileExists(t, filepath.Join(target, "sub", "f"))
			left, err := filepath.Glob(filepath.Join(target, "sub", ".fxfer-*"))
			require.NoError(t, err)
			require.Len(t, left, 2)

			c.become(t, f)
			x = session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
				path: ".", streams: 3, opt: wire.Target{Delta: wire.DeltaAuto}, patient: true}
			x.run(t, t.Context())
			x.ok(t)
			requireSameTree(t, source, target)
			require.LessOrEqual(t, x.writeStats.Written, c.most)
		})
	}
}

// TestEarlyEmpty: a session that sent a file while it grew ended before the first block was written.
func TestEarlyEmpty(t *testing.T) {
	source, target := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(source, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(source, "sub", "f"), randomBytes(seeded(t), 6<<20), 0o644))
	x := sendEarly(t, source, target, 5<<20)
	x.ok(t)
	parts, err := filepath.Glob(filepath.Join(target, "sub", ".fxfer-*.part"))
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.NoError(t, os.Truncate(parts[0], 0))
	x = session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
		path: ".", streams: 3, opt: wire.Target{Delta: wire.DeltaAuto}, patient: true}
	x.run(t, t.Context())
	x.ok(t)
	requireSameTree(t, source, target)
}

// TestEarlyEnds: a file that is cut or replaced while it is sent fails and goes at the target, and
// one that the target has already is not taken.
func TestEarlyEnds(t *testing.T) {
	source, target := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(source, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(source, "sub", "f"), make([]byte, 5<<20), 0o644))
	x := sendEarly(t, source, target, 7<<20, 5<<20)
	kinds := func() (all []EventKind) {
		for _, e := range x.sent {
			if e.Kind == Failed || e.Kind == Skipped {
				all = append(all, e.Kind)
			}
		}
		return all
	}
	require.Equal(t, []EventKind{Failed, Skipped}, kinds())
	require.NoError(t, os.WriteFile(filepath.Join(target, "sub", "f"), nil, 0o644))
	x = sendEarly(t, source, target, 5<<20)
	require.Equal(t, []EventKind{Failed}, kinds())
}

// TestHostileEarly: nothing that comes early gets a name.
func TestHostileEarly(t *testing.T) {
	early := func(size int64) wire.Entry {
		return wire.Entry{Kind: wire.File, Path: "a", Size: size, BlockLog: maxBlockLog, Mode: 0o600, ModTime: time.Now().UnixNano()}
	}
	data := make([]byte, EarlyBlock)
	block := wire.BlockHeader{Digest: digestOfBlock(0, data)}
	for name, c := range map[string]struct {
		x       wire.Entry
		refused bool // the session ends
		then    func(p *rawPeer)
	}{
		"no end":            {early(5 << 20), false, func(p *rawPeer) { p.block(block, data) }},
		"an end":            {early(5 << 20), true, func(p *rawPeer) { p.block(block, data); p.send(&wire.EndEntry{Size: 5 << 20}); p.wait() }},
		"a patch":           {early(5 << 20), true, func(p *rawPeer) { h := block; h.Patch = true; p.block(h, data); p.wait() }},
		"beyond":            {early(5 << 20), true, func(p *rawPeer) { h := block; h.Block = 5; p.block(h, data); p.wait() }},
		"whole":             {early(5 << 20), true, func(p *rawPeer) { h := block; h.Whole, h.Digest = true, digest.Empty(); p.block(h, data); p.wait() }},
		"a small file":      {early(1 << 20), false, nil},
		"an empty file":     {early(0), false, nil},
		"a stream":          {early(wire.Unknown), false, nil},
		"half a block":      {early(5<<20 + 1), false, nil},
		"other blocks":      {aFile("a", 8<<20), false, nil},
		"a folder":          {wire.Entry{Kind: wire.Dir, Path: "a"}, false, nil},
		"a symlink":         {wire.Entry{Kind: wire.Symlink, Path: "a", Link: "b"}, false, nil},
		"a name of our own": {func() wire.Entry { x := early(5 << 20); x.Path = ".fxfer-a"; return x }(), false, nil},
		"a way out":         {func() wire.Entry { x := early(5 << 20); x.Path = "../a"; return x }(), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := faceSender(t, openTree(t, dir), ReceiverOptions{Early: true, Leave: true}, func(p *rawPeer) {
				p.send(&wire.Manifest{}, entries(0, c.x))
				m := await[*wire.Answers](p)
				if c.then == nil {
					p.send(&wire.EndManifest{Count: 1})
					p.wait()
				} else if m != nil {
					c.then(p)
				}
			})
			switch {
			case c.refused:
				o.requireRefused(t)
			case c.then == nil:
				require.NoError(t, o.err)
				require.True(t, o.has(Failed))
			}
			names, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, n := range names {
				require.Regexp(t, `^\.fxfer-[0-9a-f]{32}\.`, n.Name())
			}
		})
	}
}
