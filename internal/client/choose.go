package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// otherAfter is how long the first choice of a transport may take to connect until the other one is tried, and otherWithin until that one is
	// taken if it answers.
	otherAfter  = 250 * time.Millisecond
	otherWithin = 500 * time.Millisecond

	// quicMost is what QUIC moves at most on today's hosts, bytes/s: a TCP whose windows allow more is not what holds a transfer back.
	quicMost = 2e9 / 8
	// unscaledWindow is the largest window without the window scale option, bytes (RFC 7323, section 1.1).
	unscaledWindow = 1<<16 - 1

	// smallWindow is what a window is below whose bound is a setting, bytes: a server whose disk is slow closes one that was large.
	smallWindow = 1 << 20
	// cappedShare of the busy time a window that does not grow has to be the limit, for as long as cappedFor and cappedTrips round trips, until QUIC
	// is tried instead; how it does is judged after trialFor. An autotuned window that is too small grows with each round trip.
	cappedShare = 0.5
	cappedFor   = time.Second
	cappedTrips = 8
	trialFor    = 4 * time.Second
	// filledShare of what the windows allow has to move: otherwise it is a slow reader that closes them.
	filledShare = 0.5
)

// choice is a transport, and why it was taken.
type choice struct {
	of     session.Transport
	reason string
}

// signs is what is known of a path where the transport is automatic.
type signs struct {
	history session.Transport // which the last session ended with, "" if none is known

	// Of connecting: how long it takes by now, and whether either has answered.
	waited    time.Duration
	tcp, quic bool

	// Of a TCP that has answered.
	unscaled bool
	rtt      time.Duration
	streams  int // the most there may be

	// Of one that carries data.
	window int           // the largest that the receiver has advertised to a stream, bytes
	capped float64       // share of the busy time in which it was the limit
	filled float64       // what moves, of what it allows the streams there are
	lasts  time.Duration // since when
}

// choose decides. The zero choice means: go on as it is.
func choose(x *signs) choice {
	first := x.history
	if first == "" {
		first = session.TransportTCP
	}
	if !x.tcp && !x.quic {
		if x.waited == 0 && first == session.TransportQUIC {
			return choice{session.TransportQUIC, "it was the better one last time"}
		}
		return choice{}
	}
	switch {
	case !x.tcp && x.waited >= otherWithin && first == session.TransportTCP:
		return choice{session.TransportQUIC, "TCP does not connect"}
	case !x.quic && x.waited >= otherWithin && first == session.TransportQUIC:
		return choice{session.TransportTCP, "QUIC does not connect"}
	case x.tcp && x.unscaled && x.most(unscaledWindow) < quicMost:
		return choice{session.TransportQUIC, "TCP has no window scaling on this path: " + x.bound(unscaledWindow)}
	case x.tcp && x.window > 0 && x.window <= smallWindow && x.most(x.window) < quicMost &&
		x.capped >= cappedShare && x.filled >= filledShare && x.lasts >= max(cappedFor, cappedTrips*x.rtt):
		return choice{session.TransportQUIC, fmt.Sprintf("the receiver's TCP window was the limit for %.0f %% of the time: %s", 100*x.capped, x.bound(x.window))}
	}
	return choice{}
}

// most is what all streams get with a window each, bytes/s.
func (x *signs) most(window int) float64 {
	return float64(x.streams) * float64(window) / x.rtt.Seconds() // +Inf where the RTT is not known
}

// bound says so.
func (x *signs) bound(window int) string {
	return fmt.Sprintf("%d streams of %d KiB at %v get %.0f Mbit/s at most", x.streams, (window+512)>>10, x.rtt.Round(100*time.Microsecond), x.most(window)*8/1e6)
}

// errSwitch ends a session that has not begun: the next one takes another transport.
type errSwitch struct{ to choice }

func (e *errSwitch) Error() string { return fmt.Sprintf("going on with %s: %s", e.to.of, e.to.reason) }

// other is the transport that protocol is not.
func other(p transport.Protocol) transport.Protocol {
	if p == transport.TCP {
		return transport.QUIC
	}
	return transport.TCP
}

