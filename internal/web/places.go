package web

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns bounds the connections at a time. spareFiles in internal/server has room for them, so
// that they never take the open files of transfers. 32 may be open dashboards.
const maxConns = 48

// places is a listener with at most maxConns open connections. When all places are taken, the
// connection that has waited longest for a request gives its place to a new one.
type places struct {
	net.Listener

	mu    sync.Mutex             // guards what follows
	since map[net.Conn]time.Time // when the wait for a request began, or zero during a request
}

func newPlaces(l net.Listener) *places {
	return &places{Listener: l, since: make(map[net.Conn]time.Time)}
}

// Accept closes connections for which there is no place.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if p.take(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

// take finds a place for c.
func (p *places) take(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.since) >= maxConns {
		oldest := p.longestLocked()
		if oldest == nil {
			return false
		}
		delete(p.since, oldest)
		_ = oldest.Close()
	}
	p.since[c] = time.Now()
	return true
}

// longestLocked returns the connection that has waited longest, or nil if none waits.
func (p *places) longestLocked() (longest net.Conn) {
	for c, at := range p.since {
		if !at.IsZero() && (longest == nil || at.Before(p.since[longest])) {
			longest = c
		}
	}
	return longest
}

// note is http.Server.ConnState. A connection is active from the end of a request's head on.
func (p *places) note(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, has := p.since[c]; !has {
		return
	}
	switch state {
	case http.StateActive:
		p.since[c] = time.Time{}
	case http.StateIdle:
		p.since[c] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(p.since, c)
	case http.StateNew:
	}
}
