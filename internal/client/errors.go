package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// temporary reports whether a new session may succeed where one failed with err.
func temporary(err error) bool {
	var remote *wire.Error
	if errors.As(err, &remote) {
		return remote.Code == wire.CodeDraining || remote.Code == wire.CodeBusy || remote.Code == wire.CodeSilent
	}
	if errors.Is(err, transport.ErrProtocol) || errors.Is(err, transport.ErrNoCertificate) || refusedCertificate(err) {
		return false
	}
	var known *session.Error
	return !errors.As(err, &known) || known.Kind == session.KindUnreachable
}

// interrupted is the error of what the caller has ended by its context. It matches the cause.
func interrupted(ctx context.Context) error {
	text := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		text = "interrupted: the time for it is over"
	}
	return &classed{errors.Join(ctx.Err(), context.Cause(ctx)), errors.New(text)}
}

// describe turns an error of a session into one for the user, with its kind and advice. ctx is the
// caller's: where it has ended, that is the error.
func describe(ctx context.Context, err error, server string) error {
	var known *session.Error
	var coded *wire.Error
	var hole *transport.BlackHoleError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &session.Error{Kind: session.KindInterrupted, Err: interrupted(ctx), Advice: session.AdviceResume}
	case errors.As(err, &known):
		return known
	case errors.Is(err, transport.ErrCongestion):
		return session.CongestionError(err)
	case errors.Is(err, transport.ErrNoCertificate):
		return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s presents no certificate of a CA", server),
			Advice: session.AdviceServerCertificate}
	case refusedCertificate(err):
		return &session.Error{Kind: session.KindTrust,
			Err:    fmt.Errorf("%s takes no certificates of clients: it knows them by their keys", server),
			Advice: session.AdviceServerClientCA}
	case errors.Is(err, context.Canceled):
		return &session.Error{Kind: session.KindInterrupted, Err: &classed{err, errors.New("interrupted")}, Advice: session.AdviceResume}
	case errors.As(err, &coded):
		return describeCode(coded, server)
	case errors.As(err, &hole):
		return &session.Error{Kind: session.KindUnreachable,
			Err:    fmt.Errorf("packets of %d bytes vanish on the way %s, smaller ones arrive", hole.Size(), hole.Way(server)),
			Advice: session.AdviceFixPathMTU}
	}
	return describeLost(err, server)
}

// describeLost describes an error of a connection.
func describeLost(err error, server string) error {
	e := &session.Error{Kind: session.KindUnreachable, Advice: session.AdviceRetry}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Err = fmt.Errorf("%s closed the connection", server)
	case errors.Is(err, transport.ErrProtocol):
		e.Err, e.Advice = fmt.Errorf("%s does not speak fxfer/1, the protocol of fxfer", server), session.AdviceServerPort
	case errors.Is(err, transport.ErrSilent):
		e.Err, e.Advice = fmt.Errorf("%s accepts connections, but says nothing", server), session.AdviceServerPort
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.Err = fmt.Errorf("%s does not answer any more", server)
	default:
		e.Err = fmt.Errorf("connection to %s: %w", server, err)
	}
	return e
}

// snapshotExists is the server's error that is session.ErrSnapshotExists.
type snapshotExists struct{ error }

func (e snapshotExists) Is(target error) bool { return target == session.ErrSnapshotExists }
func (e snapshotExists) Unwrap() error        { return e.error }

// describeCode describes an error with a code of the protocol, the server's or ours.
func describeCode(coded *wire.Error, server string) error {
	e := &session.Error{Kind: session.KindOfCode(coded), Err: coded}
	if coded.Remote {
		e.Err = fmt.Errorf("%s: %w", server, coded)
	}
	switch coded.Code {
	case wire.CodeExists:
		if coded.Remote {
			e.Err = snapshotExists{e.Err}
		}
	case wire.CodeTrust:
		e.Advice = session.AdviceInvitation
		if coded.Text == identity.ErrRevoked.Error() {
			e.Advice = session.AdviceReadmit
		}
	case wire.CodeCertificate:
		e.Advice = session.AdviceServerLog
	case wire.CodeNoSpace:
		e.Advice = session.AdviceMakeRoom
	case wire.CodeSilent:
		e.Advice = session.AdviceRetry
	case wire.CodeBusy:
		if coded.Remote {
			e.Advice = session.AdviceRetryLater
		}
	}
	return e
}
