package client

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// exchange is a session that needs no data streams: the client asks, the server answers, both on
// the control stream. One goroutine may read while another writes.
type exchange struct {
	dialer
	conn     transport.Conn
	r        *wire.Reader
	patience time.Duration // how long the server may take for its next message
	answers  session.Answers
	ctx      context.Context //nolint:containedctx // the session's: its cause is why it has ended
	end      context.CancelCauseFunc
	watching sync.WaitGroup
}

// begin opens a session. It ends early when ctx does. The caller calls close.
func (c *Client) begin(ctx context.Context, u session.URL, hello wire.Hello) (*exchange, error) {
	x := &exchange{dialer: dialer{client: c, url: u, hello: hello}, patience: session.DialTimeout}
	x.prepare(0)
	var err error
	if x.conn, err = x.openAnyhow(ctx); err != nil {
		x.group.Close(session.PartWithin)
		return nil, err
	}
	x.r = wire.NewReader(x.conn, wire.MaxMessage)
	x.watch(ctx)
	return x, nil
}

// watch ends the session when ctx is done, or when nothing comes of it.
func (x *exchange) watch(ctx context.Context) {
	x.ctx, x.end = context.WithCancelCause(ctx)
	context.AfterFunc(x.ctx, func() { _ = x.conn.Close() })
	x.watching.Go(func() {
		x.answers.Watch(x.ctx, x.url.Address(), func(text string) { x.client.notice("%s", text) }, x.end)
	})
}

// close ends the session.
func (x *exchange) close() {
	x.end(nil)
	x.watching.Wait()
	_ = x.conn.Close()
	x.group.Close(session.PartWithin)
}

// send writes messages in one go. If that fails, next has the error: the server may have said before
// why it closes the connection.
func (x *exchange) send(messages ...wire.Message) {
	var out []byte
	for _, m := range messages {
		out = wire.Append(out, m)
	}
	_ = session.WritePatiently(x.conn, out, x.patience)
}

// next returns the server's next message. A refusal is an error; Welcome is passed over.
func (x *exchange) next() (wire.Message, error) {
	if err := x.conn.SetReadDeadline(time.Now().Add(x.patience)); err != nil {
		return nil, err
	}
	x.answers.Wait(true)
	defer x.answers.Wait(false)
	for {
		m, err := x.r.Next()
		if err != nil {
			return nil, cmp.Or(context.Cause(x.ctx), err)
		}
		x.answers.Take(m)
		switch m := m.(type) {
		case *wire.Refuse:
			return nil, &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		case *wire.Welcome:
		default:
			return m, nil
		}
	}
}

// needShare rejects a URL that names no share.
func needShare(u session.URL) error {
	if u.Share != "" {
		return nil
	}
	return session.Usage("list "+u.Redacted()+" for the shares", "the URL names no share")
}
