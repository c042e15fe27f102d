package web

import (
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// view is a server's state as the dashboard receives it. Times are in ms since 1970, durations in
// s, rates in bit/s, sizes in bytes.
type view struct {
	At          int64      `json:"at"`
	Started     int64      `json:"started"`
	Ready       bool       `json:"ready"`
	Host        string     `json:"host"`
	Addr        string     `json:"addr"`
	Key         string     `json:"key"`
	Sessions    int        `json:"sessions"`
	MaxSessions int        `json:"maxSessions"`
	Refused     int64      `json:"refused"`
	Ended       int64      `json:"ended"` // transfers; a change makes the dashboard reload the history
	Total       total      `json:"total"`
	Shares      []share    `json:"shares"`
	Transfers   []transfer `json:"transfers"`
	AtDoors     []atDoor   `json:"atDoors"`
}

// atDoor is what a user does at a door, on one share.
type atDoor struct {
	ID       string `json:"id"`
	Door     string `json:"door"`
	Client   string `json:"client"`
	Peer     string `json:"peer"`
	Share    string `json:"share"`
	Began    int64  `json:"began"`
	Received int64  `json:"received"` // bytes
	Sent     int64  `json:"sent"`
	Files    int    `json:"files"`
	Failed   int    `json:"failed"`
	In       int64  `json:"in"` // bit/s, of late
	Out      int64  `json:"out"`
}

type share struct {
	Name   string `json:"name"`
	Dir    string `json:"dir"`
	Rights string `json:"rights"`
	Free   int64  `json:"free"` // -1 if unknown
	In     int64  `json:"in"`   // since the server started
	Out    int64  `json:"out"`
	Last   int64  `json:"last"` // end of the last successful transfer, 0 if there was none
}

type transfer struct {
	ID       string   `json:"id"`
	Receive  bool     `json:"receive"`
	Client   string   `json:"client"`
	Peer     string   `json:"peer"`
	Share    string   `json:"share"`
	Paths    []string `json:"paths"`
	First    string   `json:"first"` // a file
	Began    int64    `json:"began"`
	Ended    int64    `json:"ended,omitempty"`
	Outcome  string   `json:"outcome,omitempty"`
	Error    string   `json:"error,omitempty"`
	Seconds  float64  `json:"seconds"`
	Walking  bool     `json:"walking"`
	Files    int64    `json:"files"`
	Done     int64    `json:"done"`
	Failed   int64    `json:"failed"`
	Bytes    int64    `json:"bytes"`
	Arrived  int64    `json:"arrived"`
	Written  int64    `json:"written"`
	Goodput  float64  `json:"goodput"`
	Streams  int      `json:"streams"`
	AtRisk   float64  `json:"atRisk"`
	Network  network  `json:"network"`
	Sharing  sharing  `json:"sharing"`
	Limit    *limit   `json:"limit,omitempty"`
	Limits   []limit  `json:"limits,omitempty"`
	Active   []active `json:"active"`
	Timeline []point  `json:"timeline,omitempty"`
}

type network struct {
	RTT         float64 `json:"rtt"`
	MinRTT      float64 `json:"minRTT"`
	BDP         int64   `json:"bdp"`
	InFlight    int64   `json:"inFlight"`
	Window      int64   `json:"window"`
	PeerWindow  int64   `json:"peerWindow"`
	SendBuffer  int64   `json:"sendBuffer"`
	RecvBuffer  int64   `json:"recvBuffer"`
	PMTU        int64   `json:"pmtu"`
	Segments    int64   `json:"segments"`
	Retransmits int64   `json:"retransmits"`
	Congestion  string  `json:"congestion"`
}

type sharing struct {
	Priority   string  `json:"priority"` // "" if unknown
	Shared     float64 `json:"shared"`
	Yielded    float64 `json:"yielded"`
	Queue      float64 `json:"queue"`
	QueueMost  float64 `json:"queueMost"`
	LostOwn    int64   `json:"lostOwn"` // segments
	LostOthers int64   `json:"lostOthers"`
	LostLine   int64   `json:"lostLine"`
	Spurious   int64   `json:"spurious"`
}

func sharingOf(s *fxfer.Sharing) sharing {
	return sharing{
		Priority: string(s.Priority), Shared: s.Shared.Seconds(), Yielded: s.Yielded.Seconds(), Queue: s.Queue.Seconds(), QueueMost: s.QueueMost.Seconds(),
		LostOwn: s.LostOwn, LostOthers: s.LostOthers, LostLine: s.LostLine, Spurious: s.Spurious,
	}
}

type limit struct {
	Name     string   `json:"name"`
	Side     string   `json:"side"`
	Host     string   `json:"host,omitempty"`
	Share    float64  `json:"share"`
	Evidence []string `json:"evidence"`
	Hint     string   `json:"hint,omitempty"`
	Command  bool     `json:"command"` // the hint is a command
}

type active struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"` // -1 if unknown
	Done  int64  `json:"done"`
}

