package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The log that the following tests damage. Its records are in order, as a writer in the running
// kernel made them.
var sampleRecords = []record{
	{kind: recordBoot, value: bootID()},
	{kind: recordDone, number: 0, value: [32]byte{1}},
	{kind: recordDone, number: 2, value: [32]byte{2}},
	{kind: recordDone, number: 3, value: [32]byte{3}},
	{kind: recordSync, number: 3}, // before block 3 was synced
	{kind: recordDrop, number: 2},
	{kind: recordDone, number: 1, value: [32]byte{4}},
	{kind: recordDone, number: 2, value: [32]byte{5}},
	{kind: recordSync, number: 8},
	{kind: recordDone, number: 5, value: [32]byte{6}},
	{kind: recordDrop, number: 0},
}

var sampleHeader = logHeader{blockSize: testBlock, size: 6 * testBlock, source: Identity{Size: 6 * testBlock, ModTime: 42, Ino: 7}, name: "file"}

// claims is what the records claim: each block with the first byte of its digest.
func claims(records []record) map[int64]byte {
	done := map[int64]byte{}
	for _, r := range records {
		switch r.kind {
		case recordDone:
			done[r.number] = r.value[0]
		case recordDrop:
			delete(done, r.number)
		}
	}
	return done
}

// synced is how many of the records lie under the last sync record.
func synced(records []record) int {
	n := 0
	for _, r := range records {
		if r.kind == recordSync {
			n = int(r.number)
		}
	}
	return n
}

func encodeLog(header logHeader, records []record) []byte {
	b := header.encode()
	for i, r := range records {
		b = header.encodeRecord(b, int64(i), r)
	}
	return b
}

// resumeFrom opens a log of the given bytes and returns its trusted part.
func resumeFrom(t *testing.T, folder *os.Root, log []byte) (claimed map[int64]byte, l *checkpointLog, run *earlierRun) {
	t.Helper()
	require.NoError(t, folder.WriteFile("log", log, 0o600))
	header := sampleHeader
	l, run, err := resumeLog(folder, "log", header)
	require.NoError(t, err)
	if l == nil {
		return nil, nil, nil
	}
	claimed = map[int64]byte{}
	require.NoError(t, l.each(run.trusted, func(index int64, r record) error {
		latest, several := run.latest[r.number]
		if r.kind == recordDone && run.have.Has(r.number) && (!several || latest == index) {
			claimed[r.number] = r.value[0]
		}
		return nil
	}))
	require.EqualValues(t, run.have.Count(), len(claimed))
	return claimed, l, run
}

// trusted is how many of the first sound records count on this system.
func trusted(sound []record) []record {
	if bootID() == ([32]byte{}) || len(sound) == 0 {
		return sound[:synced(sound)]
	}
	return sound
}

func openFolder(t *testing.T) *os.Root {
	t.Helper()
	folder, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { folder.Close() })
	return folder
}

func TestTornLog(t *testing.T) {
	if testing.Short() {
		t.Skip("computes a lot on one goroutine")
	}
	folder := openFolder(t)
	whole := encodeLog(sampleHeader, sampleRecords)
	for size := range len(whole) + 1 {
		claimed, l, run := resumeFrom(t, folder, whole[:size])
		if size < headerSize {
			require.Nil(t, l, "cut at %d", size)
			continue
		}
		sound := sampleRecords[:(size-headerSize)/recordSize]
		require.Equal(t, claims(trusted(sound)), claimed, "cut at %d", size)
		require.EqualValues(t, synced(sound), run.synced)

		// The torn tail is gone, so the next records can be read.
		l.append(record{kind: recordDone, number: 4, value: [32]byte{9}})
		require.NoError(t, l.markSynced(l.length()))
		require.NoError(t, l.file.Close())
		again, err := folder.ReadFile("log")
		require.NoError(t, err)
		claimedAgain, l, _ := resumeFrom(t, folder, again)
		claimed[4] = 9
		require.Equal(t, claimed, claimedAgain, "cut at %d", size)
		require.NoError(t, l.file.Close())
	}
}

