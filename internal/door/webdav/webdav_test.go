package webdav

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/webdav"

	"github.com/fxfer/fxfer/internal/door"
)

// server admits anna with the password that it has, to nothing.
type server struct {
	password atomic.Value
	checks   atomic.Int32
	logins   atomic.Int32 // at the moment
	takes    time.Duration
	conn     io.Closer // of the last login
}

func newServer() *server {
	s := &server{takes: time.Second}
	s.password.Store("right")
	return s
}

func (s *server) Password(ctx context.Context, c door.Client, name, password string) (door.Account, error) {
	s.checks.Add(1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if name != "anna" || password != s.password.Load() {
		return nil, door.ErrLogin
	}
	s.conn = c.Conn
	return s, nil
}

func (s *server) Key(context.Context, door.Client, string, []byte) (door.Account, error) {
	return nil, door.ErrLogin
}

func (s *server) LogIn() (func(), error) {
	s.logins.Add(1)
	return func() { s.logins.Add(-1) }, nil
}
func (*server) Shares() []door.Share { return nil }
func (*server) Enter(context.Context, string) (*door.Session, error) {
	return nil, os.ErrNotExist
}

// connect returns the client's end of a connection to a door, and when the door has left it.
func connect(t *testing.T, d *Door) (client net.Conn, left func() time.Time) {
	t.Helper()
	here, there := net.Pipe()
	ended := make(chan time.Time, 1)
	go func() {
		_ = d.Serve(t.Context(), there, func() {})
		ended <- time.Now()
	}()
	return here, func() time.Time { return <-ended }
}

func anywhere(net.Addr) bool { return true }

// ask sends a request on a connection, and returns the status, 0 for none.
func ask(c net.Conn, method, user, password string) int {
	r, _ := http.NewRequest(method, "http://door/", nil)
	r.Header.Set("Depth", "0")
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	go func() { _ = r.Write(c) }()
	a, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, a.Body)
	a.Body.Close()
	return a.StatusCode
}

// TestDeadlines: who does not log in leaves, who is silent leaves, and so does who sends a head byte
// by byte.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(newServer(), Options{Clear: anywhere})
		defer d.Close()
		stays := func(does func(c net.Conn)) time.Duration {
			c, left := connect(t, d)
			began := time.Now()
			does(c)
			defer c.Close()
			return left().Sub(began)
		}
		takeAll := func(c net.Conn) { go func() { _, _ = io.Copy(io.Discard, c) }() }
		require.Equal(t, headWithin, stays(func(net.Conn) {}), "nothing")
		require.LessOrEqual(t, stays(func(c net.Conn) {
			takeAll(c)
			go func() {
				for {
					if _, err := c.Write([]byte("G")); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
		}), 2*headWithin, "byte by byte")
		require.LessOrEqual(t, stays(func(c net.Conn) {
			for ask(c, "OPTIONS", "", "") == http.StatusUnauthorized {
				time.Sleep(headWithin / 2)
			}
		}), door.LoginWithin+headWithin, "no login")
		require.LessOrEqual(t, stays(func(c net.Conn) {
			require.Equal(t, http.StatusOK, ask(c, "OPTIONS", "anna", "right"))
		}), door.SilentFor+2*time.Second, "no more requests")
		for _, method := range []string{"PROPPATCH", "OPTIONS"} {
			require.LessOrEqual(t, stays(func(c net.Conn) {
				takeAll(c)
				go func() {
					_, _ = fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW5uYTpyaWdodA==\r\nContent-Length: 99\r\n\r\n<", method)
				}()
			}), 2*door.SilentFor+time.Minute, "half a body: %s", method)
		}
	})
}

