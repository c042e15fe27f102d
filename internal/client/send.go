package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Send sends files and folders to target. A source that ends with a slash stands for the contents
// of that folder. If entries failed, both a Report and an *Error are returned.
func (c *Client) Send(ctx context.Context, sources []string, target session.URL, call Transfer) (*session.Report, error) {
	if err := call.check(); err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, session.Usage("name a source", "there is nothing to send")
	}
	selected, _ := call.Selection.filter() // checked
	source := &transfer.TreeSource{
		Filter: selected, OneFileSystem: call.Selection.OneFileSystem,
		DryRun: call.Target.DryRun, Paths: call.Selection.Files, Intact: call.Selection.Intact,
		Part: call.Selection.Part, Shard: call.Selection.Shard,
	}
	defer func() {
		for _, r := range source.Roots {
			_ = r.Tree.Close()
		}
	}()
	for _, s := range sources {
		root, err := openSource(s, call.Selection.Within)
		if err != nil {
			return nil, err
		}
		source.Roots = append(source.Roots, root)
	}
	if source.Paths != nil && (len(source.Roots) != 1 || source.Roots[0].As != "" && !source.Part) {
		return nil, session.Usage("name one such folder",
			"a list of files selects from one folder, whose name must end with a slash")
	}
	p := &push{args: sources, source: source, roots: source.Roots}
	return c.send(ctx, p, target, &call)
}

// SendStream sends r, whose length need not be known, as one file. The file appears under its name
// only after r has returned io.EOF and everything has arrived. A stream is read once, so a lost
// connection ends it. An error of r is of KindLocalDisk.
func (c *Client) SendStream(ctx context.Context, r io.Reader, target session.URL, call Transfer) (*session.Report, error) {
	if err := call.checkStream(); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, session.Usage("name a reader", "there is nothing to send")
	}
	if target.Path == "" || target.TrailingSlash {
		return nil, session.Usage("name the file: "+target.Redacted()+"/NAME", "a stream has no name of its own")
	}
	name := target.Path[strings.LastIndexByte(target.Path, '/')+1:]
	if call.Target.Snapshot != "" {
		target.Path = strings.TrimSuffix(strings.TrimSuffix(target.Path, name), "/")
	}
	source := &transfer.StreamSource{R: r, Entry: wire.Entry{
		Kind: wire.File, Path: name, Size: wire.Unknown, ModTime: time.Now().UnixNano(), Mode: 0o644,
	}}
	return c.send(ctx, &push{args: []string{"-"}, source: source, once: true}, target, &call)
}

// send runs a push.
func (c *Client) send(ctx context.Context, p *push, target session.URL, call *Transfer) (*session.Report, error) {
	if call.Target.Privileged {
		return nil, session.Usage("the server's share decides that", "privileges are kept where they are received")
	}
	hello := wire.Hello{Intent: wire.Push, Share: target.Share, Paths: []string{below(target)}}
	if call.Target.Snapshot != "" && target.Share != "" {
		name, err := c.snapshotToSend(ctx, target, call.Target.Snapshot)
		if err != nil {
			return nil, err
		}
		hello.Intent, hello.Snapshot = wire.Store, name
	}
	return c.transfer(ctx, target, hello, p, call)
}

// below is the path of a target in its share, as Hello has it.
func below(target session.URL) string {
	if target.TrailingSlash && target.Path != "" {
		return target.Path + "/"
	}
	return target.Path
}

// push is the intent to send files.
type push struct {
	args   []string // what the user named
	source transfer.Source
	roots  []transfer.Root // of source, where it is on disk
	once   bool            // source can be read only once
	of     *session.Source // of another user's; nil for this host's own
}

func (p *push) sends() bool { return true }

func (p *push) repeatable() bool { return !p.once }

func (p *push) resumes() bool { return !p.once }

func (p *push) named() []string { return p.args }

// absent is true: what this host has does not matter to the target.
func (p *push) absent(*wire.Hello) bool { return true }

func (p *push) local(entry string) (*access.Scope, string) { return sourceOf(p.roots, entry) }

// where returns "" if more than one source may have the entry.
func (p *push) where(entry string) (at string) {
	for i, r := range p.roots {
		rest, below := entry, true
		if r.As != "" {
			rest, below = strings.CutPrefix(entry, r.As)
			below = below && (rest == "" || rest[0] == '/')
		}
		switch {
		case below && at != "":
			return ""
		case below:
			at = filepath.Join(p.args[i], rest)
		}
	}
	return at
}

func (p *push) folder() string { return "" }

