package tune

import (
	"cmp"
	"math"
	"slices"
)

const (
	// alpha is the probability that an experiment claims a difference that does not exist.
	alpha = 0.05
	// alphaGentler is the same for less sent again and less delay together, where goodput is equal. It
	// is added to alpha, so it is small.
	alphaGentler = alpha / 5
	// leastPairs is the least number of rounds that show a difference: two often agree by chance, and
	// Student's t believes noise to be normal.
	leastPairs = 3
	// matters is the least difference of goodput that counts, as a share of the defaults' goodput.
	matters = 0.02
	// mattersAgain is the least difference in the share of segments sent again that counts.
	mattersAgain = 0.001
	// mattersDelay is the least difference in added delay that counts, in seconds, besides a part
	// mattersRTT of the round trip.
	mattersDelay, mattersRTT = 0.001, 0.02
)

func goodputOf(m *Measure) float64   { return m.Goodput }
func sentAgainOf(m *Measure) float64 { return m.SentAgain }
func delayOf(m *Measure) float64     { return m.Delay }

// differences returns the differences between two settings, run by run of the same round.
func differences(a, b *Result, of func(*Measure) float64) (all []float64) {
	for i := range a.Runs {
		for k := range b.Runs {
			if a.Runs[i].Round == b.Runs[k].Round {
				all = append(all, of(&a.Runs[i].Measure)-of(&b.Runs[k].Measure))
			}
		}
	}
	return all
}

// compare returns the intervals of all results less a reference.
func compare(results []*Result, reference *Result, of func(*Measure) float64, alpha float64) []Interval {
	all := make([][]float64, len(results))
	for i, r := range results {
		all[i] = differences(r, reference, of)
	}
	return intervals(all, alpha)
}

// evaluate fills in the statistics of a server's results, and ranks them.
func (s *Server) evaluate() {
	var measured []*Result
	for i := range s.Results {
		r := &s.Results[i]
		r.Goodput, r.SentAgain = r.sum(goodputOf), r.sum(sentAgainOf)
		r.Delay, r.CPU = r.sum(delayOf), r.sum(func(m *Measure) float64 { return m.CPU })
		r.Place, r.Gain, r.Gentler = Equal, Interval{Pairs: len(r.Runs)}, false
		if len(r.Runs) > 0 && !r.Defaults() {
			measured = append(measured, r)
		}
	}
	defaults := s.Find(Setting{})
	if defaults == nil || len(defaults.Runs) == 0 {
		return
	}
	for i, gain := range compare(measured, defaults, goodputOf, alpha) {
		measured[i].Gain = gain
		measured[i].Place = placeOf(gain, matters*defaults.Goodput.Mean)
	}
	s.findGentler(measured, defaults)
	s.rank()
}

func (r *Result) sum(of func(*Measure) float64) Summary {
	values := make([]float64, len(r.Runs))
	for i := range r.Runs {
		values[i] = of(&r.Runs[i].Measure)
	}
	return summarize(values)
}

// placeOf judges a gain. least is what counts as a difference.
func placeOf(gain Interval, least float64) Place {
	switch {
	case gain.Pairs < leastPairs || gain.HoldsZero() || math.Abs(gain.Mean) < least:
		return Equal
	case gain.Mean > 0:
		return Faster
	}
	return Slower
}

// delayMatters is the least difference in added delay that counts, in seconds.
func (s *Server) delayMatters() float64 { return mattersDelay + mattersRTT*s.RTT }

// findGentler finds the settings that are as fast as the defaults, and send less again or add less
// delay. None of the two may be worse.
func (s *Server) findGentler(measured []*Result, defaults *Result) {
	again := compare(measured, defaults, sentAgainOf, alphaGentler/2)
	delay := compare(measured, defaults, delayOf, alphaGentler/2)
	for i, r := range measured {
		a, d := placeOf(again[i], mattersAgain), placeOf(delay[i], s.delayMatters())
		less := a == Slower || d == Slower // a negative difference
		r.Gentler = r.Place == Equal && less && a != Faster && d != Faster
	}
}