// TestSharedLogins: requests of one user share a login, which lasts a while, and ends with the password and
// when the server says so.
func TestSharedLogins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := New(s, Options{Clear: anywhere})
		defer d.Close()
		once := func(password string) int {
			c, left := connect(t, d)
			defer left()
			defer c.Close()
			return ask(c, "OPTIONS", "anna", password)
		}
		crowd := make(chan int)
		for range 20 {
			go func() { crowd <- once("right") }()
		}
		for range 20 {
			require.Equal(t, http.StatusOK, <-crowd)
		}
		require.EqualValues(t, 1, s.checks.Load(), "one login for all")
		require.EqualValues(t, 1, s.logins.Load())
		for _, user := range []string{"anna", "bob"} {
			_, err := d.locks.add(time.Now(), user, webdav.LockDetails{Root: "/" + user, Duration: maxLock})
			require.NoError(t, err)
		}
		require.Equal(t, http.StatusUnauthorized, once("wrong"))
		require.Len(t, d.locks.all, 2)
		require.EqualValues(t, 1, s.logins.Load())
		require.EqualValues(t, 2, s.checks.Load())

		time.Sleep(stayFor - 10*time.Second)
		require.Equal(t, http.StatusOK, once("right"))
		time.Sleep(stayFor - 10*time.Second)
		require.Equal(t, http.StatusOK, once("right"))
		require.EqualValues(t, 3, s.checks.Load(), "asked again after a while")
		s.password.Store("new")
		time.Sleep(stayFor / 2)
		require.Equal(t, http.StatusOK, once("right"))
		time.Sleep(stayFor / 2)
		require.Equal(t, http.StatusUnauthorized, once("right"))
		require.EqualValues(t, 0, s.logins.Load())
		require.Len(t, d.locks.all, 1, "that of bob")

		require.Equal(t, http.StatusOK, once("new"))
		_, err := d.locks.add(time.Now(), "anna", webdav.LockDetails{Root: "/anna", Duration: maxLock})
		require.NoError(t, err)
		require.NoError(t, s.conn.Close())
		require.EqualValues(t, 0, s.logins.Load(), "revoked")
		require.Len(t, d.locks.all, 1, "that of bob")
		require.Equal(t, http.StatusOK, once("new"))
		time.Sleep(stayFor + time.Second)
		require.EqualValues(t, 0, s.logins.Load(), "idle")
		require.Empty(t, d.logins.all)
	})
}

// TestOldPassword: where no answer comes to whether a password is still right, it is not for long.
func TestOldPassword(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := New(s, Options{Clear: anywhere})
		defer d.Close()
		once := func() int {
			c, left := connect(t, d)
			defer left()
			defer c.Close()
			return ask(c, "OPTIONS", "anna", "right")
		}
		require.Equal(t, http.StatusOK, once())
		began := time.Now()
		s.password.Store("new")
		s.takes = time.Hour // somebody guesses from the same address
		var mu sync.Mutex
		var last time.Duration // that it was right
		var all sync.WaitGroup
		for range 60 {
			time.Sleep(5 * time.Second)
			at := time.Since(began)
			all.Go(func() {
				if once() == http.StatusOK {
					mu.Lock()
					defer mu.Unlock()
					last = max(last, at)
				}
			})
		}
		all.Wait()
		require.GreaterOrEqual(t, last, recheckEvery, "only one request waits at first")
		require.LessOrEqual(t, last, 2*recheckEvery)
	})
}

// TestRefresh: who may not write any more can't keep a lock that an earlier login has made.
func TestRefresh(t *testing.T) {
	t.Parallel()
	s := newServer() // its users may do nothing
	d := New(s, Options{})
	defer d.Close()
	began := time.Now()
	token, err := d.locks.add(began, "anna", webdav.LockDetails{Root: "/docs/file", Duration: maxLock})
	require.NoError(t, err)
	q := &request{door: d, tree: door.NewTree(t.Context(), s), user: "anna"}
	_, err = q.locks().Refresh(began.Add(time.Second), token, maxLock)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, began.Add(maxLock), d.locks.all[token].until)
}

// TestListed: one user leaves room for the lists of others.
func TestListed(t *testing.T) {
	t.Parallel()
	var l listed
	taken := 0
	for l.take("anna") {
		taken++
	}
	require.Equal(t, maxOwnListed, taken)
	require.True(t, l.take("bob"))
	l.give("anna", 2)
	require.True(t, l.take("anna"))
	l.give("anna", taken-1)
	l.give("bob", 1)
	require.Zero(t, l.all)
	require.Empty(t, l.own)
}

