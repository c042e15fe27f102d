package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	peerSpan   = 5 * time.Second // after this a peer that is far behind is stopped, unless it will end within as much time again
	farBehind  = 1.1             // times the time of fxfer; such a peer is not repeated either
	scanSpan   = 2 * time.Second // length of an iperf3 run, for each number of streams
	repeatSpan = 5 * time.Second // length of a run with iperf3's best number of streams
)

// result is a row of a table: all measurements of one test.
type result struct {
	name   string
	load   payload
	rtt    time.Duration
	limit  float64 // bit/s of payload that TCP can carry; 0 if there is no line
	best   *bestOf // of iperf3; nil if it does not take part
	tools  []outcome
	fxfer  details
	failed error // why nothing was measured
}

// outcome is the result of one contender.
type outcome struct {
	name string
	runs []run
	err  error // of the run after these, the last one
}

// seconds is the median time of the runs, or 0 if there are none.
func (o *outcome) seconds() float64 {
	var times []float64
	for _, r := range o.runs {
		times = append(times, r.seconds)
	}
	return median(times)
}

// again is the median time of the second runs, or 0 if there are none.
func (o *outcome) again() float64 {
	var times []float64
	for _, r := range o.runs {
		if r.again > 0 {
			times = append(times, r.again)
		}
	}
	return median(times)
}

// median returns the median of a figure over the runs.
func (o *outcome) median(figure func(*run) float64) float64 {
	var all []float64
	for i := range o.runs {
		all = append(all, figure(&o.runs[i]))
	}
	return median(all)
}

// cpu is the median of the CPU seconds.
func (o *outcome) cpu() float64 { return o.median(func(r *run) float64 { return r.cpu }) }

func (o *outcome) projected() bool {
	return slices.ContainsFunc(o.runs, func(r run) bool { return r.projected })
}

// tool returns the outcome of a contender, or nil.
func (r *result) tool(name string) *outcome {
	for i := range r.tools {
		if r.tools[i].name == name {
			return &r.tools[i]
		}
	}
	return nil
}

// details are figures that only fxfer reports.
type details struct {
	command      string
	streams      int
	congestion   string
	retransmits  []float64
	senderPeak   int64 // bytes of memory
	receiverPeak int64
	checked      bool // the content that arrived was checked: against the digests of b3sum, or completely
}

// bench runs scenarios.
type bench struct {
	*folder
	quick    bool
	reps     int // replaces the tests' own number of runs, if positive
	netAdmin bool
	say      func(format string, args ...any)
}

// entrant is a contender on a stage. err is the reason why it cannot take part.
type entrant struct {
	contender
	fxfer *fxferSide // nil for peers
	err   error
}

// scenario measures the tests of sc in turn, and iperf3 if m compares with the capacity of the
// line. If a row cannot be measured, the row contains the reason.
func (b *bench) scenario(ctx context.Context, sc scenario, m measure) []result {
	sc = sc.scaled(b.reps, b.quick)
	results := make([]result, len(sc.tests))
	var payloads []payload
	for i, t := range sc.tests {
		results[i] = result{name: sc.rowName(t), load: t.load, rtt: sc.link.RTT, limit: goodputLimit(sc.link.Rate)}
		payloads = append(payloads, t.load)
	}
	if err := b.measure(ctx, sc, m, payloads, results); err != nil {
		for i := range results {
			results[i].failed = err
			b.say("%s: %v", results[i].name, err)
		}
	}
	return results
}

