package wire

// Delta says how the receiver's old version of a file helps to send less.
type Delta uint8

// The ways.
const (
	DeltaNone   Delta = 0 // the old version is not used
	DeltaFixed  Delta = 1 // compare blocks and pieces at the same offset
	DeltaChunks Delta = 2 // compare chunks, cut by content, at any offset
	DeltaAuto   Delta = 3 // choose one of these from a sample
)

// delta reads a Delta up to most.
func (d *decoder) delta(most Delta) Delta {
	v := Delta(d.byte())
	if v > most {
		d.fail("unknown kind of delta")
	}
	return v
}

// Limits of deltas.
const (
	PieceLog     = 12      // a block's pieces are 1<<PieceLog bytes long
	MaxPieces    = 4096    // digests in a message
	MaxChunk     = 1 << 20 // bytes
	SampleBlocks = 8
)

// ShortDigest finds parts that two files may share. The digest of the whole block proves it.
type ShortDigest [8]byte

// Pick says which Delta the sender uses for an entry; with DeltaNone it sends the whole file.
type Pick struct {
	Index uint64
	Delta Delta
}

// Type implements Message.
func (*Pick) Type() Type { return TypePick }

func (m *Pick) encode(e *encoder) { e.uint(m.Index); e.byte(byte(m.Delta)) }
func (m *Pick) decode(d *decoder) { m.Index = d.uint(); m.Delta = d.delta(DeltaChunks) }

// Pieces carries digests of an old file's pieces. Each piece has 1<<Log bytes, except the last one
// of the file: Log is PieceLog, or the file's BlockLog for whole blocks.
type Pieces struct {
	Index   uint64
	Start   int64 // offset of the first piece, bytes
	Log     uint8
	Digests []ShortDigest
}

// Type implements Message.
func (*Pieces) Type() Type { return TypePieces }

func (m *Pieces) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Start))
	e.byte(m.Log)
	e.uint(uint64(len(m.Digests)))
	for i := range m.Digests {
		e.raw(m.Digests[i][:])
	}
}

func (m *Pieces) decode(d *decoder) {
	m.Index = d.uint()
	m.Start = d.nonNegative()
	m.Log = d.byte()
	n := d.count(costNumber)
	if m.Log < PieceLog || m.Log > MaxBlockLog || n > MaxPieces ||
		m.Start > MaxSize || m.Start&(1<<m.Log-1) != 0 {
		d.fail("pieces out of range")
		return
	}
	for range n {
		var digest ShortDigest
		d.raw(digest[:])
		if d.err != nil {
			return
		}
		m.Digests = append(m.Digests, digest)
	}
}

// Chunks carries digests of an old file's chunks, which follow each other. A message without chunks
// ends the list of a file.
type Chunks struct {
	Index  uint64
	Start  int64 // offset of the first chunk, bytes
	Chunks []Chunk
}

// Chunk is a part of a file, cut by its content.
type Chunk struct {
	Length int64
	Digest ShortDigest
}

// Type implements Message.
func (*Chunks) Type() Type { return TypeChunks }

func (m *Chunks) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Start))
	e.uint(uint64(len(m.Chunks)))
	for i := range m.Chunks {
		e.uint(uint64(m.Chunks[i].Length))
		e.raw(m.Chunks[i].Digest[:])
	}
}

func (m *Chunks) decode(d *decoder) {
	m.Index = d.uint()
	m.Start = d.nonNegative()
	n := d.count(costNumber)
	if n > MaxPieces || m.Start > MaxSize {
		d.fail("chunks out of range")
		return
	}
	for range n {
		c := Chunk{Length: d.nonNegative()}
		d.raw(c.Digest[:])
		if d.err == nil && (c.Length == 0 || c.Length > MaxChunk) {
			d.fail("chunk out of range")
		}
		if d.err != nil {
			return
		}
		m.Chunks = append(m.Chunks, c)
	}
}

// Ask asks for the Pieces of blocks.
type Ask struct {
	Index  uint64
	Blocks []Extent
}

// Type implements Message.
func (*Ask) Type() Type { return TypeAsk }

func (m *Ask) encode(e *encoder) { e.uint(m.Index); e.extents(m.Blocks) }
func (m *Ask) decode(d *decoder) { m.Index = d.uint(); m.Blocks = d.extents() }

// Empty lists blocks that have no data and so are not sent.
type Empty struct {
	Index  uint64
	Blocks []Extent
}

// Type implements Message.
func (*Empty) Type() Type { return TypeEmpty }

func (m *Empty) encode(e *encoder) { e.uint(m.Index); e.extents(m.Blocks) }
func (m *Empty) decode(d *decoder) { m.Index = d.uint(); m.Blocks = d.extents() }
