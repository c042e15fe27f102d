package transporttest

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// UDPProxy stands between QUIC clients and a server. It keeps what each client sends first, and can hold back what the server answers.
type UDPProxy struct {
	udp     *net.UDPConn
	to      *net.UDPAddr
	running sync.WaitGroup

	mu      sync.Mutex
	holding bool
	held    []func()
	clients map[string]*proxied
	order   []*proxied
}

// proxied is one client's socket.
type proxied struct {
	up     *net.UDPConn // to the server
	flight [][]byte     // what came before an answer went back
	early  bool         // with 0-RTT packets
	heard  bool         // it has an answer
}

// NewUDPProxy makes a proxy to a server's address. It ends with the test.
func NewUDPProxy(t testing.TB, to string) *UDPProxy {
	t.Helper()
	at, err := net.ResolveUDPAddr("udp", to)
	require.NoError(t, err)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	p := &UDPProxy{udp: udp, to: at, clients: make(map[string]*proxied)}
	p.running.Go(p.serve)
	t.Cleanup(func() {
		_ = udp.Close()
		p.mu.Lock()
		for _, c := range p.order {
			_ = c.up.Close()
		}
		p.mu.Unlock()
		p.running.Wait()
	})
	return p
}

// Addr is what clients dial.
func (p *UDPProxy) Addr() string { return p.udp.LocalAddr().String() }

func (p *UDPProxy) serve() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := p.udp.ReadFromUDP(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		c := p.clients[from.String()]
		if c == nil {
			up, err := net.DialUDP("udp", nil, p.to)
			if err != nil {
				p.mu.Unlock()
				return
			}
			c = &proxied{up: up}
			p.clients[from.String()] = c
			p.order = append(p.order, c)
			p.running.Go(func() { p.answer(c, from) })
		}
		if !c.heard {
			c.early = c.early || buf[0]&0xf0 == 0xd0 // RFC 9000, section 17.2
			c.flight = append(c.flight, slices.Clone(buf[:n]))
		}
		p.mu.Unlock()
		_, _ = c.up.Write(buf[:n])
	}
}

func (p *UDPProxy) answer(c *proxied, client *net.UDPAddr) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.up.Read(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the server is away
		}
		p.mu.Lock()
		if p.holding {
			b := slices.Clone(buf[:n])
			p.held = append(p.held, func() {
				c.heard = true
				_, _ = p.udp.WriteToUDP(b, client)
			})
		} else {
			c.heard = true
			_, _ = p.udp.WriteToUDP(buf[:n], client)
		}
		p.mu.Unlock()
	}
}

// Hold keeps the server's answers back until Release.
func (p *UDPProxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = true
}

// Release sends what was held back.
func (p *UDPProxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = false
	for _, send := range p.held {
		send()
	}
	p.held = nil
}

// Held is how many of the server's datagrams are held back.
func (p *UDPProxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// Early is how many clients have sent 0-RTT packets.
func (p *UDPProxy) Early() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.order {
		if c.early {
			n++
		}
	}
	return n
}

// Flights is what each client with 0-RTT packets has sent first.
func (p *UDPProxy) Flights() (all [][][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.order {
		if c.early {
			all = append(all, slices.Clone(c.flight))
		}
	}
	return all
}

// Replay sends flights to a server once more, each from a socket of its own and all at a time, until the server begins a handshake with each: what
// comes too soon it takes to be of the connection that has begun with the same packets.
func Replay(t testing.TB, flights [][][]byte, to string) {
	t.Helper()
	var all sync.WaitGroup
	for _, flight := range flights {
		all.Go(func() {
			if err := replay(flight, to); err != nil {
				t.Errorf("no answer to a replayed flight: %v", err)
			}
		})
	}
	all.Wait()
}

func replay(flight [][]byte, to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	answer := make([]byte, 2048)
	for began := time.Now(); time.Since(began) < patience; {
		for _, b := range flight {
			if _, err := c.Write(b); err != nil {
				return err
			}
		}
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return err
		}
		for n := 0; err == nil; n, err = c.Read(answer) {
			if n >= 1200 && answer[0]&0xf0 == 0xc0 { // an Initial with a ServerHello; what ends a connection is shorter
				return nil
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		err = nil
	}
	return os.ErrDeadlineExceeded
}
