package transfer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// remaining estimates how long the rest takes, and reports whether an estimate is possible.
func remaining(p *fxfer.Progress) (time.Duration, bool) {
	left := p.Bytes - p.BytesDone
	if p.Walking || streaming(p) || p.Goodput <= 0 || left <= 0 {
		return 0, false
	}
	d := float64(left) * 8 / p.Goodput
	return time.Duration(d * float64(time.Second)), d < (100 * time.Hour).Seconds()
}

// streaming reports whether the only file has no known size, such as standard input.
func streaming(p *fxfer.Progress) bool {
	return len(p.Active) == 1 && p.Files == 1 && p.Active[0].Bytes < 0
}

// figure is a figure about a transfer under way. Figures of a lower rank matter more.
type figure struct {
	text string
	rank int
}

const (
	shareRank = 2 // of the percentage, which stands before all other figures
	essential = 4 // the highest rank of figures that make the bar shorter
)

// totals returns the figures of a transfer under way, in the order in which they are shown.
func totals(p *fxfer.Progress) []figure {
	var all []figure
	add := func(rank int, text string) { all = append(all, figure{text, rank}) }
	looking := p.Walking && p.Bytes == 0
	switch {
	case streaming(p):
		add(4, units.Bytes(p.BytesDone))
	case looking:
		add(4, "looking for files")
	case p.Walking:
		add(4, units.Bytes(p.BytesDone)+" of more than "+units.Bytes(p.Bytes))
	default:
		add(4, units.Bytes(p.BytesDone)+" of "+units.Bytes(p.Bytes))
	}
	if !looking {
		add(0, units.Rate(p.Goodput))
	}
	if eta, ok := remaining(p); ok {
		add(1, "ETA "+units.Clock(eta))
	}
	if p.FilesFailed > 0 {
		add(3, fmt.Sprintf("%d failed", p.FilesFailed))
	}
	switch {
	case p.Files > 1 && p.Walking:
		add(5, fmt.Sprintf("%s done of %s found", units.Grouped(p.FilesDone), units.Grouped(p.Files)))
	case p.Files > 1:
		add(5, fmt.Sprintf("%s of %s files", units.Grouped(p.FilesDone), units.Grouped(p.Files)))
	}
	if p.Limiter != "" {
		add(6, "limit: "+p.Limiter)
	}
	if p.Streams > 0 {
		add(7, units.Count(int64(p.Streams), "stream", "streams"))
	}
	return all
}

// Totals returns the figures of a transfer under way.
func Totals(p *fxfer.Progress) []string {
	var parts []string
	for _, f := range totals(p) {
		parts = append(parts, f.text)
	}
	return parts
}

// fitting joins the figures that fit into width columns, the most important first. A figure of a
// high rank only fits if it leaves room for a bar of full width.
func fitting(all []figure, width int) string {
	byRank := slices.Clone(all)
	slices.SortFunc(byRank, func(a, b figure) int { return a.rank - b.rank })
	columns, last := -len("  "), -1
	for _, f := range byRank {
		columns += len("  ") + len(f.text)
		room := width - barLeast
		if f.rank > essential {
			room = width - barWidth
		}
		if columns > room {
			break
		}
		last = f.rank
	}
	var shown []string
	for _, f := range all {
		if f.rank <= last {
			shown = append(shown, f.text)
		}
	}
	return strings.Join(shown, "  ")
}