// TestClear refuses passwords without TLS.
func TestClear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := New(s, Options{Clear: func(net.Addr) bool { return false }})
		defer d.Close()
		c, left := connect(t, d)
		require.Equal(t, http.StatusForbidden, ask(c, "OPTIONS", "anna", "right"))
		left()
		require.Zero(t, s.checks.Load())
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"": "Second-3600", "Infinite": "Second-3600", "Infinite, Second-5": "Second-3600", "Second-5": "Second-5",
		" Second-5 , Infinite": "Second-5", "Second-3601": "Second-3600", "Second-4294967295": "Second-3600",
		"Second-99999999999999999999": "Second-99999999999999999999", "Second-x": "Second-x", "Second--1": "Second--1",
	} {
		require.Equal(t, want, capTimeout(header), header)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"/": true, "/docs": true, "/docs//a/": true, "/docs/a%20b%25": true, "/docs/...": true, "http://host/docs": true,
		"": false, "docs": false, "*": false, "/docs/..": false, "/../x": false, "/docs/%2e%2e/x": false, "/a%2fb": false, "/a%2Fb": false,
		"/./a": false, "/a%00": false, "mailto:x": false, "http://host": false,
	} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		require.Equal(t, good, checkURL(u) == nil, text)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list, tag string
		has       bool
	}{
		{`"a"`, `"a"`, true}, {`"b", "a"`, `"a"`, true}, {`*`, `"a"`, true}, {`*`, "", false}, {`"b"`, `"a"`, false}, {`W/"a"`, `"a"`, false},
	} {
		require.Equal(t, c.has, hasTag(c.list, c.tag), "%+v", c)
	}
}

// TestLockTable compares random locks with a naive model, in which a lock is the set of all paths that
// it covers.
func TestLockTable(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	paths := []string{"/s"}
	for range 3 {
		for _, p := range paths {
			if len(paths) < 30 {
				paths = append(paths, p+"/a", p+"/ab")
			}
		}
	}
	type held struct {
		user   string
		covers map[string]bool
		until  time.Time
	}
	below := func(p string) map[string]bool {
		all := make(map[string]bool)
		for _, x := range paths {
			for at := x; at != "/"; at = path.Dir(at) {
				if at == p {
					all[x] = true
				}
			}
		}
		return all
	}
	meet := func(a, b map[string]bool) bool {
		for p := range a {
			if b[p] {
				return true
			}
		}
		return false
	}
	var table lockTable
	model := make(map[string]held)
	now := time.Now()
	for range 2000 {
		now = now.Add(time.Duration(random.IntN(10)) * time.Second)
		for token, l := range model {
			if !l.until.After(now) {
				delete(model, token)
			}
		}
		user, p, deep := fmt.Sprint(random.IntN(2)), paths[random.IntN(len(paths))], random.IntN(2) == 0
		covers := map[string]bool{p: true}
		if deep {
			covers = below(p)
		}
		locked, given := false, func(token string) bool { return strings.HasSuffix(token, "0") || strings.HasSuffix(token, "5") }
		free := true
		for token, l := range model {
			if meet(l.covers, covers) {
				free = false
				locked = locked || l.user != user || !given(token)
			}
		}
		require.Equal(t, locked, table.isLocked(now, user, p, deep, given))
		switch random.IntN(4) {
		case 0:
			table.forget(p)
			gone := below(p)
			for token, l := range model {
				root := ""
				for x := range l.covers {
					if root == "" || len(x) < len(root) {
						root = x
					}
				}
				if gone[root] {
					delete(model, token)
				}
			}
		default:
			lasts := time.Duration(random.IntN(60)) * time.Second
			token, err := table.add(now, user, webdav.LockDetails{Root: p, ZeroDepth: !deep, Duration: lasts})
			require.Equal(t, free, err == nil, "%v", err)
			if err == nil && lasts > 0 {
				model[token] = held{user, covers, now.Add(lasts)}
			}
		}
	}
}
