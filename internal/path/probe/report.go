// Package probe measures a path between two hosts without touching a file: round trips when idle
// and under load, goodput up and down, the path MTU in each direction, what TCP negotiated and
// obtained, and the times of requests and replies. The client requests tests, the server's
// Session runs them, and Judge says what limits the path. Foreign measures a host that does not
// run fxfer, from one side.
package probe

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// Report is the result of a probe. Times are in seconds, rates in bit/s, sizes in bytes.
type Report struct {
	Server   string  `json:"server"`
	Host     string  `json:"host"`               // the server's own name
	Loopback bool    `json:"loopback,omitempty"` // the server is on this host
	Duration float64 `json:"duration_seconds"`
	// Transport is "tcp" or "quic".
	Transport string `json:"transport,omitempty"`
	SockBuf   int64  `json:"socket_buffer_asked_bytes,omitempty"` // by the user; 0 is automatic

	Idle   RTT     `json:"rtt_idle"`
	Loaded RTT     `json:"rtt_loaded"` // while N streams sent, in the worse direction
	Bloat  float64 `json:"rtt_increase_seconds"`
	Grade  string  `json:"bufferbloat_grade"` // A to F, see GradeOf; "" if there was no load

	Flows     []Flow     `json:"flows"`
	TCP       TCP        `json:"tcp"`
	MTU       []PathMTU  `json:"path_mtu"` // up and down
	Exchanges []Latency  `json:"exchanges"`
	Rate      Throughput `json:"exchange_rate"`
	Stall     bool       `json:"nagle_delayed_ack"` // see Stalled
	Series    []Point    `json:"series"`

	Choice   Choice             `json:"send_would_choose"`
	Verdicts []diagnose.Verdict `json:"-"`
	Notes    []string           `json:"notes,omitempty"` // what could not be measured, and why
}

// Choice is what a transfer on this path would use.
type Choice struct {
	Streams    int    `json:"streams"`
	Suffice    int    `json:"streams_that_suffice"` // see Suffice
	SndBuf     int64  `json:"send_buffer_bytes"`    // of each stream, as the kernel counts
	RcvBuf     int64  `json:"receive_buffer_bytes"` // the same
	Congestion string `json:"congestion"`
}

// RTT is a distribution of the round trips of small messages over a warm connection.
type RTT struct {
	Count  int     `json:"count"`
	Min    float64 `json:"min_seconds"`
	Median float64 `json:"median_seconds"`
	P95    float64 `json:"p95_seconds"`
	P99    float64 `json:"p99_seconds"`
	Max    float64 `json:"max_seconds"`
	Kernel float64 `json:"kernel_min_seconds,omitempty"` // smallest value that TCP saw
}

// Direction of a flow, as the client sees it.
type Direction string

// The directions.
const (
	Up   Direction = "up"
	Down Direction = "down"
)

// Flow is one test of goodput. Windows and shares are those of the stream with the largest value.
type Flow struct {
	Direction     Direction `json:"direction"`
	Streams       int       `json:"streams"`
	Goodput       float64   `json:"goodput_bits_per_second"` // received after slow start
	Bytes         int64     `json:"bytes"`
	Duration      float64   `json:"duration_seconds"`
	RTT           RTT       `json:"rtt"` // during the flow
	Segments      int64     `json:"segments"`
	Retransmitted int64     `json:"retransmitted"`
	// Loss is retransmitted / sent segments after slow start. It is an estimate: some were not
	// lost.
	Loss          float64 `json:"loss"`
	RwndLimited   float64 `json:"receiver_window_share"` // of the time with data in flight
	SndbufLimited float64 `json:"send_buffer_share"`     // the same
	SndWnd        int64   `json:"receiver_window_bytes"` // largest one announced
	Cwnd          int64   `json:"congestion_window_bytes"`
	SndBuf        int64   `json:"send_buffer_bytes"`    // as the sender's kernel counts
	RcvBuf        int64   `json:"receive_buffer_bytes"` // as the receiver's kernel counts
	MinRTT        float64 `json:"min_rtt_seconds"`
	BDP           int64   `json:"bdp_bytes"` // Goodput × least idle round trip
	Congestion    string  `json:"congestion"`
	SenderCPU     float64 `json:"sender_cpu_share"`   // of all CPUs of the host, 0 if unknown
	ReceiverCPU   float64 `json:"receiver_cpu_share"` // the same
}

// TCP is what the handshake negotiated, with the windows when idle.
type TCP struct {
	WindowScaling bool   `json:"window_scaling"`
	SndScale      int    `json:"send_scale"`
	RcvScale      int    `json:"receive_scale"`
	SACK          bool   `json:"sack"`
	Timestamps    bool   `json:"timestamps"`
	ECN           bool   `json:"ecn"`
	SndMSS        int    `json:"send_mss"`
	RcvMSS        int    `json:"receive_mss"`
	PMTU          int    `json:"pmtu"`
	Congestion    string `json:"congestion"`
}

