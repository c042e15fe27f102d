package fxfer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestQUIC moves a file there and back.
func TestQUIC(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	source := filepath.Join(t.TempDir(), "f")
	data := randomFile(t, source, 9<<20+17)
	c := client(t, t.TempDir(), Options{Transport: TransportQUIC})
	r, err := c.Send(t.Context(), []string{source}, s.invited(t))
	require.NoError(t, err)
	require.Equal(t, TransportQUIC, r.Transport)
	require.Equal(t, r.Streams, r.Connections, "each stream has its own")
	back := filepath.Join(t.TempDir(), "back")
	_, err = c.Get(t.Context(), []URL{s.plain(t, "f")}, back)
	require.NoError(t, err)
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	_, err = NewClient(Options{Home: t.TempDir(), Transport: TransportQUIC, SockBuf: 1 << 16})
	require.Equal(t, KindUsage, KindOf(err))
	_, err = NewClient(Options{Home: t.TempDir(), Transport: "pigeon"})
	require.Equal(t, KindUsage, KindOf(err))
}

// TestManyQUICClients: 100 clients at a time all get through, and leave nothing behind.
func TestManyQUICClients(t *testing.T) {
	if testing.Short() {
		t.Skip("200 connections")
	}
	const clients = 100
	s := serveWith(t, ServerOptions{MaxSessionsPerClient: clients}, identity.Read|identity.Write)
	defer s.stop()
	home := t.TempDir()
	source := filepath.Join(t.TempDir(), "f")
	randomFile(t, source, 1<<20)
	opt := Options{Transport: TransportQUIC, Streams: 1, RetryFor: time.Minute}
	_, err := client(t, home, opt).Send(t.Context(), []string{source}, s.invited(t))
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for i := range clients {
		to := s.plain(t, fmt.Sprintf("copy%d", i))
		c := client(t, home, opt)
		all.Go(func() {
			_, err := c.Send(t.Context(), []string{source}, to)
			errs <- err
		})
	}
	all.Wait()
	for range clients {
		require.NoError(t, <-errs)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, 30*time.Second, 50*time.Millisecond, "what is left of the connections")
}
