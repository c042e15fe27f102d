package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/pace"
)

// errGone says that a client has left before what it sent was whole.
var errGone = errors.New("the connection ended before the file was whole")

// File is an open file of a share.
type File struct {
	tree *Tree
	s    *session
	path string
	src  source
	sent atomic.Int64
	once sync.Once

	mu   sync.Mutex // guards part
	part error      // why not all of it was sent
}

// source is what a File reads: a disk.Source, or an openText.
type source interface {
	io.ReaderAt
	io.Closer
	Identity() disk.Identity
}

// Open opens the file at p for reading. The caller closes it.
func (t *Tree) Open(p string) (*File, error) {
	s, rel, err := t.below(p)
	switch {
	case err != nil:
		return nil, err
	case s.isStates(rel):
		return t.openStates(s)
	}
	at, err := s.Scope.Follow(access.Read, rel, true)
	if err == nil {
		err = s.may(access.Read, at)
	}
	if err == nil {
		err = s.Scope.Intact(at)
	}
	if err == nil {
		err = t.take(s)
	}
	if err != nil {
		return nil, err
	}
	src, err := s.Scope.OpenFile(at)
	if err != nil {
		t.give(s)
		return nil, err
	}
	return &File{tree: t, s: s, path: at, src: src}, nil
}

func (t *Tree) openStates(s *session) (*File, error) {
	if err := t.take(s); err != nil {
		return nil, err
	}
	x, err := s.states()
	var src *openText
	if err == nil {
		src, err = s.open(x)
	}
	if err != nil {
		t.give(s)
		return nil, err
	}
	return &File{tree: t, s: s, path: statesName, src: src}, nil
}

// Size is that of the file when it was opened.
func (f *File) Size() int64 { return f.src.Identity().Size }

// Info describes the file as it was when it was opened.
func (f *File) Info() Info {
	id := f.src.Identity()
	m := disk.Meta{Kind: disk.File, Mode: 0o644, Size: id.Size, ModTime: time.Unix(0, id.ModTime), ID: id}
	return Info{path.Base(f.path), m}
}

// ReadAt implements io.ReaderAt. It waits for the rate that the user has.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	n, err := f.src.ReadAt(b, off)
	if n > 0 {
		if err := pass(f.s, f.s.Out, &f.s.Moved.Out, n); err != nil {
			f.Fail(err)
			return 0, err
		}
	}
	f.sent.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		f.Fail(err)
	}
	return n, err
}

// pass waits until n bytes may pass, and counts them.
func pass(s *session, q *pace.Queue, moved *atomic.Int64, n int) error {
	for n > 0 {
		step := min(n, q.Step())
		if q.Wait(s.Ctx, step) != nil {
			break
		}
		n -= step
		moved.Add(int64(step))
	}
	return context.Cause(s.Ctx)
}

// Fail notes why the file was not sent as the client has asked for it, or nil. It comes before Close.
// The first reason counts, and errors of ReadAt are noted already.
func (f *File) Fail(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.part = cmp.Or(f.part, why)
}

// Close ends the use of the file.
func (f *File) Close() error {
	var err error
	f.once.Do(func() {
		err = f.src.Close()
		f.tree.give(f.s)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.s.Record(Record{Outcome: Sent, Path: f.path, Bytes: f.sent.Load(), Err: f.part})
	})
	return err
}

// Creation says how to open a file that arrives.
type Creation struct {
	Keep      bool // begin with what is there; otherwise it begins empty
	Append    bool // put what is written at the end, wherever the client wants it
	MustExist bool
	MustNot   bool // exist
	Read      bool // the client wants to read it, too
	Hidden    bool // the tree shows the older file until this one is whole
	Mode      *fs.FileMode
}

// uploadBlock is the size of the blocks of a file that arrives: nothing is resumed, so they are as
// large as can be.
const uploadBlock = 1 << 30

// maxUpload bounds the size of a file that arrives, in bytes: clients may name any size, and each
// block takes a step.
const maxUpload = 1 << 50

// copyStep is how many bytes are copied before the next look at whether the session has ended.
const copyStep = 64 << 20

// Upload is a file that arrives. It has its name when Close has returned nil, and not before. Its
// methods are safe for concurrent use.
type Upload struct {
	tree   *Tree
	s      *session
	key    string // in Tree.uploads
	path   string // in the share
	fresh  bool   // nothing of it was there before
	adds   bool   // what is written goes to the end
	hidden bool   // the tree shows the older file until this one is whole

	mu      sync.Mutex // guards all fields below
	p       *disk.Partial
	ended   bool
	whole   bool  // it has its name
	failed  error // a write that failed: then the file is not whole
	end     int64 // its size
	claimed int64 // of the quota
	arrived int64 // bytes
	meta    disk.Meta
}

