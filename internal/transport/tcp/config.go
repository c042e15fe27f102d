// Package tcp carries each stream over a TCP connection of its own, encrypted by package tlsrecord.
// It chooses socket buffers and congestion control for the path.
package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/transport/auth"
)

// ErrCongestion says that this host has no congestion control of the name in Config, or does not
// allow it.
var ErrCongestion = errors.New("congestion control")

// Config says how a host presents itself and how its sockets are set. Fields other than Auth may be
// zero: then the choice is automatic.
type Config struct {
	Auth auth.Config

	// Standard takes TLS records and ciphers from crypto/tls instead of tlsrecord's own.
	Standard bool
	// SockBuf fixes the window of every stream at this many bytes in both directions, like a
	// program with a fixed socket buffer. 0 leaves it to the kernel's autotuning and to windowFor.
	SockBuf int
	// Congestion names the congestion control. "" and "auto" choose BBR on long paths where the
	// kernel allows it.
	Congestion string
	// Socket is what Listen uses instead of a socket of its own. The caller must not use it any
	// more.
	Socket *net.TCPListener
	// Connect makes the socket in Dial's place, such as one that the server connects; nil is Dial.
	Connect func(ctx context.Context) (*net.TCPConn, error)
	// Permit, if not nil, decides about each address that the name of the peer leads to, before the
	// first packet. Its error keeps the dialler from that address. It may be called concurrently.
	Permit func(netip.Addr) error
	// Doubt lets Dial detect early that a silent peer is behind a black hole. This may cost a
	// second connection.
	Doubt bool
	// Connected, if not nil, is called by Dial between the SYN-ACK and the TLS handshake, with the
	// time of the SYN and its RTT. It may wait for as long as ctx. Its error ends the connection.
	Connected func(ctx context.Context, sent time.Time, rtt time.Duration) error
	// Path is what is known of the way to the peer before the first packet.
	Path Path
}

// automatic reports whether the congestion control is chosen here.
func (c Config) automatic() bool { return c.Congestion == "" || c.Congestion == "auto" }
