package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Queue is where a fleet has its jobs and tasks, and how its members are admitted there.
type Queue interface {
	// String names it in messages.
	String() string
	// options returns where it is, and how to connect.
	options() (url string, opts []nats.Option, err error)
}

// Controlled is a queue in the process of its controller.
type Controlled struct {
	Address     string // host and port
	Credentials *Credentials
}

// String implements Queue.
func (q *Controlled) String() string { return "controller " + q.Address }

func (q *Controlled) options() (string, []nats.Option, error) {
	public, sign, err := q.Credentials.key()
	if err != nil {
		return "", nil, err
	}
	config, err := q.Credentials.tls()
	if err != nil {
		return "", nil, err
	}
	return "tls://" + q.Address, []nats.Option{nats.Nkey(public, sign), nats.Secure(config)}, nil
}

// NATS is a queue in NATS servers of one's own. Whoever may use their account is a member of the fleet.
type NATS struct {
	URLs        []string // nats:// or tls://, of at least one server; it names the others
	Credentials string   // a file with a JWT and its key, or with an NKey; "" for none
	CA          string   // a file with the certificates that servers are trusted by; "" for those of the system
	Cert, Key   string   // files of the client's certificate, both or none
}

// String implements Queue.
func (q *NATS) String() string { return strings.Join(q.URLs, ",") }

func (q *NATS) options() (string, []nats.Option, error) {
	var opts []nats.Option
	if q.CA != "" || q.Cert != "" || strings.HasPrefix(q.URLs[0], "tls:") {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if q.CA != "" {
			text, err := os.ReadFile(q.CA)
			if err != nil {
				return "", nil, err
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(text) {
				return "", nil, fmt.Errorf("%s has no certificate", q.CA)
			}
		}
		opts = append(opts, nats.Secure(config))
	}
	if q.Cert != "" {
		opts = append(opts, nats.ClientCert(q.Cert, q.Key)) // reads the files at each connection
	}
	if q.Credentials != "" {
		text, err := os.ReadFile(q.Credentials)
		if err != nil {
			return "", nil, err
		}
		admitted := nats.UserCredentials(q.Credentials) // reads the file at each connection
		if !bytes.Contains(text, []byte("NATS USER JWT")) {
			if admitted, err = nats.NkeyOptionFromSeed(q.Credentials); err != nil {
				return "", nil, fmt.Errorf("%s: %w", q.Credentials, err)
			}
		}
		opts = append(opts, admitted)
	}
	return q.String(), opts, nil
}

// inProcess is a queue in this process.
type inProcess struct {
	server      *server.Server
	credentials *Credentials
}

// String implements Queue.
func (q *inProcess) String() string { return "JetStream" }

func (q *inProcess) options() (string, []nats.Option, error) {
	public, sign, err := q.credentials.key()
	return "", []nats.Option{nats.Nkey(public, sign), nats.InProcessServer(q.server)}, err
}

// connect connects to a queue. The connection comes back by itself after it was lost, until ctx is done.
func connect(ctx context.Context, q Queue, name string) (*nats.Conn, error) {
	url, opts, err := q.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(500*time.Millisecond),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2), nats.Timeout(connectWithin), nats.IgnoreAuthErrorAbort(),
		nats.SetCustomDialer(dialer{ctx}), nats.SkipHostLookup()) // the dialer does that, and not longer than ctx
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q, worded(err))
	}
	return conn, nil
}

// connectWithin is how long each attempt to connect may take.
const connectWithin = 10 * time.Second

// dialer dials connections that are given up while they are being made when its context is done. NATS
// holds its lock meanwhile, so a queue that does not answer would keep a member from ending.
type dialer struct{ ctx context.Context }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: connectWithin}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &impatientConn{Conn: c, ctx: d.ctx, stop: func() bool { return true }}, nil
}

// impatientConn is a connection whose deadline comes when ctx is done, if it has one. It has one while
// NATS makes it.
type impatientConn struct {
	net.Conn
	ctx  context.Context
	stop func() bool // ends the watch of ctx
}

// SetDeadline implements net.Conn.
func (c *impatientConn) SetDeadline(t time.Time) error {
	c.stop()
	err := c.Conn.SetDeadline(t)
	if err == nil && !t.IsZero() {
		c.stop = context.AfterFunc(c.ctx, func() { _ = c.Conn.SetDeadline(time.Now()) })
	}
	return err
}

// worded puts errors of NATS and of sockets into words for people.
func worded(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, io.EOF):
		return &wordedError{err, "it closed the connection"}
	case errors.Is(err, nats.ErrNoServers):
		return &wordedError{err, "nobody answers there"}
	case errors.Is(err, nats.ErrAuthorization):
		return &wordedError{err, "it does not accept these credentials"}
	case errors.Is(err, nats.ErrTimeout), errors.As(err, &network) && network.Timeout():
		return &wordedError{err, "no answer in time"}
	}
	return err
}

// wordedError is an error with another text.
type wordedError struct {
	error
	text string
}

func (e *wordedError) Error() string { return e.text }
func (e *wordedError) Unwrap() error { return e.error }

// pingEvery is how often a connection is tested. After three times of it without an answer, a member of
// a cluster turns to another server, long before its lease ends.
const pingEvery = 3 * time.Second

// connectPatiently is connect that waits for a queue that is away. It fails if the queue does not admit
// this member, or is not the one that it expects. waiting is told why it waits, each time that this is
// something else.
func connectPatiently(ctx context.Context, q Queue, name string, waiting func(error)) (*nats.Conn, error) {
	for said := ""; ; {
		conn, err := connect(ctx, q, name)
		if err == nil || !Away(err) {
			return conn, err
		}
		if err.Error() != said {
			said = err.Error()
			waiting(err)
		}
		if !pause(ctx, time.Second) {
			return nil, context.Cause(ctx)
		}
	}
}

// Away reports whether a connection failed because nobody answers now.
func Away(err error) bool {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate), errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return false
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed):
		return true
	}
	var network *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &network) && network.Op != "remote error" // that is TLS's
}
