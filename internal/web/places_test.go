package web

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestIdleConnections: somebody opens many connections and leaves them idle. The pages hold a few
// of them and answer others, and an open dashboard stays open.
func TestIdleConnections(t *testing.T) {
	s := start(t, fxfer.Options{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/api/events", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+s.pages.guard.token)
	events, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer events.Body.Close()
	require.Equal(t, http.StatusOK, events.StatusCode)
	feed := bufio.NewScanner(events.Body)
	require.True(t, feed.Scan())

	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	for i := range 4 * maxConns {
		c, err := net.Dial("tcp", s.pages.Addr().String())
		require.NoError(t, err)
		if i%2 == 0 { // half of them have said something
			_, _ = c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n"))
		}
		idle = append(idle, c)
	}
	open := func() (n int) {
		for _, c := range idle {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return open() < maxConns }, 5*time.Second, time.Millisecond)
	status, _ := get(t, s.base+"/healthz")
	require.Equal(t, http.StatusOK, status)
	for range 2 { // the empty line that ends an event, and the next one
		require.True(t, feed.Scan(), "the open dashboard: %v", feed.Err())
	}
	require.True(t, strings.HasPrefix(feed.Text(), "data: "), feed.Text())
}

// A connection in the middle of a request keeps its place.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := newPlaces(nil)
	var all []net.Conn
	take := func() (net.Conn, bool) {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		return here, p.take(here)
	}
	for range maxConns {
		c, ok := take()
		require.True(t, ok)
		p.note(c, http.StateNew)
		p.note(c, http.StateActive)
		all = append(all, c)
	}
	_, ok := take()
	require.False(t, ok, "all are busy")
	p.note(all[7], http.StateIdle)
	_, ok = take()
	require.True(t, ok, "one is idle")
	_, err := all[7].Write([]byte{1})
	require.Error(t, err, "the idle one is closed")
	p.note(all[7], http.StateClosed) // comes after
	p.note(all[8], http.StateClosed)
	_, ok = take()
	require.True(t, ok)
	require.Len(t, p.since, maxConns)
}
