package quic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// newAuth is for a host with a key of its own.
func newAuth(tb testing.TB) auth.Config {
	tb.Helper()
	return auth.Config{Identity: transporttest.NewKey(tb)}
}

// pair returns the ends of a stream over loopback.
func pair(tb testing.TB) (client, server *Conn) {
	tb.Helper()
	l, err := Listen("127.0.0.1:0", ListenConfig{Auth: newAuth(tb)})
	require.NoError(tb, err)
	tb.Cleanup(func() { vanish(l) })
	client, server = streamTo(tb, l)
	server.Admit()
	return client, server
}

// streamTo returns the ends of a stream on a connection of its own to a server.
func streamTo(tb testing.TB, l *Listener) (client, server *Conn) {
	tb.Helper()
	done := make(chan error, 1)
	go func() {
		var err error
		if server, err = l.Accept(); err == nil {
			err = server.Handshake(context.Background())
		}
		done <- err
	}()
	client, err := Dial(context.Background(), l.Addr().String(), Config{Auth: newAuth(tb)}, transporttest.AnyKey)
	require.NoError(tb, err)
	require.NoError(tb, <-done)
	return client, server
}

// vanish ends a server that says nothing to anybody.
func vanish(l *Listener) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	l.Shutdown(gone)
}
