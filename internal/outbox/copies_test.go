package outbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// copyHost is a server with the share data, which may make copies.
type copyHost struct {
	*fxfer.Server
	copies    *Copies
	home, dir string
	url       fxfer.URL // of the share
	stop      func()
}

// startHost starts a server in these folders, on the address listen, with a limit in bit/s; 0 is none.
func startHost(t *testing.T, home, dir, listen string, limit int64) *copyHost {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("host", filepath.Base(home))
	copies, err := OpenCopies(fxfer.Options{Home: home}, log)
	require.NoError(t, err)
	s, err := fxfer.NewServer(fxfer.ServerOptions{
		Home: home, Listen: listen, Copies: copies, Log: log, Audit: log, RateLimit: limit,
		Shares: []fxfer.Share{{Name: "data", Dir: dir, Rights: fxfer.Read | fxfer.Write}},
	})
	require.NoError(t, err)
	u, err := fxfer.ParseURL("fxfer://" + s.Addr().String() + "/data")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan struct{})
	go func() { served <- s.Serve(ctx) }()
	go func() {
		defer close(ran)
		copies.Run(ctx, s.OpenCopy)
	}()
	stopped := false
	h := &copyHost{Server: s, copies: copies, home: home, dir: dir, url: u, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(t, <-served)
		<-ran
		require.NoError(t, copies.Close())
	}}
	t.Cleanup(h.stop)
	return h
}

func newHost(t *testing.T) *copyHost {
	t.Helper()
	return startHost(t, t.TempDir(), t.TempDir(), "127.0.0.1:0", 0)
}

// admit lets a client do this on the share.
func (h *copyHost) admit(t *testing.T, user, rights string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(h.home, "authorized_clients"), []byte(user+" "+rights+"\n"), 0o600))
}

// at is a path in the share.
func (h *copyHost) at(path string) fxfer.URL {
	u := h.url
	u.Path = path
	return u
}

// newUser makes a client that knows both servers, and may read at a and write at b.
func newUser(t *testing.T, a, b *copyHost) (c *fxfer.Client, pin string) {
	t.Helper()
	home := t.TempDir()
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	pin = string(identity.PinOfPrivate(key))
	a.admit(t, pin, "data=ro")
	b.admit(t, pin, "data=wo")
	for _, h := range []*copyHost{a, b} {
		require.NoError(t, store.AddKnownServer(h.url.Address(), fxfer.Pin(h.Pin())))
	}
	c, err = fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	return c, pin
}

// awaitCopy follows a copy until it is in one of these states.
func awaitCopy(t *testing.T, c *fxfer.Client, at fxfer.URL, id string, states ...fxfer.CopyState) (s fxfer.CopyStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := c.FollowCopy(ctx, at, id, func(s fxfer.CopyStatus) bool {
		for _, want := range states {
			if s.State == want {
				return false
			}
		}
		return true
	})
	require.NoError(t, err)
	require.Contains(t, states, s.State, s.Text)
	return s
}

