package hostile

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/stretchr/testify/require"
)

// trap is a server of the peer. A script gets each control stream after its Hello. Data streams
// stay open.
type trap struct {
	listen net.Listener
	url    fxfer.URL
	pin    string
	done   sync.WaitGroup
	joined chan struct{} // receives a value for each data stream
	blocks chan []byte   // what a data stream says, one each
	stream func(*line)   // serves a data stream; nil for one that reads only
}

func lure(t *testing.T, path string, script func(*line)) *trap {
	t.Helper()
	k := newKey(t)
	p := &trap{pin: k.pin, joined: make(chan struct{}, 10_000), blocks: make(chan []byte, 100)}
	if carrier == fxfer.TransportQUIC {
		p.listen = listenQUIC(t, k)
	} else {
		conf := k.config()
		conf.ClientAuth = tls.RequireAnyClientCert
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p.listen = tls.NewListener(inner, conf)
	}
	var err error
	p.url, err = fxfer.ParseURL(fmt.Sprintf("fxfer://%s/data/%s", p.listen.Addr(), path))
	require.NoError(t, err)
	p.done.Go(func() {
		for {
			c, err := p.listen.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				l := &line{c, bufio.NewReader(c)}
				kind, _ := l.next()
				switch kind {
				case hello:
					l.say(message(welcome, str("hand"), str("trap\x1b[2J"), uv(huge)))
					script(l)
					l.refusal()
				case join:
					p.joined <- struct{}{}
					if p.stream != nil {
						p.stream(l)
						return
					}
					select {
					case b := <-p.blocks:
						l.say(b)
					default:
					}
					_, _ = l.r.Discard(math.MaxInt)
				}
			})
		}
	})
	t.Cleanup(func() { p.listen.Close(); p.done.Wait() })
	return p
}

// victim is a folder into which a client gets files, and its surroundings.
type victim struct{ root string }

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t.TempDir()}
	for _, name := range []string{"target", "outside", "src"} {
		require.NoError(t, os.Mkdir(v.in(name), 0o700))
		require.NoError(t, os.WriteFile(v.in(name+"/keep"), []byte("do not touch"), 0o600))
		require.NoError(t, os.Chtimes(v.in(name+"/keep"), time.Unix(0, 0), time.Unix(0, 0))) // as a link would say
	}
	return v
}

func (v *victim) in(p string) string { return filepath.Join(v.root, p) }

// untouched fails if anything except the named paths has changed.
func (v *victim) untouched(t *testing.T, but ...string) {
	t.Helper()
	for folder, want := range map[string][]string{"": {"outside", "src", "target"}, "target": append([]string{"keep"}, but...), "outside": {"keep"}, "src": {"keep"}} {
		names, err := os.ReadDir(v.in(folder))
		require.NoError(t, err)
		for _, e := range names {
			require.Contains(t, want, e.Name(), "in %q", folder)
		}
	}
	for _, folder := range []string{"target", "outside", "src"} {
		got, err := os.ReadFile(v.in(folder + "/keep"))
		require.NoError(t, err)
		require.Equal(t, "do not touch", string(got))
	}
}

func (p *trap) client(t *testing.T, opt fxfer.Options) *fxfer.Client {
	t.Helper()
	opt.Home, opt.Pin, opt.Transport = t.TempDir(), p.pin, carrier
	c, err := fxfer.NewClient(opt)
	require.NoError(t, err)
	return c
}

func opened(all ...[]byte) []byte {
	return cat(message(manifest, []byte{0, 0}), announce(0, all...), message(endManifest, uv(uint64(len(all))), uv(0)))
}

