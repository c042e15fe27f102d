package wire

// Op is what an Operation does.
type Op uint8

// The operations.
const (
	OpList   Op = 1 // what a folder holds, or one file
	OpStat   Op = 2 // describe an entry
	OpUsage  Op = 3 // count bytes and entries
	OpRead   Op = 4 // read a file
	OpMkdir  Op = 5 // make a folder
	OpMove   Op = 6 // give an entry another name
	OpRemove Op = 7 // remove an entry
)

// Operation asks the server to do the same with each of the paths.
type Operation struct {
	Do    Op
	Paths []string // below the share; "." is the share itself

	// To is the new path of a Move, for exactly one of Paths. With Into, it is the folder into
	// which each of them is moved, and keeps its name.
	To      string
	Into    bool
	Replace bool // for Move: replace a file that has the name

	// Recursive is for List: all below, too; for Mkdir: make missing folders above; for Remove: a
	// folder with all that it holds.
	Recursive bool
	DryRun    bool // for Remove: only report what would be removed
}

// Type implements Message.
func (*Operation) Type() Type { return TypeOperation }

func (m *Operation) encode(e *encoder) {
	e.byte(byte(m.Do))
	e.strings(m.Paths)
	e.string(m.To)
	e.bool(m.Into)
	e.bool(m.Replace)
	e.bool(m.Recursive)
	e.bool(m.DryRun)
}

func (m *Operation) decode(d *decoder) {
	m.Do = Op(d.byte())
	m.Paths = d.strings()
	m.To = d.string(MaxPath)
	m.Into = d.bool()
	m.Replace = d.bool()
	m.Recursive = d.bool()
	m.DryRun = d.bool()
}

// MaxContent is how many bytes of a file one Content has at most.
const MaxContent = 256 << 10

// Content is the next piece of a file that is read.
type Content struct{ Data []byte }

// Type implements Message.
func (*Content) Type() Type { return TypeContent }

func (m *Content) encode(e *encoder) { e.string(string(m.Data)) }
func (m *Content) decode(d *decoder) { m.Data = []byte(d.string(MaxContent)) }

// Operated ends an operation on one path.
type Operated struct {
	Code    Code // 0 if it is done
	Text    string
	Bytes   uint64   // for Usage and Read
	Entries uint64   // for List and Usage
	Digest  [32]byte // for Read
}

// Type implements Message.
func (*Operated) Type() Type { return TypeOperated }

func (m *Operated) encode(e *encoder) {
	e.uint(uint64(m.Code))
	e.text(m.Text)
	e.uint(m.Bytes)
	e.uint(m.Entries)
	e.raw(m.Digest[:])
}

func (m *Operated) decode(d *decoder) {
	m.Code = Code(d.uint())
	m.Text = d.string(MaxText)
	m.Bytes = d.uint()
	m.Entries = d.uint()
	d.raw(m.Digest[:])
}
