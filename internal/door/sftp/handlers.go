package sftp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"

	"github.com/fxfer/fxfer/internal/door"
)

// handlers does what the requests of one channel ask for.
type handlers struct {
	tree  *door.Tree
	order *inOrder
	lists atomic.Int32 // open folders
}

// maxLists bounds the folders that a channel has open.
const maxLists = 64

// status is an error with its code in the protocol.
type status struct {
	code error
	text string
}

func (s *status) Error() string { return s.text }
func (s *status) Unwrap() error { return s.code }

var codes = map[door.Fault]error{
	door.NotFound: sftp.ErrSSHFxNoSuchFile, door.Denied: sftp.ErrSSHFxPermissionDenied,
	door.Unsupported: sftp.ErrSSHFxOpUnsupported,
}

// answer gives an error the code that clients know. nil and io.EOF stay.
func answer(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	fault, text := door.FaultOf(err)
	code := codes[fault]
	if code == nil {
		code = sftp.ErrSSHFxFailure
	}
	return &status{code, text}
}

// Fileread implements sftp.FileReader.
func (h *handlers) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	f, err := h.tree.Open(r.Filepath)
	if err != nil {
		return nil, answer(err)
	}
	return reader{f}, nil
}

type reader struct{ *door.File }

func (r reader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(b, off)
	return n, answer(err)
}

// TransferError implements sftp.TransferError: the connection ended before the handle was closed.
func (r reader) TransferError(err error) { r.Fail(err) }

// Filewrite implements sftp.FileWriter.
func (h *handlers) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	w, err := h.create(r)
	if err != nil {
		return nil, err
	}
	return onlyWriter{w, h.order}, nil
}

// OpenFile implements sftp.OpenFileWriter.
func (h *handlers) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	w, err := h.create(r)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (h *handlers) create(r *sftp.Request) (w writer, err error) {
	flags := r.Pflags()
	c := door.Creation{
		Keep: !flags.Trunc, Append: flags.Append && !flags.Trunc,
		MustExist: !flags.Creat, MustNot: flags.Creat && flags.Excl, Read: flags.Read,
	}
	if mode := modeOf(r.Attrs); mode != 0 {
		c.Mode = &mode
	}
	u, err := h.tree.Create(r.Filepath, c)
	if err != nil {
		return w, answer(err)
	}
	return writer{u}, nil
}

// modeOf returns the permissions in the attributes of a request to open a file, 0 if there are none.
// The library does not say which attributes there are, but only permissions take four bytes. Clients
// send nothing else.
func modeOf(attrs []byte) fs.FileMode {
	if len(attrs) != 4 {
		return 0
	}
	return fs.FileMode(binary.BigEndian.Uint32(attrs)).Perm()
}

type writer struct{ *door.Upload }

func (w writer) WriteAt(b []byte, off int64) (int, error) {
	n, err := w.Upload.WriteAt(b, off)
	return n, answer(err)
}

func (w writer) ReadAt(b []byte, off int64) (int, error) {
	n, err := w.Upload.ReadAt(b, off)
	return n, answer(err)
}

func (w writer) Close() error {
	err := w.Upload.Close()
	if err == nil {
		err = w.Confirm(context.Background()) // it ends with the connection
	}
	return answer(err)
}

// TransferError implements sftp.TransferError: the connection ended before the handle was closed.
func (w writer) TransferError(err error) { _ = w.Abort(err) }

// onlyWriter is a writer for a client that did not ask to read. The library makes a write of zeros
// of each request to read.
type onlyWriter struct {
	writer
	order *inOrder
}

func (w onlyWriter) WriteAt(b []byte, off int64) (int, error) {
	if w.order.reading() {
		return 0, answer(fmt.Errorf("%w: this file was not opened to be read", fs.ErrPermission))
	}
	return w.writer.WriteAt(b, off)
}

