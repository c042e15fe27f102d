package diagnose

import (
	"cmp"
	"slices"
	"time"
)

// Sample is what one side of a session has measured. Counters run from the session's start and
// sum up all streams, including those that ended. All other fields are of the moment. A field
// that the system does not report is zero.
type Sample struct {
	At time.Duration // since the session's start, by this side's clock

	// Time that the goroutines of the streams spent in each stage.
	Parked   time.Duration // not used
	Idle     time.Duration // nothing to send
	Read     time.Duration // from the source
	Digest   time.Duration
	Code     time.Duration // compressing, decompressing
	Send     time.Duration // in a socket's write, RateWait included
	RateWait time.Duration // waiting for the rate limiter, since a limit was set
	Receive  time.Duration // in a socket's read
	Write    time.Duration // to the target
	Full     time.Duration // waiting for files to be committed

	// Time that other goroutines spent.
	Walk    time.Duration // listing the source
	Room    time.Duration // listing paused, since too many files are under way
	Feed    time.Duration // waiting for a source that is a stream
	Compare time.Duration // looking at what is in the target
	Check   time.Duration // reading files that are there, to compare, check or remove them
	Name    time.Duration // committing files
	Sync    time.Duration // making the target durable

	CPU      time.Duration // used by the process
	RunDelay time.Duration // its threads were ready to run and did not get a CPU
	Cores    int64         // that the process may use, in thousandths

	Streams int64 // now
	Payload int64 // bytes written at the target

	// TCP_INFO of the data streams: see include/uapi/linux/tcp.h and net/ipv4/tcp.c.
	Busy          time.Duration // with data in flight
	RwndLimited   time.Duration // of that, held back by the peer's window
	SndbufLimited time.Duration // of that, held back by the send buffer
	Backlog       time.Duration // with data waiting in the kernel to be sent
	Windowed      time.Duration // with the peer's window nearly full
	Buffered      time.Duration // with the send buffer nearly full, of data in flight
	Flying        time.Duration // with data in flight on any stream
	RTTSum        int64         // mean smoothed RTT of these streams in ns, times Flying in s
	Acked         int64         // bytes
	Segments      int64         // sent with data
	Retrans       int64         // segments
	Spurious      int64         // segments that arrived twice, by the peer's D-SACK (RFC 2883)
	Reordered     int64         // events
	Received      int64         // bytes

	MinRTT   time.Duration // the least of any stream
	RTT      time.Duration // smoothed, mean of the streams with data in flight
	InFlight int64         // bytes, all streams
	Cwnd     int64         // bytes, all streams
	SndWnd   int64         // largest window that the peer advertises to a stream, bytes
	SndBuf   int64         // the largest, bytes as the kernel counts them
	RcvBuf   int64         // the same
	PMTU     int64         // bytes
	MSS      int64         // bytes
	Control  int64         // congestion control, one of the Controls

	// What the controller of the streams met and did; see congestion.Stats. Only a sender has one.
	Priority   int64         // 1 low, 2 normal, highPriority; 0 is no controller
	BaseRTT    time.Duration // round trip time without a queue
	Queue      time.Duration // median delay in the queue before the bottleneck, without others
	QueueMost  time.Duration // the largest
	Starting   time.Duration // looking for the rate of the line
	Shared     time.Duration // with others on the line, taking a part of it
	Yielded    time.Duration // with others on the line, taking what they left
	LostOwn    int64         // segments, in a queue of its own
	LostOthers int64         // segments, in a queue that others kept full
	LostLine   int64         // segments, without a queue
	Policed    time.Duration // at a rate beyond which segments are lost without a queue

	// What only sockets and captures of programs that are not ours show. It is not sent to a peer.
	Unread    time.Duration // a good part of the receive buffer waits for the program to read
	Shut      time.Duration // with the peer's window closed, or much smaller than it was
	Nagled    time.Duration // with less than a segment that waits for an acknowledgement
	Answering time.Duration // with the last data sent at once after the last data received
	Asked     int64         // segments with data that came the other way
	PaceLimit int64         // SO_MAX_PACING_RATE in bit/s, 0 for none
}

const highPriority = 3

// The Controls are the congestion controls that a Sample can name.
const (
	OtherControl = iota
	BBR
	Cubic
	Reno
)

// MeanRTT is the mean smoothed RTT of the streams with data in flight.
func (s *Sample) MeanRTT() time.Duration {
	if s.Flying <= 0 {
		return s.RTT
	}
	return time.Duration(float64(s.RTTSum) / s.Flying.Seconds())
}

// ControlNumber returns the number of a congestion control.
func ControlNumber(name string) int64 {
	switch name {
	case "bbr":
		return BBR
	case "cubic":
		return Cubic
	case "reno":
		return Reno
	}
	return OtherControl
}

