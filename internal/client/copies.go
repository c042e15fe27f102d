package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// ErrNoCopies says that a server has an older version, which neither makes copies nor takes them.
var ErrNoCopies = errors.New("the server can't copy to another server: it has an older version")

// CopyOptions say how a server makes a copy. The zero value is usable.
type CopyOptions struct {
	// Valid is how long the server may send for this client, at most 30 days; 0 is 7 days.
	Valid time.Duration
	// Uses bounds the sessions that the server may make: another one follows each that breaks. 0 is 100.
	Uses int
	// RateLimit is in bit/s; 0 is none.
	RateLimit int64
	// Priority is PriorityNormal if "". Both servers may bound it.
	Priority session.Priority
}

// Copy has one server send the files at from to another server, and returns when the first server has
// put the copy into its queue. The copy goes on without this client; Copies shows its progress. If from
// ends with a slash, the server sends the content of the folder, as Send does.
//
// The client needs the right to read at the first server and to write at the second one. It signs a
// statement with its key. The statement lets the first server write there for the client, and nothing
// else. The client connects to the second server only if it does not know its key.
func (c *Client) Copy(ctx context.Context, from, to session.URL, opt CopyOptions) (session.CopyStatus, error) {
	for _, u := range []session.URL{from, to} {
		if err := needShare(u); err != nil {
			return session.CopyStatus{}, err
		}
	}
	if err := opt.fill(); err != nil {
		return session.CopyStatus{}, err
	}
	if c.pair != nil || c.authorities != nil {
		return session.CopyStatus{}, session.Usage("use keys", "a copy from server to server is signed with this client's key, and for the keys of both servers")
	}
	target, err := c.keyOf(ctx, to)
	if err != nil {
		return session.CopyStatus{}, err
	}
	x, err := c.copies(ctx, from)
	if err != nil {
		return session.CopyStatus{}, err
	}
	defer x.close()
	capability, err := identity.Capability{
		Holder: identity.PinOf(x.conn.PeerKey()), Server: target, Until: time.Now().Add(opt.Valid), Uses: uint32(opt.Uses),
		Rights: identity.Write, Share: to.Share, Path: cmp.Or(to.Path, "."),
	}.Sign(c.key)
	if err != nil {
		return session.CopyStatus{}, session.Usage("", "%w", err)
	}
	priority, _ := session.WirePriority(opt.Priority) // checked
	return x.one(&wire.CopyRequest{
		Do: wire.CopyAdd, Share: from.Share, Path: sourcePath(from), To: to.Redacted(), Capability: capability,
		RateLimit: opt.RateLimit, Priority: priority,
	})
}

// fill sets what is automatic, and then checks the options.
func (o *CopyOptions) fill() error {
	o.Valid, o.Uses = cmp.Or(o.Valid, identity.CapabilityTTL), cmp.Or(o.Uses, identity.CapabilityUses)
	switch {
	case o.Valid < time.Second || o.Valid > identity.MaxCapabilityTTL:
		return session.Usage("choose 1 s to 30 days", "a copy that may go on for %s", units.Span(o.Valid))
	case o.Uses < 1 || o.Uses > identity.MaxCapabilityUses:
		return session.Usage("", "%d sessions for a copy: give 1 to %d", o.Uses, identity.MaxCapabilityUses)
	case o.RateLimit < 0:
		return session.Usage("", "a rate limit of %d bit/s", o.RateLimit)
	}
	return session.CheckPriority(o.Priority)
}

// keyOf returns the key of the server of u. If it is not known, the client connects to the server, and
// Confirm decides.
func (c *Client) keyOf(ctx context.Context, u session.URL) (identity.Pin, error) {
	if u.Token == "" {
		if pin := cmp.Or(u.Pin, c.pin); pin != "" {
			return pin, nil
		}
		pin, known, err := c.store.KnownServer(u.Address())
		if err != nil {
			return "", trustError(err)
		}
		if known {
			return pin, nil
		}
	}
	x, err := c.begin(ctx, u, wire.Hello{Intent: wire.List, Paths: []string{""}})
	if err != nil {
		return "", describe(ctx, err, serverOf(u))
	}
	defer x.close()
	for {
		m, err := x.next() // the end shows that an invitation was redeemed
		if err != nil {
			return "", describe(ctx, err, serverOf(u))
		}
		if _, end := m.(*wire.EndManifest); end {
			return identity.PinOf(x.conn.PeerKey()), nil
		}
	}
}

// Copies returns the copies that this client has asked a server for, in the order in which it did. id
// names one of them; "" is all.
func (c *Client) Copies(ctx context.Context, server session.URL, id string) ([]session.CopyStatus, error) {
	x, err := c.copies(ctx, server)
	if err != nil {
		return nil, err
	}
	defer x.close()
	return x.ask(&wire.CopyRequest{Do: wire.CopyList, ID: id})
}

