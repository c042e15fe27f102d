package stream

import "time"

// Info is the state of a connection at one moment. Counters run from the start of the connection.
// Fields that the kernel, or QUIC, does not provide are zero.
type Info struct {
	Protocol   Protocol
	State      string // of TCP, for example "established"
	Congestion string // name of the congestion control

	RTT, MinRTT, RTTVar time.Duration

	SndMSS     int // bytes
	PMTU       int // bytes
	Reordering int // segments

	Cwnd     int  // bytes
	SndWnd   int  // window that the peer advertises, bytes
	RcvWnd   int  // window that we advertise to the peer, bytes
	RcvSpace int  // bytes that the receiver's autotuning expects per RTT
	InFlight int  // bytes sent and not acknowledged, counted in full segments
	Flying   int  // of InFlight, what is neither acknowledged selectively nor lost
	NotSent  int  // bytes written and not sent
	Held     bool // the rate of Pace holds the stream back now; not known of TCP

	BytesAcked, BytesSent, BytesReceived, BytesRetrans uint64
	Delivered                                          uint64 // segments acknowledged, selectively too
	RetransSegs                                        uint64
	DataSegs                                           uint64 // sent, retransmissions included
	DataSegsIn                                         uint64 // received; not known of QUIC
	SpuriousSegs                                       uint64 // that the peer got twice (D-SACK, RFC 2883)
	Reordered                                          uint64 // times that reordering was seen

	DeliveryRate float64 // bytes per second, the latest sample
	PacingRate   float64 // bytes per second; +Inf where nothing paces
	AppLimited   bool    // during the latest sample the sender had too little to send

	// BusyTime is the time with data in flight. RwndLimited and SndbufLimited are the parts of it
	// during which the peer's window or the send buffer held the connection back.
	BusyTime, RwndLimited, SndbufLimited time.Duration

	SndBuf, RcvBuf int // bytes as the kernel counts

	// What the handshake negotiated.
	WindowScaling, SACK, Timestamps, ECN bool
	SndScale, RcvScale                   int // shifts of the peer's and of our window
	RcvMSS, AdvMSS                       int // bytes: what the peer sends, and what we announced

	BBR *BBRInfo // nil unless the congestion control is BBR
}

// BBRInfo is BBR's model of the path.
type BBRInfo struct {
	Bandwidth  float64 // bytes per second
	MinRTT     time.Duration
	PacingGain float64
	CwndGain   float64
}
