package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// seriesPatience is how long a session waits for another that fills or removes a snapshot of the same series: it may be the client's
	// own, whose end is not known yet.
	seriesPatience = 30 * time.Second
	seriesEvery    = 100 * time.Millisecond
	seriesPing     = 5 * time.Second
)

// storing is a snapshot that a session fills.
type storing struct {
	ctx      context.Context // of its session
	series   *disk.Series
	name     string
	tree     *disk.Tree // of the new one
	previous *disk.Tree // nil for none
	resumed  bool
	own      bool             // the folder itself came with metadata
	keep     snapshot.Keep    // of the share, which applies once the snapshot is complete
	done     bool             // it is
	before   string           // name of the previous one, "" for none
	state    *os.Root         // what is known about the series
	ledger   *snapshot.Ledger // digests
	allowed  int64            // entries that may fail
	failed   int64            // of those that did, noted
	there    int64            // that did not, without the folder itself
	linked   map[disk.Identity]struct{}
	log      *slog.Logger
}

// nameAhead is how far a client's clock may be ahead of ours, in the name of a snapshot that it appends.
const nameAhead = time.Hour

// mayAppend refuses who may only append to a place that is not his own.
func (x *serverSession) mayAppend(p, pin string) error {
	tree := x.share.tree
	series, err := tree.OpenSeries(p)
	switch {
	case err == nil:
		if owned, err := series.Owned(pin); err != nil || !owned {
			return notYours(x.share.Name)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return refuseTarget(err)
	}
	held := false
	err = tree.Names(context.Background(), p, func([]string, []disk.Kind) error { held = true; return fs.ErrExist })
	if held {
		return notYours(x.share.Name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuseTarget(err)
	}
	return nil
}

func notYours(share string) error {
	return wire.Errorf(wire.CodeRight, "what is there on share %q is not this client's, which may only append", share)
}

// mayName refuses names by which who may only append could have retention remove what is there, or take the place of what comes.
func mayName(series *disk.Series, name, pin string, now time.Time) error {
	if owned, err := series.Owned(pin); err != nil || !owned {
		return wire.Errorf(wire.CodeRight, "these snapshots are not this client's")
	}
	t, err := snapshot.ParseName(name)
	if err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	complete, _, err := series.Snapshots()
	if err != nil {
		return refuseTarget(err)
	}
	switch n := len(complete); {
	case slices.Contains(complete, name):
		return wire.Errorf(wire.CodeExists, "the snapshot %s is complete", name)
	case n > 0 && name < complete[n-1]:
		return wire.Errorf(wire.CodePath, "a snapshot of %s can't be appended: %s is newer", name, complete[n-1])
	case t.After(now.Add(nameAhead)):
		return wire.Errorf(wire.CodePath, "%s is in the future: here it is %s", name, snapshot.Name(now))
	}
	return nil
}

// spareSnapshots refuses to send to where snapshots are.
func (x *serverSession) spareSnapshots(p string) error {
	p = seriesPath(p)
	if disk.CheckPath(p) != nil {
		return nil // said later
	}
	in, rest, err := x.share.tree.SeriesOf(p)
	if err != nil {
		return refuseTarget(err)
	}
	if first, _, _ := strings.Cut(rest, "/"); in != "" {
		if _, err := snapshot.ParseName(first); err == nil {
			return wire.Errorf(wire.CodePath, "%q is a snapshot, and not changed", p)
		}
	}
	return nil
}

// store opens the snapshot that a client wants to fill.
func (x *serverSession) store(ctx context.Context, conn transport.Conn) (*storing, error) {
	m := x.hello
	owner := string(x.guest.who.id)
	if _, err := snapshot.ParseName(m.Snapshot); err != nil {
		return nil, &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	appends := !x.share.Rights.And(x.guest.grants.On(m.Share)).Has(identity.Write)
	if appends {
		if err := x.mayAppend(seriesPath(m.Paths[0]), owner); err != nil {
			return nil, err
		}
	}
	series, err := x.share.tree.MakeSeries(seriesPath(m.Paths[0]), owner)
	if err != nil {
		return nil, refuseTarget(err)
	}
	if err := lockSeries(ctx, conn, series); err != nil {
		return nil, refuseTarget(err)
	}
	if appends {
		if err := mayName(series, m.Snapshot, owner, time.Now()); err != nil {
			series.Close()
			return nil, err
		}
	}
	s := &storing{ctx: ctx, series: series, name: m.Snapshot, keep: x.share.Keep, allowed: m.Target.AllowFailed, log: x.log}
	if err := s.open(); err != nil {
		s.close()
		if errors.Is(err, fs.ErrExist) {
			return nil, wire.Errorf(wire.CodeExists, "the snapshot %s is complete", m.Snapshot)
		}
		return nil, refuseTarget(err)
	}
	return s, nil
}

// storeEngine makes the engine of a Store.
func (x *serverSession) storeEngine(ctx context.Context, conn transport.Conn, r *wire.Reader, count *counts) (func(context.Context) error, error) {
	t := x.hello.Target
	if t.BackupDir != "" || t.Compare.Update || t.Compare.Existing || t.Compare.IgnoreExisting || !t.Delete {
		return nil, wire.Errorf(wire.CodeUnsupported, "a snapshot holds what the source holds")
	}
	opt := transfer.ReceiverOptions{Path: ".", Target: t, Event: x.event(count), Message: x.message, Clock: x.clock, Finishing: func() { x.watched.SendLast(x.send) }}
	if t.DryRun { // as if it were to become what the newest is
		tree, base, err := x.newest()
		if err != nil {
			return nil, refuseTarget(err)
		}
		opt.Path = base
		x.receive = transfer.NewReceiver(conn, r, tree, opt)
		return x.receive.Run, nil
	}
	moved := x.share.quota.Moving()
	s, err := x.store(ctx, conn)
	moved()
	if err != nil {
		return nil, err
	}
	x.storing = s
	opt.Snapshot, opt.Quota = s.snapshot(), x.share.quota
	opt.Snapshot.Publish = func(failed, grave int64) error {
		defer x.share.quota.Moving()()
		if failed > 0 {
			defer x.share.quota.Freed()
		}
		return s.publish(failed, grave)
	}
	opt.Event = func(e transfer.Event) {
		s.event(e)
		x.event(count)(e)
	}
	x.receive = transfer.NewReceiver(conn, r, s.tree, opt)
	return x.receive.Run, nil
}

// newest returns a tree and the path of the newest snapshot in it, or where a first one would be.
func (x *serverSession) newest() (*disk.Tree, string, error) {
	p := seriesPath(x.hello.Paths[0])
	name := x.hello.Snapshot
	series, err := x.share.tree.OpenSeries(p)
	if err == nil {
		var complete []string
		if complete, _, err = series.Snapshots(); len(complete) > 0 {
			name = complete[len(complete)-1]
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return x.share.tree, path.Join(p, name), err
}

// seriesPath is the path of a series as a client names it.
func seriesPath(p string) string { return cmp.Or(strings.TrimSuffix(p, "/"), ".") }

// refuseTarget tells a client why a path cannot be written.
func refuseTarget(err error) error {
	var known *wire.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrExists), errors.Is(err, fs.ErrNotExist):
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	case errors.Is(err, disk.ErrNoSpace):
		return &wire.Error{Code: wire.CodeNoSpace, Text: err.Error()}
	}
	return &wire.Error{Code: wire.CodeTargetDisk, Text: err.Error()}
}

// lockSeries waits for a series, and lets the client hear of us meanwhile.
func lockSeries(ctx context.Context, conn transport.Conn, series *disk.Series) error {
	begin := time.Now()
	pinged := begin
	for {
		err := series.Lock()
		if !errors.Is(err, disk.ErrBusy) {
			return err
		}
		now := time.Now()
		if now.Sub(begin) > seriesPatience {
			return wire.Errorf(wire.CodeBusy, "another session works on these snapshots")
		}
		if now.Sub(pinged) > seriesPing {
			pinged = now
			if _, err := conn.Write(wire.Append(nil, &wire.Ping{Time: now.UnixNano()})); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return wire.Errorf(wire.CodeDraining, "the server is shutting down")
		case <-time.After(seriesEvery):
		}
	}
}

func (s *storing) open() (err error) {
	if s.tree, s.resumed, err = s.series.Fill(s.name); err != nil {
		return err
	}
	complete, _, err := s.series.Snapshots()
	if err != nil {
		return err
	}
	if n := len(complete); n > 0 {
		s.before = complete[n-1]
		if s.previous, err = s.series.Open(s.before); err != nil {
			return err
		}
	}
	if s.state, err = s.series.State(); err != nil {
		return err
	}
	if err := s.readLinked(); err != nil {
		return err
	}
	s.ledger, err = snapshot.OpenLedger(s.state, s.name)
	return err
}

// readLinked notes which files of the previous snapshot have several names in it.
func (s *storing) readLinked() error {
	s.linked = make(map[disk.Identity]struct{})
	if s.previous == nil {
		return nil
	}
	err := snapshot.Links(s.state, s.before, func(_, path string) error {
		if m, err := s.previous.Stat(path); err == nil {
			s.linked[disk.Identity{Ino: m.ID.Ino, Dev: m.ID.Dev}] = struct{}{}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *storing) isLinked(id disk.Identity) bool {
	_, ok := s.linked[disk.Identity{Ino: id.Ino, Dev: id.Dev}]
	return ok
}

// close ends the use of the series. What is not published stays for a later session.
func (s *storing) close() {
	for _, tree := range []*disk.Tree{s.tree, s.previous} {
		if tree != nil {
			_ = tree.Close()
		}
	}
	if s.ledger != nil {
		_ = s.ledger.Close()
	}
	if s.state != nil {
		_ = s.state.Close()
	}
	if s.done && s.keep != (snapshot.Keep{}) {
		s.retain()
	}
	s.series.Close()
}

// retain removes what the share's policy does not keep.
func (s *storing) retain() {
	complete, _, err := s.series.Snapshots()
	if err != nil {
		s.log.Warn("retention", "error", err)
		return
	}
	_, remove := s.keep.Decide(complete, time.Local)
	for _, name := range remove {
		err := s.series.Remove(name)
		s.log.Info("snapshot removed", "snapshot", name, "policy", s.keep.String(), "error", err)
		if err != nil {
			return
		}
	}
}

// snapshot is what the receiver knows of it.
func (s *storing) snapshot() *transfer.Snapshot {
	return &transfer.Snapshot{Previous: s.previous, Linked: s.isLinked, Resumed: s.resumed}
}

// event takes note of what is in the snapshot.
func (s *storing) event(e transfer.Event) {
	x := e.Entry
	if e.Kind == transfer.Committed || e.Kind == transfer.Same || e.Kind == transfer.Done && x.Path != "." {
		s.there++
	}
	switch {
	case x == nil:
	case e.Kind == transfer.Failed:
		if s.failed < wire.MaxAllowFailed { // with more it is not published
			s.failed++
			s.ledger.Failed(x.Path, wire.Printable(e.Err.Error()))
		}
	case e.Kind == transfer.Done && x.Kind == wire.Dir && x.Path == ".":
		s.own = true
	case e.Kind == transfer.Done && x.Kind == wire.Hardlink:
		s.ledger.Link(x.Path, x.Link)
	case e.Kind == transfer.Done:
		s.ledger.Other(x.Path)
	case x.Kind != wire.File:
	case e.Kind == transfer.Committed && e.Digest == [32]byte{}:
		s.ledger.Sparse(x.Path)
	case e.Kind == transfer.Committed:
		s.ledger.Committed(x.Path, e.Digest)
	case e.Kind == transfer.Same && e.Reused:
		s.ledger.Reused(x.Path)
	case e.Kind == transfer.Same:
		s.ledger.Same(x.Path)
	}
}

// publish makes the snapshot visible, if it is complete but for what may fail.
func (s *storing) publish(failed, grave int64) error {
	switch {
	case failed > 0 && s.allowed > 0 && grave > 0:
		return wire.Errorf(wire.CodeIncomplete, "the snapshot %s lacks %d entries that failed, %d of them for reasons that can't be allowed, and stays invisible: send it again", s.name, failed, grave)
	case failed > s.allowed || failed > 0 && s.there == 0:
		return wire.Errorf(wire.CodeIncomplete, "the snapshot %s lacks %d entries that failed, and stays invisible: send it again", s.name, failed)
	case failed > 0:
		if err := s.clear(); err != nil {
			return err
		}
		s.log.Warn("snapshot lacks entries that failed", "snapshot", s.name, "failed", failed, "allowed", s.allowed)
	}
	err := s.ledger.Finish(s.before, func(path string) ([32]byte, error) {
		digest, _, err := s.tree.Digest(s.ctx, path)
		return digest, err
	})
	if err != nil {
		return err
	}
	_ = s.tree.Close() // some systems rename no open folder
	err = s.series.Publish(s.name, s.own)
	s.done = err == nil
	return err
}

const (
	clearRoom   = 16 << 20 // bytes of names that clear holds, about
	clearOpened = 100_000  // folders that it opens
)

// clear removes what earlier sessions left and this one has not found again: of what failed, an older version must not stay in its place.
func (s *storing) clear() (err error) {
	var opened []disk.Meta
	defer func() {
		for _, m := range slices.Backward(opened) {
			if restored := s.tree.Apply(m, disk.TargetOptions{}); !errors.Is(restored, fs.ErrNotExist) {
				err = errors.Join(err, restored)
			}
		}
		err = errors.Join(err, s.tree.SyncAll())
	}()
	held, size := map[string]struct{}{}, 0
	remove := func() error {
		err := s.ledger.There(func(path string) { delete(held, path) })
		for path := range held {
			if err == nil {
				err = s.remove(path)
			}
		}
		clear(held)
		size = 0
		return err
	}
	err = s.tree.Walk(s.ctx, ".", disk.WalkOptions{}, func(m disk.Meta) error {
		if m.Kind == disk.Dir && m.Mode&0o700 != 0o700 { // it has its final mode, and may be closed to us
			if len(opened) == clearOpened {
				return wire.Errorf(wire.CodeIncomplete, "entries failed, and too many folders are closed to the server: send it again")
			}
			open := m
			open.Mode |= 0o700
			if err := s.tree.Apply(open, disk.TargetOptions{}); err != nil {
				return err
			}
			opened = append(opened, m)
		}
		if m.Path == "." || !s.resumed {
			return nil
		}
		held[m.Path] = struct{}{}
		if size += 128 + len(m.Path); size < clearRoom {
			return nil
		}
		return remove()
	}, func(string, error) {})
	if err == nil {
		err = remove()
	}
	if err != nil {
		return err
	}
	_, err = s.tree.Sweep(s.ctx, ".", -time.Hour)
	return err
}

// remove removes an entry, if it is there, from a folder that keeps its metadata.
func (s *storing) remove(p string) error {
	folder, err := s.tree.Stat(path.Dir(p))
	if err == nil {
		err = s.tree.Remove(p, "")
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrNotFolder) {
		return nil // with its folder
	}
	if err != nil {
		return err
	}
	return s.tree.Apply(folder, disk.TargetOptions{})
}

// listSeries tells which snapshots there are.
func (s *Server) listSeries(conn transport.Conn, m *wire.Hello, g *guest) error {
	if len(m.Paths) != 1 {
		return wire.Errorf(wire.CodeProtocol, "snapshots are of one path")
	}
	share, err := g.openPath(m.Share, m.Paths[0], identity.List)
	if err != nil {
		if share, err = g.open(m.Share, identity.Append); err != nil {
			return err
		}
		if _, there := share.tree.OpenSeries(seriesPath(m.Paths[0])); !errors.Is(there, fs.ErrNotExist) {
			return notYours(m.Share)
		}
		return s.answer(conn, nil) // he may make one
	}
	series, err := share.tree.OpenSeries(seriesPath(m.Paths[0]))
	if errors.Is(err, fs.ErrNotExist) {
		return s.answer(conn, nil)
	}
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	complete, filling, err := series.Snapshots()
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	var entries []wire.Entry
	for _, name := range complete {
		entries = append(entries, wire.Entry{Kind: wire.Share, Path: name, Link: session.SnapshotComplete})
	}
	for _, name := range filling {
		entries = append(entries, wire.Entry{Kind: wire.Share, Path: name, Link: session.SnapshotFilling})
	}
	state, err := series.State()
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	defer state.Close()
	var lacking []wire.Message
	for _, name := range complete {
		n, err := snapshot.Failures(state, name, nil)
		if err != nil {
			return refuseSource(err, m.Paths[0], m.Share)
		}
		if n > 0 {
			lacking = append(lacking, &wire.Warning{What: session.SnapshotFailed, Path: name, Count: uint64(n)})
		}
	}
	return s.answer(conn, entries, lacking...)
}

// answer sends entries, other messages, and what ends a listing.
func (s *Server) answer(conn transport.Conn, entries []wire.Entry, others ...wire.Message) error {
	var out []byte
	first := uint64(0)
	for part := range slices.Chunk(entries, 128) {
		out = wire.Append(out, &wire.Entries{First: first, Entries: part})
		first += uint64(len(part))
	}
	for _, m := range others {
		out = wire.Append(out, m)
	}
	out = wire.Append(out, &wire.Welcome{Agent: session.Agent, Host: s.host, MaxStreams: session.MaxStreams})
	out = wire.Append(out, &wire.EndManifest{Count: first})
	_ = conn.SetWriteDeadline(time.Now().Add(admitWithin))
	if _, err := conn.Write(out); err != nil {
		return err
	}
	_ = conn.CloseWrite()
	linger(conn)
	return nil
}

// expire removes the snapshots that a client does not want to keep: of those older than the newest that it names.
func (s *Server) expire(ctx context.Context, conn transport.Conn, m *wire.Hello, g *guest, admitted func()) error {
	share, err := g.open(m.Share, identity.Write)
	if err != nil {
		return err
	}
	if len(m.Paths) != 1 {
		return wire.Errorf(wire.CodeProtocol, "snapshots are of one path")
	}
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Now().Add(session.VerifyPatience))
	keep, err := readKeep(conn)
	if err != nil {
		return err
	}
	series, err := share.tree.OpenSeries(seriesPath(m.Paths[0]))
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	defer series.Close()
	defer share.quota.Freed()
	if err := lockSeries(ctx, conn, series); err != nil {
		return refuseTarget(err)
	}
	complete, _, err := series.Snapshots()
	if err != nil {
		return refuseTarget(err)
	}
	log := s.log.With("client", g.who.shown, "share", m.Share, "series", seriesPath(m.Paths[0]))
	for _, name := range expired(complete, keep) {
		if ctx.Err() != nil {
			return wire.Errorf(wire.CodeDraining, "the server is shutting down")
		}
		err := series.Remove(name)
		log.Info("snapshot removed", "snapshot", name, "error", err)
		if err != nil {
			return refuseTarget(err)
		}
		if _, err := conn.Write(wire.Append(nil, &wire.Removed{Kind: wire.Dir, Path: name})); err != nil {
			return err
		}
	}
	return s.answer(conn, nil)
}

// readKeep reads the list of snapshots to keep: Prunes of which the last is empty.
func readKeep(conn transport.Conn) (keep []string, err error) {
	r := wire.NewReader(conn, wire.MaxMessage)
	for {
		m, err := r.Next()
		if err != nil {
			return nil, err
		}
		p, ok := m.(*wire.Prune)
		switch {
		case !ok:
			return nil, wire.Errorf(wire.CodeProtocol, "expected the snapshots to keep")
		case len(p.Folders) == 0:
			return keep, nil
		case len(keep) > session.MaxKeep:
			return nil, wire.Errorf(wire.CodeProtocol, "too many snapshots to keep")
		}
		keep = append(keep, p.Folders...)
	}
}

// expired returns which of the complete snapshots, in order, are not kept. Those from the newest that is kept on stay, too: who
// made the list may not know of them. Without any that is there, all stay.
func expired(complete, keep []string) (gone []string) {
	newest := ""
	for _, name := range keep {
		if slices.Contains(complete, name) {
			newest = max(newest, name)
		}
	}
	for _, name := range complete {
		if name < newest && !slices.Contains(keep, name) {
			gone = append(gone, name)
		}
	}
	return gone
}
