package server

import (
	"cmp"
	"context"
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// sending serves a Pull: the client gets files.
type sending struct {
	*transferSession
	scope *access.Scope // set by open
}

func newSending(q *request) handler {
	x := &transferSession{request: q, ownRate: q.hello.RateLimit}
	x.direction = &sending{transferSession: x}
	return x
}

func (x *sending) open() (err error) {
	if len(x.hello.Paths) == 0 {
		return wire.Errorf(wire.CodeProtocol, "the request names no path to get")
	}
	for _, p := range x.hello.Paths {
		if x.share, x.scope, err = x.scopeFor(access.Read, seriesPath(p)); err != nil {
			return err
		}
	}
	return nil
}

func (x *sending) newEngine(_ context.Context, r *wire.Reader) (session.Engine, error) {
	chosen := &x.hello.Select
	source := transfer.TreeSource{OneFileSystem: chosen.OneFileSystem, DryRun: x.hello.Target.DryRun}
	var err error
	if source.Filter, err = session.FilterOf(chosen); err != nil {
		return nil, &wire.Error{Code: wire.CodeUnsupported, Text: err.Error()}
	}
	coder, err := compress.Parse(chosen.Compress)
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeUnsupported, Text: err.Error()}
	}
	if source.Roots, err = x.roots(); err != nil {
		return nil, err
	}
	x.audit.setRoots(source.Roots)
	return session.NewSender(x.conn.Conn, r, &source, transfer.SenderOptions{
		Speculate: x.hello.Fresh, Streams: int(min(x.hello.MaxStreams, session.InitialStreams)),
		Prune: x.hello.Target.Delete, Coder: coder, Clock: x.clock,
		Memory: x.client.memory,
		Event:  x.event, Message: x.message,
		WalkFailed: func(path string, err error) {
			x.log.Warn("not sent", "path", path, "error", err)
		},
	}), nil
}

// roots opens the paths that the client wants. A slash at the end of a folder asks for its content.
func (x *sending) roots() (roots []transfer.Root, err error) {
	for _, p := range x.hello.Paths {
		name := strings.TrimSuffix(p, "/")
		as := path.Base(cmp.Or(name, x.share.Name))
		root := transfer.Root{Tree: x.scope, Path: cmp.Or(name, "."), As: as, Name: cmp.Or(name, x.share.Name)}
		m, err := root.Tree.Stat(root.Path)
		if err != nil {
			return nil, sourceRefusal(err, name, x.share.Name)
		}
		if strings.HasSuffix(p, "/") {
			if m.Kind != disk.Dir {
				return nil, wire.Errorf(wire.CodePath, "%q is not a folder", name)
			}
			root.As = ""
		}
		roots = append(roots, root)
	}
	return roots, nil
}

func (x *sending) close() {}
