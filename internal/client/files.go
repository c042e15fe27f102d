package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3"
)

// Files is a session in which the entries of one share are listed, read, made, moved and removed one
// by one. Paths are below the share, and "" is the share itself. Nothing follows a symlink. Its
// methods are not safe for concurrent use. The server ends a session that is idle for two minutes.
//
// The error of a method is an *Error. It matches fs.ErrNotExist if there is no such entry, fs.ErrExist
// if the name is taken, and fs.ErrPermission if the client lacks a right.
type Files struct {
	x   *exchange
	ctx context.Context //nolint:containedctx // the session's, as of a transaction
	err error           // what ended the session

	answered bool // the server knows such sessions
	most     int  // bounds the memory of a Glob, see listing
}

// Files opens a session on the share of u. It ends with ctx, or with Close.
func (c *Client) Files(ctx context.Context, u session.URL) (*Files, error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	x, err := c.begin(ctx, u, wire.Hello{Intent: wire.Files, Share: u.Share})
	if err != nil {
		return nil, describe(ctx, err, serverOf(u))
	}
	x.patience = session.VerifyPatience // the server may have much to walk through or to remove
	return &Files{x: x, ctx: ctx}, nil
}

// Close ends the session.
func (f *Files) Close() { f.x.close() }

// Err returns what ended the session, or nil while it lasts.
func (f *Files) Err() error { return f.err }

// Usage is what an entry takes at a server.
type Usage struct {
	Bytes   int64 // of files; once for a file with several names
	Entries int64 // below a folder; 1 for a file
}

// Stat describes the entry at p.
func (f *Files) Stat(p string) (Entry, error) {
	var found []Entry
	_, err := f.one(&wire.Operation{Do: wire.OpStat, Paths: []string{p}}, f.collect(&found))
	if err == nil && len(found) != 1 {
		err = f.broken("the server describes %d entries instead of one", len(found))
	}
	if err != nil {
		return Entry{}, err
	}
	return found[0], nil
}

// List returns what a folder holds, sorted by name, or one file. With recursive, it returns
// everything below the folder, in no order. Paths are relative to the folder. It returns what it got
// together with the error about what the server could not read.
func (f *Files) List(p string, recursive bool) ([]Entry, error) {
	var all []Entry
	var unread error
	add := f.collect(&all)
	_, err := f.one(&wire.Operation{Do: wire.OpList, Paths: []string{p}, Recursive: recursive}, func(m wire.Message) error {
		switch m := m.(type) {
		case *wire.EntryFailed:
			if unread == nil {
				unread = f.described(&wire.Error{Code: m.Code, Text: m.Text, Remote: true})
			}
			return nil
		case *wire.Warning:
			f.x.client.noticeUnnamed(m)
		}
		return add(m)
	})
	if err == nil {
		err = unread
	}
	return all, err
}

// collect returns a function that adds the entries of messages to all.
func (f *Files) collect(all *[]Entry) func(wire.Message) error {
	var l listing
	return func(m wire.Message) error {
		if m, ok := m.(*wire.Entries); ok {
			err := l.add(m)
			*all = l.entries
			return err
		}
		return nil
	}
}

