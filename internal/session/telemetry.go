package session

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// Samples are taken every firstEvery until firstFor, so that short transfers show where their time
	// went, and then every laterEvery.
	firstEvery = 100 * time.Millisecond
	firstFor   = 2 * time.Second
	laterEvery = 250 * time.Millisecond
	// Recent is the time from which the present limiter is found.
	Recent = 3 * time.Second
)

// Telemetry takes samples of this end of a session, and keeps those that the peer sends. A nil
// Telemetry does nothing. Its methods are safe for concurrent use.
type Telemetry struct {
	Start time.Time // never changes

	clock   *transfer.Clock
	set     *StreamSet
	written func() int64 // payload written at the target, as far as this end knows, bytes
	host    diagnose.Host
	cores   int64
	cpu     time.Duration // CPU time used before the start
	delay   time.Duration // run delay before the start

	sampling sync.Mutex // held while a sample is taken

	mu     sync.Mutex // guards what follows
	local  diagnose.Series
	remote diagnose.Series
	peer   diagnose.Host
	lag    time.Duration   // from the peer's clock to ours, the least seen
	lagged bool            // lag is set
	total  diagnose.Sample // of this end: what is integrated over time
}

// NewTelemetry begins to measure. It returns nil if clock is nil. written is called for each
// sample.
func NewTelemetry(clock *transfer.Clock, set *StreamSet, written func() int64, host diagnose.Host) *Telemetry {
	if clock == nil {
		return nil
	}
	return &Telemetry{
		Start: time.Now(), clock: clock, set: set, written: written, host: host,
		cpu: processTime(), delay: runDelay(), cores: coresAllowed(),
	}
}

// Sample takes a sample of this end, now.
func (t *Telemetry) Sample() diagnose.Sample {
	t.sampling.Lock()
	defer t.sampling.Unlock()
	// On a busy host, this goroutine may wait for a processor at each call. What takes longest comes first, and the time is
	// that of the sockets' counters.
	delay, limited, payload := runDelay(), t.set.rateWait(time.Now()), t.written()
	times, cpu := t.clock.Times(), processTime()
	total, streams := t.set.sums()
	s := diagnose.Sample{
		At:  total.asked.Sub(t.Start),
		CPU: cpu - t.cpu, RunDelay: max(0, delay-t.delay), Cores: t.cores,
		RateWait: limited, Streams: int64(streams), Payload: payload,
		Busy: total.busy, RwndLimited: total.rwnd, SndbufLimited: total.sndbuf, Acked: int64(total.acked),
		Segments: int64(total.segments), Retrans: total.Retrans, Spurious: int64(total.spurious), Reordered: int64(total.reordered), Received: int64(total.received),
		MinRTT: total.MinRTT, InFlight: total.inFlight, Cwnd: total.cwnd, SndWnd: total.sndWnd,
		SndBuf: int64(total.SndBuf), RcvBuf: int64(total.RcvBuf), PMTU: total.pmtu, MSS: total.mss, Control: diagnose.ControlNumber(total.Congestion),
	}
	if total.flying > 0 {
		s.RTT = total.rtt / time.Duration(total.flying)
	}
	if c := total.control; c != nil {
		s.Priority, s.BaseRTT, s.Queue, s.QueueMost = int64(wireOf(c.Priority)), c.Base, c.Queue, c.QueueMost
		s.Starting, s.Shared, s.Yielded, s.Policed = c.Starting, c.Shared, c.Yielded, c.Policed
		s.LostOwn, s.LostOthers, s.LostLine = c.LostOwn, c.LostOthers, c.LostLine
	}
	s.Parked, s.Idle, s.Read, s.Digest, s.Code = times[transfer.Parked], times[transfer.Idle], times[transfer.Read], times[transfer.Digest], times[transfer.Code]
	s.Send, s.Receive, s.Write, s.Full, s.Walk = times[transfer.Send], times[transfer.Receive], times[transfer.Write], times[transfer.Full], times[transfer.Walk]
	s.Room, s.Feed, s.Compare, s.Name, s.Sync = times[transfer.Room], times[transfer.Feed], times[transfer.Compare], times[transfer.Name], times[transfer.Sync]
	s.Check = times[transfer.Check]
	t.mu.Lock()
	defer t.mu.Unlock()
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

// Run takes samples until ctx is done. send, which may be nil, sends each to the peer.
func (t *Telemetry) Run(ctx context.Context, send func(wire.Message)) {
	if t == nil {
		return
	}
	var told cadence
	first := t.Sample()
	if send != nil {
		told.sent(&first)
		send(t.message(&first))
	}
	tick := time.NewTicker(firstEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s := t.Sample()
			if s.At > firstFor {
				tick.Reset(laterEvery)
			}
			if send != nil && told.due(&s) {
				told.sent(&s)
				send(t.message(&s))
			}
		}
	}
}

