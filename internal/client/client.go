package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/wire"
)

// Client sends to and gets from servers. Its methods are safe for concurrent use.
type Client struct {
	opt   Options
	store *identity.Store
	key   ed25519.PrivateKey
	pin   identity.Pin // expected of any server, or ""

	authorities *identity.Authorities // that vouch for servers; nil for keys
	pair        *identity.KeyPair     // that this client presents in the place of its key, or nil
}

// NewClient loads or makes this host's identity.
func NewClient(opt Options) (*Client, error) {
	opt.Transport = cmp.Or(opt.Transport, session.TransportAuto)
	if opt.MaxStreams == 0 {
		opt.MaxStreams = max(DefaultMaxStreams, opt.Streams)
		if opt.Transport == session.TransportQUIC {
			opt.MaxStreams = session.MaxStreams // NewReno needs more of them where segments are lost
		}
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Transport == session.TransportAuto && (opt.SockBuf != 0 || opt.Congestion != "") {
		opt.Transport = session.TransportTCP // only it has them
	}
	c := &Client{opt: opt}
	if opt.Pin != "" {
		pin, err := identity.ParsePin(opt.Pin)
		if err != nil {
			return nil, &session.Error{Kind: session.KindUsage, Err: err}
		}
		c.pin = pin
	}
	if err := c.openTLS(); err != nil {
		return nil, err
	}
	var err error
	c.store, c.key, err = session.OpenIdentity(opt.Home)
	return c, err
}

// Send sends files and folders. A source that ends with a slash stands for what it holds. If entries failed,
// the Report comes with an *Error.
func (c *Client) Send(ctx context.Context, sources []string, target session.URL) (*session.Report, error) {
	selected, err := c.opt.Source.filter()
	if err != nil {
		return nil, err
	}
	source := transfer.TreeSource{Filter: selected, OneFileSystem: c.opt.Source.OneFileSystem, Paths: c.opt.Source.Files}
	defer func() {
		for _, r := range source.Roots {
			_ = r.Tree.Close()
		}
	}()
	for _, s := range sources {
		root, err := openSource(s)
		if err != nil {
			return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
		}
		source.Roots = append(source.Roots, root)
	}
	if c.opt.Source.Files != nil && (len(source.Roots) != 1 || source.Roots[0].As != "") {
		return nil, session.Usage("for example: send --files-from LIST FOLDER/ URL", "a list of files is of one folder, and its source must end with a slash")
	}
	local := func(path string) (*disk.Tree, string) { return sourceOf(source.Roots, path) }
	return c.push(ctx, &source, sources, target, local)
}

// sourceOf returns the place that an entry comes from, nil if there is none.
func sourceOf(roots []transfer.Root, entry string) (*disk.Tree, string) {
	for _, r := range roots {
		rest, below := entry, true
		if r.As != "" {
			rest, below = strings.CutPrefix(entry, r.As)
			below = below && (rest == "" || rest[0] == '/')
		}
		if place := path.Join(r.Path, rest); below {
			if _, err := r.Tree.Stat(place); err == nil || len(roots) == 1 {
				return r.Tree, place
			}
		}
	}
	return nil, ""
}

// openSource opens one source argument.
func openSource(s string) (transfer.Root, error) {
	if _, err := os.Lstat(s); err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = fmt.Errorf("%s: %w", s, p.Err)
		}
		return transfer.Root{}, err
	}
	last := s[strings.LastIndexAny(s, `/`+string(filepath.Separator))+1:]
	if last == "" || last == "." || last == ".." {
		tree, err := disk.Open(s)
		return transfer.Root{Tree: tree, Path: "."}, err
	}
	tree, err := disk.Open(filepath.Dir(s))
	base := filepath.Base(s)
	return transfer.Root{Tree: tree, Path: base, As: base}, err
}

