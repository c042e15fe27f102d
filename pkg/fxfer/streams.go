package fxfer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transport"
)

// streamSet is the data streams of one session on this host, with what the kernel says of them.
type streamSet struct {
	in      *pace.Flow                // of what they read; nil is unlimited
	out     *pace.Flow                // of what they write
	removed func(lived time.Duration) // called when a stream is gone; one that was retired is longLived

	mu    sync.Mutex
	conns map[uint64]*dataStream
	most  int
	gone  pathStats     // of streams that ended
	past  streamSums    // of them, what runs from their start
	held  time.Duration // by the rate limit, of them
}

// pathStats sums up what TCP_INFO says of some streams.
type pathStats struct {
	minRTT     time.Duration
	sndBuf     int
	rcvBuf     int
	retrans    int64
	congestion string
}

func (p *pathStats) add(i *transport.Info) {
	rtt := i.MinRTT
	if rtt == 0 {
		rtt = i.RTT
	}
	if rtt > 0 && (p.minRTT == 0 || rtt < p.minRTT) {
		p.minRTT = rtt
	}
	p.sndBuf = max(p.sndBuf, i.SndBuf)
	p.rcvBuf = max(p.rcvBuf, i.RcvBuf)
	p.retrans += int64(i.RetransSegs)
	if i.Congestion != "" {
		p.congestion = i.Congestion
	}
}

// newStreamSet makes a set whose streams read and write within what the flows let through; an in of nil is unlimited.
func newStreamSet(in, out *pace.Flow) *streamSet {
	return &streamSet{in: in, out: out, conns: make(map[uint64]*dataStream)}
}

// add wraps a connected, joined stream. It returns nil if the number is taken or there are most already.
func (s *streamSet) add(id uint64, c transport.Conn, most int) *dataStream {
	d := &dataStream{Conn: c, set: s, id: id, since: time.Now()}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[id] != nil || len(s.conns) >= most {
		d.cancel()
		return nil
	}
	s.conns[id] = d
	s.most = max(s.most, s.countLocked())
	return d
}

// drop closes a stream that the peer gave up.
func (s *streamSet) drop(id uint64) {
	s.mu.Lock()
	d := s.conns[id]
	s.mu.Unlock()
	if d != nil {
		_ = d.Close()
	}
}

// peak is the most streams there were at a time.
func (s *streamSet) peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// count is how many are open and not retired.
func (s *streamSet) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked()
}

func (s *streamSet) countLocked() int {
	n := 0
	for _, d := range s.conns {
		if !d.retired.Load() {
			n++
		}
	}
	return n
}

// streams returns those that are open.
func (s *streamSet) streams() []*dataStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.conns))
}

// beyond returns the streams that are more than most, those that came last, without those that are retired.
func (s *streamSet) beyond(most int) []*dataStream {
	live := slices.DeleteFunc(s.streams(), func(d *dataStream) bool { return d.retired.Load() })
	slices.SortFunc(live, func(a, b *dataStream) int { return cmp.Compare(a.id, b.id) })
	return live[min(most, len(live)):]
}

// infos asks the kernel about each stream that is not retired.
func (s *streamSet) infos() map[uint64]transport.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := s.infosLocked()
	for id := range infos {
		if s.conns[id].retired.Load() {
			delete(infos, id)
		}
	}
	return infos
}

// retire takes a stream out of count, that the peer wants to be carried by others.
func (s *streamSet) retire(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.conns[id]; d != nil {
		d.retired.Store(true)
	}
}

func (s *streamSet) infosLocked() map[uint64]transport.Info {
	infos := make(map[uint64]transport.Info, len(s.conns))
	for id, c := range s.conns {
		if i, ok := c.Info(); ok {
			infos[id] = i
		}
	}
	return infos
}

// stats sums up all streams, those that ended included.
func (s *streamSet) stats() pathStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.gone
	for _, i := range s.infosLocked() {
		p.add(&i)
	}
	return p
}

// longLived is the life of a stream that was not refused.
const longLived = time.Hour

// dataStream is a transport.Conn of a set.
type dataStream struct {
	transport.Conn
	set     *streamSet
	id      uint64
	since   time.Time
	retired atomic.Bool // another one takes its place
	once    sync.Once
	ctx     context.Context
	cancel  context.CancelFunc

	gauge sync.Mutex
	began time.Time     // of the write under way, zero if there is none
	spent time.Duration // in writes that returned
	wrote int64         // by them, bytes
	held  time.Duration // by the rate limit
	waits time.Time     // since when it holds a write back, zero if it does not
}