// FollowCopy calls visit with the status of a copy, again and again until it has ended or visit returns
// false. It returns the last status.
func (c *Client) FollowCopy(ctx context.Context, server session.URL, id string, visit func(session.CopyStatus) bool) (s session.CopyStatus, err error) {
	x, err := c.copies(ctx, server)
	if err != nil {
		return s, err
	}
	defer x.close()
	for {
		if s, err = x.one(&wire.CopyRequest{Do: wire.CopyList, ID: id}); err != nil {
			return s, err
		}
		if !visit(s) || s.State.Ended() {
			return s, nil
		}
		if !session.Sleep(ctx, followEvery) {
			return s, describe(ctx, ctx.Err(), serverOf(server))
		}
	}
}

// followEvery is how often FollowCopy asks.
const followEvery = 500 * time.Millisecond

// ChangeCopy pauses, resumes or cancels a copy, and returns its status then.
func (c *Client) ChangeCopy(ctx context.Context, server session.URL, id string, to session.CopyChange) (session.CopyStatus, error) {
	do := map[session.CopyChange]wire.CopyOp{
		session.PauseCopy: wire.CopyPause, session.ResumeCopy: wire.CopyResume, session.CancelCopy: wire.CopyCancel,
	}[to]
	if do == 0 || id == "" {
		return session.CopyStatus{}, session.Usage("", "%q is not a change of the copy %q", to, id)
	}
	x, err := c.copies(ctx, server)
	if err != nil {
		return session.CopyStatus{}, err
	}
	defer x.close()
	return x.one(&wire.CopyRequest{Do: do, ID: id})
}

// copyWork is a session about copies.
type copyWork struct {
	*exchange
	ctx    context.Context //nolint:containedctx // the session's, as of a transaction
	server string
}

func (c *Client) copies(ctx context.Context, server session.URL) (*copyWork, error) {
	x, err := c.begin(ctx, server, wire.Hello{Intent: wire.Copies})
	if err != nil {
		return nil, describe(ctx, err, serverOf(server))
	}
	return &copyWork{x, ctx, serverOf(server)}, nil
}

// one is ask for a request that is answered with one status.
func (x *copyWork) one(m *wire.CopyRequest) (session.CopyStatus, error) {
	all, err := x.ask(m)
	if err == nil && len(all) != 1 {
		err = &session.Error{Kind: session.KindOther, Err: fmt.Errorf("%s answers with %d copies", x.server, len(all))}
	}
	if err != nil {
		return session.CopyStatus{}, err
	}
	return all[0], nil
}

// maxCopies is how many copies a server may answer with.
const maxCopies = 4096

// ask sends a request and returns the answer.
func (x *copyWork) ask(m *wire.CopyRequest) (all []session.CopyStatus, err error) {
	x.send(m)
	for {
		m, err := x.next()
		if err != nil {
			return nil, describe(x.ctx, tooOld(err), x.server)
		}
		switch m := m.(type) {
		case *wire.CopyState:
			if len(all) == maxCopies {
				return nil, &session.Error{Kind: session.KindOther, Err: fmt.Errorf("%s answers with too many copies", x.server)}
			}
			all = append(all, session.CopyStatusOf(m))
		case *wire.Operated:
			if m.Code == 0 {
				return all, nil
			}
			var err error = &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
			if m.Code == wire.CodeUnsupported { // it makes no copies
				err = &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s: %w", x.server, err), Advice: session.AdviceServerCopies}
			}
			return nil, describe(x.ctx, err, x.server)
		}
	}
}

// tooOld replaces the error of a server that does not know an intent.
func tooOld(err error) error {
	if coded := (*wire.Error)(nil); errors.As(err, &coded) && coded.Remote && coded.Code == wire.CodeProtocol {
		return &session.Error{Kind: session.KindOther, Err: ErrNoCopies, Advice: session.AdviceUpdateServer}
	}
	return err
}

// SendFrom sends what a server has opened for a user to another server, by the user's capability. Its
// options must name the key of that server. It is Send otherwise.
func (c *Client) SendFrom(ctx context.Context, of *session.Source, capability []byte, target session.URL, call Transfer) (*session.Report, error) {
	if err := call.check(); err != nil {
		return nil, err
	}
	if c.pin == "" {
		return nil, session.Usage("", "no key is named for %s", serverOf(target))
	}
	parts := session.PartsOf(of)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(parts.Ctx, func() { cancel(context.Cause(parts.Ctx)) })()
	p := &push{args: parts.Named, source: &transfer.TreeSource{Roots: parts.Roots}, roots: parts.Roots, of: of}
	hello := wire.Hello{Intent: wire.Copy, Share: target.Share, Paths: []string{below(target)}, Capability: capability}
	report, err := c.transfer(ctx, target, hello, p, &call)
	return report, tooOld(err)
}