// Create begins a file at p, in place of the one that is there. While somebody else writes this file
// it waits a few seconds: the end of a connection that broke may not have been seen yet.
//
// Errors also match disk.ErrBusy if somebody still writes this file.
func (t *Tree) Create(p string, c Creation) (*Upload, error) {
	u, err := t.create(p, c)
	for until := time.Now().Add(busyFor); errors.Is(err, disk.ErrBusy) && time.Now().Before(until) && t.ctx.Err() == nil; {
		select {
		case <-t.ctx.Done():
		case <-time.After(busyEvery):
			u, err = t.create(p, c)
		}
	}
	return u, err
}

func (t *Tree) create(p string, c Creation) (*Upload, error) {
	s, rel, err := t.inShare(p)
	if err == nil {
		err = s.may(access.Write, rel)
	}
	if err != nil {
		return nil, err
	}
	have, err := s.Scope.Stat(rel)
	there := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case there && have.Kind == disk.Dir:
		return nil, fmt.Errorf("%s is a folder: %w", rel, disk.ErrExists)
	case there && c.MustNot:
		return nil, fmt.Errorf("%s: %w", rel, fs.ErrExist)
	case !there && c.MustExist:
		return nil, fmt.Errorf("%s: %w", rel, fs.ErrNotExist)
	}
	keep := there && c.Keep
	if keep { // its size shows
		if _, err := s.describe(rel); err != nil {
			return nil, err
		}
	}
	if keep && c.Read {
		if err := s.may(access.Read, rel); err != nil {
			return nil, err
		}
	}
	if err := t.take(s); err != nil {
		return nil, err
	}
	u := &Upload{tree: t, s: s, key: path.Clean("/" + p), path: rel, fresh: !there, adds: c.Append, hidden: c.Hidden}
	u.meta = disk.Meta{Path: rel, Kind: disk.File, Mode: 0o644}
	if there && have.Kind == disk.File {
		u.meta.Mode = have.Mode.Perm()
	}
	Change{Mode: c.Mode}.apply(&u.meta)
	if err := u.open(keep); err != nil {
		t.give(s)
		return nil, err
	}
	t.mu.Lock()
	gone := t.uploads == nil
	if !gone {
		t.uploads[u.key] = u
	}
	t.mu.Unlock()
	if gone {
		return nil, u.Abort(errGone)
	}
	return u, nil
}

func (u *Upload) open(keep bool) (err error) {
	if err := u.s.Quota.Take(u.s.Ctx, 0, 1); err != nil {
		return err
	}
	stream := disk.Meta{Path: u.path, Kind: disk.File, Size: -1, Holes: true}
	u.p, err = u.s.Scope.Partial(stream, uploadBlock, disk.TargetOptions{Sync: disk.SyncFile})
	if err == nil && keep {
		if err = u.copy(); err != nil {
			_ = u.p.Abort()
		}
	}
	if err != nil {
		u.s.Quota.Settle(u.claimed, 1, false)
	}
	return err
}

// copy begins the file with what is there.
func (u *Upload) copy() error {
	src, err := u.s.Scope.OpenCopy(u.path)
	if err != nil {
		return err
	}
	defer src.Close()
	size := src.Identity().Size
	if err := u.growLocked(size); err != nil {
		return err
	}
	for off := int64(0); off < size; off += copyStep {
		if err := context.Cause(u.s.Ctx); err != nil {
			return err
		}
		data, err := src.Data(off, copyStep)
		if err != nil {
			return err
		}
		for _, r := range data {
			if err := u.p.CopyFrom(src, r.Off, r.Off, r.Len); err != nil {
				return err
			}
		}
	}
	return nil
}

// growLocked makes the file at least so large, if the quota has room.
func (u *Upload) growLocked(size int64) error {
	if size > maxUpload {
		return fmt.Errorf("%s: a file of more than %d bytes: %w", u.path, int64(maxUpload), disk.ErrNoSpace)
	}
	if more := size - u.claimed; more > 0 {
		if err := u.s.Quota.Take(u.s.Ctx, more, 0); err != nil {
			return err
		}
		u.claimed = size
	}
	u.end = max(u.end, size)
	return nil
}

// WriteAt implements io.WriterAt. It waits for the rate that the user has. After an error the file
// does not become whole any more.
func (u *Upload) WriteAt(b []byte, off int64) (n int, err error) {
	err = pass(u.s, u.s.In, &u.s.Moved.In, len(b))
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		n, err = u.writeLocked(b, off)
	}
	if err != nil {
		u.failed = cmp.Or(u.failed, err)
	}
	return n, err
}

