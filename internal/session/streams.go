package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transport"
)

// StreamSet holds the data streams of one session on this host, paces them, and sums up what the
// kernel reports of them. Its methods are safe for concurrent use.
type StreamSet struct {
	in  *pace.Queue // paces what streams read; nil is unlimited
	out *pace.Queue // paces what streams write

	// Removed is called when a stream has been closed, with its age, or with an hour if it was
	// retired. It is set before the first stream is added; nil is allowed.
	Removed func(lived time.Duration)

	// Narrow returns the rate in bytes/s that a narrow line carries at least, and how many streams begin
	// on it; 0 where it is not narrow, and while nothing is known. It is set before the first stream is
	// added; nil knows nothing.
	Narrow func() (rate float64, streams int)
	// Carries returns the rate in bytes/s that the line carries at least, by the handshakes so far; 0 is
	// unknown. It is set before the first stream is added; nil knows nothing.
	Carries func() float64

	mu    sync.Mutex // guards what follows
	conns map[uint64]*DataStream
	most  int           // streams at a time so far
	gone  PathStats     // of streams that ended
	past  streamSums    // of them, what counts from their start
	held  time.Duration // by the rate limit, of them

	control *congestion.Stats // of the streams' controller; nil at the end that receives
}

// PathStats sums up what TCP_INFO reports of some streams.
type PathStats struct {
	MinRTT     time.Duration
	SndBuf     int   // largest, bytes as the kernel counts them
	RcvBuf     int   // largest
	Retrans    int64 // segments
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

// NewStreamSet makes a set whose streams read and write at the pace of two queues. in may be nil,
// which is unlimited.
func NewStreamSet(in, out *pace.Queue) *StreamSet {
	return &StreamSet{in: in, out: out, conns: make(map[uint64]*DataStream)}
}

// NarrowLine is a StreamSet's Narrow for what a peer says of the line: a rate in bytes/s that it carries at
// least, 0 is unknown. rtt is that of the line, and most is how many streams may begin.
func NarrowLine(rate uint64, rtt time.Duration, most int) func() (float64, int) {
	var start congestion.Start
	start.Connected(0, rtt)
	start.Delivered(float64(rate))
	streams := start.Streams(most)
	if rate == 0 || streams >= most {
		return nil
	}
	return func() (float64, int) { return float64(rate), streams }
}

// leastLine is the rate in bytes/s of the slowest line that is measured: 9.6 kbit/s. A session that begins with much
// less never gets anywhere, whether a peer says so or a host slept while it connected.
const leastLine = 9600.0 / 8

func (s *StreamSet) carries() float64 {
	if s == nil || s.Carries == nil {
		return 0
	}
	return s.Carries()
}

func (s *StreamSet) narrow() (rate float64, streams int) {
	if s == nil || s.Narrow == nil {
		return 0, 0
	}
	if rate, streams = s.Narrow(); rate > 0 {
		rate = max(rate, leastLine)
	}
	return rate, streams
}

// Add takes a connected stream that has joined the session. It returns nil, and leaves c open, if
// the number is taken or the set has most streams already.
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

// Drop closes a stream that the peer gave up. It does nothing if there is none of that number.
func (s *StreamSet) Drop(id uint64) {
	s.mu.Lock()
	d := s.conns[id]
	s.mu.Unlock()
	if d != nil {
		_ = d.Close()
	}
}

// Peak returns the largest number of streams there were at a time.
func (s *StreamSet) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Count returns the number of streams that are open and not retired.
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

// Streams returns the open streams, in no order.
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

// Beyond returns the streams that exceed a number of most, the newest. Retired streams do not
// count.
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

func (s *StreamSet) infosLocked() map[uint64]transport.Info {
	infos := make(map[uint64]transport.Info, len(s.conns))
	for id, c := range s.conns {
		if i, ok := c.Info(); ok {
			infos[id] = i
		}
	}
	return infos
}

// Stats sums up all streams, including those that ended.
func (s *StreamSet) Stats() PathStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.gone
	for _, i := range s.infosLocked() {
		p.add(&i)
	}
	return p
}

