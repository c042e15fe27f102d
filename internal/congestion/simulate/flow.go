package simulate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
)

// Kind is what sends.
type Kind int

// The kinds of flows.
const (
	Session Kind = iota // a session of ours
	Cubic               // RFC 9438, as it is in Linux
	Reno                // RFC 5681
	BBR                 // version 1
	UDP                 // at a constant rate
)

func (k Kind) String() string { return [...]string{"session", "cubic", "reno", "BBR", "UDP"}[k] }

// Flow is who sends over a path, and when.
type Flow struct {
	Kind   Kind
	Count  int           // of connections: of a session its streams; 0 is 1, of a session 16
	From   time.Duration // it begins
	To     time.Duration // it ends; 0 is never
	Rate   float64       // bit/s of payload that its source has; 0 is no end. UDP sends at it
	Window int           // bytes in flight that the buffers of one connection allow; 0 is no bound
	Begins float64       // bit/s of payload of a session's streams together at first; 0 is at once
	Pauses []Pause       // of its hosts, in order
	Late   time.Duration // of a pause of its host, a stream catches up on so much at once

	Priority congestion.Priority // of a session
	Below    Kind                // congestion control of a session's streams: Cubic or BBR; 0 is BBR
}

// Controller decides for a session. *congestion.Controller is one.
type Controller interface {
	Update(congestion.Sample) congestion.Decision
}

// waiting is what each stream of an endless source has written and not sent, packets.
const waiting = 32

// flow is a Flow at work.
type flow struct {
	Flow
	streams []*stream
	source  float64 // packets that wait to be sent
	begun   bool
	begins  float64 // of each stream of a session until it decides on a rate, packets/s

	control  Controller
	decision congestion.Decision
	sample   congestion.Sample
	next     float64 // decision
	paused   *Pause  // the present one
	late     []train // acknowledgements that wait for its end

	member congestion.Member // what the server sees of a session
	before float64           // packets that it has seen

	delivered float64 // packets
	dropped   float64 // packets: by a queue, a policer, an AQM
	unlucky   float64 // packets that were lost by chance
	needless  float64 // packets that were sent again although they arrived
	sent      float64 // packets
	windowed  float64 // time in which buffers held a stream, of all together since the last sample, s
}

func (f *flow) deliver(n float64) { f.delivered += n }

func (f *flow) lose(t *train) {
	f.unlucky += float64(t.chance)
	f.dropped += float64(t.lost - t.chance)
}

func newFlow(f Flow, mss float64, control func(congestion.Priority) Controller) *flow {
	if f.Count == 0 && f.Kind == Session {
		f.Count = 16
	}
	if f.Below == Session {
		f.Below = BBR
	}
	made := &flow{Flow: f, source: math.Inf(1)}
	kind := f.Kind
	if kind == Session {
		made.control = control(f.Priority)
		made.decision.Rate = math.Inf(1)
		kind = f.Below
	}
	if f.Rate > 0 {
		made.source = 0
	}
	made.begins = math.Inf(1)
	if f.Begins > 0 {
		made.begins = f.Begins / 8 / mss / float64(max(1, f.Count))
	}
	for range max(1, f.Count) {
		s := &stream{flow: made, bound: made.begins, cap: math.Inf(1), left: math.Inf(1), paused: true}
		s.control = newControl(kind, initialWindow)
		if f.Window > 0 {
			s.cap = float64(f.Window) / mss
		}
		made.streams = append(made.streams, s)
	}
	return made
}

func newControl(k Kind, cwnd float64) control {
	switch k {
	case Cubic:
		return newCubic(cwnd)
	case Reno:
		return newReno(cwnd)
	case UDP:
		return blind{}
	default:
		return newBBR(cwnd)
	}
}

// active says whether the flow sends.
func (f *flow) active(now float64) bool {
	return now >= f.From.Seconds() && (f.To == 0 || now < f.To.Seconds())
}

