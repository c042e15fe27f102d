package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Shares of the time of a probe. The rest is for connecting and draining.
const (
	idleShare     = 0.07
	soundShare    = 0.16  // at most, plus some round trips
	flowShare     = 0.145 // for each of four
	exchangeShare = 0.13
	rateShare     = 0.02
)

const (
	pingSize  = wire.MinExchange
	pingPause = 5 * time.Millisecond
	pingSlow  = 100 * time.Millisecond
	binWidth  = 100 * time.Millisecond
	// Message size and connections for the rate of requests.
	rateSize, rateConns = 2048, 4
)

// Options configure a probe.
type Options struct {
	Time    time.Duration               // of the whole probe, at most MaxTime
	Streams func(rtt time.Duration) int // number of streams of the flows with several
	Most    int64                       // most bytes to move
	Begun   time.Time                   // when the client began to connect; zero is the start of Run
	// MTU limits the segments of streams until the path MTU is known; 0 is no limit.
	MTU   int
	Stage func(string) // called when a stage begins; may be nil
	// Requests measures requests and replies only, but in all ways.
	Requests bool
	Think    time.Duration // between a reply and the next request
	Ways     bool          // the server can set TCP_CORK and takes connections without TLS; older ones ignore or refuse that
	// Plain opens a connection without TLS to the server; nil if there is none.
	Plain func(ctx context.Context) (*net.TCPConn, error)
}

// Dial opens a data stream of the probe's session. path is what is known of the path by then.
type Dial func(ctx context.Context, path transport.Path) (Conn, error)

// prober is a running probe.
type prober struct {
	dial   Dial
	opt    Options
	start  time.Time
	report *Report
	rtt    time.Duration // the least so far
	crawls bool          // a handshake of some KB takes much longer than its round trips
	mtu    int           // limit for segments, if TCP can't find the MTU itself; 0 is none

	mu     sync.Mutex // guards what follows
	pings  []ping
	series []Point
}

type ping struct{ at, rtt time.Duration }

// extraTime is how much longer than Options.Time a probe of a slow path may take.
const extraTime = 2500 * time.Millisecond

// errOver says that a probe has had its time.
var errOver = errors.New("out of time")

// Run probes the path. It takes Options.Time since Options.Begun, or up to extraTime more on a slow
// path. It returns a Report or an error. The report's Notes say what could not be measured.
func Run(caller context.Context, dial Dial, opt Options) (*Report, error) {
	spent := time.Duration(0)
	if !opt.Begun.IsZero() {
		spent = min(time.Since(opt.Begun), opt.Time)
	}
	ctx, cancel := context.WithTimeoutCause(caller, opt.Time+extraTime-spent, errOver)
	defer cancel()
	p := newProber(dial, opt)
	if p.opt.Stage == nil {
		p.opt.Stage = func(string) {}
	}
	if err := p.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	// The deadline of a connection passes a moment before that of its context.
	if deadline, ok := caller.Deadline(); caller.Err() != nil || ok && !time.Now().Before(deadline) {
		return nil, cmp.Or(context.Cause(caller), context.DeadlineExceeded)
	}
	return p.report, nil
}

func newProber(dial Dial, opt Options) *prober {
	p := &prober{opt: opt, mtu: opt.MTU, start: time.Now(), report: &Report{}}
	p.dial = func(ctx context.Context, path transport.Path) (Conn, error) {
		path.MTU = p.mtu
		c, err := dial(ctx, path)
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(deadline)
		}
		return &streamConn{c, context.AfterFunc(ctx, func() { _ = c.Close() })}, nil
	}
	return p
}

// streamConn is a data stream that closes when its context is done.
type streamConn struct {
	Conn
	unhook func() bool
}

func (c *streamConn) Close() error {
	c.unhook()
	return c.Conn.Close()
}

func (p *prober) share(of float64) time.Duration {
	return time.Duration(of * float64(p.opt.Time))
}

// run measures, as far as the time suffices.
func (p *prober) run(ctx context.Context) error {
	err := p.measure(ctx)
	if err != nil && over(ctx) {
		p.report.Notes = append(p.report.Notes, "the path is too slow to measure anything in this time: connecting took most of it")
		err = nil
	}
	p.plot()
	r := p.report
	r.Stall = Stalled(r.Exchanges, r.Idle.Median)
	r.Duration = time.Since(p.start).Seconds()
	r.Verdicts = Judge(r)
	return err
}

