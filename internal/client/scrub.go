package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// Scrub has the server read a snapshot in the folder that u leads to, and compare it with the digests that it noted when the snapshot
// was made, with low priority. visit is called for each difference, from one goroutine at a time. If there are any, the Comparison comes
// with an *Error.
func (c *Client) Scrub(ctx context.Context, u session.URL, name string, visit func(Difference)) (*Comparison, error) {
	if u.Share == "" {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	if _, err := snapshot.ParseName(name); err != nil {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the snapshots", "%w", err)
	}
	server := serverOf(u)
	v := &verifier{visit: visit, sum: Comparison{Server: server}, start: time.Now(), progress: c.opt.Progress}
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Scrub, Share: u.Share, Paths: []string{u.Path}, Snapshot: name}}
	err := interrupted(ctx, v.scrub(ctx, s))
	v.sum.Duration = time.Since(v.start)
	if n := v.sum.Missing + v.sum.Extra + v.sum.Different + v.sum.Unreadable; err == nil && n > 0 {
		err = &session.Error{Kind: session.KindIntegrity, Err: fmt.Errorf("%d entries of %s are not what was sent", n, name)}
	}
	return &v.sum, describe(err, server)
}

func (v *verifier) scrub(ctx context.Context, s *clientSession) error {
	_, _ = rand.Read(s.hello.Session[:]) // never fails
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.client.transportTo(s.url)
	conn, err := s.openThrough(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := wire.NewReader(conn, wire.MaxMessage)
	for {
		m, err := nextMessage(conn, r)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Welcome:
			s.message(conn, m)
		case *wire.Warning:
			v.found(m.Path, session.Finding(m.What), m.Text)
		case *wire.Sample:
			for _, x := range m.Values {
				switch x.Name {
				case session.ScrubFiles:
					v.sum.Files = x.Value
				case session.ScrubBytes:
					v.sum.Bytes = x.Value
				case session.ScrubSame:
					v.sum.Same = x.Value
				}
			}
			v.show()
		case *wire.EndManifest:
			return nil
		}
	}
}
