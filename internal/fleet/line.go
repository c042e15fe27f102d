package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// shareLease is how long a worker may use what it was given of a line without asking again.
	shareLease = 5 * time.Second
	// shareEvery is how often it asks, and answerWithin how long it waits for an answer before. A later
	// one is worth nothing: the next question has another number.
	shareEvery   = time.Second
	answerWithin = 2 * time.Second
	// linger is how long a worker keeps its share without a task: the next one may come at once.
	linger = 3 * time.Second
	// smallest is the part of a line, one of so many, that a worker gets with which it can show that it
	// needs more.
	smallest = 100
)

// Line is a rate that all workers behind one line keep together.
type Line struct {
	Rate     int64          // bit/s
	Priority fxfer.Priority // towards others on the line, "" for what workers have anyway
}

// LineAsk is what a worker says of its line, and asks for its share, under askSubject.
type LineAsk struct {
	Version int    `json:"version"`
	Line    string `json:"line"`
	Worker  string `json:"worker"` // one process
	Number  uint64 `json:"number"` // of the question
	Has     int64  `json:"has"`    // the rate that it applies now, bit/s
	Used    int64  `json:"used"`   // what it used of that
	Most    int64  `json:"most"`   // what it would use at most, 0 for any rate
	Busy    bool   `json:"busy"`   // it has a task
	Weight  int64  `json:"weight"` // of that
}

// LineAnswer is what the worker may use, for as long as its share's lease after it asked.
type LineAnswer struct {
	Version  int            `json:"version"`
	Number   uint64         `json:"number"`
	Rate     int64          `json:"rate"` // bit/s, 0 for nothing
	Priority fxfer.Priority `json:"priority,omitempty"`
	Reason   string         `json:"reason,omitempty"` // why there is nothing
}

// LineStatus is what the controller has given out of a line.
type LineStatus struct {
	Version  int              `json:"version"`
	Line     string           `json:"line"`
	Rate     int64            `json:"rate"` // bit/s
	Priority fxfer.Priority   `json:"priority,omitempty"`
	Given    map[string]int64 `json:"given"` // by worker, bit/s
}

// want is what somebody would use of a line, and how much that counts.
type want struct{ rate, weight int64 }

// shares divides a rate: each one gets what it wants, or a part of what the others leave by its weight.
// So nobody has less than its part of the whole, unless it wants less (max-min fairness).
func shares(rate int64, wants []want) []int64 {
	given := make([]int64, len(wants))
	byNeed := make([]int, len(wants))
	weights := 0.0
	for i, w := range wants {
		byNeed[i] = i
		weights += float64(w.weight)
	}
	slices.SortStableFunc(byNeed, func(a, b int) int {
		return cmp.Compare(float64(wants[a].rate)/float64(wants[a].weight), float64(wants[b].rate)/float64(wants[b].weight))
	})
	for _, i := range byNeed { // who wants least for its weight comes first, and leaves most
		w := wants[i]
		part := min(rate, int64(float64(rate)*float64(w.weight)/weights))
		given[i] = max(0, min(w.rate, part))
		rate -= given[i]
		weights -= float64(w.weight)
	}
	return given
}

// wantOf estimates what a worker would use of a line: all of it, if it uses what it has, and otherwise
// half as much again as it uses.
func wantOf(line int64, a *LineAsk) want {
	w := want{weight: min(max(1, a.Weight), weightOf[fxfer.PriorityHigh])}
	if !a.Busy {
		return w
	}
	if w.rate = line; a.Used < a.Has-a.Has/4 {
		w.rate = a.Used + a.Used/2
	}
	w.rate = max(w.rate, line/smallest)
	if a.Most > 0 {
		w.rate = min(w.rate, a.Most)
	}
	return w
}

// allocations is what a controller has given out of a line. The sum of it is never more than the rate.
type allocations struct {
	line  Line
	began time.Time // when the controller began: what was given out before, it learns from workers
	given map[string]*given
}

// given is what a worker has.
type given struct {
	most  int64     // that it may apply until it says that it applies less, bit/s
	until time.Time // its lease
	want  want
}

// from begins anew if the controller gives out shares since another time than before.
func (l *allocations) from(since time.Time) {
	if !since.Equal(l.began) {
		l.began, l.given = since, nil
	}
}

// forget forgets workers whose lease has ended.
func (l *allocations) forget(now time.Time) {
	maps.DeleteFunc(l.given, func(_ string, g *given) bool { return now.After(g.until) })
}

// ask answers a worker.
func (l *allocations) ask(now time.Time, a *LineAsk) int64 {
	if l.given == nil {
		l.given = make(map[string]*given)
	}
	l.forget(now)
	others := int64(0)
	wants := []want{wantOf(l.line.Rate, a)}
	for name, g := range l.given {
		if name != a.Worker {
			others += g.most
			wants = append(wants, g.want)
		}
	}
	free := max(0, l.line.Rate-others)
	has, rate := min(max(0, a.Has), free), min(shares(l.line.Rate, wants)[0], free)
	if a.Busy && now.Before(l.began.Add(shareLease)) { // others may have what seems free
		rate = has
	}
	if rate == 0 && has == 0 && !a.Busy {
		delete(l.given, a.Worker)
		return 0
	}
	l.given[a.Worker] = &given{most: max(has, rate), until: now.Add(shareLease), want: wants[0]}
	return rate
}