// measure runs the stages. It fails when it has no round trips, or for another reason than the time.
func (p *prober) measure(ctx context.Context) error {
	p.opt.Stage("round trips")
	pings, err := p.dial(ctx, transport.Path{})
	if err != nil {
		return err
	}
	dialled := time.Since(p.start)
	if a, ok := pings.RemoteAddr().(interface{ AddrPort() netip.AddrPort }); ok {
		p.report.Loopback = a.AddrPort().Addr().Unmap().IsLoopback()
	}
	stop, err := p.ping(pings)
	if err != nil {
		return err
	}
	defer func() { _ = stop() }() // again after an error
	if err := p.idle(ctx, p.share(idleShare)); err != nil {
		return err
	}
	p.facts(pings)
	p.crawls = dialled > 3*p.rtt+crawl
	type stage struct {
		name string
		run  func(context.Context) error
	}
	stages := []stage{{"the path MTU", p.findMTU}, {"goodput", p.flows}}
	if p.opt.Requests {
		stages = nil
	}
	stages = append(stages, stage{"request and reply", func(ctx context.Context) error {
		if err := stop(); err != nil {
			return err
		}
		p.opt.Stage("request and reply")
		return p.exchanges(ctx)
	}}, stage{"requests a second", p.rate})
	for i, stage := range stages {
		if err := stage.run(ctx); err == nil {
			continue
		} else if !over(ctx) {
			return err
		}
		left := make([]string, 0, len(stages))
		for _, s := range stages[i:] {
			left = append(left, s.name)
		}
		p.report.Notes = append(p.report.Notes, "the path is too slow to measure all in this time: nothing, or not all, of "+strings.Join(left, ", "))
		break
	}
	return nil
}

// over reports whether a probe has had its time. The deadline of a connection passes a moment
// before that of its context.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return errors.Is(context.Cause(ctx), errOver) || ctx.Err() == nil && ok && !time.Now().Before(deadline)
}

// crawl is how much longer than its round trips a handshake takes on a line of about 30 kbit/s.
const crawl = time.Second

const (
	// idleLeast is how many pings an idle path takes at the least, in idleMost at the most.
	idleLeast = 3
	idleMost  = 6 * time.Second
)

