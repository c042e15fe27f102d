// Package webdav is the door for WebDAV (RFC 4918), classes 1 and 2, over HTTP/1.1.
package webdav

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/webdav"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// headWithin is the time for the head of a request, and for the handshake of TLS.
	headWithin = 20 * time.Second
	// maxHead bounds the head of a request.
	maxHead = 16 << 10
	// maxXML bounds the body of a request that is no file. Those of clients have less than 2 KiB.
	maxXML = 4 << 10
	// maxParsed bounds the bodies of PROPPATCH that the library has at a time. In each element, it
	// writes the name space of that out: each body takes up to 20 MiB.
	maxParsed = 4
)

var errXML = fmt.Errorf("a body of more than %d bytes", maxXML)

// Options say whom a door serves.
type Options struct {
	// TLS is for clients that begin with TLS.
	TLS *tls.Config
	// Clear reports whether a client at an address may do without.
	Clear func(net.Addr) bool
}

// Door serves WebDAV. New returns one.
type Door struct {
	opt    Options
	logins *logins
	locks  lockTable
	listed listed
	parsed chan struct{} // holds a value for each body of PROPPATCH that the library has
}

// New returns the door to a server. The caller calls Close when all connections have ended.
func New(server door.Server, opt Options) *Door {
	d := &Door{opt: opt, parsed: make(chan struct{}, maxParsed)}
	d.logins = newLogins(server, d.locks.drop)
	return d
}

// Close ends the logins of all users.
func (d *Door) Close() { d.logins.close() }

// Serve serves a connection until it ends, or until ctx is done. It calls admitted when a user has
// logged in. It closes the connection. Visits of users, which outlast connections, end with ctx, too.
func (d *Door) Serve(ctx context.Context, c net.Conn, admitted func()) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(headWithin))
	first := &peekedConn{Conn: c, r: bufio.NewReader(c)}
	begin, err := first.r.Peek(1)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	_ = c.SetDeadline(time.Time{})
	x := &connection{door: d, ctx: ctx, client: door.Client{Addr: c.RemoteAddr()}}
	x.listener = listener{conn: first, ended: make(chan struct{})}
	if begin[0] == tlsHandshake {
		x.secure, x.listener.conn = true, tls.Server(first, d.opt.TLS)
	}
	late := time.AfterFunc(door.LoginWithin, func() { _ = c.Close() })
	defer late.Stop()
	x.admitted = sync.OnceFunc(func() { late.Stop(); admitted() })
	server := &http.Server{
		Handler: x, ReadHeaderTimeout: headWithin, IdleTimeout: door.SilentFor, MaxHeaderBytes: maxHead,
		ErrorLog:     log.New(io.Discard, "", 0),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		BaseContext:  func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				x.listener.end()
			}
		},
	}
	if err := server.Serve(&x.listener); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// tlsHandshake is the type of the first record of TLS (RFC 8446, 5.1). No request begins with it.
const tlsHandshake = 22

// peekedConn is a connection whose first bytes have been read.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *peekedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// listener is a listener with one connection. It ends with that.
type listener struct {
	conn  net.Conn
	taken bool
	ended chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *listener) end()           { l.once.Do(func() { close(l.ended) }) }
func (l *listener) Close() error   { l.end(); return nil }
func (l *listener) Addr() net.Addr { return l.conn.LocalAddr() }

// connection is one connection. It is its http.Handler.
type connection struct {
	door     *Door
	ctx      context.Context // of the door
	client   door.Client
	secure   bool // TLS
	admitted func()
	listener listener
}

// ServeHTTP implements http.Handler.
func (x *connection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.ContentLength != 0 { // also for what the library reads of a body that nobody wants
		_ = a.control.SetReadDeadline(time.Now().Add(door.SilentFor))
	}
	// What others have put in a share must not run as a page of this server.
	a.Header().Set("Content-Security-Policy", "sandbox")
	a.Header().Set("X-Content-Type-Options", "nosniff")
	a.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	if !x.secure && !x.door.opt.Clear(x.client.Addr) {
		a.Header().Set("Connection", "close")
		a.refuse(http.StatusForbidden, "this server takes passwords only inside of TLS: use https://")
		return
	}
	name, password, ok := r.BasicAuth()
	if !ok {
		a.challenge("log in with a name and a password")
		return
	}
	v, err := x.door.logins.enter(x.ctx, r.Context(), x.client, name, password)
	switch {
	case errors.Is(err, door.ErrLogin):
		a.challenge(err.Error())
		return
	case err != nil:
		status, text := statusOf(err, http.StatusServiceUnavailable)
		a.refuse(status, text)
		return
	}
	defer x.door.logins.leave(v)
	x.admitted()
	x.serve(a, r, v)
}

