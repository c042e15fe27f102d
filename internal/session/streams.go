package session

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

// StreamSet is the data streams of one session on this host, with what the kernel says of them.
type StreamSet struct {
	in      *pace.Queue               // of what they read; nil is unlimited
	out     *pace.Queue               // of what they write
	Removed func(lived time.Duration) // called when a stream is gone; one that was retired is longLived

	mu    sync.Mutex
	conns map[uint64]*DataStream
	most  int
	gone  PathStats     // of streams that ended
	past  streamSums    // of them, what runs from their start
	held  time.Duration // by the rate limit, of them
}

// PathStats sums up what TCP_INFO says of some streams.
type PathStats struct {
	MinRTT     time.Duration
	SndBuf     int
	RcvBuf     int
	Retrans    int64
	Congestion string
}

func (p *PathStats) add(i *transport.Info) {
	rtt := i.MinRTT
	if rtt == 0 {
		rtt = i.RTT
	}
	if rtt > 0 && (p.MinRTT == 0 || rtt < p.MinRTT) {
		p.MinRTT = rtt
	}
	p.SndBuf = max(p.SndBuf, i.SndBuf)
	p.RcvBuf = max(p.RcvBuf, i.RcvBuf)
	p.Retrans += int64(i.RetransSegs)
	if i.Congestion != "" {
		p.Congestion = i.Congestion
	}
}

// NewStreamSet makes a set whose streams read and write within what the flows let through; an in of nil is unlimited.
func NewStreamSet(in, out *pace.Queue) *StreamSet {
	return &StreamSet{in: in, out: out, conns: make(map[uint64]*DataStream)}
}

// Add wraps a connected, joined stream. It returns nil if the number is taken or there are most already.
func (s *StreamSet) Add(id uint64, c transport.Conn, most int) *DataStream {
	d := &DataStream{Conn: c, set: s, ID: id, since: time.Now()}
	d.Context, d.cancel = context.WithCancel(context.Background())
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

// Drop closes a stream that the peer gave up.
func (s *StreamSet) Drop(id uint64) {
	s.mu.Lock()
	d := s.conns[id]
	s.mu.Unlock()
	if d != nil {
		_ = d.Close()
	}
}

// Peak is the most streams there were at a time.
func (s *StreamSet) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Count is how many are open and not retired.
func (s *StreamSet) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked()
}

func (s *StreamSet) countLocked() int {
	n := 0
	for _, d := range s.conns {
		if !d.Retired.Load() {
			n++
		}
	}
	return n
}

// Streams returns those that are open.
func (s *StreamSet) Streams() []*DataStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.conns))
}

// Find returns the open stream with a number, nil if there is none.
func (s *StreamSet) Find(id uint64) *DataStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// Beyond returns the streams that are more than most, those that came last, without those that are retired.
func (s *StreamSet) Beyond(most int) []*DataStream {
	live := slices.DeleteFunc(s.Streams(), func(d *DataStream) bool { return d.Retired.Load() })
	slices.SortFunc(live, func(a, b *DataStream) int { return cmp.Compare(a.ID, b.ID) })
	return live[min(most, len(live)):]
}

// infos asks the kernel about each stream that is not retired.
func (s *StreamSet) infos() map[uint64]transport.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := s.infosLocked()
	for id := range infos {
		if s.conns[id].Retired.Load() {
			delete(infos, id)
		}
	}
	return infos
}

// Retire takes a stream out of count, that the peer wants to be carried by others.
func (s *StreamSet) Retire(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.conns[id]; d != nil {
		d.Retired.Store(true)
	}
}

func (s *StreamSet) infosLocked() map[uint64]transport.Info {
	infos := make(map[uint64]transport.Info, len(s.conns))
	for id, c := range s.conns {
		if i, ok := c.Info(); ok {
			infos[id] = i
		}
	}
	return infos
}

