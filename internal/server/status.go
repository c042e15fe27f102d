package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Status is a look at a server. Taking one disturbs no transfer.
type Status struct {
	At      time.Time
	Started time.Time
	Ready   bool // it serves, and does not end
	Host    string
	Addr    string
	Pin     string

	Sessions           int // of any intent
	MaxSessions        int
	Unauthenticated    int // connections that are not admitted yet
	MaxUnauthenticated int
	Shares             []ShareStatus   // by name
	Transfers          []SessionStatus // that run, oldest first; without Timeline
	Counters           Counters        // since the start
	Certificates       []Certificate   // whose end has to be watched
}

// ShareStatus is a share with the space that is left there.
type ShareStatus struct {
	Share
	Free int64 // bytes, as of some seconds ago; -1 if unknown
}

// SessionStatus is a session that sends or gets.
type SessionStatus struct {
	ID      string // as in the log; for Server.Session and Server.Cancel
	Receive bool   // the server receives
	Client  string // pin of the client's key
	Peer    string // address
	Agent   string
	Share   string
	Paths   []string // that the client named, in the share
	First   string   // path of the first file, "" if there is none yet
	Began   time.Time
	Ended   time.Time // zero while it runs
	Outcome string    // one of the Outcomes once it ended, else ""
	Error   string    // once it ended, "" if all went well

	session.Progress
	Written int64         // payload at the receiver, bytes
	AtRisk  time.Duration // for how long something written has waited to be durable
	Network Network

	Now    *session.Limit  // what holds it back at present, nil if that is not known
	Limits []session.Limit // what held it back, once it ended, the limiter of most of the time first

	Timeline []Point // at most some hundred
}

// Network is what the sockets of a session show: of the sending side, where that is known.
type Network struct {
	RTT         time.Duration // smoothed, mean of the streams with data in flight
	MinRTT      time.Duration
	BDP         int64 // peak goodput × MinRTT, bytes
	InFlight    int64 // bytes, all streams
	Window      int64 // that the streams may have in flight, bytes
	Cwnd        int64 // bytes, all streams
	PeerWindow  int64 // the largest that is advertised to a stream, bytes
	SendBuffer  int64 // the largest, bytes as the kernel counts
	RecvBuffer  int64 // the same
	PMTU        int64 // bytes
	Segments    int64
	Retransmits int64 // segments
	Congestion  string
}

// Point is a part of a session's time.
type Point struct {
	At       time.Duration // its end, since the session's start
	Goodput  float64       // bit/s
	RTT      time.Duration
	MinRTT   time.Duration
	InFlight int64 // bytes
	Window   int64 // bytes
	Limiter  string
}

// The outcomes of sessions that send or get.
const (
	OutcomeDone      = "done"
	OutcomePartial   = "partial"   // some entries failed
	OutcomeCancelled = "cancelled" // by either side
	OutcomeDrained   = "drained"   // the server ended
	OutcomeLost      = "lost"      // the connection
	OutcomeDisk      = "disk"      // of either side
	OutcomeFailed    = "failed"    // for another reason
)

// Outcomes are all outcomes of sessions.
var Outcomes = []string{OutcomeDone, OutcomePartial, OutcomeCancelled, OutcomeDrained, OutcomeLost, OutcomeDisk, OutcomeFailed}

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

// Status looks at the server.
func (s *Server) Status() *Status {
	st := &Status{
		At: time.Now(), Started: s.began, Host: s.host, Addr: s.Addr().String(), Pin: s.Pin(),
		Unauthenticated: s.gate.size(), MaxUnauthenticated: quarter(s.gate.most), Certificates: s.certificates(),
	}
	s.mu.Lock()
	st.Ready = s.serving && !s.draining
	st.Sessions, st.MaxSessions = s.seats.taken, s.seats.most
	sessions := make([]*serverSession, 0, len(s.sessions))
	for _, x := range s.sessions {
		if x.book != nil {
			sessions = append(sessions, x)
		}
	}
	s.mu.Unlock()
	for _, x := range sessions {
		st.Transfers = append(st.Transfers, x.book.look())
	}
	slices.SortFunc(st.Transfers, func(a, b SessionStatus) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
	})
	for _, share := range s.folders() {
		st.Shares = append(st.Shares, ShareStatus{share.Share, share.free.Load()})
	}
	st.Counters = s.tally.counters()
	return st
}

// Past returns the transfers of this server that have ended, the latest first, with their Timelines, which must not be changed. It keeps
// the last 200.
func (s *Server) Past() []SessionStatus { return s.tally.ended() }

// Session returns a transfer that runs, or ended lately, with its Timeline.
func (s *Server) Session(id string) (SessionStatus, bool) {
	x := s.running(id) // asked for first: it has ended before it stops being one that runs
	for _, st := range s.tally.ended() {
		if st.ID == id {
			return st, true
		}
	}
	if x == nil {
		return SessionStatus{}, false
	}
	st := x.book.look()
	st.Timeline = x.book.timeline()
	return st, true
}

// Cancel ends a transfer. What arrived stays, for the same command to go on from. It reports whether there was such a transfer.
func (s *Server) Cancel(id string) bool {
	x := s.running(id)
	if x == nil {
		return false
	}
	x.log.Info("cancelled by the administrator")
	x.drain(wire.Errorf(wire.CodeCancelled, "the server's administrator ended this transfer"))
	return true
}

// running returns the transfer of this ID, nil if there is none.
func (s *Server) running(id string) *serverSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		if x.book != nil && x.book.fixed.ID == id {
			return x
		}
	}
	return nil
}

// ReasonOf are the reasons for which a server refuses connections and sessions, beside those that the protocol has codes for.
const (
	refusedCrowd     = "too many strangers"
	refusedHandshake = "handshake"
	refusedGreeting  = "no first message"
)