// rank sorts the results: by goodput, and where that does not differ, by the tie rule. Settings
// without a run are last.
func (s *Server) rank() {
	var ranked []*Result
	for _, place := range []Place{Faster, Equal, Slower} {
		var class []*Result
		for i := range s.Results {
			if r := &s.Results[i]; len(r.Runs) > 0 && r.Place == place {
				class = append(class, r)
			}
		}
		slices.SortStableFunc(class, func(a, b *Result) int { return cmp.Compare(b.Goodput.Mean, a.Goodput.Mean) })
		for len(class) > 0 {
			tied := slices.Clone(class)
			if place != Equal { // these do not differ from the defaults, which tie them
				tied = s.equals(class, class[0], goodputOf, matters*class[0].Goodput.Mean)
			}
			class = slices.DeleteFunc(class, func(r *Result) bool { return slices.Contains(tied, r) })
			ranked = append(ranked, s.breakTie(tied)...)
		}
	}
	for i := range s.Results {
		if r := &s.Results[i]; len(r.Runs) == 0 {
			ranked = append(ranked, r)
		}
	}
	results := make([]Result, len(ranked))
	s.Differs = false
	for i, r := range ranked {
		results[i] = *r
		s.Differs = s.Differs || r.Place != Equal || r.Gentler
	}
	s.Results = results
	best := Setting{}
	if results[0].better() {
		best = results[0].Setting
	}
	s.Best = &best
}

// equals returns those of all that do not differ from a reference, which is one of them.
func (s *Server) equals(all []*Result, reference *Result, of func(*Measure) float64, least float64) (tied []*Result) {
	for i, difference := range compare(all, reference, of, alpha) {
		if all[i] == reference || placeOf(difference, least) == Equal {
			tied = append(tied, all[i])
		}
	}
	return tied
}

// breakTie sorts settings whose goodput does not differ: less sent again comes first, then less
// added delay, then fewer streams. A difference that may be chance does not count.
func (s *Server) breakTie(tied []*Result) (sorted []*Result) {
	for len(tied) > 0 {
		left := s.equals(tied, least(tied, sentAgainOf), sentAgainOf, mattersAgain)
		left = s.equals(left, least(left, delayOf), delayOf, s.delayMatters())
		first := slices.MinFunc(left, func(a, b *Result) int {
			return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.Setting.fewness(), b.Setting.fewness()), cmp.Compare(b.Goodput.Mean, a.Goodput.Mean))
		})
		sorted = append(sorted, first)
		tied = slices.DeleteFunc(tied, func(r *Result) bool { return r == first })
	}
	return sorted
}

// fewness is the number of streams. The automatic number counts as the largest.
func (s Setting) fewness() int {
	if s.Streams == 0 {
		return math.MaxInt
	}
	return s.Streams
}

// place puts what is better than the defaults before the rest.
func (r *Result) place() int {
	if r.better() {
		return 0
	}
	return 1
}

func least(all []*Result, of func(*Measure) float64) *Result {
	return slices.MinFunc(all, func(a, b *Result) int { return cmp.Compare(a.sum(of).Mean, b.sum(of).Mean) })
}

// bestForAll returns the setting that no other beats at any server, or nil.
func bestForAll(servers []Server) *Setting {
	if len(servers) == 0 || slices.ContainsFunc(servers, func(s Server) bool { return s.Best == nil }) {
		return nil
	}
	if len(servers) == 1 {
		return servers[0].Best
	}
	var best *Setting
	least := math.MaxInt
	for i := range servers[0].Results {
		setting := servers[0].Results[i].Setting
		ranks, everywhere := 0, true
		for k := range servers {
			rank, among := servers[k].amongBest(setting)
			ranks, everywhere = ranks+rank, everywhere && among
		}
		if setting == (Setting{}) && !slices.ContainsFunc(servers, func(s Server) bool { return *s.Best != Setting{} }) {
			ranks = -1 // nobody has to change anything
		}
		if everywhere && ranks < least {
			best, least = &setting, ranks
		}
	}
	return best
}

// amongBest returns the rank of a setting, and whether nothing is better: it is the best one or as
// fast as that, and sends no more again and adds no more delay.
func (s *Server) amongBest(setting Setting) (rank int, among bool) {
	r, best := s.Find(setting), s.Find(*s.Best)
	if r == nil || len(r.Runs) == 0 {
		return 0, false
	}
	rank = slices.IndexFunc(s.Results, func(x Result) bool { return x.Setting == setting })
	for _, metric := range []struct {
		of    func(*Measure) float64
		least float64
		worse Place
	}{
		{goodputOf, matters * best.Goodput.Mean, Slower}, {sentAgainOf, mattersAgain, Faster}, {delayOf, s.delayMatters(), Faster},
	} {
		if d := compare([]*Result{r}, best, metric.of, alpha); placeOf(d[0], metric.least) == metric.worse {
			return rank, false
		}
	}
	return rank, true
}
