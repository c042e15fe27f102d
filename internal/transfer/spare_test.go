package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// TestSpareEntries: an entry is used again only if nobody else can have it.
func TestSpareEntries(t *testing.T) {
	t.Parallel()
	need := func(c *claims, e *sending) {
		e.answered = true
		c.need(e, e.notNeeded(blockset.Set{}))
	}
	for name, c := range map[string]struct {
		size int64
		do   func(c *claims, e *sending)
		want bool
	}{
		"small, nothing to do": {1000, func(*claims, *sending) {}, true},
		"large, nothing to do": {10 << 20, func(*claims, *sending) {}, true},
		"needed":               {1000, need, false},
		"compared":             {1000, func(_ *claims, e *sending) { e.comparing = true }, false},
		"a stream":             {wire.Unknown, func(_ *claims, e *sending) { e.item.Stream = os.Stdin }, false},
		"sent before the answer": {1000, func(c *claims, e *sending) {
			c.speculate = true
			c.speculateOn(e)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counts counters
			x, m := newClaims(&counts, NewClock(), 0, false), newManifest(&counts, false, nil)
			e := newSending(&Item{Entry: wire.Entry{Kind: wire.File, Path: "f", Size: c.size, BlockLog: wire.MinBlockLog}}, 0)
			m.add(e)
			c.do(x, e)
			all := []*sending{e, nil}
			x.dropShared(all)
			require.Equal(t, c.want, all[0] != nil)
			m.keepSpare(all)
			require.Empty(t, m.spare, "not announced")
			m.setTold(1)
			m.keepSpare(all)
			require.Equal(t, c.want, m.spareEntry() == e)
			require.NotSame(t, e, m.spareEntry(), "once")
		})
	}
}

// TestSpare sends files, and then what changed of them: entries of the others are used again.
func TestSpare(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	src, dst := t.TempDir(), t.TempDir()
	const files = 3000
	write := func(i int) {
		dir := filepath.Join(src, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), randomBytes(rng, rng.IntN(3000)), 0o644))
	}
	for i := range files {
		write(i)
	}
	for round := range 3 {
		s := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, src), Path: "."}}}, target: openTree(t, dst), path: ".", streams: 3, patient: round > 0}
		s.run(t, t.Context())
		s.ok(t)
		requireSameTree(t, src, dst)
		require.Equal(t, round > 0, len(s.sender.manifest.spare) > 10)
		ended := map[string]int{}
		for _, e := range s.sent {
			if e.Kind == Committed || e.Kind == Same {
				ended[e.Entry.Path]++
			}
		}
		require.Len(t, ended, files)
		for i := range files / 10 {
			write(i * 10)
		}
	}
}
