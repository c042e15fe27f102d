package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Copies keeps and makes the copies that clients ask for: see session.Copy. It opens what it sends
// with Server.OpenCopy. Its methods are called concurrently; their errors are session.ErrNoCopy,
// ErrCopyEnded and ErrCopiesFull, or for the server's log.
type Copies interface {
	// Add keeps a copy durably and returns at once.
	Add(c session.Copy) (session.CopyStatus, error)
	// List returns the copies of a user, in the order in which they were added.
	List(user string) ([]session.CopyStatus, error)
	// Change changes a copy of a user durably.
	Change(user, id string, to session.CopyChange) (session.CopyStatus, error)
}

// copyWork serves a Copies: the client has the server send files to another one.
type copyWork struct {
	*request
	out []byte // not sent yet
}

func newCopyWork(q *request) handler { return &copyWork{request: q} }

func (x *copyWork) serve(ctx context.Context) error {
	if x.peer.id.IsName() {
		return wire.Errorf(wire.CodeUnsupported, "copies are for clients that are known by their keys")
	}
	x.admit()
	stop := context.AfterFunc(ctx, func() { _ = x.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	x.out = wire.Append(nil, x.welcome(0))
	r := wire.NewReader(x.conn, wire.MaxMessage)
	for {
		if err := x.writeMessages(x.out, workIdle); err != nil {
			return err
		}
		x.out = x.out[:0]
		_ = x.conn.SetReadDeadline(time.Now().Add(workIdle))
		if ctx.Err() != nil { // the deadline that ended reading may be gone
			return context.Cause(ctx)
		}
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ask, ok := m.(*wire.CopyRequest)
		if !ok {
			return wire.Errorf(wire.CodeProtocol, "expected a request about copies")
		}
		x.answer(ctx, ask)
	}
}

// answer does what a client asks for, and appends the answer.
func (x *copyWork) answer(ctx context.Context, ask *wire.CopyRequest) {
	all, err := x.do(ctx, ask)
	x.audit.copying(ask, all, err)
	for i := range all {
		x.out = wire.Append(x.out, session.WireCopy(&all[i]))
	}
	done := &wire.Operated{Entries: uint64(len(all))}
	if err != nil {
		refused := x.refusalOf(err)
		done.Code, done.Text = refused.Code, refused.Text
	}
	x.out = wire.Append(x.out, done)
}

func (x *copyWork) do(ctx context.Context, ask *wire.CopyRequest) ([]session.CopyStatus, error) {
	copies := x.server.opt.Copies
	if copies == nil {
		return nil, wire.Errorf(wire.CodeUnsupported, "this server makes no copies: its administrator has not allowed that (--copies)")
	}
	user := string(x.peer.id)
	one := func(s session.CopyStatus, err error) ([]session.CopyStatus, error) {
		if err != nil {
			return nil, err
		}
		return []session.CopyStatus{s}, nil
	}
	switch ask.Do {
	case wire.CopyAdd:
		c, err := x.check(ctx, ask)
		if err != nil {
			return nil, err
		}
		x.log.Info("copy", "share", c.Share, "path", c.Path, "to", c.To.Redacted())
		return one(copies.Add(c))
	case wire.CopyList:
		all, err := copies.List(user)
		if err != nil || ask.ID == "" {
			return all, err
		}
		for _, s := range all {
			if s.ID == ask.ID {
				return one(s, nil)
			}
		}
		return nil, session.ErrNoCopy
	case wire.CopyPause:
		return one(copies.Change(user, ask.ID, session.PauseCopy))
	case wire.CopyResume:
		return one(copies.Change(user, ask.ID, session.ResumeCopy))
	case wire.CopyCancel:
		return one(copies.Change(user, ask.ID, session.CancelCopy))
	}
	return nil, wire.Errorf(wire.CodeUnsupported, "the server does not know operation %d on copies", ask.Do)
}

// check returns the copy that a client asks for, or why it gets none: its capability is not its own,
// not for this server or not for the target, or it may not read the source.
func (x *copyWork) check(ctx context.Context, ask *wire.CopyRequest) (c session.Copy, err error) {
	by, err := identity.ParseCapability(ask.Capability)
	own := identity.PinOfPrivate(x.server.key)
	switch {
	case err != nil:
		return c, refusedCapability(err)
	case identity.Principal(by.User) != x.peer.id:
		return c, refusedCapability(identity.ErrCapabilitySignature)
	case by.Server == own:
		return c, wire.Errorf(wire.CodePath, "source and target are on one server")
	}
	if err := by.Admits(by.Server, identity.Principal(own), by.Share, by.Path, time.Now()); err != nil {
		return c, refusedCapability(err)
	}
	to, err := session.ParseURL(ask.To)
	if err == nil {
		err = session.CheckCopyTarget(to, by.Share, by.Path)
	}
	if err != nil {
		return c, &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	c = session.Copy{
		User: string(x.peer.id), Address: x.from, Share: ask.Share, Path: ask.Path, To: to, Pin: string(by.Server),
		Capability: ask.Capability, Until: by.Until, RateLimit: ask.RateLimit, Priority: session.PriorityOf(ask.Priority),
	}
	source, err := x.server.openCopy(ctx, c, false)
	if err == nil {
		source.Close(nil)
	}
	return c, err
}

// copyOutcomes are the outcomes of requests that are recorded: those that change copies.
var copyOutcomes = map[wire.CopyOp]string{
	wire.CopyAdd: "added", wire.CopyPause: "paused", wire.CopyResume: "resumed", wire.CopyCancel: "cancelled",
}

// copying records a request about a copy, done or refused.
func (a *audit) copying(ask *wire.CopyRequest, all []session.CopyStatus, err error) {
	outcome := copyOutcomes[ask.Do]
	if a == nil || outcome == "" {
		return
	}
	id, attrs := ask.ID, make([]any, 0, 16)
	if ask.Do == wire.CopyAdd {
		to := "no URL" // and perhaps with a token
		if u, err := session.ParseURL(ask.To); err == nil {
			to = u.Redacted()
		}
		attrs = append(pathAttrs(path.Join(ask.Share, ask.Path)), "to", wire.Printable(to))
	}
	if len(all) == 1 {
		id = all[0].ID
	}
	attrs = append(attrs, "copy", wire.Printable(id))
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelWarn, append(attrs, "asked", outcome, "error", wire.Printable(err.Error()))
		outcome = "refused"
	}
	a.log.Log(context.Background(), level, "copy", append(attrs, "outcome", outcome)...)
}

// refusalOf tells the client why a request failed.
func (x *copyWork) refusalOf(err error) *wire.Error {
	var known *wire.Error
	code := wire.CodeOther
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, session.ErrNoCopy):
		code = wire.CodeNotFound
	case errors.Is(err, session.ErrCopyEnded):
		code = wire.CodeTaken
	case errors.Is(err, session.ErrCopiesFull):
		code = wire.CodeBusy
	default:
		x.log.Error("copies", "error", err)
		return wire.Errorf(code, "the server could not do that: see its log")
	}
	return &wire.Error{Code: code, Text: err.Error()}
}

