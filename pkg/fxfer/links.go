package fxfer

import (
	"github.com/fxfer/fxfer/internal/transport"
)

// firstLinks is the number of QUIC connections that a session's data streams begin with: two are a good gigabit at 120 ms.
const firstLinks = 2

// protocol is what carries streams where the transport is to be t.
func (t Transport) protocol() transport.Protocol {
	if t == TransportQUIC {
		return transport.QUIC
	}
	return transport.TCP
}
