package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// temporary tells whether a new session may succeed where one failed with err.
func temporary(err error) bool {
	var remote *wire.Error
	if errors.As(err, &remote) {
		return remote.Code == wire.CodeDraining || remote.Code == wire.CodeBusy || remote.Code == wire.CodeSilent
	}
	if errors.Is(err, transport.ErrNoCertificate) || refusedCertificate(err) {
		return false
	}
	var known *session.Error
	return !errors.As(err, &known) || known.Kind == session.KindUnreachable
}

// describe turns an error of a session into one for the user, with its kind and a remedy.
func describe(err error, server string) error {
	var known *session.Error
	var coded *wire.Error
	var hole *transport.BlackHoleError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, transport.ErrNoCertificate):
		return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s presents no certificate of a CA", server),
			Remedy: "give it one, by tls: in its configuration; or leave --tls-ca out to know it by its key"}
	case refusedCertificate(err):
		return &session.Error{Kind: session.KindTrust,
			Err:    fmt.Errorf("%s takes no certificates of clients: it knows them by their keys", server),
			Remedy: "name their CA there, by tls: in its configuration; or leave --tls-cert out"}
	case errors.Is(err, context.Canceled):
		return &session.Error{Kind: session.KindInterrupted, Err: errors.New("interrupted"), Remedy: "the same command resumes"}
	case errors.As(err, &coded):
		return describeCode(coded, server)
	case errors.As(err, &hole):
		return &session.Error{Kind: session.KindUnreachable,
			Err:    fmt.Errorf("packets of %d bytes vanish on the way %s, smaller ones arrive", hole.Size(), hole.Way(server)),
			Remedy: "sudo sysctl -w net.ipv4.tcp_mtu_probing=1, or let ICMP pass the firewalls"}
	}
	return describeLost(err, server)
}

// describeLost describes an error of a connection.
func describeLost(err error, server string) error {
	e := &session.Error{Kind: session.KindUnreachable, Remedy: "the same command resumes; --retry-for tries by itself"}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Err = fmt.Errorf("%s closed the connection", server)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.Err = fmt.Errorf("%s does not answer any more", server)
	default:
		e.Err = fmt.Errorf("connection to %s: %w", server, err)
	}
	return e
}

// describeCode describes an error with a code of the protocol, the server's or ours.
func describeCode(coded *wire.Error, server string) error {
	e := &session.Error{Kind: session.KindOfCode(coded), Err: coded}
	if coded.Remote {
		e.Err = fmt.Errorf("%s: %w", server, coded)
	}
	switch coded.Code {
	case wire.CodeExists:
		if coded.Remote {
			e.Err = fmt.Errorf("%s: %w: %w", server, session.ErrSnapshotExists, coded)
		}
	case wire.CodeTrust:
		e.Remedy = "ask its administrator for an invitation: fxfer serve --invite"
	case wire.CodeCertificate:
		e.Remedy = "the server's administrator finds this client in its log"
	case wire.CodeNoSpace:
		e.Remedy = "make room there; the same command resumes"
	case wire.CodeBusy:
		if coded.Remote {
			e.Remedy = "come again later; send and get do by themselves with --retry-for"
		}
	}
	return e
}
