package congestion

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// synSize is an IP packet with a SYN or its answer, with the options that hosts use, bytes.
	synSize = 60
	// flightSize is about what the first flights of a TLS handshake take on the wire, both ways
	// together, less what SYNs take, bytes. The key exchange is X25519MLKEM768.
	flightSize = 3500
	// initialWindow is what a stream sends before the first acknowledgement, bytes (RFC 6928).
	initialWindow = 10 * 1460

	// trainLeast is the number of SYNs after another one that say something about the rate. With
	// fewer, one SYN that a scheduler holds up decides.
	trainLeast = 4
	// plenty is the rate in bytes/s from which all streams may start at once. It draws out 4 SYNs by
	// 1.3 ms. Schedulers and radios do the same on a fast line.
	plenty = 1.5e6 / 8
	// startQueue is how much queue the streams of a narrow line may make at once. On a long path,
	// they may fill a round trip.
	startQueue = 250 * time.Millisecond

	// unknownRate is the rate, in bytes/s, for which streams begin while nothing is known of the path: many lines
	// carry less. Handshakes show no more than hostRate, because hosts need time for them, too.
	unknownRate = 60e6 / 8
	hostRate    = 20e6 / 8

	// FewStreams is how many hide the pauses of one another on any path.
	FewStreams = 4
	// leastStreams is how many do on a slow line, where a stream has enough to send for long.
	leastStreams = 2
)

// Joined is how many of that many streams may send at a rate in bytes/s over a path of that round trip time with
// segments of mss bytes: each may send its first window in a round trip. Linux does not pace the first ten segments of
// a stream (tcp_update_skb_after_send in net/ipv4/tcp_output.c), so that all streams together would fill the queue of
// a slow line before anything is known. Later, the packets of many streams on a slow line are so far apart that the
// peer waits with their acknowledgements, and each smoothed RTT follows slowly.
func Joined(rate float64, rtt time.Duration, mss, most int) int {
	n := math.Ceil(rate * rtt.Seconds() / float64(firstWindow*max(mss, 1)))
	return min(most, max(leastStreams, int(min(n, float64(most)))))
}

// Slow reports whether handshakes have shown a rate in bytes/s that is the line's, and not only that of hosts. 0 is
// unknown.
func Slow(carries float64) bool { return 0 < carries && carries < hostRate }

// Begin is how many of that many streams may send before anything was delivered. carries is the rate in bytes/s that
// handshakes have shown, 0 is unknown.
func Begin(carries float64, rtt time.Duration, mss, most int) int {
	if Slow(carries) {
		return Joined(carries, rtt, mss, most)
	}
	return max(min(most, FewStreams), Joined(unknownRate, rtt, mss, most))
}

// Start judges the path to a peer while a session connects, before it sends any payload.
//
// The SYNs of all streams leave at once. On a narrow line they wait for one another, which shows its
// rate at no cost: 17 SYNs take 0.8 s at 9.6 kbit/s, 64 ms at 128 kbit/s, and nothing on a fast line.
// The first flights of TLS are larger and show more.
//
// The rate that a Start finds is a lower bound: jitter and busy hosts delay packets, too. Times are
// from any one clock. A Start is not safe for concurrent use.
type Start struct {
	syns    []syn // in the order in which they were sent
	base    time.Duration
	flights int           // first flights of TLS that were answered
	began   time.Duration // when the first of these was sent
	rate    float64       // largest lower bound that something else than SYNs has shown, bytes/s
}

type syn struct{ sent, rtt time.Duration }

// Connected takes a SYN that was sent at a time and answered after rtt.
func (s *Start) Connected(sent, rtt time.Duration) {
	if s.base == 0 || rtt < s.base {
		s.base = rtt
	}
	x := syn{sent, rtt}
	i, _ := slices.BinarySearchFunc(s.syns, x, func(a, b syn) int {
		return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(a.rtt, b.rtt))
	})
	s.syns = slices.Insert(s.syns, i, x)
}

// Answered takes the times of a first flight of TLS and of its answer.
func (s *Start) Answered(sent, at time.Duration) {
	if s.flights == 0 || sent < s.began {
		s.began = sent
	}
	s.flights++
	alone := bytesPer(flightSize, at-sent-s.base)
	together := bytesPer(s.flights*flightSize, at-s.began-s.base)
	s.rate = max(s.rate, alone, together)
}

// Delivered takes a rate in bytes/s at which payload has arrived.
func (s *Start) Delivered(rate float64) { s.rate = max(s.rate, rate) }

// Rate is a lower bound of the line's rate in bytes/s, 0 while nothing is known.
func (s *Start) Rate() float64 { return max(s.rate, s.trainRate()) }

// trainRate is what the SYNs show. Before the n-th SYN after another one is answered, the line has
// carried n SYNs since that one.
func (s *Start) trainRate() (rate float64) {
	for i, first := range s.syns {
		for n := trainLeast; i+n < len(s.syns); n++ {
			last := s.syns[i+n]
			rate = max(rate, bytesPer(n*synSize, last.sent+last.rtt-first.sent-s.base))
		}
	}
	return rate
}

func bytesPer(bytes int, took time.Duration) float64 {
	if took <= 0 {
		return math.Inf(1)
	}
	return float64(bytes) / took.Seconds()
}

// Streams is how many of that many streams may be used by now, at least one: all where the line is
// fast, otherwise as many as fill startQueue or the path with their initial windows.
func (s *Start) Streams(most int) int {
	rate := s.Rate()
	if rate >= plenty {
		return max(1, most)
	}
	n := rate * max(startQueue, s.base).Seconds() / initialWindow
	return max(1, min(int(n), most))
}
