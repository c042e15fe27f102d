// Package transport carries streams of bytes between two hosts, over TCP with TLS 1.3 or over QUIC.
//
// The hosts know each other by Ed25519 keys: both present a self-signed certificate made from their
// identity, and names mean nothing. The client's expect function decides on the server's key before
// the client has said who it is. The server accepts any key, and its caller decides by PeerKey what
// a client may do. Instead of a key, either end may present, and a client may ask for, a
// certificate issued by a CA. The caller decides what that is worth.
package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/quic"
	"github.com/fxfer/fxfer/internal/transport/stream"
	"github.com/fxfer/fxfer/internal/transport/tcp"
)

// Types of the packages below that callers use.
type (
	// Protocol names what carries a stream.
	Protocol = stream.Protocol
	// Info is the state of a connection at one moment.
	Info = stream.Info
	// BBRInfo is BBR's model of the path.
	BBRInfo = stream.BBRInfo
	// Windows are the buffers of a stream on this host.
	Windows = stream.Windows
	// Path describes the way to a peer. Zero fields are unknown.
	Path = tcp.Path
	// BlackHoleError says that large packets vanish in one direction.
	BlackHoleError = tcp.BlackHoleError
	// Group is the QUIC connections of one client to one server.
	Group = quic.Group
)

// The protocols.
const (
	TCP  = stream.TCP
	QUIC = stream.QUIC
)

const (
	// HandshakeTimeout is the longest that an accepted peer may take for its handshake.
	HandshakeTimeout = stream.HandshakeTimeout
	// SafeMTU fits any path that carries IPv6, bytes.
	SafeMTU = tcp.SafeMTU
)

// ErrNoCertificate says that a server presents no certificate of a CA.
var ErrNoCertificate = auth.ErrNoCertificate

// ErrCongestion says that this host does not have the congestion control that was asked for.
var ErrCongestion = tcp.ErrCongestion

// ErrProtocol says that a peer speaks another protocol, or another version of this one.
var ErrProtocol = auth.ErrProtocol

// ErrSilent says that a peer has accepted a TCP connection, but sends nothing.
var ErrSilent = tcp.ErrSilent