// PathMTU is what is known of the largest packet in one direction.
type PathMTU struct {
	Direction Direction `json:"direction"`
	// Measured says that datagrams measured MTU. Otherwise it is TCP's estimate, 0 if there is
	// none.
	Measured  bool  `json:"measured"`
	MTU       int   `json:"mtu"`    // including the IP header
	Passed    []int `json:"passed"` // ascending
	Failed    []int `json:"failed"` // ascending, above MTU
	Named     int   `json:"named_by_icmp,omitempty"`
	Device    bool  `json:"device"`     // the sender's own interface limits it
	BlackHole bool  `json:"black_hole"` // larger packets vanish, and no router says so
}

// Latency holds the times of messages of one size. Each is answered by a message of the same size
// before the next one is sent. The time of a message is that of connecting, if it is the first of a
// connection, of its writes, and until all of its answer has come.
type Latency struct {
	Size int  `json:"size"`
	TLS  bool `json:"tls"` // or QUIC; otherwise TCP alone
	// PerConnection is how many messages a connection carries; 0 is all. Then the first one is not
	// measured, and no time of connecting either.
	PerConnection int     `json:"per_connection"`
	Split         bool    `json:"split"` // header and body in two writes, at both ends
	ClientND      bool    `json:"client_nodelay"`
	ServerND      bool    `json:"server_nodelay"`
	ClientCork    bool    `json:"client_cork"` // TCP_CORK holds the header back for the body
	ServerCork    bool    `json:"server_cork"`
	Think         float64 `json:"think_seconds"` // between an answer and the next message
	Count         int     `json:"count"`
	Rate          float64 `json:"per_second"` // with one message at a time; connecting and thinking take time, too
	Min           float64 `json:"min_seconds"`
	Median        float64 `json:"median_seconds"`
	P99           float64 `json:"p99_seconds"`
	Max           float64 `json:"max_seconds"`
	Connect       float64 `json:"connect_median_seconds"` // of the messages that connect
	Send          float64 `json:"send_median_seconds"`
	Wait          float64 `json:"wait_median_seconds"`
	Histogram     []Bin   `json:"histogram"`
}

// Bin counts the times below Below that no earlier bin counts.
type Bin struct {
	Below float64 `json:"below_seconds"`
	Count int     `json:"count"`
}

// Throughput is the rate of requests on a few parallel connections, without pipelining, with one
// write per message.
type Throughput struct {
	Size        int     `json:"size"`
	Connections int     `json:"connections"`
	PerSecond   float64 `json:"per_second"`
}

// Point is a moment of the probe. A value that was not measured then is 0.
type Point struct {
	At   float64 `json:"at_seconds"`
	Up   float64 `json:"up_bits_per_second"`
	Down float64 `json:"down_bits_per_second"`
	RTT  float64 `json:"rtt_seconds"` // median
}

// The bufferbloat grades: upper limits for the growth of the median round trip while the path is
// full.
var grades = []struct {
	grade string
	below time.Duration
}{
	{"A", 30 * time.Millisecond}, {"B", 60 * time.Millisecond}, {"C", 100 * time.Millisecond}, {"D", 200 * time.Millisecond}, {"E", 400 * time.Millisecond},
}

// GradeOf grades the growth of the round trip under load: A below 30 ms, B 60, C 100, D 200, E
// 400, else F.
func GradeOf(increase time.Duration) string {
	for _, g := range grades {
		if increase < g.below {
			return g.grade
		}
	}
	return "F"
}

// stallAt is the smallest delay that counts as a delayed ACK: Linux waits 40 ms (TCP_DELACK_MIN
// in include/net/tcp.h), others up to 200 ms.
const stallAt = 30 * time.Millisecond

// Stalled reports whether Nagle's algorithm and delayed ACK wait for each other: without
// TCP_NODELAY at either end, two writes take at least stallAt longer than one, for some size on a
// reused connection. Nagle's algorithm alone costs a round trip (rtt, in seconds) in each
// direction, which does not count.
func Stalled(table []Latency, rtt float64) bool {
	type kind struct {
		size int
		tls  bool
	}
	one, two := make(map[kind]float64), make(map[kind]float64)
	for _, l := range table {
		switch {
		case l.PerConnection != 0 || l.ClientND || l.ServerND || l.ClientCork || l.ServerCork || l.Count == 0:
		case l.Split:
			two[kind{l.Size, l.TLS}] = l.Median
		default:
			one[kind{l.Size, l.TLS}] = l.Median
		}
	}
	for k, median := range two {
		if base, ok := one[k]; ok && median-base-2*rtt >= stallAt.Seconds() {
			return true
		}
	}
	return false
}

// rttOf summarizes round trips. It sorts samples.
func rttOf(samples []time.Duration) RTT {
	if len(samples) == 0 {
		return RTT{}
	}
	slices.Sort(samples)
	at := func(q float64) float64 { return quantile(samples, q).Seconds() }
	return RTT{Count: len(samples), Min: at(0), Median: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1)}
}

// quantile returns the nearest rank in sorted samples.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// histogram counts samples in bins that double in width. The first is below 50 µs.
func histogram(samples []time.Duration) []Bin {
	var bins []Bin
	below, from := 50*time.Microsecond, 0
	sorted := slices.Sorted(slices.Values(samples))
	for from < len(sorted) {
		to, _ := slices.BinarySearchFunc(sorted, below, cmp.Compare[time.Duration])
		if to > from || len(bins) > 0 {
			bins = append(bins, Bin{below.Seconds(), to - from})
		}
		from = to
		below *= 2
	}
	return bins
}