// race tries the other transport while the first one does not connect, and if that answers, calls instead.
func (s *clientSession) race(ctx context.Context, instead func(error)) {
	began := time.Now()
	if !session.Pause(ctx, otherAfter) || s.connected.Load() {
		return
	}
	if !s.answers(ctx, other(s.cfg.Protocol)) {
		return
	}
	// On a long path the first one may only need more round trips.
	patience := max(otherWithin, otherAfter+3*(time.Since(began)-otherAfter))
	if !session.Pause(ctx, time.Until(began.Add(patience))) || s.connected.Load() {
		return
	}
	x := signs{waited: max(time.Since(began), otherWithin), tcp: s.cfg.Protocol == transport.QUIC, quic: s.cfg.Protocol == transport.TCP, history: session.TransportOf(s.cfg.Protocol)}
	if to := choose(&x); to.of != "" {
		instead(&errSwitch{to})
	}
}

// instead tells what to do of a session that ended with err: the zero choice says that another transport is no remedy.
func (s *clientSession) instead(ctx context.Context, err error) choice {
	if sw := (*errSwitch)(nil); errors.As(err, &sw) {
		return sw.to
	}
	via := s.chosen()
	if err == nil || ctx.Err() != nil || s.opened.Load() || s.client.opt.Transport != session.TransportAuto || !temporary(err) {
		return choice{}
	}
	soon, cancel := context.WithTimeout(ctx, otherWithin)
	defer cancel()
	p := other(via.of.Protocol())
	if !s.answers(soon, p) {
		return choice{}
	}
	return choice{session.TransportOf(p), fmt.Sprintf("%s: %v", via.of, err)}
}

// answers tells whether the server answers by a transport, before ctx is done.
func (s *clientSession) answers(ctx context.Context, p transport.Protocol) bool {
	ctx, cancel := context.WithTimeout(ctx, session.DialTimeout)
	defer cancel()
	cfg := s.cfg
	cfg.Protocol, cfg.Group, cfg.Doubt = p, &transport.Group{}, false
	defer cfg.Group.Close(0)
	conn, err := transport.Dial(ctx, s.url.Address(), cfg, s.client.expect(s.url))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.As(err, new(*errAskFirst))
}

// firstChoice is the transport of a transfer's first streams.
func (c *Client) firstChoice(server string) choice {
	switch c.opt.Transport {
	case session.TransportQUIC:
		return choice{of: session.TransportQUIC}
	case session.TransportAuto:
		var x signs
		if c.learned(server+chosen) == quicChosen {
			x.history = session.TransportQUIC
		}
		if first := choose(&x); first.of != "" {
			return first
		}
	}
	return choice{of: session.TransportTCP}
}

// What is remembered of the choice for a server.
const (
	chosen     = " transport"
	tcpChosen  = 1
	quicChosen = 2
)

// keepChoice remembers which transport a session ended with.
func (c *Client) keepChoice(server string, t session.Transport) {
	n := tcpChosen
	if t == session.TransportQUIC {
		n = quicChosen
	}
	if c.opt.Transport == session.TransportAuto && (n == quicChosen || c.learned(server+chosen) != 0) {
		c.learn(server+chosen, n)
	}
}

// turn lets the data streams be of another transport from now on, if that answers: those there are finish their blocks and end. It returns when
// the first one is there.
func (s *clientSession) turn(ctx context.Context, to choice) bool {
	p := to.of.Protocol()
	s.mu.Lock()
	n, first := s.want, s.nextID
	s.nextID += uint64(n)
	s.mu.Unlock()
	turned := make(chan struct{})
	pending, done := n, false // guarded by s.mu
	var dials sync.WaitGroup
	for i := range n {
		dials.Go(func() {
			conn, err := s.joinBy(ctx, first+uint64(i), s.cfg.Path, p)
			s.mu.Lock()
			switch {
			case err == nil && !done:
				done, s.via, s.refused = true, to, 0
				s.dialing += pending
				close(turned)
			case err != nil && done:
				s.dialing--
			}
			pending--
			s.mu.Unlock()
			if err == nil {
				s.attach(first+uint64(i), conn)
			}
		})
	}
	failed := make(chan struct{})
	s.dials.Go(func() { dials.Wait(); close(failed); s.grow(ctx, 0) })
	select {
	case <-turned:
	case <-failed:
		select {
		case <-turned:
		default:
			return false
		}
	}
	s.retire(p)
	if s.client.opt.Notice != nil {
		s.client.opt.Notice((&errSwitch{to}).Error())
	}
	return true
}

