package tcp

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/socket"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// A reader wakes up a few times in a round trip: for what arrives in that time, but not for so little that it
// saves nothing, nor for more than mostWake. It forgets a rate that was.
func TestWakes(t *testing.T) {
	t.Parallel()
	const rtt = 80 * time.Millisecond
	for _, c := range []struct {
		name   string
		rtt    time.Duration
		rate   float64 // bytes/s
		pairs  bool    // segments come two by two
		want   int
		sparse bool
	}{
		{"a stream of many on 300 Mbit/s", rtt, 2.3e6, false, 46_000, false},
		{"a fast one", rtt, 1e9, false, mostWake, false},
		{"one that yields on 300 Mbit/s", rtt, 300e3, false, 1, true},
		{"the same by two", rtt, 300e3, true, 1, false},
		{"one that yields on 1 Gbit/s, near", 5 * time.Millisecond, 1.2e6, false, 1, true},
		{"a stream of many there", 5 * time.Millisecond, 7e6, false, 8750, false},
		{"a stream of many on 100 Mbit/s", 20 * time.Millisecond, 780e3, false, 1, false},
		{"a modem", rtt, 1200, false, 1, true},
	} {
		var w wakes
		w.pathIs(c.rtt)
		now := time.Now()
		for _, rate := range []float64{1e9, c.rate} { // the line becomes slower
			segment := max(usualSegment, rate*0.2e-3)
			each := time.Duration(segment / rate * float64(time.Second))
			for end := now.Add(max(4*arrivalTime, 20*each)); now.Before(end); {
				if c.pairs { // the kernel hands over both at once
					now = now.Add(2 * each)
					w.arrived(int(2*segment), now)
				} else {
					now = now.Add(each)
					w.arrived(int(segment), now)
				}
			}
		}
		require.InEpsilon(t, c.want, w.bytes, 0.1, c.name)
		require.Equal(t, c.sparse, w.sparse, c.name)
	}
	var unknown wakes
	unknown.arrived(1<<20, time.Now())
	unknown.arrived(1<<20, time.Now().Add(time.Second))
	require.LessOrEqual(t, unknown.bytes, 1, "the path is unknown")
	require.False(t, unknown.sparse, "the path is unknown")
}

// A stream that is sparse stays so until it is clearly faster: what its reader does changes the RTT, and so the rate.
func TestSparseStays(t *testing.T) {
	t.Parallel()
	var w wakes
	w.pathIs(20 * time.Millisecond)
	now := time.Now()
	for _, c := range []struct {
		part   float64 // of the rate at which it is sparse
		sparse bool
	}{{1.5, false}, {0.9, true}, {1.5, true}, {2.5, false}, {1.5, false}} {
		each := time.Duration(float64(w.pair) / 2 / c.part)
		for end := now.Add(4 * arrivalTime); now.Before(end); now = now.Add(each) {
			w.arrived(usualSegment, now)
		}
		require.Equal(t, c.sparse, w.sparse, "%v times the rate", c.part)
	}
}

// The first segments of a fast stream after a time without any are no sparse ones.
func TestIdleStreamsAreNotSparse(t *testing.T) {
	t.Parallel()
	var w wakes
	w.pathIs(80 * time.Millisecond)
	now := time.Now()
	for range 3 {
		for range 501 { // to the end of a measurement
			w.arrived(usualSegment, now)
			require.False(t, w.sparse)
			now = now.Add(time.Millisecond)
		}
		now = now.Add(10 * time.Second)
	}
}

// A reader of a sparse stream of data has the kernel acknowledge each segment, also where it waits with
// acknowledgements because both ends talk.
func TestSparseStreamsAreAcknowledged(t *testing.T) {
	t.Parallel()
	client, server := connect(t, Config{}, Config{})
	client.Admit()
	server.Admit()
	far(server)
	server.AcknowledgeEach()
	server.wakes.sparse = true
	raw, err := server.tcp.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, socket.Control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) }))
	require.Zero(t, option(t, server, unix.IPPROTO_TCP, unix.TCP_QUICKACK))
	_, err = client.Write(make([]byte, 100))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 100))
	require.NoError(t, err)
	require.NotZero(t, option(t, server, unix.IPPROTO_TCP, unix.TCP_QUICKACK))
}

