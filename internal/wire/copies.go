package wire

// CopyOp is what a CopyRequest does.
type CopyOp uint8

// The operations on copies.
const (
	CopyAdd    CopyOp = 1 // begin a copy
	CopyList   CopyOp = 2 // tell about the client's copies
	CopyPause  CopyOp = 3
	CopyResume CopyOp = 4
	CopyCancel CopyOp = 5
)

// CopyRequest asks a server to send files to another one, or is about copies that it was asked for.
type CopyRequest struct {
	Do CopyOp
	ID string // of a copy; "" in an Add, and in a List of all

	// For an Add.
	Share      string
	Path       string // below the share; a slash at the end means the content of a folder
	To         string // the URL of the target
	Capability []byte // for the server that gets the request
	RateLimit  int64  // bit/s; 0 is none
	Priority   Priority
}

// Type implements Message.
func (*CopyRequest) Type() Type { return TypeCopyRequest }

func (m *CopyRequest) encode(e *encoder) {
	e.byte(byte(m.Do))
	e.string(m.ID)
	e.string(m.Share)
	e.string(m.Path)
	e.string(m.To)
	e.string(string(m.Capability))
	e.uint(uint64(m.RateLimit))
	e.byte(byte(m.Priority))
}

func (m *CopyRequest) decode(d *decoder) {
	m.Do = CopyOp(d.byte())
	m.ID = d.string(maxWord)
	m.Share = d.string(MaxPath)
	m.Path = d.string(MaxPath)
	m.To = d.string(maxURL)
	m.Capability = []byte(d.string(maxCapability))
	m.RateLimit = d.nonNegative()
	m.Priority = d.priority()
}

// maxURL bounds the URL of a path, each byte of which may be escaped.
const maxURL = 4 * MaxPath

// CopyState tells how far a copy is.
type CopyState struct {
	ID    string
	From  string // share and path
	To    string // the URL of the target
	State string // a word: waiting, running, paused, done, failed or cancelled
	Added int64  // Unix time in seconds
	Ended int64  // the same; 0 while it goes on
	Until int64  // the end of its capability, the same

	Bytes, TotalBytes int64  // at the target, and found so far
	Files, TotalFiles int64  // in place, and found so far
	Failed            int64  // entries
	Rate              int64  // bit/s
	Text              string // why it failed or waits, or what held it back
}

// Type implements Message.
func (*CopyState) Type() Type { return TypeCopyState }

func (m *CopyState) encode(e *encoder) {
	e.string(m.ID)
	e.string(m.From)
	e.string(m.To)
	e.string(m.State)
	for _, n := range []int64{
		m.Added, m.Ended, m.Until, m.Bytes, m.TotalBytes, m.Files, m.TotalFiles, m.Failed, m.Rate,
	} {
		e.uint(uint64(max(0, n)))
	}
	e.text(m.Text)
}

func (m *CopyState) decode(d *decoder) {
	m.ID = d.string(maxWord)
	m.From = d.string(2 * MaxPath)
	m.To = d.string(maxURL)
	m.State = d.string(maxWord)
	for _, n := range []*int64{
		&m.Added, &m.Ended, &m.Until, &m.Bytes, &m.TotalBytes, &m.Files, &m.TotalFiles, &m.Failed, &m.Rate,
	} {
		*n = d.nonNegative()
	}
	m.Text = d.string(MaxText)
}