func TestDamagedLog(t *testing.T) {
	folder := openFolder(t)
	whole := encodeLog(sampleHeader, sampleRecords)
	for i := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[i] ^= 0x41
		claimed, l, _ := resumeFrom(t, folder, damaged)
		if i < headerSize {
			// The header's own CRC protects the salt, too.
			require.Nil(t, l, "byte %d", i)
			continue
		}
		require.Equal(t, claims(trusted(sampleRecords[:(i-headerSize)/recordSize])), claimed, "byte %d", i)
		require.NoError(t, l.file.Close())
	}
}

// A sound record of another log, or of another place in the log, is rejected.
func TestStrayRecords(t *testing.T) {
	folder := openFolder(t)
	other := sampleHeader
	other.salt[3] = 1
	whole := encodeLog(sampleHeader, sampleRecords[:4])
	stray := other.encodeRecord(nil, 4, record{kind: recordDone, number: 5})
	moved := sampleHeader.encodeRecord(nil, 3, record{kind: recordDone, number: 5})
	zeros := make([]byte, recordSize)
	for _, tail := range [][]byte{stray, moved, zeros} {
		claimed, l, _ := resumeFrom(t, folder, append(append([]byte(nil), whole...), tail...))
		require.Equal(t, claims(trusted(sampleRecords[:4])), claimed)
		require.NoError(t, l.file.Close())
	}
}

func TestLogOfAnotherTarget(t *testing.T) {
	folder := openFolder(t)
	for _, alter := range []func(h *logHeader){
		func(h *logHeader) { h.blockSize *= 2 },
		func(h *logHeader) { h.size++ },
		func(h *logHeader) { h.source.Size++ },
		func(h *logHeader) { h.source.ModTime++ },
		func(h *logHeader) { h.source.Ino++ },
		func(h *logHeader) { h.name = "filf" },
	} {
		header := sampleHeader
		alter(&header)
		_, l, _ := resumeFrom(t, folder, encodeLog(header, sampleRecords))
		require.Nil(t, l)
	}
}

// Claims of another run of the kernel, or of one without an id, count only under a sync record.
// They do not mix with those of this run.
func TestLogOfAnotherBoot(t *testing.T) {
	folder := openFolder(t)
	for _, boot := range [][32]byte{{}, {1, 2, 3}} {
		records := append([]record(nil), sampleRecords...)
		records[0].value = boot
		claimed, l, run := resumeFrom(t, folder, encodeLog(sampleHeader, records))
		require.Equal(t, claims(records[:8]), claimed)
		require.EqualValues(t, 8, run.synced)
		require.Equal(t, run.have, run.durable)
		l.append(record{kind: recordDone, number: 5, value: [32]byte{7}})
		require.NoError(t, l.flush())
		require.NoError(t, l.file.Close())
		again, err := folder.ReadFile("log")
		require.NoError(t, err)
		claimedAgain, l, run := resumeFrom(t, folder, again)
		if bootID() != ([32]byte{}) {
			claimed[5] = 7
		}
		require.Equal(t, claimed, claimedAgain)
		require.EqualValues(t, 8, run.synced, "the sync record was repeated")
		require.NoError(t, l.file.Close())
	}
}

func FuzzLog(f *testing.F) {
	whole := encodeLog(sampleHeader, sampleRecords)
	f.Add(whole[headerSize:])
	f.Add(whole[headerSize : headerSize+100])
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, tail []byte) {
		folder, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer folder.Close()
		claimed, l, run := resumeFrom(t, folder, append(sampleHeader.encode(), tail...))
		require.NoError(t, l.file.Close())
		require.LessOrEqual(t, run.trusted, int64(len(tail)/recordSize))
		require.LessOrEqual(t, int64(len(claimed)), run.trusted)
		require.FileExists(t, filepath.Join(dir, "log"))
	})
}
