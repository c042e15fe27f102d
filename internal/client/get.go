package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Get receives files and folders from one share. They go into target if that is a folder or ends
// with a slash; otherwise a single file gets its name. A source that ends with a slash stands for
// the contents of that folder. If entries failed, both a Report and an *Error are returned.
//
// If target is a device, a pipe, or in /proc or /sys, it is never replaced: one file is written to
// it, as by GetTo.
//
// With Target.Snapshot, target is a folder for a series of snapshots of its own, which is made if it
// is not there, in a folder that is.
func (c *Client) Get(ctx context.Context, sources []session.URL, target string, call Transfer) (*session.Report, error) {
	if err := call.checkGet(); err != nil {
		return nil, err
	}
	if isSpecial(target) {
		return c.getSpecial(ctx, sources, target, call)
	}
	hello, err := pullOf(sources)
	if err != nil {
		return nil, err
	}
	hello.Select = call.Selection.wire(c.opt.Compress)
	if call.Target.Snapshot != "" {
		return c.getSnapshot(ctx, sources[0], hello, target, &call)
	}
	tree, below, err := openTarget(target, access.Asked{
		Names: namesOf(&hello), BackupDir: call.Target.BackupDir, Privileged: call.Target.Privileged,
	})
	if err != nil {
		failed := &session.Error{Kind: session.KindLocalDisk, Err: err}
		if errors.Is(err, fs.ErrNotExist) {
			failed.Advice = session.AdviceMakeFolder
		}
		return nil, failed
	}
	defer tree.Close()
	return c.transfer(ctx, sources[0], hello, &pull{args: []string{target}, tree: tree, below: below}, &call)
}

// pullOf asks for the sources, which must be in one share.
func pullOf(sources []session.URL) (hello wire.Hello, err error) {
	if len(sources) == 0 {
		return hello, session.Usage("name a source", "there is nothing to get")
	}
	first := &sources[0]
	hello = wire.Hello{Intent: wire.Pull, Share: first.Share}
	for _, u := range sources {
		if u.Host != first.Host || u.Port != first.Port || u.Share != first.Share {
			return hello, session.Usage("get them one after the other", "sources are on different servers or shares")
		}
		hello.Paths = append(hello.Paths, sourcePath(u))
	}
	return hello, nil
}

// sourcePath is how a request names what u stands for. A slash at the end asks for the content of a
// folder, and of the folder that a link leads to.
func sourcePath(u session.URL) string {
	if u.TrailingSlash {
		return u.Path + "/"
	}
	return u.Path
}

// openTarget opens the folder to receive into and returns the path below it.
func openTarget(target string, asked access.Asked) (*access.Scope, string, error) {
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		asked.Base = "."
		tree, err := access.OpenTarget(target, asked)
		return tree, ".", err
	}
	below := filepath.Base(target)
	asked.Base = below
	tree, err := access.OpenTarget(filepath.Dir(filepath.Clean(target)), asked)
	if strings.HasSuffix(target, "/") || strings.HasSuffix(target, string(filepath.Separator)) {
		below += "/"
	}
	return tree, below, err
}

// toWriter stands for the target of GetTo.
const toWriter = "-"

// pull is the intent to receive files.
type pull struct {
	args  []string // what the user named
	tree  *access.Scope
	below string // path of the target in tree
	once  bool   // the tree is temporary
}

func (p *pull) sends() bool { return false }

func (p *pull) repeatable() bool { return true }

func (p *pull) resumes() bool { return !p.once }

func (p *pull) named() []string { return p.args }

func (p *pull) absent(hello *wire.Hello) bool {
	names := namesOf(hello)
	if names == nil {
		return isVacant(p.args[0])
	}
	for _, name := range names {
		tree, at := p.local(name)
		if _, err := tree.Stat(at); err == nil {
			return false
		}
	}
	return true
}

