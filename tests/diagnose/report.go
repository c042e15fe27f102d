package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

const (
	// gainWanted is the smallest share of the forecast gain that a remedy has to bring.
	gainWanted = 0.8
	// full is the part of a line that a transfer must have used for a second where the line limits it.
	full = 0.8
)

// result is the result of one cause and seed.
type result struct {
	cause cause
	seed  uint64
	trial trial
	run   run
	err   error // why there is nothing to compare
	cure  *cure // nil: there was no remedy to try
}

// cure is a trial of a remedy.
type cure struct {
	remedy  remedy
	goodput float64 // bit/s
	err     error
}

// verdict is the cause that fxfer named.
func (r *result) verdict() answer {
	if len(r.run.Limits) == 0 {
		return answer{limiter: "none"}
	}
	return answer{diagnose.Limiter(r.run.Limits[0].Limiter), diagnose.Side(r.run.Limits[0].Side)}
}

// correct reports whether fxfer named the cause. A line that is not full never limits, whatever the cause.
func (r *result) correct() bool {
	v := r.verdict()
	return r.err == nil && slices.Contains(r.cause.right, v) && (v.limiter != diagnose.LineRate || r.run.Peak >= full*payloadLimit(r.trial.link.Rate))
}

// use is the goodput as a share of what the line can carry.
func (r *result) use() float64 { return r.run.Goodput / payloadLimit(r.trial.link.Rate) }

// gain is the share of the forecast gain that the remedy brought.
func (r *result) gain() float64 {
	return (r.cure.goodput - r.run.Goodput) / (r.cure.remedy.Expect - r.run.Goodput)
}

func (r *result) cured() bool { return r.cure.err == nil && r.gain() >= gainWanted }

func (r result) String() string {
	s := fmt.Sprintf("%s, seed %d: %s", r.cause.name, r.seed, showLine(&r.trial))
	if r.err != nil {
		return s + ": " + r.err.Error()
	}
	s += fmt.Sprintf(": %.1f s, %.1f Mbit/s (%.0f %%), %d streams: %s", r.run.Duration, r.run.Goodput/mbit, r.use()*100, r.run.Streams, showVerdict(&r))
	if r.run.failure != "" {
		s += " [" + r.run.failure + "]"
	}
	if !r.correct() {
		s += " WRONG"
	}
	if c := r.cure; c != nil {
		s += fmt.Sprintf("; %s: %.1f of %.1f Mbit/s", c.remedy, c.goodput/mbit, c.remedy.Expect/mbit)
		if c.err != nil {
			s += ": " + c.err.Error()
		}
		if !r.cured() {
			s += " TOO LITTLE"
		}
	}
	return s
}

func showLine(t *trial) string {
	return fmt.Sprintf("%s Mbit/s × %.1f ms", strconv.FormatFloat(float64(t.link.Rate)/mbit, 'f', -1, 64), t.link.RTT.Seconds()*1000)
}

func showVerdict(r *result) string {
	v := r.verdict()
	if v.side == "" {
		return string(v.limiter)
	}
	return fmt.Sprintf("%s (%s, %.0f %%)", v.limiter, v.side, r.run.Limits[0].Share*100)
}

// report renders the matrix, the remedies, and the failures. where says when and on what they were
// measured.
func report(results []result, where string) string {
	var b strings.Builder
	b.WriteString(`# What fxfer says, and what was true

` + "`go run ./tests/diagnose`" + `, run as root, writes this page. Two network namespaces on one machine are
joined by the emulated line of ` + "`fxfer lab`" + `. One cause at a time slows down a transfer by an ordinary
user. The seed varies line, distance and extent.

`)
	right, cured := 0, 0
	var gains []float64
	for i := range results {
		if results[i].correct() {
			right++
		}
		if results[i].cure != nil {
			gains = append(gains, results[i].gain())
			if results[i].cured() {
				cured++
			}
		}
	}
	fmt.Fprintf(&b, "%s\n\nThe verdict was right in %d of %d runs (%s).", where, right, len(results), percent(right, len(results)))
	if len(gains) > 0 {
		fmt.Fprintf(&b, " The remedy brought at least %.0f %% of the gain it foretold in %d of %d.", gainWanted*100, cured, len(gains))
		fmt.Fprintf(&b, "\nThe least gain was %.0f %% of the foretold one, the largest %.0f %%.", slices.Min(gains)*100, slices.Max(gains)*100)
		if slices.Min(gains) >= 1 {
			b.WriteString(" So a forecast is a floor, and no estimate:\nexpect at least that much, and often several times as much.")
		}
	}
	b.WriteString("\n\n")
	matrix(&b, results)
	remedyTable(&b, results)
	injected(&b, results)
	wrong(&b, results)
	return b.String()
}

func percent(n, of int) string {
	if of == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 1, 64) + " %"
}

