package disk

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childEnv makes the test binary play a part in another process.
const childEnv = "FXFER_DISK_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "crash":
		crashChild()
	case "batch":
		batchChild()
	case "busy":
		busyChild()
	case "writer":
		writerChild()
	default:
		goleak.VerifyTestMain(m)
	}
}

func openTree(t *testing.T) (*Tree, string) {
	t.Helper()
	dir := t.TempDir()
	tree, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { tree.Close() })
	return tree, dir
}

// blockOf returns the content of a block of length n, and its digest.
func blockOf(block int64, n int) ([]byte, [32]byte) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(int64(i)*31 + block*17 + block>>8)
	}
	if n >= 8 {
		binary.LittleEndian.PutUint64(b, uint64(block)*0x9e3779b97f4a7c15)
	}
	return b, sha256.Sum256(b)
}

// blockLength returns the length of a block of a file of size bytes.
func blockLength(block, size int64, blockSize int) int {
	return int(min(int64(blockSize), size-block*int64(blockSize)))
}

// put writes and marks a block with its content.
func put(t *testing.T, p *Partial, block int64) {
	t.Helper()
	n := blockLength(block, p.size, int(p.blockSize))
	b, cv := blockOf(block, n)
	_, err := p.WriteAt(b, block*p.blockSize)
	require.NoError(t, err)
	require.NoError(t, p.Mark(block, cv))
}

// leftovers lists the names reserved for partials in dir.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, reservedPrefix+"*"))
	require.NoError(t, err)
	return found
}
