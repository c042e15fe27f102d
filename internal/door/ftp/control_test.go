package ftp

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/door"
	"github.com/fxfer/fxfer/internal/identity/testca"
)

// users admits anna with the password x, to nothing. It takes a second to refuse slow.
type users struct{}

func (u users) Password(_ context.Context, _ door.Client, name, password string) (door.Account, error) {
	if name == "slow" {
		time.Sleep(time.Second)
	}
	if name != "anna" || password != "x" {
		return nil, door.ErrLogin
	}
	return u, nil
}

func (users) Key(context.Context, door.Client, string, []byte) (door.Account, error) {
	return nil, door.ErrLogin
}
func (users) LogIn() (func(), error) { return func() {}, nil }
func (users) Shares() []door.Share   { return []door.Share{{Name: "docs"}, {Name: "scans"}} }
func (users) Enter(context.Context, string) (*door.Session, error) {
	return nil, os.ErrNotExist
}

// serve serves one end of a pipe, to clients that need no TLS if clear is set. It returns the other
// end, and when the door has left.
func serve(t *testing.T, clear bool) (client net.Conn, left func() time.Time) {
	t.Helper()
	d := New(users{}, Options{TLS: new(tls.Config), Ports: NewPorts(nil)})
	here, there := net.Pipe()
	ended := make(chan time.Time, 1)
	go func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		x := newControl(ctx, d, here, func() {})
		x.clear = clear
		err := x.serve(false)
		cancel()
		_ = here.Close()
		x.close(err)
		ended <- time.Now()
	}()
	return there, func() time.Time { return <-ended }
}

// talk sends lines, and returns the codes of the replies, the greeting first.
func talk(c net.Conn, lines ...string) (codes []string) {
	in := bufio.NewReader(c)
	for i := 0; i <= len(lines); i++ {
		for {
			reply, err := in.ReadString('\n')
			if err != nil {
				return append(codes, err.Error())
			}
			if len(reply) > 3 && reply[3] == ' ' && reply[0] != ' ' {
				codes = append(codes, reply[:3])
				break
			}
		}
		if i < len(lines) {
			fmt.Fprintf(c, "%s\r\n", lines[i])
		}
	}
	return codes
}

// TestDeadlines: who does not log in leaves, and who is silent leaves.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, left := serve(t, true)
		go func() { _, _ = io.Copy(io.Discard, c) }()
		var slow sync.WaitGroup
		slow.Go(func() { // a command that does not end
			for err := error(nil); err == nil; _, err = c.Write([]byte("N")) {
				time.Sleep(time.Second)
			}
		})
		require.Equal(t, door.LoginWithin, left().Sub(began))
		slow.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, left := serve(t, true)
		require.Equal(t, []string{"220", "331", "230"}, talk(c, "USER anna", "PASS x"))
		go func() { _, _ = io.Copy(io.Discard, c) }()
		require.Equal(t, idleFor, left().Sub(began))
	})
	synctest.Test(t, func(t *testing.T) { // who reads no replies
		c, left := serve(t, true)
		_, _ = bufio.NewReaderSize(c, 16).ReadByte()
		began := time.Now()
		go fmt.Fprint(c, strings.Repeat("HELP\r\n", 100))
		require.LessOrEqual(t, left().Sub(began), door.SilentFor)
	})
	synctest.Test(t, func(t *testing.T) { // a long reply after a pause
		c, left := serve(t, true)
		require.Equal(t, []string{"220", "331", "230"}, talk(c, "USER anna", "PASS x"))
		time.Sleep(2 * door.SilentFor)
		fmt.Fprintf(c, "ALLO %s\r\n", strings.Repeat("x", 4100))
		reply, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "501 ", reply[:4])
		require.NoError(t, c.Close())
		left()
	})
}

// given is a data connection that is there.
type given struct{ net.Conn }

func (g given) open(ctx context.Context, cfg *tls.Config, _ time.Duration) (*dataConn, error) {
	return newDataConn(ctx, g.Conn, cfg)
}
func (g given) close() {}

