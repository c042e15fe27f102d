package wire

// Digests carries digests of files among the entries that a Verify listed.
type Digests struct{ Digests []EntryDigest }

// EntryDigest is the digest of a file.
type EntryDigest struct {
	Index  uint64
	Digest [32]byte
}

// Type implements Message.
func (*Digests) Type() Type { return TypeDigests }

func (m *Digests) encode(e *encoder) {
	e.uint(uint64(len(m.Digests)))
	for i := range m.Digests {
		e.uint(m.Digests[i].Index)
		e.raw(m.Digests[i].Digest[:])
	}
}

func (m *Digests) decode(d *decoder) {
	for range d.count(costDigest) {
		x := EntryDigest{Index: d.uint()}
		d.raw(x.Digest[:])
		if d.err != nil {
			return
		}
		m.Digests = append(m.Digests, x)
	}
}
