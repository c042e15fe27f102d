package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func showBytes(n int64) string { return units.Bytes(n) }

func showRate(bitsPerSecond float64) string { return units.Rate(bitsPerSecond) }

func showTime(d time.Duration) string { return units.Time(d) }

// showClock writes a duration as m:ss or h:mm:ss.
func showClock(d time.Duration) string {
	s := int64(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

func count(n int64, one, many string) string { return units.Count(n, one, many) }

// grouped writes a number that is not negative with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent writes done as a share of total, rounded down: 100 % is all.
func percent(done, total int64) string {
	if total <= 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", int64(float64(min(done, total))/float64(total)*100))
}

// remaining estimates how long the rest takes, and whether that can be said.
func remaining(p *fxfer.Progress) (time.Duration, bool) {
	left := p.Bytes - p.BytesDone
	if p.Walking || streaming(p) || p.Goodput <= 0 || left <= 0 {
		return 0, false
	}
	d := float64(left) * 8 / p.Goodput
	return time.Duration(d * float64(time.Second)), d < (100 * time.Hour).Seconds()
}

// streaming tells whether the one file under way has no known size, as standard input.
func streaming(p *fxfer.Progress) bool {
	return len(p.Active) == 1 && p.Files == 1 && p.Active[0].Bytes < 0
}

// totals are the figures of a transfer under way, most important first.
func totals(p *fxfer.Progress) []string {
	var parts []string
	switch {
	case streaming(p):
		parts = append(parts, showBytes(p.BytesDone))
	case p.Walking:
		parts = append(parts, showBytes(p.BytesDone)+" of more than "+showBytes(p.Bytes))
	default:
		parts = append(parts, showBytes(p.BytesDone)+" of "+showBytes(p.Bytes))
	}
	parts = append(parts, showRate(p.Goodput))
	if eta, ok := remaining(p); ok {
		parts = append(parts, "ETA "+showClock(eta))
	}
	if p.FilesFailed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", p.FilesFailed))
	}
	switch {
	case p.Files > 1 && p.Walking:
		parts = append(parts, fmt.Sprintf("%s done of %s found", grouped(p.FilesDone), grouped(p.Files)))
	case p.Files > 1:
		parts = append(parts, fmt.Sprintf("%s of %s files", grouped(p.FilesDone), grouped(p.Files)))
	}
	if p.Limiter != "" {
		parts = append(parts, "limit: "+p.Limiter)
	}
	if p.Streams > 0 {
		parts = append(parts, count(int64(p.Streams), "stream", "streams"))
	}
	return parts
}

// shortName fits a path of any origin into width columns, with its end visible.
func shortName(path string, width int) string {
	path = oneLine(path)
	if over := runewidth.StringWidth(path) - width; over > 0 {
		return runewidth.TruncateLeft(path, over+1, "…")
	}
	return path
}
