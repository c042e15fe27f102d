package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/fxfer/fxfer/internal/congestion"
)

// Scenario is a path, who sends over it, and for how long.
type Scenario struct {
	Path  Path
	Flows []Flow
	For   time.Duration
	Seed  uint64
	// Control makes the controller of each session. Nil is congestion.New.
	Control func(congestion.Priority) Controller
	// Trace is called at each decision of the first flow, if it is not nil.
	Trace func(Moment)
}

// Moment is what a trace shows.
type Moment struct {
	At       time.Duration
	Decision congestion.Decision
	Sample   congestion.Sample
	Rate     float64       // of the line, bit/s
	Queue    time.Duration // delay in the queue
	Control  Controller
}

// Bin is the time that each value of a Result counts.
const Bin = 100 * time.Millisecond

// Result is what happened, by bins of time. Rates are in bit/s of payload.
type Result struct {
	Line    []float64   // what the line, or the policer, carries
	Flows   []Counts    // as in the Scenario
	Queue   [][]float32 // delays that the queue added in each bin, s
	Elapsed time.Duration
}

// Counts are those of a flow since the start, at the end of each bin.
type Counts struct {
	Delivered []float64 // bits of payload
	Sent      []float64 // packets
	Dropped   []float64 // packets that a queue, a policer or an AQM dropped
}

// longestStep and stepsPerTrip bound the time in which senders act once.
const (
	longestStep  = 0.001
	stepsPerTrip = 20
)

// slots is into how many parts a step is cut, for the trains sent in it.
const slots = 8

// world is a Scenario that runs.
type world struct {
	Scenario
	line    *line
	flows   []*flow
	streams []*stream // of all flows
	random  *rand.Rand
	slots   [slots][]train // what is sent in each part of this step
	result  *Result
	bin     int
	told    float64 // when sessions heard of each other
	could   float64 // bits that the line could carry in this bin
}

// Run simulates.
func Run(s Scenario) *Result {
	if s.Control == nil {
		s.Control = func(p congestion.Priority) Controller {
			c := congestion.New()
			c.SetPriority(p)
			return c
		}
	}
	random := rand.New(rand.NewPCG(s.Seed, 0x9e3779b97f4a7c15)) //nolint:gosec // it is no secret
	w := &world{Scenario: s, line: newLine(s.Path, random), random: random}
	w.result = &Result{Flows: make([]Counts, len(s.Flows)), Elapsed: s.For}
	for _, f := range s.Flows {
		made := newFlow(f, w.line.mss, s.Control)
		if f.Begins > 0 { // handshakes have shown the RTT of small packets, too
			for _, x := range made.streams {
				x.srtt, x.least = s.Path.RTT.Seconds(), s.Path.RTT.Seconds()
			}
		}
		w.flows = append(w.flows, made)
		for _, of := range made.streams {
			of.number = len(w.streams)
			w.streams = append(w.streams, of)
		}
	}
	dt := min(longestStep, s.Path.RTT.Seconds()/stepsPerTrip)
	for i := 0; ; i++ {
		now := float64(i) * dt
		if now >= s.For.Seconds() {
			w.count(now)
			return w.result
		}
		w.step(now, dt)
	}
}

func (w *world) step(now, dt float64) {
	l := w.line
	l.tick(now)
	for !l.acks.empty() && l.acks.front().at <= now {
		t := *l.acks.front()
		l.acks.pop()
		w.streams[t.stream].hear(t)
	}
	for i, f := range w.flows {
		if f.step(now, dt, l.mss, l.RTT+seconds(l.delay())) && i == 0 && w.Trace != nil {
			w.Trace(Moment{
				seconds(now), f.decision, f.sample, l.rate * l.mss * 8, seconds(l.delay()), f.control,
			})
		}
	}
	w.tell(now)
	w.send(now, dt)
	l.serve(now + dt)
	if int(now/Bin.Seconds()) > w.bin {
		w.count(now)
	}
	w.observe(dt)
}

// tell tells sessions of each other, those of low priority apart from the others, as their server does.
func (w *world) tell(now float64) {
	passed := now - w.told
	if passed < congestion.SiblingsEvery.Seconds() {
		return
	}
	w.told = now
	for _, low := range []bool{true, false} {
		var family []*flow
		var members []*congestion.Member
		for _, f := range w.flows {
			if f.begun && f.Kind == Session && (f.Priority == congestion.Low) == low {
				f.member.SetPriority(f.Priority)
				f.member.Rate = (f.delivered - f.before) * w.line.mss / passed
				f.member.Waits = f.sample.Backlog > 0
				f.before = f.delivered
				family, members = append(family, f), append(members, &f.member)
			}
		}
		for i, to := range congestion.Tell(seconds(now), members) {
			if c, ok := family[i].control.(*congestion.Controller); ok && to.Sessions > 0 {
				c.SetSiblings(to)
			}
		}
	}
}

// send lets all streams send, spread over the step.
func (w *world) send(now, dt float64) {
	most := int(math.Ceil(w.line.rate * dt / slots))
	// No stream is always the first to find room in the queue.
	count := len(w.streams)
	first, by := w.random.IntN(count), 1+w.random.IntN(2)*(count-2)
	for i := range w.streams {
		s := w.streams[(first+i*by)%count]
		n := s.packets(dt)
		s.flow.sent += float64(n)
		most := max(most, int(math.Ceil(s.gathers())))
		trains := (n + most - 1) / most
		for k := range trains {
			part := (n + trains - k - 1) / trains
			slot := (k*slots + w.random.IntN(slots)) / trains
			t := s.train(now+float64(slot)*dt/slots, part)
			w.slots[slot] = append(w.slots[slot], t)
		}
	}
	for i := range w.slots {
		for _, t := range w.slots[i] {
			w.line.arrive(t)
		}
		w.slots[i] = w.slots[i][:0]
	}
}

// observe notes what the line can carry and the delay of its queue.
func (w *world) observe(dt float64) {
	limit := w.line.rate * w.line.mss * 8
	if w.line.Police > 0 {
		limit = min(limit, w.line.Police)
	}
	w.could += limit * (1 - w.line.Loss) * dt
	r := w.result
	for len(r.Queue) <= w.bin {
		r.Queue = append(r.Queue, nil)
	}
	r.Queue[w.bin] = append(r.Queue[w.bin], float32(w.line.delay()))
}

// count closes a bin.
func (w *world) count(now float64) {
	l, r := w.line, w.result
	r.Line = append(r.Line, w.could/Bin.Seconds())
	w.could = 0
	for i, f := range w.flows {
		c := &r.Flows[i]
		c.Delivered = append(c.Delivered, f.delivered*l.mss*8)
		c.Sent = append(c.Sent, f.sent)
		c.Dropped = append(c.Dropped, f.dropped)
	}
	w.bin = int(now / Bin.Seconds())
}