// On a far path, a reader that waits for much gets all that is sent, the end of a block too, and an end
// that comes too soon.
func TestFarReads(t *testing.T) {
	t.Parallel()
	client, server := connect(t, Config{}, Config{})
	client.Admit()
	server.Admit()
	far(server)
	require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	read := make(chan []byte, 1)
	go func() {
		got := make([]byte, len(want))
		n, _ := io.ReadFull(restOf{server}, got)
		read <- got[:n]
	}()
	_, err := client.Write(want[:100_000])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return option(t, server, unix.SOL_SOCKET, unix.SO_RCVLOWAT) == mostWake }, time.Minute, time.Millisecond, "it waits for much")
	_, err = client.Write(want[100_000:])
	require.NoError(t, err)
	require.Equal(t, want, <-read)

	go func() {
		p := make([]byte, 200_000)
		n, _ := io.ReadFull(restOf{server}, p)
		read <- p[:n]
	}()
	_, err = client.Write(want[:1000])
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	require.Equal(t, want[:1000], <-read)
}

// far has a connection read as on a far path from now on, however slowly this host goes on.
func far(c *Conn) {
	c.near, c.wakes = false, wakes{pause: 20 * time.Millisecond, bytes: mostWake, since: time.Now().Add(time.Hour)}
}

// The contract holds for readers on a far path. It looks for leaked goroutines, so it runs alone.
func TestFarContract(t *testing.T) {
	transporttest.Run(t, transporttest.Factory{
		Network: "tcp",
		Listen: func(identity ed25519.PrivateKey) (transporttest.Listener, error) {
			l, err := Listen("127.0.0.1:0", Config{Auth: auth.Config{Identity: identity}})
			return farListener{l}, err
		},
		Dial: func(ctx context.Context, addr string, identity ed25519.PrivateKey, expect func(ed25519.PublicKey) error) (transporttest.Conn, error) {
			c, err := Dial(ctx, addr, Config{Auth: auth.Config{Identity: identity}}, expect)
			if err != nil {
				return nil, err
			}
			far(c)
			return c, nil
		},
	})
}

type farListener struct{ *Listener }

func (l farListener) Accept() (transporttest.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{c}, nil
}

type farConn struct{ *Conn }

func (c farConn) Handshake(ctx context.Context) error {
	err := c.Conn.Handshake(ctx) // looks how far the path is
	far(c.Conn)
	return err
}

// A reader waits for the whole of a record that has begun. After the end of TLS, neither it nor who takes over the
// socket waits for more than a byte.
func TestFarRecords(t *testing.T) {
	t.Parallel()
	for _, take := range []func(*Conn) io.Reader{
		func(c *Conn) io.Reader { c.Plain(); return c },
		func(c *Conn) io.Reader { return c.Detach() },
	} {
		client, server, half, rest := connectByHalves(t)
		far(client)
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(client, make([]byte, 10_000))
			read <- err
		}()
		close(half)
		_, err := server.Write(make([]byte, 10_000))
		require.NoError(t, err)
		awaited := func() bool { return option(t, client, unix.SOL_SOCKET, unix.SO_RCVLOWAT) > 1 }
		require.Eventually(t, awaited, time.Minute, time.Millisecond)
		close(rest)
		require.NoError(t, <-read)
		require.True(t, awaited(), "nothing has been read since")

		_, err = server.tcp.Write([]byte{1})
		require.NoError(t, err)
		_, err = take(client).Read(make([]byte, 10))
		require.NoError(t, err)
	}
}

// connectByHalves is connect by way of a relay. Once half is closed, it passes on half of what the server sends, and the
// rest once rest is closed.
func connectByHalves(t *testing.T) (client, server *Conn, half, rest chan struct{}) {
	t.Helper()
	half, rest = make(chan struct{}), make(chan struct{})
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { relay.Close() })
	l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t)})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		from, err := relay.Accept()
		if err != nil {
			return
		}
		defer from.Close()
		to, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(to, from); to.Close() }()
		for p := make([]byte, 1<<20); ; {
			n, err := to.Read(p)
			if err != nil {
				return
			}
			first := n
			select {
			case <-half:
				first = n / 2
			default:
			}
			if _, err := from.Write(p[:first]); err != nil {
				return
			}
			if first < n {
				<-rest
				_, _ = from.Write(p[first:n])
			}
		}
	}()
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil && c.Handshake(context.Background()) != nil {
			c = nil
		}
		accepted <- c
	}()
	client, err = Dial(t.Context(), relay.Addr().String(), Config{Auth: newAuth(t)}, transporttest.AnyKey)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	server = <-accepted
	require.NotNil(t, server)
	t.Cleanup(func() { server.Close() })
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
	return client, server, half, rest
}

type restOf struct{ *Conn }

func (r restOf) Read(p []byte) (int, error) { return r.ReadRest(p) }