// ControlName returns the name of a congestion control, or "" for an unknown number.
func ControlName(number int64) string {
	switch number {
	case BBR:
		return "bbr"
	case Cubic:
		return "cubic"
	case Reno:
		return "reno"
	}
	return ""
}

// Host has the settings of a host that matter. They do not change during a session. Unknown ones
// are zero.
type Host struct {
	Name string

	RmemMin, RmemDefault, RmemMax int64 // net.ipv4.tcp_rmem, bytes
	WmemMin, WmemDefault, WmemMax int64 // net.ipv4.tcp_wmem, bytes
	SockBuf                       int64 // requested by a flag, bytes
	BBR                           int64 // one of BBRMissing to BBRAllowed
	MTUProbing                    int64 // net.ipv4.tcp_mtu_probing
	InitCwnd, InitRwnd            int64 // of the route to the peer in segments, if set there
	NoScaling, NoAutotuning       int64 // 1: net.ipv4.tcp_window_scaling, tcp_moderate_rcvbuf is off
	NoSACK, NoTimestamps          int64 // 1: net.ipv4.tcp_sack, tcp_timestamps is off
	Loopback                      int64 // 1: the peer is on the same host
	Relayed                       int64 // 1: the path leads through a relay
}

// What a host can do with BBR.
const (
	BBRUnknown    = iota
	BBRMissing    // its kernel lacks BBR
	BBRRestricted // this process may not use BBR
	BBRAllowed
)

// field is a number of a Sample or Host with its name on the wire, "" if it is not sent.
type field struct {
	name  string
	value *int64
	gauge bool // a value of the moment, not a counter
}

// numbers is the number of fields of a Sample.
const numbers = 64

// fields returns the fields in the order in which they are sent. The array stays on the stack: a
// long session has thousands of samples to process.
func (s *Sample) fields() [numbers]field {
	d := func(name string, v *time.Duration) field { return field{name, (*int64)(v), false} }
	return [numbers]field{
		d("at_ns", &s.At),
		d("parked_ns", &s.Parked), d("idle_ns", &s.Idle), d("read_ns", &s.Read), d("digest_ns", &s.Digest), d("code_ns", &s.Code),
		d("send_ns", &s.Send), d("rate_wait_ns", &s.RateWait), d("receive_ns", &s.Receive), d("write_ns", &s.Write), d("full_ns", &s.Full),
		d("walk_ns", &s.Walk), d("room_ns", &s.Room), d("feed_ns", &s.Feed), d("compare_ns", &s.Compare), d("check_ns", &s.Check), d("name_ns", &s.Name), d("sync_ns", &s.Sync),
		d("cpu_ns", &s.CPU), d("run_delay_ns", &s.RunDelay), {"cores_milli", &s.Cores, true},
		{"streams", &s.Streams, true}, {"payload", &s.Payload, false},
		d("busy_ns", &s.Busy), d("rwnd_limited_ns", &s.RwndLimited), d("sndbuf_limited_ns", &s.SndbufLimited), d("backlog_ns", &s.Backlog), d("windowed_ns", &s.Windowed), d("buffered_ns", &s.Buffered),
		d("flying_ns", &s.Flying), {"rtt_sum", &s.RTTSum, false},
		{"acked", &s.Acked, false}, {"segments", &s.Segments, false}, {"retrans", &s.Retrans, false}, {"spurious", &s.Spurious, false},
		{"reordered", &s.Reordered, false}, {"received", &s.Received, false},
		{"min_rtt_ns", (*int64)(&s.MinRTT), true}, {"rtt_ns", (*int64)(&s.RTT), true}, {"in_flight", &s.InFlight, true}, {"cwnd", &s.Cwnd, true},
		{"snd_wnd", &s.SndWnd, true}, {"sndbuf", &s.SndBuf, true}, {"rcvbuf", &s.RcvBuf, true}, {"pmtu", &s.PMTU, true}, {"mss", &s.MSS, true},
		{"control", &s.Control, true},
		{"priority", &s.Priority, true}, {"queue_ns", (*int64)(&s.Queue), true}, {"queue_most_ns", (*int64)(&s.QueueMost), true},
		{"base_rtt_ns", (*int64)(&s.BaseRTT), true}, d("starting_ns", &s.Starting), d("policed_ns", &s.Policed),
		d("shared_ns", &s.Shared), d("yielded_ns", &s.Yielded),
		{"lost_own", &s.LostOwn, false}, {"lost_others", &s.LostOthers, false}, {"lost_line", &s.LostLine, false},
		d("", &s.Unread), d("", &s.Shut), d("", &s.Nagled), d("", &s.Answering), {"", &s.Asked, false}, {"", &s.PaceLimit, true},
	}
}