// step begins or ends the flow, fills its source, and decides. It says whether it decided. rtt is what the
// handshakes of its streams have seen.
func (f *flow) step(now, dt, mss float64, rtt time.Duration) bool {
	if on := f.active(now); on != f.begun {
		f.begun = on
		f.next = now + congestion.Every.Seconds()
		if f.Priority == congestion.Low {
			f.next = now + congestion.LeastEvery.Seconds()
		}
		for _, s := range f.streams {
			s.paused = !on
			if f.Kind == Session && f.Priority == congestion.Low {
				f.begins = congestion.LowBegins(rtt, int(mss)) / mss / float64(len(f.streams))
				s.bound = f.begins
			}
		}
	}
	if !f.begun {
		return false
	}
	f.halt(f.pause(now), now)
	if f.paused != nil && f.paused.Where != Peer {
		return false
	}
	decides := f.control != nil && now >= f.next
	if decides {
		f.decide(now, mss)
		f.next = max(f.next+cmp.Or(f.decision.Every, congestion.Every).Seconds(), now)
	}
	if f.Rate > 0 {
		f.source = min(f.source+f.Rate/8/mss*dt, max(2, f.Rate/8/mss*0.05))
	}
	return decides
}

// decide samples the streams and asks the controller, as package session does.
func (f *flow) decide(now, mss float64) {
	s := congestion.Sample{
		At:        seconds(now) - f.From,
		Delivered: int64(f.delivered * mss),
		Lost:      int64((f.dropped + f.unlucky + f.needless) * mss),
		MSS:       int(mss),
		Streams:   len(f.streams),
		Gentle:    f.Below == Cubic,
		Line:      f.Begins / 8,
		Backlog:   int64(min(math.Floor(f.source), float64(waiting*len(f.streams))) * mss),
	}
	s.Windowed = min(1, f.windowed/float64(len(f.streams))/(s.At-f.sample.At).Seconds())
	f.windowed = 0
	var rtts []*stream
	for _, of := range f.streams {
		s.InFlight += int64(of.inflight * mss)
		if of.delivered > of.seen { // others show what was, not what is
			rtts = append(rtts, of)
		}
		of.seen = of.delivered
		if least := seconds(of.least); least > 0 && (s.Least == 0 || least < s.Least) {
			s.Least = least
		}
	}
	s.RTT, s.Deviation = f.sample.RTT, f.sample.Deviation
	if len(rtts) > 0 {
		slices.SortFunc(rtts, func(a, b *stream) int { return cmp.Compare(a.srtt, b.srtt) })
		shows := rtts[len(rtts)/4]
		s.RTT, s.Deviation = seconds(shows.srtt), seconds(shows.deviation)
	}
	f.sample = s
	f.decision = f.control.Update(s)
	f.act(f.decision, mss)
}

// act spreads a decision over the streams. If some are free, the others only finish what was
// written to them.
func (f *flow) act(d congestion.Decision, mss float64) {
	kind := f.Below
	if d.Control == congestion.Gentle {
		kind = Cubic
	}
	count := float64(len(f.streams))
	part := d.Rate / mss / count
	if d.Spread {
		allow := make([]float64, len(f.streams))
		for i, s := range f.streams {
			allow[i] = s.control.window() / f.sample.Least.Seconds()
		}
		part = congestion.Spread(d.Rate/mss, allow)
	}
	for i, s := range f.streams {
		switch {
		case d.Free == 0:
			s.bound, s.left = part, math.Inf(1)
			if math.IsInf(d.Rate, 1) {
				s.bound = f.begins
			}
		case i < d.Free:
			s.bound, s.left = d.Rate/mss/float64(d.Free), math.Inf(1)
		default:
			s.bound, s.left = d.Held/mss/count, min(s.left, waiting)
		}
		if _, loss := s.control.(*reno); loss != (kind == Cubic) {
			s.control = newControl(kind, s.control.window())
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