// TestGivesUp: an upload whose end the client has said is not whole if the control connection ends
// with it.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	cert, key := testca.New(t, "ca").Issue(t, testca.Server(), "ecdsa").Write(t, t.TempDir(), "server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true} // a pipe has no room for tickets
	for _, x := range []struct {
		secure         bool
		roundTrip, gap time.Duration
		whole          bool
	}{
		{false, 0, 9 * time.Millisecond, false},
		{true, 0, 9 * time.Millisecond, false},
		{true, 0, 11 * time.Millisecond, true},
		{true, 40 * time.Millisecond, 49 * time.Millisecond, false},
		{false, 40 * time.Millisecond, 51 * time.Millisecond, true},
		{true, time.Second, 249 * time.Millisecond, false},
		{true, time.Second, 251 * time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(users{}, Options{
				TLS: cfg, Place: func(net.Addr) func() { return func() {} },
				RoundTrip: func(net.Conn) time.Duration { return x.roundTrip },
			})
			here, there := net.Pipe()
			data, client := net.Pipe()
			c := newControl(t.Context(), d, here, nil)
			c.use(here)
			c.protect, c.data = x.secure, given{data}
			c.reader.Go(c.read)
			var others sync.WaitGroup
			others.Go(func() { _, _ = io.Copy(io.Discard, there) })
			others.Go(func() {
				if x.secure {
					client = tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is this test's
				}
				_, _ = io.WriteString(client, "half of it")
				_ = client.Close()
				time.Sleep(x.gap)
				_ = there.Close()
			})
			var why error
			_ = c.transfer(&transfer{
				receives: true,
				move: func(_ context.Context, d *dataConn) error {
					_, err := io.ReadAll(d)
					return cmp.Or(err, d.whole(io.EOF))
				},
				finish: func(err error) error {
					why = err
					return err
				},
			})
			require.Equal(t, x.whole, why == nil, "%+v: %v", x, why)
			close(c.want)
			_ = here.Close()
			c.reader.Wait()
			others.Wait()
		})
	}
}

// TestLogin tries to log in, and to do something without.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		clear bool
		lines []string
		codes string
	}{
		{true, []string{"PWD", "STOR a", "NOSUCH", "", "PASS x", "USER", "QUIT"}, "220 530 530 502 500 503 501 221"},
		{true, []string{"USER anna", "PASS y", "PASS x", "USER nobody", "PASS x", "USER anna", "PASS x", "PWD", "USER anna", "AUTH TLS"},
			"220 331 530 503 331 530 331 230 257 530 503"},
		{false, []string{"USER anna", "PASS x", "PBSZ 0", "PROT P", "AUTH GSSAPI", "FEAT"}, "220 530 503 503 503 504 211"},
		{true, []string{"USER anna", "PASS x", "LIST", "PASV", "EPSV 9", "EPSV 2", "PORT 127,0,0,1,9,9", "EPRT |1|127.0.0.1|2000|", "EPSV ALL", "PASV"},
			"220 331 230 425 425 522 425 502 502 200 501"},
		{true, []string{"USER anna", "PASS x", "TYPE A", "TYPE E", "MODE S", "MODE B", "STRU F", "STRU R", "ALLO 9", "ALLO x", "REST 0", "REST 1", "TYPE I", "REST 1", "REST -1"},
			"220 331 230 200 504 200 504 200 504 200 501 350 504 200 350 501"},
		{true, []string{"USER anna", "PASS x", "CWD docs", "CWD /nowhere", "CDUP", "PWD", "RNTO a", "SITE EXEC x", "SITE CHMOD 9 x", "MFMT x y", "OPTS UTF8 ON", "OPTS HASH MD5", "OPTS MLST type;", "STAT", "HELP", "ABOR", "NOOP"},
			"220 331 230 550 550 250 257 503 502 501 501 200 501 200 211 214 226 200"},
		{true, append(slicesOf("USER anna", "PASS y", maxTries), "NOOP"), "220" + strings.Repeat(" 331 530", maxTries-1) + " 331 421 EOF"},
		{true, []string{strings.Repeat("A", maxLine+1)}, "220 500"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, left := serve(t, x.clear)
			require.Equal(t, x.codes, strings.Join(talk(c, x.lines...), " "), "%.200q", x.lines)
			require.NoError(t, c.Close())
			left()
		})
	}
}

