package digest

import (
	"encoding/binary"

	"lukechampine.com/blake3/guts"
)

const (
	// MaxSmall is the size of the largest file that Small digests, in bytes: a chunk.
	MaxSmall = guts.ChunkSize
	// SmallFiles is how many files Small digests at a time.
	SmallFiles = groupChunks
)

// Small digests files of a chunk at most, side by side. Read each file into its room, then call
// Sum. The zero value is ready. A Small does not allocate, and is not safe for concurrent use.
type Small struct {
	rooms   [GroupSize]byte
	lengths [groupChunks]uint32
}

// Room returns the room for file i of size bytes, at most MaxSmall. The caller fills it before Sum.
func (s *Small) Room(i, size int) []byte {
	room := s.rooms[i*MaxSmall:][:MaxSmall]
	s.lengths[i] = uint32(size)
	clear(room[size:max(64, (size+63)&^63)])
	return room[:size:size]
}

// Sum returns the digests of the first n files in sums. All 16 take less time than one without
// vectors.
func (s *Small) Sum(sums *[SmallFiles][32]byte, n int) { s.sum(sums, n, haveVector) }

func (s *Small) sum(sums *[SmallFiles][32]byte, n int, wide bool) {
	if !wide {
		for i := range n {
			file := s.rooms[i*MaxSmall:][:s.lengths[i]]
			sums[i] = Root(guts.CompressChunk(file, &guts.IV, 0, 0))
		}
		return
	}
	longest := uint32(1)
	for i := range s.lengths {
		if i >= n {
			s.lengths[i] = 0
		}
		longest = max(longest, s.lengths[i])
	}
	var v vector
	roots16(&v, &s.rooms, &s.lengths, uint64(longest+63)/64)
	for i := range n {
		for j := range v {
			binary.LittleEndian.PutUint32(sums[i][4*j:], v[j][i])
		}
	}
}
