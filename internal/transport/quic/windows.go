package quic

import "sync"

// windows bounds the growth of all windows of this process beyond their first size, bytes. One
// client never has more than is left for all others, so that none takes everything.
var windows = newWindowPool(allWindows)

// windowPool is memory that receive windows may grow into.
type windowPool struct {
	mu      sync.Mutex // guards the following
	left    int64
	clients map[string]int64 // what each client has
}

func newWindowPool(bytes int64) *windowPool {
	return &windowPool{left: bytes, clients: make(map[string]int64)}
}

// take takes n bytes for a client, or returns false. "" is a server that this process chose to
// connect to; it may have everything.
func (p *windowPool) take(client string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.left || client != "" && p.clients[client]+n > p.left-n {
		return false
	}
	p.left -= n
	p.clients[client] += n
	return true
}

// give gives n bytes of a client back.
func (p *windowPool) give(client string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += n
	if p.clients[client] -= n; p.clients[client] == 0 {
		delete(p.clients, client)
	}
}