func (u *Upload) writeLocked(b []byte, off int64) (int, error) {
	if u.adds {
		off = u.end
	}
	size := off + int64(len(b))
	switch {
	case u.ended:
		return 0, fs.ErrClosed
	case off < 0 || size < off:
		return 0, fmt.Errorf("%s: %d bytes at %d: %w", u.path, len(b), off, fs.ErrInvalid)
	}
	if err := u.growLocked(size); err != nil {
		return 0, err
	}
	n, err := u.p.WriteAt(b, off)
	u.arrived += int64(n)
	return n, err
}

// Fill reads from r until b is full, or until the first error, which may come with bytes and may be
// io.EOF. Clients send little at a time, such as TLS records of 16 KiB, and each write to a file has
// its cost.
func Fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	return n, err
}

// ReadAt implements io.ReaderAt, for what has arrived.
func (u *Upload) ReadAt(b []byte, off int64) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return 0, fs.ErrClosed
	case off < 0:
		return 0, fs.ErrInvalid
	}
	whole := len(b)
	if b = b[:max(0, min(int64(whole), u.end-off))]; len(b) == 0 && whole > 0 {
		return 0, io.EOF
	}
	n, err := u.p.ReadAt(b, off)
	if errors.Is(err, io.EOF) { // a hole at the end
		clear(b[n:])
		n, err = len(b), nil
	}
	if err == nil && n < whole {
		err = io.EOF
	}
	return n, err
}

// Size is what the file has by now.
func (u *Upload) Size() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.end
}

// Set changes the file, or what it has when it is whole.
func (u *Upload) Set(c Change) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.apply(&u.meta)
	if c.Size == nil {
		return nil
	}
	err := u.resizeLocked(*c.Size)
	if err != nil {
		u.failed = cmp.Or(u.failed, err)
	}
	return err
}

func (u *Upload) resizeLocked(size int64) error {
	switch {
	case u.ended:
		return fs.ErrClosed
	case size < 0:
		return fs.ErrInvalid
	case size >= u.end:
		return u.growLocked(size)
	}
	if err := u.p.Truncate(size); err != nil {
		return err
	}
	u.end = size
	return nil
}

func (u *Upload) info() Info {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.meta
	m.Size = u.end
	if m.ModTime.IsZero() {
		m.ModTime = time.Now()
	}
	return Info{path.Base(u.path), m}
}

// Close gives the file its name, unless a write has failed.
func (u *Upload) Close() error { return u.finish(nil) }

// Abort gives the file up: it was not whole, for this reason, which Abort returns. After Close it
// does nothing.
func (u *Upload) Abort(why error) error { return cmp.Or(u.finish(why), why) }

// Confirm comes after Close. It waits until the file has reached its destination, if the share is
// sent on and clients are to wait for that. Its error says that the file is stored here, and why
// the client waits no longer.
func (u *Upload) Confirm(ctx context.Context) error {
	u.mu.Lock()
	whole := u.whole
	u.mu.Unlock()
	if !whole { // the client has its reply
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(u.s.Ctx, func() { cancel(context.Cause(u.s.Ctx)) })()
	return u.s.confirm(ctx, u.path)
}

func (u *Upload) finish(why error) (err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return nil
	}
	u.ended = true
	if err = cmp.Or(why, u.failed); err == nil {
		err = u.commitLocked()
	}
	_ = u.p.Abort() // does nothing if it has its name
	u.s.Quota.Settle(u.claimed, 1, err == nil)
	if err == nil {
		if u.s.bring(u.path); !u.fresh || u.end < u.claimed {
			u.s.Quota.Freed()
		}
	}
	u.s.Record(Record{Outcome: Received, Path: u.path, Bytes: u.arrived, Err: err})
	u.tree.mu.Lock()
	if u.tree.uploads[u.key] == u { // not another one that has begun since
		delete(u.tree.uploads, u.key)
	}
	u.tree.mu.Unlock()
	u.tree.give(u.s)
	u.whole = err == nil
	return err
}

func (u *Upload) commitLocked() error {
	if err := context.Cause(u.s.Ctx); err != nil {
		return err
	}
	if err := u.s.may(access.Write, u.path); err != nil {
		return err
	}
	for block := range (u.end + uploadBlock - 1) / uploadBlock {
		if err := u.p.Mark(block, [32]byte{}); err != nil {
			return err
		}
	}
	u.meta.Size = u.end
	return u.s.Scope.Commit(u.p, u.meta)
}