func slicesOf(a, b string, n int) (all []string) {
	for range n {
		all = append(all, a, b)
	}
	return all
}

// TestTextBehindAuth: what somebody has sent in clear behind AUTH does not run in TLS, also if it came
// while a password was compared.
func TestTextBehindAuth(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "USER slow\r\nPASS y\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			c, left := serve(t, true)
			go func() { _, _ = io.WriteString(c, before+"AUTH TLS\r\nUSER anna\r\n") }()
			text, err := io.ReadAll(c)
			require.NoError(t, err)
			require.Regexp(t, "\n234 begin TLS\r\n$", string(text))
			require.LessOrEqual(t, left().Sub(began), time.Second, "it waits for no handshake")
		})
	}
}

// FuzzControl sends any lines. Each gets a reply, and the connection ends.
func FuzzControl(f *testing.F) {
	f.Add("CWD docs\r\nLIST -la *\r\nNLST [\r\nSTAT /\r\nRNFR /docs\r\nRNTO x\r\nPASV\r\nMLST\r\nHASH a\r\nQUIT\r\n")
	f.Add("STOU\r\nAPPE x\r\nREST 5\r\nRETR x\r\nMDTM /\r\nAUTH TLS\r\n\x16\x03\x01")
	f.Fuzz(func(t *testing.T, text string) {
		c, left := serve(t, true)
		go func() {
			_, _ = io.WriteString(c, "USER anna\r\nPASS x\r\n"+text+"\r\nQUIT\r\n")
			_ = c.Close()
		}()
		_, _ = io.Copy(io.Discard, c)
		left()
	})
}

// TestLeases: a user has half of the ports of an address, and none for long.
func TestLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPorts(make([]net.Listener, 4))
		here := netip.MustParseAddr("127.0.0.1")
		first := p.lease(here, "anna")
		require.NotNil(t, p.lease(here, "anna"))
		require.Nil(t, p.lease(here, "anna"), "more than half")
		require.NotNil(t, p.lease(netip.MustParseAddr("127.0.0.2"), "anna"))
		require.NotNil(t, p.lease(here, "bob"))
		require.NotNil(t, p.lease(here, "bob"))
		require.Nil(t, p.lease(here, "carl"), "all are waiting")
		time.Sleep(connectWithin)
		synctest.Wait()
		require.Empty(t, p.waiting)
		_, err := first.open(t.Context(), nil, 0)
		require.ErrorIs(t, err, errNoConnection)
	})
}