// TestServerSends: a client gets the folder d, and the server sends what nobody asked for, or
// breaks the rules.
func TestServerSends(t *testing.T) {
	t.Parallel()
	one := func(e []byte) []byte { return opened(e) }
	for name, say := range map[string][]byte{
		"another file":                         one(fileOf(".bashrc", 0)),
		"another folder":                       one(entryOf(dir, ".ssh")),
		"another symlink":                      one(entryOf(symlink, "e", str("x"))),
		"a name that begins alike":             one(fileOf("d2", 0)),
		"the target itself":                    one(entryOf(dir, ".")),
		"the target as a symlink":              one(entryOf(symlink, ".", str("../outside"))),
		"a file above":                         one(fileOf("../outside/new", 0)),
		"a file above, later":                  one(fileOf("d/../../outside/new", 0)),
		"an absolute file":                     one(fileOf("/tmp/fxfer-hostile-get", 0)),
		"a file through a symlink it sends":    opened(entryOf(symlink, "d", str("../outside")), fileOf("d/new", 0)),
		"a hard link to what is there":         one(entryOf(hardlink, "d", str("keep"), uv(0))),
		"a hard link to what is beside it":     opened(entryOf(dir, "d"), entryOf(symlink, "d/s", str("x")), entryOf(hardlink, "d/h", str("keep"), uv(1))),
		"a symlink in the place of its folder": opened(entryOf(dir, "d"), entryOf(symlink, "d", str("../outside")), fileOf("d/new", 0)),
		"a file below its file":                opened(fileOf("d", 0), fileOf("d/new", 0)),
		"another case of a symlink's name":     opened(entryOf(dir, "d"), entryOf(symlink, "d/A", str("../../outside")), fileOf("d/A/new", 0), fileOf("d/a/../A/new", 0)),
		"the target in capitals":               one(fileOf("D", 0)),
		"a path with dots in it":               one(fileOf("d/./../../outside/new", 0)),
		"a name with a backslash and a NUL":    one(fileOf("d\\..\x00", 0)),
		"a path of 6,000 bytes":                one(fileOf("d/"+strings.Repeat("x/", 3000), 0)),
		"a name of 256 bytes":                  opened(entryOf(dir, "d"), fileOf("d/"+strings.Repeat("x", 256), 0)),
		"a size below −1":                      one(fileOf("d", -2)),
		"a size of 2^63−1":                     one(fileOf("d", 1<<63-1)),
		"a hard link to a symlink it sends":    opened(entryOf(dir, "d"), entryOf(symlink, "d/s", str("../../outside/keep")), entryOf(hardlink, "d/h", str("d/s"), uv(1))),
		"a hard link to itself":                opened(entryOf(dir, "d"), entryOf(hardlink, "d/h", str("d/h"), uv(1))),
		"a hard link to a folder":              opened(entryOf(dir, "d"), entryOf(dir, "d/e"), entryOf(hardlink, "d/h", str("d/e"), uv(1))),
		"a folder of our own names":            opened(entryOf(dir, "d"), entryOf(dir, "d/.FXFER-snapshots")),
		"a share":                              one(entryOf(4, "d", str("rw"))),
		"entries before the manifest":          announce(0, fileOf("d", 0)),
		"entries after the end":                cat(opened(entryOf(dir, "d")), announce(1, fileOf("d/x", 0))),
		"a hard link to what is above":         one(entryOf(hardlink, "d", str("../outside/keep"), uv(0))),
		"a partial file":                       one(fileOf("d/.fxfer-x.part", 0)),
		"a NUL":                                one(fileOf("d\x00", 0)),
		"an order to remove":                   cat(message(manifest, []byte{0, 0}), message(prune, uv(1), str("."))),
		"a manifest that prunes":               message(manifest, []byte{0, 1}),
		"a message of 4 GiB":                   {entries, 0xff, 0xff, 0xff, 0xff},
		"more entries than bytes":              cat(message(manifest, []byte{0, 0}), message(entries, uv(0), uv(huge))),
		"entries with a gap":                   cat(message(manifest, []byte{0, 0}), announce(9, fileOf("d", 1))),
		"an unknown kind":                      cat(message(manifest, []byte{0, 0}), announce(0, entryOf(77, "d"))),
		"two manifests":                        cat(message(manifest, []byte{0, 0}), message(manifest, []byte{0, 0})),
		"a block's end of none":                cat(message(manifest, []byte{0, 0}), message(endEntry, uv(3), uv(1), make([]byte, 32), uv(0))),
		"samples of too many bytes":            message(sample, uv(huge)),
		"streams to be given up, 16 EiB":       message(streams, uv(1), uv(huge)),
		"a refusal of an unknown code":         message(refuse, uv(huge), str("\x1b[31mno")),
		"a refusal because it exists":          message(refuse, uv(19), str("it exists")),
		"a refusal of 16 EiB":                  message(refuse, uv(1), uv(huge)),
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, server, "sending "+name, "get takes only what it asked for; other checks are those for a client")
			v := newVictim(t)
			p := lure(t, "d", func(l *line) { l.say(say) })
			_, err := p.client(t, fxfer.Options{}).Get(t.Context(), []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{})
			require.Error(t, err)
			v.untouched(t, "d")
			require.NoFileExists(t, v.in("target/d/h"))
			require.NoFileExists(t, "/tmp/fxfer-hostile-get")
		})
		t.Run(name+", into snapshots", func(t *testing.T) {
			tried(t, server, "sending "+name+" for a snapshot", "nothing is outside the snapshot, which stays invisible")
			v := newVictim(t)
			p := lure(t, "d", func(l *line) { l.say(say) })
			ctx, cancel := timeout(t)
			defer cancel()
			c := p.client(t, fxfer.Options{})
			_, err := c.Get(ctx, []fxfer.URL{p.url}, v.in("target/series"), fxfer.Transfer{Target: fxfer.Target{Snapshot: snap}})
			require.Error(t, err)
			require.NotErrorIs(t, err, fxfer.ErrSnapshotExists, "a run would be good")
			require.NoError(t, ctx.Err())
			v.untouched(t, "series")
			require.NoFileExists(t, "/tmp/fxfer-hostile-get")
			all, err := c.LocalSnapshots(v.in("target/series"))
			require.NoError(t, err)
			for _, x := range all {
				require.True(t, x.Partial)
			}
		})
	}
}