func (p *push) engine(_ context.Context, s *transferSession, control transport.Conn, r *wire.Reader) (session.Engine, error) {
	coder, err := compress.Parse(s.client.opt.Compress)
	if err != nil {
		return nil, err
	}
	event := s.tracker.Event
	if p.of != nil {
		theirs := session.PartsOf(p.of).Event
		event = func(e *transfer.Event) {
			theirs(e)
			s.tracker.Event(e)
		}
	}
	return session.NewSender(control, r, p.source, transfer.SenderOptions{
		Speculate: s.fresh, Streams: s.gate.bound(s.first), Near: !s.relayed() && session.Near(control),
		Delta: s.hello.Target.Delta, Prune: s.hello.Target.Delete, Coder: coder, Clock: s.clock, Event: event, WalkFailed: s.tracker.WalkFailed,
		Message: s.message,
	}), nil
}

// out returns what paces the data streams of a session: of a user's source, the user's limits.
func (p *push) out(limit *Throttle) *pace.Queue {
	if p.of != nil {
		return session.PartsOf(p.of).Out()
	}
	return limit.queue()
}

// sourceOf returns where an entry of the manifest is on this host; the tree is nil if it is
// nowhere.
func sourceOf(roots []transfer.Root, entry string) (*access.Scope, string) {
	for _, r := range roots {
		rest, below := entry, true
		if r.As != "" {
			rest, below = strings.CutPrefix(entry, r.As)
			below = below && (rest == "" || rest[0] == '/')
		}
		if at := path.Join(r.Path, rest); below {
			if _, err := r.Tree.Stat(at); err == nil || len(roots) == 1 {
				return r.Tree, at
			}
		}
	}
	return nil, ""
}

// openSource opens one source argument, which has to be in one of the folders within, unless that is nil.
func openSource(s string, within []string) (transfer.Root, error) {
	root, err := sourceRoot(s, within)
	if known := (*session.Error)(nil); err != nil && !errors.As(err, &known) {
		err = &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	return root, err
}

func sourceRoot(s string, within []string) (transfer.Root, error) {
	denied := &session.Error{Kind: session.KindUsage, Err: fmt.Errorf("this host may not read %s", s)}
	if _, err := os.Lstat(s); err != nil {
		if within != nil && !missingWithin(s, within) {
			return transfer.Root{}, denied
		}
		return transfer.Root{}, atSource(s, err)
	}
	dir, r := s, transfer.Root{Path: ".", Name: s, Leaves: true}
	if last := s[strings.LastIndexAny(s, `/`+string(filepath.Separator))+1:]; last != "" && last != "." && last != ".." {
		dir, r.Path = filepath.Dir(s), filepath.Base(s)
		r.As = r.Path
	}
	var err error
	if within == nil {
		r.Tree, err = access.OpenSource(dir)
		return r, err
	}
	in, rest, err := placeWithin(dir, within)
	if in == "" && r.As != "" && err == nil { // s may be one of the folders itself
		if in, rest, _ = placeWithin(s, within); rest != "." {
			in = ""
		}
		r.Path = "."
	}
	if in == "" { // whatever err says: nobody learns what else this host has
		return r, denied
	}
	r.Tree, err = access.OpenSourceIn(in, rest)
	return r, err
}

// missingWithin reports whether a source that cannot be found is in one of the folders within: its deepest part
// that exists is, or that folder itself is missing.
func missingWithin(s string, within []string) bool {
	for _, w := range within {
		rest, err := filepath.Rel(w, s)
		if _, missing := os.Stat(w); missing != nil && err == nil && filepath.IsLocal(rest) {
			return true
		}
	}
	at := filepath.Clean(s)
	for up := filepath.Dir(at); up != at; at, up = up, filepath.Dir(up) {
		if _, err := os.Lstat(at); err == nil {
			break
		}
	}
	in, _, err := placeWithin(at, within)
	return err == nil && in != ""
}

// placeWithin finds a place in one of the folders within, "" if it is in none of them. What it returns holds no
// longer than until somebody exchanges a folder for a symlink.
func placeWithin(dir string, within []string) (in, rest string, err error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", "", err
	}
	for _, w := range within {
		root, err := filepath.EvalSymlinks(w)
		if err != nil {
			continue
		}
		if rest, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(rest) {
			return w, rest, nil
		}
	}
	return "", "", nil
}

// atSource is an error of the system with the source as the user named it.
func atSource(s string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = fmt.Errorf("%s: %w", s, p.Err)
	}
	return err
}
