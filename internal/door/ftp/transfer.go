package ftp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// bufferSize is how many bytes of a file are read or written at a time.
	bufferSize = 128 << 10
	// hashName is the one hash of HASH: the draft knows no BLAKE3.
	hashName = "SHA-256"
)

// dataError is an error of the data connection, not of files.
type dataError struct{ error }

func (e dataError) Unwrap() error { return e.error }

// mayTransfer reports whether a data connection can be opened, and replies if it cannot.
func (x *control) mayTransfer() (ok bool, err error) {
	switch {
	case x.data == nil:
		return false, x.reply(425, "send PASV or EPSV first")
	case !x.protect && !x.clear:
		return false, x.reply(521, "this server moves data only with TLS: send PBSZ 0 and PROT P first")
	}
	return true, nil
}

// transfer is one use of a data connection.
type transfer struct {
	what  string       // that the client reads when it begins
	moved atomic.Int64 // bytes
	// move moves the data. Its errors are a dataError or of files.
	move func(ctx context.Context, d *dataConn) error
	// finish gets why the transfer has failed, or nil, and returns that, or why what has come can't
	// stay, or what has gone is not all. It is called in every case, also if move was not. It may be nil.
	finish func(error) error
	// receives is set if data comes from the client. The end of the control connection then counts.
	receives bool
	// confirm waits until the client may know of what has come. It may be nil.
	confirm func(ctx context.Context) error
	left    door.Omitted // of a list
}

func (t *transfer) status() string { return fmt.Sprintf("%d bytes have passed", t.moved.Load()) }

// settle lets finish decide, and returns why the transfer has failed, or nil.
func (t *transfer) settle(err error) error {
	if t.finish != nil {
		err = t.finish(err)
	}
	return err
}

// transfer moves data over the data connection that was prepared, and replies.
func (x *control) transfer(t *transfer) error {
	err, ended := x.exchange(t)
	if err == nil && t.confirm != nil {
		err, ended = x.during(t.status, t.confirm)
	}
	if ended != nil {
		return ended
	}
	return x.transferred(err, t)
}

// exchange is the part of transfer that takes a data connection. It returns what during does.
func (x *control) exchange(t *transfer) (err, ended error) {
	var cfg *tls.Config
	var patience time.Duration // none without TLS, where nobody can prove anything
	if x.protect {
		cfg, patience = x.tls, soon(x.door.opt.RoundTrip(x.raw))
	}
	open := x.data
	x.data = nil
	defer open.close()
	release := x.door.opt.Place(x.raw.RemoteAddr())
	if release == nil {
		return t.settle(errFull), nil
	}
	defer release()
	if err := x.reply(150, "%s", t.what); err != nil {
		return t.settle(err), err
	}
	err, ended = x.during(t.status, func(ctx context.Context) error {
		d, err := openData(ctx, open, cfg, patience)
		if err != nil {
			return dataError{err}
		}
		defer context.AfterFunc(ctx, d.reset)()
		if err = t.move(ctx, d); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			d.reset()
			return err
		}
		if err := d.finish(); err != nil && !t.receives {
			return dataError{err}
		}
		return nil
	})
	if err == nil && t.receives {
		err, ended = x.stays(t.status)
	}
	return t.settle(err), ended
}

// transferred replies how a transfer has ended.
func (x *control) transferred(err error, t *transfer) error {
	var data dataError
	switch {
	case err == nil:
		return x.reply(226, "done: %d bytes%s", t.moved.Load(), lacks(t.left))
	case errors.Is(err, errAborted):
		if err := x.reply(426, "aborted"); err != nil {
			return err
		}
		return x.reply(226, "ABOR is done")
	case errors.Is(err, errFull), errors.Is(err, errNoConnection), errors.Is(err, errWhose):
		return x.reply(425, "%v", err)
	case errors.As(err, &data):
		_, text := door.FaultOf(data.error)
		return x.reply(426, "%s", text)
	}
	return x.fail(err)
}

// RETR and HASH.

