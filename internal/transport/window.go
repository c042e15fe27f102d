package transport

import "time"

const (
	// maxRequest bounds what is asked of SO_SNDBUF or SO_RCVBUF; Linux doubles it, so no buffer exceeds 64 MiB.
	maxRequest = 32 << 20

	// What is assumed of a path whose rate or number of streams is unknown.
	assumedRate    = 10e9 // bit/s
	assumedStreams = 8
)

// Path is what is known of the way to a peer. Zero fields are unknown.
type Path struct {
	RTT     time.Duration // the least seen
	Rate    float64       // of the bottleneck, in bit/s
	Streams int           // that share it
}

// share is the payload in bytes that one stream should be able to have in flight: twice its part of the BDP, since BBR keeps up to two
// BDP in flight (cwnd_gain in net/ipv4/tcp_bbr.c) and a loss takes a round trip to repair while new data is sent.
// It is 0 where the RTT is unknown.
func (p Path) share() int {
	rate, streams := p.Rate, p.Streams
	if rate <= 0 {
		rate = assumedRate
	}
	if streams <= 0 {
		streams = assumedStreams
	}
	return int(2 * rate / 8 * p.RTT.Seconds() / float64(streams))
}

// Limits are what a kernel allows a socket buffer, in bytes. Zero fields are unknown.
type Limits struct {
	// SndAuto and RcvAuto are the upper ends of autotuning, as the kernel counts (tcp_wmem[2], tcp_rmem[2]).
	SndAuto, RcvAuto int
	// SndMax and RcvMax are the largest requests that SO_SNDBUF and SO_RCVBUF honour (wmem_max, rmem_max).
	SndMax, RcvMax int
	// Force says that SO_SNDBUFFORCE and SO_RCVBUFFORCE work and pass those.
	Force bool
	// Overhead is the part of a buffer that the kernel reckons for its bookkeeping, as a divisor: 2 on Linux, where SO_*BUF doubles
	// the request for the same reason (socket(7)) and half of the receive buffer becomes window (tcp_adv_win_scale = 1; kernels since 6.6
	// measure the ratio instead and start from about this). 0 means 1.
	Overhead int
}

// decision is what to ask of SO_SNDBUF and SO_RCVBUF, in bytes of payload; 0 leaves the buffer to the kernel.
type decision struct {
	snd, rcv int
	force    bool // by SO_*BUFFORCE
	exact    bool // the user's: the window is never larger
}

// windowFor decides on a stream's buffers. Setting one ends its autotuning, so it touches a buffer only where the path's share is more
// than autotuning reaches and the kernel will grant more than that.
func windowFor(path Path, limits Limits) decision {
	overhead := max(limits.Overhead, 1)
	pick := func(need, auto, most int) int {
		if auto == 0 {
			return 0
		}
		if limits.Force {
			most = maxRequest
		}
		request := min(need, most, maxRequest)
		if auto /= overhead; need <= auto || request <= auto {
			return 0
		}
		return request
	}
	need := path.share()
	d := decision{snd: pick(need, limits.SndAuto, limits.SndMax), rcv: pick(need, limits.RcvAuto, limits.RcvMax)}
	if need == 0 {
		// A large send buffer costs nothing until it is used. A fixed receive buffer would be a queue on a short path.
		d.snd = pick(maxRequest, limits.SndAuto, limits.SndMax)
	}
	d.force = limits.Force && d != (decision{})
	return d
}

// Windows are a conn's buffers.
type Windows struct {
	// SndBuf and RcvBuf are the present sizes, in bytes as the kernel counts. 0 is unknown.
	SndBuf, RcvBuf int
	// SndFixed and RcvFixed say that they were set and stay; otherwise they grow with the need.
	SndFixed, RcvFixed bool
	// SndCap and RcvCap are the most payload, in bytes, that this host's buffers let a stream have in flight. 0 is unknown.
	SndCap, RcvCap int
}

// windowsOf reckons what buffers of snd and rcv bytes amount to.
func windowsOf(d decision, snd, rcv int, limits Limits) Windows {
	overhead := max(limits.Overhead, 1)
	w := Windows{
		SndBuf: snd, RcvBuf: rcv, SndFixed: d.snd > 0, RcvFixed: d.rcv > 0,
		SndCap: limits.SndAuto / overhead, RcvCap: limits.RcvAuto / overhead,
	}
	if w.SndFixed {
		w.SndCap = snd / overhead
	}
	if w.RcvFixed {
		w.RcvCap = rcv / overhead
	}
	if d.exact {
		w.SndCap, w.RcvCap = d.snd, d.rcv
	}
	return w
}
