package server

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Counters are what a server has counted since its start.
type Counters struct {
	Refused map[string]int64 // by reason
	Begun   map[string]int64 // sessions, by intent
	Traffic []ShareTraffic   // by share and direction, where there was any
}

// ShareTraffic is what went one way through one share.
type ShareTraffic struct {
	Share   string
	Receive bool

	Sessions map[string]int64 // that ended, by outcome
	LastDone time.Time        // when one last ended well; zero for none
	Bytes    int64            // payload written at the receiver
	Resumed  int64            // payload that was there from an earlier run, bytes
	Resent   int64            // payload sent more than once, bytes
	Files    map[string]int64 // by outcome: Committed, Unchanged, Failed, Removed
	Stages   map[string]time.Duration
	Limits   map[string]time.Duration // how long each limiter held
	Blocks   BlockTimes

	Busy          time.Duration // of streams, with data in flight
	RwndLimited   time.Duration // of that, held back by the peer's window
	SndbufLimited time.Duration // of that, held back by the send buffer
	Segments      int64
	Retransmits   int64
}

// BlockTimes says how long blocks took: sending from the claim to the acknowledgement, receiving from the header to the written data.
type BlockTimes struct {
	Bounds []time.Duration
	Counts []int64 // of blocks that took no longer than each bound, and longer than the one before; the last are longer than all
	Spent  time.Duration
}

// maxPast bounds the ended sessions that are remembered.
const maxPast = 200

// tally is the Counters under way.
type tally struct {
	mu      sync.Mutex
	refused map[string]int64
	begun   map[string]int64
	flows   map[flowKey]*ShareTraffic
	past    []SessionStatus // latest last
}

type flowKey struct {
	share   string
	receive bool
}

func newTally() *tally {
	return &tally{refused: make(map[string]int64), begun: make(map[string]int64), flows: make(map[flowKey]*ShareTraffic)}
}

func (t *tally) refuse(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[reason]++
}

func (t *tally) begin(i wire.Intent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun[intentName(i)]++
}

// add lets f add to the flow of a share.
func (t *tally) add(share string, receive bool, f func(*ShareTraffic)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := flowKey{share, receive}
	flow := t.flows[key]
	if flow == nil {
		flow = &ShareTraffic{
			Share: share, Receive: receive, Sessions: make(map[string]int64), Files: make(map[string]int64), Stages: make(map[string]time.Duration),
			Limits: make(map[string]time.Duration),
			Blocks: BlockTimes{Bounds: transfer.BlockBounds[:], Counts: make([]int64, len(transfer.BlockBounds)+1)},
		}
		t.flows[key] = flow
	}
	f(flow)
}

func (t *tally) end(st SessionStatus) {
	t.add(st.Share, st.Receive, func(f *ShareTraffic) {
		f.Sessions[st.Outcome]++
		if st.Outcome == OutcomeDone {
			f.LastDone = st.Ended
		}
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.past) >= maxPast {
		t.past = slices.Delete(t.past, 0, len(t.past)-maxPast+1)
	}
	t.past = append(t.past, st)
}

func (t *tally) ended() []SessionStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	past := slices.Clone(t.past)
	slices.Reverse(past)
	return past
}

func (t *tally) counters() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Counters{Refused: maps.Clone(t.refused), Begun: maps.Clone(t.begun)}
	for _, flow := range t.flows {
		f := *flow
		f.Sessions, f.Files, f.Stages, f.Limits = maps.Clone(f.Sessions), maps.Clone(f.Files), maps.Clone(f.Stages), maps.Clone(f.Limits)
		f.Blocks.Counts = slices.Clone(f.Blocks.Counts)
		c.Traffic = append(c.Traffic, f)
	}
	return c
}

// book follows one session that sends or gets, and brings what it does to the tally.
type book struct {
	x       *serverSession
	tally   *tally
	fixed   SessionStatus // what does not change
	tracker *session.Tracker
	first   atomic.Pointer[string] // path of the first file

	mu      sync.Mutex // guards what follows
	counted booked
	judged  time.Duration // the part of the session's time whose limiters are counted
	now     *session.Limit
	looked  time.Time // when now was found
	peak    float64
}

