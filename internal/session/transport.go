package session

import (
	"github.com/fxfer/fxfer/internal/transport"
)

// TransportOf is the reverse of Transport.protocol.
func TransportOf(p transport.Protocol) Transport {
	if p == transport.QUIC {
		return TransportQUIC
	}
	return TransportTCP
}

// Protocol is what carries streams where the transport is to be t.
func (t Transport) Protocol() transport.Protocol {
	if t == TransportQUIC {
		return transport.QUIC
	}
	return transport.TCP
}

// Transport carries the streams of a session.
type Transport string

// The transports.
const (
	TransportTCP  Transport = "tcp"
	TransportQUIC Transport = "quic"
	TransportAuto Transport = "auto" // what the path shows; of a server, both
)