// Moved returns how many bytes of each open stream the peer's kernel has acknowledged, of an end that sends, or how
// many this end has read. A stream is missing if the system does not count what is acknowledged.
func (s *StreamSet) Moved(sends bool) map[uint64]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := make(map[uint64]int64, len(s.conns))
	for id, d := range s.conns {
		if !sends {
			moved[id] = d.received.Load()
		} else if i, ok := d.Info(); ok {
			moved[id] = int64(arrived(&i))
		}
	}
	return moved
}

// arrived is how much of what a stream has sent the peer's kernel has acknowledged, in bytes.
func arrived(i *transport.Info) uint64 {
	if i.Protocol == transport.QUIC { // which knows what is lost, probes too, only once something is acknowledged
		return i.Delivered * uint64(i.SndMSS)
	}
	return i.BytesAcked
}

// setControl notes what the controller of the streams has met and done.
func (s *StreamSet) setControl(stats congestion.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control = &stats
}

// longLived is reported as the age of a retired stream, which the peer did not reject.
const longLived = time.Hour

// DataStream is a stream of a set. One goroutine may read while another writes.
type DataStream struct {
	transport.Conn
	ID      uint64
	Retired atomic.Bool     // another stream does its work; it does not count any more
	Context context.Context // ends when the stream is closed

	received atomic.Int64 // bytes

	set     *StreamSet
	since   time.Time
	control congestion.Control // asked for last; the tuner's
	yields  bool               // marked as lower effort; the tuner's
	once    sync.Once          // for Close
	cancel  context.CancelFunc

	gauge  sync.Mutex    // guards what follows
	paced  float64       // bytes/s, 0 is no bound yet
	unsent int           // what takeUnsent has set, bytes; 0 is nothing
	began  time.Time     // start of the running write, zero if there is none
	spent  time.Duration // in writes that returned
	wrote  int64         // by them, bytes
	held   time.Duration // by the rate limit
	waits  time.Time     // since when the rate limit holds the stream back, zero if it does not
}

// writing notes the start of a write. The caller calls done with the number of bytes written.
func (d *DataStream) writing() (done func(n int)) {
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

// load returns the time spent in writes until now, including the running one, and the bytes written
// by those that returned.
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
func (d *DataStream) Read(p []byte) (int, error) { return d.read(p, d.Conn.Read) }

// ReadRest is Read where all of p is sure to come; see transport.Conn.
func (d *DataStream) ReadRest(p []byte) (int, error) { return d.read(p, d.Conn.ReadRest) }

func (d *DataStream) read(p []byte, read func([]byte) (int, error)) (int, error) {
	in := d.set.in
	if in == nil || !in.Limited() {
		n, err := read(p)
		d.received.Add(int64(n))
		return n, err
	}
	n, err := read(p[:min(len(p), in.Step())])
	d.received.Add(int64(n))
	_ = d.wait(in, n) // fails only when the stream is closed: the next Read does, too
	return n, err
}

// wait waits until the rate limit lets n bytes pass.
func (d *DataStream) wait(queue *pace.Queue, n int) error {
	began := time.Now()
	d.gauge.Lock()
	d.waits = began
	d.gauge.Unlock()
	err := queue.Wait(d.Context, n)
	d.gauge.Lock()
	defer d.gauge.Unlock()
	d.waits = time.Time{}
	d.held += time.Since(began)
	return err
}

// waited returns how long the rate limit has held the stream back until now.
func (d *DataStream) waited(now time.Time) time.Duration {
	d.gauge.Lock()
	defer d.gauge.Unlock()
	if d.waits.IsZero() {
		return d.held
	}
	return d.held + max(0, now.Sub(d.waits))
}

// waiting returns the streams that the rate limit holds back now.
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

// rateWait returns how long the rate limit has held back all streams together until now.
func (s *StreamSet) rateWait(now time.Time) time.Duration {
	s.mu.Lock()
	sum := s.held
	s.mu.Unlock()
	for _, d := range s.Streams() {
		sum += d.waited(now)
	}
	return sum
}

// Close closes the stream, after a last measurement. It may be called more than once.
func (d *DataStream) Close() error {
	d.leave()
	return d.Conn.Close()
}

// Abort is Close, and discards what has not left.
func (d *DataStream) Abort() error {
	d.leave()
	return d.Conn.Abort()
}

// leave takes the stream out of its set.
func (d *DataStream) leave() {
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
}
