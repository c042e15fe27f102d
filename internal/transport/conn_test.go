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
		name, bare     string
		server, client transport.Config
	}{
		{"tcp", "tcp", transport.Config{}, transport.Config{}},
		{"standard", "tcp", transport.Config{Standard: true}, transport.Config{Standard: true}},
		{"standard server", "tcp", transport.Config{Standard: true}, transport.Config{}},
		{"standard client", "tcp", transport.Config{}, transport.Config{Standard: true}},
		{"quic", "", transport.Config{Protocol: transport.QUIC}, transport.Config{Protocol: transport.QUIC}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Factory{
				Network: test.bare,
				Listen: func(id ed25519.PrivateKey) (transporttest.Listener, error) {
					cfg := test.server
					cfg.Identity = id
					l, err := transport.Listen("127.0.0.1:0", cfg)
					return listener{l}, err
				},
				Dial: func(ctx context.Context, addr string, id ed25519.PrivateKey, expect func(ed25519.PublicKey) error) (transporttest.Conn, error) {
					cfg := test.client
					cfg.Identity = id
					return transport.Dial(ctx, addr, cfg, expect)
				},
			})
		})
	}
}