// TestCopy: a tree goes from one server to the other, and the client that has asked is gone. Rights are
// those of the user at both ends: the servers do not know each other.
func TestCopy(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	c, _ := newUser(t, a, b)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	require.NoError(t, os.MkdirAll(filepath.Join(a.dir, "x/sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "x/sub/big"), content, 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "x/small"), []byte("hello"), 0o600))
	require.NoError(t, os.Link(filepath.Join(a.dir, "x/small"), filepath.Join(a.dir, "x/again")))
	from := a.at("x")
	from.TrailingSlash = true
	s, err := c.Copy(t.Context(), from, b.at("deep/y"), fxfer.CopyOptions{})
	require.NoError(t, err)
	require.Equal(t, "data/x", s.From)

	s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyDone)
	require.Equal(t, int64(len(content)+5), s.Bytes)
	require.Equal(t, s.TotalBytes, s.Bytes)
	require.False(t, s.Ended.IsZero())
	got, err := os.ReadFile(filepath.Join(b.dir, "deep/y/sub/big"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	one, err := os.Stat(filepath.Join(b.dir, "deep/y/small"))
	require.NoError(t, err)
	other, err := os.Stat(filepath.Join(b.dir, "deep/y/again"))
	require.NoError(t, err)
	require.True(t, os.SameFile(one, other), "hard links")

	known, err := os.ReadFile(filepath.Join(a.home, "known_servers"))
	require.ErrorIs(t, err, os.ErrNotExist, "users say whom a server knows: %s", known)
	all, err := c.Copies(t.Context(), a.url, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	_, err = c.ChangeCopy(t.Context(), a.url, s.ID, fxfer.PauseCopy)
	require.Error(t, err, "it has ended")
}

// TestCopyRefused: what a user may not do itself, it cannot have done.
func TestCopyRefused(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	c, pin := newUser(t, a, b)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "f"), []byte("x"), 0o600))
	for name, x := range map[string]struct{ atA, atB string }{
		"no right to read":     {"data=wo", "data=wo"},
		"no right to write":    {"data=ro", "data=ro"},
		"not known at b":       {"data=ro", "other=wo"},
		"a right to add there": {"data=ro", "data=append"},
	} {
		a.admit(t, pin, x.atA)
		b.admit(t, pin, x.atB)
		s, err := c.Copy(t.Context(), a.at("f"), b.at("f"), fxfer.CopyOptions{})
		if name == "no right to read" {
			require.Equal(t, fxfer.KindTrust, fxfer.KindOf(err), name)
			continue
		}
		require.NoError(t, err, name)
		s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyFailed)
		require.NotEmpty(t, s.Text, name)
	}
	a.admit(t, pin, "data=ro")
	_, err := c.Copy(t.Context(), a.at("none"), b.at("f"), fxfer.CopyOptions{})
	require.Equal(t, fxfer.KindNotFound, fxfer.KindOf(err))
	_, err = c.Copy(t.Context(), a.at("f"), a.at("g"), fxfer.CopyOptions{})
	require.ErrorContains(t, err, "one server")
	require.NoFileExists(t, filepath.Join(b.dir, "f"))

	// Others see no copy of this user, and end none.
	stranger, _ := newUser(t, a, b)
	all, err := stranger.Copies(t.Context(), a.url, "")
	require.NoError(t, err)
	require.Empty(t, all)
	mine, err := a.copies.List(pin)
	require.NoError(t, err)
	require.NotEmpty(t, mine)
	_, err = stranger.ChangeCopy(t.Context(), a.url, mine[0].ID, fxfer.CancelCopy)
	require.Equal(t, fxfer.KindNotFound, fxfer.KindOf(err))
}

// TestCopyImpostor: at the address of b is another server now. The copy does not go there.
func TestCopyImpostor(t *testing.T) {
	t.Parallel()
	a, b := newHost(t), newHost(t)
	c, pin := newUser(t, a, b)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "f"), []byte("x"), 0o600))
	b.stop()
	impostor := startHost(t, t.TempDir(), t.TempDir(), b.url.Address(), 0)
	impostor.admit(t, pin, "data=rw")
	s, err := c.Copy(t.Context(), a.at("f"), b.at("f"), fxfer.CopyOptions{})
	require.NoError(t, err)
	s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyFailed)
	require.Contains(t, s.Text, "pinned")
	require.NoFileExists(t, filepath.Join(impostor.dir, "f"))
}

