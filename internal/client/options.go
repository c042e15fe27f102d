package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"net"
	"time"

	"github.com/fxfer/fxfer/internal/compress"
	"github.com/fxfer/fxfer/internal/session"
)

// DefaultMaxStreams bounds the data streams of a transfer where their number is automatic.
const DefaultMaxStreams = 32

// Options configure a Client. The zero value of each field means automatic.
type Options struct {
	// Home is the folder of this host's identity, of the servers it knows and of its history. ""
	// is the user's.
	Home string
	// Key takes the place of the key in Home, such as for one use; nil is that key.
	Key ed25519.PrivateKey

	// Streams is the number of data streams; 0 is as many as the path needs, up to MaxStreams.
	Streams int
	// MaxStreams bounds that number; 0 is DefaultMaxStreams.
	MaxStreams int
	// Transport is TransportAuto if "".
	Transport session.Transport
	// Connect makes the connections of TCP in the place of a dial to the server's address, such as
	// from sockets that the server connects. It is called concurrently. nil is a dial. With it,
	// TransportAuto is TCP.
	Connect func(ctx context.Context) (*net.TCPConn, error)
	// Via are the relays that lead to the server, in the order to try; a zero URL is the way without a
	// relay, and so is an empty list. A transfer whose connection is lost goes on by the next way. A URL
	// names host and port of a relay, or is an invitation of the relay. Its share has no effect. Relays
	// are for TCP: with them, TransportAuto is TCP.
	Via []session.URL
	// QLog is a folder for a log of each QUIC connection; "" is none.
	QLog string
	// StandardCrypto takes TLS records and ciphers from the standard library instead of fxfer's own.
	// QUIC never has fxfer's own.
	StandardCrypto bool
	// SockBuf fixes the socket buffers of both ends, in bytes. Only TCP has them.
	SockBuf int
	// Congestion is the congestion control of both ends, such as "bbr". Only with TCP.
	Congestion string
	// RateLimit bounds the payload of each transfer, in bit/s.
	RateLimit int64
	// Priority says how each transfer shares the line with other traffic; "" is PriorityNormal, or
	// with Transfer.Deadline PriorityLow as long as that will do. A server may bound it.
	Priority session.Priority
	// RetryFor is how long a transfer tries to regain a lost connection; 0 is not at all.
	RetryFor time.Duration
	// Renew, if not nil, is called before each session of a transfer but the first. It is for a server
	// that is started for one use and may have been started anew: it returns the address of the new
	// server, and sets options such as Pin for it. An error counts as the error of a session.
	Renew func(ctx context.Context, opt *Options) (host string, port int, err error)
	// Compress is "auto" to compress where the path is the limiter, "zstd" to compress always, or
	// "none", which is the same as "".
	Compress string

	// Pin is the server's key; "" accepts the key that is known of the server.
	Pin string
	// Forget stores nothing about servers, neither their keys nor what was learned of the path. It is
	// for a server that will not come back at the same address. Pin has to name its key.
	Forget bool
	// Fresh promises that the target has none of the files yet, so that transfers send before the
	// receiver has answered. Without it, the history decides. If the promise is wrong, some bytes are sent
	// twice. A target on this host is always looked at.
	Fresh bool
	// TLS names certificates, which take the place of keys.
	TLS TLS

	// Confirm is asked whether to trust an unknown server, once for each call. knownAs are the servers
	// that are known to have the same key. Confirm may take any time. nil rejects unknown servers.
	Confirm func(ctx context.Context, server, pin string, knownAs []string) (bool, error)
	// Notice is called with one-line messages about events such as a lost connection. It may be
	// called concurrently.
	Notice func(string)
}

// fill sets what is automatic and can be decided without a server, and then checks the options.
func (o *Options) fill() error {
	o.Transport = cmp.Or(o.Transport, session.TransportAuto)
	if o.Streams < 0 || o.Streams > session.MaxStreams {
		return session.Usage("", "%d streams: give 1 to %d", o.Streams, session.MaxStreams)
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = max(DefaultMaxStreams, o.Streams)
		if o.Transport == session.TransportQUIC {
			o.MaxStreams = session.MaxStreams // NewReno needs more streams where segments are lost
		}
	}
	if o.MaxStreams < 1 || o.MaxStreams > session.MaxStreams || o.Streams > o.MaxStreams {
		return session.Usage("", "%d streams of at most %d: give 1 to %d", o.Streams, o.MaxStreams, session.MaxStreams)
	}
	if o.Key != nil && len(o.Key) != ed25519.PrivateKeySize {
		return session.Usage("", "a key of %d bytes: an Ed25519 key has %d", len(o.Key), ed25519.PrivateKeySize)
	}
	if _, err := compress.Parse(o.Compress); err != nil {
		return session.Usage("choose auto, zstd or none", "%w", err)
	}
	if err := session.CheckPriority(o.Priority); err != nil {
		return err
	}
	return o.fillTransport()
}

// fillTransport rejects settings that the chosen transport does not have. With TransportAuto, such
// settings choose the transport.
func (o *Options) fillTransport() error {
	if o.Connect != nil && len(o.Via) > 0 {
		return session.Usage("leave the relay out", "the connections to this server are made by other means than a relay")
	}
	onlyTCP := o.SockBuf != 0 || o.Congestion != "" || o.Connect != nil || len(o.Via) > 0
	switch o.Transport {
	case session.TransportTCP:
	case session.TransportAuto:
		if onlyTCP {
			o.Transport = session.TransportTCP
		}
	case session.TransportQUIC:
		if onlyTCP {
			return session.Usage("leave it out, or choose tcp",
				"socket buffers, congestion control, relays and connections of your own are for TCP only")
		}
	default:
		return session.Usage("choose tcp, quic or auto", "there is no transport %q", o.Transport)
	}
	return nil
}

// mostStreams is the largest number of data streams of a session.
func (o *Options) mostStreams() int { return cmp.Or(o.Streams, o.MaxStreams) }

// notice tells the user about an event.
func (c *Client) notice(format string, args ...any) {
	if c.opt.Notice != nil {
		c.opt.Notice(fmt.Sprintf(format, args...))
	}
}
