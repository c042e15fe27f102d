package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"lukechampine.com/blake3"
)

const (
	// workIdle is how long a client may take for its next operation.
	workIdle = 2 * time.Minute
	// workBatch is how much of an answer is collected before it is sent, bytes.
	workBatch = 64 << 10
	// linkMemory is what a count takes to remember a file with several names, bytes, and linksAtOnce
	// for how many it takes that at a time.
	linkMemory  = 40
	linksAtOnce = 4096
)

// fileWork serves a Files: the client works on entries one by one.
type fileWork struct {
	*request
	share *liveShare
	scope *access.Scope
	flow  *pace.Queue // of what files hold
	out   []byte      // not sent yet
	did   wire.Operated
}

func newFileWork(q *request) handler { return &fileWork{request: q} }

func (x *fileWork) serve(ctx context.Context) error {
	var err error
	if x.share, x.scope, err = x.request.scope(); err != nil {
		return err
	}
	x.admit()
	_, x.flow = x.flows(new(rateLimit))
	stop := context.AfterFunc(ctx, func() { _ = x.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := x.add(x.welcome(0)); err != nil {
		return err
	}
	log := x.log.With("share", x.hello.Share)
	log.Info("work on files begins")
	paths, err := x.work(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	log.Info("work on files ends", "paths", paths, "error", err)
	return err
}

// work does what the client asks for until it closes the stream. It returns on how many paths.
func (x *fileWork) work(ctx context.Context) (paths int, err error) {
	r := wire.NewReader(x.conn, wire.MaxMessage)
	for {
		if err := x.flush(); err != nil {
			return paths, err
		}
		_ = x.conn.SetReadDeadline(time.Now().Add(workIdle))
		if ctx.Err() != nil { // the deadline that ended reading may be gone
			return paths, ctx.Err()
		}
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return paths, nil
		}
		if err != nil {
			return paths, err
		}
		op, ok := m.(*wire.Operation)
		if !ok {
			return paths, wire.Errorf(wire.CodeProtocol, "expected an operation")
		}
		if op.Do == wire.OpMove && !op.Into && len(op.Paths) != 1 {
			return paths, wire.Errorf(wire.CodeProtocol, "%d paths can't have one name", len(op.Paths))
		}
		for _, p := range op.Paths {
			if err := x.operate(ctx, op, p); err != nil {
				return paths, err
			}
			paths++
		}
	}
}

// operate does an operation on one path, and answers. The error is that of the session.
func (x *fileWork) operate(ctx context.Context, op *wire.Operation, p string) error {
	content := strings.HasSuffix(p, "/")
	p, to := seriesPath(p), ""
	if op.Do == wire.OpMove {
		if to = seriesPath(op.To); op.Into {
			to = path.Join(to, path.Base(p))
		}
	}
	x.did = wire.Operated{}
	err := x.do(ctx, op, p, to, content)
	x.audit.operation(op, p, to, &x.did, err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		refused := x.refusalOf(op.Do, p, err)
		x.did = wire.Operated{Code: refused.Code, Text: refused.Text}
	}
	return x.add(&x.did)
}

func (x *fileWork) do(
	ctx context.Context, op *wire.Operation, p, to string, content bool,
) error {
	switch op.Do {
	case wire.OpList, wire.OpStat, wire.OpUsage, wire.OpRead:
		return x.look(ctx, op, p, content)
	case wire.OpMkdir:
		return x.mkdir(ctx, p, op.Recursive)
	case wire.OpMove:
		return x.move(ctx, p, to, op.Replace)
	case wire.OpRemove:
		if op.DryRun {
			return x.wouldRemove(ctx, p, op.Recursive)
		}
		return x.remove(ctx, p, op.Recursive)
	}
	return wire.Errorf(wire.CodeUnsupported, "the server does not know operation %d", op.Do)
}

// look does an operation that only reads, where links lead elsewhere in the share. content asks for
// what a link at the end of the path leads to.
func (x *fileWork) look(
	ctx context.Context, op *wire.Operation, p string, content bool,
) error {
	effect := access.Names
	if op.Do == wire.OpRead {
		effect = access.Read
	}
	content = content || op.Do == wire.OpRead || op.Do == wire.OpList
	at, err := x.scope.Follow(effect, p, content)
	if err != nil {
		return err
	}
	switch op.Do {
	case wire.OpList:
		return x.list(ctx, at, op.Recursive)
	case wire.OpStat:
		return x.stat(ctx, at, p)
	case wire.OpUsage:
		return x.usage(ctx, at)
	default:
		return x.read(ctx, at)
	}
}

// may asks for an effect on the entry at p.
func (x *fileWork) may(ctx context.Context, e access.Effect, p string) error {
	right, err := x.scope.May(e, p)
	if err != nil {
		return err
	}
	return x.needs(ctx, right)
}

// needs notes that the session takes a right. A session may last long: if it is one more than
// before, the client must still have it.
func (x *fileWork) needs(ctx context.Context, right identity.Rights) error {
	if x.uses(right) {
		return x.server.keeps(ctx, x.reservation)
	}
	return nil
}

// mayList is may for a listing. A client that may append sees what is its own anywhere.
func (x *fileWork) mayList(ctx context.Context) error {
	has := x.rightsOn(x.share)
	for _, right := range []identity.Rights{identity.List, identity.Append} {
		if has.Has(right) {
			return x.needs(ctx, right)
		}
	}
	return access.RefuseRight(x.hello.Share, identity.List)
}

func (x *fileWork) list(ctx context.Context, p string, recursive bool) error {
	if !recursive {
		if err := x.mayList(ctx); err != nil {
			return err
		}
		left, err := x.scope.List(ctx, p, func(m disk.Meta) error { return x.entry(m, path.Base(m.Path)) })
		return cmp.Or(err, x.lacks(left))
	}
	if err := x.may(ctx, access.Names, p); err != nil {
		return err
	}
	var stop error
	var left access.Omitted
	err := x.scope.Walk(ctx, p, disk.WalkOptions{Foreign: true}, func(m disk.Meta) error {
		switch {
		case m.Path != p:
			return x.entry(m, below(p, m.Path))
		case m.Kind != disk.Dir:
			return x.entry(m, path.Base(p))
		}
		return nil
	}, func(_ string, err error) {
		if errors.Is(err, disk.ErrPath) {
			left.Add(err)
			return
		}
		why := &wire.EntryFailed{Index: wire.NoEntry, Code: wire.CodeSourceDisk, Text: err.Error()}
		stop = cmp.Or(stop, x.add(why))
	})
	return cmp.Or(err, stop, x.lacks(left))
}

// lacks reports the entries that a list lacks.
func (x *fileWork) lacks(left access.Omitted) error {
	if left.Count == 0 {
		return nil
	}
	return x.add(omission(left))
}

// below returns the path of an entry relative to a folder above it.
func below(folder, p string) string {
	if folder == "." {
		return p
	}
	return p[len(folder)+1:]
}

// entry sends an entry under a name.
func (x *fileWork) entry(m disk.Meta, as string) error {
	e := transfer.EntryOf(m, as)
	err := x.add(&wire.Entries{First: x.did.Entries, Entries: []wire.Entry{e}})
	x.did.Entries++
	return err
}

// stat describes the entry at p, and gives it a name.
func (x *fileWork) stat(ctx context.Context, p, as string) error {
	if err := x.may(ctx, access.Names, p); err != nil {
		return err
	}
	m, err := x.scope.Stat(p)
	if err != nil {
		return err
	}
	return x.entry(m, as)
}

func (x *fileWork) usage(ctx context.Context, p string) error {
	if err := x.may(ctx, access.Names, p); err != nil {
		return err
	}
	counted := links{memory: x.client.memory}
	defer counted.forget()
	var unread error
	err := x.patiently(func() error {
		return x.scope.Walk(ctx, p, disk.WalkOptions{}, func(m disk.Meta) error {
			if m.Path == p && m.Kind == disk.Dir {
				return nil
			}
			x.did.Entries++
			if m.Kind == disk.File && m.Nlink > 1 {
				if again, err := counted.again(m.ID); again || err != nil {
					return err
				}
			}
			x.did.Bytes += uint64(max(0, m.Size))
			return nil
		}, func(_ string, err error) {
			if !errors.Is(err, fs.ErrNotExist) {
				unread = cmp.Or(unread, err)
			}
		})
	})
	return cmp.Or(err, unread)
}

// links remembers the files with several names that a count has seen, to count each once.
type links struct {
	memory *transfer.Account // of the client
	seen   map[inode]struct{}
	taken  int64 // of the memory
}

type inode struct{ number, dev uint64 }

// again reports whether a file was counted before. It fails if there is no memory to remember it.
func (l *links) again(id disk.Identity) (bool, error) {
	file := inode{id.Ino, id.Dev}
	if _, again := l.seen[file]; again || file.number == 0 {
		return again, nil
	}
	if len(l.seen)%linksAtOnce == 0 {
		if !l.memory.TryTake(linksAtOnce * linkMemory) {
			return false, wire.Errorf(wire.CodeBusy, "there is no memory to count files with several names")
		}
		l.taken += linksAtOnce * linkMemory
	}
	if l.seen == nil {
		l.seen = make(map[inode]struct{})
	}
	l.seen[file] = struct{}{}
	return false, nil
}

// forget gives the memory back.
func (l *links) forget() { l.memory.Give(l.taken) }

func (x *fileWork) read(ctx context.Context, p string) error {
	if err := x.may(ctx, access.Read, p); err != nil {
		return err
	}
	if err := x.scope.Intact(p); err != nil {
		return err
	}
	f, err := x.scope.OpenFile(p)
	if err != nil {
		return err
	}
	defer f.Close()
	hash, buf := blake3.New(32, nil), make([]byte, workBatch)
	for size := f.Identity().Size; int64(x.did.Bytes) < size; {
		n := int(min(int64(len(buf)), int64(x.flow.Step()), size-int64(x.did.Bytes)))
		if err := x.flow.Wait(ctx, n); err != nil {
			return err
		}
		n, err := f.ReadAt(buf[:n], int64(x.did.Bytes))
		if n == 0 {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
		_, _ = hash.Write(buf[:n])
		if err := x.add(&wire.Content{Data: buf[:n]}); err != nil {
			return err
		}
		x.did.Bytes += uint64(n)
	}
	if err := f.Unchanged(); err != nil {
		return err
	}
	hash.Sum(x.did.Digest[:0])
	if x.scope.InSnapshot(p) {
		if err := x.scope.Compare(p, f.Identity(), x.did.Digest); err != nil {
			return err
		}
	}
	x.server.counters.update(x.hello.Share, false, func(t *ShareTraffic) { t.Bytes += int64(x.did.Bytes) })
	return nil
}

func (x *fileWork) mkdir(ctx context.Context, p string, parents bool) error {
	if err := x.may(ctx, access.Write, p); err != nil {
		return err
	}
	for i := range p {
		if ctx.Err() != nil { // a deep path takes long
			return ctx.Err()
		}
		if parents && p[i] == '/' {
			if err := x.makeMissing(ctx, p[:i]); err != nil {
				return err
			}
		}
	}
	if parents {
		return x.makeMissing(ctx, p)
	}
	return x.makeFolder(ctx, p)
}

// makeMissing makes a folder unless it exists.
func (x *fileWork) makeMissing(ctx context.Context, p string) error {
	for again := false; ; again = true {
		have, err := x.scope.Stat(p)
		if err == nil && have.Kind == disk.Dir {
			return nil
		}
		err = x.makeFolder(ctx, p)
		if again || !errors.Is(err, disk.ErrExists) { // somebody else may have made it just now
			return err
		}
	}
}

func (x *fileWork) makeFolder(ctx context.Context, p string) error {
	if err := x.share.quota.Take(ctx, 0, 1); err != nil {
		return err
	}
	err := x.scope.MakeDir(p, 0o755)
	x.share.quota.Settle(0, 1, err == nil)
	return err
}

func (x *fileWork) move(ctx context.Context, p, to string, replace bool) error {
	for _, p := range []string{p, to} {
		if err := x.may(ctx, access.Write, p); err != nil {
			return err
		}
	}
	if p == "." || to == "." {
		return errShareItself
	}
	moved := x.share.quota.Moving()
	defer moved()
	err := x.patiently(func() error { return x.scope.Move(ctx, p, to, replace) })
	if replace {
		x.share.quota.Freed()
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := x.scope.Stat(p); there == nil {
			return x.absent(path.Dir(to))
		}
	}
	return err
}

func (x *fileWork) remove(ctx context.Context, p string, recursive bool) error {
	if err := x.may(ctx, access.Write, p); err != nil {
		return err
	}
	if p == "." {
		return errShareItself
	}
	defer x.share.quota.Freed()
	if !recursive {
		return x.scope.RemoveOne(p)
	}
	return x.patiently(func() error { return x.scope.RemoveAll(ctx, p) })
}

// wouldRemove sends what remove would remove.
func (x *fileWork) wouldRemove(ctx context.Context, p string, recursive bool) error {
	for _, e := range []access.Effect{access.Write, access.Names} {
		if err := x.may(ctx, e, p); err != nil {
			return err
		}
	}
	if p == "." {
		return errShareItself
	}
	if _, err := x.scope.Removal(ctx, p); err != nil {
		return err
	}
	if !recursive { // before anything is reported
		err := x.scope.Walk(ctx, p, disk.WalkOptions{}, func(m disk.Meta) error {
			if m.Path != p {
				return fmt.Errorf("remove %s: %w", p, disk.ErrNotEmpty)
			}
			return nil
		}, func(string, error) {})
		if err != nil {
			return err
		}
	}
	return x.scope.Walk(ctx, p, disk.WalkOptions{}, func(m disk.Meta) error {
		return x.add(&wire.Removed{Kind: wire.Kind(m.Kind), Path: m.Path})
	}, func(string, error) {})
}

var errShareItself = wire.Errorf(wire.CodePath, "the share itself can't be moved or removed")

func (x *fileWork) absent(p string) *wire.Error {
	return wire.Errorf(wire.CodeNotFound, "%q does not exist in share %q", p, x.hello.Share)
}

// refusalOf tells the client why an operation on the entry at p failed.
func (x *fileWork) refusalOf(do wire.Op, p string, err error) *wire.Error {
	var known *wire.Error
	code := wire.CodeSourceDisk
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, fs.ErrNotExist) && do == wire.OpMkdir:
		return x.absent(path.Dir(p))
	case errors.Is(err, fs.ErrNotExist):
		return x.absent(p)
	case errors.Is(err, disk.ErrNotEmpty):
		code = wire.CodeNotEmpty
	case errors.Is(err, disk.ErrExists):
		code = wire.CodeTaken
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder):
		code = wire.CodePath
	case errors.Is(err, disk.ErrNoSpace):
		code = wire.CodeNoSpace
	case errors.Is(err, disk.ErrChanged):
		code = wire.CodeChanged
	case errors.Is(err, disk.ErrUnsupportedKind):
		if m, statErr := x.scope.Stat(p); statErr == nil && m.Kind == disk.Dir {
			if p == "." { // the client wrote none
				return wire.Errorf(wire.CodeFolder, "the share %q is a folder", x.hello.Share)
			}
			return wire.Errorf(wire.CodeFolder, "%q is a folder", p)
		}
		return wire.Errorf(wire.CodeUnsupported, "%q is not a regular file", p)
	case do == wire.OpMkdir, do == wire.OpMove, do == wire.OpRemove:
		code = wire.CodeTargetDisk
	}
	return &wire.Error{Code: code, Text: err.Error()}
}