// TestCopyRestarts: a copy is paused, both servers end and begin again, and it resumes where it was. It
// ends when the user loses the right to read.
func TestCopyRestarts(t *testing.T) {
	t.Parallel()
	const slow = 1e6 // half a minute for the file
	a, b := newHost(t), startHost(t, t.TempDir(), t.TempDir(), "127.0.0.1:0", slow)
	c, pin := newUser(t, a, b)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "f"), content, 0o600))
	s, err := c.Copy(t.Context(), a.at("f"), b.at("f"), fxfer.CopyOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err = c.FollowCopy(ctx, a.url, s.ID, func(s fxfer.CopyStatus) bool { return s.Bytes == 0 })
	require.NoError(t, err)
	s, err = c.ChangeCopy(t.Context(), a.url, s.ID, fxfer.PauseCopy)
	require.NoError(t, err)
	require.Equal(t, fxfer.CopyPaused, s.State)
	b.stop()
	a.stop()
	a = startHost(t, a.home, a.dir, a.url.Address(), 0)
	s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyPaused)
	s, err = c.ChangeCopy(t.Context(), a.url, s.ID, fxfer.ResumeCopy)
	require.NoError(t, err)
	b = startHost(t, b.home, b.dir, b.url.Address(), 0)
	s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyDone)
	got, err := os.ReadFile(filepath.Join(b.dir, "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))

	s, err = c.Copy(t.Context(), a.at("f"), b.at("g"), fxfer.CopyOptions{RateLimit: slow})
	require.NoError(t, err)
	_, err = c.FollowCopy(ctx, a.url, s.ID, func(s fxfer.CopyStatus) bool { return s.Bytes == 0 })
	require.NoError(t, err)
	a.admit(t, pin, "data=wo")
	s = awaitCopy(t, c, a.url, s.ID, fxfer.CopyFailed)
	require.Contains(t, s.Text, "right")
	require.NoFileExists(t, filepath.Join(b.dir, "g"))
}

// TestCopyRevoked: the administrator of either server revokes the user's key. That ends the copy that
// runs, and the one that waits for it; the user can't change them any more.
func TestCopyRevoked(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"source", "target"} {
		a, b := newHost(t), newHost(t)
		c, pin := newUser(t, a, b)
		content := make([]byte, 4<<20)
		_, _ = rand.Read(content)
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "f"), content, 0o600))
		var ids []string
		for i := range 1 + copiesOfUserAtOnce {
			s, err := c.Copy(t.Context(), a.at("f"), b.at(fmt.Sprint("f", i)), fxfer.CopyOptions{RateLimit: 1e6})
			require.NoError(t, err)
			ids = append(ids, s.ID)
		}
		for _, id := range ids[:copiesOfUserAtOnce] {
			_, err := c.FollowCopy(t.Context(), a.url, id, func(s fxfer.CopyStatus) bool { return s.Bytes == 0 })
			require.NoError(t, err)
		}
		at := a
		if where == "target" {
			at = b
		}
		at.admit(t, pin, "revoked")
		require.Eventually(t, func() bool {
			all, err := a.copies.List(pin)
			require.NoError(t, err)
			for _, s := range all {
				if s.State != fxfer.CopyFailed || s.Text == "" {
					return false
				}
			}
			return len(all) == len(ids)
		}, 3*time.Minute, 10*time.Millisecond, where)
		_, err := c.ChangeCopy(t.Context(), a.url, ids[0], fxfer.ResumeCopy)
		require.Error(t, err, where)
		left, err := filepath.Glob(filepath.Join(b.dir, "f*"))
		require.NoError(t, err)
		require.Empty(t, left, where)
	}
}

// TestCopySettle is what becomes of a copy after a run.
func TestCopySettle(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	lost := &fxfer.Error{Kind: fxfer.KindUnreachable, Err: errors.New("lost")}
	for name, x := range map[string]struct {
		state   fxfer.CopyState
		err     error
		stopped bool
		want    fxfer.CopyState
		tries   int
	}{
		"done":             {fxfer.CopyRunning, nil, false, fxfer.CopyDone, 1},
		"lost":             {fxfer.CopyRunning, lost, false, fxfer.CopyWaiting, 2},
		"no right":         {fxfer.CopyRunning, &fxfer.Error{Kind: fxfer.KindTrust, Err: errors.New("no")}, false, fxfer.CopyFailed, 1},
		"the server ends":  {fxfer.CopyRunning, lost, true, fxfer.CopyWaiting, 1},
		"paused":           {fxfer.CopyPaused, lost, true, fxfer.CopyPaused, 1},
		"cancelled":        {fxfer.CopyCancelled, nil, true, fxfer.CopyCancelled, 1},
		"paused, resumed":  {fxfer.CopyWaiting, lost, true, fxfer.CopyWaiting, 1},
		"done, but paused": {fxfer.CopyPaused, nil, false, fxfer.CopyPaused, 1},
	} {
		got := copyRecord{State: x.state, Tries: 1}.settle(nil, x.err, x.stopped, now)
		require.Equal(t, x.want, got.State, name)
		require.Equal(t, x.tries, got.Tries, name)
		require.Equal(t, x.tries > 1, got.After.After(now), name)
		require.Equal(t, got.State == fxfer.CopyDone || got.State == fxfer.CopyFailed, !got.Ended.IsZero(), name)
	}
}