const (
	// sampleSize is about what a sample takes on the wire, bytes.
	sampleSize = 600
	// sampleShare is the most that samples may take of what a session moves. From 150 kB/s on, they
	// are not bounded.
	sampleShare = 1.0 / 64
	// sampleIdle and sampleSlowest are the times between two samples where nothing moves, and where
	// very little does.
	sampleIdle    = time.Second
	sampleSlowest = 30 * time.Second
)

// cadence decides which samples the peer gets. On a narrow line, all of them would hold up the data.
type cadence struct{ last diagnose.Sample }

func (c *cadence) sent(s *diagnose.Sample) { c.last = *s }

// due reports whether the peer gets this sample.
func (c *cadence) due(s *diagnose.Sample) bool {
	passed := s.At - c.last.At
	if s.InFlight == 0 && s.Acked == c.last.Acked && s.Received == c.last.Received {
		return passed >= sampleIdle
	}
	if passed >= sampleSlowest {
		return true
	}
	// The mean since the start is less than the line carries.
	moved := float64(s.Acked+s.Received) * passed.Seconds() / s.At.Seconds()
	return sampleSize <= sampleShare*moved
}

// message makes the message with a sample for the peer.
func (t *Telemetry) message(s *diagnose.Sample) *wire.Sample {
	m := &wire.Sample{}
	diagnose.Each(s, &t.host, func(name string, value int64) { m.Values = append(m.Values, wire.Value{Name: name, Value: value}) })
	return m
}

// SendLast sends a last sample to the peer.
func (t *Telemetry) SendLast(send func(wire.Message)) {
	if t != nil {
		s := t.Sample()
		send(t.message(&s))
	}
}

// SetPeer notes where the peer is, and looks up the route to it. It is called before Run.
func (t *Telemetry) SetPeer(peer net.Addr) {
	if t == nil {
		return
	}
	t.host.InitCwnd, t.host.InitRwnd = routeWindows(peer)
	if a, ok := peer.(interface{ AddrPort() netip.AddrPort }); ok && a.AddrPort().Addr().Unmap().IsLoopback() {
		t.host.Loopback = 1
	}
}

// SetRelayed notes that the path leads through a relay. It is called before Run.
func (t *Telemetry) SetRelayed() {
	if t != nil {
		t.host.Relayed = 1
	}
}

// SetPeerName sets the peer's host name, which may be hostile.
func (t *Telemetry) SetPeerName(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peer.Name = wire.Printable(host)
}

// AddPeerSample adds a sample that the peer sent.
func (t *Telemetry) AddPeerSample(values map[string]int64) {
	if t == nil {
		return
	}
	var s diagnose.Sample
	t.mu.Lock()
	defer t.mu.Unlock()
	since := time.Since(t.Start)
	diagnose.Fill(&s, &t.peer, since, func(name string) (int64, bool) { v, ok := values[name]; return v, ok })
	if lag := since - s.At; !t.lagged || lag < t.lag {
		t.lag, t.lagged = lag, true
	}
	s.At += t.lag
	t.remote.Add(s)
}

// Session returns the samples of both ends. push reports whether this end sends.
func (t *Telemetry) Session(push bool) *diagnose.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := &diagnose.Session{Sender: t.local.All(), Receiver: t.remote.All(), SenderHost: t.host, ReceiverHost: t.peer}
	if !push {
		x.Sender, x.Receiver, x.SenderHost, x.ReceiverHost = x.Receiver, x.Sender, x.ReceiverHost, x.SenderHost
	}
	return x
}

