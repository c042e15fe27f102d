package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"runtime"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"golang.org/x/sync/errgroup"
)

const (
	// verifyBatch bounds the entries of a message.
	verifyBatch = 256
	// verifyPing is how often the client hears of us while a long file is read.
	verifyPing = 5 * time.Second
)

// verification is the server's side of a Verify.
type verification struct {
	tree *disk.Tree
	root string // of what is verified
	file bool   // it is one file
	conn transport.Conn

	out  []byte
	next uint64 // number of the next entry
}

// verifying is an entry that is read. The fields below done are set when it is closed.
type verifying struct {
	path   string // in the tree
	entry  wire.Entry
	done   chan struct{}
	digest [32]byte
	err    error // of reading, or of listing if the entry has no kind
}

// verify sends what a path holds, with digests, and then answers which names it does not hold.
func (s *Server) verify(ctx context.Context, conn transport.Conn, m *wire.Hello, g *guest, admitted func(), log *slog.Logger) error {
	if len(m.Paths) != 1 {
		return wire.Errorf(wire.CodeProtocol, "a verification is of one path")
	}
	share, err := g.openPath(m.Share, m.Paths[0], identity.Read)
	if err != nil {
		return err
	}
	v := &verification{tree: share.tree, root: cmp.Or(m.Paths[0], "."), conn: conn}
	top, err := v.tree.Stat(v.root)
	if err != nil {
		return refuseSource(err, m.Paths[0], m.Share)
	}
	v.file = top.Kind != disk.Dir
	conn.Admit()
	admitted()
	_ = conn.SetDeadline(time.Time{})
	start := time.Now()
	log = log.With("share", m.Share)
	log.Info("verification begins", "path", v.root)
	err = v.send(ctx)
	if err == nil {
		v.out = wire.Append(v.out[:0], &wire.Welcome{Agent: session.Agent, Host: s.host, MaxStreams: session.MaxStreams})
		v.out = wire.Append(v.out, &wire.EndManifest{Count: v.next})
		err = v.write()
	}
	if err == nil {
		err = v.answer()
	}
	log.Info("verification ends", "path", v.root, "seconds", time.Since(start).Seconds(), "entries", v.next, "error", err)
	return err
}

// refuseSource tells a client why a path cannot be read.
func refuseSource(err error, path, share string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.CodeNotFound, "%q does not exist in share %q", path, share)
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder):
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
}

// send walks, reads with as many workers as there are cores, and sends in the order of the walk.
func (v *verification) send(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan *verifying, session.VerifyAhead)
	jobs := make(chan *verifying)
	group.Go(func() error {
		defer close(queue)
		defer close(jobs)
		return v.walk(ctx, queue, jobs)
	})
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for x := range jobs {
				x.digest, _, x.err = v.tree.Digest(ctx, x.path)
				close(x.done)
			}
			return nil
		})
	}
	group.Go(func() error { return v.stream(ctx, queue) })
	return group.Wait()
}