// TestServerPrunes: a client gets the folder d and deletes what the server does not have in it. The
// server tells it to delete files elsewhere.
func TestServerPrunes(t *testing.T) {
	t.Parallel()
	for _, where := range []string{".", "..", "../outside", "/", "", "e", "d/..", "keep"} {
		t.Run(where, func(t *testing.T) {
			tried(t, server, fmt.Sprintf("having %q pruned", where), "fxfer removes only below what the client asked for")
			v := newVictim(t)
			require.NoError(t, os.Mkdir(v.in("target/d"), 0o700))
			p := lure(t, "d", func(l *line) {
				l.say(message(manifest, []byte{0, 1}), announce(0, entryOf(dir, "d")), message(endManifest, uv(1), uv(0)), message(prune, uv(1), str(where)))
				for {
					kind, body := l.next()
					switch kind {
					case folder: // none of the names exists
						n, at := binary.Uvarint(body)
						n, _ = binary.Uvarint(body[at+int(n):])
						all := uv(n)
						for i := range n {
							all = append(all, uv(i)...)
						}
						l.say(message(extra, all))
					case finished, refuse, 0:
						return
					}
				}
			})
			_, err := p.client(t, fxfer.Options{}).Get(t.Context(), []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{Target: fxfer.Target{Delete: true}})
			require.Error(t, err)
			v.untouched(t, "d")
		})
	}
}

// TestServerAsks: a client sends one file, and the server asks for what the client did not offer.
func TestServerAsks(t *testing.T) {
	t.Parallel()
	need := func(index uint64, have ...[]byte) []byte {
		return message(answers, uv(1), uv(index), []byte{1}, uv(uint64(len(have))), cat(have...))
	}
	for name, say := range map[string][]byte{
		"an entry that there is not":         cat(need(9), message(finished)),
		"the last entry of all":              cat(need(huge), message(finished)),
		"more answers than bytes":            message(answers, uv(huge)),
		"an unknown verdict":                 message(answers, uv(1), uv(0), []byte{99}),
		"blocks that there are not":          need(0, uv(0), uv(1<<40)),
		"blocks in no order":                 need(0, uv(1), uv(1), uv(0), uv(1)),
		"the file twice":                     cat(need(0), need(0)),
		"blocks of no entry again":           cat(message(resend, uv(9), uv(1), uv(0), uv(1)), message(finished)),
		"blocks again that there are not":    message(resend, uv(0), uv(1), uv(1<<46), uv(1)),
		"names of a folder beside":           message(folder, str("../outside"), uv(1), str("keep")),
		"names of a folder":                  message(folder, str("."), uv(1), str("keep")),
		"what was not sent as written":       message(written, uv(1), uv(0), uv(77)),
		"all there is as placed":             message(placed, uv(1), uv(0), uv(1<<47)),
		"the end at once":                    message(finished),
		"a comparison of no entry":           cat(message(answers, uv(1), uv(9), []byte{6}, make([]byte, 32)), message(finished)),
		"a failure of a number that wraps":   cat(message(entryFailed, uv(9), uv(1), str("x")), message(finished)),
		"a message of 4 GiB":                 {answers, 0xff, 0xff, 0xff, 0xff},
		"a message cut short":                message(answers, uv(1)),
		"a warning of 16 EiB":                message(warn, uv(huge)),
		"more warnings than can be, and end": cat(message(warn, str("owner"), str("x"), str("y"), uv(huge)), message(finished)),
	} {
		t.Run(name, func(t *testing.T) {
			tried(t, server, "asking for "+name, "only entries that were announced are read, and only their blocks; a breach ends the session")
			v := newVictim(t)
			p := lure(t, "", func(l *line) {
				for {
					kind, _ := l.next()
					if kind == entries || kind == 0 {
						break
					}
				}
				l.say(say)
			})
			_, err := p.client(t, fxfer.Options{}).Send(t.Context(), []string{v.in("src/keep")}, p.url, fxfer.Transfer{})
			require.Error(t, err)
			v.untouched(t)
		})
	}
}