// SessionSince is Session with few samples from before a time: enough to know when the session
// began and what it reached.
func (t *Telemetry) SessionSince(push bool, since time.Duration) *diagnose.Session {
	x := t.Session(push)
	x.Sender, x.Receiver = thin(x.Sender, since), thin(x.Receiver, since)
	return x
}

// thinned is about the number of samples that thin leaves.
const thinned = 32

// thin removes most samples from before a time. It changes samples.
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

// Latest returns the last samples of the sender and of the receiver. push reports whether this end
// sends.
func (t *Telemetry) Latest(push bool) (sender, receiver diagnose.Sample) {
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

// worked returns how long the goroutines of this end have worked on files, and those of the other one as it says; and
// how long a rate limit of either has held back the streams. Whoever waits for the other end does not work.
func (t *Telemetry) worked() (work, claimed, limited time.Duration) {
	if t == nil {
		return 0, 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own, _ := t.local.Last()
	other, _ := t.remote.Last()
	return workOf(&own), workOf(&other), own.RateWait + other.RateWait
}

func workOf(s *diagnose.Sample) time.Duration {
	return s.Read + s.Digest + s.Code + s.Write + s.Walk + s.Feed + s.Compare + s.Check + s.Name + s.Sync
}

// Carried is how much the receiver's host has taken from the data streams, in bytes, as far as this end
// knows. push reports whether this end sends.
func (t *Telemetry) Carried(push bool) int64 {
	sender, receiver := t.Latest(push)
	if push {
		return sender.Acked
	}
	return receiver.Received
}

// Limiter returns the present limiter, "" if it is unknown. push reports whether this end sends.
func (t *Telemetry) Limiter(push bool, asked *diagnose.Asked) string {
	if t == nil {
		return ""
	}
	x := t.Session(push)
	cells := diagnose.Cells(x)
	i := len(cells)
	for i > 0 && cells[i-1].Start >= time.Since(t.Start)-Recent {
		i--
	}
	verdicts := diagnose.Judge(cells[i:], &x.SenderHost, &x.ReceiverHost, asked)
	if len(verdicts) == 0 || verdicts[0].Limiter == diagnose.Unknown {
		return ""
	}
	return string(verdicts[0].Limiter)
}

// streamSums sums up TCP_INFO of all streams; see diagnose.Sample for the meanings.
type streamSums struct {
	PathStats
	busy, rwnd, sndbuf                             time.Duration
	acked, segments, spurious, reordered, received uint64

	// Of open streams.
	rtt                               time.Duration
	flying, backlogged                int
	windowed, buffered                int
	inFlight, cwnd, sndWnd, pmtu, mss int64

	control *congestion.Stats
	asked   time.Time // the middle of the time in which the kernel was asked
}

// counters adds what counts from a stream's start.
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

// present adds what describes the present moment.
func (p *streamSums) present(i *transport.Info) {
	if i.InFlight > 0 {
		p.rtt += i.RTT
		p.flying++
	}
	held := diagnose.Socket{InFlight: int64(i.InFlight), NotSent: int64(i.NotSent), Window: int64(i.SndWnd), Buffer: int64(i.SndBuf), MSS: int64(i.SndMSS)}
	if held.Backlogged() {
		p.backlogged++
	}
	if held.Windowed() {
		p.windowed++
	}
	if held.Buffered() {
		p.buffered++
	}
	p.inFlight += int64(i.InFlight)
	p.cwnd += int64(i.Cwnd)
	p.sndWnd = max(p.sndWnd, int64(i.SndWnd))
	p.pmtu = max(p.pmtu, int64(i.PMTU))
	p.mss = max(p.mss, int64(i.SndMSS))
}

// sums asks the kernel about all streams. open is their number.
func (s *StreamSet) sums() (p streamSums, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.past
	p.PathStats, p.control = s.gone, s.control
	began := time.Now()
	infos := s.infosLocked()
	p.asked = began.Add(time.Since(began) / 2)
	for _, i := range infos {
		p.add(&i)
		p.counters(&i)
		p.present(&i)
	}
	return p, len(infos)
}
