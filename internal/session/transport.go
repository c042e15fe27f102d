package session

import (
	"fmt"

	"github.com/fxfer/fxfer/internal/transport"
)

// Transport is what carries the streams of a session.
type Transport string

// The transports.
const (
	TransportTCP  Transport = "tcp"
	TransportQUIC Transport = "quic"
	TransportAuto Transport = "auto" // a client chooses by the path; a server offers both
)

// TransportOf returns the Transport of a protocol.
func TransportOf(p transport.Protocol) Transport {
	if p == transport.QUIC {
		return TransportQUIC
	}
	return TransportTCP
}

// ProtocolOf returns the protocol of a Transport. It is TCP for TransportAuto.
func ProtocolOf(t Transport) transport.Protocol {
	if t == TransportQUIC {
		return transport.QUIC
	}
	return transport.TCP
}

// TestCrypto runs the self-test of fxfer's own TLS records and ciphers, once in a process. With
// standard they are not used, and not tested.
func TestCrypto(standard bool) error {
	if standard {
		return nil
	}
	if err := transport.SelfTest(); err != nil {
		return &Error{Kind: KindIntegrity, Err: fmt.Errorf("this program can't encrypt on this machine: %w", err), Advice: AdviceStandardCrypto}
	}
	return nil
}