func (x *control) retr(arg string) error {
	if ok, err := x.mayTransfer(); !ok {
		return err
	}
	f, err := x.tree.Open(x.abs(arg))
	if err != nil {
		return x.fail(err)
	}
	defer f.Close()
	off, size := x.offset, f.Size()
	if off > size {
		err := fmt.Errorf("the file has only %d bytes", size)
		f.Fail(err)
		return x.reply(554, "%v", err)
	}
	t := &transfer{what: fmt.Sprintf("sending %d bytes", size-off)}
	t.move = func(ctx context.Context, d *dataConn) error {
		to := io.Writer(d)
		if x.ascii {
			to = toLines{d}
		}
		return each(ctx, f, off, func(b []byte) error {
			t.moved.Add(int64(len(b)))
			if _, err := to.Write(b); err != nil {
				return dataError{err}
			}
			return nil
		})
	}
	t.finish = func(err error) error {
		f.Fail(err)
		return err
	}
	return x.transfer(t)
}

// each visits the bytes of a file from an offset on. A file that becomes shorter meanwhile is an
// error.
func each(ctx context.Context, f *door.File, off int64, visit func([]byte) error) error {
	buf := make([]byte, bufferSize)
	for size := f.Size(); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if err := visit(buf[:n]); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// toLines ends lines with CR and LF.
type toLines struct{ io.Writer }

func (t toLines) Write(b []byte) (int, error) {
	_, err := t.Writer.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	return len(b), err
}

// hash replies the digest of a file, as draft-bryan-ftpext-hash describes it.
func (x *control) hash(arg string) error {
	f, err := x.tree.Open(x.abs(arg))
	if err != nil {
		return x.fail(err)
	}
	defer f.Close()
	h := sha256.New()
	var read atomic.Int64
	err, ended := x.during(func() string { return fmt.Sprintf("%d bytes are digested", read.Load()) },
		func(ctx context.Context) error {
			return each(ctx, f, 0, func(b []byte) error {
				read.Add(int64(len(b)))
				_, err := h.Write(b)
				return err
			})
		})
	f.Fail(err)
	switch {
	case ended != nil:
		return ended
	case err != nil:
		return x.transferred(err, new(transfer))
	}
	return x.reply(213, "%s 0-%d %x %s", hashName, f.Size(), h.Sum(nil), arg)
}

// STOR, STOU and APPE.

func (x *control) stor(arg string) error {
	goesOn := x.offset > 0
	return x.store(x.abs(arg), door.Creation{Keep: goesOn, MustExist: goesOn}, "receiving")
}

func (x *control) appe(arg string) error {
	return x.store(x.abs(arg), door.Creation{Keep: true, Append: true}, "receiving")
}

// stou stores a file under a name that is not in use.
func (x *control) stou(string) error {
	name := "stou-" + strings.ToLower(rand.Text())
	return x.store(path.Join(x.cwd, name), door.Creation{MustNot: true}, "FILE: "+name)
}

func (x *control) store(p string, c door.Creation, what string) error {
	if ok, err := x.mayTransfer(); !ok {
		return err
	}
	u, err := x.tree.Create(p, c)
	if err != nil {
		return x.fail(err)
	}
	off := x.offset
	switch have := u.Size(); {
	case c.Append:
		off = have
	case off > have:
		_ = u.Abort(errAborted)
		return x.reply(554, "there are only %d bytes: a file that was cut off begins anew", have)
	case off > 0:
		if err := u.Set(door.Change{Size: &off}); err != nil {
			return x.fail(u.Abort(err))
		}
	}
	announced := x.size
	if x.ascii || off > 0 {
		announced = -1 // nobody says of what it is the size
	}
	t := &transfer{what: what, receives: true, confirm: u.Confirm}
	t.move = func(_ context.Context, d *dataConn) error {
		from := io.Reader(d)
		if x.ascii {
			from = &fromLines{from: bufio.NewReader(d)}
		}
		return receive(d, from, u, off, &t.moved)
	}
	t.finish = func(err error) error {
		if moved := t.moved.Load(); err == nil && moved < announced {
			err = dataError{fmt.Errorf("%d bytes have come, and ALLO has announced %d", moved, announced)}
		}
		if err != nil {
			return u.Abort(err)
		}
		return u.Close()
	}
	return x.transfer(t)
}

// receive writes what comes to a file, from an offset on, until the data connection ends as the
// client has meant it.
func receive(d *dataConn, from io.Reader, u *door.Upload, off int64, moved *atomic.Int64) error {
	buf := make([]byte, bufferSize)
	for {
		n, end := door.Fill(from, buf)
		if n > 0 {
			if _, err := u.WriteAt(buf[:n], off); err != nil {
				return err
			}
			off += int64(n)
			moved.Add(int64(n))
		}
		if end != nil {
			if err := d.whole(end); err != nil {
				return dataError{err}
			}
			return nil
		}
	}
}

// fromLines makes LF of CR and LF.
type fromLines struct {
	from *bufio.Reader
	err  error // that came behind a CR; from has forgotten it
}

func (f *fromLines) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if f.err != nil {
			return n, f.err
		}
		c, err := f.from.ReadByte()
		if err != nil {
			return n, err
		}
		if c == '\r' {
			var next []byte
			if next, f.err = f.from.Peek(1); len(next) == 1 && next[0] == '\n' {
				continue
			}
		}
		b[n] = c
		n++
	}
	return n, nil
}

