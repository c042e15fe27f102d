package transport

import "time"

const (
	// maxBuffer bounds a socket buffer that windowFor asks for, in bytes as the kernel counts.
	maxBuffer = 64 << 20
	// leastSend is how much payload a send buffer should hold at any rate: it costs nothing until it is used. Autotuning, 4 MiB, gave
	// 0.69 of 10 Gbit/s × 10 ms, 8 MiB 0.72.
	leastSend = 16 << 20

	// What is assumed of a path whose rate or number of streams is unknown.
	assumedRate    = 10e9 // bit/s
	assumedStreams = 8
)

// Path is what is known of the way to a peer. Zero fields are unknown.
type Path struct {
	RTT     time.Duration // the least seen
	Rate    float64       // of the bottleneck, in bit/s
	Streams int           // that share it
	MTU     int           // largest IP packet that passes in both directions, where the kernels can't find out; of Dial
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
	return int(min(2*rate/8*p.RTT.Seconds()/float64(streams), maxBuffer))
}

// Limits are what a kernel allows a socket buffer, in bytes. Zero fields are unknown.
type Limits struct {
	// SndAuto and RcvAuto are the upper ends of autotuning, as the kernel counts (tcp_wmem[2], tcp_rmem[2]).
	SndAuto, RcvAuto int
	// SndMax and RcvMax are the largest requests that SO_SNDBUF and SO_RCVBUF honour (wmem_max, rmem_max).
	SndMax, RcvMax int
	// Force says that SO_SNDBUFFORCE and SO_RCVBUFFORCE work and pass those.
	Force bool
	// Books says that the kernel reckons its bookkeeping into a buffer, as Linux does.
	Books bool
}

// buffer is the size, as the kernel counts, that a request obtains: Linux doubles it for its bookkeeping, see socket(7).
func (l Limits) buffer(request int) int {
	if l.Books {
		return 2 * request
	}
	return request
}

// What a buffer holds of payload, as numerator and denominator. On Linux 6.18 two thirds of the send buffer were seen in flight, with 4, 8
// and 30 MiB alike. Of the receive buffer half is advertised with tcp_adv_win_scale = 1, the default of Linux up to 6.5, see tcp(7); later
// kernels measure the ratio (scaling_ratio in net/ipv4/tcp_input.c): 0.64 was seen, but it depends on the network card.
func (l Limits) sndPart() (num, den int) {
	if l.Books {
		return 2, 3
	}
	return 1, 1
}

// rcvPart is the divisor that makes a receive buffer a window.
func (l Limits) rcvPart() int {
	if l.Books {
		return 2
	}
	return 1
}

// decision is what to ask of SO_SNDBUF and SO_RCVBUF, in bytes; 0 leaves the buffer to the kernel.
type decision struct {
	snd, rcv int
	force    bool // by SO_*BUFFORCE
	exact    bool // the user's: the window is never larger
}

// windowFor decides on a stream's buffers. Setting one ends its autotuning, so it touches a buffer only where what is wanted is more
// than autotuning reaches, and the kernel will grant more than that by a quarter at least.
func windowFor(path Path, limits Limits) decision {
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
	// A fixed receive buffer would be a queue on a short path, so there is no least one.
	d := decision{rcv: pick(need, 1, limits.rcvPart(), limits.RcvAuto, limits.RcvMax)}
	num, den := limits.sndPart()
	d.snd = pick(max(need, leastSend), num, den, limits.SndAuto, limits.SndMax)
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
	w := Windows{SndBuf: snd, RcvBuf: rcv, SndFixed: d.snd > 0, RcvFixed: d.rcv > 0}
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
