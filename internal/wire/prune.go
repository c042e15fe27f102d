package wire

// Prune lists folders, relative to the target, in which the receiver removes what the sender does
// not have. It lists none if entries failed. In an Expire it lists snapshots to keep.
type Prune struct{ Folders []string }

// Type implements Message.
func (*Prune) Type() Type { return TypePrune }

func (m *Prune) encode(e *encoder) { e.strings(m.Folders) }
func (m *Prune) decode(d *decoder) { m.Folders = d.strings() }

// Folder asks which of the names in a folder the sender does not have. A folder with more than
// MaxStrings names takes several messages.
type Folder struct {
	Path  string // relative to the target
	Names []string
}

// Type implements Message.
func (*Folder) Type() Type { return TypeFolder }

func (m *Folder) encode(e *encoder) { e.string(m.Path); e.strings(m.Names) }
func (m *Folder) decode(d *decoder) { m.Path = d.string(MaxPath); m.Names = d.strings() }

// Extra answers the oldest unanswered Folder. It holds the positions in its Names, ascending, of
// those that the sender does not have.
type Extra struct{ Names []uint64 }

// Type implements Message.
func (*Extra) Type() Type { return TypeExtra }

func (m *Extra) encode(e *encoder) { e.uints(m.Names) }

func (m *Extra) decode(d *decoder) {
	n := d.count(costNumber)
	for i := range n {
		m.Names = append(m.Names, d.uint())
		if i > 0 && m.Names[i] <= m.Names[i-1] {
			d.fail("positions out of order")
			return
		}
	}
}

// Removed reports an entry that was removed, or would be in a dry run.
type Removed struct {
	Kind Kind
	Path string
}

// Type implements Message.
func (*Removed) Type() Type { return TypeRemoved }

func (m *Removed) encode(e *encoder) { e.byte(byte(m.Kind)); e.string(m.Path) }
func (m *Removed) decode(d *decoder) { m.Kind = Kind(d.byte()); m.Path = d.string(MaxPath) }
