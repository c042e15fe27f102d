package disk

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCheckpoint: whatever the checkpoint file holds, listing leftovers reports nothing impossible,
// and resuming claims no block beyond the file's end.
func FuzzCheckpoint(f *testing.F) {
	whole := encodeLog(sampleHeader, sampleRecords)
	f.Add(whole, uint16(4096), false)
	f.Add(whole[:headerSize], uint16(0), true)
	long := sampleHeader
	long.name = string(make([]byte, maxElement))
	f.Add(long.encode(), uint16(1), true)
	f.Fuzz(func(t *testing.T, log []byte, size uint16, sum bool) {
		if sum && len(log) >= headerSize { // or hardly any would pass
			binary.LittleEndian.PutUint32(log[508:], crc32.Checksum(log[:508], castagnoli))
		}
		dir := t.TempDir()
		header := sampleHeader
		if len(log) >= headerSize {
			if h, ok := decodeHeader(log); ok {
				header = h
			}
		}
		reserved := reservedName(header.name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, reserved+partialSuffix), make([]byte, size), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, reserved+checkpointSuffix), log, 0o600))
		folder, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer folder.Close()
		l, ok := leftoverOf(folder, reserved+partialSuffix)
		require.True(t, ok)
		require.True(t, l.Size >= 0 || !l.Known)
		require.True(t, l.Done >= 0 && (l.Done <= l.Size || !l.Known), "%d of %d", l.Done, l.Size)
		require.LessOrEqual(t, l.Done, int64(size))
	})
}
