package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// piped is a connection of which only reading and writing work.
type piped struct {
	transport.Conn
	near net.Conn
}

func (p piped) Read(b []byte) (int, error)          { return p.near.Read(b) }
func (p piped) SetReadDeadline(at time.Time) error  { return p.near.SetReadDeadline(at) }
func (p piped) Write(b []byte) (int, error)         { return p.near.Write(b) }
func (p piped) SetWriteDeadline(at time.Time) error { return p.near.SetWriteDeadline(at) }

// TestMessagesStayWhole: messages that are written in several pieces don't mix with those of another goroutine.
func TestMessagesStayWhole(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	q := &request{conn: &connection{Conn: piped{near: near}}}
	long := wire.Folder{Names: slices.Repeat([]string{strings.Repeat("x", 200)}, 500)}
	const each = 50
	var writers sync.WaitGroup
	send := func(m wire.Message) {
		if err := q.send(m); err != nil {
			t.Error(err)
		}
	}
	writers.Go(func() { send(&long) })
	begin := make([]byte, 1)
	_, err := io.ReadFull(far, begin) // then it is in its first piece
	require.NoError(t, err)
	for range each {
		writers.Go(func() { send(&wire.Ping{}) })
	}
	r := wire.NewReader(io.MultiReader(bytes.NewReader(begin), far), wire.MaxMessage)
	m, err := r.Next()
	require.NoError(t, err)
	got, ok := m.(*wire.Folder)
	require.True(t, ok && slices.Equal(long.Names, got.Names), "what came is mixed up")
	for range each {
		_, err := r.Next()
		require.NoError(t, err)
	}
	writers.Wait()
}

// TestWorkShows: while a server works for long, each message to the client says that it has worked more. Between two
// pieces of work it says nothing. When the client is gone, the session ends.
func TestWorkShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		q := &request{reservation: new(reservation), conn: &connection{Conn: piped{near: near}}}
		q.ctx, q.cancel = context.WithCancelCause(t.Context())
		var shown []int64
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for r := wire.NewReader(far, wire.MaxMessage); ; {
				m, err := r.Next()
				if err != nil {
					return
				}
				work, ok := m.(*wire.Sample).Map()[session.WorkTime]
				if len(shown) > 0 && work <= shown[len(shown)-1] || !ok {
					t.Errorf("%d after %v", work, shown)
				}
				shown = append(shown, work)
			}
		}()
		for range 3 {
			done := q.showWork()
			time.Sleep(2*time.Hour + time.Second)
			done()
			time.Sleep(time.Hour)
		}
		require.NoError(t, q.ctx.Err())
		done := q.showWork()
		_ = far.Close()
		<-q.ctx.Done()
		done()
		<-heard
		require.Len(t, shown, 3*2*60*60/5)
	})
}

// TestVerificationOfPings: a client that has its answers and goes on to ping does not keep its session.
func TestVerificationOfPings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var peer sync.WaitGroup
		defer peer.Wait()
		defer near.Close()
		v := verification{request: &request{conn: &connection{Conn: piped{near: near}}}, file: true}
		began := time.Now()
		peer.Go(func() {
			defer far.Close()
			for time.Since(began) < 3*time.Hour {
				if _, err := far.Write(wire.Append(nil, &wire.Ping{})); err != nil {
					return
				}
				time.Sleep(5 * time.Second)
			}
		})
		require.ErrorIs(t, v.answerFolders(), os.ErrDeadlineExceeded)
		require.Equal(t, session.VerifyPatience, time.Since(began))
	})
}
