package server

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// scrubEvery is how often a server tells how far it is.
const scrubEvery = 500 * time.Millisecond

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
	if _, err := snapshot.ParseName(m.Snapshot); err != nil {
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
	go atIdlePriority(func() {
		done <- x.run(ctx, func(visit func(string, [32]byte) error) error { return snapshot.Digests(state, m.Snapshot, visit) },
			func(visit func(string, string) error) error { return snapshot.Links(state, m.Snapshot, visit) },
			func(visit func(string, string) error) error {
				_, err := snapshot.Failures(state, m.Snapshot, visit)
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
		return x.send(&wire.Warning{What: string(session.Lacking), Path: path, Text: why, Count: 1})
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
				return x.send(&wire.Warning{What: string(session.Different), Path: path, Text: "not the same file as " + first + " any more", Count: 1})
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
	digest, id, err = x.tree.Digest(ctx, path)
	close(stop)
	<-quiet
	return digest, id, err
}

func (x *scrubbing) send(m wire.Message) error {
	_ = x.conn.SetWriteDeadline(time.Now().Add(session.VerifyPatience))
	_, err := x.conn.Write(wire.Append(nil, m))
	return err
}

// judge tells of a file that is not what it was.
func (x *scrubbing) judge(path string, err error, same bool) error {
	finding, text := session.Different, "content"
	switch {
	case err == nil && same:
		x.same++
		return x.tell(false)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrUnsupportedKind):
		finding, text = session.Missing, ""
	case err != nil:
		finding, text = session.Unreadable, err.Error()
	}
	return x.send(&wire.Warning{What: string(finding), Path: path, Text: text, Count: 1})
}

// tell tells how far the scrub is, now and then.
func (x *scrubbing) tell(last bool) error {
	if now := time.Now(); last || now.Sub(x.told) >= scrubEvery {
		x.told = now
		return x.send(&wire.Sample{Values: []wire.Value{{Name: session.ScrubFiles, Value: x.files}, {Name: session.ScrubBytes, Value: x.bytes}, {Name: session.ScrubSame, Value: x.same}}})
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
				err = x.send(&wire.Warning{What: string(session.Extra), Path: path, Count: 1})
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
