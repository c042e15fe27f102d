package transfer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// bytesRead returns how many bytes this process has read, from files and others.
func bytesRead(t *testing.T) (n int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err) // the kernel does not count
	}
	_, err = fmt.Fscanf(bytes.NewReader(text), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}

// TestDeltaSkipsHoles shows that neither side reads the holes of two versions to compare them. It
// is not parallel, since it counts what the process reads.
func TestDeltaSkipsHoles(t *testing.T) {
	for _, how := range []wire.Delta{wire.DeltaFixed, wire.DeltaAuto} {
		r := seeded(t)
		source, target := t.TempDir(), t.TempDir()
		const size = 4 << 30
		writeHoles(t, r, filepath.Join(target, "f"), size, 3, 2000, 3000)
		require.NoError(t, os.Chtimes(filepath.Join(target, "f"), time.Time{}, time.Unix(1e9, 0)))
		writeHoles(t, r, filepath.Join(source, "f"), size, 0, 1000, 2000, 4095)
		x := session{
			source: &TreeSource{Roots: []Root{{Tree: openTree(t, source), Path: "."}}},
			target: openTree(t, target), path: ".", streams: 3,
			opt: wire.Target{Delta: how}, patient: true,
		}
		before := bytesRead(t)
		x.run(t, t.Context())
		x.ok(t)
		require.Less(t, bytesRead(t)-before, int64(256<<20))
	}
}
