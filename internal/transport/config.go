package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/transport/auth"
	"github.com/fxfer/fxfer/internal/transport/quic"
	"github.com/fxfer/fxfer/internal/transport/tcp"
)

// Config says how a host presents itself and how its sockets are set. Fields other than Identity
// may be zero: then the choice is automatic.
type Config struct {
	// Identity is this host's key. Dial needs none with a Certificate.
	Identity ed25519.PrivateKey
	// Certificate, if not nil, returns what a client presents instead of Identity, and what a
	// server presents to clients with Verify. It is called for each handshake, maybe concurrently.
	// Nobody may change what it returns.
	Certificate func() *tls.Certificate
	// Verify, if not nil, replaces Dial's expect: the server has to present a certificate of a CA
	// for the host that is dialled, and Verify decides on the chain, leaf first.
	Verify func(chain []*x509.Certificate) error

	// Protocol carries the streams. "" is TCP.
	Protocol Protocol
	// Path is what is known of the way to the peer before the first packet. It decides on windows.
	Path Path

	// For TCP: Standard takes TLS records and ciphers from crypto/tls instead of our own. QUIC has
	// them from the standard library in any case.
	Standard bool
	// For TCP: SockBuf fixes the window of every stream at this many bytes in both directions, like
	// a program with a fixed socket buffer. 0 leaves it to the kernel and to what the path needs.
	SockBuf int
	// For TCP: Congestion names the congestion control. "" and "auto" choose BBR on long paths
	// where the kernel allows it.
	Congestion string
	// For TCP: Socket is what Listen uses instead of a socket of its own. The caller must not use
	// it any more.
	Socket *net.TCPListener
	// For TCP: Connect makes the socket in Dial's place, such as one that the server connects. nil
	// is Dial.
	Connect func(ctx context.Context) (*net.TCPConn, error)
	// For TCP: Permit, if not nil, decides about each address that the name of the peer leads to, before
	// the first packet. Its error keeps Dial and the function Connect from that address. It may be
	// called concurrently.
	Permit func(netip.Addr) error
	// For TCP: Doubt lets Dial detect early that a silent peer is behind a black hole. This may
	// cost a second connection.
	Doubt bool

	// For TCP: Connected, if not nil, is called by Dial between the SYN-ACK and the TLS handshake,
	// with the time of the SYN and its RTT. It may wait for as long as ctx. Its error ends the
	// connection.
	Connected func(ctx context.Context, sent time.Time, rtt time.Duration) error

	// For QUIC: Group is the connections among which Dial chooses. Without one, each stream has a
	// connection of its own.
	Group *Group
	// For QUIC: Apart gives the stream a connection of the Group that no other stream uses.
	Apart bool
	// For QUIC: QLog is a folder for a log of each connection that Dial makes. "" is none.
	QLog string
	// For QUIC: Datagrams is what Listen uses instead of a socket of its own. The caller must not
	// use it any more.
	Datagrams *net.UDPConn
	// For QUIC: Turn, if not nil, is called by Listen before a handshake costs anything, and may
	// wait for as long as ctx. Its error ends the connection. Over TCP the caller decides when to
	// call Handshake.
	Turn func(ctx context.Context, client net.Addr) error
}

func (c *Config) auth() auth.Config {
	return auth.Config{Identity: c.Identity, Certificate: c.Certificate, Verify: c.Verify}
}

func (c *Config) tcp() tcp.Config {
	return tcp.Config{
		Auth: c.auth(), Standard: c.Standard, SockBuf: c.SockBuf, Congestion: c.Congestion,
		Socket: c.Socket, Connect: c.Connect, Permit: c.Permit, Doubt: c.Doubt, Path: c.Path, Connected: c.Connected,
	}
}

func (c *Config) quicDial() quic.Config {
	return quic.Config{Auth: c.auth(), Group: c.Group, Apart: c.Apart, QLog: c.QLog}
}

func (c *Config) quicListen() quic.ListenConfig {
	return quic.ListenConfig{Auth: c.auth(), Datagrams: c.Datagrams, Turn: c.Turn}
}