// Stats sums up all streams, those that ended included.
func (s *StreamSet) Stats() PathStats {
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

// DataStream is a transport.Conn of a set.
type DataStream struct {
	transport.Conn
	set     *StreamSet
	ID      uint64
	since   time.Time
	Retired atomic.Bool // another one takes its place
	once    sync.Once
	Context context.Context
	cancel  context.CancelFunc

	gauge sync.Mutex
	began time.Time     // of the write under way, zero if there is none
	spent time.Duration // in writes that returned
	wrote int64         // by them, bytes
	held  time.Duration // by the rate limit
	waits time.Time     // since when it holds a write back, zero if it does not
}

// writing takes note of a write, until the func it returns is called with what was written.
func (d *DataStream) writing() func(n int) {
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
func (d *DataStream) load(now time.Time) (spent time.Duration, wrote int64) {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	spent = d.spent
	if !d.began.IsZero() {
		spent += max(0, now.Sub(d.began))
	}
	return spent, d.wrote
}

// Write implements io.Writer, within the rate limit.
func (d *DataStream) Write(p []byte) (int, error) {
	return d.write(nil, p, func(_, part []byte) (int, error) { return d.Conn.Write(part) })
}

// WriteBuffers writes header and payload as one message, within the rate limit: the header always
// leaves with the first part of the payload. The contract of transport.Conn applies to payload.
func (d *DataStream) WriteBuffers(header, payload []byte) (int, error) {
	return d.write(header, payload, d.Conn.WriteBuffers)
}

// write writes in one step, or within a rate limit in steps that each wait for their turn.
func (d *DataStream) write(header, payload []byte, write func(header, part []byte) (int, error)) (sent int, err error) {
	done := d.writing()
	defer func() { done(sent) }()
	for len(header)+len(payload) > 0 {
		part := payload
		if out := d.set.out; out.Limited() {
			part = payload[:min(len(payload), max(0, out.Step()-len(header)))]
			if err := d.wait(out, len(header)+len(part)); err != nil {
				return sent, err
			}
		}
		n, err := write(header, part)
		sent += n
		if err != nil {
			return sent, err
		}
		header, payload = nil, payload[len(part):]
	}
	return sent, nil
}

// Read implements io.Reader, within the rate limit.
func (d *DataStream) Read(p []byte) (int, error) {
	in := d.set.in
	if in == nil || !in.Limited() {
		return d.Conn.Read(p)
	}
	n, err := d.Conn.Read(p[:min(len(p), in.Step())])
	_ = d.wait(in, n) // fails only when the stream is closed, which the next call tells
	return n, err
}

// wait waits until n bytes may pass within the rate limit.
func (d *DataStream) wait(flow *pace.Queue, n int) error {
	began := time.Now()
	d.gauge.Lock()
	d.waits = began
	d.gauge.Unlock()
	err := flow.Wait(d.Context, n)
	d.gauge.Lock()
	defer d.gauge.Unlock()
	d.waits = time.Time{}
	d.held += time.Since(began)
	return err
}

// waited is how long the rate limit has held the stream back until now.
func (d *DataStream) waited(now time.Time) time.Duration {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if d.waits.IsZero() {
		return d.held
	}
	return d.held + max(0, now.Sub(d.waits))
}

// waiting tells which streams the rate limit holds back now.
func (s *StreamSet) waiting() map[uint64]bool {
	held := make(map[uint64]bool)
	for _, d := range s.Streams() {
		d.gauge.Lock()
		if !d.waits.IsZero() {
			held[d.ID] = true
		}
		d.gauge.Unlock()
	}
	return held
}

// rateWait is the same of all streams.
func (s *StreamSet) rateWait(now time.Time) time.Duration {
	s.mu.Lock()
	sum := s.held
	s.mu.Unlock()
	for _, d := range s.Streams() {
		sum += d.waited(now)
	}
	return sum
}

// Close takes a last look at the kernel's figures.
func (d *DataStream) Close() error {
	d.once.Do(func() {
		d.cancel()
		d.set.mu.Lock()
		if info, ok := d.Info(); ok {
			d.set.gone.add(&info)
			d.set.past.counters(&info)
		}
		d.set.held += d.waited(time.Now())
		delete(d.set.conns, d.ID)
		d.set.mu.Unlock()
		if d.set.Removed != nil {
			lived := time.Since(d.since)
			if d.Retired.Load() {
				lived = longLived
			}
			d.set.Removed(lived)
		}
	})
	return d.Conn.Close()
}