// Filecmd implements sftp.FileCmder.
func (h *handlers) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Setstat":
		c, err := changeOf(r)
		if err == nil {
			err = h.tree.Set(r.Filepath, c)
		}
		return answer(err)
	case "Rename":
		return answer(h.tree.Rename(r.Filepath, r.Target, false))
	case "Remove":
		return answer(h.tree.Remove(r.Filepath, false))
	case "Rmdir":
		return answer(h.tree.Remove(r.Filepath, true))
	case "Mkdir":
		return answer(h.tree.Mkdir(r.Filepath))
	}
	return answer(door.ErrUnsupported) // links
}

// PosixRename implements sftp.PosixRenameFileCmder.
func (h *handlers) PosixRename(r *sftp.Request) error {
	return answer(h.tree.Rename(r.Filepath, r.Target, true))
}

// changeOf returns what a request changes. Owners stay as they are, without an error: clients that
// copy a tree set what they can.
func changeOf(r *sftp.Request) (c door.Change, err error) {
	flags, attrs := r.AttrFlags(), r.Attributes()
	if attrs == nil {
		return c, errAttributes
	}
	if flags.Permissions {
		mode := attrs.FileMode()
		c.Mode = &mode
	}
	if flags.Acmodtime {
		modTime := time.Unix(int64(attrs.Mtime), 0)
		c.ModTime = &modTime
	}
	if flags.Size {
		size := int64(attrs.Size)
		c.Size = &size
	}
	return c, nil
}

var errAttributes = errors.New("the attributes of the request are cut short")

// Filelist implements sftp.FileLister.
func (h *handlers) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	switch r.Method {
	case "List":
		if err := h.mayList(r.Filepath); err != nil {
			return nil, err
		}
		return h.newListing(r.Filepath), nil
	case "Stat":
		return h.describe(r.Filepath, true)
	}
	return nil, answer(door.ErrUnsupported)
}

// mayList refuses what is no folder when it is opened, not when it is read.
func (h *handlers) mayList(p string) error {
	info, err := h.tree.Stat(p, true)
	switch {
	case err == nil && !info.IsDir():
		err = &fs.PathError{Op: "list", Path: p, Err: fs.ErrNotExist}
	case err == nil && h.lists.Load() >= maxLists:
		err = fmt.Errorf("this channel has %d folders open", maxLists)
	}
	return answer(err)
}

// Lstat implements sftp.LstatFileLister.
func (h *handlers) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	return h.describe(r.Filepath, false)
}

func (h *handlers) describe(p string, follow bool) (sftp.ListerAt, error) {
	info, err := h.tree.Stat(p, follow)
	if err != nil {
		return nil, answer(err)
	}
	return one{info}, nil
}

// Readlink implements sftp.ReadlinkFileLister.
func (h *handlers) Readlink(p string) (string, error) {
	link, err := h.tree.Readlink(p)
	return link, answer(err)
}

// one is a listing of one entry.
type one struct{ info door.Info }

func (o one) ListAt(to []os.FileInfo, off int64) (int, error) {
	if off > 0 || len(to) == 0 {
		return 0, io.EOF
	}
	to[0] = o.info
	return 1, nil
}

// listing is a folder that is read as the client asks for its entries, one request after the other.
// The library answers several at a time if the client asks to read the folder as if it were a file.
type listing struct {
	mu     sync.Mutex // guards the following
	next   func() (door.Info, error, bool)
	stop   func()
	failed error // for the next answer: one with names has none
}

func (h *handlers) newListing(p string) *listing {
	h.lists.Add(1)
	next, stop := iter.Pull2(func(yield func(door.Info, error) bool) {
		_, err := h.tree.List(p, func(i door.Info) error {
			if !yield(i, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(door.Info{}, err)
		}
	})
	return &listing{next: next, stop: sync.OnceFunc(func() { stop(); h.lists.Add(-1) })}
}

var errStop = errors.New("the client has read enough")

// ListAt implements sftp.ListerAt. The library asks for what follows the last answer.
func (l *listing) ListAt(to []os.FileInfo, _ int64) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n < len(to) && l.failed == nil {
		info, err, more := l.next()
		if !more {
			return n, io.EOF
		}
		if err != nil {
			l.failed = answer(err)
			break
		}
		to[n] = info
		n++
	}
	if n > 0 {
		return n, nil
	}
	return 0, l.failed
}

func (l *listing) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
	return nil
}