// SendStream sends r, whose length need not be known, as one file. It cannot be resumed: what r gave is gone. The
// file appears under its name only after r ended with io.EOF and everything arrived.
func (c *Client) SendStream(ctx context.Context, r io.Reader, target session.URL) (*session.Report, error) {
	if err := c.opt.checkStream(); err != nil {
		return nil, err
	}
	if target.Path == "" || target.TrailingSlash {
		return nil, session.Usage("name the file: "+target.Redacted()+"/NAME", "a stream has no name of its own")
	}
	name := target.Path[strings.LastIndexByte(target.Path, '/')+1:]
	if c.opt.Target.Snapshot != "" {
		target.Path = strings.TrimSuffix(target.Path[:len(target.Path)-len(name)], "/")
	}
	source := &transfer.StreamSource{R: r, Entry: wire.Entry{
		Kind: wire.File, Path: name, Size: wire.Unknown, ModTime: time.Now().UnixNano(), Mode: 0o644,
	}}
	return c.push(ctx, source, []string{"-"}, target, nil)
}

// push sends a source. local is where its entries are on this host, nil of a stream.
func (c *Client) push(ctx context.Context, source transfer.Source, what []string, target session.URL, local place) (*session.Report, error) {
	below := target.Path
	if target.TrailingSlash && below != "" {
		below += "/"
	}
	hello := wire.Hello{Intent: wire.Push, Share: target.Share, Paths: []string{below}}
	if c.opt.Target.Snapshot != "" && target.Share != "" {
		name, err := c.snapshotOf(ctx, target)
		if err != nil {
			return nil, err
		}
		hello.Intent, hello.Snapshot = wire.Store, name
	}
	return c.transfer(ctx, target, hello, what, local, func(s *clientSession) { s.source = source })
}

// Get receives files and folders from one share into target: into it if it is a folder or ends with a slash, otherwise a
// single file gets its name. A source that ends with a slash stands for what it holds.
func (c *Client) Get(ctx context.Context, sources []session.URL, target string) (*session.Report, error) {
	if err := c.opt.checkGet(); err != nil {
		return nil, err
	}
	hello := wire.Hello{Intent: wire.Pull, Share: sources[0].Share, Select: c.opt.selection()}
	for _, u := range sources {
		if u.Host != sources[0].Host || u.Port != sources[0].Port || u.Share != sources[0].Share {
			return nil, session.Usage("get them one after the other", "sources are on different servers or shares")
		}
		below := u.Path
		if u.TrailingSlash {
			below += "/"
		}
		hello.Paths = append(hello.Paths, below)
	}
	tree, below, err := openTarget(target)
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	defer tree.Close()
	local := func(entry string) (*disk.Tree, string) {
		p := strings.TrimSuffix(below, "/")
		if m, err := tree.Stat(p); err == nil && m.Kind == disk.Dir {
			p = path.Join(p, entry)
		}
		return tree, p
	}
	return c.transfer(ctx, sources[0], hello, []string{target}, local, func(s *clientSession) { s.target, s.path = tree, below })
}

// openTarget opens the folder to receive into and returns the path below it.
func openTarget(target string) (*disk.Tree, string, error) {
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		tree, err := disk.Open(target)
		return tree, ".", err
	}
	tree, err := disk.Open(filepath.Dir(filepath.Clean(target)))
	below := filepath.Base(target)
	if strings.HasSuffix(target, "/") || strings.HasSuffix(target, string(filepath.Separator)) {
		below += "/"
	}
	return tree, below, err
}

// place returns where an entry of the manifest is on this host; the tree is nil if it is nowhere.
type place func(entry string) (*disk.Tree, string)

