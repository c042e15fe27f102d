package client

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// dialer connects the streams of one session. All sessions have one, whatever their intent.
type dialer struct {
	client *Client
	url    session.URL
	hello  wire.Hello       // the first message on the control stream
	cfg    transport.Config // of all streams
	group  transport.Group  // the session's QUIC connections
	gate   startGate        // of the data streams' handshakes

	reached   atomic.Int64 // RTT of the last SYN that the server has answered, ns; 0 is none
	opened    atomic.Bool  // the control stream is connected
	connected atomic.Bool  // some stream is connected, or would be if the server's key were confirmed

	tasks sync.WaitGroup // goroutines that end with the session

	// Of the control stream's first try: the black hole that swallowed it, and the time that took.
	hole     *transport.BlackHoleError
	holeTime time.Duration

	mu  sync.Mutex // guards via, and makes the end of the race one step; see stopRace
	via choice     // the transport of the data streams
}

// prepare names the session and configures its streams, for packets of at most mtu bytes; 0 is no
// bound. The caller closes d.group.
func (d *dialer) prepare(mtu int) {
	_, _ = rand.Read(d.hello.Session[:]) // never fails
	_, _ = rand.Read(d.hello.Secret[:])
	opt := &d.client.opt
	d.group.SetWant(session.MaxStreams)
	if d.via.transport == "" {
		d.via = d.client.firstChoice(d.url.Address())
	}
	d.cfg = d.client.transportTo(d.url)
	d.cfg.Protocol, d.cfg.Group, d.cfg.QLog = session.ProtocolOf(d.via.transport), &d.group, opt.QLog
	d.cfg.SockBuf, d.cfg.Congestion = opt.SockBuf, opt.Congestion
	d.cfg.Path.MTU = mtu
	d.cfg.Connected = func(_ context.Context, _ time.Time, rtt time.Duration) error {
		d.reached.Store(int64(max(rtt, 1)))
		return nil
	}
}

// chosen returns the transport of the data streams, and why it was chosen.
func (d *dialer) chosen() choice {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.via
}

// choose sets the transport of the data streams to come.
func (d *dialer) choose(to choice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.via = to
}