type point struct {
	At       float64 `json:"at"`
	Goodput  int64   `json:"goodput"`
	RTT      float64 `json:"rtt"`
	MinRTT   float64 `json:"minRTT"`
	InFlight int64   `json:"inFlight"`
	Window   int64   `json:"window"`
	Limiter  string  `json:"limiter"`
}

type client struct {
	Key       string `json:"key"`
	Name      string `json:"name"`
	Rights    string `json:"rights"`
	Revoked   bool   `json:"revoked"`
	Transfers int    `json:"transfers"`
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func viewOf(s Server) *view {
	st := s.Status()
	v := &view{
		At: milli(st.At), Started: milli(st.Started), Ready: st.Ready, Host: st.Host, Addr: st.Addr, Key: st.Pin, Sessions: st.Sessions, MaxSessions: st.MaxSessions,
		Shares: []share{}, Transfers: []transfer{}, AtDoors: []atDoor{},
	}
	for _, n := range st.Counters.Refused {
		v.Refused += n
	}
	for i := range st.Shares {
		x := &st.Shares[i]
		v.Shares = append(v.Shares, share{Name: x.Name, Dir: x.Dir, Rights: x.Rights.String(), Free: x.Free})
	}
	for i := range st.Counters.Traffic {
		f := &st.Counters.Traffic[i]
		for _, n := range f.Sessions {
			v.Ended += n
		}
		for k := range v.Shares {
			if x := &v.Shares[k]; x.Name == f.Share {
				if f.Receive {
					x.In = f.Bytes
				} else {
					x.Out = f.Bytes
				}
				x.Last = max(x.Last, milli(f.LastDone))
			}
		}
	}
	for i := range st.Transfers {
		v.Transfers = append(v.Transfers, transferOf(&st.Transfers[i]))
	}
	for i := range st.AtDoors {
		x := &st.AtDoors[i]
		v.AtDoors = append(v.AtDoors, atDoor{
			ID: x.ID, Door: x.Door, Client: x.Client, Peer: x.Peer, Share: x.Share, Began: milli(x.Began),
			Received: x.Received, Sent: x.Sent, Files: x.Files, Failed: x.Failed,
		})
	}
	return v
}

// rateDoors sets the rates of the sessions at doors since the view before, nil for none.
func (v *view) rateDoors(before *view) {
	then := map[string]*atDoor{}
	if before != nil {
		for i := range before.AtDoors {
			then[before.AtDoors[i].ID] = &before.AtDoors[i]
		}
	}
	for i := range v.AtDoors {
		x := &v.AtDoors[i]
		since, was := x.Began, atDoor{}
		if b := then[x.ID]; b != nil {
			since, was = before.At, *b
		}
		if ms := v.At - since; ms > 0 {
			x.In, x.Out = (x.Received-was.Received)*8000/ms, (x.Sent-was.Sent)*8000/ms
		}
	}
}

func transferOf(x *fxfer.SessionStatus) transfer {
	n := &x.Network
	t := transfer{
		ID: x.ID, Receive: x.Receive, Client: x.Client, Peer: x.Peer, Share: x.Share, Paths: x.Paths, First: x.First, Began: milli(x.Began), Ended: milli(x.Ended),
		Outcome: x.Outcome, Error: x.Error, Seconds: x.Elapsed.Seconds(), Walking: x.Walking, Files: x.Files, Done: x.FilesDone, Failed: x.FilesFailed,
		Bytes: x.Bytes, Arrived: x.BytesDone, Written: x.Written, Goodput: x.Goodput, Streams: x.Streams, AtRisk: x.AtRisk.Seconds(),
		Network: network{
			RTT: n.RTT.Seconds(), MinRTT: n.MinRTT.Seconds(), BDP: n.BDP, InFlight: n.InFlight, Window: n.Window, PeerWindow: n.PeerWindow, SendBuffer: n.SendBuffer,
			RecvBuffer: n.RecvBuffer, PMTU: n.PMTU, Segments: n.Segments, Retransmits: n.Retransmits, Congestion: n.Congestion,
		},
		Sharing: sharingOf(&x.Sharing),
		Active:  []active{},
	}
	if x.Now != nil {
		l := limitOf(x.Now)
		t.Limit = &l
	}
	for i := range x.Limits {
		t.Limits = append(t.Limits, limitOf(&x.Limits[i]))
	}
	for _, a := range x.Active {
		t.Active = append(t.Active, active{a.Path, a.Bytes, a.Done})
	}
	for _, p := range x.Timeline {
		t.Timeline = append(t.Timeline, point{p.At.Seconds(), int64(p.Goodput), p.RTT.Seconds(), p.MinRTT.Seconds(), p.InFlight, p.Window, p.Limiter})
	}
	return t
}

func limitOf(l *fxfer.Limit) limit {
	return limit{
		Name: string(l.Limiter), Side: string(l.Side), Host: l.Host, Share: l.Share, Evidence: words.Evidence(l), Hint: words.Hint(l),
		Command: len(l.Remedies) > 0 && words.PartsOf(&l.Remedies[0]).Advice == "",
	}
}
