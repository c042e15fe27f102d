package server

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
)

// Counters are what a server has counted since its start.
type Counters struct {
	Refused map[string]int64 // connections and sessions, by reason
	Begun   map[string]int64 // sessions, by intent or door
	Traffic []ShareTraffic   // by share and direction, where there was any
}

// ShareTraffic counts what went through one share in one direction.
type ShareTraffic struct {
	Share   string
	Receive bool // the server received

	Sessions map[string]int64         // that ended, by outcome
	LastDone time.Time                // end of the last session that succeeded; zero for none
	Bytes    int64                    // payload written at the receiver
	Resumed  int64                    // payload found from earlier runs, bytes
	Resent   int64                    // payload sent more than once, bytes
	Files    map[string]int64         // by outcome: Committed, Unchanged, Failed, Removed
	Stages   map[string]time.Duration // time spent, by stage, all streams together
	Limits   map[string]time.Duration // how long each limiter held transfers back
	Blocks   BlockTimes

	Busy          time.Duration // of streams, with data in flight
	RwndLimited   time.Duration // part of Busy, held back by the peer's window
	SndbufLimited time.Duration // part of Busy, held back by the send buffer
	Segments      int64
	Retransmits   int64

	Shared  time.Duration    // others used the line, and transfers took a part of it
	Yielded time.Duration    // others used the line, and transfers took what they left
	Lost    map[string]int64 // segments that were sent again, by what they were lost to
}

// BlockTimes is a histogram of the time that blocks took: at a sender from the claim to the
// acknowledgement, at a receiver from the header to the written data.
type BlockTimes struct {
	Bounds []time.Duration
	// Counts[i] are the blocks that took no longer than Bounds[i], and longer than the bound
	// before. The last count is for those longer than all bounds.
	Counts []int64
	Spent  time.Duration // sum of all blocks
}

// maxPast bounds the ended sessions that are remembered.
const maxPast = 200

// serverCounters holds the Counters, and the sessions that ended lately. It is safe for concurrent
// use.
type serverCounters struct {
	mu      sync.Mutex // guards all fields below
	refused map[string]int64
	begun   map[string]int64
	traffic map[trafficKey]*ShareTraffic
	past    []SessionStatus // latest last
}

type trafficKey struct {
	share   string
	receive bool
}

func newServerCounters() *serverCounters {
	return &serverCounters{
		refused: make(map[string]int64), begun: make(map[string]int64),
		traffic: make(map[trafficKey]*ShareTraffic),
	}
}

func (c *serverCounters) refuse(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[reason]++
}

// begin counts a session by what it is for.
func (c *serverCounters) begin(intent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[intent]++
}

// update calls f with the traffic of a share, to change it.
func (c *serverCounters) update(share string, receive bool, f func(*ShareTraffic)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.trafficLocked(trafficKey{share, receive}))
}

func (c *serverCounters) trafficLocked(key trafficKey) *ShareTraffic {
	t := c.traffic[key]
	if t == nil {
		t = &ShareTraffic{
			Share: key.share, Receive: key.receive,
			Sessions: make(map[string]int64), Files: make(map[string]int64),
			Stages: make(map[string]time.Duration), Limits: make(map[string]time.Duration),
			Lost: make(map[string]int64),
			Blocks: BlockTimes{
				Bounds: transfer.BlockBounds[:], Counts: make([]int64, len(transfer.BlockBounds)+1),
			},
		}
		c.traffic[key] = t
	}
	return t
}

// end counts a session that has ended, and remembers it.
func (c *serverCounters) end(st SessionStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trafficLocked(trafficKey{st.Share, st.Receive})
	t.Sessions[st.Outcome]++
	if st.Outcome == OutcomeDone {
		t.LastDone = st.Ended
	}
	if len(c.past) >= maxPast {
		c.past = slices.Delete(c.past, 0, len(c.past)-maxPast+1)
	}
	c.past = append(c.past, st)
}

// ended returns the sessions that ended, the latest first.
func (c *serverCounters) ended() []SessionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	past := slices.Clone(c.past)
	slices.Reverse(past)
	return past
}

// snapshot returns a copy of the Counters.
func (c *serverCounters) snapshot() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := Counters{Refused: maps.Clone(c.refused), Begun: maps.Clone(c.begun)}
	for _, traffic := range c.traffic {
		t := *traffic
		t.Sessions, t.Files = maps.Clone(t.Sessions), maps.Clone(t.Files)
		t.Stages, t.Limits = maps.Clone(t.Stages), maps.Clone(t.Limits)
		t.Lost = maps.Clone(t.Lost)
		t.Blocks.Counts = slices.Clone(t.Blocks.Counts)
		all.Traffic = append(all.Traffic, t)
	}
	return all
}