// isVacant reports whether a path has nothing, or a folder without entries, partial files included.
func isVacant(at string) bool {
	info, err := os.Stat(at)
	if err != nil || !info.IsDir() {
		return errors.Is(err, fs.ErrNotExist)
	}
	f, err := os.Open(at)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

func (p *pull) local(entry string) (*access.Scope, string) {
	at := strings.TrimSuffix(p.below, "/")
	if m, err := p.tree.Stat(at); err == nil && m.Kind == disk.Dir {
		at = path.Join(at, entry)
	}
	return p.tree, at
}

func (p *pull) where(entry string) string {
	target := p.args[0]
	info, err := os.Stat(target)
	switch {
	case target == toWriter:
		return ""
	case err == nil && info.IsDir():
		return filepath.Join(target, entry)
	}
	return target
}

func (p *pull) folder() string {
	switch {
	case p.args[0] == toWriter:
		return os.TempDir()
	case p.below == ".":
		return filepath.Clean(p.args[0])
	}
	return filepath.Dir(filepath.Clean(p.args[0]))
}

// out has no limit: the server observes that of what it sends.
func (p *pull) out(*Throttle) *pace.Queue { return NewThrottle(0).queue() }

func (p *pull) engine(_ context.Context, s *transferSession, control transport.Conn, r *wire.Reader) (session.Engine, error) {
	return session.NewReceiver(control, r, p.tree, transfer.ReceiverOptions{
		Path: p.below, Target: s.hello.Target, Names: namesOf(&s.hello), Leave: true, Clock: s.clock,
		Event: s.tracker.Event, Message: s.message,
	}), nil
}

// namesOf returns the names that a server may send in answer to a Pull; nil is any name, because a
// folder's contents were asked for.
func namesOf(m *wire.Hello) (names []string) {
	for _, p := range m.Paths {
		name := path.Base(cmp.Or(p, m.Share))
		if strings.HasSuffix(p, "/") || name == "." {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// GetTo receives one file and writes it to w. The file is first received into a private folder
// below os.TempDir, which needs room for all of it, and checked there: w gets bytes in order, and
// none before all of them have passed the checks. GetTo succeeds only if w took the whole file. An
// error of w is of KindLocalDisk, and the Report then counts the file as failed. If source is not one
// regular file, the error is of KindUsage. call must not select entries.
func (c *Client) GetTo(ctx context.Context, source session.URL, w io.Writer, call Transfer) (*session.Report, error) {
	if err := call.checkGetTo(); err != nil {
		return nil, err
	}
	if w == nil {
		return nil, session.Usage("name a writer", "there is nowhere to write to")
	}
	if source.Share != "" && (source.Path == "" || source.TrailingSlash) {
		return nil, notOneFile(source)
	}
	dir, err := os.MkdirTemp("", "fxfer-get-*")
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	remove := func() { _ = os.RemoveAll(dir) }
	defer remove()
	tree, err := access.OpenTarget(dir, access.Asked{Base: fileName, Private: true})
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	defer tree.Close()
	report, err := c.receiveOne(ctx, source, tree, call)
	if err != nil {
		return report, err
	}
	if err := copyFile(ctx, w, tree, source, remove); err != nil {
		report.Sent, report.Failed = 0, 1
		return report, err
	}
	return report, nil
}

// fileName is the name of the one file that GetTo receives.
const fileName = "file"

// receiveOne receives source into tree. It stops when source turns out to have several files.
func (c *Client) receiveOne(ctx context.Context, source session.URL, tree *access.Scope, call Transfer) (*session.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	several := false
	show := call.Progress
	call.Progress = func(p session.Progress) {
		if p.Files > 1 {
			several = true
			cancel()
		}
		if show != nil {
			show(p)
		}
	}
	call.Target.Sync = session.SyncNone // the copy is temporary
	hello := wire.Hello{Intent: wire.Pull, Share: source.Share, Paths: []string{source.Path}}
	hello.Select = call.Selection.wire(c.opt.Compress)
	report, err := c.transfer(ctx, source, hello, &pull{args: []string{toWriter}, tree: tree, below: fileName, once: true}, &call)
	if several {
		err = notOneFile(source)
	}
	return report, err
}

// copyFile copies the file that GetTo received. It calls remove while it has the file open: the
// reader of a pipe may end early, and then SIGPIPE ends this process at once.
func copyFile(ctx context.Context, w io.Writer, tree *access.Scope, source session.URL, remove func()) error {
	if m, err := tree.Stat(fileName); err != nil || m.Kind != disk.File {
		return notOneFile(source)
	}
	f, err := tree.OpenFile(fileName)
	if err != nil {
		return &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	defer f.Close()
	remove() // on Windows, only GetTo can
	size := f.Identity().Size
	n, err := io.Copy(w, &untilDone{ctx, io.NewSectionReader(f, 0, size)})
	switch {
	case ctx.Err() != nil:
		return &session.Error{Kind: session.KindInterrupted, Err: interrupted(ctx)}
	case err != nil:
		return &session.Error{Kind: session.KindLocalDisk, Err: fmt.Errorf("after %d of %d bytes: %w", n, size, err)}
	case n != size:
		return fmt.Errorf("after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	return nil
}

// untilDone is a Reader that ends with its context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

func notOneFile(u session.URL) error {
	return session.Usage("name one file", "%s is not one regular file", u.Redacted())
}
