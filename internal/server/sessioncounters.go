package server

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// judgeLag is how much of the latest time is not judged yet: the client's samples of it may still
// be on their way.
const judgeLag = time.Second

// sessionCounters follows one transfer, and adds what it does to the serverCounters.
type sessionCounters struct {
	x       *transferSession
	total   *serverCounters
	fixed   SessionStatus // what does not change
	tracker *session.Tracker
	first   atomic.Pointer[string] // path of the first file

	mu       sync.Mutex // guards all fields below
	added    sums       // what total has already
	judged   time.Duration
	now      *session.Limit
	judgedAt time.Time // when now was found
	peak     float64   // goodput, bit/s
}

// sums are counters that only grow.
type sums struct {
	progress              *session.Report
	times                 transfer.Times
	blocks                transfer.Blocks
	resent                int64
	busy, rwnd, sndbuf    time.Duration
	segments, retransmits int64
	sharing               session.Sharing
}

func newSessionCounters(x *transferSession) *sessionCounters {
	m := x.hello
	c := &sessionCounters{
		x: x, total: x.server.counters,
		tracker: session.NewTracker(session.TrackerOptions{DryRun: m.Target.DryRun}),
		added:   sums{progress: &session.Report{}},
	}
	c.fixed = SessionStatus{
		ID: x.id, Receive: m.Intent != wire.Pull, Client: string(x.peer.id),
		Peer: x.conn.RemoteAddr().String(), Agent: wire.Printable(m.Agent),
		Share: m.Share, Began: time.Now(),
	}
	for _, p := range m.Paths[:min(len(m.Paths), session.MaxActive)] {
		c.fixed.Paths = append(c.fixed.Paths, wire.Printable(p))
	}
	return c
}

// event takes an event of the engine.
func (c *sessionCounters) event(e *transfer.Event) {
	if e.Kind == transfer.Found && e.Entry.Kind == wire.File && c.first.Load() == nil {
		path := wire.Printable(e.Entry.Path)
		c.first.Store(&path)
	}
	c.tracker.Event(e)
}

// status returns how the session does, and brings the serverCounters up to date.
func (c *sessionCounters) status() SessionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.judgedAt) >= time.Second {
		c.judgeLocked(judgeLag)
	}
	return c.statusLocked()
}

func (c *sessionCounters) statusLocked() SessionStatus {
	x := c.x
	st := c.fixed
	if first := c.first.Load(); first != nil {
		st.First = *first
	}
	sender, receiver := x.telemetry.Latest(!st.Receive)
	st.Network = networkOf(&sender, &receiver)
	st.Sharing = session.SharingOf(&sender)
	streams := x.set.Count()
	st.Progress = c.tracker.Progress(streams, st.Network.MinRTT, session.AheadOf(x.telemetry.Carried(!st.Receive)-x.written(), streams))
	for i := range st.Active {
		st.Active[i].Path = wire.Printable(st.Active[i].Path)
	}
	st.Written = x.written()
	st.AtRisk = x.engine.AtRisk()
	c.peak = max(c.peak, st.Goodput)
	st.Network.BDP = int64(c.peak / 8 * st.Network.MinRTT.Seconds())
	st.Now = c.now
	if c.now != nil {
		st.Limiter = string(c.now.Limiter)
	}
	c.addLocked(&sender)
	return st
}

// judgeLocked finds the present limiter, and adds the time that each limiter held to the
// serverCounters, except for the latest part.
func (c *sessionCounters) judgeLocked(lag time.Duration) {
	c.judgedAt = time.Now()
	telemetry := c.x.telemetry
	passed := time.Since(telemetry.Start)
	s := telemetry.SessionSince(!c.fixed.Receive, min(c.judged, passed-session.Recent))
	cells := diagnose.Cells(s)
	c.addLimitsLocked(cells, passed-lag)
	for len(cells) > 0 && cells[0].Start < passed-session.Recent {
		cells = cells[1:]
	}
	c.now = nil
	verdicts := diagnose.Judge(cells, &s.SenderHost, &s.ReceiverHost, c.asked())
	if len(verdicts) > 0 && verdicts[0].Limiter != diagnose.Unknown {
		c.now = &verdicts[0]
	}
}

// addLimitsLocked adds the cells that end no later than until, and were not added yet. The client
// says when it measured, and its time is not trusted beyond ours.
func (c *sessionCounters) addLimitsLocked(cells []diagnose.Cell, until time.Duration) {
	held := make(map[string]time.Duration)
	for i := range cells {
		cell := &cells[i]
		if end := cell.Start + cell.Length; end > c.judged && end <= until {
			held[string(cell.Limiter)] += end - max(c.judged, cell.Start)
			c.judged = end
		}
	}
	c.total.update(c.fixed.Share, c.fixed.Receive, func(t *ShareTraffic) {
		for limiter, d := range held {
			t.Limits[limiter] += d
		}
	})
}