// TestWhose: of several connections, the client's is the one that resumes the TLS session.
func TestWhose(t *testing.T) {
	t.Parallel()
	cert, key := testca.New(t, "ca").Issue(t, testca.Server(), "ecdsa").Write(t, t.TempDir(), "server")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	const patience = 50 * time.Millisecond
	type coming struct {
		after   time.Duration
		session string // which it has: "own", of another control connection ("other"), or none ("")
		silent  bool   // it does not begin TLS
	}
	for _, x := range []struct {
		name   string
		clear  bool
		coming []coming
		want   int // which is taken, -1 for none
		within time.Duration
		err    error
	}{
		{name: "the client's", coming: []coming{{session: "own"}}},
		{name: "one that does not resume", coming: []coming{{}}, within: patience},
		{name: "one of another control connection", coming: []coming{{session: "other"}}, within: patience},
		{name: "a stranger was faster", coming: []coming{{}, {after: patience - 1, session: "own"}}, want: 1, within: patience - 1},
		{name: "and says nothing", coming: []coming{{silent: true}, {after: time.Second, session: "own"}}, want: 1, within: time.Second},
		{name: "or has a session", coming: []coming{{session: "other"}, {session: "own"}}, want: 1},
		{name: "a stranger was slower", coming: []coming{{session: "own"}, {}}},
		{name: "nobody resumes", coming: []coming{{}, {session: "other"}}, want: -1, err: errWhose},
		{name: "and one says nothing", coming: []coming{{}, {silent: true}}, want: -1, within: connectWithin, err: errWhose},
		{name: "clear", clear: true, coming: []coming{{}}},
		{name: "clear, two", clear: true, coming: []coming{{}, {}}, want: -1, err: errWhose},
		{name: "nobody", want: -1, within: connectWithin, err: errNoConnection},
	} {
		synctest.Test(t, func(t *testing.T) {
			configs := map[string]*tls.Config{}
			var all sync.WaitGroup
			for _, name := range []string{"", "own", "other"} {
				configs[name] = &tls.Config{InsecureSkipVerify: true, ServerName: "door"} //nolint:gosec // it is this test's
			}
			base := &tls.Config{Certificates: []tls.Certificate{pair}}
			base.SetSessionTicketKeys([][32]byte{{1}}) // without own keys, a session of one could be resumed at the other
			server := ownTickets(base)
			for name, cfg := range map[string]*tls.Config{"own": server, "other": ownTickets(base)} { // control connections
				configs[name].ClientSessionCache = tls.NewLRUClientSessionCache(1)
				here, there := net.Pipe()
				all.Go(func() { _, _ = io.Copy(io.Discard, tls.Client(there, configs[name])) })
				require.NoError(t, tls.Server(here, cfg).Handshake())
				require.NoError(t, here.Close())
			}
			all.Wait()
			p := NewPorts(make([]net.Listener, 1))
			l := p.lease(netip.MustParseAddr("127.0.0.1"), "anna")
			var ends []net.Conn
			for _, c := range x.coming {
				here, there := net.Pipe()
				ends = append(ends, here)
				all.Go(func() {
					time.Sleep(c.after)
					p.hand(l.place, here)
					if x.clear || c.silent {
						_, _ = io.Copy(io.Discard, there)
					} else {
						_, _ = io.Copy(io.Discard, tls.Client(there, configs[c.session]))
					}
				})
			}
			waits := patience
			if x.clear {
				server, waits = nil, 0
				synctest.Wait()
			}
			began := time.Now()
			d, err := openData(t.Context(), l, server, waits)
			require.Equal(t, x.within, time.Since(began), x.name)
			if x.want < 0 {
				require.ErrorIs(t, err, x.err, x.name)
			} else {
				require.NoError(t, err, x.name)
				require.Same(t, ends[x.want], d.raw.Conn, x.name)
				d.reset()
			}
			all.Wait() // the others are closed
			require.Empty(t, p.waiting)
		})
	}
}

// TestPorts: a port waits for one client of an address, and other connections are closed.
func TestPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := NewPorts([]net.Listener{l})
	done := make(chan struct{})
	go func() { p.Serve(); close(done) }()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	closed := func(c net.Conn) {
		t.Helper()
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	here := netip.MustParseAddr("127.0.0.1")
	closed(dial()) // nobody waits

	other := p.lease(netip.MustParseAddr("127.0.0.2"), "anna")
	closed(dial()) // somebody else waits
	one := p.lease(here, "anna")
	require.NotNil(t, one)
	require.Nil(t, p.lease(here, "bob"), "the only port is in use")
	c := dial()
	got, err := one.open(t.Context(), nil, 0)
	require.NoError(t, err)
	require.Equal(t, c.LocalAddr().String(), got.raw.RemoteAddr().String())
	require.NoError(t, got.finish())
	closed(dial()) // a second one

	one.close()
	again := p.lease(here, "anna")
	require.NotNil(t, again)
	c = dial()
	require.Eventually(t, func() bool { return len(again.conns) == 1 }, time.Minute, time.Millisecond)
	again.close() // nobody has taken it
	closed(c)
	other.close()
	require.Empty(t, p.waiting)
	p.Close()
	<-done
}
