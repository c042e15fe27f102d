package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
	"golang.org/x/sync/errgroup"
)

// verifyBatch bounds the entries of a message.
const verifyBatch = 256

// verification serves a Verify: it sends the entries of a path with the digests of files, and then
// answers which names the path does not hold.
type verification struct {
	*request
	tree *access.Scope
	root string // the path
	file bool   // root is a file

	out  []byte
	next uint64 // number of the next entry
}

// verifyEntry is an entry to send. digest and err are set before done is closed.
type verifyEntry struct {
	path   string // in the tree
	entry  wire.Entry
	done   chan struct{}
	digest [32]byte
	err    error // of reading, or of listing if the entry has no kind
}

func newVerification(q *request) handler { return &verification{request: q} }

func (v *verification) serve(ctx context.Context) error {
	p, err := v.onePath()
	if err != nil {
		return err
	}
	if _, v.tree, v.root, err = v.scopeAt(access.Read, p); err != nil {
		return err
	}
	top, err := v.tree.Stat(v.root)
	if err != nil {
		return sourceRefusal(err, strings.TrimSuffix(p, "/"), v.hello.Share)
	}
	v.file = top.Kind != disk.Dir
	v.admit()
	start := time.Now()
	log := v.log.With("share", v.hello.Share)
	log.Info("verification begins", "path", v.root)
	err = v.verify(ctx)
	log.Info("verification ends", "path", v.root,
		"seconds", time.Since(start).Seconds(), "entries", v.next, "error", err)
	return err
}

func (v *verification) verify(ctx context.Context) error {
	if err := v.send(ctx); err != nil {
		return err
	}
	v.out = wire.Append(v.out[:0], v.welcome(session.MaxStreams))
	v.out = wire.Append(v.out, &wire.EndManifest{Count: v.next})
	if err := v.write(); err != nil {
		return err
	}
	return v.answerFolders()
}

// send walks the path, reads files with one worker for each core, and sends the entries in the
// order of the walk.
func (v *verification) send(ctx context.Context) error {
	defer v.showWork()()
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan *verifyEntry, session.VerifyAhead)
	jobs := make(chan *verifyEntry)
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

// walk puts each entry into queue, and files into jobs for the workers as well.
func (v *verification) walk(ctx context.Context, queue, jobs chan<- *verifyEntry) error {
	put := func(to chan<- *verifyEntry, x *verifyEntry) error {
		select {
		case to <- x:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	visit := func(m disk.Meta) error {
		if m.Path == v.root && !v.file {
			return nil
		}
		entry := transfer.EntryOf(m, v.entryPath(m.Path))
		x := &verifyEntry{path: m.Path, entry: entry, done: make(chan struct{})}
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
		x := &verifyEntry{err: err, done: make(chan struct{})}
		close(x.done)
		stop = cmp.Or(stop, put(queue, x))
	}
	if err := v.tree.Walk(ctx, v.root, disk.WalkOptions{}, visit, failed); err != nil {
		return err
	}
	return stop
}

// entryPath returns the path of an entry below root. A file as root has its own name.
func (v *verification) entryPath(p string) string {
	switch {
	case v.file:
		return path.Base(p)
	case v.root == ".":
		return p
	}
	return p[len(v.root)+1:]
}

// stream sends the queued entries in batches. It sends a batch early rather than let it wait for a
// long file.
func (v *verification) stream(ctx context.Context, queue <-chan *verifyEntry) error {
	var batch verifyMessages
	for {
		if len(queue) == 0 || batch.full() {
			if err := v.flush(&batch); err != nil {
				return err
			}
		}
		x, more, err := receive(ctx, queue)
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
			if _, _, err := receive(ctx, x.done); err != nil {
				return err
			}
		}
		batch.add(v, x)
	}
}

// receive receives from a channel.
func receive[T any](ctx context.Context, from <-chan T) (x T, more bool, err error) {
	select {
	case x, more = <-from:
		return x, more, nil
	case <-ctx.Done():
		return x, false, context.Cause(ctx)
	}
}

// verifyMessages is a batch of messages, in the order of sending.
type verifyMessages struct {
	entries wire.Entries
	digests wire.Digests
	failed  []wire.EntryFailed
	size    int // of names, bytes
}

func (b *verifyMessages) add(v *verification, x *verifyEntry) {
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
		why := wire.EntryFailed{Index: index, Code: wire.CodeSourceDisk, Text: x.err.Error()}
		b.failed = append(b.failed, why)
		b.size += wire.MaxText
	case x.entry.Kind == wire.File:
		digest := wire.EntryDigest{Index: index, Digest: x.digest}
		b.digests.Digests = append(b.digests.Digests, digest)
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
	return v.writeMessages(v.out, session.VerifyPatience)
}

// answerFolders answers which of the names that the client asks about do not exist, until the
// client closes the stream.
func (v *verification) answerFolders() error {
	r := wire.NewReader(v.conn, wire.MaxMessage)
	_ = v.conn.SetReadDeadline(time.Now().Add(session.VerifyPatience))
	for {
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
			return &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()} // it may exist
		}
		v.out = wire.Append(v.out[:0], extra)
		if err := v.write(); err != nil {
			return err
		}
		_ = v.conn.SetReadDeadline(time.Now().Add(session.VerifyPatience))
	}
}

// missing returns which names of a folder do not exist. Path and names may be hostile.
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
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder),
			errors.Is(err, disk.ErrPath):
			extra.Names = append(extra.Names, uint64(i))
		default:
			return nil, err
		}
	}
	return &extra, nil
}
