package ssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// greetWithin is how long whoever connects to the port for calls may take to say for which one.
	// The server says it at once.
	greetWithin = 3 * time.Second
	// greetersAtOnce bounds those who have not said it yet. Another one takes the place of the oldest:
	// whoever stays silent does not keep the server out.
	greetersAtOnce = 64
)

// errCallFailed says that the server could not connect.
var errCallFailed = errors.New("the server cannot connect to this host")

// calls are connections that the server makes, where a firewall lets only these through. Each is
// asked for through ssh, and begins with a secret of its own. So nobody else gets one, and whoever
// has read the secret on the way still lacks the key of the server.
type calls struct {
	ports  Ports
	wanted chan string // lines for the server
	tasks  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	listener net.Listener // nil before the first call
	refused  error        // why there is none
	waiting  map[CallID]chan<- *net.TCPConn
	greeting []*net.TCPConn // the oldest first
}

func newCalls(ports Ports) *calls {
	return &calls{ports: ports, wanted: make(chan string), waiting: make(map[CallID]chan<- *net.TCPConn)}
}

// connect asks the server for a connection, and waits for it.
func (c *calls) connect(ctx context.Context) (*net.TCPConn, error) {
	call := Call{}
	_, _ = rand.Read(call.ID[:]) // never fails
	got := make(chan *net.TCPConn, 1)
	if err := c.expect(&call, got); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { c.fail(call.ID) })()
	var conn *net.TCPConn
	select {
	case c.wanted <- call.line():
		conn = <-got
	case conn = <-got: // ctx is done, or calls are closed
	}
	switch {
	case conn == nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case conn == nil:
		return nil, &fxfer.Error{Kind: fxfer.KindUnreachable, Err: errCallFailed}
	}
	return conn, nil
}

// expect lets got have the connection of a call, whose port it sets.
func (c *calls) expect(call *Call, got chan<- *net.TCPConn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if c.listener == nil {
		if c.listener, c.refused = listenIn(c.ports); c.refused != nil {
			return c.refused
		}
		c.tasks.Go(func() { acceptFrom(c.listener, c.accept) })
	}
	call.Port = portOf(c.listener)
	c.waiting[call.ID] = got
	return nil
}

// listenIn listens on a free one of these ports.
func listenIn(ports Ports) (l net.Listener, err error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // its sockets refuse options
	for port := ports.First; port <= ports.Last; port++ {
		if l, err = config.Listen(context.Background(), "tcp", ":"+strconv.Itoa(port)); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("listen for the server: %w", err)
}

// acceptAgain is how long no connection is accepted after one could not be.
const acceptAgain = 50 * time.Millisecond

// acceptFrom hands on the connections of a listener until that is closed.
func acceptFrom(l net.Listener, take func(*net.TCPConn)) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(acceptAgain)
			continue
		}
		take(conn.(*net.TCPConn))
	}
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// fail ends a call without a connection, if it has none yet.
func (c *calls) fail(id CallID) { c.give(id, nil) }

// give ends a call. It returns false if nobody waits for it.
func (c *calls) give(id CallID, conn *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, ok := c.waiting[id]
	if delete(c.waiting, id); ok {
		got <- conn
	}
	return ok
}

// accept takes a connection that may be one of a call.
func (c *calls) accept(conn *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.waiting) == 0 {
		conn.Close()
		return
	}
	if len(c.greeting) >= greetersAtOnce {
		c.greeting[0].Close() // greet returns
		c.greeting = slices.Delete(c.greeting, 0, 1)
	}
	c.greeting = append(c.greeting, conn)
	c.tasks.Go(func() { c.greet(conn) })
}

// greet hands a connection on, if it is one that somebody waits for.
func (c *calls) greet(conn *net.TCPConn) {
	var id CallID
	_ = conn.SetReadDeadline(time.Now().Add(greetWithin))
	_, err := io.ReadFull(conn, id[:])
	_ = conn.SetReadDeadline(time.Time{})
	c.mu.Lock()
	c.greeting = slices.DeleteFunc(c.greeting, func(x *net.TCPConn) bool { return x == conn })
	c.mu.Unlock()
	if err != nil || !c.give(id, conn) {
		conn.Close()
	}
}

// port is where the server connects to; 0 if there was no call.
func (c *calls) port() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == nil {
		return 0
	}
	return portOf(c.listener)
}

// failed returns why this host does not listen for the server; nil if it does, or need not.
func (c *calls) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// close takes no more calls, and ends those without a connection.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	if c.listener != nil {
		c.listener.Close()
	}
	for _, conn := range c.greeting {
		conn.Close()
	}
	for id, got := range c.waiting {
		delete(c.waiting, id)
		got <- nil
	}
	c.mu.Unlock()
	c.tasks.Wait()
}