// OpenCopy opens what a user wants to be sent to another server, as a session of that user: its rights
// at this time decide, and its limits hold. The source ends with ctx, or when the user loses its right.
// The caller closes it. Errors match those of a session that the server refuses.
func (s *Server) OpenCopy(ctx context.Context, c session.Copy) (*session.Source, error) {
	return s.openCopy(ctx, c, true)
}

// openCopy is OpenCopy. sends says that the source will be sent, and is to be in the audit log.
func (s *Server) openCopy(ctx context.Context, c session.Copy, sends bool) (*session.Source, error) {
	id, err := identity.ParsePrincipal(c.User)
	if err != nil {
		return nil, err
	}
	peer := peerIdentity{id: id, label: id.Short()}
	grants, known, err := s.grantsOf(id)
	if err != nil {
		s.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	var r *reservation
	if known {
		r, err = s.reserve(ctx, peer, c.Address, nil, grants)
	} else {
		err = wire.Errorf(wire.CodeTrust, "this client's key is not admitted")
	}
	if err != nil {
		if sends {
			s.auditRefusal(ctx, c.Address, peer, &wire.Hello{Intent: wire.Copy, Share: c.Share, Paths: []string{c.Path}}, err)
		}
		return nil, err
	}
	q := &request{
		reservation: r,
		hello:       &wire.Hello{Intent: wire.Pull, Share: c.Share, Paths: []string{c.Path}},
		log:         s.log.With("session", r.id, "client", peer.label, "share", c.Share, "to", c.To.Redacted()),
	}
	if sends {
		q.audit = r.newAudit("copy", c.Share)
	}
	end := func(err error) {
		q.audit.session(r.ctx, []string{c.Path}, -1, err)
		q.close()
		r.release()
	}
	x := &sending{transferSession: &transferSession{request: q}}
	var source transfer.TreeSource
	if err = x.open(); err == nil {
		err = x.addRoots(&source)
	}
	if err != nil {
		end(err)
		return nil, err
	}
	q.audit.setRoots(source.Roots)
	return session.NewSource(session.SourceParts{
		Ctx: r.ctx, Named: []string{path.Join(c.Share, c.Path)}, Roots: source.Roots, Close: end,
		Out: func() *pace.Queue {
			own := new(rateLimit)
			s.out.SetRate(&own.out, c.RateLimit)
			_, out := r.flows(own)
			return out
		},
		Event: func(e *transfer.Event) {
			q.audit.event(e)
			if e.Kind == transfer.Written {
				s.counters.update(c.Share, false, func(t *ShareTraffic) { t.Bytes += max(0, e.Bytes) })
			}
		},
	}), nil
}
