package fleet

import (
	"cmp"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestRangeLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size, shard int64
		log         uint8
	}{
		{32e9, shardBytes, 0},
		{32e9 + 1, shardBytes, 34},
		{1 << 48, shardBytes, 34},
		{1<<48 + 1, shardBytes, 35},
		{1 << 60, shardBytes, 46},
		{4 << 20, 1, 0},
		{4<<20 + 1, 1, 22},
		{5 << 20, 5 << 20, 0},
		{6 << 20, 5 << 20, 22},
		{9 << 20, 8 << 20, 23},
		{1 << 60, largest, 0},
		{0, 1, 0},
	} {
		require.Equal(t, c.log, rangeLog(c.size, c.shard), c)
	}
}

// TestRangeLists: a large file comes in ranges that have all of it, beside the shards of other files.
func TestRangeLists(t *testing.T) {
	t.Parallel()
	large := fxfer.SourceFile{Path: "d/large", Size: 9<<20 + 1, ModTime: time.Unix(3, 4), Inode: 1<<64 - 1, Names: 2}
	all := []fxfer.SourceFile{{Path: "a", Size: 3}, large, {Path: "d/other name", Size: large.Size, Inode: large.Inode, Names: 2}, {Path: "z", Size: 4}}
	for _, checksum := range []bool{false, true} {
		var small, ranges, bytes int64
		l := lister{cutter: cutter{maxBytes: 5 << 20, maxFiles: 10}, prefix: "p/", linked: map[uint64]uint64{}, whole: checksum}
		l.put = func(number int, list []byte) error {
			require.Equal(t, l.shards, number)
			r, err := rangeIn(list, "p/")
			require.NoError(t, err)
			if r == nil {
				for _, err := range paths(list, "p/") {
					require.NoError(t, err)
					small++
				}
				return nil
			}
			require.Equal(t, ranges, r.Number)
			ranges++
			bytes += length(r)
			require.Equal(t, "d/large", r.File.Path)
			require.Equal(t, large.Size, r.File.Size)
			require.Equal(t, large.Inode, r.File.Inode)
			require.True(t, large.ModTime.Equal(r.File.ModTime))
			return nil
		}
		for _, f := range all {
			require.NoError(t, l.file(f))
		}
		require.NoError(t, l.flush())
		require.EqualValues(t, 3, l.total)
		require.EqualValues(t, 7+large.Size, l.totalBytes)
		if checksum {
			require.Zero(t, ranges)
			require.EqualValues(t, 3, small)
			continue
		}
		require.EqualValues(t, 3, ranges)
		require.Equal(t, large.Size, bytes)
		require.EqualValues(t, 2, small)
		require.Equal(t, 4, l.shards)
	}
}

// TestRangeIn: a range leads nowhere but into the source, and is one that a file has.
func TestRangeIn(t *testing.T) {
	t.Parallel()
	good := "\x0022 2 9437185 -3 7\x00p/a b\x00"
	r, err := rangeIn([]byte(good), "p/")
	require.NoError(t, err)
	require.EqualValues(t, 1<<20+1, length(r))
	require.Equal(t, good, string(rangeList(*r, "p/")))
	r, err = rangeIn([]byte("\x0022 2 9437185 3 7\x00p\x00"), "p/")
	require.NoError(t, err)
	require.Equal(t, ".", r.File.Path)
	none, err := rangeIn([]byte("p/a\x00"), "p/")
	require.NoError(t, err)
	require.Nil(t, none)
	for _, bad := range []string{
		"\x00", "\x00\x00", "\x0022\x00p/a\x00", "\x0022 2 9437185 3\x00p/a\x00", "\x0022 2 9437185 3 7 8\x00p/a\x00", "\x0022 2 9437185 3 7\x00p/a", "\x0022 2 9437185 3 7\x00",
		"\x0022 2 9437185 3 7\x00p/a\x00p/b\x00", "\x0022 2 9437185 3 7\x00q/a\x00", "\x0022 2 9437185 3 7\x00p/../a\x00", "\x0022 2 9437185 3 7\x00\x00",
		"\x0022 3 9437185 3 7\x00p/a\x00", "\x0022 -1 9437185 3 7\x00p/a\x00", "\x0022 0 0 3 7\x00p/a\x00", "\x0022 0 -1 3 7\x00p/a\x00",
		"\x0021 2 9437185 3 7\x00p/a\x00", "\x0061 0 9437185 3 7\x00p/a\x00", "\x00278 0 9437185 3 7\x00p/a\x00", "\x0022 2 9437185 3 -7\x00p/a\x00",
		"\x0022  2 9437185 3 7\x00p/a\x00", "\x0022 +2 9437185 3 7\x00p/a\x00", "\x0022 0x2 9437185 3 7\x00p/a\x00",
		"\x0022 99999999999999999999 9437185 3 7\x00p/a\x00", "\x00" + strings.Repeat("9", 1<<20),
	} {
		_, err := rangeIn([]byte(bad), "p/")
		require.Error(t, err, "%q", bad)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), "%q", bad)
	}
}

func FuzzRangeIn(f *testing.F) {
	f.Add([]byte("\x0022 2 9437185 -3 7\x00p/a b\x00"), "p/")
	f.Add([]byte("\x0060 0 1 3 18446744073709551615\x00a\x00"), "")
	f.Fuzz(func(t *testing.T, list []byte, prefix string) {
		r, err := rangeIn(list, prefix)
		if err == nil && r != nil {
			require.Equal(t, list, rangeList(*r, prefix))
			require.True(t, filepath.IsLocal(r.File.Path), r.File.Path)
			require.Equal(t, path.Clean(r.File.Path), r.File.Path)
			require.Positive(t, length(r))
		}
	})
}

// TestByFolder: what is in a folder comes together.
func TestByFolder(t *testing.T) {
	t.Parallel()
	want := []string{"a", "a/b", "a/b/c", "a/c", "a!", "a-b", "ab", "b/a/a", "b/a.a", "b/aa"}
	for i, a := range want {
		for j, b := range want {
			require.Equal(t, cmp.Compare(i, j), byFolder(a, b), "%s %s", a, b)
		}
	}
}
