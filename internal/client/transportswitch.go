package client

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

// errSwitch ends a session that has not begun: the next one uses another transport.
type errSwitch struct{ to choice }

func (e *errSwitch) Error() string {
	return fmt.Sprintf("going on with %s: %s", e.to.transport, e.to.reason)
}

// race tries the other transport while the first one does not connect. If the other one answers and
// the first one still does not, race ends the session with an errSwitch.
func (d *dialer) race(ctx context.Context, end context.CancelCauseFunc) {
	began := time.Now()
	if !session.Sleep(ctx, otherAfter) || d.connected.Load() {
		return
	}
	// A server that answers takes longer where the line is narrow. There, another handshake would
	// hold up the first one.
	if rtt := time.Duration(d.reached.Load()); rtt > 0 && (!session.Sleep(ctx, reachedWithin+reachedTrips*rtt) || d.connected.Load()) {
		return
	}
	if !d.answers(ctx, other(d.cfg.Protocol)) {
		return
	}
	// On a long path the first one may only need more round trips.
	patience := otherAfter + 3*(time.Since(began)-otherAfter)
	if !session.Sleep(ctx, time.Until(began.Add(patience))) {
		return
	}
	x := evidence{
		waited:  time.Since(began),
		tcp:     d.cfg.Protocol == transport.QUIC,
		quic:    d.cfg.Protocol == transport.TCP,
		history: session.TransportOf(d.cfg.Protocol),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if to := choose(&x); to.transport != "" && !d.connected.Load() {
		end(&errSwitch{to})
	}
}

// instead returns the transport to try after a session ended with err, which may be the same: a host
// refuses connections until its server is up again. The zero choice says that no transport helps.
func (d *dialer) instead(ctx context.Context, err error) choice {
	if sw := (*errSwitch)(nil); errors.As(err, &sw) {
		return sw.to
	}
	via := d.chosen()
	if err == nil || ctx.Err() != nil || d.opened.Load() || d.client.opt.Transport != session.TransportAuto {
		return choice{}
	}
	if !temporary(err) && !errors.Is(err, transport.ErrProtocol) { // another service may have only one of the ports
		return choice{}
	}
	answers := func(p transport.Protocol) bool {
		soon, cancel := context.WithTimeout(ctx, otherWithin)
		defer cancel()
		return d.answers(soon, p)
	}
	p := session.ProtocolOf(via.transport)
	switch {
	case !answers(other(p)):
		return choice{}
	case errors.Is(err, syscall.ECONNREFUSED) && answers(p): // the server has just been started
		return via
	}
	return choice{session.TransportOf(other(p)), fmt.Sprintf("%s: %v", via.transport, err)}
}

// answers reports whether the server answers by a transport before ctx is done.
func (d *dialer) answers(ctx context.Context, p transport.Protocol) bool {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	cfg := d.cfg
	cfg.Protocol, cfg.Group, cfg.Doubt = p, &transport.Group{}, false
	defer cfg.Group.Close(0)
	conn, err := transport.Dial(ctx, d.url.Address(), d.by(cfg), d.client.expect(d.url))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.As(err, new(*errAskFirst))
}

// watchWindows looks for a TCP that its windows hold back. It then tries QUIC, once, and goes back
// to TCP if that did not pay.
func (s *transferSession) watchWindows(ctx context.Context, control transport.Conn) {
	x := evidence{tcp: true, streams: s.client.opt.mostStreams()}
	info, _ := control.Info()
	x.rtt = max(info.MinRTT, info.RTT)
	x.unscaled = !info.WindowScaling && info.State != "" // without a State, this kernel cannot tell
	if to := choose(&x); to.transport != "" {
		s.streams.turn(to)
		return
	}
	tick := time.NewTicker(session.TuneEvery)
	defer tick.Stop()
	var w windowWatch
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o, _ := s.measured.Latest(s.intent.sends())
			goodput := w.add(&o, &x)
			if to := choose(&x); to.transport != "" {
				s.try(ctx, to, goodput)
				return
			}
		}
	}
}

// try turns to another transport, and back again if goodput, in bytes/s, was more before.
func (s *transferSession) try(ctx context.Context, to choice, goodput float64) {
	before := s.chosen()
	if !s.streams.turn(to) || !session.Sleep(ctx, trialFor/2) {
		return
	}
	from, since := s.written(), time.Now()
	if !session.Sleep(ctx, trialFor/2) {
		return
	}
	if now := float64(s.written()-from) / time.Since(since).Seconds(); now < 0.9*goodput {
		s.streams.turn(choice{before.transport,
			fmt.Sprintf("QUIC was tried and moved %.0f Mbit/s instead of %.0f", now*8/1e6, goodput*8/1e6)})
	}
}
