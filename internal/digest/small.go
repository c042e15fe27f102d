package digest

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

const (
	// MaxSmall is the size of the largest file that Small digests, in bytes.
	MaxSmall = GroupSize / 2
	// SmallFiles is how many files Small digests at a time, at most.
	SmallFiles = groupChunks
)

// Small digests small files side by side, 16 of a chunk at most, or fewer larger ones. Read each file
// into its room, then call Sum. The zero value is ready. A Small does not allocate, and is not safe for
// concurrent use.
type Small struct {
	rooms [GroupSize]byte
	lanes lanes
	files [SmallFiles]span
	n     int // files with a room
	next  int // lane
}

// lanes is what the assembly knows of the chunks in 16 lanes.
type lanes struct {
	lengths  [groupChunks]uint32 // bytes
	counters [groupChunks]uint32 // of the chunk within its file
	ends     [groupChunks]uint32 // flags of the end
}

// The flags of the end of a chunk, and of one that is its whole file (BLAKE3 paper, table 3).
const (
	chunkEnd  = 1 << 1
	wholeFile = chunkEnd | 1<<3
)

// span is the neighbouring nodes of a file: its chunks, or the parents of some height above them.
type span struct{ at, n, size int }

// Room returns the room for the next file, of size bytes, at most MaxSmall; nil if there is none. The
// caller fills it before Sum.
func (s *Small) Room(size int) []byte {
	f := span{n: max(1, (size+guts.ChunkSize-1)/guts.ChunkSize), size: size}
	// Neighbours in the tree have to be neighbours in a vector, at each height.
	apart := 1 << bits.Len(uint(f.n-1))
	f.at = (s.next + apart - 1) &^ (apart - 1)
	if f.at+f.n > groupChunks {
		return nil
	}
	if s.n == 0 {
		s.lanes.lengths = [groupChunks]uint32{}
	}
	for i := range f.n {
		s.lanes.lengths[f.at+i] = uint32(min(size-i*guts.ChunkSize, guts.ChunkSize))
		s.lanes.counters[f.at+i] = uint32(i)
		s.lanes.ends[f.at+i] = chunkEnd
	}
	if f.n == 1 {
		s.lanes.ends[f.at] = wholeFile
	}
	s.files[s.n] = f
	s.n++
	s.next = f.at + f.n
	room := s.rooms[f.at*guts.ChunkSize:]
	clear(room[size:max(64, (size+63)&^63)])
	return room[:size:size]
}

// Sum stores the digests of all files in sums, in the order of their rooms, and takes the rooms back.
func (s *Small) Sum(sums *[SmallFiles][32]byte) { s.sum(sums, haveVector && s.lanes.pays(s.next)) }

func (s *Small) sum(sums *[SmallFiles][32]byte, vector bool) {
	if vector {
		s.sumTogether(sums)
	} else {
		for i := range s.n {
			f := &s.files[i]
			sums[i] = plainRoot(s.rooms[f.at*guts.ChunkSize:][:f.size])
		}
	}
	s.n, s.next = 0, 0
}

// plainRoot returns the digest of a small file.
func plainRoot(file []byte) [32]byte {
	if len(file) <= guts.ChunkSize {
		return Root(guts.CompressChunk(file, &guts.IV, 0, 0))
	}
	var group [GroupSize]byte
	return Root(guts.CompressBuffer(&group, copy(group[:], file), &guts.IV, 0, 0))
}

func (s *Small) sumTogether(sums *[SmallFiles][32]byte) {
	var v vector
	ragged(&v, &s.rooms, &s.lanes, s.next)
	left := 0
	for i := range s.n {
		f := &s.files[i]
		if f.n > 1 {
			left++
			continue
		}
		for j := range v {
			binary.LittleEndian.PutUint32(sums[i][4*j:], v[j][f.at])
		}
	}
	for left > 0 {
		left -= s.tops(&v, sums)
		if left > 0 {
			s.climb(&v)
		}
	}
}

// tops stores the digests of files with two nodes left, and returns how many there were.
func (s *Small) tops(v *vector, sums *[SmallFiles][32]byte) (n int) {
	for i := range s.n {
		if f := &s.files[i]; f.n == 2 {
			sums[i] = Root(guts.ParentNode(v.get(f.at), v.get(f.at+1), &guts.IV, 0))
			f.n = 0
			n++
		}
	}
	return n
}

// climb replaces the nodes of all files by their parents. The last one of an odd number has none yet.
func (s *Small) climb(v *vector) {
	nodes := *v
	parents(v, &nodes, &nodes)
	for i := range s.n {
		f := &s.files[i]
		if f.n > 1 && f.n&1 != 0 {
			v.set((f.at+f.n-1)/2, nodes.get(f.at+f.n-1))
		}
		f.at, f.n = f.at/2, (f.n+1)/2
	}
}
