package session

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/transport"
)

// InitialStreams is how many data streams a session opens at once: short transfers are slow start, and each stream brings its
// own initial window.
const InitialStreams = 16

// Tuner runs at the sending side and decides how many streams a session has and how many of them are used, from what the
// kernel and the receiver's acknowledgements show. A stream that stands still while others move is given up.
type Tuner struct {
	Sender *transfer.Sender
	Set    *StreamSet
	Fixed  bool                       // the number was asked for
	Most   func() int                 // streams now
	Want   func(n int, dead []uint64) // asks for n streams in all
}

const (
	TuneEvery = 250 * time.Millisecond
	// nearEvery is how soon a short path is noticed.
	nearEvery = 10 * time.Millisecond
)

// Run works until ctx is done.
func (t *Tuner) Run(ctx context.Context) {
	tick := time.NewTicker(nearEvery)
	defer tick.Stop()
	var g growth
	var links linkGrowth
	silent, moved := make(silences), make(movements)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			infos := t.Set.infos()
			o := observe(now, t.Sender.Stats().Written, infos)
			if o.Streams > 0 {
				tick.Reset(TuneEvery)
			}
			moved.look(now, infos, t.Set.waiting())
			dead := stalled(now, o.MinRTT, moved.of(t.Sender.Streams()))
			if len(dead) == 0 {
				dead = silent.look(now, infos)
			}
			if len(dead) > 0 {
				for _, id := range dead {
					t.Sender.Drop(id)
				}
				t.Want(max(1, o.Streams), dead)
				continue
			}
			most := t.Most()
			if t.Fixed {
				t.Sender.SetActive(most)
				if most > o.Streams { // there is room again
					t.Want(most, nil)
				}
				continue
			}
			n := 0
			if o.quic {
				n = links.next(o, most)
			} else {
				n = g.next(o, most)
			}
			n = min(n, most)
			t.Sender.SetActive(n)
			if n > o.Streams {
				t.Want(n, nil)
			}
		}
	}
}

// BufferPayload is the part of a send buffer that is payload where it is filled with large units; the rest is what the kernel
// counts for its own (skb->truesize in include/linux/skbuff.h).
const BufferPayload = 0.66

// Observation is one look at a session.
type Observation struct {
	at      time.Time
	written int64 // payload acknowledged by the receiver so far, bytes
	Streams int
	MinRTT  time.Duration
	rtt     time.Duration // smoothed, mean of the streams
	capped  float64       // share of the busy time in which a window was the limit, 0 to 1
	retrans uint64        // segments so far
	sent    uint64        // the same of all
	quic    bool
	Window  int // most payload in flight that one stream's send buffer allows, bytes; 0 is unknown
}

func observe(now time.Time, written int64, infos map[uint64]transport.Info) Observation {
	o := Observation{at: now, written: written, Streams: len(infos)}
	var busy, limited time.Duration
	for _, i := range infos {
		if m := i.MinRTT; m > 0 && (o.MinRTT == 0 || m < o.MinRTT) {
			o.MinRTT = m
		}
		o.rtt += i.RTT / time.Duration(len(infos))
		o.quic = o.quic || i.Protocol == transport.QUIC
		busy += i.BusyTime
		limited += i.RwndLimited + i.SndbufLimited
		o.retrans += i.RetransSegs
		o.sent += i.DataSegs
		o.Window = max(o.Window, int(float64(i.SndBuf)*BufferPayload))
	}
	if busy > 0 {
		o.capped = limited.Seconds() / busy.Seconds()
	}
	return o
}

// stalled returns the streams that wait for acknowledgements while others get them: one that lost its way, not a path that
// is down.
func stalled(now time.Time, rtt time.Duration, states []transfer.StreamState) (dead []uint64) {
	patience := 3*time.Second + 10*rtt
	moving := false
	for _, s := range states {
		moving = moving || s.InFlight > 0 && now.Sub(s.Moved) < time.Second+2*rtt
	}
	if !moving {
		return nil
	}
	for _, s := range states {
		if s.InFlight > 0 && now.Sub(s.Moved) > patience {
			dead = append(dead, s.ID)
		}
	}
	return dead
}

// movements tells when each stream last moved, as this host's kernel sees it: where a line or a rate limit is slow, the blocks of many streams
// take long to be acknowledged whole.
type movements map[uint64]movement

type movement struct {
	acked uint64
	at    time.Time
}

// look takes note of what the peer's kernel has acknowledged. A stream that a rate limit holds back is not to blame.
func (m movements) look(now time.Time, infos map[uint64]transport.Info, held map[uint64]bool) {
	for id := range m {
		if _, ok := infos[id]; !ok {
			delete(m, id)
		}
	}
	for id, i := range infos {
		if was, known := m[id]; !known || i.BytesAcked != was.acked || held[id] {
			m[id] = movement{i.BytesAcked, now}
		}
	}
}

