package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/stretchr/testify/require"
)

// edit returns a version of data with n changes: bytes that differ, or insertions and removals.
func edit(r *rand.Rand, data []byte, n int, shift bool) []byte {
	data = slices.Clone(data)
	for range n {
		at := r.IntN(len(data) - 100)
		switch {
		case !shift:
			data[at]++
		case r.IntN(2) == 0:
			data = slices.Insert(data, at, []byte(fmt.Sprint(r.Uint64()))...)
		default:
			data = slices.Delete(data, at, at+r.IntN(80)+1)
		}
	}
	return data
}

// lines returns text of random lines.
func lines(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "INSERT INTO t VALUES (%d, %x);\n", r.Uint64(), r.Uint64())
	}
	return b.Bytes()
}

func TestDelta(t *testing.T) {
	r := seeded(t)
	const size = 9<<20 + 12345
	image := make([]byte, size)
	for i := range image {
		image[i] = byte(r.Uint32())
	}
	dump := lines(r, size)
	for _, c := range []struct {
		name     string
		old, new []byte
		how      wire.Delta
		most     int64 // bytes sent
	}{
		{"fixed", image, edit(r, image, 20, false), wire.DeltaFixed, 20 * (pieceSize + 200)},
		{"auto finds places", image, edit(r, image, 20, false), wire.DeltaAuto, 20 * (pieceSize + 200)},
		{"fixed, longer", image[:5<<20+5], image, wire.DeltaFixed, size - 4<<20},
		{"fixed, shorter", image, image[:5<<20+5], wire.DeltaFixed, 1 << 20},
		{"chunks", dump, edit(r, dump, 20, true), wire.DeltaChunks, 20 * 4 * 9 << 10},
		{"auto finds chunks", dump, edit(r, dump, 20, true), wire.DeltaAuto, 20 * 4 * 9 << 10},
		{"auto finds chunks after places", dump, slices.Insert(slices.Clone(dump), 4<<20, 'x'), wire.DeltaAuto, 3 * 64 << 10}, // chunks are up to 64 KiB
		{"chunks of an image", image, edit(r, image, 20, true), wire.DeltaChunks, 20 * 4 * 9 << 10},
		{"auto finds nothing", image, dump, wire.DeltaAuto, size + 1<<20},
		{"fixed finds nothing", image, dump, wire.DeltaFixed, size + 1<<20},
		{"none", image, edit(r, image, 1, false), wire.DeltaNone, size},
	} {
		if testing.Short() && c.name != "fixed" && c.name != "auto finds chunks after places" {
			continue // these two have all the goroutines
		}
		t.Run(c.name, func(t *testing.T) {
			source, target := t.TempDir(), t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(target, "f"), c.old, 0o644))
			require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
			require.NoError(t, os.WriteFile(filepath.Join(source, "f"), c.new, 0o644))
			x := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
				path: ".", streams: 3, opt: wire.Target{Delta: c.how}, patient: true}
			x.run(t, t.Context())
			x.ok(t)
			got, err := os.ReadFile(filepath.Join(target, "f"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.new, got))
			require.LessOrEqual(t, x.sendStats.Coded, c.most)
			require.Equal(t, int64(len(c.new)), x.sendStats.Written+x.sendStats.Copied)
			require.Equal(t, x.sendStats.Copied, x.writeStats.Copied)
		})
	}
}

// TestNearDelta: on a near path auto sends files of up to 1 MiB whole. Kinds that the user asked for, and
// auto elsewhere, find their old parts.
func TestNearDelta(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	old := randomBytes(r, 600_000)
	fresh := edit(r, old, 1, false)
	for _, c := range []struct {
		how         wire.Delta
		near, delta bool
	}{
		{wire.DeltaAuto, true, false},
		{wire.DeltaAuto, false, true},
		{wire.DeltaFixed, true, true},
		{wire.DeltaChunks, true, true},
		{wire.DeltaNone, false, false},
	} {
		source, target := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(target, "f"), old, 0o644))
		require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
		require.NoError(t, os.WriteFile(filepath.Join(source, "f"), fresh, 0o644))
		x := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
			path: ".", streams: 2, opt: wire.Target{Delta: c.how}, patient: true, near: c.near}
		x.run(t, t.Context())
		x.ok(t)
		require.Equal(t, c.delta, x.writeStats.Copied > 500_000, "delta %v, near %v: %d copied", c.how, c.near, x.writeStats.Copied)
		got, err := os.ReadFile(filepath.Join(target, "f"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(fresh, got))
	}
}

// TestDeltaWithoutMemory: a delta takes its memory from what sessions share. Where there is none, the
// rest of the file is sent whole. All is given back.
func TestDeltaWithoutMemory(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	const size = 3<<20 + 12345
	old := lines(r, size)
	receiver := int64(1)<<blockLog(size) + chunkBuffers*8<<10 // what it takes
	for name, c := range map[string]struct {
		how    wire.Delta
		memory int64
		delta  bool
	}{
		"enough":                    {wire.DeltaChunks, 64 << 20, true},
		"none for a differ":         {wire.DeltaAuto, receiver + 100<<10, false},
		"none for digests":          {wire.DeltaChunks, receiver + 10, false},
		"none for blocks of digest": {wire.DeltaFixed, receiver + 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := t.TempDir(), t.TempDir()
			changed := edit(seeded(t), old, 5, false)
			require.NoError(t, os.WriteFile(filepath.Join(target, "f"), old, 0o644))
			require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
			require.NoError(t, os.WriteFile(filepath.Join(source, "f"), changed, 0o644))
			x := session{
				source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
				path: ".", streams: 3, opt: wire.Target{Delta: c.how}, patient: true, memory: NewAccount(c.memory, nil),
			}
			x.run(t, t.Context())
			x.ok(t)
			got, err := os.ReadFile(filepath.Join(target, "f"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(changed, got))
			require.Equal(t, c.delta, x.sendStats.Copied > 0)
			require.True(t, x.memory.TryTake(c.memory), "all is given back")
		})
	}
}

// writeHoles writes a file of holes with a little data in some of its MiB.
func writeHoles(t *testing.T, r *rand.Rand, name string, size int64, at ...int64) {
	f, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	for _, x := range at {
		_, err := f.WriteAt(randomBytes(r, 70_000), x<<20+5)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

// TestDeltaOfHoles has more blocks without data than are offered at a time, in both versions.
func TestDeltaOfHoles(t *testing.T) {
	r := seeded(t)
	source, target := t.TempDir(), t.TempDir()
	const size = 600 << 20
	writeHoles(t, r, filepath.Join(target, "f"), size, 3, 300, 590)
	require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
	writeHoles(t, r, filepath.Join(source, "f"), size, 0, 250, 300, 599)
	x := session{source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}}, target: openTree(t, target),
		path: ".", streams: 3, opt: wire.Target{Delta: wire.DeltaFixed}, patient: true}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x.run(t, ctx)
	x.ok(t)
	want, err := os.Open(filepath.Join(source, "f"))
	require.NoError(t, err)
	defer want.Close()
	got, err := os.Open(filepath.Join(target, "f"))
	require.NoError(t, err)
	defer got.Close()
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < size; at += 1 << 20 {
		_, err = want.ReadAt(a, at)
		require.NoError(t, err)
		_, err = got.ReadAt(b, at)
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, b), "at %d", at)
	}
	require.Less(t, x.sendStats.Coded, int64(1<<20))
}
