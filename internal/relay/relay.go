// Package relay joins connections of clients with connections to servers. Each of the two legs has
// its own congestion control, windows and rate, so that a loss on one of them is repaired there. The
// relay admits clients by their keys and connects to nothing but its list of targets. What client
// and server say to each other is encrypted from end to end: the relay sees ciphertext and sizes.
package relay

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// The default limits keep the relay within 64 MiB of memory. A transfer has a connection for each
// of its streams and one more.
const (
	DefaultMaxConnections          = 512
	DefaultMaxConnectionsPerClient = 256

	handshakes           = 400 // that begin in a second
	handshakesPerAddress = 200
)

// acceptPause is the wait after the kernel ran out of something, such as open files.
const acceptPause = 50 * time.Millisecond

// Options configure a Relay. Only Targets is required. Rates are in bit/s, separately in each
// direction.
type Options struct {
	// Home is the folder of the relay's key, authorized_clients and the invitations. "" is the folder
	// of the present user.
	Home string
	// Listen is a TCP address, such as ":7433". Port 0 picks a free port.
	Listen string
	// Targets are the servers that clients may name, as host or host:port. The relay connects to them.
	// After =, a target has the key of a server that calls the relay instead: the name is then the
	// relay's own, and needs no address.
	Targets []string
	// Log gets what happens to the relay and its clients. nil discards it.
	Log *slog.Logger
	// StandardCrypto takes TLS records and ciphers from the standard library instead of fxfer's own.
	StandardCrypto bool
	// Allow lists the addresses that may use the relay. nil allows any.
	Allow []netip.Prefix
	// RateLimit is for all clients together, which get equal parts of it. 0 is no limit.
	RateLimit int64
	// ClientRateLimit is for each client. 0 is no limit.
	ClientRateLimit int64
	// MaxConnections bounds the clients' connections at a time. At most a quarter of them may be
	// unauthenticated. 0 is DefaultMaxConnections. Each takes up to 64 KiB, and two open files.
	MaxConnections int
	// MaxConnectionsPerClient bounds those of one client, with those that servers make for it. 0 is
	// DefaultMaxConnectionsPerClient.
	MaxConnectionsPerClient int
}

// fill checks the options and replaces automatic limits by numbers. It returns the targets in the
// form in which clients name them.
func (o *Options) fill() (targets map[string]identity.Pin, err error) {
	targets = make(map[string]identity.Pin)
	for _, t := range o.Targets {
		target, err := ParseTarget(t)
		if err != nil {
			return nil, session.Usage("", "%w", err)
		}
		name, key, _ := strings.Cut(target, "=")
		if other, twice := targets[name]; twice && string(other) != key {
			return nil, session.Usage("leave one of them out", "there are two ways to %s", name)
		}
		targets[name] = identity.Pin(key)
	}
	switch {
	case len(targets) == 0:
		return nil, session.Usage("name a server", "the relay leads nowhere")
	case o.MaxConnections < 0 || o.MaxConnectionsPerClient < 0:
		return nil, session.Usage("0 is automatic", "less than no connections")
	}
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.MaxConnectionsPerClient = min(cmp.Or(o.MaxConnectionsPerClient, DefaultMaxConnectionsPerClient), o.MaxConnections)
	return targets, nil
}

// ParseTarget reads an element of Options.Targets. It returns host:port as clients name it, and
// host:port=key for a server that calls.
func ParseTarget(s string) (string, error) {
	name, key, calls := strings.Cut(s, "=")
	host, port, err := identity.SplitHost(name)
	if err != nil {
		return "", err
	}
	target := net.JoinHostPort(host, strconv.Itoa(port))
	if !calls {
		return target, nil
	}
	pin, err := identity.ParsePin(key)
	return target + "=" + string(pin), err
}

// rateLimit is a rate in both directions.
type rateLimit struct{ up, down pace.Bucket }

// Relay joins connections. New returns one that listens already.
type Relay struct {
	opt     Options
	log     *slog.Logger
	store   *identity.Store
	key     ed25519.PrivateKey
	listen  transport.Listener
	targets map[string]identity.Pin // by host:port; a key if that server calls the relay, or else ""

	// Safe for concurrent use.
	conns    *connlimit.Limit
	up, down pace.Pacer // share out the rates towards servers and towards clients
	total    rateLimit

	enrolling sync.Mutex // held from the use of an invitation until its client is enrolled

	mu      sync.Mutex // guards all fields below
	routes  map[routeKey]*route
	clients map[identity.Principal]*clientUse

	callers  map[identity.Pin]*caller // servers that wait for clients
	meetings map[[16]byte]*meeting
}

// clientUse is a client that has connections.
type clientUse struct {
	connections int
	limit       rateLimit
}

// New opens the relay's identity and listens. The caller calls Serve next.
func New(opt Options) (*Relay, error) {
	targets, err := opt.fill()
	if err != nil {
		return nil, err
	}
	if err := session.TestCrypto(opt.StandardCrypto); err != nil {
		return nil, err
	}
	r := &Relay{
		opt: opt, log: opt.Log, targets: targets,
		conns: connlimit.New(connlimit.Bounds{
			Connections: opt.MaxConnections, PerAddress: opt.MaxConnections,
			Handshakes: handshakes, HandshakesPerAddress: handshakesPerAddress,
		}),
		routes: make(map[routeKey]*route), clients: make(map[identity.Principal]*clientUse),
		callers: make(map[identity.Pin]*caller), meetings: make(map[[16]byte]*meeting),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.setRate(&r.total, opt.RateLimit)
	if r.store, r.key, err = session.OpenIdentity(opt.Home); err != nil {
		return nil, err
	}
	if err := r.store.CheckAuthorized(); err != nil {
		r.log.Warn("some lines of authorized_clients can't be read", "error", err)
	}
	r.listen, err = transport.Listen(opt.Listen, r.config())
	if err != nil {
		return nil, session.ListenError(opt.Listen, err)
	}
	return r, nil
}

// config is for the connections of clients, and for those to servers.
func (r *Relay) config() transport.Config {
	return transport.Config{Identity: r.key, Standard: r.opt.StandardCrypto}
}

func (r *Relay) setRate(l *rateLimit, bitsPerSecond int64) {
	r.up.SetRate(&l.up, bitsPerSecond)
	r.down.SetRate(&l.down, bitsPerSecond)
}

// Addr returns the address that the relay listens on.
func (r *Relay) Addr() net.Addr { return r.listen.Addr() }

// Pin returns the pin of the relay's key, by which clients know it.
func (r *Relay) Pin() string { return string(identity.PinOfPrivate(r.key)) }

// Home returns the folder of the relay's key and lists.
func (r *Relay) Home() string { return r.store.Dir() }

// Serve joins connections until ctx is done. Then it ends all of them, and returns nil.
func (r *Relay) Serve(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { _ = r.listen.Close() })()
	failing := false
	for {
		conn, err := r.listen.Accept()
		switch {
		case err == nil:
			failing = false
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default: // such as too many open files
			if !failing {
				r.log.Error("accept", "error", err)
			}
			failing = true
			session.Sleep(ctx, acceptPause)
			continue
		}
		slot := r.conns.Acquire(conn.RemoteAddr())
		if slot == nil {
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer slot.Release()
			defer conn.Close()
			r.serveConn(ctx, conn, slot)
		})
	}
}
