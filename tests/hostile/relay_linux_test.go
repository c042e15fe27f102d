package hostile

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The messages of a relay.
const relay, relayed = 48, 49

func relayTo(target string) []byte { return message(relay, uv(wire.Version), str(target), str("")) }

// relayUnderTest is a relay process that leads to a server, and to a far end of the test's own.
type relayUnderTest struct {
	*program
	server *site
	second key // beside that which the server knows
	far    net.Listener
}

func startRelay(t *testing.T) *relayUnderTest {
	t.Helper()
	s, home, second := serve(t, fxfer.ServerOptions{}), t.TempDir(), newKey(t)
	require.NoError(t, os.WriteFile(filepath.Join(home, "authorized_clients"), []byte(s.known.pin+" *=rw\n"+second.pin+" *=rw\n"), 0o600))
	far, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	p := startProgram(t, home, "relay", "--listen", "127.0.0.1:0", "--to", s.Addr().String(), "--to", far.Addr().String())
	return &relayUnderTest{p, s, second, far}
}

func (r *relayUnderTest) dial(t *testing.T) *line {
	t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", r.addr, r.server.known.config())
	require.NoError(t, err)
	return newLine(t, c)
}

// join connects through the relay to the far end, and returns both ends of the way. Client and far end
// then write to the sockets themselves.
func (r *relayUnderTest) join(t *testing.T, by key) (near, far net.Conn) {
	t.Helper()
	socket, err := net.DialTimeout("tcp", r.addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { socket.Close() })
	l := newLine(t, tls.Client(socket, by.config()))
	l.say(relayTo(r.far.Addr().String()))
	l.await(t, relayed)
	far, err = r.far.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	return socket, far
}

// honest lets a real client send a file through the relay.
func (r *relayUnderTest) honest(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	known, err := os.OpenFile(filepath.Join(r.home, "authorized_clients"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = known.WriteString(string(identity.PinOfPrivate(key)) + " *=rw\n")
	require.NoError(t, err)
	require.NoError(t, known.Close())
	at, err := identity.OpenStore(r.home)
	require.NoError(t, err)
	of, err := at.Key()
	require.NoError(t, err)
	require.NoError(t, store.AddKnownServer(r.addr, identity.PinOfPrivate(of)))
	via, err := fxfer.ParseVia(r.addr)
	require.NoError(t, err)
	c, err := fxfer.NewClient(fxfer.Options{Home: home, Via: []fxfer.URL{via}, RetryFor: patience})
	require.NoError(t, err)
	content, source := bytes.Repeat([]byte("honest "), 1<<19), filepath.Join(t.TempDir(), "honest")
	require.NoError(t, os.WriteFile(source, content, 0o600))
	_, err = c.Send(t.Context(), []string{source}, r.server.url(t, ""), fxfer.Transfer{})
	require.NoError(t, err, "another client's transfer")
	got, err := os.ReadFile(filepath.Join(r.server.root, "data", "honest"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
}

// TestRelaySlow: clients stop at each step before a relay has admitted them, or go on by single bytes.
// The relay disconnects each after 20 s, and serves others meanwhile.
func TestRelaySlow(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 20 s")
	}
	r := startRelay(t)
	clear := func() net.Conn {
		c, err := net.DialTimeout("tcp", r.addr, patience)
		require.NoError(t, err)
		return c
	}
	drip := func(c io.Writer, b []byte) {
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // slow clients do this
		}
	}
	first := relayTo(r.far.Addr().String())
	var all sync.WaitGroup
	start := time.Now()
	for name, begin := range map[string]func() net.Conn{
		"nothing":           clear,
		"half a TLS record": func() net.Conn { c := clear(); _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1}); return c },
		"a TLS record by byte": func() net.Conn {
			c := clear()
			go drip(c, append([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 500)...))
			return c
		},
		"no request":     func() net.Conn { return r.dial(t).Conn },
		"half a request": func() net.Conn { c := r.dial(t).Conn; _, _ = c.Write(first[:8]); return c },
		"a request by byte": func() net.Conn {
			c := r.dial(t).Conn
			go drip(c, append(message(200, make([]byte, 1000)), first...))
			return c
		},
		"unknown messages": func() net.Conn { c := r.dial(t).Conn; go drip(c, bytes.Repeat(message(200), 200)); return c },
	} {
		tried(t, stranger, "at a relay, slowly: "+name, "20 s for the handshake and the first message together")
		c := begin()
		all.Go(func() { endsInTime(t, name, c, start) })
	}
	t.Parallel() // other tests run while these wait
	r.honest(t)
	all.Wait()
}

// TestRelayHalfOpen: one address opens more connections to a relay than it has places, and sends
// nothing. The relay keeps a part of them, and serves others.
func TestRelayHalfOpen(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	tried(t, stranger, "at a relay, half-open connections, thousands of one address", "at most a quarter of the places, and of these fewer than are left for others")
	open := openMany(t, r.addr)
	r.honest(t)
	require.Eventually(t, func() bool {
		open = stillOpen(open)
		return len(open) < fxfer.DefaultRelayConnections/4
	}, patience, time.Millisecond, "the others are let go")
	if !raceEnabled { // the race detector multiplies the memory
		require.Less(t, r.peak(t), int64(64<<20))
	}
}

// TestRelayStalled: a relay has nearly as many connections as it takes by default. Half of the clients
// do not read what is sent to them, and half of the far ends do not. The relay holds up whoever writes,
// within 64 MiB of memory, and serves another client meanwhile.
func TestRelayStalled(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies the memory that is measured here")
	}
	t.Parallel()
	r := startRelay(t)
	tried(t, client, "at a relay: 480 ends that do not read", "a relay reads no more while the next leg is full, and holds one piece of each direction")
	const most, stalled = 256 << 20, 240
	var all sync.WaitGroup
	sent := make([]int, 2*stalled)
	for i := range sent {
		by := r.server.known
		if i >= len(sent)/2 {
			by = r.second
		}
		near, far := r.join(t, by)
		writer := near
		if i%2 == 0 {
			writer = far
		}
		all.Go(func() {
			for piece := bytes.Repeat([]byte{7}, 1<<16); sent[i] < most; { // until nothing moves for a while
				_ = writer.SetWriteDeadline(time.Now().Add(3 * time.Second))
				n, err := writer.Write(piece)
				if sent[i] += n; err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	total := 0
	for i, n := range sent {
		require.Less(t, n, most, "writer %d was held up", i)
		total += n
	}
	r.honest(t)
	peak := r.peak(t)
	t.Logf("%d MiB on the way, most of it in sockets; the relay had %d MiB at most", total>>20, peak>>20)
	require.LessOrEqual(t, peak, int64(64<<20))
}
