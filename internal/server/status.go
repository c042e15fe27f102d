package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Status is the state of a server at one time.
type Status struct {
	At      time.Time
	Started time.Time
	Ready   bool // the server admits sessions
	Host    string
	Addr    string
	Pin     string

	Sessions           int // of any intent
	MaxSessions        int
	Unauthenticated    int             // connections whose peers have not proven who they are
	MaxUnauthenticated int             // further ones are closed
	Shares             []ShareStatus   // by name
	Transfers          []SessionStatus // that run, oldest first; without Timeline
	AtDoors            []DoorSession   // oldest first
	Counters           Counters        // since the start
	Certificates       []Certificate   // whose end must be watched
}

// ShareStatus is a share with its free space.
type ShareStatus struct {
	Share
	Free int64 // bytes, some seconds ago; -1 if unknown
}

// SessionStatus is a session that transfers files.
type SessionStatus struct {
	ID      string // as in the log; for Server.Session and Server.Cancel
	Receive bool   // the server receives
	Client  string // pin of the client's key, or the name in its certificate
	Peer    string // address and port
	Agent   string // software of the client
	Share   string
	Paths   []string // in the share, as the client named them
	First   string   // path of the first file, "" if there is none yet
	Began   time.Time
	Ended   time.Time // zero while the session runs
	Outcome string    // one of Outcomes once the session ended, else ""
	Error   string    // once the session ended, "" if it succeeded

	session.Progress
	Written int64         // payload written at the receiver, bytes
	AtRisk  time.Duration // age of the oldest received data that is not durable yet
	Network Network
	Sharing session.Sharing

	Now    *session.Limit  // what holds the transfer back now, nil if unknown
	Limits []session.Limit // once the session ended, but not by a disk: what held it back, longest first

	Timeline []Point // at most some hundred
}

// Network is what the sockets of a session show, those of the sending side where both are known.
type Network struct {
	RTT         time.Duration // smoothed, mean of the streams with data in flight
	MinRTT      time.Duration
	BDP         int64 // peak goodput × MinRTT, bytes
	InFlight    int64 // bytes, all streams
	Window      int64 // bytes that all streams may have in flight
	Cwnd        int64 // bytes, all streams
	PeerWindow  int64 // the largest receive window advertised to a stream, bytes
	SendBuffer  int64 // the largest, bytes as the kernel counts
	RecvBuffer  int64 // the largest, bytes as the kernel counts
	PMTU        int64 // bytes
	Segments    int64
	Retransmits int64 // segments
	Congestion  string
}

// Point is a short part of a session.
type Point struct {
	At       time.Duration // its end, since the session's start
	Goodput  float64       // bit/s
	RTT      time.Duration
	MinRTT   time.Duration
	InFlight int64 // bytes
	Window   int64 // bytes
	Limiter  string
}

// The outcomes of sessions that transfer files.
const (
	OutcomeDone      = "done"
	OutcomePartial   = "partial"   // some entries failed
	OutcomeCancelled = "cancelled" // by either side
	OutcomeDrained   = "drained"   // the server ended
	OutcomeLost      = "lost"      // the connection broke
	OutcomeDisk      = "disk"      // a disk of either side failed
	OutcomeFailed    = "failed"    // for another reason
)

// Outcomes are all outcomes of sessions.
var Outcomes = []string{
	OutcomeDone, OutcomePartial, OutcomeCancelled, OutcomeDrained, OutcomeLost, OutcomeDisk,
	OutcomeFailed,
}

func outcomeOf(err error, failed int64) string {
	var known *wire.Error
	switch {
	case err == nil && failed > 0:
		return OutcomePartial
	case err == nil:
		return OutcomeDone
	case !errors.As(err, &known):
		return OutcomeLost
	}
	switch known.Code {
	case wire.CodeCancelled:
		return OutcomeCancelled
	case wire.CodeDraining:
		return OutcomeDrained
	case wire.CodeSilent:
		return OutcomeLost
	case wire.CodeSourceDisk, wire.CodeTargetDisk, wire.CodeNoSpace:
		return OutcomeDisk
	}
	return OutcomeFailed
}

// Status returns the state of the server. It does not slow down transfers.
func (s *Server) Status() *Status {
	unauthenticated, mostUnauthenticated := s.conns.Unauthenticated()
	st := &Status{
		At: time.Now(), Started: s.started, Host: s.host, Addr: s.Addr().String(), Pin: s.Pin(),
		Unauthenticated: unauthenticated, MaxUnauthenticated: mostUnauthenticated,
		Certificates: s.certificates(),
	}
	s.mu.Lock()
	st.Ready = s.serving && !s.draining
	st.Sessions, st.MaxSessions = s.slots.taken, s.slots.max
	transfers := s.transfersLocked()
	atDoors := slices.Collect(maps.Keys(s.atDoors))
	s.mu.Unlock()
	for _, x := range atDoors {
		st.AtDoors = append(st.AtDoors, x.status())
	}
	slices.SortFunc(st.AtDoors, func(a, b DoorSession) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
	})
	for _, x := range transfers {
		st.Transfers = append(st.Transfers, x.counters.status())
	}
	slices.SortFunc(st.Transfers, func(a, b SessionStatus) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
	})
	for _, share := range s.sortedShares() {
		st.Shares = append(st.Shares, ShareStatus{share.Share, share.free.Load()})
	}
	st.Counters = s.counters.snapshot()
	return st
}