// of returns states in which movements count like acknowledgements of blocks. It changes states.
func (m movements) of(states []transfer.StreamState) []transfer.StreamState {
	for i := range states {
		if at := m[states[i].ID].at; at.After(states[i].Moved) {
			states[i].Moved = at
		}
	}
	return states
}

// silences tells since when the kernel has waited for an acknowledgement on each stream.
type silences map[uint64]silence

type silence struct {
	acked uint64
	since time.Time
}

// silenceMost is how long a kernel may send segments again without any acknowledgement until another connection is tried: on a path that was
// down, the pauses between its trials grow, and where large packets vanish, only a new connection finds that out.
const silenceMost = 6 * time.Second

// look returns the streams that are silent for too long, if no stream has anything acknowledged.
func (s silences) look(now time.Time, infos map[uint64]transport.Info) (dead []uint64) {
	for id := range s {
		if _, ok := infos[id]; !ok {
			delete(s, id)
		}
	}
	moving := false
	for id, i := range infos {
		was, known := s[id]
		switch {
		case !known || i.BytesAcked != was.acked || i.InFlight == 0 || i.RetransSegs == 0:
			moving = moving || known && i.BytesAcked != was.acked
			s[id] = silence{i.BytesAcked, now}
		case now.Sub(was.since) >= silenceMost:
			dead = append(dead, id)
		}
	}
	if moving {
		return nil
	}
	return dead
}

// growth decides on the number of streams to use. More are taken only after goodput has settled, only where a cause is
// seen that more streams help against (a window cap, loss), and only as long as the last addition paid. At high rates, fewer are
// taken, as long as goodput does not fall: each stream then sends in larger units, which cost less work.
type growth struct {
	active  int         // streams in use, 0 before the first decision
	from    Observation // start of the present measurement
	last    float64     // goodput before the last change, bytes/s
	peak    float64
	change  int  // the last change of active, 0 if it was judged
	stopped bool // no more changes
}

const (
	// NearRTT is what a path within a building stays below. There, streams only cost work.
	NearRTT     = time.Millisecond
	NearStreams = 4
	// Costly is the goodput from which the work for each stream counts, bytes/s.
	Costly = 1.5e9 / 8
	// pays is the least gain for which streams are added again.
	pays = 1.04
	// settled is the gain between two measurements below which slow start is over.
	settled = 1.10
)

// next returns the number of streams to use.
func (g *growth) next(o Observation, limit int) int {
	if o.Streams == 0 {
		return g.active
	}
	if g.active == 0 {
		g.active = min(max(InitialStreams, o.Streams), limit) // what was learned may have opened more
		if o.MinRTT > 0 && o.MinRTT < NearRTT {
			g.active = min(NearStreams, limit)
		}
	}
	if g.from.at.IsZero() || o.written == 0 {
		g.from = o
		return g.active
	}
	period := o.at.Sub(g.from.at)
	if period < max(500*time.Millisecond, 8*o.MinRTT) {
		return g.active
	}
	goodput := float64(o.written-g.from.written) / period.Seconds()
	lost := float64(o.retrans - min(o.retrans, g.from.retrans))
	segments := goodput * period.Seconds() / 1448
	g.from = o
	before := g.peak
	g.peak = max(g.peak, goodput)
	if g.stopped || goodput > before*settled {
		return g.active // slow start is not over, or the last addition pays
	}
	if g.change > 0 && g.peak < g.last*pays {
		g.stopped = true
		return g.active
	}
	if g.change < 0 && goodput < g.last/pays {
		g.active, g.stopped = g.active-g.change, true
		return g.active
	}
	g.last, g.change = goodput, 0
	lossy := lost > 2e-5*segments && lost > 2
	queued := o.rtt > o.MinRTT*5/4
	if n := Sufficient(goodput, &o); goodput > Costly && n < g.active && !lossy {
		g.change = n - g.active
	} else if o.capped > 0.1 || lossy && !queued { // otherwise the link is full, or something is that streams do not help
		g.last = g.peak
		g.change = min(limit, g.active+max(4, g.active/2)) - g.active
	}
	g.active += g.change
	return g.active
}

// Sufficient is the number of streams whose windows hold twice the BDP: what BBR keeps in flight (cwnd_gain in net/ipv4/tcp_bbr.c).
func Sufficient(goodput float64, o *Observation) int {
	if o.Window == 0 {
		return o.Streams
	}
	return max(NearStreams, int(2*goodput*o.MinRTT.Seconds()/float64(o.Window))+1)
}