// idle measures round trips without load, for a time or until there are enough.
func (p *prober) idle(ctx context.Context, wait time.Duration) error {
	for begin := time.Now(); ; wait = pingPause {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		p.report.Idle = p.rttBetween(0, time.Since(p.start))
		if passed := time.Since(begin); p.report.Idle.Count >= idleLeast || passed >= idleMost {
			break
		}
	}
	if p.report.Idle.Count == 0 {
		return fmt.Errorf("no answer within %v: %w", idleMost, context.DeadlineExceeded)
	}
	p.rtt = seconds(p.report.Idle.Min)
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// ping measures round trips on a connection of its own, c, until stop is called, which closes it.
// stop returns the error, if any.
func (p *prober) ping(c Conn) (stop func() error, err error) {
	x, err := newExchanger(c, wire.Test{Kind: wire.Exchange, Size: pingSize, NoDelay: true, Time: wire.MaxTestTime}, true, false)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	ended := make(chan struct{})
	var over atomic.Bool
	var failed error
	go func() {
		defer close(ended)
		for first := true; !over.Load(); first = false {
			at := time.Since(p.start)
			sent, waited, err := x.once(false)
			rtt := sent + waited
			if err != nil {
				if !over.Load() {
					failed = fmt.Errorf("ping: %w", err)
				}
				return
			}
			if first { // includes the time to join the stream
				continue
			}
			p.mu.Lock()
			p.pings = append(p.pings, ping{at, rtt})
			p.mu.Unlock()
			time.Sleep(max(pingPause, rtt-pingSlow)) // pings must not fill a narrow line
		}
	}()
	return sync.OnceValue(func() error {
		over.Store(true)
		p.facts(c)
		_ = c.Close()
		<-ended
		return failed
	}), nil
}

// facts records what the handshake negotiated.
func (p *prober) facts(c Conn) {
	i, ok := c.Info()
	if !ok || i.SndMSS == 0 { // it is closed
		return
	}
	p.report.Idle.Kernel = i.MinRTT.Seconds()
	p.report.TCP = TCP{
		WindowScaling: i.WindowScaling, SndScale: i.SndScale, RcvScale: i.RcvScale, SACK: i.SACK, Timestamps: i.Timestamps, ECN: i.ECN,
		SndMSS: i.SndMSS, RcvMSS: i.AdvMSS, PMTU: i.PMTU, Congestion: i.Congestion,
	}
}

// rttBetween summarizes the pings that began in a span of the probe.
func (p *prober) rttBetween(from, to time.Duration) RTT {
	p.mu.Lock()
	defer p.mu.Unlock()
	var samples []time.Duration
	for _, x := range p.pings {
		if x.at >= from && x.at < to {
			samples = append(samples, x.rtt)
		}
	}
	return rttOf(samples)
}

// findMTU finds the path MTU, or notes why it can't. After it finds a black hole, later streams
// limit the size of their segments. It fails only when the probe has had its time.
func (p *prober) findMTU(ctx context.Context) error {
	if p.crawls {
		p.report.Notes = append(p.report.Notes, "no path MTU by datagrams: the line is too narrow")
		return nil
	}
	p.opt.Stage("path MTU")
	probe := ctx
	ctx, cancel := context.WithTimeout(ctx, p.share(soundShare)+20*p.rtt)
	defer cancel()
	c, err := p.dial(ctx, transport.Path{RTT: p.rtt})
	var up, down PathMTU
	var believed int
	if err == nil {
		defer c.Close()
		if i, ok := c.Info(); ok {
			believed = i.PMTU
		}
		up, down, err = sound(ctx, c, p.rtt)
	}
	if err != nil {
		p.report.Notes = append(p.report.Notes, fmt.Sprintf("no path MTU by datagrams: %v", cause(ctx, err)))
	}
	for _, m := range []*PathMTU{&up, &down} {
		if !m.Measured {
			*m = PathMTU{Direction: m.Direction}
		}
	}
	up.Direction, down.Direction = Up, Down
	if !up.Measured {
		up.MTU = believed
	}
	p.report.MTU = []PathMTU{up, down}
	if up.Measured {
		p.mtu = 0
	}
	if up.BlackHole || down.BlackHole {
		p.mtu = down.MTU
		if up.Measured && (p.mtu == 0 || up.MTU < p.mtu) {
			p.mtu = up.MTU
		}
		p.report.Notes = append(p.report.Notes, fmt.Sprintf("because of the black hole, goodput and replies were measured with packets of at most %d bytes", p.mtu))
	}
	if over(probe) {
		return errOver
	}
	return nil
}

func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("out of time")
	}
	return err
}

// narrow is the goodput in bit/s up to which one stream fills a path, so that several would only
// queue.
const narrow = 2e6

// flows measures goodput up and down, with one stream and with several.
func (p *prober) flows(ctx context.Context) error {
	counts := slices.Compact([]int{1, p.opt.Streams(p.rtt)})
	for _, n := range counts {
		if n > 1 && Narrow(p.report.Flows) {
			p.report.Notes = append(p.report.Notes, "one stream fills this narrow line: several were not measured")
			break
		}
		for _, d := range []Direction{Up, Down} {
			p.opt.Stage(fmt.Sprintf("goodput %s, streams: %d", d, n))
			f, err := p.flow(ctx, d, n, p.share(flowShare*2/float64(len(counts))), p.opt.Most/int64(2*len(counts)*n))
			if over(ctx) && f == nil {
				return errOver
			}
			if err != nil {
				return fmt.Errorf("goodput %s: %w", d, err)
			}
			p.report.Flows = append(p.report.Flows, *f)
		}
	}
	r := p.report
	for i := range r.Flows {
		f := &r.Flows[i]
		if f.Streams == r.Flows[len(r.Flows)-1].Streams && f.RTT.Median > r.Loaded.Median {
			r.Loaded = f.RTT
		}
	}
	if r.Loaded.Count > 0 {
		r.Bloat = max(0, r.Loaded.Median-r.Idle.Median)
		r.Grade = GradeOf(seconds(r.Bloat))
	}
	return nil
}

// Narrow reports whether flows were measured, and none was faster than a narrow line.
func Narrow(flows []Flow) bool {
	return len(flows) > 0 && !slices.ContainsFunc(flows, func(f Flow) bool { return f.Goodput > narrow })
}

// tick is what a stream had received at a time since its start.
type tick struct {
	at    time.Duration
	bytes int64
}

// stream is one stream of a flow, with the results of both ends.
type stream struct {
	ticks          []tick
	sender, target flowEnd
}

