package ssh

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// channelStreams is how many data streams go through ssh where no port can be reached. Each takes a
// login, and sshd turns logins away when more than 10 begin at a time (MaxStartups).
const channelStreams = 4

// channels carry connections to the server's port inside ssh: an ssh for each connection, so that
// each has a TCP window of its own. They listen on the loopback of this host. Others on this host
// gain nothing by connecting there: the server asks for the client's key. The number of channels is
// bounded, because each of them is a login.
type channels struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool
	run    map[*exec.Cmd]bool
	most   int // of run
}

// openChannels listens for connections to a port of the host of t, which carry this many data
// streams.
func (f *Flags) openChannels(t *target, port, streams int, errs io.Writer) (*channels, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("carry connections in ssh: %w", err)
	}
	// Beside the streams there are control streams, and connections that others have replaced.
	c := &channels{listener: l, run: make(map[*exec.Cmd]bool), most: 2*streams + 4}
	// No person is there to type a password for each of them.
	line := f.line(t, []string{"-oBatchMode=yes", "-W", fmt.Sprintf("127.0.0.1:%d", port)})
	c.tasks.Go(func() {
		acceptFrom(l, func(conn *net.TCPConn) {
			cmd := exec.Command(line[0], line[1:]...)
			cmd.Stderr, cmd.WaitDelay = errs, outputWithin
			c.carry(conn, cmd)
		})
	})
	return c, nil
}

// carry gives a connection to an ssh, or closes it if there are too many.
func (c *channels) carry(conn *net.TCPConn, cmd *exec.Cmd) {
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return
	}
	defer file.Close()
	cmd.Stdin, cmd.Stdout = file, file
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.run) >= c.most || cmd.Start() != nil {
		return
	}
	c.run[cmd] = true
	c.tasks.Go(func() {
		_ = cmd.Wait() // the connection's end says all
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.run, cmd)
	})
}

// port is where the channels listen.
func (c *channels) port() int { return portOf(c.listener) }

// close ends all channels. c may be nil.
func (c *channels) close() {
	if c == nil {
		return
	}
	c.listener.Close()
	c.mu.Lock()
	c.closed = true
	for cmd := range c.run {
		_ = cmd.Process.Kill()
	}
	c.mu.Unlock()
	c.tasks.Wait()
}

// throughSSH completes opt for a server that only channels reach.
func throughSSH(opt *fxfer.Options) error {
	if opt.Transport == fxfer.TransportQUIC {
		return exit.Usage("leave --transport out, or open a port: --ports 50000-50100 chooses among them", "QUIC can't go through ssh, and no port of the host can be reached")
	}
	opt.Transport = fxfer.TransportTCP
	if opt.Streams == 0 {
		opt.MaxStreams = min(cmp.Or(opt.MaxStreams, channelStreams), channelStreams)
	}
	return nil
}

// reachInside makes channels to a server that does not answer otherwise.
func (f *Flags) reachInside(ctx context.Context, s *started, server fxfer.URL, t *target, opt *fxfer.Options, errs io.Writer) (_ fxfer.URL, err error) {
	if err := throughSSH(opt); err != nil {
		return server, err
	}
	blocked := server.Port
	streams := max(opt.Streams, opt.MaxStreams)
	if s.channels, err = f.openChannels(t, blocked, streams, errs); err != nil {
		return server, err
	}
	server.Port = s.channels.port()
	ctx, cancel := context.WithTimeout(ctx, channelWithin)
	defer cancel()
	client, err := fxfer.NewClient(*opt)
	if err != nil {
		return server, err
	}
	if server.Host = "127.0.0.1"; !client.Reaches(ctx, server) {
		return server, exit.WithHint(&fxfer.Error{Kind: fxfer.KindUnreachable,
			Err: fmt.Errorf("port %d of %s can't be reached, neither directly nor through ssh", blocked, t.name())},
			"open ports and name them: --ports 50000-50100; through ssh it takes a login without a password, and AllowTcpForwarding in sshd")
	}
	fmt.Fprintf(f.notes, "fxfer: note: port %d of %s can't be reached, so data goes through ssh: it is encrypted twice, and at most %d streams share the line\n",
		blocked, t.name(), streams)
	return server, nil
}
