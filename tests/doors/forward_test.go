package doors

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// sentOn sends the files of the shares docs and scans on, as far as a server knows.
type sentOn struct {
	files  []fxfer.Forwarded
	states map[string]string // that Confirm returns, by path
}

func (s *sentOn) States() ([]fxfer.Forwarded, bool, error) { return s.files, false, nil }

func (s *sentOn) StatesOf(paths []string) (some []fxfer.Forwarded, err error) {
	for _, f := range s.files {
		if slices.Contains(paths, f.Path) {
			some = append(some, f)
		}
	}
	return some, nil
}

func (s *sentOn) Confirm(_ context.Context, path string) (string, error) { return s.states[path], nil }

// beginSentOn runs a server with all doors whose shares are sent on.
func beginSentOn(t *testing.T, f fxfer.Forwarder) *dav {
	return beginDAV(t, func(o *fxfer.ServerOptions) {
		o.Doors.FTP = fxfer.FTPDoor{Addr: "127.0.0.1:0"}
		o.Forwarder = func(string) fxfer.Forwarder { return f }
	})
}

// TestStates reads how far files are, by each door.
func TestStates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	d := beginSentOn(t, &sentOn{files: []fxfer.Forwarded{
		{Path: "d/a b", State: "there", Since: at}, {Path: "line\nbreak", State: "arriving", Since: at}, {Path: "mine", State: "waiting", Since: at},
	}})
	want := "there     2026-01-02T02:04:05Z  d/a b\narriving  2026-01-02T02:04:05Z  line\ufffdbreak\nwaiting   2026-01-02T02:04:05Z  mine\n"
	require.NoError(t, os.WriteFile(d.share("docs/.state"), []byte("of the disk"), 0o600))

	client, _ := d.dial(t, "anna")
	f, err := client.Open("/docs/.state")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
	require.NoError(t, f.Close())
	info, err := client.Stat("/docs/.state")
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), info.Size())
	require.True(t, at.Equal(info.ModTime()))
	_, err = client.Create("/docs/.state")
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorIs(t, client.Remove("/docs/.state"), os.ErrPermission)
	require.ErrorIs(t, client.Mkdir("/docs/.state"), os.ErrPermission)
	require.NoError(t, client.Mkdir("/docs/d"))
	require.ErrorIs(t, client.Rename("/docs/d", "/docs/.state"), os.ErrPermission)
	_, err = client.Stat("/docs/d/.state")
	require.ErrorIs(t, err, os.ErrNotExist, "only the top has one")
	require.NoError(t, os.WriteFile(d.share("docs/d/.state"), []byte("of the disk"), 0o600))
	for folder, has := range map[string]string{"/docs": "d", "/docs/d": ".state"} {
		all, err := client.ReadDir(folder)
		require.NoError(t, err)
		require.Len(t, all, 1, "no list has that of the server")
		require.Equal(t, has, all[0].Name())
	}
	_, err = client.Stat("/.state")
	require.ErrorIs(t, err, os.ErrNotExist)

	x := d.dialFTP(t).logIn("anna", true)
	data, _ := x.data("RETR /docs/.state")
	text, err = io.ReadAll(data)
	require.NoError(t, err)
	x.expect(226)
	require.Equal(t, want, string(text))
	x.do(550, "DELE /docs/.state")

	status, answer, h := d.as(t, "anna", http.MethodGet, d.url("/docs/.state"), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, want, answer)
	require.NotEmpty(t, h.Get("ETag"))
	require.Equal(t, http.StatusForbidden, d.anna(t, http.MethodPut, "/docs/.state", "mine"))

	// Who may not list the share learns of what came on this connection.
	client, _ = d.dial(t, "scanner")
	read := func() string {
		f, err := client.Open("/scans/.state")
		require.NoError(t, err)
		defer f.Close()
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		return string(text)
	}
	require.Empty(t, read())
	mine, err := client.Create("/scans/mine")
	require.NoError(t, err)
	require.NoError(t, mine.Close())
	require.True(t, strings.HasSuffix(read(), "  mine\n"))
	require.Equal(t, 1, strings.Count(read(), "\n"))
}

// TestConfirm replies to an upload by what is known of its state, at each door. The file stays in any
// case.
func TestConfirm(t *testing.T) {
	t.Parallel()
	d := beginSentOn(t, &sentOn{states: map[string]string{"there": "there", "waits": "waiting"}})
	client, _ := d.dial(t, "anna")
	x := d.dialFTP(t).logIn("anna", true)
	for _, name := range []string{"there", "waits", "unasked"} {
		const refusal = "waits is stored here and not lost, but it is not at its destination yet: its state is waiting"
		f, err := client.Create("/docs/" + name)
		require.NoError(t, err)
		_, err = f.Write([]byte("by SFTP"))
		require.NoError(t, err)
		if err = f.Close(); name == "waits" {
			require.ErrorContains(t, err, refusal)
		} else {
			require.NoError(t, err)
		}
		requireFile(t, []byte("by SFTP"), d.share("docs", name))

		code := 226
		if name == "waits" {
			code = 450
		}
		data, _ := x.data("STOR /docs/%s", name)
		_, err = io.WriteString(data, "by FTP")
		require.NoError(t, err)
		require.NoError(t, data.Close())
		if text := x.expect(code); name == "waits" {
			require.Contains(t, text, refusal)
		}
		requireFile(t, []byte("by FTP"), d.share("docs", name))

		status, text, _ := d.as(t, "anna", http.MethodPut, d.url("/docs/"+name), "by WebDAV")
		if name == "waits" {
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, text, refusal)
		} else {
			require.Less(t, status, 300)
		}
		requireFile(t, []byte("by WebDAV"), d.share("docs", name))
	}
}