// booked is what the tally has of a session.
type booked struct {
	progress              *session.Report
	times                 transfer.Times
	blocks                transfer.Blocks
	resent                int64
	busy, rwnd, sndbuf    time.Duration
	segments, retransmits int64
}

func newBook(x *serverSession, peer string) *book {
	b := &book{x: x, tally: x.server.tally, tracker: session.NewTracker(session.TrackerOptions{DryRun: x.hello.Target.DryRun})}
	b.counted.progress = &session.Report{}
	b.fixed = SessionStatus{
		ID: x.guest.id, Receive: x.hello.Intent != wire.Pull, Client: string(x.guest.who.id), Peer: peer,
		Agent: wire.Printable(x.hello.Agent), Share: x.hello.Share, Began: time.Now(),
	}
	for _, p := range x.hello.Paths[:min(len(x.hello.Paths), session.MaxActive)] {
		b.fixed.Paths = append(b.fixed.Paths, wire.Printable(p))
	}
	return b
}

// event takes one of the engine's.
func (b *book) event(e transfer.Event) {
	if e.Kind == transfer.Found && e.Entry.Kind == wire.File && b.first.Load() == nil {
		path := wire.Printable(e.Entry.Path)
		b.first.Store(&path)
	}
	b.tracker.Event(e)
}

// look says how the session does, and brings the tally up to date.
func (b *book) look() SessionStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lookLocked(time.Second)
}

// judgeBack is how much of the latest time is not counted yet: the other side's samples of it may still be on their way.
const judgeBack = time.Second

// lookLocked is look, with the limiter found anew if it is older than that.
func (b *book) lookLocked(older time.Duration) SessionStatus {
	x := b.x
	st := b.fixed
	if first := b.first.Load(); first != nil {
		st.First = *first
	}
	sender, receiver := x.watched.Latest(!st.Receive)
	st.Network = networkOf(&sender, &receiver)
	st.Progress = b.tracker.Progress(x.set.Count(), st.Network.MinRTT)
	for i := range st.Active {
		st.Active[i].Path = wire.Printable(st.Active[i].Path)
	}
	st.Written = x.written()
	if x.receive != nil {
		st.AtRisk = x.receive.AtRisk()
	}
	b.peak = max(b.peak, st.Goodput)
	st.Network.BDP = int64(b.peak / 8 * st.Network.MinRTT.Seconds())
	if x.watched != nil && time.Since(b.looked) >= older {
		b.judgeLocked(st.Receive, judgeBack)
	}
	st.Now = b.now
	if b.now != nil {
		st.Limiter = string(b.now.Limiter)
	}
	b.countLocked(&sender)
	return st
}

// judgeLocked finds the present limiter, and counts the time that each held but for the latest part.
func (b *book) judgeLocked(receive bool, latest time.Duration) {
	b.looked = time.Now()
	passed := time.Since(b.x.watched.Start)
	s := b.x.watched.SessionSince(!receive, min(b.judged, passed-session.Recent))
	cells := diagnose.Cells(s)
	held := make(map[string]time.Duration)
	until := b.judged
	for i := range cells {
		c := &cells[i]
		// The client says when it measured: its time is not believed beyond ours.
		if end := c.Start + c.Length; end > until && end <= passed-latest {
			held[string(c.Limiter)] += end - max(until, c.Start)
			until = end
		}
	}
	b.judged = until
	b.tally.add(b.fixed.Share, receive, func(f *ShareTraffic) {
		for limiter, d := range held {
			f.Limits[limiter] += d
		}
	})
	for len(cells) > 0 && cells[0].Start < passed-session.Recent {
		cells = cells[1:]
	}
	b.now = nil
	if verdicts := diagnose.Judge(cells, &s.SenderHost, &s.ReceiverHost, b.asked()); len(verdicts) > 0 && verdicts[0].Limiter != diagnose.Unknown {
		b.now = &verdicts[0]
	}
}