// patiently runs do, and shows the client meanwhile that it does. It sends what was to be sent before.
func (x *fileWork) patiently(do func() error) error {
	if err := x.flush(); err != nil {
		return err
	}
	defer x.showWork()()
	return do()
}

// add appends a message to what is sent next.
func (x *fileWork) add(m wire.Message) error {
	x.out = wire.Append(x.out, m)
	if len(x.out) < workBatch {
		return nil
	}
	return x.flush()
}

func (x *fileWork) flush() error {
	err := x.writeMessages(x.out, workIdle)
	x.out = x.out[:0]
	return err
}

// opOutcomes are the outcomes of operations that are recorded: those that change or show files.
var opOutcomes = map[wire.Op]string{
	wire.OpRead: "read", wire.OpMkdir: "made", wire.OpMove: "moved", wire.OpRemove: "removed",
}

// operation records an operation on one path.
func (a *audit) operation(op *wire.Operation, p, to string, did *wire.Operated, err error) {
	outcome := opOutcomes[op.Do]
	if a == nil || outcome == "" || op.DryRun {
		return
	}
	attrs := pathAttrs(p)
	if to != "" {
		attrs = append(attrs, "to", strings.ToValidUTF8(to, "\ufffd"))
	}
	switch {
	case err != nil:
		outcome = "failed"
		attrs = append(attrs, "error", wire.Printable(err.Error()))
	case op.Do == wire.OpRead:
		attrs = append(attrs, "bytes", did.Bytes)
	}
	a.log.Info("entry", append(attrs, "outcome", outcome)...)
}
