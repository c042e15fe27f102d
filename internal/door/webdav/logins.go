package webdav

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// stayFor is how long a login outlasts its last request: clients begin new connections all the
	// time, some for each request.
	stayFor = time.Minute
	// recheckEvery is how often the password of a login is compared with its hash again. That takes
	// 20 MiB, which is too much for each request. One request does it, and others need not wait until
	// the last result is twice as old.
	recheckEvery = time.Minute
	// maxLists bounds the folders that a login reads at a time. Others wait.
	maxLists = 4
)

// login is a user who has logged in from an address, with all of its connections from there: HTTP
// knows only requests, and each has the password.
type login struct {
	key   loginKey
	user  string
	lists chan struct{} // holds a value for each folder that is read
	again chan struct{} // holds a value while the password is compared again
	ready chan struct{} // closed when the following is set
	tree  *door.Tree
	left  func()
	err   error // why the user may not log in

	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by logins.mu.
	requests int
	right    time.Time // when the password was right
	over     bool
	idle     *time.Timer // nil while there are requests
}

// loginKey distinguishes logins, without the password.
type loginKey struct {
	from string // an IP address
	sum  [sha256.Size]byte
}

// logins are the users who are logged in. The server bounds them: each is a connection to it.
type logins struct {
	server  door.Server
	dropped func(user string) // called when a user has lost a right, or its password is another one
	salt    [32]byte

	mu  sync.Mutex // guards the following
	all map[loginKey]*login
}

func newLogins(server door.Server, dropped func(user string)) *logins {
	x := &logins{server: server, dropped: dropped, all: make(map[loginKey]*login)}
	_, _ = rand.Read(x.salt[:]) // never fails
	return x
}

func (x *logins) key(addr net.Addr, name, password string) (k loginKey) {
	k.from, _, _ = net.SplitHostPort(addr.String())
	h := hmac.New(sha256.New, x.salt[:])
	_, _ = h.Write([]byte(name)) // in a name from a header is no colon
	_, _ = h.Write([]byte(":" + password))
	h.Sum(k.sum[:0])
	return k
}

// enter logs in a user for one request, whose context is r. A login ends with ctx. The caller calls
// leave. Errors are those of door.Server.
func (x *logins) enter(ctx, r context.Context, c door.Client, name, password string) (*login, error) {
	k := x.key(c.Addr, name, password)
	x.mu.Lock()
	v := x.all[k]
	begins := v == nil
	if begins {
		v = &login{
			key: k, user: name, right: time.Now(), ready: make(chan struct{}),
			lists: make(chan struct{}, maxLists), again: make(chan struct{}, 1),
		}
		v.ctx, v.cancel = context.WithCancel(ctx)
		x.all[k] = v
	}
	v.requests++
	if v.idle != nil {
		v.idle.Stop()
		v.idle = nil
	}
	x.mu.Unlock()
	r, cancel := context.WithTimeout(r, door.LoginWithin)
	defer cancel()
	c.Conn = closer{x, v}
	var err error
	if begins {
		err = v.begin(x.server, c, name, password)
	} else if err = v.await(r); err == nil {
		err = x.recheck(r, v, c, name, password)
	}
	if err == nil {
		return v, nil
	}
	if begins {
		x.end(v)
	}
	x.leave(v)
	return nil, err
}

// recheck compares the password again when it is time.
func (x *logins) recheck(ctx context.Context, v *login, c door.Client, name, password string) error {
	age := x.age(v)
	if age < recheckEvery {
		return nil
	}
	select {
	case v.again <- struct{}{}:
	default: // another request does
		if age < 2*recheckEvery {
			return nil
		}
		select {
		case v.again <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-v.again }()
	if x.age(v) < recheckEvery { // another request has
		return nil
	}
	_, err := x.server.Password(ctx, c, name, password)
	if errors.Is(err, door.ErrLogin) {
		x.revoke(v)
	}
	if err == nil {
		x.mu.Lock()
		v.right = time.Now()
		x.mu.Unlock()
	}
	return err
}

// age is how long ago the password of a login was right.
func (x *logins) age(v *login) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Since(v.right)
}

// begin logs in for all requests that wait, so it does not end with its own.
func (v *login) begin(server door.Server, c door.Client, name, password string) error {
	defer close(v.ready)
	ctx, cancel := context.WithTimeout(v.ctx, door.LoginWithin)
	defer cancel()
	var account door.Account
	if account, v.err = server.Password(ctx, c, name, password); v.err != nil {
		return v.err
	}
	if v.left, v.err = account.LogIn(); v.err == nil {
		v.tree = door.NewTree(v.ctx, account)
	}
	return v.err
}

// await waits for the login that another request has begun.
func (v *login) await(ctx context.Context) error {
	select {
	case <-v.ready:
		return v.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave ends a request of a login.
func (x *logins) leave(v *login) {
	x.mu.Lock()
	v.requests--
	last := v.requests == 0
	if last && !v.over {
		v.idle = time.AfterFunc(stayFor, func() { x.endIdle(v) })
	}
	gone := last && v.over
	x.mu.Unlock()
	if gone {
		v.close()
	}
}

func (x *logins) endIdle(v *login) {
	x.mu.Lock()
	gone := v.requests == 0 && x.endLocked(v)
	x.mu.Unlock()
	if gone {
		v.close()
	}
}

// end ends a login: further requests log in again, and those under way fail.
func (x *logins) end(v *login) {
	x.mu.Lock()
	gone := x.endLocked(v)
	x.mu.Unlock()
	v.cancel()
	if gone {
		v.close()
	}
}

// revoke is end for a user who has lost a right, or whose password is another one.
func (x *logins) revoke(v *login) {
	x.end(v)
	x.dropped(v.user)
}

// endLocked reports whether the caller has to close the login. Otherwise, its last request does.
func (x *logins) endLocked(v *login) (gone bool) {
	gone = !v.over && v.requests == 0
	v.over = true
	if x.all[v.key] == v {
		delete(x.all, v.key)
	}
	if v.idle != nil {
		v.idle.Stop()
		v.idle = nil
	}
	return gone
}

// close gives back what the login has. No request uses it any more.
func (v *login) close() {
	if v.tree != nil {
		v.tree.Close(nil)
	}
	v.cancel()
	if v.left != nil {
		v.left()
	}
}

// close ends all logins, which have no requests any more.
func (x *logins) close() {
	x.mu.Lock()
	all := make([]*login, 0, len(x.all))
	for _, v := range x.all {
		all = append(all, v)
	}
	x.mu.Unlock()
	for _, v := range all {
		x.end(v)
	}
}

// closer ends a login when its user has lost a right.
type closer struct {
	logins *logins
	login  *login
}

func (c closer) Close() error {
	c.logins.revoke(c.login)
	return nil
}
