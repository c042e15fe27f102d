package transport

import (
	"net"
	"time"
)

// Info is what the kernel knows of a conn at one moment. Counters run from the connection's start. Fields that this kernel does not
// give are zero.
type Info struct {
	Protocol   Protocol
	State      string // of TCP, e.g. "established"
	Congestion string // name of the congestion control

	RTT, MinRTT, RTTVar time.Duration

	SndMSS     int // bytes
	PMTU       int // bytes
	Reordering int // segments

	Cwnd     int // bytes
	SndWnd   int // the peer's advertised window, bytes
	RcvWnd   int // the window advertised to the peer, bytes
	RcvSpace int // bytes the receiver's autotuning reckons with per RTT
	InFlight int // bytes sent and not acknowledged, reckoned in full segments
	NotSent  int // bytes written and not sent

	BytesAcked, BytesSent, BytesReceived, BytesRetrans uint64
	RetransSegs                                        uint64
	DataSegs                                           uint64 // sent, those sent again included
	SpuriousSegs                                       uint64 // that the peer got twice, as it tells (D-SACK, RFC 2883)
	Reordered                                          uint64 // times that reordering was seen

	DeliveryRate float64 // bytes per second, the latest sample
	PacingRate   float64 // bytes per second; +Inf where nothing paces
	AppLimited   bool    // the latest sample was bounded by a sender with nothing to send

	// BusyTime is the time with data in flight; of that, the time it was held back by the peer's window and by the send buffer.
	BusyTime, RwndLimited, SndbufLimited time.Duration

	SndBuf, RcvBuf int // as the kernel counts, bytes

	// What the handshake negotiated.
	WindowScaling, SACK, Timestamps, ECN bool
	SndScale, RcvScale                   int // shifts of the peer's and our window
	RcvMSS, AdvMSS                       int // bytes: of the peer's segments as seen, and what we announced

	BBR *BBRInfo // nil unless the congestion control is BBR
}

// BBRInfo is the model that BBR has of the path.
type BBRInfo struct {
	Bandwidth  float64 // bytes per second
	MinRTT     time.Duration
	PacingGain float64
	CwndGain   float64
}

// Info returns the kernel's figures, and false where there are none.
func (c *tcpConn) Info() (Info, bool) {
	i, ok := InfoOf(c.tcp)
	i.Protocol = TCP
	return i, ok
}

// InfoOf is Info for any TCP socket.
func InfoOf(tcp *net.TCPConn) (Info, bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return Info{}, false
	}
	return infoOf(raw)
}
