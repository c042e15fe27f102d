package transfer

import (
	"fmt"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/diagnose/words"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// limits names what limited a transfer and what helps, each in one line. Without --verbose or
// --explain it does so only if the limiter was costly.
func (p *humanOutput) limits(r *fxfer.Report) string {
	if len(r.Limits) == 0 || r.Limits[0].Limiter == diagnose.Unknown {
		return ""
	}
	first := &r.Limits[0]
	if first.Limiter != diagnose.BlackHole && (r.Written == 0 || r.Sent+r.Same == 0 && r.Failed > 0) {
		return ""
	}
	if !p.verbose && !p.explain && !costly(first, r.Goodput) {
		return ""
	}
	text := "limit: " + term.OneLine(words.Line(first)) + "\n"
	if hint := words.Hint(first); hint != "" {
		text += "hint: " + term.OneLine(hint) + "\n"
	}
	return text
}

// costly reports whether a remedy against a limiter would have saved more than a tenth of the
// transfer, and a second. What this user asked for is not costly.
func costly(v *fxfer.Limit, goodput float64) bool {
	switch {
	case v.Limiter == diagnose.BlackHole:
		return true
	case len(v.Remedies) == 0 || v.Time < time.Second:
		return false
	case v.Remedies[0].Kind == diagnose.RaiseLimit || v.Remedies[0].Kind == diagnose.NormalPriority:
		return false
	}
	if expect := v.Remedies[0].Expect; expect > 0 {
		return goodput < 0.9*expect
	}
	return v.Share > 0.1
}

// explainRows is the most rows of the timeline that are shown.
const explainRows = 20

// explain shows everything that is known about the limits of a transfer.
func explain(r *fxfer.Report) string {
	var b strings.Builder
	for i := range r.Limits {
		x := &r.Limits[i]
		fmt.Fprintf(&b, "\n%3.0f %%  %s, %s\n", x.Share*100, term.OneLine(words.Name(x)), units.Time(x.Time))
		for _, e := range words.Evidence(x) {
			fmt.Fprintf(&b, "       %s\n", term.OneLine(e))
		}
		for j := range x.Remedies {
			remedy := &x.Remedies[j]
			fmt.Fprintf(&b, "       remedy: %s%s\n", term.OneLine(words.Remedy(remedy, x.Host)), words.Expected(remedy))
		}
	}
	if text := control(r); text != "" {
		fmt.Fprintf(&b, "\nsender %s\n", text)
	}
	if len(r.Timeline) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n%8s  %-13s  %-9s  %7s  %7s  %s\n", "at", "goodput", "RTT", "streams", "resent", "limit")
	for _, m := range condense(r.Timeline, explainRows) {
		rtt := ""
		if m.Sender.MeanRTT() > 0 {
			rtt = units.Time(m.Sender.MeanRTT())
		}
		fmt.Fprintf(&b, "%8s  %-13s  %-9s  %7d  %7d  %s\n", units.Time(m.Start), units.Rate(m.Rate()), rtt, m.Sender.Streams, m.Sender.Retrans, m.Limiter)
	}
	return b.String()
}

// control says in one line what the sending end's controller did.
func control(r *fxfer.Report) string {
	s := &r.Sharing
	if s.Priority == "" || r.Goodput == 0 {
		return ""
	}
	parts := []string{
		fmt.Sprintf("sent at %s with %s, priority %s", units.Rate(r.Goodput), units.Count(int64(r.Streams), "stream", "streams"), s.Priority),
	}
	if s.QueueMost > 0 { // it is unknown beyond a relay
		parts = append(parts, fmt.Sprintf("the queue held %s, at most %s", units.Time(s.Queue), units.Time(s.QueueMost)))
	}
	if s.Shared > 0 {
		parts = append(parts, "shared with others for "+units.Time(s.Shared))
	}
	if s.Yielded > 0 {
		parts = append(parts, "yielded to others for "+units.Time(s.Yielded))
	}
	if text := losses(s); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// condense joins moments so that at most this many rows are left. The limiter of a row is the one
// that lasted longest in it.
func condense(cells []fxfer.Moment, rows int) []fxfer.Moment {
	total := cells[len(cells)-1].Start + cells[len(cells)-1].Length - cells[0].Start
	step := total/time.Duration(rows) + 1
	first := cells[0].Start
	var joined []fxfer.Moment
	for len(cells) > 0 {
		n, row := 1, (cells[0].Start-first)/step
		for n < len(cells) && (cells[n].Start-first)/step <= row {
			n++
		}
		joined = append(joined, diagnose.Join(cells[:n]))
		cells = cells[n:]
	}
	return joined
}
