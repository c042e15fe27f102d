package fxfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/ledger"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// What the Samples of a scrub tell.
const (
	scrubFiles = "files"
	scrubBytes = "bytes"
	scrubSame  = "same"
)

// scrubEvery is how often a server tells how far it is.
const scrubEvery = 500 * time.Millisecond

// Scrub has the server read a snapshot in the folder that u leads to, and compare it with the digests that it noted when the snapshot
// was made, with low priority. visit is called for each difference, from one goroutine at a time. If there are any, the Comparison comes
// with an *Error.
func (c *Client) Scrub(ctx context.Context, u URL, snapshot string, visit func(Difference)) (*Comparison, error) {
	if u.Share == "" {
		return nil, usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	if _, err := disk.SnapshotTime(snapshot); err != nil {
		return nil, usage("fxfer ls "+u.Redacted()+" shows the snapshots", "%w", err)
	}
	server := serverOf(u)
	v := &verifier{visit: visit, sum: Comparison{Server: server}, start: time.Now(), progress: c.opt.Progress}
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Scrub, Share: u.Share, Paths: []string{u.Path}, Snapshot: snapshot}}
	err := interrupted(ctx, v.scrub(ctx, s))
	v.sum.Duration = time.Since(v.start)
	if n := v.sum.Missing + v.sum.Extra + v.sum.Different + v.sum.Unreadable; err == nil && n > 0 {
		err = &Error{Kind: KindIntegrity, Err: fmt.Errorf("%d entries of %s are not what was sent", n, snapshot)}
	}
	return &v.sum, describe(err, server)
}

func (v *verifier) scrub(ctx context.Context, s *clientSession) error {
	_, _ = rand.Read(s.hello.Session[:]) // never fails
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.client.transportTo(s.url)
	conn, err := s.openThrough(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := wire.NewReader(conn, wire.MaxMessage)
	for {
		m, err := nextMessage(conn, r)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Welcome:
			s.message(conn, m)
		case *wire.Warning:
			v.found(m.Path, Finding(m.What), m.Text)
		case *wire.Sample:
			for _, x := range m.Values {
				switch x.Name {
				case scrubFiles:
					v.sum.Files = x.Value
				case scrubBytes:
					v.sum.Bytes = x.Value
				case scrubSame:
					v.sum.Same = x.Value
				}
			}
			v.show()
		case *wire.EndManifest:
			return nil
		}
	}
}

// scrubbing is the server's side.
type scrubbing struct {
	conn  transport.Conn
	tree  *disk.Tree
	told  time.Time
	files int64
	bytes int64
	same  int64
	seen  map[string]struct{} // names of files in the folder that is being listed
}

// scrub compares a snapshot with the digests that were noted for it.
func (s *Server) scrub(ctx context.Context, conn transport.Conn, m *wire.Hello, g *guest, admitted func()) error {
	if len(m.Paths) != 1 {
		return wire.Errorf(wire.CodeProtocol, "a scrub is of one path")
	}
	if _, err := disk.SnapshotTime(m.Snapshot); err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	p := seriesPath(m.Paths[0])
	share, err := g.openPath(m.Share, p+"/"+m.Snapshot, identity.Read)
	if err != nil {
		return err
	}
	series, err := share.tree.OpenSeries(p)
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	state, err := series.State()
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	defer state.Close()
	tree, err := series.Open(m.Snapshot)
	if err != nil {
		return refuseSource(err, m.Snapshot, m.Share)
	}
	defer tree.Close()
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Time{})
	log := s.log.With("client", g.who.shown, "share", m.Share, "series", p, "snapshot", m.Snapshot)
	x := &scrubbing{conn: conn, tree: tree, told: time.Now()}
	start := time.Now()
	done := make(chan error, 1)
	go idly(func() {
		done <- x.run(ctx, func(visit func(string, [32]byte) error) error { return ledger.Digests(state, m.Snapshot, visit) },
			func(visit func(string, string) error) error { return ledger.Links(state, m.Snapshot, visit) },
			func(visit func(string, string) error) error {
				_, err := ledger.Failures(state, m.Snapshot, visit)
				return err
			})
	})
	err = <-done
	log.Info("scrub ends", "seconds", time.Since(start).Seconds(), "files", x.files, "same", x.same, "error", err)
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeNotFound, "there are no digests of %s", m.Snapshot)
	}
	if err != nil {
		return err
	}
	return s.answer(conn, nil)
}

