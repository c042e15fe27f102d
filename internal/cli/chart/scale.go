package chart

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

// Unit says how values are written, and which steps between them are round.
type Unit struct {
	show  func(float64) string
	least float64   // the smallest step
	steps []float64 // ascending; nil, and outside of them: powers of ten times 1, 2 and 5
}

// The units of charts. Rates are in bit/s, sizes in bytes, times in seconds.
var (
	Rate    = Unit{show: units.Rate, least: 1}
	Bytes   = Unit{show: func(x float64) string { return units.Bytes(int64(x)) }, least: 1}
	Seconds = Unit{show: units.Seconds, steps: []float64{15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}}
)

// step returns the least round step that is x or more.
func (u Unit) step(x float64) float64 {
	x = max(x, u.least)
	if n := len(u.steps); n > 0 && x > 10 && x <= u.steps[n-1] {
		i, _ := slices.BinarySearch(u.steps, x)
		return u.steps[i]
	}
	ten := math.Pow(10, math.Floor(math.Log10(x)))
	for _, s := range []float64{1, 2, 5} {
		if s*ten >= x*(1-1e-9) {
			return s * ten
		}
	}
	return 10 * ten
}

// scale returns the top of a scale for values, and the largest of them, both 0 if no value is above
// 0. A few values that are much larger than the rest do not set the scale.
func scale(values []float64) (top, most float64) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(values) == 0 {
		return 0, 0
	}
	slices.Sort(values)
	most = values[len(values)-1]
	if usual := values[(len(values)*95+99)/100-1]; most > 1.5*usual {
		return 1.1 * usual, most
	}
	return most, most
}

// A tick is a label on an axis. At is its place in percent.
type tick struct {
	At   float64
	Text string
}

// Down is the distance from the top.
func (t tick) Down() float64 { return 100 - t.At }

// ticks returns the multiples of step from 0 to end.
func (u Unit) ticks(end, step float64) (all []tick) {
	for i := 0.0; i*step <= end*(1+1e-9); i++ {
		text := "0"
		if i > 0 {
			text = brief(u.show(i * step))
		}
		all = append(all, tick{100 * i * step / end, text})
	}
	return all
}

// brief leaves out zeros that a label does not need: 5.00 s becomes 5 s, and 1h0m becomes 1h.
func brief(text string) string {
	number, unit, _ := strings.Cut(text, " ")
	switch {
	case strings.Contains(number, "."):
		return strings.TrimRight(strings.TrimRight(number, "0"), ".") + " " + unit
	case strings.HasSuffix(text, "m0s"):
		return strings.TrimSuffix(text, "0s")
	case strings.HasSuffix(text, "h0m"):
		return strings.TrimSuffix(text, "0m")
	}
	return text
}

// dates labels the time from first to last at both ends and in the middle, with the time of day if
// the days would be too few.
func dates(first, last time.Time) []tick {
	form := time.DateOnly
	if last.Sub(first) < 3*24*time.Hour {
		form = "01-02 15:04"
	}
	text := func(t time.Time) string { return t.Local().Format(form) }
	if !last.After(first) {
		return []tick{{50, text(first)}}
	}
	return []tick{{0, text(first)}, {50, text(first.Add(last.Sub(first) / 2))}, {100, text(last)}}
}