// rows groups the results by cause.
func rows(results []result) [][]result {
	var groups [][]result
	for i, r := range results {
		if i == 0 || r.cause.name != results[i-1].cause.name {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
	}
	return groups
}

// limiters is the order of the columns.
var limiters = []diagnose.Limiter{
	diagnose.ReceiverWindow, diagnose.SenderBuffer, diagnose.RandomLoss, diagnose.Reordering, diagnose.NoSACK, diagnose.LineRate, diagnose.NarrowLine,
	diagnose.Policed, diagnose.SharedLine, diagnose.OwnPriority, diagnose.OwnQueue, diagnose.Bufferbloat,
	diagnose.SourceDisk, diagnose.TargetDisk, diagnose.Sync, diagnose.SenderCPU, diagnose.ReceiverCPU, diagnose.RateLimit, diagnose.SlowStart,
	diagnose.InitialWindow, diagnose.Silent, diagnose.BlackHole, diagnose.Outage, diagnose.Stalls, diagnose.Unknown,
}

// matrix has a row for each cause, and a column for each limiter that fxfer named or should have
// named. Correct ones are bold.
func matrix(b *strings.Builder, results []result) {
	var columns []diagnose.Limiter
	failed := false
	used := map[diagnose.Limiter]bool{}
	for i := range results {
		for _, a := range results[i].cause.right {
			used[a.limiter] = true
		}
		if results[i].err != nil {
			failed = true
			continue
		}
		used[results[i].verdict().limiter] = true
	}
	for _, l := range append(slices.Clone(limiters), "none") {
		if used[l] {
			columns = append(columns, l)
		}
	}
	b.WriteString("Rows show the cause, columns the limiter that fxfer named. Bold is right.\n\n| |")
	for _, l := range columns {
		b.WriteString(" " + string(l) + " |")
	}
	if failed {
		b.WriteString(" failed |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(columns)))
	if failed {
		b.WriteString(" ---: |")
	}
	b.WriteString("\n")
	for _, group := range rows(results) {
		b.WriteString("| " + group[0].cause.name + " |")
		for _, l := range columns {
			n, good := 0, 0
			for i := range group {
				if group[i].err == nil && group[i].verdict().limiter == l {
					n++
					if group[i].correct() {
						good++
					}
				}
			}
			b.WriteString(" " + cell(good, n-good) + " |")
		}
		if failed {
			n := 0
			for i := range group {
				if group[i].err != nil {
					n++
				}
			}
			b.WriteString(" " + cell(0, n) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// cell shows the numbers of correct and wrong verdicts. It has both if only the side was wrong.
func cell(right, wrong int) string {
	var parts []string
	if right > 0 {
		parts = append(parts, fmt.Sprintf("**%d**", right))
	}
	if wrong > 0 {
		parts = append(parts, strconv.Itoa(wrong))
	}
	return strings.Join(parts, " + ")
}

// remedyTable shows what the remedies brought.
func remedyTable(b *strings.Builder, results []result) {
	begun := false
	for i := range results {
		r := &results[i]
		if r.cure == nil {
			continue
		}
		if !begun {
			begun = true
			b.WriteString("## Remedies\n\nThe first remedy is tried where it is a sysctl or a flag and fxfer foretells a goodput. All figures\nare in Mbit/s. Of the gain: what came, as a share of what was foretold.\n\n" +
				"| | seed | remedy | before | foretold | after | of the gain |\n| --- | ---: | --- | ---: | ---: | ---: | ---: |\n")
		}
		after, gain := fmt.Sprintf("%.1f", r.cure.goodput/mbit), fmt.Sprintf("%.0f %%", r.gain()*100)
		if r.cure.err != nil {
			after, gain = r.cure.err.Error(), ""
		}
		fmt.Fprintf(b, "| %s | %d | `%s` | %.1f | %.1f | %s | %s |\n", r.cause.name, r.seed, r.cure.remedy, r.run.Goodput/mbit, r.cure.remedy.Expect/mbit, after, gain)
	}
	if begun {
		b.WriteString("\n")
	}
}

// injected describes what was done, and how much of the line was left.
func injected(b *strings.Builder, results []result) {
	b.WriteString("## Causes\n\nGoodput has a figure for each seed, in Mbit/s and as a share of the line's limit.\n\n| | what is done | right | goodput |\n| --- | --- | --- | --- |\n")
	for _, group := range rows(results) {
		c := group[0].cause
		var right, goodput []string
		for _, a := range c.right {
			right = append(right, fmt.Sprintf("%s (%s)", a.limiter, a.side))
		}
		for i := range group {
			goodput = append(goodput, fmt.Sprintf("%.1f (%.0f %%)", group[i].run.Goodput/mbit, group[i].use()*100))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", c.name, c.about, strings.Join(right, " or "), strings.Join(goodput, ", "))
	}
	b.WriteString("\n")
}

// wrong describes each run that went wrong.
func wrong(b *strings.Builder, results []result) {
	begun := false
	for i := range results {
		r := &results[i]
		if r.correct() && (r.cure == nil || r.cured()) {
			continue
		}
		if !begun {
			begun = true
			b.WriteString("## Wrong\n\n")
		}
		fmt.Fprintf(b, "- %s\n", r)
		if r.run.command != "" {
			fmt.Fprintf(b, "  - `%s`\n", r.run.command)
		}
		for _, l := range r.run.Limits {
			fmt.Fprintf(b, "  - %s, %s, %.0f %%: %s\n", l.Limiter, l.Side, l.Share*100, strings.Join(l.Evidence, "; "))
		}
	}
}
