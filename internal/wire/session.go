package wire

// Intent is the purpose of a session.
type Intent uint8

// The intents.
const (
	Push   Intent = 1  // the client sends files
	Pull   Intent = 2  // the client receives files
	List   Intent = 3  // the client asks for names
	Verify Intent = 4  // the client asks for names and digests
	Probe  Intent = 5  // the client measures the path; no file is touched
	Store  Intent = 6  // the client sends a snapshot
	Series Intent = 7  // the client asks which snapshots there are
	Expire Intent = 8  // the client asks the server to remove snapshots
	Scrub  Intent = 9  // the server compares a snapshot with its list of digests
	Files  Intent = 10 // the client works on entries one by one
	Early  Intent = 11 // the client sends parts of files that still grow
	Copy   Intent = 12 // the client sends files for the user who signed its capability
	Copies Intent = 13 // the client has the server send files to another one
	Ranges Intent = 14 // the client sends a range of a large file, of which others send the rest
)

// Priority says how a session shares the line with other traffic.
type Priority uint8

// The priorities.
const (
	NoPriority     Priority = 0 // left to the reader
	LowPriority    Priority = 1
	NormalPriority Priority = 2
	HighPriority   Priority = 3
)

// priority reads a Priority. One that is not known counts as NoPriority.
func (d *decoder) priority() Priority {
	if p := Priority(d.byte()); p <= HighPriority {
		return p
	}
	return NoPriority
}

// Hello opens a session. It is the first message on the control stream.
type Hello struct {
	Version uint64
	Session [16]byte // random, chosen by the client
	Secret  [32]byte // admits data streams to the session
	Intent  Intent
	Share   string
	Paths   []string // below the share; exactly one for every intent but Pull, Probe, Files and Copies

	// Fresh says that the client never tried this transfer before, so that the sender need not
	// wait for answers.
	Fresh  bool
	Target Target // how the receiver writes; for Push and Store
	Select Select // what the sender leaves out; for Pull

	SockBuf    int64  // bytes, for the server's sockets; 0 is automatic
	Congestion string // algorithm, for the server's sockets; "" is automatic
	RateLimit  int64  // bit/s of payload, for a server that sends; 0 is no limit
	MaxStreams uint64 // the client opens at most so many data streams
	Proof      []byte // 32 bytes that prove an invitation, or empty
	Agent      string // the client's name and version
	Snapshot   string // name of the snapshot; for Store and Scrub

	// Replaces names the earlier session of the same transfer. The server ends it if it still
	// runs. Zero is none.
	Replaces [16]byte

	Priority Priority // that the client wants

	Capability []byte // that a user has signed for the client; for Copy
	Relayed    bool   // the client connects through a relay

	Range Range // that the client sends of each file; for Ranges

	Line uint64 // bytes/s that a narrow line carries at least, by the client's handshakes; 0 is unknown
}

// Range is a part of files: 1<<Log bytes from Number<<Log on, or what a file has of these.
type Range struct {
	Log    uint8 // from MinRangeLog to MaxRangeLog
	Number uint64
}

// The bounds of Range.Log.
const (
	MinRangeLog = 22
	MaxRangeLog = 60
)

// Type implements Message.
func (*Hello) Type() Type { return TypeHello }

func (m *Hello) encode(e *encoder) {
	e.uint(m.Version)
	e.raw(m.Session[:])
	e.raw(m.Secret[:])
	e.uint(uint64(m.Intent))
	e.string(m.Share)
	e.strings(m.Paths)
	e.bool(m.Fresh)
	e.uint(uint64(m.SockBuf))
	e.string(m.Congestion)
	e.uint(uint64(m.RateLimit))
	e.uint(m.MaxStreams)
	e.string(string(m.Proof))
	e.string(m.Agent)
	m.Target.encode(e)
	m.Select.encode(e)
	e.string(m.Snapshot)
	e.raw(m.Replaces[:])
	e.byte(byte(m.Target.Delta))
	e.uint(uint64(m.Target.AllowFailed))
	e.byte(byte(m.Priority))
	e.string(string(m.Capability))
	e.bool(m.Relayed)
	e.byte(m.Range.Log)
	e.uint(m.Range.Number)
	e.uint(m.Line)
}

