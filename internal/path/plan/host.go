package plan

import (
	"fmt"
	"math"
	"math/bits"
)

// MaxWindow is the largest window that TCP can announce: 65,535 scaled by 2^14 (RFC 7323).
const MaxWindow = 65535 << 14

// The autotuning maxima that Linux chooses on hosts with enough memory.
const (
	stockReceive = 6 << 20
	stockSend    = 4 << 20
	maxSysctl    = math.MaxInt32 // the kernel stores them in an int
)

// Buffers are the maxima of Linux's autotuning in bytes, as the kernel counts them: tcp_rmem[2]
// and tcp_wmem[2].
type Buffers struct {
	Receive, Send int64
}

// StockBuffers returns the buffers of a host that nobody has tuned.
func StockBuffers() Buffers { return Buffers{Receive: stockReceive, Send: stockSend} }

// BuffersFor returns buffers that hold Path.Ample for each of the streams. They are powers of
// two, or the stock buffers if these suffice.
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

// Window is the payload in bytes that one stream can have in flight. Half of the receive buffer
// and two thirds of the send buffer are payload; the rest is the kernel's bookkeeping.
// internal/transport uses the same fractions.
func (b Buffers) Window() int64 { return min(b.Receive/2, b.Send/3*2, MaxWindow) }

// Sysctl is one kernel setting of Linux.
type Sysctl struct{ Name, Value string }

// ReceiverSysctls returns the settings that the receiver needs for the buffers: the maximum of
// autotuning, and what a program may request with SO_RCVBUF. The kernel doubles the latter.
func (b Buffers) ReceiverSysctls() []Sysctl {
	return []Sysctl{{"net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", b.Receive)}, {"net.core.rmem_max", fmt.Sprint(b.Receive / 2)}}
}

// SenderSysctls returns the corresponding settings of the sender.
func (b Buffers) SenderSysctls() []Sysctl {
	return []Sysctl{{"net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", b.Send)}, {"net.core.wmem_max", fmt.Sprint(b.Send / 2)}}
}

// Host is a kind of host, described by what limits a stream on it.
type Host struct {
	Name    string
	Window  int64 // in bytes
	Control Control
}

// Hosts returns common kinds of hosts with their default settings, and last a Linux host with the
// given buffers.
func Hosts(tuned Buffers) []Host {
	return []Host{
		{"Windows Server 2003", 17520, Reno}, // 12 segments of 1460 B
		{"no window scaling", 65535, Cubic},
		{"stock Linux", StockBuffers().Window(), Cubic},
		{"tuned Linux", tuned.Window(), BBR},
	}
}
