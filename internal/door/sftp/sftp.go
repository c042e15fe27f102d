// Package sftp is the door for SFTP: version 3 of the protocol, over ssh.
package sftp

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// aliveEvery is how often a client is asked for a sign of life. It may give none for door.SilentFor.
	aliveEvery = 30 * time.Second
	// maxChannels bounds the SFTP channels of one connection. Each may hold 2 MiB that wait.
	maxChannels = 2
	// maxTries bounds the passwords and keys that one connection may try: agents offer many keys.
	maxTries = 8
)

// Door serves SFTP. New returns one.
type Door struct {
	server door.Server
	key    ssh.Signer
}

// New returns the door to a server, which clients know by this key.
func New(server door.Server, key ed25519.PrivateKey) (*Door, error) {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("key for ssh: %w", err)
	}
	return &Door{server, signer}, nil
}

// Fingerprint returns the fingerprint of the server's key as ssh shows it.
func (d *Door) Fingerprint() string { return ssh.FingerprintSHA256(d.key.PublicKey()) }

// Serve serves a connection until it ends, or until ctx is done. It calls admitted when the user has
// logged in. It closes the connection.
func (d *Door) Serve(ctx context.Context, c net.Conn, admitted func()) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	begin, cancel := context.WithTimeout(ctx, door.LoginWithin)
	defer cancel()
	deadline, _ := begin.Deadline()
	_ = c.SetDeadline(deadline)
	l := &login{ctx: begin, door: d, client: door.Client{Addr: c.RemoteAddr(), Conn: c}}
	conn, channels, requests, err := ssh.NewServerConn(&impatientConn{Conn: c, loggingIn: begin}, l.config())
	if err != nil {
		return l.why(err)
	}
	account := l.account(conn.Permissions)
	admitted()
	left, err := account.LogIn()
	if err != nil {
		return err
	}
	defer left()
	cancel() // from here on, the connection has deadlines of its own; a read waits already
	_ = c.SetDeadline(time.Now().Add(door.SilentFor))
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	x := &connection{conn: conn, tree: door.NewTree(ctx, account), ctx: ctx, leave: leave}
	return x.serve(channels, requests)
}

// impatientConn is a connection whose peer has to read and write from time to time. While it logs
// in, the deadlines are those of its owner.
type impatientConn struct {
	net.Conn
	loggingIn context.Context
}

func (c *impatientConn) Read(b []byte) (int, error) {
	if c.loggingIn.Err() != nil {
		_ = c.SetReadDeadline(time.Now().Add(door.SilentFor))
	}
	return c.Conn.Read(b)
}

func (c *impatientConn) Write(b []byte) (int, error) {
	if c.loggingIn.Err() != nil {
		_ = c.SetWriteDeadline(time.Now().Add(door.SilentFor))
	}
	return c.Conn.Write(b)
}

// login is the login on one connection.
type login struct {
	ctx    context.Context
	door   *Door
	client door.Client

	mu      sync.Mutex // guards refused
	refused error      // the last refusal
}

// accountKey names an account in ssh.Permissions, which is how the ssh library says which of several
// proofs counted.
type accountKey struct{}

func (l *login) config() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{
		MaxAuthTries:  maxTries,
		ServerVersion: "SSH-2.0-fxfer",
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return l.note(l.door.server.Password(l.ctx, l.client, c.User(), string(password)))
		},
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			return l.note(l.door.server.Key(l.ctx, l.client, c.User(), key.Marshal()))
		},
	}
	cfg.AddHostKey(l.door.key)
	return cfg
}

func (l *login) note(a door.Account, err error) (*ssh.Permissions, error) {
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused = err
		return nil, err
	}
	return &ssh.Permissions{ExtraData: map[any]any{accountKey{}: a}}, nil
}

func (l *login) account(p *ssh.Permissions) door.Account {
	return p.ExtraData[accountKey{}].(door.Account)
}

// why explains a connection that ended before the login. A client that only left has no error.
func (l *login) why(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil {
		return l.refused
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// connection is one whose user has logged in.
type connection struct {
	conn  *ssh.ServerConn
	tree  *door.Tree
	ctx   context.Context // ends with it, with all that waits for its tree
	leave func()          // ends ctx
	tasks sync.WaitGroup
}

func (x *connection) serve(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) error {
	x.tasks.Go(func() { ssh.DiscardRequests(requests) })
	x.tasks.Go(x.keepAsking)
	var left error // of the last channel
	var mu sync.Mutex
	places := make(chan struct{}, maxChannels)
	for c := range channels {
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.UnknownChannelType, "this server has SFTP only")
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = c.Reject(ssh.ResourceShortage, "too many channels")
			continue
		}
		x.tasks.Go(func() {
			defer func() { <-places }()
			err := x.channel(c)
			mu.Lock()
			defer mu.Unlock()
			left = err
		})
	}
	x.leave()
	_ = x.conn.Close()
	x.tasks.Wait()
	x.tree.Close(left)
	return left
}

// keepAsking asks the client for signs of life. The answers renew the deadline for reading.
func (x *connection) keepAsking() {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-tick.C:
			// Clients answer a request that they don't know, too, as OpenSSH's server relies on.
			if _, _, err := x.conn.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				_ = x.conn.Close() // who sends on, but reads nothing, leaves, too
				return
			}
		}
	}
}

// channel serves one channel until the client has closed it, too: the library keeps it as long, with
// what the client sends. It returns nil if that was in good order.
func (x *connection) channel(c ssh.NewChannel) error {
	channel, requests, err := c.Accept()
	if err != nil {
		return err
	}
	work := x.begin(channel, requests)
	// While nobody takes the requests of one channel, the library reads nothing of the connection.
	gone := make(chan struct{})
	x.tasks.Go(func() { ssh.DiscardRequests(requests); close(gone) })
	if work != nil {
		err = work()
	}
	_ = channel.Close()
	<-gone
	return err
}

// begin answers requests up to one that begins work, and returns that. It returns nil if the client
// leaves.
func (x *connection) begin(channel ssh.Channel, requests <-chan *ssh.Request) (work func() error) {
	for r := range requests {
		var name struct{ Name string }
		command := r.Type == "exec" || r.Type == "shell"
		ok := r.Type == "subsystem" && ssh.Unmarshal(r.Payload, &name) == nil && name.Name == "sftp"
		if r.WantReply {
			_ = r.Reply(ok || command, nil)
		}
		switch {
		case ok:
			return func() error { return x.files(channel) }
		case command:
			return func() error {
				_, _ = io.WriteString(channel.Stderr(), "fxfer: error: this server has no commands, only SFTP; scp needs the option -s, or none since OpenSSH 9\n")
				return sendStatus(channel, 1)
			}
		}
	}
	return nil
}

func (x *connection) files(channel ssh.Channel) error {
	order := newInOrder(channel)
	h := &handlers{tree: x.tree, order: order}
	server := sftp.NewRequestServer(order, sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h},
		sftp.WithStartDirectory(x.tree.Start()))
	err := server.Serve()
	if errors.Is(err, io.EOF) {
		return sendStatus(channel, 0)
	}
	return err
}

// sendStatus ends a channel as a command with this exit status ends.
func sendStatus(channel ssh.Channel, status uint32) error {
	_, err := channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
	if errors.Is(err, io.EOF) { // the client has left
		return nil
	}
	return err
}
