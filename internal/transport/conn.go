// Package transport carries streams of bytes between two hosts that know each other by Ed25519 keys: TCP below, TLS 1.3 on the wire.
//
// Both ends present a self-signed certificate made from their identity; there is no CA and there are no names. The client's expect
// function decides on the server's key before the client has said who it is; the server takes any key, and whoever accepts decides by
// PeerKey what it may do. Either end may present and ask for certificates that a CA vouches for instead: what they are worth is the caller's to
// check.
package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"
)

// HandshakeTimeout is the longest an accepted peer may take for its handshake.
const HandshakeTimeout = 10 * time.Second

// Protocol carries streams.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	QUIC Protocol = "quic"
)

// Config says how a host presents itself and how its sockets are set. Zero fields but Identity are automatic.
type Config struct {
	// Identity is this host's key. Required.
	Identity ed25519.PrivateKey

	// Certificate, if not nil, returns what a client presents in the place of Identity, and a server to clients with Verify. It is called for each
	// handshake, maybe concurrently, and returns a certificate, which must not be changed.
	Certificate func() *tls.Certificate
	// Verify, if not nil, takes the place of Dial's expect: the server has to present a certificate for the host that is dialled, and Verify decides
	// on it and on those that came with it, leaf first.
	Verify func(chain []*x509.Certificate) error

	// SockBuf fixes the window of every stream at this many bytes in both directions, as a program with a fixed socket buffer does.
	// 0 leaves it to the kernel's autotuning and to windowFor.
	SockBuf int

	// Congestion names the congestion control. "" and "auto" take BBR on long paths where the kernel allows it.
	Congestion string

	// Socket is what Listen takes instead of listening itself, such as one that outlives this process. The caller does not use it any more.
	Socket *net.TCPListener

	// Datagrams is the same for QUIC.
	Datagrams *net.UDPConn

	// Turn, of Listen and QUIC, is called before a handshake costs anything, and may wait for as long as ctx. Its error ends the connection. Over
	// TCP Handshake is the caller's to hold back.
	Turn func(ctx context.Context, client net.Addr) error

	// Protocol carries the streams. "" is TCP.
	Protocol Protocol

	// Group, of QUIC, is the connections among which Dial chooses, unless the stream shall be Apart. Without, each stream has its own.
	Group *Group
	Apart bool

	// QLog, of QUIC, is a folder for a log of each connection that Dial makes; "" is none.
	QLog string

	// Doubt lets Dial find out soon whether a silent peer is behind a black hole, at the price of a second connection.
	Doubt bool

	// Path is what is known of the way to the peer, for windows that must be decided before the first packet.
	Path Path
}

// automatic reports whether the congestion control is the transport's to choose.
func (c Config) automatic() bool { return c.Congestion == "" || c.Congestion == "auto" }

