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
	tests := []struct {
		name, bare string
		cfg        transport.Config
	}{
		{"tcp", "tcp", transport.Config{Protocol: transport.TCP}},
		{"quic", "", transport.Config{Protocol: transport.QUIC}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Factory{
				Network: test.bare,
				Listen: func(id ed25519.PrivateKey) (transporttest.Listener, error) {
					l, err := transport.Listen("127.0.0.1:0", transport.Config{Identity: id, Protocol: test.cfg.Protocol})
					return listener{l}, err
				},
				Dial: func(ctx context.Context, addr string, id ed25519.PrivateKey, expect func(ed25519.PublicKey) error) (transporttest.Conn, error) {
					cfg := test.cfg
					cfg.Identity = id
					return transport.Dial(ctx, addr, cfg, expect)
				},
			})
		})
	}
}
