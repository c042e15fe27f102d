package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// DefaultProbeTime is the duration of a probe unless its options say otherwise.
	DefaultProbeTime = 17 * time.Second
	// DefaultProbeBytes bounds what a probe moves unless its options say otherwise.
	DefaultProbeBytes = 16 << 30

	minProbeTime = 3 * time.Second
	maxProbeTime = time.Minute
	requestsTime = 40 * time.Second // of a probe with Requests, unless its options say otherwise
	maxThink     = time.Second

	// smallAfter is how long the handshake of a probe may take before it is tried with packets of
	// smallMTU bytes, which any path carries.
	smallAfter = 5 * time.Second
	smallMTU   = 576
)

// ProbeOptions say how a path is probed. The zero value of each field means automatic.
type ProbeOptions struct {
	Time    time.Duration // of the whole probe, DefaultProbeTime if 0
	Streams int           // of the measurements with several streams
	Bytes   int64         // moved at most, DefaultProbeBytes if 0
	Stage   func(string)  // is called with a name when a stage of the probe begins
	// Requests measures nothing but requests and replies: in one write and two, with TCP_NODELAY and
	// TCP_CORK at either side, on new connections and old ones, with TLS and without.
	Requests bool
	Think    time.Duration // how long a program thinks before its next request; needs Requests
}

// ProbeReport is what a probe found.
type ProbeReport = probe.Report

// Check rejects options that no probe can have.
func (o *ProbeOptions) Check() error {
	switch {
	case o.Time != 0 && (o.Time < minProbeTime || o.Time > maxProbeTime):
		return session.Usage("", "a probe of %v: give %v to %v", o.Time, minProbeTime, maxProbeTime)
	case o.Streams < 0 || o.Streams > session.MaxStreams:
		return session.Usage("", "%d streams: give 1 to %d", o.Streams, session.MaxStreams)
	case o.Bytes < 0:
		return session.Usage("", "%d bytes at most", o.Bytes)
	case o.Think < 0 || o.Think > maxThink:
		return session.Usage("", "%v to think: give at most %v", o.Think, maxThink)
	case o.Think > 0 && !o.Requests:
		return session.Usage("add --requests", "only a probe of requests thinks between them")
	}
	return nil
}

// Probe measures the path to a server. It touches no files at either end. The share and path of u
// don't matter.
func (c *Client) Probe(ctx context.Context, u session.URL, opt ProbeOptions) (*ProbeReport, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	if opt.Requests {
		opt.Time = cmp.Or(opt.Time, requestsTime)
	}
	opt.Time, opt.Bytes = cmp.Or(opt.Time, DefaultProbeTime), cmp.Or(opt.Bytes, DefaultProbeBytes)
	p := c.probing(u)
	var report *ProbeReport
	err := p.run(ctx, func(ctx context.Context, welcome *wire.Welcome) (err error) {
		if report, err = p.measure(ctx, opt, welcome.Ways); err == nil {
			report.Server, report.Host = serverOf(p.url), wire.Printable(welcome.Host)
			report.Transport, report.SockBuf = string(p.chosen().transport), int64(c.opt.SockBuf)
			report.Verdicts = probe.Judge(report) // which names the host
			report.Choice = choiceFor(report)
		}
		return err
	})
	if err != nil {
		return nil, describeProbe(ctx, err, serverOf(u))
	}
	return report, nil
}

// describeProbe is describe without the remedy to resume: a probe cannot be resumed.
func describeProbe(ctx context.Context, err error, server string) error {
	err = describe(ctx, err, server)
	var known *session.Error
	if errors.As(err, &known) && (known.Kind == session.KindUnreachable || known.Kind == session.KindInterrupted) {
		return &session.Error{Kind: known.Kind, Err: known.Err}
	}
	return err
}

// probing is the intent to measure a path.
type probing struct {
	dialer
	begun time.Time
}

func (c *Client) probing(u session.URL) *probing {
	return &probing{dialer: dialer{client: c, url: u, hello: wire.Hello{Intent: wire.Probe}}}
}

