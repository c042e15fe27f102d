package wire

// Relay asks a relay to connect to a server. It is the first message on a connection to a relay.
type Relay struct {
	Version uint64
	Target  string // host:port, in the form that the client dials
	Proof   []byte // 32 bytes that prove an invitation of the relay, or empty
}

// Type implements Message.
func (*Relay) Type() Type { return TypeRelay }

func (m *Relay) encode(e *encoder) {
	e.uint(m.Version)
	e.string(m.Target)
	e.string(string(m.Proof))
}

func (m *Relay) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return
	}
	m.Target = d.string(maxName)
	m.Proof = []byte(d.string(32))
}

// Relayed says that the relay is connected to the server. From then on, the connection carries what
// client and server send, as it is.
type Relayed struct{}

// Type implements Message.
func (*Relayed) Type() Type { return TypeRelayed }

func (m *Relayed) encode(*encoder) {}
func (m *Relayed) decode(*decoder) {}

// Await is the first message of a server that calls a relay and waits there for clients. The relay
// answers with Ping, and again every few seconds.
type Await struct{ Version uint64 }

// Type implements Message.
func (*Await) Type() Type { return TypeAwait }

func (m *Await) encode(e *encoder) { e.uint(m.Version) }
func (m *Await) decode(d *decoder) { m.Version = d.uint() }

// Called tells a server that waits at a relay of a client: it shall open a connection for it.
type Called struct{ ID [16]byte }

// Type implements Message.
func (*Called) Type() Type { return TypeCalled }

func (m *Called) encode(e *encoder) { e.raw(m.ID[:]) }
func (m *Called) decode(d *decoder) { d.raw(m.ID[:]) }

// Meet is the first message of a server on a connection that it has opened for a client, and the
// last one that is for the relay.
type Meet struct {
	Version uint64
	ID      [16]byte // of Called
}

// Type implements Message.
func (*Meet) Type() Type { return TypeMeet }

func (m *Meet) encode(e *encoder) {
	e.uint(m.Version)
	e.raw(m.ID[:])
}

func (m *Meet) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return
	}
	d.raw(m.ID[:])
}