func (p *prober) flow(ctx context.Context, d Direction, n int, within time.Duration, most int64) (*Flow, error) {
	conns := make([]Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	dials, dialCtx := errgroup.WithContext(ctx)
	for i := range conns {
		dials.Go(func() (err error) {
			// The streams use this context because the group's would end with the group.
			if conns[i], err = p.dial(ctx, transport.Path{RTT: p.rtt, Streams: n}); err != nil {
				return err
			}
			return dialCtx.Err()
		})
	}
	if err := dials.Wait(); err != nil {
		return nil, err
	}
	streams := make([]stream, n)
	begin := time.Since(p.start)
	before := carried(conns, d)
	var got atomic.Int64
	ctx, cancel := context.WithTimeout(ctx, within+drainTime+20*p.rtt)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		got.Store(carried(conns, d) - before)
		for _, c := range conns {
			_ = c.Close()
		}
	})()
	var all errgroup.Group
	for i, c := range conns {
		all.Go(func() (err error) {
			if d == Up {
				streams[i], err = p.upload(c, within, most)
			} else {
				streams[i], err = p.download(c, within, most)
			}
			if err != nil { // the other streams would run for nothing
				for _, c := range conns {
					_ = c.Close()
				}
			}
			return err
		})
	}
	cut := false
	if err := all.Wait(); err != nil {
		late := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case !late:
			return nil, err
		case !moved(streams) && !p.crawls && got.Load() < leastCarried:
			return nil, errNothing
		}
		p.report.Notes = append(p.report.Notes, fmt.Sprintf("goodput %s, streams: %d: the path was too slow to end it in time, so it was cut short", d, n))
		cut = true
	}
	align(streams)
	p.draw(d, begin+p.rtt/2, streams)
	f := flowOf(d, streams, within, p.rtt)
	if cut { // data arrives in bunches, after losses
		f.Bytes = max(f.Bytes, got.Load())
		f.Goodput = 8 * float64(f.Bytes) / (time.Since(p.start) - begin).Seconds()
		f.BDP = int64(f.Goodput / 8 * p.rtt.Seconds())
	}
	// The queue needs time to fill, and pings while it drains do not count.
	f.RTT = p.rttBetween(begin+settle(within, p.rtt), begin+within)
	return f, nil
}

// drainTime is how long what is in flight may take at the end of a flow, besides round trips.
const drainTime = 2 * time.Second

// leastCarried is what large segments have to carry, in bytes, if no black hole swallows them.
const leastCarried = 16 << 10

// carried is what the kernels have acknowledged or received on all connections, in bytes.
func carried(conns []Conn, d Direction) (bytes int64) {
	for _, c := range conns {
		if i, ok := c.Info(); ok && d == Up {
			bytes += int64(i.BytesAcked)
		} else if ok {
			bytes += int64(i.BytesReceived)
		}
	}
	return bytes
}

// moved reports whether data arrived for a while on each stream.
func moved(streams []stream) bool {
	return !slices.ContainsFunc(streams, func(s stream) bool { return len(s.ticks) < 3 })
}

// errNothing describes a path that large segments don't pass.
var errNothing = errors.New("data does not arrive in time, while small messages pass: an MTU black hole, or a path that is far too slow")

// align makes the ticks of all streams count from the earliest start.
func align(streams []stream) {
	first := time.Duration(math.MaxInt64)
	for i := range streams {
		if len(streams[i].ticks) > 0 {
			first = min(first, streams[i].ticks[0].at)
		}
	}
	for i := range streams {
		for k := range streams[i].ticks {
			streams[i].ticks[k].at -= first
		}
	}
}

func (p *prober) upload(c Conn, within time.Duration, most int64) (s stream, err error) {
	if _, err := c.Write(wire.Append(nil, &wire.Test{Kind: wire.Upload, Time: uint64(within.Milliseconds())})); err != nil {
		return s, err
	}
	var reports errgroup.Group
	reports.Go(func() error { return s.follow(c, nil) })
	var failed error
	if s.sender, _, failed = sendFlow(c, within, most); failed != nil {
		_ = c.Close()
	}
	err = reports.Wait()
	if failed != nil && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = failed
	}
	return s, err
}

