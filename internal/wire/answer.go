package wire

// Verdict is the receiver's answer to an entry.
type Verdict uint8

// The verdicts.
const (
	Need Verdict = 1 // send every block except those in Have
	Same Verdict = 2 // unchanged, skipped
	Done Verdict = 3 // finished without content: a folder, a link, a special file
	Fail Verdict = 4 // refused or failed, see Code and Text
	Skip Verdict = 5 // left out as Compare demands
	Hash Verdict = 6 // the target's file has the same size and this Digest: answer with Compared
	Lack Verdict = 7 // in a dry run: would be sent; New says that the target has no such name
	Meta Verdict = 8 // in a dry run: only metadata would be set

	needDelta = 9 // how Need with a Delta is encoded
)

// Answer is the answer to one entry.
type Answer struct {
	Index   uint64
	Verdict Verdict
	Have    []Extent // with Need: blocks from an earlier session, ascending, disjoint
	Delta   Delta    // with Need: send a block only after comparing it with the old version
	Old     int64    // with Delta: size of the old version, bytes
	Digest  [32]byte // with Hash
	New     bool     // with Lack
	Code    Code     // with Fail
	Text    string   // with Fail
}

func (a *Answer) encode(e *encoder) {
	e.uint(a.Index)
	if a.Verdict == Need && a.Delta != DeltaNone {
		e.byte(needDelta)
		e.byte(byte(a.Delta))
		e.uint(uint64(a.Old))
		e.extents(a.Have)
		return
	}
	e.byte(byte(a.Verdict))
	switch a.Verdict {
	case Need:
		e.extents(a.Have)
	case Fail:
		e.uint(uint64(a.Code))
		e.text(a.Text)
	case Hash:
		e.raw(a.Digest[:])
	case Lack:
		e.bool(a.New)
	case Same, Done, Skip, Meta:
	}
}

func (a *Answer) decode(d *decoder) {
	a.Index = d.uint()
	a.Verdict = Verdict(d.byte())
	switch a.Verdict {
	case needDelta:
		a.Verdict, a.Delta = Need, d.delta(DeltaAuto)
		if a.Old = d.nonNegative(); a.Delta == DeltaNone || a.Old > MaxSize {
			d.fail("old version out of range")
		}
		a.Have = d.extents()
	case Need:
		a.Have = d.extents()
	case Fail:
		a.Code = Code(d.uint())
		a.Text = d.string(MaxText)
	case Hash:
		d.raw(a.Digest[:])
	case Lack:
		a.New = d.bool()
	case Same, Done, Skip, Meta:
	default:
		d.fail("unknown verdict")
	}
}

// Answers carries one or more answers.
type Answers struct{ Answers []Answer }

// Type implements Message.
func (*Answers) Type() Type { return TypeAnswers }

func (m *Answers) encode(e *encoder) {
	e.uint(uint64(len(m.Answers)))
	for i := range m.Answers {
		m.Answers[i].encode(e)
	}
}

func (m *Answers) decode(d *decoder) {
	m.Answers = d.answers(d.count(costAnswer))
	for i := range m.Answers {
		if m.Answers[i].decode(d); d.err != nil {
			return
		}
	}
}

// Compared answers Hash.
type Compared struct {
	Index uint64
	Same  bool
}

// Type implements Message.
func (*Compared) Type() Type { return TypeCompared }

func (m *Compared) encode(e *encoder) { e.uint(m.Index); e.bool(m.Same) }
func (m *Compared) decode(d *decoder) { m.Index = d.uint(); m.Same = d.bool() }

// Placed says that entries have their final names, checked and as durable as Sync demands.
type Placed struct{ Entries []Extent }

// Type implements Message.
func (*Placed) Type() Type { return TypePlaced }

func (m *Placed) encode(e *encoder) { e.extents(m.Entries) }
func (m *Placed) decode(d *decoder) { m.Entries = d.extents() }

// Warning reports metadata that the target could not store, such as an owner. It names the first
// entry of its kind and counts the others. Sessions about snapshots report entries with it.
type Warning struct {
	What  string // the kind
	Path  string // of the first entry
	Text  string
	Count uint64
}

// Type implements Message.
func (*Warning) Type() Type { return TypeWarning }

func (m *Warning) encode(e *encoder) {
	e.string(m.What)
	e.string(m.Path)
	e.text(m.Text)
	e.uint(m.Count)
}

func (m *Warning) decode(d *decoder) {
	m.What = d.string(maxWord)
	m.Path = d.string(MaxPath)
	m.Text = d.string(MaxText)
	m.Count = d.uint()
}

// Finished is the receiver's last message: every entry is committed, skipped or failed.
type Finished struct{}

// Type implements Message.
func (*Finished) Type() Type { return TypeFinished }

func (*Finished) encode(*encoder) {}
func (*Finished) decode(*decoder) {}
