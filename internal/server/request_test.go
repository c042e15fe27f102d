package server

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// piped is a connection of which only writing works.
type piped struct {
	transport.Conn
	near net.Conn
}

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
