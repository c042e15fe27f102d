package fxfer

import (
	"math"
	"time"

	"github.com/fxfer/fxfer/internal/transport"
)

// linkShare is what a QUIC connection should have in flight at most, bytes: when it loses half of that in one go, as at the end of slow
// start before a queue that drops its tail, the receiver of its stream has not yet "too many gaps in received data" (1000 in quic-go).
const linkShare = 1000 * 1452

// linksFor is the number of connections, each with one stream, that a rate in bytes/s takes at an RTT.
func linksFor(rate float64, rtt time.Duration) int {
	return int(math.Ceil(rate * rtt.Seconds() / linkShare))
}

// protocol is what carries streams where the transport is to be t.
func (t Transport) protocol() transport.Protocol {
	if t == TransportQUIC {
		return transport.QUIC
	}
	return transport.TCP
}
