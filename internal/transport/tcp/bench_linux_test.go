package tcp

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// BenchmarkCongestion compares congestion controls over loopback.
func BenchmarkCongestion(b *testing.B) {
	for _, name := range []string{"auto", "bbr", "cubic", "reno"} {
		b.Run(name, func(b *testing.B) {
			l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(b), Congestion: name})
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				b.Skip(err)
			}
			require.NoError(b, err)
			defer l.Close()
			got := make(chan *Conn, 1)
			go func() {
				c, err := l.Accept()
				if err != nil || c.Handshake(context.Background()) != nil {
					c = nil
				}
				got <- c
			}()
			cfg := Config{Auth: newAuth(b), Congestion: name}
			client, err := Dial(b.Context(), l.Addr().String(), cfg, transporttest.AnyKey)
			require.NoError(b, err)
			server := <-got
			require.NotNil(b, server)
			server.Admit()
			transporttest.Bench(b, client, server)
		})
	}
}