// transfer runs sessions until one succeeds or there is no use in another. local is nil of a stream, which can't be sent again.
func (c *Client) transfer(ctx context.Context, u session.URL, hello wire.Hello, what []string, local place, prepare func(*clientSession)) (*session.Report, error) {
	if u.Share == "" {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	hello.Target, hello.RateLimit = c.opt.Target.wire(), c.opt.RateLimit
	hello.Target.Delete = hello.Target.Delete || hello.Intent == wire.Store // what an interrupted session left
	if err := session.CheckHello(&hello); err != nil {
		return nil, err
	}
	server := serverOf(u)
	follow := session.TrackerOptions{DryRun: c.opt.Target.DryRun, File: c.opt.File}
	var list *manifest // nil for none
	if c.opt.Manifest != "" && !c.opt.Target.DryRun {
		var err error
		if list, err = newManifest(c.opt.Manifest, local); err != nil {
			return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
		}
		list.exact = hello.Intent != wire.Pull
		defer list.discard()
		follow.Keep = list
	}
	t := session.NewTracker(follow)
	fresh := !c.opt.Target.DryRun && !c.opt.Target.Checksum && hello.Intent != wire.Store && c.firstTime(server, &hello, what)
	if fresh && hello.Intent == wire.Pull { // what is there may spare most of it
		for _, name := range namesOf(&hello) {
			if tree, p := local(name); tree != nil {
				_, err := tree.Stat(p)
				fresh = fresh && err != nil
			}
		}
	}
	var stats sessionStats
	alive := time.Now()
	mtu := 0
	var last [16]byte // session
	via, switched := c.firstChoice(server), false
	for try := 0; ; try++ {
		s := &clientSession{client: c, url: u, hello: hello, tracker: t, fresh: fresh, again: try > 0, mtu: mtu, via: via}
		fresh = false
		s.hello.Fresh, s.hello.Replaces = s.fresh, last
		prepare(s)
		before, began := t.Written+t.Copied, time.Now()
		err := s.run(ctx)
		last = s.hello.Session
		stats.merge(s.stats)
		via = s.chosen()
		if to := s.instead(ctx, err); to.of != "" && !switched {
			via, switched, fresh = to, true, s.fresh
			t.Begin()
			continue
		}
		// Of a stream nothing must be read twice.
		if hole := (*transport.BlackHoleError)(nil); mtu == 0 && errors.As(err, &hole) && ctx.Err() == nil && (!s.opened.Load() || local != nil) {
			mtu, stats.swallowed, stats.connecting = transport.SafeMTU, hole, time.Since(began)
			c.tellHole(hole, server)
			t.Begin()
			continue
		}
		if err != nil && t.Reconnects > 0 && errors.Is(describe(err, server), session.ErrSnapshotExists) {
			err = nil // it was the answer that was lost
			t.SetFailed(c.lacking(ctx, u, hello.Snapshot))
		}
		if err == nil && c.opt.Streams == 0 {
			c.learn(c.pathName(server, s.stats.carrier), s.stats.streams)
		}
		if err == nil {
			c.keepChoice(server, s.stats.carrier)
		}
		if worked(t.Written+t.Copied-before, s.heard.Load(), time.Since(began)) {
			alive, try = time.Now(), 0
		}
		if err == nil && list != nil {
			if n := list.unread(); n > 0 && c.opt.Notice != nil {
				c.opt.Notice(fmt.Sprintf("reading %d files for the manifest", n))
			}
			if err = list.finish(ctx, t.Fail); err != nil && ctx.Err() == nil {
				err = &session.Error{Kind: session.KindLocalDisk, Err: err}
			}
		}
		if err == nil || ctx.Err() != nil || local == nil || !temporary(err) || time.Since(alive) >= c.opt.RetryFor {
			visible := ""
			if err == nil && !c.opt.Target.DryRun {
				visible = hello.Snapshot
			}
			return c.finish(t, server, visible, &stats, describe(err, server))
		}
		wait := min(time.Second<<min(try, 4), 15*time.Second)
		wait = wait/2 + rand.N(wait) //nolint:gosec // jitter
		if c.opt.Notice != nil {
			left := c.opt.RetryFor - time.Since(alive)
			c.opt.Notice(fmt.Sprintf("%v; trying again in %.0f s, for another %v", describe(err, server), wait.Seconds(), left.Round(time.Second)))
		}
		waited := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		stats.append(diagnose.Cell{Start: waited.Sub(t.Start), Length: time.Since(waited), Limiter: diagnose.Outage})
		t.Reconnects++
		t.Begin()
	}
}

// longSession is what lasted long enough to have done something, though not a byte was written: comparing a tree takes its time.
const longSession = 30 * time.Second

// worked tells whether a session that wrote and heard so many bytes was in contact with the server, so that the time for further tries begins
// anew with its end.
func worked(written, heard int64, lasted time.Duration) bool {
	return written > 0 || heard > 0 && lasted >= longSession
}

// tellHole says that a black hole was found, and what is done about it.
func (c *Client) tellHole(hole *transport.BlackHoleError, server string) {
	if c.opt.Notice != nil {
		c.opt.Notice(fmt.Sprintf("packets of %d bytes vanish on the way %s, smaller ones arrive: going on with %d bytes", hole.Size(), hole.Way(server), transport.SafeMTU))
	}
}

// Finish makes the report, and the error that stands for the failures in it. snapshot is the one that is visible now, "" if none is.
func (c *Client) finish(t *session.Tracker, server, snapshot string, stats *sessionStats, err error) (*session.Report, error) {
	r := t.Report(server)
	r.Snapshot = snapshot
	stats.fill(r, c.opt.asked(stats.push))
	if c.opt.Progress != nil {
		c.opt.Progress(t.Progress(0, stats.path.MinRTT))
	}
	if err == nil && r.Failed == 0 && c.opt.Target.Strict && len(r.Warnings) > 0 {
		var n int64
		for _, w := range r.Warnings {
			n += w.Count
		}
		err = &session.Error{Kind: session.KindPartial, Err: fmt.Errorf("the target could not hold all of %d entries", n), Remedy: "without --strict that is a warning"}
	}
	if err != nil || r.Failed == 0 {
		return r, err
	}
	if snapshot != "" && c.opt.Target.AllowFailed > 0 {
		err := fmt.Errorf("the snapshot %s is there, without %s that failed", snapshot, units.Count(r.Failed, "entry", "entries"))
		if len(r.Failures) > 0 {
			err = fmt.Errorf("%w: %w", err, r.Failures[0].Failure())
		}
		return r, &session.Error{Kind: session.KindPartial, Err: err}
	}
	kind := session.KindPartial
	if r.Sent+r.Same == 0 {
		kind = session.KindOf(r.Failures[0].Err)
		for _, f := range r.Failures {
			if session.KindOf(f.Err) != kind {
				kind = session.KindPartial
			}
		}
	}
	if r.Failed == 1 {
		return r, &session.Error{Kind: kind, Err: r.Failures[0].Failure()}
	}
	return r, &session.Error{Kind: kind, Err: fmt.Errorf("%d entries failed, %d files are in place", r.Failed, r.Sent+r.Same)}
}

// temporary tells whether a new session may succeed where this one failed.
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

// describe turns an error of a session into one for the user.
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
		return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s takes no certificates of clients: it knows them by their keys", server),
			Remedy: "name their CA there, by tls: in its configuration; or leave --tls-cert out"}
	case errors.Is(err, context.Canceled):
		return &session.Error{Kind: session.KindInterrupted, Err: errors.New("interrupted"), Remedy: "the same command resumes"}
	case errors.As(err, &coded):
		e := &session.Error{Kind: session.KindOfCode(coded), Err: coded}
		if coded.Remote {
			e.Err = fmt.Errorf("%s: %w", server, coded)
		}
		if coded.Remote && coded.Code == wire.CodeExists {
			e.Err = fmt.Errorf("%s: %w: %w", server, session.ErrSnapshotExists, coded)
		}
		if coded.Code == wire.CodeTrust {
			e.Remedy = "ask its administrator for an invitation: fxfer serve --invite"
		}
		if coded.Code == wire.CodeCertificate {
			e.Remedy = "the server's administrator finds this client in its log"
		}
		if coded.Code == wire.CodeNoSpace {
			e.Remedy = "make room there; the same command resumes"
		}
		if coded.Remote && coded.Code == wire.CodeBusy {
			e.Remedy = "come again later; send and get do by themselves with --retry-for"
		}
		return e
	case errors.As(err, &hole):
		return &session.Error{Kind: session.KindUnreachable, Err: fmt.Errorf("packets of %d bytes vanish on the way %s, smaller ones arrive", hole.Size(), hole.Way(server)),
			Remedy: "sudo sysctl -w net.ipv4.tcp_mtu_probing=1, or let ICMP pass the firewalls"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &session.Error{Kind: session.KindUnreachable, Err: fmt.Errorf("%s closed the connection", server), Remedy: "the same command resumes; --retry-for tries by itself"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &session.Error{Kind: session.KindUnreachable, Err: fmt.Errorf("%s says nothing any more", server), Remedy: "the same command resumes; --retry-for tries by itself"}
	}
	return &session.Error{Kind: session.KindUnreachable, Err: fmt.Errorf("connection to %s: %w", server, err), Remedy: "the same command resumes; --retry-for tries by itself"}
}

