package wire

// TestKind is what a Test measures.
type TestKind uint8

// The kinds of tests.
const (
	Exchange TestKind = 1 // each side sends messages of Size bytes in turn
	Upload   TestKind = 2 // the client sends
	Download TestKind = 3 // the server sends
	Sound    TestKind = 4 // datagrams of many sizes find the path MTU
	Plain    TestKind = 5 // Exchange on connections without TLS
)

// Limits of a probe.
const (
	MinExchange  = 64
	MaxExchange  = 64 << 10
	FlowBlock    = 64 << 10 // bytes in each block of an Upload or a Download
	MaxTestTime  = 60_000   // ms
	MaxVolley    = 32       // datagrams
	DatagramHead = 40       // bytes, the least length of a datagram
)

// Test asks for one test, on a data stream of a probe.
type Test struct {
	Kind    TestKind
	Size    uint64 // Exchange and Plain: bytes in each message; Download: bytes at most, 0 is no limit
	Split   bool   // the same: the server writes the first 16 bytes on their own
	NoDelay bool   // TCP_NODELAY at the server
	Time    uint64 // ms at most
	Cork    bool   // with Split: TCP_CORK at the server holds the first write back
}

// Type implements Message.
func (*Test) Type() Type { return TypeTest }

func (m *Test) encode(e *encoder) {
	e.byte(byte(m.Kind))
	e.uint(m.Size)
	e.bool(m.Split)
	e.bool(m.NoDelay)
	e.uint(m.Time)
	e.bool(m.Cork)
}

func (m *Test) decode(d *decoder) {
	m.Kind = TestKind(d.byte())
	m.Size = d.uint()
	m.Split = d.bool()
	m.NoDelay = d.bool()
	if m.Time = d.uint(); m.Time > MaxTestTime {
		d.fail("test too long")
	}
	m.Cork = d.more() && d.bool()
	if (m.Kind == Exchange || m.Kind == Plain) && (m.Size < MinExchange || m.Size > MaxExchange) {
		d.fail("message size out of range")
	}
}

// Opened answers a Test of kind Sound or Plain: the server takes datagrams, or connections without
// TLS, on this port.
type Opened struct {
	Port  uint64
	Token [16]byte // in every datagram of the client, or in every message on such a connection
}

// Type implements Message.
func (*Opened) Type() Type { return TypeOpened }

func (m *Opened) encode(e *encoder) { e.uint(m.Port); e.raw(m.Token[:]) }

func (m *Opened) decode(d *decoder) {
	if m.Port = d.uint(); m.Port == 0 || m.Port > 65535 {
		d.fail("port out of range")
	}
	d.raw(m.Token[:])
}

// Volley asks the server for one datagram of each size.
type Volley struct {
	Proof [16]byte // shows that the client receives datagrams at its address
	First uint64   // number of the first datagram
	Sizes []uint64 // bytes of UDP payload
	Time  uint64   // ms that the server waits for ICMP messages before it answers
}

// Type implements Message.
func (*Volley) Type() Type { return TypeVolley }

func (m *Volley) encode(e *encoder) {
	e.raw(m.Proof[:])
	e.uint(m.First)
	e.uints(m.Sizes)
	e.uint(m.Time)
}

func (m *Volley) decode(d *decoder) {
	d.raw(m.Proof[:])
	m.First = d.uint()
	n := d.count(costNumber)
	if n > MaxVolley {
		d.fail("volley too long")
		return
	}
	for range n {
		size := d.uint()
		if size < DatagramHead || size > maxDatagram {
			d.fail("datagram size out of range")
			return
		}
		m.Sizes = append(m.Sizes, size)
	}
	if m.Time = d.uint(); m.Time > MaxTestTime {
		d.fail("volley too long")
	}
}