func (m *Hello) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return // the rest may look different; the caller refuses
	}
	d.raw(m.Session[:])
	d.raw(m.Secret[:])
	m.Intent = Intent(min(d.uint(), 255)) // a larger number is an unknown intent, too
	m.Share = d.string(MaxPath)
	m.Paths = d.strings()
	m.Fresh = d.bool()
	m.SockBuf = d.nonNegative()
	m.Congestion = d.string(maxAlgorithm)
	m.RateLimit = d.nonNegative()
	m.MaxStreams = d.uint()
	m.Proof = []byte(d.string(32))
	m.Agent = d.string(MaxText)
	m.Target.decode(d)
	m.Select.decode(d)
	if d.more() {
		m.Snapshot = d.string(maxSnapshot)
	}
	if d.more() {
		d.raw(m.Replaces[:])
	}
	if d.more() {
		m.Target.Delta = d.delta(DeltaAuto)
	}
	if d.more() {
		m.Target.AllowFailed = int64(min(d.uint(), MaxAllowFailed))
	}
	if d.more() {
		m.Priority = d.priority()
	}
	if d.more() {
		m.Capability = []byte(d.string(maxCapability))
	}
	m.Relayed = d.more() && d.bool()
	if d.more() {
		m.Range = Range{d.byte(), d.uint()}
	}
	if d.more() {
		m.Line = d.uint()
	}
}

const (
	// MaxAllowFailed is the largest Target.AllowFailed.
	MaxAllowFailed = 10_000

	maxSnapshot   = 32      // bytes in the name of a snapshot
	maxCapability = 5 << 10 // bytes of a capability
)

// Join is the first message on a data stream.
type Join struct {
	Version    uint64
	Session    [16]byte
	Secret     [32]byte
	Stream     uint64 // number of the stream within its session, never used twice
	SockBuf    int64
	Congestion string
	Line       uint64 // bytes/s that the line carries at least, by the client's handshakes so far; 0 is unknown
}

// Type implements Message.
func (*Join) Type() Type { return TypeJoin }

func (m *Join) encode(e *encoder) {
	e.uint(m.Version)
	e.raw(m.Session[:])
	e.raw(m.Secret[:])
	e.uint(m.Stream)
	e.uint(uint64(m.SockBuf))
	e.string(m.Congestion)
	e.uint(m.Line)
}

func (m *Join) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return
	}
	d.raw(m.Session[:])
	d.raw(m.Secret[:])
	m.Stream = d.uint()
	m.SockBuf = d.nonNegative()
	m.Congestion = d.string(maxAlgorithm)
	if d.more() {
		m.Line = d.uint()
	}
}

// Welcome is the server's answer to a Hello that it accepts.
type Welcome struct {
	Agent      string
	Host       string // the server's own name, for messages to people
	MaxStreams uint64

	// The bounds of the session's priority. NoPriority is none.
	LeastPriority, MostPriority Priority

	Ways bool // of a Probe: the server knows Plain tests, and their Cork
}

// Type implements Message.
func (*Welcome) Type() Type { return TypeWelcome }

func (m *Welcome) encode(e *encoder) {
	e.string(m.Agent)
	e.string(m.Host)
	e.uint(m.MaxStreams)
	e.byte(byte(m.LeastPriority))
	e.byte(byte(m.MostPriority))
	e.bool(m.Ways)
}

func (m *Welcome) decode(d *decoder) {
	m.Agent = d.string(MaxText)
	m.Host = d.string(MaxText)
	m.MaxStreams = d.uint()
	if d.more() {
		m.LeastPriority, m.MostPriority = d.priority(), d.priority()
	}
	m.Ways = d.more() && d.bool()
}

// Refuse ends a session and says why. The server sends it instead of Welcome; later either side may
// send it at any time.
type Refuse struct {
	Code Code
	Text string
}

// Type implements Message.
func (*Refuse) Type() Type { return TypeRefuse }