// run calls measure while there is a session.
func (p *probing) run(ctx context.Context, measure func(context.Context, *wire.Welcome) error) error {
	p.begun = time.Now()
	p.prepare(0)
	defer p.group.Close(session.PartWithin)
	control, err := p.openSmall(ctx)
	if err != nil {
		return err
	}
	defer control.Close()
	defer context.AfterFunc(ctx, func() { _ = control.Close() })()
	r := wire.NewReader(control, wire.MaxMessage)
	welcome, err := p.welcome(control, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() { defer close(watched); cancel(refusal(r)) }()
	defer func() { _ = control.Close(); <-watched }()
	return measure(ctx, welcome)
}

// welcome waits for the server's answer.
func (p *probing) welcome(control transport.Conn, r *wire.Reader) (*wire.Welcome, error) {
	_ = control.SetReadDeadline(time.Now().Add(session.DialTimeout))
	m, err := r.Next()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.Welcome:
		return m, control.SetReadDeadline(time.Time{})
	case *wire.Refuse:
		err := &wire.Error{Code: m.Code, Text: m.Text, Remote: true}
		if m.Code == wire.CodeProtocol {
			return nil, &session.Error{Kind: session.KindOther, Err: fmt.Errorf("%s: %w", serverOf(p.url), err),
				Advice: session.AdviceUpdateServer}
		}
		return nil, err
	}
	return nil, wire.Errorf(wire.CodeProtocol, "the server answered with a message of type %d", m.Type())
}

// refusal returns the reason when the server ends a session.
func refusal(r *wire.Reader) error {
	m, err := r.Next()
	if refused, ok := m.(*wire.Refuse); ok {
		return &wire.Error{Code: refused.Code, Text: refused.Text, Remote: true}
	}
	return err
}

func (p *probing) measure(ctx context.Context, opt ProbeOptions, ways bool) (*ProbeReport, error) {
	var streams atomic.Uint64
	dial := func(ctx context.Context, path transport.Path) (probe.Conn, error) {
		return p.join(ctx, streams.Add(1), path)
	}
	var plain func(context.Context) (*net.TCPConn, error)
	if session.ProtocolOf(p.chosen().transport) == transport.TCP && !p.relayed() {
		plain = p.plain
	}
	return probe.Run(ctx, dial, probe.Options{
		Requests: opt.Requests, Think: opt.Think, Ways: ways, Plain: plain, Time: opt.Time, Begun: p.begun, MTU: p.cfg.Path.MTU, Most: opt.Bytes, Stage: opt.Stage,
		Streams: func(rtt time.Duration) int { return cmp.Or(opt.Streams, session.StartingStreams(rtt, 0)) },
	})
}

// plain connects without TLS.
func (p *probing) plain(ctx context.Context) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: session.DialTimeout}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", p.url.Address())
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	return c.(*net.TCPConn), nil
}

// choiceFor is what send would choose, by what a probe found; see growth in internal/session.
func choiceFor(r *ProbeReport) (c probe.Choice) {
	c.Streams = session.StartingStreams(time.Duration(r.Idle.Min*float64(time.Second)), 0)
	if c.Suffice = probe.Suffice(r.Flows); probe.Narrow(r.Flows) {
		c.Streams = 1
	}
	for i := range r.Flows {
		f := &r.Flows[i]
		if f.Direction != probe.Up {
			continue
		}
		c.SndBuf, c.RcvBuf, c.Congestion = max(c.SndBuf, f.SndBuf), max(c.RcvBuf, f.RcvBuf), f.Congestion
		rtt := time.Duration(f.MinRTT * float64(time.Second))
		c.Streams = min(c.Streams, session.StreamsFor(f.Streams, f.Goodput/8, rtt, f.SndBuf))
	}
	return c
}

// openSmall is open, with small packets where the handshake hangs, for example because large ones
// vanish.
func (p *probing) openSmall(ctx context.Context) (transport.Conn, error) {
	known, err := p.client.knows(p.url)
	if err != nil {
		return nil, err
	}
	if p.client.opt.Transport == session.TransportAuto {
		return p.openAnyhow(ctx)
	}
	if !known { // the user has to confirm the key, which takes time
		return p.open(ctx)
	}
	first, cancel := context.WithTimeout(ctx, smallAfter)
	defer cancel()
	control, err := p.open(first)
	var hole *transport.BlackHoleError
	if err == nil || ctx.Err() != nil || first.Err() == nil && !errors.As(err, &hole) {
		return control, err
	}
	p.cfg.Path.MTU = smallMTU
	return p.open(ctx)
}
