package transfer

import (
	"fmt"
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

// Totals returns the figures of a transfer under way, most important first.
func Totals(p *fxfer.Progress) []string {
	var parts []string
	switch {
	case streaming(p):
		parts = append(parts, units.Bytes(p.BytesDone))
	case p.Walking:
		parts = append(parts, units.Bytes(p.BytesDone)+" of more than "+units.Bytes(p.Bytes))
	default:
		parts = append(parts, units.Bytes(p.BytesDone)+" of "+units.Bytes(p.Bytes))
	}
	parts = append(parts, units.Rate(p.Goodput))
	if eta, ok := remaining(p); ok {
		parts = append(parts, "ETA "+units.Clock(eta))
	}
	if p.FilesFailed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", p.FilesFailed))
	}
	switch {
	case p.Files > 1 && p.Walking:
		parts = append(parts, fmt.Sprintf("%s done of %s found", units.Grouped(p.FilesDone), units.Grouped(p.Files)))
	case p.Files > 1:
		parts = append(parts, fmt.Sprintf("%s of %s files", units.Grouped(p.FilesDone), units.Grouped(p.Files)))
	}
	if p.Limiter != "" {
		parts = append(parts, "limit: "+p.Limiter)
	}
	if p.Streams > 0 {
		parts = append(parts, units.Count(int64(p.Streams), "stream", "streams"))
	}
	return parts
}