// Past returns the last 200 transfers that have ended, the latest first. Their Timelines must not
// be changed.
func (s *Server) Past() []SessionStatus { return s.counters.ended() }

// Session returns a transfer that runs or ended lately, with its Timeline.
func (s *Server) Session(id string) (SessionStatus, bool) {
	x := s.running(id) // looked up first: a session is among the past ones before it stops running
	for _, st := range s.counters.ended() {
		if st.ID == id {
			return st, true
		}
	}
	if x == nil {
		return SessionStatus{}, false
	}
	st := x.counters.status()
	st.Timeline = x.counters.timeline()
	return st, true
}

// Cancel ends a transfer. Data that has arrived stays, and the same command continues from there. It
// reports whether there was such a transfer.
func (s *Server) Cancel(id string) bool {
	x := s.running(id)
	if x == nil {
		return false
	}
	x.log.Info("cancelled by the administrator")
	x.stop(wire.Errorf(wire.CodeCancelled, "the server's administrator ended this transfer"))
	return true
}

// running returns a transfer by its ID, nil if there is none.
func (s *Server) running(id string) *transferSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.transfersLocked() {
		if x.id == id {
			return x
		}
	}
	return nil
}

// The reasons for which a server refuses connections, besides the codes of the protocol.
const (
	refusedConnLimit    = "too many strangers"
	refusedHandshake    = "handshake"
	refusedFirstMessage = "no first message"
	refusedLogin        = "login"
)

// RefusalReasons returns all keys of Counters.Refused.
func RefusalReasons() []string {
	reasons := []string{refusedConnLimit, refusedHandshake, refusedFirstMessage, refusedLogin}
	for _, code := range wire.Codes() {
		reasons = append(reasons, code.String())
	}
	return reasons
}

// Limiters returns the names of all limiters.
func Limiters() []string {
	var names []string
	for _, l := range diagnose.Limiters {
		names = append(names, string(l))
	}
	return names
}

// stageNames are the stages of a transfer that take time, as metrics call them.
var stageNames = map[transfer.Stage]string{
	transfer.Read: "read", transfer.Digest: "digest", transfer.Code: "compress",
	transfer.Send: "send", transfer.Receive: "receive", transfer.Write: "write",
	transfer.Walk: "walk", transfer.Feed: "feed", transfer.Compare: "compare",
	transfer.Name: "name", transfer.Sync: "sync",
}

const (
	// maxPoints bounds the points of a Timeline, roughly.
	maxPoints = 240
	// minPoint is the shortest time of a point: acknowledgements arrive in bunches.
	minPoint = 500 * time.Millisecond
)

// points joins cells into the points of a Timeline.
func points(cells []diagnose.Cell) (all []Point) {
	if len(cells) == 0 {
		return nil
	}
	last := &cells[len(cells)-1]
	least := max(minPoint, (last.Start+last.Length-cells[0].Start)/maxPoints)
	for len(cells) > 0 {
		part, length := 0, time.Duration(0)
		for part < len(cells) && length < least {
			length += cells[part].Length
			part++
		}
		x := diagnose.Join(cells[:part])
		cells = cells[part:]
		n := networkOf(&x.Sender, &x.Receiver)
		payload := max(x.Sender.Payload, x.Receiver.Payload)
		all = append(all, Point{
			At: x.Start + x.Length, RTT: n.RTT, MinRTT: n.MinRTT,
			InFlight: n.InFlight, Window: n.Window, Limiter: string(x.Limiter),
			Goodput: float64(payload) * 8 / x.Length.Seconds(),
		})
	}
	return all
}

// networkOf returns what the samples of both sides show of the path.
func networkOf(sender, receiver *diagnose.Sample) Network {
	n := Network{
		RTT: sender.RTT, MinRTT: cmp.Or(sender.MinRTT, receiver.MinRTT),
		InFlight: sender.InFlight, Cwnd: sender.Cwnd, PeerWindow: sender.SndWnd,
		SendBuffer: sender.SndBuf, RecvBuffer: receiver.RcvBuf,
		PMTU:     max(sender.PMTU, receiver.PMTU),
		Segments: sender.Segments, Retransmits: sender.Retrans,
		Congestion: diagnose.ControlName(sender.Control),
	}
	n.Window = n.Cwnd
	if all := n.PeerWindow * sender.Streams; all > 0 {
		n.Window = min(n.Window, all)
	}
	return n
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return wire.Printable(fmt.Sprint(err))
}