// Conn is one stream to a peer. One goroutine may read while another writes. Close may be called
// from anywhere and unblocks both.
//
// Read returns io.EOF after the peer's Close or CloseWrite, and io.ErrUnexpectedEOF if the
// connection ended without one, so that a truncated stream never looks whole. After Close, Read and
// Write return an error that matches net.ErrClosed. Deadlines are those of net.Conn and their
// errors match os.ErrDeadlineExceeded. A Read may be tried again after one. After a failed Write
// every later Write fails, because half a record may be on the wire.
type Conn interface {
	// Read implements io.Reader. It may use all of p as scratch space.
	//
	// Write returns when the transport has all of p. Small writes make small packets: gather a
	// message and write it once.
	//
	// Close ends the stream and unblocks a waiting Read and Write. Unless a Write is under way, the
	// peer reads io.EOF after what was written. Data that the peer still sends is lost, and on most
	// systems the peer then also loses what it has not read yet. To be sure that the peer got the
	// last message, call CloseWrite and read to io.EOF first. Only the first call of Close does
	// anything.
	net.Conn

	// Abort is Close for a stream whose data others send: what has not left is discarded, and what was lost is
	// not sent again. The peer reads an error after what has arrived, or instead of it. Abort after Close does
	// nothing.
	Abort() error
	// ReadRest is Read where all of p is sure to come, because the peer has announced as much. It
	// may wait for much of p at once: to wake up costs as much as many bytes do.
	ReadRest(p []byte) (int, error)
	// WriteBuffers is Write for a message in two pieces. It sends them as if they were one slice,
	// and saves a copy. Until it returns nobody else may read or write payload, because it may
	// change bytes of it for moments.
	WriteBuffers(header, payload []byte) (int, error)
	// CloseWrite ends the sending direction: after the last byte the peer reads io.EOF. Reading
	// goes on. CloseWrite counts as a write.
	CloseWrite() error

	// Handshake authenticates an accepted stream, within HandshakeTimeout at most. Any client with
	// a certificate passes. After an error the stream is closed. Once the handshake is done, and on
	// dialled streams, it does nothing.
	Handshake(ctx context.Context) error
	// Admit gives the stream the buffers for bulk data. Until then its peer, which may be anybody,
	// can make this host keep little. Dialled streams are admitted.
	Admit()
	// PeerKey is the key that the peer has proven to own. It is nil before the handshake, and for a
	// peer with PeerCertificates. The caller must not change it.
	PeerKey() ed25519.PublicKey
	// PeerCertificates is the chain of a peer that presents more than a key, leaf first. It is nil
	// for other peers, and before the handshake. A server's chain has passed Verify. Nothing in a
	// client's chain is checked, except that it owns the key of the leaf. The caller must not
	// change it.
	PeerCertificates() []*x509.Certificate
	// Exporter returns length bytes that both ends of this connection, and nobody else, can compute
	// for label (RFC 8446, section 7.5, with an empty context).
	Exporter(label string, length int) ([]byte, error)

	// Apply changes the settings of a stream whose peer asks for others than those of the Config. A
	// sockBuf of 0 and an automatic congestion control change nothing. The error names the setting
	// that is refused, and why.
	Apply(sockBuf int, congestion string) error
	// Info returns the figures of the connection, and false where there are none.
	Info() (Info, bool)
	// Windows returns the sizes of this host's buffers, and how much of a stream they allow in
	// flight.
	Windows() Windows
	// Prefer changes the congestion control: quick finds the rate of a long path soon and ignores
	// random loss, otherwise it shares a line as most traffic does. A control that the user chose
	// stays.
	Prefer(quick bool) error
	// Pace bounds the rate at which what is written leaves, in bytes/s; +Inf is no bound. It does
	// nothing where Info has no figures, and where the system cannot.
	Pace(rate float64)
	// SetLowerEffort marks the packets that leave with the codepoint LE of RFC 8622, or no longer:
	// routers that know it give way to other traffic. The error says that the system cannot.
	SetLowerEffort(on bool) error
	// LimitUnsent bounds how much unsent data Write takes, where that can be chosen. Write waits
	// for room.
	LimitUnsent(bytes int)
	// LimitUnread sets the window that the peer gets, in bytes, where that can be chosen. Up to about
	// twice as much may wait until it is read, for which the system may need twice that memory. A
	// smaller window than before is not supported. It is for the goroutine that reads.
	LimitUnread(bytes int)
	// AcknowledgeEach has the system acknowledge each segment at once, where single ones come far from each
	// other, and where that can be chosen: otherwise the peer would take the time in which one waits for the next
	// for a queue. It is for the goroutine that reads.
	AcknowledgeEach()
	// SetNoDelay sets TCP_NODELAY, which is on by default. QUIC has no such option.
	SetNoDelay(on bool) error
	// SetCork sets TCP_CORK, which is off by default: what is written waits for a full segment until
	// it is off again. Only Linux has it. QUIC has no such option.
	SetCork(on bool) error
}

// Dial connects to addr ("host:port") and authenticates both ends. The conn is admitted.
//
// expect (required) is called with the server's key before the client has sent anything but its
// ClientHello. Its error ends the handshake and matches with errors.Is. It should not wait for a
// person: the server gives up after HandshakeTimeout. Only when Dial succeeds is it proven that the
// server owns the key.
//
// An alert of the server is a tls.AlertError for errors.As, also in later errors of the conn: a
// client learns only then that the server rejects its certificate. A BlackHoleError asks for a
// Path.MTU of SafeMTU.
func Dial(ctx context.Context, addr string, cfg Config, expect func(peer ed25519.PublicKey) error) (Conn, error) {
	c, err := dial(ctx, addr, cfg, expect)
	if err != nil {
		return nil, cfg.auth().Explain(err) // and no nil pointer in a Conn
	}
	return c, nil
}

func dial(ctx context.Context, addr string, cfg Config, expect auth.Expect) (Conn, error) {
	if cfg.Protocol != QUIC {
		return tcp.Dial(ctx, addr, cfg.tcp(), expect)
	}
	if err := quic.CheckSettings(cfg.SockBuf, cfg.Congestion); err != nil {
		return nil, err
	}
	return quic.Dial(ctx, addr, cfg.quicDial(), expect)
}

// SelfTest compares our own TLS records and ciphers with known results, once in a process. After an
// error only QUIC and Config.Standard may be used.
func SelfTest() error { return tcp.SelfTest() }

// Certificate makes the certificate that presents an identity and nothing else. A client that dials often
// makes it once, for Config.Certificate.
func Certificate(identity ed25519.PrivateKey) (tls.Certificate, error) {
	return auth.Certificate(identity)
}