// writing takes note of a write, until the func it returns is called with what was written.
func (d *dataStream) writing() func(n int) {
	began := time.Now()
	d.gauge.Lock()
	d.began = began
	d.gauge.Unlock()
	return func(n int) {
		d.gauge.Lock()
		defer d.gauge.Unlock()
		d.began = time.Time{}
		d.spent += time.Since(began)
		d.wrote += int64(n)
	}
}

// load returns the time spent in writes until now, the one under way included, and what those that returned have written.
func (d *dataStream) load(now time.Time) (spent time.Duration, wrote int64) {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	spent = d.spent
	if !d.began.IsZero() {
		spent += max(0, now.Sub(d.began))
	}
	return spent, d.wrote
}

// WriteBuffers writes both in one go where no rate limit asks for small steps.
func (d *dataStream) WriteBuffers(header, payload []byte) (int, error) {
	if !d.set.out.Limited() {
		done := d.writing()
		n, err := d.Conn.WriteBuffers(header, payload)
		done(n)
		return n, err
	}
	n, err := d.Write(header)
	if err != nil {
		return n, err
	}
	m, err := d.Write(payload)
	return n + m, err
}

// Write implements io.Writer, within the rate limit.
func (d *dataStream) Write(p []byte) (sent int, err error) {
	done := d.writing()
	defer func() { done(sent) }()
	for sent < len(p) && d.set.out.Limited() {
		part := p[sent:][:min(len(p)-sent, d.set.out.Step())]
		if err := d.wait(d.set.out, len(part)); err != nil {
			return sent, err
		}
		n, err := d.Conn.Write(part)
		sent += n
		if err != nil {
			return sent, err
		}
	}
	if sent == len(p) {
		return sent, nil
	}
	n, err := d.Conn.Write(p[sent:])
	return sent + n, err
}

// Read implements io.Reader, within the rate limit.
func (d *dataStream) Read(p []byte) (int, error) {
	in := d.set.in
	if in == nil || !in.Limited() {
		return d.Conn.Read(p)
	}
	n, err := d.Conn.Read(p[:min(len(p), in.Step())])
	_ = d.wait(in, n) // fails only when the stream is closed, which the next call tells
	return n, err
}

// wait waits until n bytes may pass within the rate limit.
func (d *dataStream) wait(flow *pace.Flow, n int) error {
	began := time.Now()
	d.gauge.Lock()
	d.waits = began
	d.gauge.Unlock()
	err := flow.Wait(d.ctx, n)
	d.gauge.Lock()
	defer d.gauge.Unlock()
	d.waits = time.Time{}
	d.held += time.Since(began)
	return err
}

// waited is how long the rate limit has held the stream back until now.
func (d *dataStream) waited(now time.Time) time.Duration {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if d.waits.IsZero() {
		return d.held
	}
	return d.held + max(0, now.Sub(d.waits))
}

// waiting tells which streams the rate limit holds back now.
func (s *streamSet) waiting() map[uint64]bool {
	held := make(map[uint64]bool)
	for _, d := range s.streams() {
		d.gauge.Lock()
		if !d.waits.IsZero() {
			held[d.id] = true
		}
		d.gauge.Unlock()
	}
	return held
}

// rateWait is the same of all streams.
func (s *streamSet) rateWait(now time.Time) time.Duration {
	s.mu.Lock()
	sum := s.held
	s.mu.Unlock()
	for _, d := range s.streams() {
		sum += d.waited(now)
	}
	return sum
}

// Close takes a last look at the kernel's figures.
func (d *dataStream) Close() error {
	d.once.Do(func() {
		d.cancel()
		d.set.mu.Lock()
		if info, ok := d.Info(); ok {
			d.set.gone.add(&info)
			d.set.past.counters(&info)
		}
		d.set.held += d.waited(time.Now())
		delete(d.set.conns, d.id)
		d.set.mu.Unlock()
		if d.set.removed != nil {
			lived := time.Since(d.since)
			if d.retired.Load() {
				lived = longLived
			}
			d.set.removed(lived)
		}
	})
	return d.Conn.Close()
}