// TestCopiesFull: a user's copies that have ended give way to new ones, and the others do not.
func TestCopiesFull(t *testing.T) {
	t.Parallel()
	c, err := OpenCopies(fxfer.Options{Home: t.TempDir()}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer c.Close()
	c.db.NoSync = true
	add := func(user string) (fxfer.CopyStatus, error) {
		return c.Add(fxfer.Copy{User: user, Until: time.Now().Add(time.Hour)})
	}
	first, err := add("me")
	require.NoError(t, err)
	for range copiesOfUser - 1 {
		_, err := add("me")
		require.NoError(t, err)
	}
	_, err = add("me")
	require.ErrorIs(t, err, fxfer.ErrCopiesFull)
	_, err = add("other")
	require.NoError(t, err)
	_, err = c.Change("other", first.ID, fxfer.CancelCopy)
	require.ErrorIs(t, err, fxfer.ErrNoCopy)
	_, err = c.Change("me", first.ID, fxfer.CancelCopy)
	require.NoError(t, err)
	_, err = c.Change("me", first.ID, fxfer.ResumeCopy)
	require.ErrorIs(t, err, fxfer.ErrCopyEnded)
	_, err = add("me")
	require.NoError(t, err)
	all, err := c.List("me")
	require.NoError(t, err)
	require.Len(t, all, copiesOfUser)
	require.NotEqual(t, first.ID, all[0].ID)
}

// TestCopiesBegin: copies begin in their order, few at a time, and no user has all of them. What has
// expired fails.
func TestCopiesBegin(t *testing.T) {
	t.Parallel()
	c, err := OpenCopies(fxfer.Options{Home: t.TempDir()}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer c.Close()
	c.db.NoSync = true
	now := time.Now()
	ids := map[string]string{}
	add := func(name, user string, until time.Time) {
		s, err := c.Add(fxfer.Copy{User: user, Until: until})
		require.NoError(t, err)
		ids[s.ID] = name
	}
	add("old", "a", now)
	for _, name := range []string{"a1", "a2", "a3", "b1", "c1", "c2"} {
		add(name, name[:1], now.Add(time.Hour))
	}
	begin := func() (names []string) {
		due, _ := c.begin(t.Context(), now)
		for _, x := range due {
			names = append(names, ids[x.ID])
		}
		return names
	}
	require.Equal(t, []string{"a1", "a2", "b1", "c1"}, begin())
	require.Empty(t, begin())
	all, err := c.List("a")
	require.NoError(t, err)
	require.Equal(t, fxfer.CopyFailed, all[0].State)
	require.Contains(t, all[0].Text, "expired")
	end := func(i int) {
		x := c.ofLocked("")[i]
		x.stop()
		x.stop, x.copyRecord = nil, x.settle(nil, nil, false, now)
	}
	end(1)
	require.Equal(t, []string{"a3"}, begin())
	end(4)
	require.Equal(t, []string{"c2"}, begin())
	now = now.Add(copyKept + time.Hour)
	begin()
	all, err = c.List("b")
	require.NoError(t, err)
	require.Empty(t, all, "one that has ended is forgotten after a week")
}