func (x *connection) serve(a *answer, r *http.Request, v *login) {
	q := &request{door: x.door, tree: v.tree, user: v.user, head: r, lists: v.lists}
	defer q.end()
	a.request = q
	if status, err := q.check(); err != nil {
		a.refuse(status, err.Error())
		return
	}
	r.Body = &body{r.Body, a.control}
	if r.Method != http.MethodPut && r.ContentLength != 0 {
		text, err := io.ReadAll(http.MaxBytesReader(a.ResponseWriter, r.Body, maxXML))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			a.refuse(http.StatusRequestEntityTooLarge, errXML.Error())
			return
		case err != nil:
			a.refuse(http.StatusBadRequest, "the body ended before it was whole")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	if r.Method == "PROPPATCH" {
		select {
		case x.door.parsed <- struct{}{}:
			a.begins = sync.OnceFunc(func() { <-x.door.parsed })
			defer a.begins()
		case <-r.Context().Done():
			a.refuse(http.StatusServiceUnavailable, r.Context().Err().Error())
			return
		}
	}
	(&webdav.Handler{FileSystem: q, LockSystem: q.locks()}).ServeHTTP(a, r)
	if r.Method == "PROPFIND" && a.status == http.StatusMultiStatus && q.fault != nil {
		cutOff() // the library has left out what failed
	}
}

// cutOff ends a connection in the middle of a list, which must not look whole. This panic is how
// net/http does that: it recovers from it without a log, and closes the connection.
func cutOff() { panic(http.ErrAbortHandler) }

// body is the body of a request, whose client has to send something from time to time.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(door.SilentFor))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) { // from here on, the library looks whether the client leaves
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// answer is the answer to a request. It puts the right status, and why, in place of the errors of the
// library, which knows few.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	request *request // nil before the login
	status  int      // 0 before the head
	begins  func()   // called when the library has begun to answer, unless nil
}

func (a *answer) challenge(text string) {
	a.Header().Set("WWW-Authenticate", `Basic realm="fxfer", charset="UTF-8"`)
	a.refuse(http.StatusUnauthorized, text)
}

func (a *answer) refuse(status int, text string) {
	a.status = status
	a.hurry()
	h := a.Header()
	for _, name := range []string{"Content-Length", "Content-Range", "Etag", "Last-Modified", "Lock-Token"} {
		h.Del(name)
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "5")
	}
	a.ResponseWriter.WriteHeader(status)
	fmt.Fprintf(a.ResponseWriter, "fxfer: error: %s\n", text)
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.begins != nil { // from here on, the client may be slow
		a.begins()
	}
	switch {
	case a.status != 0: // an error in the middle of a list
		cutOff()
	case status < http.StatusBadRequest:
		if status == http.StatusCreated && a.request.replaces {
			status = http.StatusNoContent
		}
		a.status = status
		a.hurry()
		a.ResponseWriter.WriteHeader(status)
	default:
		a.refuse(a.request.reason(status))
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status >= http.StatusBadRequest {
		return len(b), nil // the reason is said
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.hurry()
	n, err := a.ResponseWriter.Write(b)
	if err != nil { // the library does not say
		a.request.unsent = err
	}
	return n, err
}

// hurry lets the client take what is written from now on within a while.
func (a *answer) hurry() { _ = a.control.SetWriteDeadline(time.Now().Add(door.SilentFor)) }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

var statuses = map[door.Fault]int{
	door.NotFound: http.StatusNotFound, door.Denied: http.StatusForbidden, door.NotEmpty: http.StatusConflict,
	door.NoSpace: http.StatusInsufficientStorage, door.Busy: http.StatusServiceUnavailable,
	door.Unsupported: http.StatusNotImplemented, door.Exists: http.StatusMethodNotAllowed,
}

// statusOf returns the status of an error, or other, and a text for the user.
func statusOf(err error, other int) (status int, text string) {
	switch {
	case errors.Is(err, webdav.ErrLocked):
		return http.StatusLocked, "there is a lock on this"
	case errors.Is(err, errNoParent):
		return http.StatusConflict, err.Error()
	case errors.Is(err, errChanged), errors.Is(err, errThere):
		return http.StatusPreconditionFailed, err.Error()
	case errors.Is(err, errLinked):
		return http.StatusForbidden, err.Error()
	case errors.Is(err, errLists):
		return http.StatusServiceUnavailable, err.Error()
	case errors.Is(err, errLocks), errors.Is(err, errListed):
		return http.StatusInsufficientStorage, err.Error()
	}
	fault, text := door.FaultOf(err)
	if status = statuses[fault]; status == 0 {
		status = other
	}
	return status, text
}
