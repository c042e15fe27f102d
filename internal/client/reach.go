package client

import (
	"context"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// Reaches reports whether the server of u answers before ctx is done, over a transport that the
// options allow, and has the key or certificate that is expected. It begins no session.
func (c *Client) Reaches(ctx context.Context, u session.URL) bool {
	protocols := []transport.Protocol{transport.TCP, transport.QUIC}
	if c.opt.Transport != session.TransportAuto {
		protocols = []transport.Protocol{session.ProtocolOf(c.opt.Transport)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool)
	for _, p := range protocols {
		go func() {
			d := dialer{client: c, url: u}
			d.prepare(0)
			defer d.group.Close(0)
			answers <- d.answers(ctx, p)
		}()
	}
	reached := false
	for range protocols {
		if <-answers {
			reached = true
			cancel()
		}
	}
	return reached
}
