package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
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
	at    []string      // where the paths lead; set by open
}

func newSending(q *request) handler {
	x := &transferSession{request: q}
	q.server.out.SetRate(&x.own.out, q.hello.RateLimit)
	x.direction = &sending{transferSession: x}
	return x
}

func (x *sending) open() (err error) {
	if len(x.hello.Paths) == 0 {
		return wire.Errorf(wire.CodeProtocol, "the request names no path to get")
	}
	x.at = make([]string, len(x.hello.Paths))
	for i, p := range x.hello.Paths {
		if x.share, x.scope, x.at[i], err = x.scopeAt(access.Read, p); err != nil {
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
	if err := x.addRoots(&source); err != nil {
		return nil, err
	}
	x.audit.setRoots(source.Roots)
	return session.NewSender(x.conn.Conn, r, &source, transfer.SenderOptions{
		Speculate: x.hello.Fresh, Streams: int(min(x.hello.MaxStreams, session.InitialStreams)), Near: !x.hello.Relayed && session.Near(x.conn.Conn),
		Delta: x.hello.Target.Delta, Prune: x.hello.Target.Delete, Coder: coder, Clock: x.clock,
		Memory: x.client.memory,
		Event:  x.event, Message: x.message,
		WalkFailed: func(path string, err error) {
			x.log.Warn("not sent", "path", path, "error", err)
		},
	}), nil
}

// addRoots opens the paths that the client wants. A slash at the end of a folder asks for its
// content. What is not there fails on its own, unless nothing is.
func (x *sending) addRoots(source *transfer.TreeSource) error {
	for i, p := range x.hello.Paths {
		name := strings.TrimSuffix(p, "/")
		as := path.Base(cmp.Or(name, x.share.Name))
		root := transfer.Root{Tree: x.scope, Path: x.at[i], As: as, Name: cmp.Or(name, x.share.Name)}
		m, err := root.Tree.Stat(root.Path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrNotFolder) {
			source.Absent = append(source.Absent, transfer.Absent{Path: name, Err: sourceRefusal(err, name, x.share.Name)})
			continue
		}
		if err != nil {
			return sourceRefusal(err, name, x.share.Name)
		}
		if strings.HasSuffix(p, "/") {
			if m.Kind != disk.Dir {
				return wire.Errorf(wire.CodePath, "%q is not a folder", name)
			}
			root.As = ""
		}
		source.Roots = append(source.Roots, root)
	}
	if source.Roots == nil {
		return source.Absent[0].Err
	}
	return nil
}

func (x *sending) close() {}
