package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFindRoute: a direct route comes first, then a call, and where nothing is open, the call costs no
// time beyond what the direct route takes, or little if that fails at once.
func TestFindRoute(t *testing.T) {
	const never = time.Hour
	for _, c := range []struct {
		name           string
		direct, call   time.Duration // until its end
		answers, calls bool
		cannot         bool // the server cannot call
		want           route
		within         time.Duration
	}{
		{"direct", 100 * time.Millisecond, never, true, false, false, route{host: "nas"}, 100 * time.Millisecond},
		{"slow and direct", time.Second, never, true, false, false, route{host: "nas"}, time.Second},
		{"direct is first", time.Second, time.Second, true, true, false, route{host: "nas"}, time.Second},
		{"blocked", never, 100 * time.Millisecond, false, true, false, route{called: true}, callAfter + 100*time.Millisecond},
		{"refused", 10 * time.Millisecond, 100 * time.Millisecond, false, true, false, route{called: true}, 110 * time.Millisecond},
		{"both blocked", never, never, false, false, false, route{}, reachWithin},
		{"both refused", 10 * time.Millisecond, 10 * time.Millisecond, false, false, false, route{}, 20 * time.Millisecond},
		{"refused and blocked", 10 * time.Millisecond, never, false, false, false, route{}, 10*time.Millisecond + callWithin},
		{"blocked and refused", never, 10 * time.Millisecond, false, false, false, route{}, reachWithin},
		{"the call is late", reachWithin, reachWithin, false, true, false, route{}, reachWithin},
		{"blocked, no call", never, 0, false, false, true, route{}, reachWithin},
		{"refused, no call", 0, 0, false, false, true, route{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took := func(ctx context.Context, d time.Duration) bool {
					select {
					case <-ctx.Done():
						return false
					case <-time.After(d):
						return true
					}
				}
				direct := func(ctx context.Context) string {
					ctx, cancel := context.WithTimeout(ctx, reachWithin)
					defer cancel()
					if took(ctx, c.direct) && c.answers {
						return "nas"
					}
					return ""
				}
				call := func(ctx context.Context) bool { return took(ctx, c.call) && c.calls }
				if c.cannot {
					call = nil
				}
				began := time.Now()
				require.Equal(t, c.want, findRoute(t.Context(), direct, call))
				require.LessOrEqual(t, time.Since(began), c.within)
			})
		})
	}
}

// TestFindWayEnds: after an interrupt, no call begins, for which this host would listen.
func TestFindWayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		direct := func(ctx context.Context) string {
			cancel()
			<-ctx.Done()
			return ""
		}
		call := func(context.Context) bool { t.Error("a call begins"); return false }
		require.Equal(t, route{}, findRoute(ctx, direct, call))
	})
}

// TestCalls: only a connection that begins with the secret of a call is taken, and only once.
func TestCalls(t *testing.T) {
	c := newCalls(Ports{})
	defer c.close()
	greet := func(port int, id CallID) net.Conn {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, _ = conn.Write(id[:]) // it may be closed by now
		return conn
	}
	rejected := func(conn net.Conn) {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), err)
	}
	type result struct {
		conn *net.TCPConn
		err  error
	}
	ask := func(ctx context.Context) (call *Call, done chan result) {
		done = make(chan result, 1)
		go func() {
			conn, err := c.connect(ctx)
			done <- result{conn, err}
		}()
		call, err := ReadCall(bufio.NewReader(strings.NewReader(<-c.wanted)))
		require.NoError(t, err)
		require.NotNil(t, call)
		return call, done
	}
	call, done := ask(t.Context())
	rejected(greet(call.Port, CallID{}))
	conn := greet(call.Port, call.ID)
	got := <-done
	require.NoError(t, got.err)
	defer got.conn.Close()
	require.Equal(t, conn.LocalAddr().String(), got.conn.RemoteAddr().String())
	rejected(greet(call.Port, call.ID))

	// Whoever stays silent does not keep the server out.
	call, done = ask(t.Context())
	for range 2 * greetersAtOnce {
		silent, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", call.Port))
		require.NoError(t, err)
		t.Cleanup(func() { silent.Close() })
	}
	greet(call.Port, call.ID)
	got = <-done
	require.NoError(t, got.err)
	got.conn.Close()

	call, done = ask(t.Context())
	id, ok := parseFailed([]byte(fmt.Sprintf("%s%x", failedCall, call.ID)))
	require.True(t, ok)
	c.fail(id)
	require.ErrorIs(t, (<-done).err, errCallFailed)

	ctx, cancel := context.WithCancel(t.Context())
	call, done = ask(ctx)
	cancel()
	require.ErrorIs(t, (<-done).err, context.Canceled)
	rejected(greet(call.Port, call.ID))

	_, done = ask(t.Context())
	c.close()
	require.Error(t, (<-done).err)
	_, err := c.connect(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestCallsEnd: when the output of ssh ends, so do the calls that wait, and there are no others. They
// would take as long as a connection may.
func TestCallsEnd(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	s := &started{out: bufio.NewReader(read), calls: newCalls(Ports{})}
	s.tasks.Go(s.listen)
	defer s.tasks.Wait()
	done := make(chan error, 2)
	connect := func() {
		_, err := s.calls.connect(t.Context())
		done <- err
	}
	go connect()
	<-s.calls.wanted // a line for the server is on its way
	go connect()     // nobody takes this one's
	write.Close()
	for range 2 {
		require.Error(t, <-done)
	}
	_, err = s.calls.connect(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
}