// walk queues each entry, and hands files to the workers.
func (v *verification) walk(ctx context.Context, queue, jobs chan<- *verifying) error {
	put := func(to chan<- *verifying, x *verifying) error {
		select {
		case to <- x:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	visit := func(m disk.Meta) error {
		as := path.Base(m.Path)
		switch {
		case v.file:
		case m.Path == v.root:
			return nil
		case v.root == ".":
			as = m.Path
		default:
			as = m.Path[len(v.root)+1:]
		}
		x := &verifying{path: m.Path, entry: transfer.EntryOf(m, as), done: make(chan struct{})}
		if err := put(queue, x); err != nil {
			return err
		}
		if m.Kind == disk.File {
			return put(jobs, x)
		}
		close(x.done)
		return nil
	}
	var stop error
	failed := func(_ string, err error) {
		x := &verifying{err: err, done: make(chan struct{})}
		close(x.done)
		stop = cmp.Or(stop, put(queue, x))
	}
	if err := v.tree.Walk(ctx, v.root, disk.WalkOptions{}, visit, failed); err != nil {
		return err
	}
	return stop
}

// stream sends what is queued, in batches, and does not wait with one for what takes long.
func (v *verification) stream(ctx context.Context, queue <-chan *verifying) error {
	tick := time.NewTicker(verifyPing)
	defer tick.Stop()
	var batch verifyMessages
	for {
		if len(queue) == 0 || batch.full() {
			if err := v.flush(&batch); err != nil {
				return err
			}
		}
		x, more, err := await(ctx, v, queue, tick)
		if err != nil {
			return err
		}
		if !more {
			return v.flush(&batch)
		}
		select {
		case <-x.done:
		default:
			if err := v.flush(&batch); err != nil {
				return err
			}
			if _, _, err := await(ctx, v, x.done, tick); err != nil {
				return err
			}
		}
		batch.add(v, x)
	}
}

// await returns what a channel gives, and lets the client hear of us meanwhile.
func await[T any](ctx context.Context, v *verification, from <-chan T, tick *time.Ticker) (x T, more bool, err error) {
	for {
		select {
		case x, more = <-from:
			return x, more, nil
		case <-ctx.Done():
			return x, false, context.Cause(ctx)
		case now := <-tick.C:
			v.out = wire.Append(v.out[:0], &wire.Ping{Time: now.UnixNano()})
			if err := v.write(); err != nil {
				return x, false, err
			}
		}
	}
}

// verifyMessages are the messages of a batch, in the order of sending.
type verifyMessages struct {
	entries wire.Entries
	digests wire.Digests
	failed  []wire.EntryFailed
	size    int // of names, bytes
}

func (b *verifyMessages) add(v *verification, x *verifying) {
	index := uint64(wire.NoEntry)
	if x.entry.Kind != 0 {
		index = v.next
		v.next++
		if len(b.entries.Entries) == 0 {
			b.entries.First = index
		}
		b.entries.Entries = append(b.entries.Entries, x.entry)
		b.size += len(x.entry.Path) + len(x.entry.Link)
	}
	switch {
	case x.err != nil:
		b.failed = append(b.failed, wire.EntryFailed{Index: index, Code: wire.CodeSourceDisk, Text: x.err.Error()})
		b.size += wire.MaxText
	case x.entry.Kind == wire.File:
		b.digests.Digests = append(b.digests.Digests, wire.EntryDigest{Index: index, Digest: x.digest})
	}
}

func (b *verifyMessages) full() bool {
	return len(b.entries.Entries) >= verifyBatch || b.size > wire.MaxMessage/4
}

func (v *verification) flush(b *verifyMessages) error {
	v.out = v.out[:0]
	if len(b.entries.Entries) > 0 {
		v.out = wire.Append(v.out, &b.entries)
	}
	if len(b.digests.Digests) > 0 {
		v.out = wire.Append(v.out, &b.digests)
	}
	for i := range b.failed {
		v.out = wire.Append(v.out, &b.failed[i])
	}
	*b = verifyMessages{}
	return v.write()
}

func (v *verification) write() error {
	if len(v.out) == 0 {
		return nil
	}
	_ = v.conn.SetWriteDeadline(time.Now().Add(session.VerifyPatience))
	_, err := v.conn.Write(v.out)
	return err
}

// answer tells which names of folders are not here, until the client closes.
func (v *verification) answer() error {
	r := wire.NewReader(v.conn, wire.MaxMessage)
	for {
		_ = v.conn.SetReadDeadline(time.Now().Add(session.VerifyPatience))
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		asked, ok := m.(*wire.Folder)
		if !ok {
			continue
		}
		extra, err := v.missing(asked)
		if err != nil {
			return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()} // what cannot be seen may be there
		}
		v.out = wire.Append(v.out[:0], extra)
		if err := v.write(); err != nil {
			return err
		}
	}
}

// missing returns the names that are not here. Path and names may be hostile.
func (v *verification) missing(asked *wire.Folder) (*wire.Extra, error) {
	var extra wire.Extra
	if v.file {
		return &extra, nil
	}
	for i, name := range asked.Names {
		p := name
		if asked.Path != "." {
			p = asked.Path + "/" + name
		}
		err := disk.CheckPath(p)
		if err == nil {
			_, err = v.tree.Stat(path.Join(v.root, p))
		}
		switch {
		case err == nil, errors.Is(err, disk.ErrUnsupportedKind):
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrPath):
			extra.Names = append(extra.Names, uint64(i))
		default:
			return nil, err
		}
	}
	return &extra, nil
}