// Listener accepts streams. Its methods may be called concurrently.
type Listener interface {
	// Accept waits for the next stream. It returns before the handshake, so that no peer can hold
	// up others: the caller runs Handshake in a goroutine of its own. After Close the error matches
	// net.ErrClosed.
	Accept() (Conn, error)
	// Addr is the address that the Listener listens on.
	Addr() net.Addr
	// Close ends a waiting Accept. Accepted streams stay open.
	Close() error
	// Shutdown is Close, and waits until the peers have everything that was written on accepted
	// streams. Those should be closed. When ctx ends, the rest is lost.
	Shutdown(ctx context.Context)
}

// Listen listens on addr ("host:port"). An empty host means all addresses, port 0 any free port.
func Listen(addr string, cfg Config) (Listener, error) {
	if cfg.Protocol == QUIC {
		l, err := quic.Listen(addr, cfg.quicListen())
		if err != nil {
			return nil, err
		}
		return quicListener{l}, nil
	}
	l, err := tcp.Listen(addr, cfg.tcp())
	if err != nil {
		return nil, err
	}
	return tcpListener{l}, nil
}

type quicListener struct{ *quic.Listener }

func (l quicListener) Accept() (Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // and no nil pointer in a Conn
	}
	return c, nil
}

type tcpListener struct{ *tcp.Listener }

func (l tcpListener) Accept() (Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // and no nil pointer in a Conn
	}
	return c, nil
}

// Call connects from a Listener to a client at addr ("host:port") that cannot reach it, and begins
// with greeting. The stream is then one that was accepted. Only TCP can: with QUIC the error matches
// errors.ErrUnsupported.
func Call(ctx context.Context, l Listener, addr string, greeting []byte) (Conn, error) {
	of, ok := l.(tcpListener)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	c, err := of.Call(ctx, addr, greeting)
	if err != nil {
		return nil, err // and no nil pointer in a Conn
	}
	return c, nil
}

// Adopt makes a stream of a socket that leads to a client, as if a Listener had accepted it. The error
// is that of Call.
func Adopt(l Listener, socket *net.TCPConn) (Conn, error) {
	of, ok := l.(tcpListener)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	c, err := of.Adopt(socket)
	if err != nil {
		return nil, err // and no nil pointer in a Conn
	}
	return c, nil
}

// SmallBuffers says what is wrong with the socket of a Listener, and how to change that. It is ""
// if nothing is.
func SmallBuffers(l Listener) string {
	if l, ok := l.(quicListener); ok {
		return l.Listener.SmallBuffers()
	}
	return ""
}

// PrefixOf returns what the connections of an address are counted by.
func PrefixOf(addr net.Addr) netip.Prefix { return stream.PrefixOf(addr) }

// Places are for connections whose peers are not known yet.
type Places = stream.Places

// NewPlaces returns so many places, and so many for one address.
func NewPlaces(most, perAddress int) *Places { return stream.NewPlaces(most, perAddress) }

// InfoOf is Info for any TCP socket.
func InfoOf(c *net.TCPConn) (Info, bool) { return tcp.InfoOf(c) }

// ClampSegments bounds the segments of both ends of a socket that is not connected yet, where the
// system can.
func ClampSegments(raw syscall.RawConn, mss int) { tcp.ClampSegments(raw, mss) }

// SetCork is Conn.SetCork for any TCP socket.
func SetCork(c *net.TCPConn, on bool) error { return tcp.SetCork(c, on) }

// Unencrypted reads the first byte of an accepted stream before its handshake. If that byte begins
// no TLS, it returns the byte and the socket, which has no security at all. Otherwise it returns no
// socket, and the handshake may follow. Deadlines of c hold for both.
func Unencrypted(c Conn) (first byte, socket *net.TCPConn, err error) {
	if c, ok := c.(*tcp.Conn); ok {
		return c.Unencrypted()
	}
	return 0, nil, nil
}

// Plain ends the use of TLS on a TCP stream without a word to the peer: from now on the stream
// carries bytes as they are, such as those of two peers who encrypt by themselves. The peer has to
// expect that, and must not have sent anything since its last message. Nobody else may use c
// meanwhile. Over QUIC the error matches errors.ErrUnsupported.
func Plain(c Conn) error {
	of, ok := c.(*tcp.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	of.Plain()
	return nil
}

// Detach is Plain for a dialled stream, and returns its socket. c must not be used any more.
func Detach(c Conn) (*net.TCPConn, error) {
	of, ok := c.(*tcp.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return of.Detach(), nil
}

// Connect connects to addr ("host:port") over TCP, with a socket as Dial would have, but without
// TLS.
func Connect(ctx context.Context, addr string, cfg Config) (Conn, error) {
	c, err := tcp.Connect(ctx, addr, cfg.tcp())
	if err != nil {
		return nil, err // and no nil pointer in a Conn
	}
	return c, nil
}