// List returns what a folder of a share holds, one file, or the shares if the URL names none.
func (c *Client) List(ctx context.Context, u session.URL) ([]Entry, error) {
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.List, Share: u.Share, Paths: []string{u.Path}}}
	entries, err := s.list(ctx)
	return entries, describe(err, serverOf(u))
}

func serverOf(u session.URL) string { return session.URL{Host: u.Host, Port: u.Port}.Address() }

// errAskFirst ends a handshake with a server whose key the user has to confirm.
type errAskFirst struct{ pin identity.Pin }

func (e *errAskFirst) Error() string { return "the server's key is not confirmed" }

// Expect returns the check of the server's key. With Confirm, an unknown key ends the handshake with errAskFirst: the
// server does not wait for a person.
func (c *Client) expect(u session.URL) func(ed25519.PublicKey) error {
	server := serverOf(u)
	return func(key ed25519.PublicKey) error {
		offered := identity.PinOf(key)
		want := c.pin
		if want == "" {
			want = u.Pin
		}
		if want != "" {
			if offered != want {
				return &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("%s has the key %s, not the pinned %s", server, offered, want),
					Remedy: "if the server was set up anew, ask for its pin; otherwise somebody is in between"}
			}
			return nil
		}
		err := c.store.CheckServer(server, offered)
		if errors.Is(err, identity.ErrUnknownServer) && c.opt.Confirm != nil {
			return &errAskFirst{offered}
		}
		if err != nil {
			return trustError(err)
		}
		return nil
	}
}