func (h *Host) fields() []field {
	g := func(name string, v *int64) field { return field{name, v, true} }
	return []field{
		g("tcp_rmem_min", &h.RmemMin), g("tcp_rmem_default", &h.RmemDefault), g("tcp_rmem_max", &h.RmemMax),
		g("tcp_wmem_min", &h.WmemMin), g("tcp_wmem_default", &h.WmemDefault), g("tcp_wmem_max", &h.WmemMax),
		g("sock_buf", &h.SockBuf), g("bbr", &h.BBR), g("mtu_probing", &h.MTUProbing), g("initcwnd", &h.InitCwnd), g("initrwnd", &h.InitRwnd),
		g("no_scaling", &h.NoScaling), g("no_autotuning", &h.NoAutotuning),
		g("no_sack", &h.NoSACK), g("no_timestamps", &h.NoTimestamps), g("loopback", &h.Loopback), g("relayed", &h.Relayed),
	}
}

// Each calls f for each number of a sample, and of its host unless h is nil. name is the number's
// name on the wire.
func Each(s *Sample, h *Host, f func(name string, value int64)) {
	for _, x := range all(s, h) {
		if x.name != "" && *x.value != 0 {
			f(x.name, *x.value)
		}
	}
}

const (
	// mostGrowth is by how much a counter can grow in a nanosecond: 128 streams that work at the same
	// time, or 1 Tbit/s.
	mostGrowth = 128
	// mostEver bounds counters, so that the sum of a series does not overflow.
	mostEver = 1 << 53
	// mostNow bounds values of the moment: 1 TiB, or 18 minutes.
	mostNow = 1 << 40
)

// Fill sets the numbers that value knows by their names on the wire, and leaves the others alone.
// It makes a peer's numbers harmless: none is negative, or larger than it can be after that time since
// the session's start.
func Fill(s *Sample, h *Host, since time.Duration, value func(name string) (int64, bool)) {
	for _, x := range all(s, h) {
		if x.name == "" {
			continue
		}
		if v, ok := value(x.name); ok {
			most := int64(mostNow)
			if !x.gauge {
				most = mostGrowth * int64(min(since, mostEver/mostGrowth))
			}
			*x.value = min(max(0, v), most)
		}
	}
}

func all(s *Sample, h *Host) []field {
	sample := s.fields()
	fields := sample[:]
	if h != nil {
		fields = append(fields, h.fields()...)
	}
	return fields
}

// sub returns b − a for counters, and b's value for all other fields. The difference of a counter
// that ran backwards is 0.
func sub(b, a *Sample) Sample {
	d := *b
	before := *a
	from := before.fields()
	for i, f := range d.fields() {
		if !f.gauge {
			*f.value = max(0, *f.value-*from[i].value)
		}
	}
	return d
}

// add adds the counters of b to a. All other fields take b's value where it is known.
func add(a, b *Sample) {
	other := *b
	from := other.fields()
	for i, f := range a.fields() {
		switch {
		case !f.gauge:
			*f.value += *from[i].value
		case *from[i].value != 0:
			*f.value = *from[i].value
		}
	}
}

// at returns the sample at time t. Counters between two samples are interpolated linearly.
// samples must be in order and not empty.
func at(samples []Sample, t time.Duration) Sample {
	i, _ := slices.BinarySearchFunc(samples, t, func(s Sample, t time.Duration) int { return cmp.Compare(s.At, t) })
	switch {
	case i == len(samples):
		return samples[i-1]
	case i == 0 || samples[i].At == t:
		return samples[i]
	}
	a, b := samples[i-1], samples[i]
	part := float64(t-a.At) / float64(b.At-a.At)
	s := b
	from := a.fields()
	for i, f := range s.fields() {
		if !f.gauge {
			*f.value = *from[i].value + int64(part*float64(max(0, *f.value-*from[i].value)))
		}
	}
	return s
}

// maxSamples limits the samples that a Series keeps.
const maxSamples = 512

// Series holds the samples of one side, in order. It thins out the past of a long session.
type Series struct{ samples []Sample }

// Add appends a sample, unless it is not later than the last one.
func (s *Series) Add(x Sample) {
	if n := len(s.samples); n > 0 && x.At <= s.samples[n-1].At {
		return
	}
	if len(s.samples) == maxSamples {
		kept := s.samples[:0]
		for i, old := range s.samples {
			if i%2 == 0 {
				kept = append(kept, old)
			}
		}
		s.samples = kept
	}
	s.samples = append(s.samples, x)
}

// All returns the samples.
func (s *Series) All() []Sample { return slices.Clone(s.samples) }

// Last returns the latest sample.
func (s *Series) Last() (Sample, bool) {
	if len(s.samples) == 0 {
		return Sample{}, false
	}
	return s.samples[len(s.samples)-1], true
}