// Lists.

// send sends lines over the data connection. If visit fails, the client gets those before the error, and
// a reply that says that there are more.
func (x *control) send(visit func(print func(line string) error) (door.Omitted, error)) error {
	t := &transfer{what: "sending a list"}
	var unread error
	t.finish = func(err error) error { return cmp.Or(err, unread) }
	t.move = func(_ context.Context, d *dataConn) error {
		w := bufio.NewWriterSize(d, bufferSize)
		left, err := visit(func(line string) error {
			t.moved.Add(int64(len(line)) + 2)
			if _, err := w.WriteString(line + "\r\n"); err != nil {
				return dataError{err}
			}
			return nil
		})
		if data := (dataError{}); errors.As(err, &data) {
			return err
		}
		if err := w.Flush(); err != nil {
			return dataError{err}
		}
		unread, t.left = err, left
		return nil
	}
	return x.transfer(t)
}

// sendNamed sends a line for each entry that an argument names.
func (x *control) sendNamed(arg string, format func(n named, i door.Info) string) error {
	if ok, err := x.mayTransfer(); !ok {
		return err
	}
	n, err := x.find(arg)
	if err != nil {
		return x.fail(err)
	}
	return x.send(func(print func(string) error) (door.Omitted, error) {
		return x.visit(n, func(i door.Info) error { return print(format(n, i)) })
	})
}

func (x *control) list(arg string) error {
	now := time.Now()
	return x.sendNamed(arg, func(_ named, i door.Info) string { return lineOf(i, i.Name(), now) })
}

func (x *control) nlst(arg string) error {
	return x.sendNamed(arg, func(n named, i door.Info) string { return n.prefix + i.Name() })
}

func (x *control) mlsd(arg string) error {
	if ok, err := x.mayTransfer(); !ok {
		return err
	}
	p := x.abs(arg)
	info, err := x.tree.Stat(p, true)
	switch {
	case err != nil:
		return x.fail(err)
	case !info.IsDir():
		return x.reply(501, "%s is not a folder", p)
	}
	return x.send(func(print func(string) error) (door.Omitted, error) {
		return x.visit(named{folder: p}, func(i door.Info) error { return print(factsOf(i, i.Name(), x.facts)) })
	})
}

func (x *control) mlst(arg string) error {
	p := x.abs(arg)
	info, err := x.tree.Stat(p, true)
	if err != nil {
		return x.fail(err)
	}
	return x.replyLines(250, "Listing", []string{factsOf(info, p, x.facts)})
}

// stat describes the connection or, with an argument, lists it on the control connection.
func (x *control) stat(arg string) error {
	if arg == "" {
		kind, data := "TYPE I", "without TLS"
		if x.ascii {
			kind = "TYPE A"
		}
		if x.protect {
			data = "with TLS"
		}
		return x.replyLines(211, "fxfer", []string{"folder " + x.cwd, kind, "data connections " + data})
	}
	n, err := x.find(arg)
	if err != nil {
		return x.fail(err)
	}
	fmt.Fprintf(x.out, "213-List\r\n")
	now := time.Now()
	left, err := x.visit(n, func(i door.Info) error {
		fmt.Fprintf(x.out, " %s\r\n", lineOf(i, i.Name(), now))
		if x.out.Available() > maxLine {
			return nil
		}
		return x.flush()
	})
	if errors.Is(err, errGone) {
		return err
	}
	tail := "That is all" + lacks(left)
	if err != nil {
		_, tail = door.FaultOf(err)
	}
	return x.reply(213, "%s", tail)
}