func (m *Refuse) encode(e *encoder) { e.uint(uint64(m.Code)); e.text(m.Text) }
func (m *Refuse) decode(d *decoder) { m.Code = Code(d.uint()); m.Text = d.string(MaxText) }

// Ping asks for a Pong with the same Time.
type Ping struct{ Time int64 }

// Type implements Message.
func (*Ping) Type() Type { return TypePing }

func (m *Ping) encode(e *encoder) { e.int(m.Time) }
func (m *Ping) decode(d *decoder) { m.Time = d.int() }

// Pong answers a Ping.
type Pong struct{ Time int64 }

// Type implements Message.
func (*Pong) Type() Type { return TypePong }

func (m *Pong) encode(e *encoder) { e.int(m.Time) }
func (m *Pong) decode(d *decoder) { m.Time = d.int() }

// Streams asks the client to hold Want data streams. The sender gives up those in Dead.
type Streams struct {
	Want uint64
	Dead []uint64
}

// Type implements Message.
func (*Streams) Type() Type { return TypeStreams }

func (m *Streams) encode(e *encoder) { e.uint(m.Want); e.uints(m.Dead) }
func (m *Streams) decode(d *decoder) { m.Want = d.uint(); m.Dead = d.uints() }

// Retire asks the server to send nothing more on these data streams, and to end each one when its
// blocks are written. Other streams replace them.
type Retire struct{ Streams []uint64 }

// Type implements Message.
func (*Retire) Type() Type { return TypeRetire }

func (m *Retire) encode(e *encoder) { e.uints(m.Streams) }
func (m *Retire) decode(d *decoder) { m.Streams = d.uints() }

// Prefer tells the server that the client wants another priority from now on.
type Prefer struct{ Priority Priority }

// Type implements Message.
func (*Prefer) Type() Type { return TypePrefer }

func (m *Prefer) encode(e *encoder) { e.byte(byte(m.Priority)) }
func (m *Prefer) decode(d *decoder) { m.Priority = d.priority() }

// Limit tells a server that sends of another rate limit that holds from now on.
type Limit struct {
	RateLimit int64 // as in Hello
}

// Type implements Message.
func (*Limit) Type() Type { return TypeLimit }

func (m *Limit) encode(e *encoder) { e.uint(uint64(m.RateLimit)) }
func (m *Limit) decode(d *decoder) { m.RateLimit = d.nonNegative() }

// Siblings tells a client that sends of the sessions that share its path, as the server sees them.
type Siblings struct {
	Sessions uint64 // weights together of those that send from its address and have more to send, itself too
	Own, All uint64 // what was delivered of late, by itself divided by its weight, and by all of them, bytes/s
	Turn     uint64 // changes when those that share the line with others shall test at the same time
}

// Type implements Message.
func (*Siblings) Type() Type { return TypeSiblings }

func (m *Siblings) encode(e *encoder) {
	e.uint(m.Sessions)
	e.uint(m.Own)
	e.uint(m.All)
	e.uint(m.Turn)
}

func (m *Siblings) decode(d *decoder) {
	m.Sessions, m.Own, m.All, m.Turn = d.uint(), d.uint(), d.uint(), d.uint()
}

// Sample carries measurements of the side that sends it. SPEC.md lists the names.
type Sample struct{ Values []Value }

// Value is one measurement.
type Value struct {
	Name  string
	Value int64
}

const maxValues = 256

// Map returns the values by name.
func (m *Sample) Map() map[string]int64 {
	values := make(map[string]int64, len(m.Values))
	for _, v := range m.Values {
		values[v.Name] = v.Value
	}
	return values
}

// Type implements Message.
func (*Sample) Type() Type { return TypeSample }

func (m *Sample) encode(e *encoder) {
	e.uint(uint64(len(m.Values)))
	for _, v := range m.Values {
		e.string(v.Name)
		e.int(v.Value)
	}
}

func (m *Sample) decode(d *decoder) {
	n := d.count(costString)
	if n > maxValues {
		d.fail("too many values")
		return
	}
	for range n {
		m.Values = append(m.Values, Value{d.string(maxWord), d.int()})
	}
}
