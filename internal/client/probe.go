package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// DefaultProbeTime bounds a probe that says nothing else.
	DefaultProbeTime = 17 * time.Second
	// DefaultProbeBytes does, too.
	DefaultProbeBytes = 16 << 30
	minProbeTime      = 3 * time.Second
	maxProbeTime      = time.Minute
	// smallAfter is how long the handshake of a probe may take until it is tried with packets of smallMTU bytes, which any path carries.
	smallAfter = 5 * time.Second
	smallMTU   = 576
)

// ProbeOptions say how a path is probed. Zero is automatic for each.
type ProbeOptions struct {
	Time    time.Duration // of the whole, DefaultProbeTime if 0
	Streams int           // of the flows with several
	Bytes   int64         // to be moved at most, DefaultProbeBytes if 0
	Stage   func(string)  // told what is under way
}

// ProbeReport is what a probe found.
type ProbeReport = probe.Report

// Check refuses options that no probe can have.
func (o *ProbeOptions) Check() error {
	switch {
	case o.Time != 0 && (o.Time < minProbeTime || o.Time > maxProbeTime):
		return session.Usage("", "a probe of %v: give %v to %v", o.Time, minProbeTime, maxProbeTime)
	case o.Streams < 0 || o.Streams > session.MaxStreams:
		return session.Usage("", "%d streams: give 1 to %d", o.Streams, session.MaxStreams)
	case o.Bytes < 0:
		return session.Usage("", "%d bytes at most", o.Bytes)
	}
	return nil
}

// Probe measures the path to a server. It touches no files, there or here. The share and path of u don't matter.
func (c *Client) Probe(ctx context.Context, u session.URL, opt ProbeOptions) (*ProbeReport, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	opt.Time, opt.Bytes = cmp.Or(opt.Time, DefaultProbeTime), cmp.Or(opt.Bytes, DefaultProbeBytes)
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Probe}}
	report, err := s.probe(ctx, opt)
	if err != nil {
		return nil, describeProbe(err, serverOf(u))
	}
	return report, nil
}

// describeProbe is describe, where nothing can be resumed.
func describeProbe(err error, server string) error {
	err = describe(err, server)
	var known *session.Error
	if errors.As(err, &known) && (known.Kind == session.KindUnreachable || known.Kind == session.KindInterrupted) {
		return &session.Error{Kind: known.Kind, Err: known.Err}
	}
	return err
}

func (s *clientSession) probe(ctx context.Context, opt ProbeOptions) (*ProbeReport, error) {
	_, _ = rand.Read(s.hello.Session[:])
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.config()
	defer s.group.Close(session.PartWithin)
	control, err := s.openSmall(ctx)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	defer context.AfterFunc(ctx, func() { _ = control.Close() })()
	_ = control.SetReadDeadline(time.Now().Add(session.DialTimeout))
	r := wire.NewReader(control, wire.MaxMessage)
	m, err := r.Next()
	if err != nil {
		return nil, err
	}
	welcome, ok := m.(*wire.Welcome)
	if !ok {
		refused, ok := m.(*wire.Refuse)
		if !ok {
			return nil, wire.Errorf(wire.CodeProtocol, "the server answered with a message of type %d", m.Type())
		}
		err := &wire.Error{Code: refused.Code, Text: refused.Text, Remote: true}
		if refused.Code == wire.CodeProtocol {
			return nil, &session.Error{Kind: session.KindOther, Err: fmt.Errorf("%s: %w", serverOf(s.url), err), Remedy: "a server of an older version can't be probed: update it"}
		}
		return nil, err
	}
	s.message(control, welcome)

	// If the server ends the session, it says why.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_ = control.SetReadDeadline(time.Time{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		m, err := r.Next()
		if refused, ok := m.(*wire.Refuse); ok {
			err = &wire.Error{Code: refused.Code, Text: refused.Text, Remote: true}
		}
		cancel(err)
	}()
	defer func() { _ = control.Close(); <-watched }()
	var streams atomic.Uint64
	dial := func(ctx context.Context, path transport.Path) (probe.Conn, error) {
		return s.join(ctx, streams.Add(1), path)
	}
	report, err := probe.Run(ctx, dial, probe.Options{Time: opt.Time, MTU: s.cfg.Path.MTU, Most: opt.Bytes, Stage: opt.Stage, Streams: func(rtt time.Duration) int {
		return cmp.Or(opt.Streams, startingStreams(rtt))
	}})
	if err != nil {
		return nil, err
	}
	report.Server, report.Host = serverOf(s.url), wire.Printable(welcome.Host)
	report.Verdicts = probe.Judge(report) // which names the host
	report.Choice = choiceFor(report)
	return report, nil
}

// startingStreams is with how many streams a transfer begins.
func startingStreams(rtt time.Duration) int {
	if rtt > 0 && rtt < session.NearRTT {
		return session.NearStreams
	}
	return session.InitialStreams
}

// choiceFor is what send would take, by what a probe found: see growth.
func choiceFor(r *ProbeReport) (c probe.Choice) {
	c.Streams = startingStreams(time.Duration(r.Idle.Min * float64(time.Second)))
	for i := range r.Flows {
		f := &r.Flows[i]
		if f.Direction != probe.Up {
			continue
		}
		c.SndBuf, c.RcvBuf, c.Congestion = max(c.SndBuf, f.SndBuf), max(c.RcvBuf, f.RcvBuf), f.Congestion
		if f.Goodput/8 > session.Costly && f.Streams > 1 {
			o := session.Observation{Streams: f.Streams, MinRTT: time.Duration(f.MinRTT * float64(time.Second)), Window: int(float64(f.SndBuf) * session.BufferPayload)}
			c.Streams = min(c.Streams, session.Sufficient(f.Goodput/8, &o))
		}
	}
	return c
}

// openSmall is open, and if the handshake hangs, as where large segments vanish, it is that with small ones.
func (s *clientSession) openSmall(ctx context.Context) (transport.Conn, error) {
	known, err := s.client.knows(s.url)
	if err != nil {
		return nil, err
	}
	if s.client.opt.Transport == session.TransportAuto {
		return s.openThrough(ctx)
	}
	if !known { // a person is asked, who takes time
		return s.open(ctx)
	}
	first, cancel := context.WithTimeout(ctx, smallAfter)
	defer cancel()
	control, err := s.open(first)
	var hole *transport.BlackHoleError
	if err == nil || ctx.Err() != nil || first.Err() == nil && !errors.As(err, &hole) {
		return control, err
	}
	s.cfg.Path.MTU = smallMTU
	return s.open(ctx)
}
