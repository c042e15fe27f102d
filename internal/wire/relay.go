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
