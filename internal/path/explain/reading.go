package explain

import (
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// reading is what the kernel says of one TCP socket at one moment. Sizes are bytes; counters run
// from the start of the connection.
type reading struct {
	cookie        uint64 // names the socket as long as it lives
	inode         uint32 // 0 once the program has closed it
	local, remote netip.AddrPort
	control       string // congestion control

	unread         int64 // received, and not read by the program
	sndBuf, rcvBuf int64 // as the kernel counts them

	mss, rcvMSS, pmtu        int64
	inFlight, notSent, cwnd  int64
	sndWnd, rcvWnd           int64
	rtt, minRTT, rcvRTT      time.Duration
	busy, rwnd, sndbuf       time.Duration
	sinceSent, sinceReceived time.Duration
	acked, received          int64
	segments, retrans, asked int64
	spurious, reordered      int64
	paceLimit                int64 // bit/s, 0 for none
}

// moved is how much a connection carried.
func (r *reading) moved() int64 { return r.acked + r.received }

// flow follows one direction of a connection. An end that is not on this host is unknown.
type flow struct {
	out, in  diagnose.Series
	sum      diagnose.Sample // what is integrated over time
	unread   time.Duration
	dipped   bool          // the peer's window has been smaller than before
	dipAt    time.Duration // when that was seen last
	at       time.Duration
	started  bool
	widest   int64 // window of the receiver
	received int64
}

const (
	// unreadAbove is the share of a receive buffer, as the kernel counts it, that waits for such a
	// program. About half of the buffer can be payload.
	unreadAbove = 0.2
	// A full window that becomes smaller now and then, by a tenth, while round trips take much longer than
	// they need to: acknowledgements wait for the program that reads. A window that is only small keeps
	// its size, and so does one behind a full line.
	dips, dipLasts = 0.9, time.Second
	// prompt is how long after a request the first data of the answer may follow. The kernel counts
	// in ticks of up to 10 ms, 4 ms as a rule.
	prompt = 4 * time.Millisecond
)

// add adds a look at both ends, of which one may be nil. fresh says that the connection began since
// the look before.
func (f *flow) add(at time.Duration, sender, receiver *reading, fresh bool) {
	passed := at - f.at
	if !f.started {
		passed = 0
		if fresh && at > step {
			f.out.Add(diagnose.Sample{At: at - step})
			f.in.Add(diagnose.Sample{At: at - step})
		}
	}
	f.started, f.at = true, at
	if receiver != nil {
		if float64(receiver.unread) >= unreadAbove*float64(receiver.rcvBuf) && receiver.rcvBuf > 0 {
			f.unread += passed
		}
		f.in.Add(diagnose.Sample{At: at, Received: receiver.received, Unread: f.unread, RcvBuf: receiver.rcvBuf, Streams: 1, MSS: receiver.rcvMSS})
	}
	switch {
	case sender != nil:
		f.out.Add(f.sending(at, passed, sender))
	case receiver != nil:
		f.out.Add(f.inferred(at, passed, receiver))
	}
}

// sending is the sample of a sender that is on this host.
func (f *flow) sending(at, passed time.Duration, r *reading) diagnose.Sample {
	socket := diagnose.Socket{InFlight: r.inFlight, NotSent: r.notSent, Window: r.sndWnd, Buffer: r.sndBuf, Cwnd: r.cwnd, MSS: r.mss}
	t := &f.sum
	f.widest = max(f.widest, r.sndWnd)
	count := func(d *time.Duration, is bool) {
		if is {
			*d += passed
		}
	}
	count(&t.Nagled, socket.Nagled())
	count(&t.Backlog, socket.Backlogged())
	count(&t.Windowed, socket.Windowed())
	count(&t.Buffered, socket.Buffered() || socket.Cramped())
	count(&t.Flying, r.inFlight > 0)
	if float64(r.sndWnd) <= dips*float64(f.widest) {
		f.dipped, f.dipAt = true, at
	}
	slow := f.dipped && at-f.dipAt < dipLasts && r.rtt >= 2*r.minRTT && socket.Windowed()
	count(&t.Shut, slow || socket.Shut(f.widest))
	late := r.sinceReceived - r.sinceSent // after the last data received
	count(&t.Answering, late >= -prompt && late <= max(prompt, r.minRTT/4))
	if r.inFlight > 0 {
		t.RTTSum += int64(float64(r.rtt) * passed.Seconds())
	}
	s := *t
	s.At, s.Streams, s.Busy, s.RwndLimited, s.SndbufLimited = at, 1, r.busy, r.rwnd, r.sndbuf
	s.Acked, s.Segments, s.Retrans, s.Spurious, s.Reordered, s.Asked = r.acked, r.segments, r.retrans, r.spurious, r.reordered, r.asked
	s.MinRTT, s.RTT, s.InFlight, s.Cwnd, s.SndWnd, s.SndBuf = r.minRTT, r.rtt, r.inFlight, r.cwnd, f.widest, r.sndBuf
	s.PMTU, s.MSS, s.Control, s.PaceLimit = r.pmtu, r.mss, diagnose.ControlNumber(r.control), r.paceLimit
	return s
}

// inferred is what a receiver's socket shows of a sender on another host: how much of the window that
// was offered came in each round trip.
func (f *flow) inferred(at, passed time.Duration, r *reading) diagnose.Sample {
	came := r.received - f.received
	f.received = r.received
	t := &f.sum
	if came > 0 && passed > 0 {
		t.Busy += passed
		t.Flying += passed
		t.RTTSum += int64(float64(r.rcvRTT) * passed.Seconds())
		window := diagnose.Socket{InFlight: int64(float64(came) * r.rcvRTT.Seconds() / passed.Seconds()), Window: r.rcvWnd, MSS: r.rcvMSS}
		t.InFlight = window.InFlight
		if window.Windowed() {
			t.Windowed += passed
		}
	} else {
		t.InFlight = 0
	}
	s := *t
	s.At, s.Streams, s.Acked, s.MSS, s.SndWnd = at, 1, r.received, r.rcvMSS, r.rcvWnd
	s.MinRTT, s.RTT = least(r.minRTT, r.rcvRTT), r.rcvRTT
	return s
}

// least returns the smaller of two times, of which 0 is unknown.
func least(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// session is what is known of a flow. Both hosts are the same if both ends are seen.
func (f *flow) session(here diagnose.Host, remote netip.AddrPort, sends, both bool) *diagnose.Session {
	there := diagnose.Host{Name: remote.Addr().Unmap().String()}
	s := &diagnose.Session{Sender: f.out.All(), Receiver: f.in.All(), SenderHost: here, ReceiverHost: there, Seen: diagnose.Sender}
	switch {
	case both:
		s.ReceiverHost = here
		s.SenderHost.Loopback, s.ReceiverHost.Loopback = 1, 1
	case !sends:
		s.SenderHost, s.ReceiverHost, s.Seen = there, here, diagnose.Receiver
	}
	return s
}

// follow watches both directions of one connection.
type follow struct {
	last      reading
	peer      bool // the other end was on this host, too
	program   string
	sent      flow // by the local end
	received  flow
	sentBytes int64 // before the first look
	cameBytes int64
}

func (w *follow) add(at time.Duration, r, peer *reading, fresh bool) {
	if !w.sent.started && !fresh {
		w.sentBytes, w.cameBytes = r.acked, r.received
	}
	w.peer = w.peer || peer != nil
	w.sent.add(at, r, peer, fresh)
	w.received.add(at, peer, r, fresh)
	w.last = *r
}

// connection judges the larger direction.
func (w *follow) connection(here diagnose.Host) Connection {
	c := Connection{
		Local: w.last.local, Remote: w.last.remote, Program: w.program,
		Sent: w.last.acked - w.sentBytes, Received: w.last.received - w.cameBytes,
	}
	c.Service = service(c.Local.Port(), c.Remote.Port())
	c.Sends = c.Sent >= c.Received
	f := &w.received
	if c.Sends || w.peer {
		c.Control = w.last.control
	}
	if c.Sends {
		f = &w.sent
	}
	c.judge(f.session(here, c.Remote, c.Sends, w.peer))
	return c
}
