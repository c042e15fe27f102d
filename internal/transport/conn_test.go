package transport_test

import (
	"context"
	"crypto/ed25519"
	"testing"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

type listener struct{ transport.Listener }

func (l listener) Accept() (transporttest.Conn, error) { return l.Listener.Accept() }

func TestContract(t *testing.T) {
	for protocol, bare := range map[transport.Protocol]string{transport.TCP: "tcp", transport.QUIC: ""} {
		t.Run(string(protocol), func(t *testing.T) {
			transporttest.Run(t, transporttest.Factory{
				Network: bare,
				Listen: func(id ed25519.PrivateKey) (transporttest.Listener, error) {
					l, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: id, Protocol: protocol})
					return listener{l}, err
				},
				Dial: func(ctx context.Context, addr string, id ed25519.PrivateKey, expect func(ed25519.PublicKey) error) (transporttest.Conn, error) {
					return transport.Dial(ctx, addr, transport.Config{Identity: id, Protocol: protocol}, expect)
				},
			})
		})
	}
}
