package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// asked are the requests whose answers may take long. Each asks a server, and returns what the user gets to know.
var asked = map[string]func(ctx context.Context, x *exchange, here string) error{
	"verify": func(ctx context.Context, x *exchange, here string) error {
		v := verifier{findings: newFindings(session.URL{}, Verification{})}
		if err := v.open(here); err != nil {
			return err
		}
		defer v.tree.Close()
		return describe(ctx, v.compareAll(ctx, x), "nas")
	},
	"verify, what is missing": func(ctx context.Context, x *exchange, here string) error {
		v := verifier{findings: newFindings(session.URL{}, Verification{})}
		if err := v.open(here); err != nil {
			return err
		}
		defer v.tree.Close()
		return describe(ctx, v.findMissing(ctx, x), "nas")
	},
	"rm": func(ctx context.Context, x *exchange, _ string) error {
		return (&Files{x: x, ctx: ctx}).Remove([]string{"a", "b"}, true, func(string, error) {})
	},
	"rm -n": func(ctx context.Context, x *exchange, _ string) error {
		return (&Files{x: x, ctx: ctx}).WouldRemove([]string{"a", "b"}, true, func(Entry) {}, func(string, error) {})
	},
	"du": func(ctx context.Context, x *exchange, _ string) error {
		_, err := (&Files{x: x, ctx: ctx}).Usage("a")
		return err
	},
	"cat": func(ctx context.Context, x *exchange, _ string) error {
		return (&Files{x: x, ctx: ctx}).Read("a", io.Discard)
	},
	"scrub": func(ctx context.Context, x *exchange, _ string) error {
		return describe(ctx, (&scrub{newFindings(session.URL{}, Verification{})}).hear(x), "nas")
	},
	"prune": func(ctx context.Context, x *exchange, _ string) error {
		return describe(ctx, (&expiry{keep: []string{"2026-11-20T020000Z"}}).ask(x), "nas")
	},
	"copies": func(ctx context.Context, x *exchange, _ string) error {
		_, err := (&copyWork{x, ctx, "nas"}).ask(&wire.CopyRequest{Do: wire.CopyList})
		return err
	},
}

const day = 24 * time.Hour

// ask asks a server that says something every 5 s until it hangs up. It returns after how long the client ends.
func ask(t *testing.T, do func(context.Context, *exchange, string) error, until time.Duration, say func(at time.Duration) []wire.Message) (ended time.Duration, notices []string, err error) {
	t.Helper()
	here := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(here, "f"), nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var tasks sync.WaitGroup
		tasks.Go(func() { _, _ = io.Copy(io.Discard, far) })
		began := time.Now()
		tasks.Go(func() {
			defer far.Close()
			for at := time.Duration(0); at < until; at = time.Since(began) {
				var out []byte
				for _, m := range say(at) {
					out = wire.Append(out, m)
				}
				if _, err := far.Write(out); err != nil {
					return
				}
				time.Sleep(5 * time.Second)
			}
		})
		x := exchange{dialer: dialer{client: &Client{opt: Options{Notice: func(text string) { notices = append(notices, text) }}}}}
		x.conn, x.patience = pipeConn{pipe: near}, session.DialTimeout
		x.r = wire.NewReader(x.conn, wire.MaxMessage)
		x.watch(t.Context())
		err = do(t.Context(), &x, here)
		ended = time.Since(began)
		x.end(nil)
		x.watching.Wait()
		_ = near.Close()
		tasks.Wait()
	})
	return ended, notices, err
}

func working(at time.Duration) wire.Message {
	return &wire.Sample{Values: []wire.Value{{Name: session.WorkTime, Value: int64(at)}}}
}