func trustError(err error) error {
	e := &session.Error{Kind: session.KindTrust, Err: err}
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		e.Remedy = h.Hint()
	}
	return e
}

// dial connects the control stream, and asks the user about an unknown server.
func (c *Client) dial(ctx context.Context, u session.URL, cfg transport.Config) (transport.Conn, error) {
	server := serverOf(u)
	if u.Pin != "" && c.authorities != nil {
		return nil, session.Usage("leave --tls-ca out", "the invitation says by which key %s is known, not by which CA", server)
	}
	conn, err := transport.Dial(ctx, server, cfg, c.expect(u))
	var ask *errAskFirst
	if errors.As(err, &ask) {
		yes, askErr := c.opt.Confirm(ctx, server, string(ask.pin))
		switch {
		case askErr != nil:
			return nil, &session.Error{Kind: session.KindTrust, Err: askErr}
		case !yes:
			return nil, &session.Error{Kind: session.KindTrust, Err: fmt.Errorf("the key of %s was not confirmed", server)}
		}
		if err := c.store.AddKnownServer(server, ask.pin); err != nil {
			return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
		}
		conn, err = transport.Dial(ctx, server, cfg, c.expect(u))
	}
	return conn, err
}

// remember keeps the key of a server that was given as a pin and has admitted us.
func (c *Client) remember(u session.URL, key ed25519.PublicKey) error {
	if err := c.store.AddKnownServer(serverOf(u), identity.PinOf(key)); err != nil {
		return &session.Error{Kind: session.KindTrust, Err: err}
	}
	return nil
}