// RefusalReasons are all reasons.
func RefusalReasons() []string {
	reasons := []string{refusedCrowd, refusedHandshake, refusedGreeting}
	for _, code := range wire.Codes() {
		reasons = append(reasons, code.String())
	}
	return reasons
}

// points turns cells into at most as many points as a plot shows.
func points(cells []diagnose.Cell) []Point {
	const most = 240
	if len(cells) == 0 {
		return nil
	}
	last := &cells[len(cells)-1]
	least := max(500*time.Millisecond, (last.Start+last.Length-cells[0].Start)/most) // acknowledgements come in bunches
	var all []Point
	for len(cells) > 0 {
		part, length := 0, time.Duration(0)
		for part < len(cells) && length < least {
			length += cells[part].Length
			part++
		}
		x := diagnose.Join(cells[:part])
		cells = cells[part:]
		n := networkOf(&x.Sender, &x.Receiver)
		p := Point{
			At: x.Start + x.Length, RTT: n.RTT, MinRTT: n.MinRTT, InFlight: n.InFlight, Window: n.Window, Limiter: string(x.Limiter),
			Goodput: float64(max(x.Sender.Payload, x.Receiver.Payload)) * 8 / x.Length.Seconds(),
		}
		all = append(all, p)
	}
	return all
}

// networkOf is what two samples of a session tell of its path.
func networkOf(sender, receiver *diagnose.Sample) Network {
	n := Network{
		RTT: sender.RTT, MinRTT: cmp.Or(sender.MinRTT, receiver.MinRTT), InFlight: sender.InFlight, Cwnd: sender.Cwnd, PeerWindow: sender.SndWnd,
		SendBuffer: sender.SndBuf, RecvBuffer: receiver.RcvBuf, PMTU: max(sender.PMTU, receiver.PMTU), Segments: sender.Segments, Retransmits: sender.Retrans,
		Congestion: diagnose.ControlName(sender.Control),
	}
	n.Window = n.Cwnd
	if all := n.PeerWindow * sender.Streams; all > 0 {
		n.Window = min(n.Window, all)
	}
	return n
}

// stageNames are the stages that cost a transfer time, as metrics call them.
var stageNames = map[transfer.Stage]string{
	transfer.Read: "read", transfer.Digest: "digest", transfer.Code: "compress", transfer.Send: "send", transfer.Receive: "receive", transfer.Write: "write",
	transfer.Walk: "walk", transfer.Feed: "feed", transfer.Compare: "compare", transfer.Name: "name", transfer.Sync: "sync",
}

func intentName(i wire.Intent) string {
	switch i {
	case wire.Push:
		return "receive"
	case wire.Pull:
		return "send"
	case wire.Store:
		return "store"
	case wire.Series:
		return "series"
	case wire.Expire:
		return "expire"
	case wire.List:
		return "list"
	case wire.Verify:
		return "verify"
	case wire.Probe:
		return "probe"
	}
	return "other"
}

// Intents are what sessions are for, as a server sees it.
var Intents = []string{"receive", "send", "store", "series", "expire", "list", "verify", "probe", "other"}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return wire.Printable(fmt.Sprint(err))
}

// Limiters are the names of all limiters.
func Limiters() []string {
	var names []string
	for _, l := range diagnose.Limiters {
		names = append(names, string(l))
	}
	return names
}

// ClientStatus is a client that the server knows.
type ClientStatus struct {
	Key       string // pin, or the name in its certificate; "*" is any whose name has none of its own
	Name      string // for people, "" if it has none
	Rights    string // such as "backup=wo", "" if it has none
	Revoked   bool
	Transfers int // that run
}

// Clients returns who is admitted or revoked, by authorized_clients and by the options, in this order. An error tells of lines that could not
// be read; the others are returned.
func (s *Server) Clients() ([]ClientStatus, error) {
	known, err := s.store.Clients()
	r := s.rules.Load()
	var all []ClientStatus
	add := func(id identity.Principal, name string, grants identity.Grants, revoked bool) {
		rule := r.clients[id]
		if rule != nil {
			name = cmp.Or(rule.Name, name)
			grants = grants.Merge(rule.Rights)
		}
		c := ClientStatus{Key: string(id), Name: wire.Printable(name), Revoked: revoked}
		if !revoked {
			c.Rights = grants.String()
		}
		all = append(all, c)
	}
	listed := make(map[identity.Principal]bool)
	for _, c := range known {
		listed[c.ID] = true
		add(c.ID, c.Comment, c.Grants, c.Revoked)
	}
	for _, id := range slices.Sorted(maps.Keys(r.clients)) {
		if !listed[id] {
			listed[id] = true
			add(id, "", nil, false)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.busy)) { // of those that have no name in the rules
		if c := r.client(id); c != nil && !listed[id] {
			add(id, "", c.Rights, false)
		}
	}
	running := make(map[string]int)
	for _, x := range s.sessions {
		if x.book != nil {
			running[x.book.fixed.Client]++
		}
	}
	for i := range all {
		all[i].Transfers = running[all[i].Key]
	}
	return all, err
}

// Revoke takes all rights from a client for good, and ends its sessions. key is its pin, or the name in its certificate.
func (s *Server) Revoke(key string) error {
	id, err := identity.ParsePrincipal(key)
	if err != nil {
		return session.Usage("", "%w", err)
	}
	if err := s.store.Revoke(id); err != nil {
		return &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	s.log.Warn("client is revoked by the administrator", "client", id.Short())
	s.review(false)
	return nil
}

// Home is the folder of the server's key and lists.
func (s *Server) Home() string { return s.store.Dir() }