// TestAnswersEnd: no request waits for a server that answers pings and does nothing else. One that works has the time
// that it needs.
func TestAnswersEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say  func(at time.Duration) []wire.Message
		ends time.Duration
	}{
		"pings": {func(time.Duration) []wire.Message { return []wire.Message{&wire.Ping{}} }, 10 * time.Minute},
		"it welcomes again and again": {func(time.Duration) []wire.Message {
			return []wire.Message{&wire.Welcome{}, &wire.Ping{}, &wire.Pong{}}
		}, 10 * time.Minute},
		"the same work again": {func(time.Duration) []wire.Message { return []wire.Message{working(7), working(5)} }, 10 * time.Minute},
		"an hour of work": {func(at time.Duration) []wire.Message {
			return []wire.Message{&wire.Ping{}, working(min(at, time.Hour))}
		}, time.Hour + 10*time.Minute},
	} {
		for request, do := range asked {
			ended, notices, err := ask(t, do, 3*time.Hour, c.say)
			require.ErrorContains(t, err, "nothing has happened for 10m0s, though the other side answers", "%s: %s", request, name)
			require.Equal(t, session.KindUnreachable, session.KindOf(err), "%s: %s", request, name)
			require.InDelta(t, c.ends, ended, float64(20*time.Second), "%s: %s", request, name)
			require.Len(t, notices, 1, "%s: %s", request, name)
		}
	}
}

// TestAnswersOfWork: a server may say for some days that it works on one file, but not for ever. One that shows
// results may take as long as it wants.
func TestAnswersOfWork(t *testing.T) {
	t.Parallel()
	claims := func(at time.Duration) []wire.Message { return []wire.Message{working(at)} }
	ended, _, err := ask(t, asked["verify"], 30*day, claims)
	require.ErrorContains(t, err, "nothing has happened for 10m0s")
	require.InDelta(t, 7*day, ended, float64(time.Hour))

	for name, c := range map[string]struct {
		request string
		result  func(at time.Duration) wire.Message
	}{
		"files that were read": {"scrub", func(at time.Duration) wire.Message {
			return &wire.Sample{Values: []wire.Value{{Name: session.ScrubFiles, Value: int64(at / day)}}}
		}},
		"entries that would go": {"rm -n", func(at time.Duration) wire.Message {
			if at%day >= 5*time.Second {
				return &wire.Ping{}
			}
			return &wire.Removed{Kind: wire.File, Path: "a/b"}
		}},
	} {
		ended, _, err = ask(t, asked[c.request], 10*day, func(at time.Duration) []wire.Message {
			return append(claims(at), c.result(at))
		})
		require.ErrorContains(t, err, "closed the connection", name)
		require.GreaterOrEqual(t, ended, 10*day, name)
	}
}

// TestListingsAreBounded: what a server lists takes no more memory than a client has for it, whatever an entry has:
// names of owners, too. Neither do all folders that a pattern leads to.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	owner := strings.Repeat("o", 250)
	for name, e := range map[string]wire.Entry{
		"short names": {Kind: wire.Dir, Path: "d"},
		"owners":      {Kind: wire.Dir, Path: "d", Owned: true, User: owner, Group: owner},
		"links":       {Kind: wire.Symlink, Path: "d", Link: owner + owner},
	} {
		l, n, err := listing{most: most}, 0, error(nil)
		for size := int(unsafe.Sizeof(Entry{})) + len(e.Path) + len(e.User) + len(e.Group) + len(e.Link); err == nil; n += size {
			err = l.add(&wire.Entries{Entries: []wire.Entry{e}})
		}
		require.ErrorContains(t, err, "does not end", name)
		require.InDelta(t, most, n, most/4, name)
	}

	folders := &wire.Entries{}
	for i := range 100 {
		folders.Entries = append(folders.Entries, wire.Entry{Kind: wire.Dir, Path: fmt.Sprint("folder", i)})
	}
	_, _, err := ask(t, func(ctx context.Context, x *exchange, _ string) error {
		_, err := (&Files{x: x, ctx: ctx, most: most}).Glob("", []string{"*", "*", "*"})
		return err
	}, 30*day, func(time.Duration) []wire.Message { return []wire.Message{folders, &wire.Operated{}} })
	require.ErrorContains(t, err, "does not end")
}
