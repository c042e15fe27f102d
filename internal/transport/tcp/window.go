package tcp

import (
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/transport/stream"
)

const (
	// maxBuffer bounds the socket buffers that windowFor requests, in bytes as the kernel counts.
	maxBuffer = 64 << 20
	// leastSend is how much payload a send buffer should hold on any path. It costs nothing until
	// it is used. On 10 Gbit/s × 10 ms autotuning, which ends at 4 MiB, reached 0.69 of the line,
	// and 8 MiB reached 0.72.
	leastSend = 16 << 20

	// nearPath is the RTT below which a path stays within a building.
	nearPath = time.Millisecond

	// Assumptions for a path whose rate or number of streams is unknown.
	assumedRate    = 10e9 // bit/s
	assumedStreams = 8
)

// Path describes the way to a peer. Zero fields are unknown.
type Path struct {
	RTT     time.Duration // least that was seen
	Rate    float64       // of the bottleneck, in bit/s
	Streams int           // that share it

	// MTU, for Dial, is the largest IP packet that passes in both directions. It is needed only where
	// the kernels can't find out.
	MTU int
}

// share is the payload in bytes that one stream should be able to have in flight. It is twice the
// stream's part of the BDP: BBR keeps up to two BDP in flight (cwnd_gain in net/ipv4/tcp_bbr.c),
// and while a loss is repaired, which takes a round trip, new data is sent. It is 0 where the RTT
// is unknown.
func (p Path) share() int {
	rate, streams := p.Rate, p.Streams
	if rate <= 0 {
		rate = assumedRate
	}
	if streams <= 0 {
		streams = assumedStreams
	}
	return int(min(2*rate/8*p.RTT.Seconds()/float64(streams), maxBuffer))
}

// kernelLimits are the sizes that a kernel allows for a socket buffer, in bytes. Zero fields are
// unknown.
type kernelLimits struct {
	// SndAuto and RcvAuto are the upper ends of autotuning, as the kernel counts (tcp_wmem[2],
	// tcp_rmem[2]).
	SndAuto, RcvAuto int
	// SndMax and RcvMax are the largest requests that SO_SNDBUF and SO_RCVBUF grant (wmem_max,
	// rmem_max).
	SndMax, RcvMax int
	// Force says that SO_SNDBUFFORCE and SO_RCVBUFFORCE work. They grant more than SndMax and
	// RcvMax.
	Force bool
	// Bookkeeping says that the kernel counts its own bookkeeping as part of a buffer, like Linux.
	Bookkeeping bool
}

// limitsFor is how long limits are believed. Streams connect many at a time.
const limitsFor = time.Second

// lastLimits is what limits has read last.
var lastLimits struct {
	sync.Mutex // guards the others
	at         time.Time
	kernelLimits
}

// limits is readLimits, at most once in limitsFor: that opens files.
func limits() kernelLimits {
	lastLimits.Lock()
	defer lastLimits.Unlock()
	if time.Since(lastLimits.at) >= limitsFor {
		lastLimits.at, lastLimits.kernelLimits = time.Now(), readLimits()
	}
	return lastLimits.kernelLimits
}

// buffer is the size, as the kernel counts, that a request obtains. Linux doubles the request for
// its bookkeeping, see socket(7).
func (l kernelLimits) buffer(request int) int {
	if l.Bookkeeping {
		return 2 * request
	}
	return request
}

// sndPart is the part of a send buffer that holds payload, as numerator and denominator. On Linux
// 6.18 two thirds of the buffer were seen in flight, with 4, 8 and 30 MiB alike.
func (l kernelLimits) sndPart() (num, den int) {
	if l.Bookkeeping {
		return 2, 3
	}
	return 1, 1
}

// rcvPart is the divisor that turns a receive buffer into a window. Linux up to 6.5 advertises half
// of the buffer (tcp_adv_win_scale = 1, see tcp(7)). Later kernels measure the ratio (scaling_ratio
// in net/ipv4/tcp_input.c): 0.64 was seen, but it depends on the network card.
func (l kernelLimits) rcvPart() int {
	if l.Bookkeeping {
		return 2
	}
	return 1
}

// decision is what to request by SO_SNDBUF and SO_RCVBUF, in bytes. 0 leaves the buffer to the
// kernel.
type decision struct {
	snd, rcv int
	force    bool // by SO_*BUFFORCE
	exact    bool // the user has chosen it: the window is never larger
}

// windowFor decides on the buffers of a stream. A buffer that is set is no longer autotuned. So
// windowFor sets one only where the path needs more than autotuning reaches, and the kernel grants
// at least a quarter more than that.
func windowFor(path Path, limits kernelLimits) decision {
	pick := func(need, num, den, auto, most int) int {
		if most = limits.buffer(most); limits.Force {
			most = maxBuffer
		}
		size := min(need*den/num, most, maxBuffer)
		if auto == 0 || size < auto/4*5 {
			return 0
		}
		return size / limits.buffer(1)
	}
	need := path.share()
	// There is no least receive buffer: on a short path a fixed one would only be a queue.
	d := decision{rcv: pick(need, 1, limits.rcvPart(), limits.RcvAuto, limits.RcvMax)}
	num, den := limits.sndPart()
	d.snd = pick(max(need, leastSend), num, den, limits.SndAuto, limits.SndMax)
	d.force = limits.Force && d != (decision{})
	return d
}

// windowsOf computes what buffers of snd and rcv bytes allow.
func windowsOf(d decision, snd, rcv int, limits kernelLimits) stream.Windows {
	w := stream.Windows{SndBuf: snd, RcvBuf: rcv, SndFixed: d.snd > 0, RcvFixed: d.rcv > 0}
	if d.exact {
		w.SndCap, w.RcvCap = d.snd, d.rcv
		return w
	}
	if !w.SndFixed {
		snd = limits.SndAuto
	}
	if !w.RcvFixed {
		rcv = limits.RcvAuto
	}
	num, den := limits.sndPart()
	w.SndCap = snd / den * num
	w.RcvCap = rcv / limits.rcvPart()
	return w
}