// open connects the control stream and sends Hello, but does not wait for the answer. It asks the
// user about an unknown server. The server has then answered by this transport, so that the race is
// over: the time that the user takes does not count.
func (d *dialer) open(ctx context.Context) (transport.Conn, error) {
	cfg := d.cfg
	cfg.Doubt, cfg.Apart = true, true
	expect := d.gate.follow(&cfg, true, d.client.expect(d.url))
	conn, err := d.dial(ctx, cfg, expect)
	for ask := (*errAskFirst)(nil); errors.As(err, &ask); { // about the server, and a relay to it
		if err := d.stopRace(ctx); err != nil {
			return nil, err
		}
		if err := d.client.confirm(ctx, ask.server, ask.about); err != nil {
			return nil, err
		}
		conn, err = d.dial(ctx, cfg, d.client.expect(d.url))
	}
	if err != nil {
		return nil, err
	}
	d.connected.Store(true)
	d.keepPin(conn)
	if err := d.greet(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// stopRace ends the race between the transports before the user is asked. It fails if the race has
// ended ctx before.
func (d *dialer) stopRace(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		d.connected.Store(true)
	}
	return ctx.Err()
}

// keepPin stores the pinned key of a server that has proven to have it, so that the server is known
// without the pin next time. That comes before Hello, which may use up the invitation with the pin:
// whatever happens to this process then, a later one can go on.
func (d *dialer) keepPin(control transport.Conn) {
	if d.url.Pin == "" && d.client.pin == "" || d.client.opt.Forget {
		return
	}
	err := d.client.store.AddKnownServer(serverOf(d.url), identity.PinOf(control.PeerKey()))
	var changed *identity.ServerChangedError
	switch {
	case errors.As(err, &changed):
		d.client.notice("%v: the key that you gave counts this time; delete that line to keep it", err)
	case err != nil:
		d.client.notice("%v", err)
	}
}

// greet sends Hello. An invitation's proof is bound to the connection.
func (d *dialer) greet(conn transport.Conn) error {
	opt := &d.client.opt
	d.hello.Version, d.hello.Agent = wire.Version, session.Agent
	d.hello.SockBuf, d.hello.Congestion = int64(d.cfg.SockBuf), d.cfg.Congestion
	d.hello.Relayed = d.relayed()
	d.hello.MaxStreams = uint64(opt.mostStreams())
	line, _ := d.gate.narrow()
	d.hello.Line = uint64(line)
	if d.url.Token != "" {
		exported, err := conn.Exporter(session.ExporterLabel, 32)
		if err != nil {
			return err
		}
		proof := identity.InviteProof(d.url.Token, exported)
		d.hello.Proof = proof[:]
	}
	_, err := conn.Write(wire.Append(nil, &d.hello))
	return err
}

// openAnyhow is open with another transport, or with smaller packets, where the first try shows
// that one of them is needed.
func (d *dialer) openAnyhow(ctx context.Context) (transport.Conn, error) {
	first, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if d.client.opt.Transport == session.TransportAuto {
		d.tasks.Go(func() { d.race(first, stop) })
		defer d.tasks.Wait()
	}
	began := time.Now()
	conn, err := d.open(first)
	if err == nil {
		d.opened.Store(true)
	} else if cause := context.Cause(first); cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop(nil) // the race is decided, and must not keep a connection waiting for its first message
	var hole *transport.BlackHoleError
	if errors.As(err, &hole) {
		d.hole, d.holeTime = hole, time.Since(began)
	}
	if to := d.instead(ctx, err); to.transport != "" {
		d.choose(to)
		d.cfg.Protocol = session.ProtocolOf(to.transport)
		return d.open(ctx)
	}
	if errors.As(err, &hole) {
		d.client.noticeHole(hole, d.url.Address())
		d.cfg.Path.MTU = transport.SafeMTU
		return d.open(ctx)
	}
	return conn, err
}

// reach connects to the server and closes the connection: an error means that it is unreachable.
func (d *dialer) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadAfter)
	defer cancel()
	conn, err := transport.Dial(ctx, d.url.Address(), d.by(d.cfg), d.client.expect(d.url))
	if err != nil {
		return err
	}
	return conn.Close()
}

// doubts reports whether a data stream that hangs is tried with small packets: if the path is alive, packets
// that vanish do not mean a dead one. A probe looks for black holes by itself, and fills queues, which lose
// packets, too.
func (d *dialer) doubts() bool { return d.opened.Load() && d.hello.Intent != wire.Probe }

// join connects one data stream to the session, over the chosen transport.
func (d *dialer) join(ctx context.Context, id uint64, path transport.Path) (transport.Conn, error) {
	return d.joinBy(ctx, id, path, session.ProtocolOf(d.chosen().transport))
}

func (d *dialer) joinBy(ctx context.Context, id uint64, path transport.Path, by transport.Protocol) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	if !d.gate.rest(ctx) {
		return nil, context.Cause(ctx)
	}
	cfg := d.cfg
	cfg.Path, cfg.Protocol = path, by
	cfg.Doubt = d.doubts()
	expect := d.gate.follow(&cfg, false, d.client.expect(d.url))
	conn, err := transport.Dial(ctx, d.url.Address(), d.by(cfg), expect)
	if err != nil {
		return nil, err
	}
	d.connected.Store(true)
	m := &wire.Join{Version: wire.Version, Session: d.hello.Session, Secret: d.hello.Secret, Stream: id,
		SockBuf: int64(d.cfg.SockBuf), Congestion: d.cfg.Congestion, Line: uint64(d.gate.carries())}
	if _, err := conn.Write(wire.Append(nil, m)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