// asked is what the client asked of the transfer.
func (b *book) asked() *diagnose.Asked {
	m := b.x.hello
	a := &diagnose.Asked{Here: diagnose.Receiver, MaxStreams: int(min(m.MaxStreams, session.MaxStreams)), SockBuf: m.SockBuf, RateLimit: m.RateLimit}
	if m.Intent != wire.Pull {
		a.Here = diagnose.Sender
	}
	a.Sync = string(session.SyncOf(m.Target.Sync))
	return a
}

// countLocked adds to the tally what has come since the last time.
func (b *book) countLocked(sender *diagnose.Sample) {
	x, was := b.x, b.counted
	now := booked{
		progress: b.tracker.Report(""), times: x.clock.Times(), blocks: x.clock.Blocks(),
		busy: sender.Busy, rwnd: sender.RwndLimited, sndbuf: sender.SndbufLimited, segments: sender.Segments, retransmits: sender.Retrans,
	}
	if x.sender != nil {
		now.resent = x.sender.Stats().Resent
	}
	b.tally.add(b.fixed.Share, b.fixed.Receive, func(f *ShareTraffic) {
		p, q := now.progress, was.progress
		grow(&f.Bytes, q.Written, &p.Written)
		grow(&f.Resumed, q.Resumed, &p.Resumed)
		grow(&f.Resent, was.resent, &now.resent)
		for _, c := range []struct {
			outcome session.Outcome
			was     int64
			now     *int64
		}{{session.Committed, q.Sent, &p.Sent}, {session.Unchanged, q.Same, &p.Same}, {session.Failed, q.Failed, &p.Failed}, {session.Removed, q.Removed, &p.Removed}} {
			n := f.Files[string(c.outcome)]
			grow(&n, c.was, c.now)
			f.Files[string(c.outcome)] = n
		}
		for stage, name := range stageNames {
			d := f.Stages[name]
			grow(&d, was.times[stage], &now.times[stage])
			f.Stages[name] = d
		}
		for i := range now.blocks.Counts {
			grow(&f.Blocks.Counts[i], was.blocks.Counts[i], &now.blocks.Counts[i])
		}
		grow(&f.Blocks.Spent, was.blocks.Spent, &now.blocks.Spent)
		grow(&f.Busy, was.busy, &now.busy)
		grow(&f.RwndLimited, was.rwnd, &now.rwnd)
		grow(&f.SndbufLimited, was.sndbuf, &now.sndbuf)
		grow(&f.Segments, was.segments, &now.segments)
		grow(&f.Retransmits, was.retransmits, &now.retransmits)
	})
	b.counted = now
}

// grow adds to a sum by how much a counter grew. What ran backwards did not move.
func grow[T ~int64](sum *T, was T, now *T) {
	*now = max(*now, was)
	*sum += *now - was
}

// timeline is the session's time so far.
func (b *book) timeline() []Point {
	if b.x.watched == nil {
		return nil
	}
	return points(diagnose.Cells(b.x.watched.Session(!b.fixed.Receive)))
}

// close takes a last look at a session that is over.
func (b *book) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.x.watched != nil {
		b.x.watched.Sample()
		b.judgeLocked(b.fixed.Receive, 0)
	}
	st := b.lookLocked(time.Hour)
	st.Ended, st.Now, st.Limiter, st.AtRisk, st.Active = time.Now(), nil, "", 0, nil
	st.Outcome, st.Error = outcomeOf(err, st.FilesFailed), errorText(err)
	if s := st.Ended.Sub(st.Began).Seconds(); s > 0 {
		st.Goodput = float64(st.Written) * 8 / s
	}
	st.Streams = b.x.set.Peak()
	if b.x.watched != nil {
		s := b.x.watched.Session(!st.Receive)
		cells := diagnose.Cells(s)
		st.Limits = diagnose.Judge(cells, &s.SenderHost, &s.ReceiverHost, b.asked())
		st.Timeline = points(cells)
	}
	b.tally.end(st)
}