// TestServerLies: a server sends impossible numbers. Whether the client shows them or not, it does
// its work.
func TestServerLies(t *testing.T) {
	t.Parallel()
	var names []string
	var s diagnose.Sample
	var h diagnose.Host
	diagnose.Fill(&s, &h, 0, func(name string) (int64, bool) { names = append(names, name); return 1, true })
	require.Greater(t, len(names), 20)
	for _, value := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		t.Run(fmt.Sprint("samples of ", value), func(t *testing.T) {
			tried(t, server, fmt.Sprint("samples of ", value, ", and endless streams"), "a peer's numbers are clamped, and decide nothing beyond bounds")
			v := newVictim(t)
			p := lure(t, "d", func(l *line) {
				var all []byte
				for _, n := range names {
					all = append(all, cat(str(n), iv(value))...)
				}
				for range 200 {
					l.say(message(sample, uv(uint64(len(names))), all))
				}
				l.say(message(streams, uv(huge), uv(2), uv(0), uv(huge)), opened(entryOf(dir, "d")))
				l.await(t, finished)
			})
			_, err := p.client(t, fxfer.Options{MaxStreams: 4}).Get(t.Context(), []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{Progress: func(fxfer.Progress) {}})
			require.NoError(t, err)
			v.untouched(t, "d")
			require.LessOrEqual(t, len(p.joined), 6, "4 streams, and those in place of two")
		})
	}
}

// TestServerEndsInBetween: a server ends after each byte of an honest conversation.
func TestServerEndsInBetween(t *testing.T) {
	t.Parallel()
	tried(t, server, "ending at any byte", "a stream that ends early never looks whole")
	whole := opened(entryOf(dir, "d"), fileOf("d/f", 5))
	for i := 0; i < len(whole); i += 7 {
		v := newVictim(t)
		p := lure(t, "d", func(l *line) { l.say(whole[:i]); l.finish() })
		_, err := p.client(t, fxfer.Options{}).Get(t.Context(), []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{})
		require.Error(t, err)
		v.untouched(t, "d")
	}
}

// TestServerOfAnotherKey: a client says nothing to a server with another key.
func TestServerOfAnotherKey(t *testing.T) {
	t.Parallel()
	tried(t, server, "another key than the known one", "the handshake ends before the client says anything")
	v := newVictim(t)
	p := lure(t, "d", func(*line) { t.Error("the client has said Hello") })
	other := newKey(t)
	c, err := fxfer.NewClient(fxfer.Options{Home: t.TempDir(), Pin: other.pin, Transport: carrier})
	require.NoError(t, err)
	_, err = c.Get(t.Context(), []fxfer.URL{p.url}, v.in("target"), fxfer.Transfer{})
	require.Equal(t, fxfer.KindTrust, fxfer.KindOf(err), "%v", err)
	require.Empty(t, p.joined)
}

// TestEndlessListing: a client ends a listing that does not end.
func TestEndlessListing(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("takes a lot of memory")
	}
	tried(t, server, "a listing that does not end", "a listing has 512 MiB at most")
	long := string(make([]byte, 4000))
	p := lure(t, "", func(l *line) {
		var all [][]byte
		for range 120 {
			all = append(all, entryOf(symlink, long, str(long)))
		}
		batch := announce(0, all...)
		for range 4096 {
			if _, err := l.Write(batch); err != nil {
				return
			}
		}
		l.say(message(endManifest, uv(1), uv(0)))
	})
	_, err := p.client(t, fxfer.Options{}).List(t.Context(), p.url)
	require.ErrorContains(t, err, "does not end")
}

// TestListingOfPings: a client waits no longer for a listing than for a server that is silent.
func TestListingOfPings(t *testing.T) {
	t.Parallel()
	tried(t, server, "pings instead of a listing", "the client ends at the first")
	p := lure(t, "", func(l *line) { l.say(message(ping, iv(7))) })
	_, err := p.client(t, fxfer.Options{}).List(t.Context(), p.url)
	require.ErrorContains(t, err, "a listing has no such message")
}
