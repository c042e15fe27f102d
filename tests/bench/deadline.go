package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// errands are transfers with a deadline, beside traffic that was there first and stays. What low
// leaves beside one cubic flow is next to nothing, so that the first one has a line that is half
// full. The grid deadline runs them.
var errands = []errand{
	{name: "low will do", size: 80 * mb, within: time.Minute, beside: lab.Cross{Rate: 25 * mbit}, want: "low"},
	{name: "low would be late", size: 60 * mb, within: time.Minute, beside: oneCubic, want: "normal"},
	{name: "a fair part would be late, too", size: 170 * mb, within: time.Minute, beside: oneCubic, want: "high"},
}

var oneCubic = lab.Cross{Congestion: "cubic", Flows: 1}

const (
	deadlineGrid = "deadline"
	errandRate   = 50 * mbit
	errandRTT    = 20 * time.Millisecond
)

// errand is a transfer with a deadline.
type errand struct {
	name   string
	size   int64
	within time.Duration // until the deadline
	beside lab.Cross     // who else is on the line
	want   string        // the highest priority that it needs
}

// errandResult is a run of an errand.
type errandResult struct {
	*errand
	took    time.Duration
	changes []string // of its priority, from the history
	last    string   // priority at the end, from the history
	flow    float64  // goodput of the others beside it, bit/s
	alone   float64  // the same without it
}

// right reports whether the run ended in time, and was raised as far as it had to be and no further.
// Where there is time to spare, a lower priority may be tried in between.
func (r *errandResult) right() bool {
	highest := "low"
	for _, change := range r.changes {
		for _, p := range []string{"normal", "high"} {
			if strings.HasPrefix(change, "raised to "+p+" ") && highest != "high" {
				highest = p
			}
		}
	}
	return r.took <= r.within && highest == r.want
}

// deadlines runs all errands so many times, and returns the report.
func (b *bench) deadlines(ctx context.Context, reps int) (string, error) {
	m, err := describeMachine(time.Now())
	if err != nil {
		return "", err
	}
	var results []errandResult
	for i := range errands {
		for range reps {
			r, err := b.calmErrand(ctx, &errands[i])
			if err != nil {
				return "", fmt.Errorf("%s: %w", errands[i].name, err)
			}
			b.say("%s: %.0f s of %.0f, right: %v, %q", r.name, r.took.Seconds(), r.within.Seconds(), r.right(), r.changes)
			results = append(results, r)
		}
	}
	return deadlineReport(results, &m), nil
}

// calmErrand runs an errand again if the machine was too busy.
func (b *bench) calmErrand(ctx context.Context, e *errand) (errandResult, error) {
	for attempt := 1; ; attempt++ {
		paused := hosts.Watch()
		r, err := b.errand(ctx, e)
		switch {
		case paused() <= longPause || ctx.Err() != nil:
			return r, err
		case attempt == attempts:
			return r, errors.Join(err, errBusy)
		}
		b.say("%s: %v; again", e.name, errBusy)
	}
}

// errand sends a file beside others, with a deadline.
func (b *bench) errand(ctx context.Context, e *errand) (r errandResult, err error) {
	r.errand = e
	load := payload{files: 1, size: e.size}
	if err := errors.Join(b.keep(ctx, []payload{load}), b.Empty("in")); err != nil {
		return r, err
	}
	s, err := newStage(b.folder, scenario{link: line(errandRate, errandRTT, 1), hosts: cubicDefault})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	x := newFxfer(fxferName)
	if err := x.serve(ctx, s); err != nil {
		return r, err
	}
	if r.alone, err = s.beside(e.beside, func() error { return pause(ctx, lead) }); err != nil {
		return r, err
	}
	s.quiesce(ctx)
	file := b.loads[load].paths()[0]
	send := x.pair.Warm("send", "--quiet", "--retry-for", "2m", "--deadline", e.within.String(), file, x.pair.URL("in/"))
	r.flow, err = s.beside(e.beside, func() error {
		if err := pause(ctx, lead); err != nil {
			return err
		}
		began := time.Now()
		out, err := b.Prepare(ctx, send).CombinedOutput()
		r.took = time.Since(began)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", send, err, out)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	return r, r.recall(ctx, b, x)
}

// beside starts others, calls f, and returns the goodput of the others in bit/s.
func (s *stage) beside(others lab.Cross, f func() error) (float64, error) {
	flow, err := s.lab.StartCross(others)
	if err != nil {
		return 0, err
	}
	err = f()
	report := flow.Stop()
	return float64(report.Bytes) * 8 / max(report.Ran.Seconds(), 1e-3), errors.Join(err, report.Err)
}

// recall reads what the history says about the last transfer.
func (r *errandResult) recall(ctx context.Context, b *bench, x *fxferSide) error {
	history := x.pair.Warm("history", "--json")
	out, err := b.Prepare(ctx, history).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", history, err)
	}
	for text := range strings.Lines(string(out)) {
		var record struct {
			Priority string   `json:"priority"`
			Changes  []string `json:"priority_changes"`
		}
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			return fmt.Errorf("%s: %w", history, err)
		}
		r.last, r.changes = record.Priority, record.Changes
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// deadlineReport is the document with all runs.
func deadlineReport(results []errandResult, m *machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A deadline, and others on the line\n\n"+
		"`go run ./tests/bench -grid deadline`, run as root, writes this page. A file goes over\n"+
		"%s × %s with `--deadline`, beside others who were there first and stay: first UDP at\n"+
		"25 Mbit/s, then a cubic flow.\n"+
		"fxfer begins with low priority, and raises it only if the forecast says that it would be late.\n"+
		"The decisions are those in `fxfer history --json`.\n\n", showRate(errandRate), showMillis(errandRTT))
	rows := [][]string{{"", "size", "deadline after", "took", "the others, alone and beside it", "priority at the end", "right"}}
	for i := range results {
		r := &results[i]
		right := "yes"
		if !r.right() {
			right = "**no**"
		}
		rows = append(rows, []string{r.name, showSize(r.size), fmt.Sprintf("%.0f s", r.within.Seconds()), fmt.Sprintf("%.0f s", r.took.Seconds()),
			showRate(r.alone) + " → " + showRate(r.flow), r.last, right})
	}
	table(&b, rows)
	b.WriteString("\nDecisions:\n\n")
	for i := range results {
		r := &results[i]
		what := strings.Join(r.changes, "; ")
		if what == "" {
			what = "none: low all the time"
		}
		fmt.Fprintf(&b, "- %s: %s\n", r.name, what)
	}
	fmt.Fprintf(&b, "\n%s\n", m)
	return b.String()
}
