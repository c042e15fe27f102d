package plan

import (
	"fmt"
	"math"
	"math/bits"
)

// MaxWindow is the largest that TCP can announce: 65,535 scaled by 2^14, RFC 7323.
const MaxWindow = 65535 << 14

// The upper ends of autotuning that Linux chooses where memory is not scarce.
const (
	stockReceive = 6 << 20
	stockSend    = 4 << 20
	maxSysctl    = math.MaxInt32 // the kernel keeps them in an int
)

// Buffers are the upper ends of Linux's autotuning in bytes, as the kernel counts: tcp_rmem[2] and tcp_wmem[2].
type Buffers struct {
	Receive, Send int64
}

// StockBuffers are those of a host that nobody has tuned.
func StockBuffers() Buffers { return Buffers{Receive: stockReceive, Send: stockSend} }

// BuffersFor are buffers that hold what is ample for each of so many streams. They are powers of two, or the stock ones if these do.
func BuffersFor(p Path, streams int) Buffers {
	window := p.Ample(streams)
	up := func(need float64, stock int64) int64 {
		if need <= float64(stock) {
			return stock
		}
		if need >= maxSysctl {
			return maxSysctl
		}
		return min(int64(1)<<bits.Len64(uint64(math.Ceil(need))-1), maxSysctl)
	}
	return Buffers{Receive: up(2*window, stockReceive), Send: up(1.5*window, stockSend)}
}

// Window is the payload in bytes that one stream can have in flight: half of the receive buffer and two thirds of the send buffer are
// payload, the rest is the kernel's bookkeeping; internal/transport reckons alike.
func (b Buffers) Window() int64 { return min(b.Receive/2, b.Send/3*2, MaxWindow) }

// Sysctl is one of Linux's settings.
type Sysctl struct{ Name, Value string }

// ReceiverSysctls are what the receiver needs for the buffers: the end of autotuning, and what a program may ask for by SO_RCVBUF. The kernel
// doubles the latter.
func (b Buffers) ReceiverSysctls() []Sysctl {
	return []Sysctl{{"net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", b.Receive)}, {"net.core.rmem_max", fmt.Sprint(b.Receive / 2)}}
}

// SenderSysctls are what the sender needs, likewise.
func (b Buffers) SenderSysctls() []Sysctl {
	return []Sysctl{{"net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", b.Send)}, {"net.core.wmem_max", fmt.Sprint(b.Send / 2)}}
}

// Host is a kind of host, as far as it bounds a stream.
type Host struct {
	Name    string
	Window  int64 // in bytes
	Control Control
}

// Hosts are the kinds that one meets, as they come, and last Linux with the buffers given.
func Hosts(tuned Buffers) []Host {
	return []Host{
		{"Windows Server 2003", 17520, Reno}, // 12 segments of 1460 B
		{"no window scaling", 65535, Cubic},
		{"stock Linux", StockBuffers().Window(), Cubic},
		{"tuned Linux", tuned.Window(), BBR},
	}
}
