package fleet

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestConnectEnds: nobody waits for a queue that does not answer once the context is done.
func TestConnectEnds(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		c, err := silent.Accept()
		time.Sleep(100 * time.Millisecond) // by then it waits for the first message
		cancel()
		if err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	began := time.Now()
	_, err = connect(ctx, &NATS{URLs: []string{"nats://" + silent.Addr().String()}}, "test")
	require.Error(t, err)
	require.Less(t, time.Since(began), connectWithin)
}

// TestImpatientConn: a connection that is being made is given up when the context is done. One that has been
// made stays, for last words.
func TestImpatientConn(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := &impatientConn{Conn: near, ctx: ctx, stop: func() bool { return true }}
			require.NoError(t, c.SetDeadline(time.Now().Add(connectWithin)))
			if made {
				require.NoError(t, c.SetDeadline(time.Time{}))
				time.AfterFunc(2*time.Second, func() { _, _ = far.Write([]byte("x")) })
			}
			began := time.Now()
			n, err := c.Read(make([]byte, 1))
			if made {
				require.NoError(t, err)
				require.Equal(t, 1, n)
				return
			}
			require.Error(t, err)
			require.Equal(t, time.Second, time.Since(began))
		})
	}
}

// stuck are records that nobody can read until there is an answer.
type stuck struct {
	jetstream.KeyValue
	answer chan struct{}
}

func (s stuck) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	<-s.answer
	return nil, context.DeadlineExceeded
}

// TestRenewStuck: a worker loses its task before its lease ends though a question does not return.
func TestRenewStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 15 * time.Second
		records := stuck{answer: make(chan struct{})}
		h := &held{Worker: &Worker{lease: lease, records: records}, task: &Task{Job: "j", Kind: List}}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		began := time.Now()
		go func() { defer close(done); h.renew(ctx, cancel) }()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), errLost)
		require.Less(t, time.Since(began), lease)
		close(records.answer)
		<-done
	})
}
