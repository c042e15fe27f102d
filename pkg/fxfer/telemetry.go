package fxfer

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// Samples come often at first, so that short transfers show where their time went.
	sampleOften  = 100 * time.Millisecond
	sampleSoon   = 2 * time.Second // how long that is
	sampleSeldom = 250 * time.Millisecond
	// recent is what the present limiter is found from.
	recent = 3 * time.Second
)

// telemetry samples one side of a session, and keeps the other side's samples.
type telemetry struct {
	start time.Time
	clock *transfer.Clock
	set   *streamSet
	// written is the payload written at the target, as this side knows.
	written func() int64
	host    diagnose.Host

	sampling sync.Mutex // held while a sample is taken

	mu     sync.Mutex
	local  diagnose.Series
	remote diagnose.Series
	peer   diagnose.Host
	lag    time.Duration // from the peer's clock to ours, the least seen
	lagged bool
	total  diagnose.Sample // what is integrated over time, of this side
	cpu    time.Duration   // used before the start
	delay  time.Duration   // before the start
	cores  int64
}

// withoutTelemetry is for benchmarks of its cost.
var withoutTelemetry bool

func newClock() *transfer.Clock {
	if withoutTelemetry {
		return nil
	}
	return transfer.NewClock()
}

// newTelemetry begins to measure. clock is nil if that is not wanted; then so is the telemetry, whose methods do nothing.
func newTelemetry(clock *transfer.Clock, set *streamSet, written func() int64, host diagnose.Host) *telemetry {
	if clock == nil {
		return nil
	}
	return &telemetry{
		start: time.Now(), clock: clock, set: set, written: written, host: host,
		cpu: processTime(), delay: runDelay(), cores: coresAllowed(),
	}
}

// sample looks at this side.
func (t *telemetry) sample() diagnose.Sample {
	t.sampling.Lock()
	defer t.sampling.Unlock()
	total, streams := t.set.sums()
	s := diagnose.Sample{
		CPU: processTime() - t.cpu, RunDelay: max(0, runDelay()-t.delay), Cores: t.cores,
		RateWait: t.set.rateWait(time.Now()),
		Streams:  int64(streams), Payload: t.written(),
		Busy: total.busy, RwndLimited: total.rwnd, SndbufLimited: total.sndbuf, Acked: int64(total.acked),
		Segments: int64(total.segments), Retrans: total.retrans, Spurious: int64(total.spurious), Reordered: int64(total.reordered), Received: int64(total.received),
		MinRTT: total.minRTT, InFlight: total.inFlight, Cwnd: total.cwnd, SndWnd: total.sndWnd,
		SndBuf: int64(total.sndBuf), RcvBuf: int64(total.rcvBuf), PMTU: total.pmtu, MSS: total.mss, Control: diagnose.ControlNumber(total.congestion),
	}
	if total.flying > 0 {
		s.RTT = total.rtt / time.Duration(total.flying)
	}
	times := t.clock.Times()
	s.Parked, s.Idle, s.Read, s.Digest, s.Code = times[transfer.Parked], times[transfer.Idle], times[transfer.Read], times[transfer.Digest], times[transfer.Code]
	s.Send, s.Receive, s.Write, s.Full, s.Walk = times[transfer.Send], times[transfer.Receive], times[transfer.Write], times[transfer.Full], times[transfer.Walk]
	s.Room, s.Feed, s.Compare, s.Name, s.Sync = times[transfer.Room], times[transfer.Feed], times[transfer.Compare], times[transfer.Name], times[transfer.Sync]
	t.mu.Lock()
	defer t.mu.Unlock()
	s.At = time.Since(t.start)
	if before, ok := t.local.Last(); ok {
		passed := s.At - before.At
		t.total.Backlog += time.Duration(total.backlogged) * passed
		t.total.Windowed += time.Duration(total.windowed) * passed
		t.total.Buffered += time.Duration(total.buffered) * passed
		if total.flying > 0 {
			t.total.Flying += passed
			t.total.RTTSum += int64(float64(s.RTT) * passed.Seconds())
		}
	}
	s.Backlog, s.Windowed, s.Buffered, s.Flying, s.RTTSum = t.total.Backlog, t.total.Windowed, t.total.Buffered, t.total.Flying, t.total.RTTSum
	t.local.Add(s)
	return s
}

// run samples until ctx is done. tell, unless nil, gets the samples for the peer.
func (t *telemetry) run(ctx context.Context, tell func(wire.Message)) {
	if t == nil {
		return
	}
	first := t.sample()
	if tell != nil {
		tell(t.message(&first))
	}
	tick := time.NewTicker(sampleOften)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s := t.sample()
			if s.At > sampleSoon {
				tick.Reset(sampleSeldom)
			}
			if tell != nil {
				tell(t.message(&s))
			}
		}
	}
}

// message tells a sample to the peer.
func (t *telemetry) message(s *diagnose.Sample) *wire.Sample {
	m := &wire.Sample{}
	diagnose.Each(s, &t.host, func(name string, value int64) { m.Values = append(m.Values, wire.Value{Name: name, Value: value}) })
	return m
}

// last tells the peer how things are now.
func (t *telemetry) last(tell func(wire.Message)) {
	if t != nil {
		s := t.sample()
		tell(t.message(&s))
	}
}

// reached takes the peer's address, before run.
func (t *telemetry) reached(peer net.Addr) {
	if t == nil {
		return
	}
	t.host.InitCwnd, t.host.InitRwnd = routeWindows(peer)
}

// named takes the peer's name.
func (t *telemetry) named(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peer.Name = wire.Printable(host)
}