func (x *scrubbing) run(ctx context.Context, digests func(func(string, [32]byte) error) error, links, failures func(func(string, string) error) error) error {
	err := failures(func(path, why string) error {
		return x.send(&wire.Warning{What: string(Lacking), Path: path, Text: why, Count: 1})
	})
	if err != nil {
		return err
	}
	err = digests(func(path string, want [32]byte) error {
		x.files++
		got, id, err := x.read(ctx, path)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x.bytes += id.Size
		return x.judge(path, err, got == want)
	})
	if err == nil {
		err = links(func(first, path string) error {
			x.files++
			a, err := x.tree.Stat(path)
			b, firstErr := x.tree.Stat(first)
			same := err == nil && firstErr == nil && a.Kind == disk.File && a.ID == b.ID
			if err == nil && firstErr != nil {
				return x.send(&wire.Warning{What: string(Different), Path: path, Text: "not the same file as " + first + " any more", Count: 1})
			}
			if err == nil && !same && a.Kind == disk.File { // a copy, where it could not be linked
				got, _, readErr := x.read(ctx, path)
				want, _, firstErr := x.read(ctx, first)
				same, err = got == want, errors.Join(readErr, firstErr)
			}
			return x.judge(path, err, same)
		})
	}
	if err == nil {
		err = x.findExtra(ctx, digests, links)
	}
	if err != nil {
		return err
	}
	return x.tell(true)
}

// read digests a file, and lets the client hear of us meanwhile.
func (x *scrubbing) read(ctx context.Context, path string) (digest [32]byte, id disk.Identity, err error) {
	stop := make(chan struct{})
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		tick := time.NewTicker(verifyPing)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				_ = x.send(&wire.Ping{Time: now.UnixNano()})
			}
		}
	}()
	digest, id, err = digestFile(ctx, x.tree, path)
	close(stop)
	<-quiet
	return digest, id, err
}

func (x *scrubbing) send(m wire.Message) error {
	_ = x.conn.SetWriteDeadline(time.Now().Add(verifyPatience))
	_, err := x.conn.Write(wire.Append(nil, m))
	return err
}

// judge tells of a file that is not what it was.
func (x *scrubbing) judge(path string, err error, same bool) error {
	finding, text := Different, "content"
	switch {
	case err == nil && same:
		x.same++
		return x.tell(false)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrUnsupportedKind):
		finding, text = Missing, ""
	case err != nil:
		finding, text = Unreadable, err.Error()
	}
	return x.send(&wire.Warning{What: string(finding), Path: path, Text: text, Count: 1})
}

// tell tells how far the scrub is, now and then.
func (x *scrubbing) tell(last bool) error {
	if now := time.Now(); last || now.Sub(x.told) >= scrubEvery {
		x.told = now
		return x.send(&wire.Sample{Values: []wire.Value{{Name: scrubFiles, Value: x.files}, {Name: scrubBytes, Value: x.bytes}, {Name: scrubSame, Value: x.same}}})
	}
	return nil
}

// extraAtOnce bounds the names that are looked for in the notes at a time.
const extraAtOnce = 1 << 16

// findExtra tells of files that are there and were not noted.
func (x *scrubbing) findExtra(ctx context.Context, digests func(func(string, [32]byte) error) error, links func(func(string, string) error) error) error {
	x.seen = make(map[string]struct{})
	look := func() error {
		err := digests(func(path string, _ [32]byte) error { delete(x.seen, path); return nil })
		if err == nil {
			err = links(func(_, path string) error { delete(x.seen, path); return nil })
		}
		for path := range x.seen {
			if err == nil {
				err = x.send(&wire.Warning{What: string(Extra), Path: path, Count: 1})
			}
		}
		clear(x.seen)
		return err
	}
	err := x.tree.Walk(ctx, ".", disk.WalkOptions{}, func(m disk.Meta) error {
		if m.Kind != disk.File {
			return x.tell(false)
		}
		x.seen[m.Path] = struct{}{}
		if len(x.seen) < extraAtOnce {
			return nil
		}
		return look()
	}, func(string, error) {})
	if err != nil {
		return err
	}
	return look()
}