// Conn is one stream to a peer. One goroutine may read while another writes; Close may come from anywhere and unblocks both.
//
// Read returns io.EOF after the peer's Close or CloseWrite, and io.ErrUnexpectedEOF if the connection ended without one, so a
// truncated stream never looks whole. After Close, Read and Write return an error that matches net.ErrClosed. Deadlines are those of
// net.Conn and their errors match os.ErrDeadlineExceeded; a Read may be tried again after one, but after a failed Write every later
// one fails, since half a record may be on the wire.
type Conn interface {
	// Read implements io.Reader. It may use all of p as scratch space.
	// Write returns when the transport has all of p. Small writes make small packets: gather a message and write it once.
	// Close ends the stream and unblocks a waiting Read and Write. Unless a Write is under way the peer reads io.EOF after what was
	// written. What the peer still sends is lost, and on most systems so is then what it has not read yet: to be sure that the peer got
	// the last message, call CloseWrite and read to io.EOF first. Only the first call does anything.
	net.Conn

	// WriteBuffers is Write for a message in two pieces, sent as if they were one slice, with one copy less. Until it returns nobody
	// else may read or write payload, since bytes of it may be changed for moments and put back.
	WriteBuffers(header, payload []byte) (int, error)
	// CloseWrite says that nothing more will be written; the peer reads io.EOF after what was. Reading goes on. It counts as a write.
	CloseWrite() error

	// Handshake authenticates an accepted conn, within HandshakeTimeout at most. Any client with a certificate passes. After an error the
	// conn is closed. On a conn that has had its handshake it does nothing.
	Handshake(ctx context.Context) error
	// Admit gives the conn the buffers that bulk data wants. Until then its peer, which may be anyone, can make it hold little. Dialled
	// conns are admitted.
	Admit()
	// PeerKey is the key the peer has proven to own; nil before the handshake, and of a peer that PeerCertificates tells of. The caller must not
	// change it.
	PeerKey() ed25519.PublicKey
	// PeerCertificates is what a peer presented that has more than a key, leaf first; nil of others, and before the handshake. Of a server, Verify has
	// accepted it. Of a client nothing is checked but that it owns the key of the leaf. The caller must not change it.
	PeerCertificates() []*x509.Certificate
	// Exporter returns length bytes that both ends of this connection, and nobody else, can compute for label (RFC 8446 section 7.5,
	// with an empty context).
	Exporter(label string, length int) ([]byte, error)

	// Apply changes the settings of a conn whose peer asks for others than the Config's: a sockBuf of 0 and an automatic congestion
	// control leave what is. The error names the setting that is refused, and why.
	Apply(sockBuf int, congestion string) error
	// Info returns the figures of the connection, and false where there are none.
	Info() (Info, bool)
	// Windows tells how large this host's buffers are, and how much of a stream they let be in flight.
	Windows() Windows
	// LimitUnsent bounds how much unsent data is taken from Write, where that can be chosen. Write waits for room.
	LimitUnsent(bytes int)
	// SetNoDelay sets TCP_NODELAY, which is on unless changed, where there is such a thing.
	SetNoDelay(on bool) error
}

// Dial connects to addr ("host:port") and authenticates both ends. expect (required) is called with the server's key before anything but the
// ClientHello was sent, and its error ends the handshake and matches with errors.Is. Only when Dial succeeds is it proven that the server owns that
// key. An alert of the server is a tls.AlertError for errors.As, also in errors of the conn later: only then a client hears that its certificate is
// not taken. A BlackHoleError asks for a Path.MTU of SafeMTU. expect should not wait for a person: the server gives up after HandshakeTimeout. The
// conn is admitted.
func Dial(ctx context.Context, addr string, cfg Config, expect func(peer ed25519.PublicKey) error) (Conn, error) {
	if cfg.Protocol == QUIC {
		c, err := dialQUIC(ctx, addr, cfg, expect)
		if err != nil {
			return nil, cfg.explain(err) // not a nil conn in an interface
		}
		return c, nil
	}
	c, err := dialTCP(ctx, addr, cfg, expect)
	if err != nil {
		return nil, cfg.explain(err)
	}
	return c, nil
}

// explain tells what the alert means with which a server answers who asks for a certificate that it does not have.
func (c *Config) explain(err error) error {
	if alert := tls.AlertError(0); c.Verify != nil && errors.As(err, &alert) && alert == alertNoProtocol {
		return ErrNoCertificate
	}
	return err
}

// Listener accepts conns. Its methods may be called concurrently.
type Listener interface {
	// Accept waits for the next connection and returns it before its handshake, so that no peer can hold up others: the caller runs
	// Handshake in a goroutine of its own. After Close the error matches net.ErrClosed.
	Accept() (Conn, error)
	// Addr is the address listened on.
	Addr() net.Addr
	// Close ends a waiting Accept. Accepted conns stay open.
	Close() error
	// Shutdown is Close, and waits until the peers have got what was written on accepted conns, which should be closed. When ctx ends, the
	// rest is lost.
	Shutdown(ctx context.Context)
}

// Listen listens on addr ("host:port"; an empty host means all, port 0 any free one).
func Listen(addr string, cfg Config) (Listener, error) {
	if cfg.Protocol == QUIC {
		l, err := listenQUIC(addr, cfg)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l, err := listenTCP(addr, cfg)
	if err != nil {
		return nil, err
	}
	return tcpAccepter{l}, nil
}

// tcpAccepter is a tcpListener as a Listener.
type tcpAccepter struct{ *tcpListener }

func (l tcpAccepter) Accept() (Conn, error) {
	c, err := l.tcpListener.Accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Shutdown is Close: the kernel delivers what was written.
func (l tcpAccepter) Shutdown(context.Context) { _ = l.Close() }
