package diagnose

const (
	// windowFull is the share of the peer's window from which data in flight fills it. Autotuning
	// keeps a receiver's window about twice as large as what is in flight (tcp_rcv_space_adjust in
	// net/ipv4/tcp_input.c).
	windowFull = 0.75
	// bufferFull is the share of a send buffer, as the kernel counts it, from which data in flight
	// fills it; see internal/transport. Autotuning keeps the buffer at least twice as large as the
	// congestion window (tcp_sndbuf_expand in net/ipv4/tcp_input.c).
	bufferFull = 0.45
	// shutBelow is the share of its widest window that a receiver leaves open whose program is slow,
	// and shutFull the share of that from which data in flight fills it.
	shutBelow, shutFull = 0.6, 0.6
	// fullSegments is the least data in flight that a window can hold back.
	fullSegments = 4
)

// Socket is what TCP_INFO says of a sending socket at one moment, in bytes.
type Socket struct {
	InFlight int64
	NotSent  int64 // written, and not sent
	Window   int64 // that the peer advertises
	Buffer   int64 // of the sender, as the kernel counts it
	Cwnd     int64
	MSS      int64
}

// Backlogged reports whether data waits in the kernel to be sent.
func (s *Socket) Backlogged() bool { return s.NotSent >= max(1, s.MSS) }

// Windowed reports whether data in flight fills the peer's window.
func (s *Socket) Windowed() bool {
	return s.full() && s.Window > 0 && float64(s.InFlight) >= windowFull*float64(s.Window)
}

// Buffered reports whether data in flight fills the send buffer.
func (s *Socket) Buffered() bool {
	return s.full() && float64(s.InFlight+s.NotSent) >= bufferFull*float64(s.Buffer) && s.NotSent < s.InFlight/4
}

// Cramped reports whether the send buffer is full and holds less than the congestion window and the
// peer's window would take. Autotuning would have made it larger.
func (s *Socket) Cramped() bool {
	holds := s.Buffer / 3 * 2
	return s.Buffer > 0 && holds < s.Cwnd && holds < s.Window && float64(s.InFlight+s.NotSent) >= bufferFull*float64(s.Buffer)
}

// Shut reports whether data waits because the peer's window is full, and much smaller than it was:
// its program does not read what arrives.
func (s *Socket) Shut(widest int64) bool {
	return s.NotSent > 0 && Narrowed(s.Window, widest) && (s.InFlight == 0 || float64(s.InFlight) >= shutFull*float64(s.Window))
}

// Narrowed reports whether a window is much smaller than the widest that there was.
func Narrowed(window, widest int64) bool { return float64(window) <= shutBelow*float64(widest) }

func (s *Socket) full() bool { return s.InFlight >= fullSegments*max(1, s.MSS) }

// Nagled reports whether less than a segment waits for the acknowledgement of a small one: Nagle's
// algorithm (RFC 896). The peer may take 40 ms to send it.
func (s *Socket) Nagled() bool {
	return s.NotSent > 0 && s.NotSent < s.MSS && s.InFlight > 0 && s.InFlight <= 2*s.MSS
}