// heard takes a sample of the peer.
func (t *telemetry) heard(values map[string]int64) {
	if t == nil {
		return
	}
	var s diagnose.Sample
	t.mu.Lock()
	defer t.mu.Unlock()
	diagnose.Fill(&s, &t.peer, func(name string) (int64, bool) { v, ok := values[name]; return v, ok })
	if lag := time.Since(t.start) - s.At; !t.lagged || lag < t.lag {
		t.lag, t.lagged = lag, true
	}
	s.At += t.lag
	t.remote.Add(s)
}

// session returns what both sides have measured.
func (t *telemetry) session(push bool) *diagnose.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := &diagnose.Session{Sender: t.local.All(), Receiver: t.remote.All(), SenderHost: t.host, ReceiverHost: t.peer}
	if !push {
		x.Sender, x.Receiver, x.SenderHost, x.ReceiverHost = x.Receiver, x.Sender, x.ReceiverHost, x.SenderHost
	}
	return x
}

// sessionSince is session, with few samples of what was before a time: enough to tell when the session began and what it reached.
func (t *telemetry) sessionSince(push bool, since time.Duration) *diagnose.Session {
	x := t.session(push)
	x.Sender, x.Receiver = thin(x.Sender, since), thin(x.Receiver, since)
	return x
}

// thinned is how many samples are left of a long time.
const thinned = 32

// thin leaves some of the samples before a time. It changes samples.
func thin(samples []diagnose.Sample, before time.Duration) []diagnose.Sample {
	n := 0
	for n < len(samples) && samples[n].At < before {
		n++
	}
	kept := samples[:0]
	step := n/thinned + 1
	for i, s := range samples {
		if i >= n || i%step == 0 || i == n-1 {
			kept = append(kept, s)
		}
	}
	return kept
}

// latest returns the last sample of the sender and of the receiver.
func (t *telemetry) latest(push bool) (sender, receiver diagnose.Sample) {
	if t == nil {
		return sender, receiver
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sender, _ = t.local.Last()
	receiver, _ = t.remote.Last()
	if !push {
		sender, receiver = receiver, sender
	}
	return sender, receiver
}

// now is the present limiter, "" if there is nothing to tell.
func (t *telemetry) now(push bool, asked *diagnose.Asked) string {
	if t == nil {
		return ""
	}
	x := t.session(push)
	cells := diagnose.Cells(x)
	i := len(cells)
	for i > 0 && cells[i-1].Start >= time.Since(t.start)-recent {
		i--
	}
	verdicts := diagnose.Judge(cells[i:], &x.SenderHost, &x.ReceiverHost, asked)
	if len(verdicts) == 0 || verdicts[0].Limiter == diagnose.Unknown {
		return ""
	}
	return string(verdicts[0].Limiter)
}

const (
	// windowFull is the part of the peer's window from which data in flight fills it: a receiver's autotuning keeps it about twice as
	// large as that (tcp_rcv_space_adjust in net/ipv4/tcp_input.c).
	windowFull = 0.75
	// bufferFull is the part of a send buffer, as the kernel counts, from which data in flight fills it; see internal/transport. Autotuning
	// keeps it at least twice as large as the congestion window (tcp_sndbuf_expand in net/ipv4/tcp_input.c).
	bufferFull = 0.45
)

// streamSums is what TCP_INFO of all streams amounts to; see diagnose.Sample.
type streamSums struct {
	pathStats
	busy, rwnd, sndbuf                             time.Duration
	acked, segments, spurious, reordered, received uint64

	// Of those that are open.
	rtt                               time.Duration
	flying, backlogged                int
	windowed, buffered                int
	inFlight, cwnd, sndWnd, pmtu, mss int64
}

// counters adds what runs from a stream's start.
func (p *streamSums) counters(i *transport.Info) {
	p.busy += i.BusyTime
	p.rwnd += i.RwndLimited
	p.sndbuf += i.SndbufLimited
	p.acked += i.BytesAcked
	p.segments += i.DataSegs
	p.spurious += i.SpuriousSegs
	p.reordered += i.Reordered
	p.received += i.BytesReceived
}

// present adds what is of the moment.
func (p *streamSums) present(i *transport.Info) {
	if i.InFlight > 0 {
		p.rtt += i.RTT
		p.flying++
	}
	if i.NotSent >= max(1, i.SndMSS) {
		p.backlogged++
	}
	full := i.InFlight >= 4*max(1, i.SndMSS) // less is not held back by a window
	if full && float64(i.InFlight) >= windowFull*float64(i.SndWnd) && i.SndWnd > 0 {
		p.windowed++
	}
	if full && float64(i.InFlight+i.NotSent) >= bufferFull*float64(i.SndBuf) && i.NotSent < i.InFlight/4 {
		p.buffered++
	}
	p.inFlight += int64(i.InFlight)
	p.cwnd += int64(i.Cwnd)
	p.sndWnd = max(p.sndWnd, int64(i.SndWnd))
	p.pmtu = max(p.pmtu, int64(i.PMTU))
	p.mss = max(p.mss, int64(i.SndMSS))
}

// sums asks the kernel about all streams, and returns how many are open.
func (s *streamSet) sums() (streamSums, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.past
	p.pathStats = s.gone
	infos := s.infosLocked()
	for _, i := range infos {
		p.add(&i)
		p.counters(&i)
		p.present(&i)
	}
	return p, len(infos)
}

// asked is what the user asked of a transfer.
func (o *Options) asked(push bool) *diagnose.Asked {
	a := &diagnose.Asked{
		Here: diagnose.Sender, Streams: o.Streams, MaxStreams: o.MaxStreams, SockBuf: int64(o.SockBuf), RateLimit: o.throttle().Rate(),
		Sync: string(o.Target.Sync),
	}
	if !push {
		a.Here = diagnose.Receiver
	}
	return a
}

// hostname is for messages only.
func hostname() string {
	name, _ := os.Hostname()
	return name
}