// follow reads what the server reports of an upload, until its end. It calls got, unless that is nil,
// with the bytes that have arrived since the last report.
func (s *stream) follow(c Conn, got func(bytes int64)) error {
	r := wire.NewReader(c, wire.MaxFirstMessage)
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		sample, ok := m.(*wire.Sample)
		if !ok {
			return refusal(m)
		}
		var t tick
		for _, v := range sample.Values {
			switch v.Name {
			case "bytes":
				t.bytes = max(0, v.Value)
			case "ns":
				t.at = time.Duration(max(0, v.Value))
			case "end":
				s.target = endOf(sample.Values)
				return nil
			}
		}
		before := s.received()
		if !s.add(t) {
			return wire.Errorf(wire.CodeProtocol, "the server counts what cannot be")
		}
		if got != nil {
			got(t.bytes - before)
		}
	}
}

// received is what the server has received so far, in bytes.
func (s *stream) received() int64 {
	if n := len(s.ticks); n > 0 {
		return s.ticks[n-1].bytes
	}
	return 0
}

const (
	// maxTicks limits the ticks that a server may send for a stream.
	maxTicks = 10_000
	// maxCount bounds what a peer counts: the sum for all streams is a number still.
	maxCount = 1 << 50
)

// add records a tick. It rejects a tick that is impossible.
func (s *stream) add(t tick) bool {
	if n := len(s.ticks); n >= maxTicks || t.at > 2*MaxTime || t.bytes > maxCount || n > 0 && (t.at < s.ticks[n-1].at || t.bytes < s.ticks[n-1].bytes) {
		return false
	}
	s.ticks = append(s.ticks, t)
	return true
}

func (p *prober) download(c Conn, within time.Duration, most int64) (s stream, err error) {
	if _, err := c.Write(wire.Append(nil, &wire.Test{Kind: wire.Download, Size: uint64(max(most, 1)), Time: uint64(within.Milliseconds())})); err != nil {
		return s, err
	}
	var bound atomic.Int64
	bound.Store(most + 2*wire.FlowBlock)
	s.target, err = receiveFlow(c, &bound, p.start, func(bytes int64, at time.Duration) error {
		s.add(tick{at, bytes})
		return nil
	})
	if err != nil {
		return s, err
	}
	m, err := wire.NewReader(c, wire.MaxFirstMessage).Next()
	if err != nil {
		return s, err
	}
	sample, ok := m.(*wire.Sample)
	if !ok {
		return s, refusal(m)
	}
	s.sender = endOf(sample.Values)
	return s, nil
}

// settle is the time at the start of a flow that does not count: slow start takes some round
// trips.
func settle(within, rtt time.Duration) time.Duration {
	return min(max(time.Second, 25*rtt), within*2/5)
}

// at is what a stream had received at time t, interpolated between ticks.
func (s *stream) at(t time.Duration) float64 {
	var before tick
	for _, x := range s.ticks {
		if x.at >= t {
			if x.at == before.at || x.bytes == 0 {
				return float64(x.bytes)
			}
			return float64(before.bytes) + float64(x.bytes-before.bytes)*float64(t-before.at)/float64(x.at-before.at)
		}
		before = x
	}
	return float64(before.bytes)
}

// goodput is what all aligned streams received in bit/s, after slow start and before the first
// sender ended.
func goodput(streams []stream, within, rtt time.Duration) float64 {
	var last time.Duration
	for i := range streams {
		if n := len(streams[i].ticks); n > 0 {
			last = max(last, streams[i].ticks[n-1].at)
		}
	}
	from, to := settle(within, rtt), min(within, last)
	if to-from < within/4 { // it ended early, for example at the limit of bytes
		from, to = 0, last
	}
	if to <= from {
		return 0
	}
	var bytes float64
	for i := range streams {
		bytes += streams[i].at(to) - streams[i].at(from)
	}
	return 8 * bytes / (to - from).Seconds()
}