// never sends nothing on. It tells of each wait for a file and of why it has ended.
type never struct {
	sentOn
	begun chan string
	ended chan error
}

func (n *never) Confirm(ctx context.Context, path string) (string, error) {
	n.begun <- path
	<-ctx.Done()
	n.ended <- context.Cause(ctx)
	return "", ctx.Err()
}

// TestConfirmEnds leaves while the server holds the reply to an upload.
func TestConfirmEnds(t *testing.T) {
	t.Parallel()
	n := &never{begun: make(chan string, 10), ended: make(chan error, 10)}
	d := beginSentOn(t, n)
	begun := func(name string) {
		t.Helper()
		select {
		case got := <-n.begun:
			require.Equal(t, name, got)
		case <-time.After(patience):
			t.Fatal("nobody waits for ", name)
		}
		requireFile(t, []byte("whole"), d.share("docs", name))
	}
	ended := func() {
		t.Helper()
		select {
		case err := <-n.ended:
			require.Error(t, err)
		case <-time.After(patience):
			t.Fatal("the server still waits")
		}
	}

	x := d.dialFTP(t).logIn("anna", true)
	store := func(name string) {
		data, _ := x.data("STOR /docs/%s", name)
		_, err := io.WriteString(data, "whole")
		require.NoError(t, err)
		require.NoError(t, data.Close())
		begun(name)
	}
	store("a")
	x.do(213, "STAT")
	x.do(426, "ABOR")
	x.expect(226)
	ended()
	store("b")
	require.NoError(t, x.conn.Close())
	ended()

	client, conn := d.dial(t, "anna")
	f, err := client.Create("/docs/sftp")
	require.NoError(t, err)
	_, err = io.WriteString(f, "whole")
	require.NoError(t, err)
	left := make(chan error, 1)
	go func() { left <- f.Close() }()
	begun("sftp")
	require.NoError(t, conn.Close())
	require.Error(t, <-left)
	ended()

	ctx, leave := context.WithCancel(t.Context())
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, d.url("/docs/c"), strings.NewReader("whole"))
		if err == nil {
			r.SetBasicAuth("anna", password)
			var a *http.Response
			if a, err = d.client.Do(r); err == nil {
				err = errors.Join(fmt.Errorf("the server replied %s", a.Status), a.Body.Close())
			}
		}
		left <- err
	}()
	begun("c")
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	ended()
	require.Equal(t, http.StatusCreated, d.anna(t, "COPY", "/docs/c", "", "Destination", d.url("/docs/d")), "nothing waits for copies")
	requireFile(t, []byte("whole"), d.share("docs", "d"))
}

// TestConfirmRemote brings files to a server that sends them on: when the client has its reply, the
// file is at the other one, and the webhook hears of it. While that is away, the reply says that the file waits.
func TestConfirmRemote(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	inbox := t.TempDir()
	centre, err := fxfer.NewServer(fxfer.ServerOptions{
		Home: t.TempDir(), Listen: "127.0.0.1:0", Shares: []fxfer.Share{{Name: "inbox", Dir: inbox, Rights: fxfer.Read | fxfer.Write}},
		Clients: []fxfer.Admission{{Key: string(identity.PinOfPrivate(key)), Rights: map[string]fxfer.Rights{"inbox": fxfer.Read | fxfer.Write}}},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- centre.Serve(ctx) }()
	to, err := fxfer.ParseURL("fxfer://" + centre.Addr().String() + "/inbox/branch")
	require.NoError(t, err)

	heard := make(chan outbox.News, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n outbox.News
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		heard <- n
	}))
	defer hook.Close()
	forwards := outbox.NewForwards(fxfer.Options{Home: home}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer forwards.Close()
	s := begin(t, func(o *fxfer.ServerOptions) { o.Forwarder = forwards.Of })
	forward := outbox.Forward{
		Share: "docs", Dir: s.share("docs"), URL: to, Pin: centre.Pin(), Settle: time.Hour, Then: outbox.Then{Delete: true}, ConfirmWithin: patience,
		Webhook: outbox.Webhook{URL: hook.URL},
	}
	forwards.Apply([]outbox.Forward{forward})
	client, _ := s.dial(t, "anna")
	send := func(name string, size int) ([]byte, error) {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		f, err := client.Create("/docs/" + name)
		require.NoError(t, err)
		_, err = f.Write(data)
		require.NoError(t, err)
		return data, f.Close()
	}
	for _, size := range []int{0, 1, 3 << 20} {
		data, err := send("page.pdf", size)
		require.NoError(t, err)
		requireFile(t, data, filepath.Join(inbox, "branch", "page.pdf"))
		for n := (outbox.News{Bytes: -1}); n.Bytes != int64(size); { // it may hear of a file twice
			n = <-heard
			require.Equal(t, outbox.EventThere, n.Event)
			require.Equal(t, "page.pdf", n.Path)
		}
	}

	end()
	require.NoError(t, <-ended)
	forward.ConfirmWithin = time.Second
	forwards.Apply([]outbox.Forward{forward}) // it counts for connections that are there
	data, err := send("late.pdf", 1000)
	require.ErrorContains(t, err, "late.pdf is stored here and not lost, but it is not at its destination yet: its state is ")
	requireFile(t, data, s.share("docs", "late.pdf"))
	f, err := client.Open("/docs/.state")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^there     \S+  page.pdf$`, string(text))
	require.Regexp(t, `(?m)^(arriving|waiting|sending) +\S+  late.pdf$`, string(text))
	require.NoError(t, f.Close())
	forwards.Apply(nil)
	_, err = client.Stat("/docs/.state")
	require.ErrorIs(t, err, os.ErrNotExist)
}