// retireWithin is how long a server may take to end a stream that it shall send no more on. Earlier versions don't.
const retireWithin = 20 * time.Second

// retire ends the data streams that those of p take the place of, when what is on its way has come.
func (s *clientSession) retire(p transport.Protocol) {
	var old []*session.DataStream
	m := &wire.Retire{}
	for _, d := range s.set.Streams() {
		if i, ok := d.Info(); ok && i.Protocol != p {
			d.Retired.Store(true)
			old = append(old, d)
			m.Streams = append(m.Streams, d.ID)
		}
	}
	if s.sender != nil {
		for _, d := range old {
			s.sender.Retire(d.ID)
		}
		return
	}
	s.receiver.Send(m)
	s.dials.Go(func() {
		if session.Pause(s.ctx, retireWithin) {
			for _, d := range old {
				_ = d.Close()
			}
		}
	})
}

// watchWindows looks for a TCP that its windows hold back, and tries QUIC once if so. What does not pay is undone.
func (s *clientSession) watchWindows(ctx context.Context, control transport.Conn) {
	x := signs{tcp: true, streams: s.client.opt.MaxStreams}
	if s.client.opt.Streams > 0 {
		x.streams = s.client.opt.Streams
	}
	info, _ := control.Info()
	x.unscaled, x.rtt = !info.WindowScaling, max(info.MinRTT, info.RTT)
	if !info.WindowScaling && info.State == "" {
		x.unscaled = false // this kernel does not tell
	}
	if to := choose(&x); to.of != "" {
		s.turn(ctx, to)
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
			o, _ := s.watched.Latest(s.sender != nil)
			goodput := w.look(&o, &x)
			if to := choose(&x); to.of != "" {
				s.try(ctx, to, goodput)
				return
			}
		}
	}
}

// windowWatch follows the window of a receiver, from samples of the sender.
type windowWatch struct {
	begin, last diagnose.Sample // since begin the window is the limit, and has not grown
}

// look takes the next sample, fills in what it shows, and returns the goodput meanwhile, bytes/s.
func (w *windowWatch) look(o *diagnose.Sample, x *signs) (goodput float64) {
	grown := float64(o.SndWnd) > 1.05*float64(x.window)
	x.window, x.rtt = max(x.window, int(o.SndWnd)), o.MinRTT
	if w.last.At == 0 || grown || o.At > w.last.At && diagnose.WindowShare(&w.last, o) < cappedShare {
		w.begin = *o
	}
	w.last = *o
	x.lasts, x.capped, x.filled = o.At-w.begin.At, diagnose.WindowShare(&w.begin, o), 0
	if x.lasts <= 0 || x.window == 0 || o.Streams == 0 {
		return 0
	}
	x.filled = float64(o.Acked-w.begin.Acked) / x.lasts.Seconds() / x.most(x.window) * float64(x.streams) / float64(o.Streams)
	return float64(o.Payload-w.begin.Payload) / x.lasts.Seconds()
}

// try is turn, and back again if goodput, bytes/s, was more before.
func (s *clientSession) try(ctx context.Context, to choice, goodput float64) {
	before := s.chosen()
	if !s.turn(ctx, to) || !session.Pause(ctx, trialFor/2) {
		return
	}
	from, since := s.written(), time.Now()
	if !session.Pause(ctx, trialFor/2) {
		return
	}
	if now := float64(s.written()-from) / time.Since(since).Seconds(); now < 0.9*goodput {
		s.turn(ctx, choice{before.of, fmt.Sprintf("QUIC was tried and moved %.0f Mbit/s instead of %.0f", now*8/1e6, goodput*8/1e6)})
	}
}

// chosen is the present choice.
func (s *clientSession) chosen() choice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.via
}