// flowOf sums up the streams of a flow.
func flowOf(d Direction, streams []stream, within, rtt time.Duration) *Flow {
	f := &Flow{Direction: d, Streams: len(streams), Goodput: goodput(streams, within, rtt)}
	var early transport.Info
	for i := range streams {
		s := &streams[i]
		if n := len(s.ticks); n > 0 {
			f.Bytes += s.ticks[n-1].bytes
			f.Duration = max(f.Duration, s.ticks[n-1].at.Seconds())
		}
		info := &s.sender.info
		f.Segments += int64(info.DataSegs)
		f.Retransmitted += int64(info.RetransSegs)
		early.DataSegs += s.sender.early.DataSegs
		early.RetransSegs += s.sender.early.RetransSegs
		if info.BusyTime > 0 {
			f.RwndLimited = max(f.RwndLimited, min(1, info.RwndLimited.Seconds()/info.BusyTime.Seconds()))
			f.SndbufLimited = max(f.SndbufLimited, min(1, info.SndbufLimited.Seconds()/info.BusyTime.Seconds()))
		}
		f.SndWnd, f.Cwnd = max(f.SndWnd, int64(s.sender.sndWnd)), max(f.Cwnd, int64(s.sender.cwnd))
		f.SndBuf, f.RcvBuf = max(f.SndBuf, int64(info.SndBuf)), max(f.RcvBuf, int64(s.target.info.RcvBuf))
		if m := info.MinRTT.Seconds(); m > 0 && (f.MinRTT == 0 || m < f.MinRTT) {
			f.MinRTT = m
		}
		f.Congestion = info.Congestion
		f.SenderCPU, f.ReceiverCPU = max(f.SenderCPU, s.sender.cpu), max(f.ReceiverCPU, s.target.cpu)
	}
	if segments := f.Segments - int64(early.DataSegs); segments > 0 {
		f.Loss = min(1, max(0, float64(f.Retransmitted-int64(early.RetransSegs))/float64(segments)))
	}
	f.BDP = int64(f.Goodput / 8 * rtt.Seconds())
	return f
}

// draw adds what the streams received to the series. begin is their start, measured from the
// start of the probe.
func (p *prober) draw(d Direction, begin time.Duration, streams []stream) {
	for i := range streams {
		var before tick
		for _, t := range streams[i].ticks {
			p.spread(d, begin+before.at, begin+t.at, t.bytes-before.bytes)
			before = t
		}
	}
}

// spread distributes bytes that arrived in a span over the bins of the series.
func (p *prober) spread(d Direction, from, to time.Duration, bytes int64) {
	if to <= from {
		return
	}
	for at := from.Truncate(binWidth); at < to; at += binWidth {
		part := min(to, at+binWidth) - max(from, at)
		rate := 8 * float64(bytes) * float64(part) / float64(to-from) / binWidth.Seconds()
		x := p.point(int(at / binWidth))
		if d == Up {
			x.Up += rate
		} else {
			x.Down += rate
		}
	}
}

func (p *prober) point(bin int) *Point {
	for len(p.series) <= bin {
		p.series = append(p.series, Point{At: (time.Duration(len(p.series)) * binWidth).Seconds()})
	}
	return &p.series[bin]
}

// plot adds the round trips to the series.
func (p *prober) plot() {
	p.mu.Lock()
	defer p.mu.Unlock()
	bins := make(map[int][]time.Duration)
	for _, x := range p.pings {
		i := int(x.at / binWidth)
		bins[i] = append(bins[i], x.rtt)
	}
	for i, samples := range bins {
		p.point(i).RTT = rttOf(samples).Median
	}
	p.report.Series = p.series
}

// rate counts requests and replies on a few connections at a time.
func (p *prober) rate(ctx context.Context) error {
	within := max(p.share(rateShare), 3*p.rtt)
	var count atomic.Int64
	var all errgroup.Group
	ready, begin := make(chan struct{}, rateConns), make(chan struct{})
	var end time.Time
	for range rateConns {
		all.Go(func() error {
			joined := false
			defer func() {
				if !joined {
					ready <- struct{}{}
				}
			}()
			test := wire.Test{Kind: wire.Exchange, Size: rateSize, NoDelay: true, Time: uint64(2 * within.Milliseconds())}
			return p.withExchanger(ctx, test, func(x *exchanger) error {
				if _, _, err := x.once(false); err != nil {
					return err
				}
				joined = true
				ready <- struct{}{}
				<-begin
				for time.Now().Before(end) {
					if _, _, err := x.once(false); err != nil {
						return err
					}
					count.Add(1)
				}
				return nil
			})
		})
	}
	for range rateConns {
		<-ready
	}
	start := time.Now()
	end = start.Add(within)
	close(begin)
	err := all.Wait()
	if ended(ctx, err) {
		return err
	}
	if err != nil {
		p.report.Notes = append(p.report.Notes, "the path is too slow to count requests")
	}
	p.report.Rate = Throughput{Size: rateSize, Connections: rateConns, PerSecond: float64(count.Load()) / time.Since(start).Seconds()}
	return nil
}
