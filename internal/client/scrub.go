package client

import (
	"context"
	"fmt"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// Scrub has the server read a snapshot in the folder of u, with low priority, and compare it with
// the digests that it stored when the snapshot was made. If there are differences, both a
// Comparison and an *Error of KindIntegrity are returned.
func (c *Client) Scrub(ctx context.Context, u session.URL, name string, call Verification) (*Comparison, error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	if _, err := snapshot.ParseName(name); err != nil {
		return nil, session.Usage("list "+u.Redacted()+" for the snapshots", "%w", err)
	}
	s := scrub{findings: newFindings(u, call)}
	err := s.run(ctx, c, u, name)
	sum := s.done()
	return sum, describe(ctx, sum.judge(name, err), sum.Server)
}

// judge returns the error of a scrub that ended with err: that there are differences, if it is nil.
func (s *Comparison) judge(snapshot string, err error) error {
	if n := s.differences(); err == nil && n > 0 {
		err = &session.Error{Kind: session.KindIntegrity, Err: fmt.Errorf("%s in %s: not what was sent", units.Count(n, "entry", "entries"), snapshot)}
	}
	return err
}

// scrub is the intent to have a snapshot read by the server.
type scrub struct{ findings }

func (s *scrub) run(ctx context.Context, c *Client, u session.URL, name string) error {
	x, err := c.begin(ctx, u, wire.Hello{Intent: wire.Scrub, Share: u.Share, Paths: []string{u.Path}, Snapshot: name})
	if err != nil {
		return err
	}
	defer x.close()
	return s.hear(x)
}

func (s *scrub) hear(x *exchange) error {
	for {
		m, err := x.next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Warning:
			switch what := session.Finding(m.What); what {
			case session.Missing, session.Extra, session.Different, session.Unreadable, session.Lacking:
				s.found(m.Path, what, m.Text)
			default: // to leave it out could hide damage
				return wire.Errorf(wire.CodeProtocol, "an unknown finding %q", m.What)
			}
		case *wire.Sample:
			s.count(m)
		case *wire.EndManifest:
			return nil
		}
	}
}

// count takes the server's counters.
func (s *scrub) count(m *wire.Sample) {
	for _, x := range m.Values {
		n := max(0, x.Value)
		switch x.Name {
		case session.ScrubTotal:
			s.total = n
		case session.ScrubFiles:
			s.sum.Files = n
		case session.ScrubBytes:
			s.sum.Bytes = n
		case session.ScrubSame:
			s.sum.Same = n
		}
	}
	s.show()
}