func (b *bench) measure(ctx context.Context, sc scenario, m measure, payloads []payload, results []result) (err error) {
	if err := b.keep(ctx, payloads); err != nil {
		return err
	}
	s, err := newStage(b.folder, sc)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	entrants := b.enter(ctx, s, sc, m)
	var best *bestOf
	if m == goodput {
		best = b.scan(ctx, s)
	}
	reps := 0
	for i, t := range sc.tests {
		reps = max(reps, t.reps)
		results[i].best = best
	}
	for rep := range reps {
		if best != nil && best.err == nil {
			var rate float64
			if rate, best.err = s.iperf(ctx, best.streams, repeatSpan); best.err == nil {
				best.rates = append(best.rates, rate)
			}
			b.say("%s: iperf3 -P %d: %s", results[0].name, best.streams, orError(showRate(rate), best.err))
		}
		for i, t := range sc.tests {
			for j := range entrants {
				if t.calls(&entrants[j], rep, &results[i]) {
					b.once(ctx, s, t, &entrants[j], &results[i])
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
	}
	for i := range results {
		for _, e := range entrants {
			if e.name == fxferName && e.fxfer.pair != nil && e.fxfer.pair.Process != nil {
				results[i].fxfer.receiverPeak = peakMemory(e.fxfer.pair.Process.Cmd.Process.Pid)
			}
		}
	}
	return nil
}

// enter starts the servers of all participants.
func (b *bench) enter(ctx context.Context, s *stage, sc scenario, m measure) []entrant {
	sides := []*fxferSide{newFxfer(fxferName)}
	if m == transports {
		sides = []*fxferSide{newFxfer(fxferQUICName), newFxfer(fxferTCPName)}
	}
	if slices.ContainsFunc(sc.tests, func(t test) bool { return t.auto }) {
		sides = append(sides, newFxfer(fxferAutoName))
	}
	if b.netAdmin && slices.ContainsFunc(sc.tests, func(t test) bool { return t.extra > 0 }) {
		sides = append(sides, newFxfer(fxferNetAdminName))
	}
	var entrants []entrant
	for _, x := range sides {
		entrants = append(entrants, entrant{contender: x.contender(), fxfer: x})
	}
	for _, p := range peers() {
		if slices.ContainsFunc(sc.tests, func(t test) bool { return slices.Contains(t.peers, p.name) }) {
			entrants = append(entrants, entrant{contender: p})
		}
	}
	for i := range entrants {
		e := &entrants[i]
		if e.err = e.missing(); e.err == nil {
			e.err = e.serve(ctx, s)
		}
		if e.err != nil {
			b.say("%s can't take part: %v", e.name, e.err)
		}
	}
	return entrants
}

// calls reports whether e runs in this round of t, given its results in earlier rounds.
func (t *test) calls(e *entrant, rep int, r *result) bool {
	done := r.tool(e.name)
	switch {
	case done != nil && done.err != nil:
		return false
	case e.name == fxferNetAdminName:
		return rep < t.extra
	case e.name == fxferAutoName:
		return t.auto && rep < t.reps
	case e.fxfer != nil:
		return rep < t.reps
	case !slices.Contains(t.peers, e.name) || rep >= t.reps:
		return false
	case t.whole:
		return true
	case t.load.tree():
		return done == nil || !done.projected()
	}
	fxfer := r.tool(fxferName)
	return done == nil || fxfer == nil || fxfer.seconds() == 0 || done.seconds() <= farBehind*fxfer.seconds()
}

// scan finds the number of streams with which iperf3 is fastest.
func (b *bench) scan(ctx context.Context, s *stage) *bestOf {
	best := &bestOf{}
	if best.err = startIperf(ctx, s); best.err != nil {
		return best
	}
	counts := []int{1, 4, 8, 16, 32}
	if b.quick {
		counts = []int{1, 8}
	}
	top := 0.0
	for _, n := range counts {
		rate, err := s.iperf(ctx, n, scanSpan)
		if err != nil {
			best.err = err
			return best
		}
		b.say("iperf3 -P %d: %s", n, showRate(rate))
		if rate > top {
			top, best.streams = rate, n
		}
	}
	return best
}

// once runs e once and adds the measurements to r.
func (b *bench) once(ctx context.Context, s *stage, t test, e *entrant, r *result) {
	o := r.tool(e.name)
	if o == nil {
		r.tools = append(r.tools, outcome{name: e.name})
		o = &r.tools[len(r.tools)-1]
	}
	if o.err = e.err; o.err != nil {
		return
	}
	var measured run
	measured, o.err = b.try(ctx, s, t, e, r)
	if o.err == nil {
		o.runs = append(o.runs, measured)
	}
	took := fmt.Sprintf("%.2f s", measured.seconds)
	if measured.projected {
		took += " projected"
	}
	if measured.again > 0 {
		took += fmt.Sprintf(", again %.2f s", measured.again)
	}
	b.say("%s: %s: %s", r.name, e.name, orError(took, o.err))
}

func (b *bench) try(ctx context.Context, s *stage, t test, e *entrant, r *result) (measured run, err error) {
	l := b.loads[t.load]
	s.quiesce(ctx)
	if err := errors.Join(s.Empty("in"), s.warm(l.room())); err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, s.Empty("in")) }()
	c, err := e.transfer(ctx, s, l, t.flags)
	if err != nil {
		return run{}, err
	}
	var w watch
	switch {
	case e.fxfer != nil && t.stop > 0:
		w = watch{after: t.stop, goOn: func(float64) bool { return false }, points: fxferPoints}
	case e.fxfer == nil && !s.loopback && !t.whole:
		w = watch{after: peerSpan, goOn: func(total float64) bool {
			fxfer := r.tool(fxferName)
			return total <= 2*peerSpan.Seconds() || fxfer != nil && total <= farBehind*fxfer.seconds()
		}}
	}
	measured, err = b.move(ctx, s, e, c, l, w)
	if err != nil {
		return measured, err
	}
	if t.again && !e.blind {
		if measured.again, err = b.again(ctx, s, t, e); err != nil {
			return measured, err
		}
	}
	if e.name == fxferName || e.name == fxferQUICName {
		r.fxfer.command = c.String()
		r.fxfer.senderPeak = max(r.fxfer.senderPeak, measured.peak)
	}
	if e.fxfer == nil {
		return measured, nil
	}
	if l.tree() {
		if r.fxfer.checked {
			return measured, nil
		}
		r.fxfer.checked = true
		return measured, s.compare(l)
	}
	_, digests, summary, err := parseFxfer(measured.stdout)
	if err != nil {
		return measured, err
	}
	if !measured.projected {
		if err := checkDigests(digests, l.digests); err != nil {
			return measured, err
		}
	}
	measured.summary = summary
	if e.name == fxferName && !measured.projected { // otherwise there is no summary
		d := &r.fxfer
		d.checked, d.streams, d.congestion = true, summary.Streams, summary.Congestion
		d.retransmits = append(d.retransmits, float64(summary.Retransmits))
	}
	return measured, nil
}

// move runs a command of e, and also measures the CPU time of its server.
func (b *bench) move(ctx context.Context, s *stage, e *entrant, c hosts.Command, l *load, w watch) (run, error) {
	if e.fxfer == nil {
		return s.transfer(ctx, c, l, w)
	}
	before, err := e.fxfer.busy()
	if err != nil {
		return run{}, err
	}
	r, err := s.transfer(ctx, c, l, w)
	if err != nil {
		return r, err
	}
	after, err := e.fxfer.busy()
	r.receiver = after - before
	return r, err
}

// again runs e once more after everything has arrived. It returns how many seconds that took.
func (b *bench) again(ctx context.Context, s *stage, t test, e *entrant) (float64, error) {
	l := b.loads[t.load]
	c, err := e.transfer(ctx, s, l, t.flags)
	if err != nil {
		return 0, err
	}
	r, err := s.transfer(ctx, c, l, watch{})
	return r.seconds, err
}

func orError(s string, err error) string {
	if err != nil {
		return err.Error()
	}
	return s
}