// Glob returns the entries that fit the elements below the folder base, sorted, with their paths below
// the share. The elements are those of ParsePattern, at least one. As List does, it returns what it got
// together with the first error about what the server could not read.
func (f *Files) Glob(base string, elements []string) ([]Entry, error) {
	found := []Entry{{Path: base, Kind: "folder"}}
	var unread error
	for _, element := range elements {
		next := listing{most: f.most}
		for _, folder := range found {
			if folder.Kind != "folder" {
				continue
			}
			entries, err := f.List(folder.Path, false)
			if f.err != nil {
				return nil, err
			}
			unread = cmp.Or(unread, err)
			for _, e := range entries {
				if e.Path != path.Base(e.Path) || e.Path == "." || e.Path == ".." {
					return nil, f.broken("the server lists %q in a folder", e.Path)
				}
				if session.MatchName(element, e.Path) {
					e.Path = path.Join(folder.Path, e.Path)
					if err := next.keep(e); err != nil {
						return nil, f.end(err)
					}
				}
			}
		}
		found = next.entries
	}
	if len(found) == 0 && unread == nil {
		return nil, f.described(&wire.Error{
			Code: wire.CodeNotFound, Text: fmt.Sprintf("nothing fits %q", path.Join(base, strings.Join(elements, "/"))), Remote: true,
		})
	}
	slices.SortFunc(found, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return found, unread
}

// Usage counts what is at p and below.
func (f *Files) Usage(p string) (Usage, error) {
	did, err := f.one(&wire.Operation{Do: wire.OpUsage, Paths: []string{p}}, nil)
	return Usage{Bytes: int64(min(did.Bytes, wire.MaxSize)), Entries: int64(min(did.Entries, wire.MaxSize))}, err
}

// Read writes the content of the file at p to w, and compares the digest with that of what the server
// read. After an error, w may have got a part of the file.
func (f *Files) Read(p string, w io.Writer) error {
	hash := blake3.New(32, nil)
	var mine error // of w
	did, err := f.one(&wire.Operation{Do: wire.OpRead, Paths: []string{p}}, func(m wire.Message) error {
		content, ok := m.(*wire.Content)
		if !ok {
			return nil
		}
		_, _ = hash.Write(content.Data)
		_, mine = w.Write(content.Data)
		return mine
	})
	switch {
	case mine != nil:
		return &session.Error{Kind: session.KindLocalDisk, Err: mine}
	case err == nil && [32]byte(hash.Sum(nil)) != did.Digest:
		return f.described(wire.Errorf(wire.CodeIntegrity, "%s: what arrived is not what the server read", p))
	}
	return err
}

// Mkdir makes the folder at p. With parents, it makes missing folders above, too, and accepts a folder
// that exists.
func (f *Files) Mkdir(p string, parents bool) error {
	_, err := f.one(&wire.Operation{Do: wire.OpMkdir, Paths: []string{p}, Recursive: parents}, nil)
	return err
}

// Move gives the entry at from the path to. With replace, a file takes the place of another.
func (f *Files) Move(from, to string, replace bool) error {
	_, err := f.one(&wire.Operation{Do: wire.OpMove, Paths: []string{from}, To: to, Replace: replace}, nil)
	return err
}

// MoveInto moves entries into a folder, where they keep their names. each gets the outcome for each.
func (f *Files) MoveInto(paths []string, folder string, replace bool, each func(p string, err error)) error {
	return f.all(wire.Operation{Do: wire.OpMove, To: folder, Into: true, Replace: replace}, paths, nil, each)
}

// Remove removes files, links and empty folders, and with recursive also folders with all that they
// hold. each gets the outcome for each.
func (f *Files) Remove(paths []string, recursive bool, each func(p string, err error)) error {
	return f.all(wire.Operation{Do: wire.OpRemove, Recursive: recursive}, paths, nil, each)
}

// WouldRemove is Remove that removes nothing. visit gets what would be removed.
func (f *Files) WouldRemove(paths []string, recursive bool, visit func(Entry), each func(p string, err error)) error {
	return f.all(wire.Operation{Do: wire.OpRemove, Recursive: recursive, DryRun: true}, paths, func(m wire.Message) error {
		if m, ok := m.(*wire.Removed); ok {
			visit(Entry{Path: m.Path, Kind: session.KindName(m.Kind)})
		}
		return nil
	}, each)
}

// one does an operation on one path.
func (f *Files) one(op *wire.Operation, got func(wire.Message) error) (did wire.Operated, err error) {
	if err := f.send(op); err != nil {
		return did, err
	}
	return f.outcome(got)
}

const (
	// The bounds of one Operation.
	maxWork      = wire.MaxStrings
	maxWorkBytes = wire.MaxMessage / 2 // of paths
)

// all does an operation on many paths. The error is that of the session.
func (f *Files) all(op wire.Operation, paths []string, got func(wire.Message) error, each func(string, error)) error {
	for len(paths) > 0 {
		n, size := 0, 0
		for n < min(len(paths), maxWork) && (n == 0 || size+len(paths[n]) < maxWorkBytes) {
			size += len(paths[n])
			n++
		}
		op.Paths = paths[:n]
		if err := f.send(&op); err != nil {
			return err
		}
		for _, p := range op.Paths {
			_, err := f.outcome(got)
			if f.err != nil {
				return f.err
			}
			each(p, err)
		}
		paths = paths[n:]
	}
	return nil
}

func (f *Files) send(op *wire.Operation) error {
	if f.err != nil {
		return f.err
	}
	for _, p := range append(slices.Clip(op.Paths), op.To) {
		if len(p) > wire.MaxPath {
			return session.Usage("", "a path has %d bytes, of at most %d", len(p), wire.MaxPath)
		}
	}
	f.x.send(op)
	return nil
}

// outcome reads the answer to an operation on one path. got gets the messages before it.
func (f *Files) outcome(got func(wire.Message) error) (did wire.Operated, err error) {
	for {
		m, err := f.x.next()
		if err != nil {
			return did, f.end(err)
		}
		f.answered = true
		if m, ok := m.(*wire.Operated); ok {
			if m.Code != 0 {
				return *m, f.described(&wire.Error{Code: m.Code, Text: m.Text, Remote: true})
			}
			return *m, nil
		}
		if got == nil {
			continue
		}
		if err := got(m); err != nil {
			return did, f.end(err)
		}
	}
}

// broken ends the session because the server breaks the protocol.
func (f *Files) broken(format string, args ...any) error {
	return f.end(wire.Errorf(wire.CodeProtocol, format, args...))
}

// end notes that the session is over.
func (f *Files) end(err error) error {
	var refused *wire.Error
	f.err = f.described(err)
	if errors.As(err, &refused) && refused.Remote && refused.Code == wire.CodeProtocol && !f.answered {
		f.err = &session.Error{Kind: session.KindOther, Err: f.err, Advice: session.AdviceUpdateServer}
	}
	return f.err
}

// described turns an error into one for the user, see Files.
func (f *Files) described(err error) error {
	described := describe(f.ctx, err, serverOf(f.x.url))
	var coded *wire.Error
	var known *session.Error
	if errors.As(err, &coded) && errors.As(described, &known) {
		switch coded.Code {
		case wire.CodeNotFound:
			known.Err = &classed{fs.ErrNotExist, known.Err}
		case wire.CodeTaken:
			known.Err = &classed{fs.ErrExist, known.Err}
		case wire.CodeRight:
			known.Err = &classed{fs.ErrPermission, known.Err}
		}
	}
	return described
}

// classed is an error that also matches a sentinel.
type classed struct{ class, cause error }

func (e *classed) Error() string   { return e.cause.Error() }
func (e *classed) Unwrap() []error { return []error{e.cause, e.class} }
