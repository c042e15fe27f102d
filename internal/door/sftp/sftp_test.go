package sftp

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/fxfer/fxfer/internal/door"
)

// anybody admits everybody, to nothing.
type anybody struct{}

func (a anybody) Password(context.Context, door.Client, string, string) (door.Account, error) {
	return a, nil
}

func (a anybody) Key(context.Context, door.Client, string, []byte) (door.Account, error) {
	return nil, door.ErrLogin
}
func (anybody) LogIn() (func(), error) { return func() {}, nil }
func (anybody) Shares() []door.Share   { return nil }
func (anybody) Enter(context.Context, string) (*door.Session, error) {
	return nil, os.ErrNotExist
}

// serve serves one end of a connection. It returns the other end, and when the door has left.
func serve(t *testing.T) (client *end, left func() time.Time) {
	t.Helper()
	client, _, left = serveEnds(t)
	return client, left
}

func serveEnds(t *testing.T) (client, server *end, left func() time.Time) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	d, err := New(anybody{}, key)
	require.NoError(t, err)
	here, there := net.Pipe()
	client, server = newEnd(t, there), newEnd(t, here)
	ended := make(chan time.Time, 1)
	go func() {
		_ = d.Serve(t.Context(), server, func() {})
		ended <- time.Now()
	}()
	return client, server, func() time.Time { return <-ended }
}

// logIn logs in after a while.
func logIn(t *testing.T, c net.Conn, after time.Duration) *ssh.Client {
	t.Helper()
	conn, channels, requests, err := ssh.NewClientConn(c, "door", &ssh.ClientConfig{
		User: "anna", Auth: []ssh.AuthMethod{ssh.Password("x")},
		HostKeyCallback: func(string, net.Addr, ssh.PublicKey) error { time.Sleep(after); return nil },
	})
	require.NoError(t, err)
	return ssh.NewClient(conn, channels, requests)
}

// TestDeadlines: who does not log in leaves, who is silent leaves, and who only has nothing to do
// stays.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	t.Run("no login", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, left := serve(t)
			require.Equal(t, door.LoginWithin, left().Sub(began))
		})
	})
	t.Run("idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, left := serve(t)
			client := logIn(t, c, door.LoginWithin-time.Second)
			time.Sleep(time.Hour)
			files, err := sftp.NewClient(client)
			require.NoError(t, err)
			wd, err := files.Getwd()
			require.NoError(t, err)
			require.Equal(t, "/", wd)
			_, err = files.Stat("/etc/passwd")
			require.ErrorIs(t, err, os.ErrNotExist)
			require.NoError(t, files.Close())
			require.NoError(t, client.Close())
			left()
		})
	})
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, left := serve(t)
			client := logIn(t, c, 0)
			began := time.Now()
			c.mute.Store(true)
			require.LessOrEqual(t, left().Sub(began), door.SilentFor+aliveEvery)
			_ = client.Close()
		})
	})
}

// TestHostileChannels sends requests that nobody takes, and leaves channels open.
func TestHostileChannels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, server, left := serveEnds(t)
		client := logIn(t, c, 0)
		open := func() (ssh.Channel, error) {
			channel, requests, err := client.OpenChannel("session", nil)
			if err == nil {
				go ssh.DiscardRequests(requests)
			}
			return channel, err
		}
		send := func(channel ssh.Channel, n int, name string) {
			for range n {
				_, err := channel.SendRequest(name, false, nil)
				require.NoError(t, err)
			}
		}
		channel, err := open()
		require.NoError(t, err)
		release := c.hold() // so all requests come before the answer to the first
		send(channel, 1, "exec")
		send(channel, 100, "x")
		release()
		synctest.Wait()

		var channels [maxChannels]ssh.Channel
		for i := range channels {
			channels[i], err = open()
			require.NoError(t, err)
		}
		release = server.hold() // so the client does not learn that its channels end
		for _, channel := range channels {
			send(channel, 1, "exec")
		}
		synctest.Wait()
		opened := make(chan error, 1)
		go func() { _, err := open(); opened <- err }()
		synctest.Wait()
		release()
		require.ErrorContains(t, <-opened, "too many channels")
		synctest.Wait()
		_, err = open()
		require.NoError(t, err, "the client has closed the others")
		require.NoError(t, client.Close())
		left()
	})
}

// crowd is anybody, with so many shares that a listing of them takes several answers.
type crowd struct{ anybody }

func (crowd) Shares() []door.Share {
	for range 1000 {
		runtime.Gosched() // others ask meanwhile
	}
	return make([]door.Share, 5000)
}

// TestReadersOfOneFolder reads a folder in several goroutines, as the library does for a client that
// asks to read bytes of it.
func TestReadersOfOneFolder(t *testing.T) {
	t.Parallel()
	l := (&handlers{tree: door.NewTree(t.Context(), crowd{})}).newListing("/")
	var got atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				n, err := l.ListAt(make([]os.FileInfo, 10), 0)
				if got.Add(int64(n)); err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 5000, got.Load())
	require.NoError(t, l.Close())
}

// end is one end of a pipe. It buffers what is written there: both ends of ssh begin with a write.
// While it is mute, it swallows that.
type end struct {
	net.Conn
	done   <-chan struct{} // closed when the test ends
	writes chan []byte
	flow   chan struct{} // holds a value unless writes are held back
	mute   atomic.Bool
}

func newEnd(t *testing.T, c net.Conn) *end {
	x := &end{Conn: c, done: t.Context().Done(), writes: make(chan []byte, 1000), flow: make(chan struct{}, 1)}
	x.flow <- struct{}{}
	go func() {
		for {
			select {
			case b := <-x.writes:
				release := x.hold()
				_, _ = c.Write(b)
				release()
			case <-x.done:
				return
			}
		}
	}()
	return x
}

// hold holds writes back until release.
func (x *end) hold() (release func()) {
	<-x.flow
	return func() { x.flow <- struct{}{} }
}

func (x *end) Write(b []byte) (int, error) {
	if x.mute.Load() {
		return len(b), nil
	}
	select {
	case x.writes <- bytes.Clone(b):
		return len(b), nil
	case <-x.done:
		return 0, net.ErrClosed
	}
}