// asked returns what the client asked of the transfer.
func (c *sessionCounters) asked() *diagnose.Asked {
	m := c.x.hello
	a := &diagnose.Asked{
		Here: diagnose.Receiver, MaxStreams: int(min(m.MaxStreams, session.MaxStreams)),
		SockBuf: m.SockBuf, RateLimit: m.RateLimit,
	}
	if m.Intent != wire.Pull {
		a.Here = diagnose.Sender
	}
	a.Sync = string(session.SyncOf(m.Target.Sync))
	return a
}

// addLocked adds to the serverCounters what has come since the last time.
func (c *sessionCounters) addLocked(sender *diagnose.Sample) {
	now := sums{
		progress: c.tracker.Report(""), times: c.x.clock.Times(), blocks: c.x.clock.Blocks(),
		resent: c.x.engine.Stats().Resent,
		busy:   sender.Busy, rwnd: sender.RwndLimited, sndbuf: sender.SndbufLimited,
		segments: sender.Segments, retransmits: sender.Retrans,
		sharing: session.SharingOf(sender),
	}
	c.total.update(c.fixed.Share, c.fixed.Receive, func(t *ShareTraffic) { t.add(&c.added, &now) })
	c.added = now
}

// add adds the growth from was to now.
func (t *ShareTraffic) add(was, now *sums) {
	p, q := now.progress, was.progress
	grow(&t.Bytes, q.Written, &p.Written)
	grow(&t.Resumed, q.Resumed, &p.Resumed)
	grow(&t.Resent, was.resent, &now.resent)
	growKey(t.Files, string(session.Committed), q.Sent, &p.Sent)
	growKey(t.Files, string(session.Unchanged), q.Same, &p.Same)
	growKey(t.Files, string(session.Failed), q.Failed, &p.Failed)
	growKey(t.Files, string(session.Removed), q.Removed, &p.Removed)
	for stage, name := range stageNames {
		growKey(t.Stages, name, was.times[stage], &now.times[stage])
	}
	for i := range now.blocks.Counts {
		grow(&t.Blocks.Counts[i], was.blocks.Counts[i], &now.blocks.Counts[i])
	}
	grow(&t.Blocks.Spent, was.blocks.Spent, &now.blocks.Spent)
	grow(&t.Busy, was.busy, &now.busy)
	grow(&t.RwndLimited, was.rwnd, &now.rwnd)
	grow(&t.SndbufLimited, was.sndbuf, &now.sndbuf)
	grow(&t.Segments, was.segments, &now.segments)
	grow(&t.Retransmits, was.retransmits, &now.retransmits)
	s, r := &now.sharing, &was.sharing
	grow(&t.Shared, r.Shared, &s.Shared)
	grow(&t.Yielded, r.Yielded, &s.Yielded)
	growKey(t.Lost, "own_queue", r.LostOwn, &s.LostOwn)
	growKey(t.Lost, "others_queue", r.LostOthers, &s.LostOthers)
	growKey(t.Lost, "line", r.LostLine, &s.LostLine)
	growKey(t.Lost, "nothing", r.Spurious, &s.Spurious)
}

// grow adds the growth of a counter to a sum, which stays at the largest number. A counter that ran
// backwards counts as unchanged: now is raised to was.
func grow[T ~int64](sum *T, was T, now *T) {
	*now = max(*now, was)
	*sum += min(*now-was, math.MaxInt64-*sum)
}

func growKey[T ~int64](totals map[string]T, key string, was T, now *T) {
	sum := totals[key]
	grow(&sum, was, now)
	totals[key] = sum
}

// timeline returns the session's time so far.
func (c *sessionCounters) timeline() []Point {
	return points(diagnose.Cells(c.x.telemetry.Session(!c.fixed.Receive)))
}

// close takes the last status of a session that is over.
func (c *sessionCounters) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.x.telemetry.Sample()
	c.judgeLocked(0)
	st := c.statusLocked()
	st.Ended, st.Now, st.Limiter, st.AtRisk, st.Active = time.Now(), nil, "", 0, nil
	st.Outcome, st.Error = outcomeOf(err, st.FilesFailed), errorText(err)
	if s := st.Ended.Sub(st.Began).Seconds(); s > 0 {
		st.Goodput = float64(st.Written) * 8 / s
	}
	st.Streams = c.x.set.Peak()
	s := c.x.telemetry.Session(!st.Receive)
	cells := diagnose.Cells(s)
	if st.Outcome != OutcomeDisk { // a limit would only show how streams waited for it
		st.Limits = diagnose.Judge(cells, &s.SenderHost, &s.ReceiverHost, c.asked())
	}
	st.Timeline = points(cells)
	c.total.end(st)
}
