// Package units writes quantities for people, and reads those that people write.
package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

var decimalPrefixes = []string{"", "k", "M", "G", "T", "P"}

// scaled writes n with a decimal prefix.
func scaled(n float64, unit string) string {
	i := 0
	for n >= 999.5 && i < len(decimalPrefixes)-1 {
		n /= 1000
		i++
	}
	digits := 0
	switch {
	case i == 0: // whole bytes and bits
	case n < 9.995:
		digits = 2
	case n < 99.95:
		digits = 1
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + decimalPrefixes[i] + unit
}

// Count writes a number with its noun.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// Bytes writes a number of bytes, such as 1.25 MB.
func Bytes(n int64) string { return scaled(float64(n), "B") }

// Rate writes a rate in bit/s, such as 941 Mbit/s.
func Rate(bitsPerSecond float64) string { return scaled(bitsPerSecond, "bit/s") }

// Grouped writes a number with commas between thousands. The number must not be negative.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent writes a part of 1 with two digits.
func Percent(part float64) string {
	switch {
	case part >= 0.095:
		return fmt.Sprintf("%.0f %%", part*100)
	case part >= 0.0095:
		return fmt.Sprintf("%.1f %%", part*100)
	}
	return fmt.Sprintf("%.2g %%", part*100)
}

// PercentDone writes done as a part of total, rounded down, so that only all of it is 100 %. It
// returns "" if there is no total.
func PercentDone(done, total int64) string {
	if total <= 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", int64(float64(min(done, total))/float64(total)*100))
}

// Time writes a duration, from an hour on in minutes.
func Time(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

// Seconds writes a duration like Time.
func Seconds(s float64) string { return Time(time.Duration(s * float64(time.Second))) }

// Clock writes a duration as m:ss or h:mm:ss.
func Clock(d time.Duration) string {
	s := int64(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

const (
	day  = 24 * time.Hour
	year = 8766 * time.Hour
)

// Span writes a duration as people plan it: in days if it is longer than two days, in years if it
// is longer than two years.
func Span(d time.Duration) string {
	switch {
	case d > 100*year:
		return "more than a century"
	case d >= 2*year:
		return fmt.Sprintf("%.1f years", d.Hours()/year.Hours())
	case d >= 100*day:
		return fmt.Sprintf("%.0f days", d.Hours()/day.Hours())
	case d > 2*day:
		return fmt.Sprintf("%.1f days", d.Hours()/day.Hours())
	case d >= time.Hour:
		d = d.Round(time.Minute)
		if d%time.Hour == 0 {
			return fmt.Sprintf("%d h", d/time.Hour)
		}
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= 10*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return Time(d)
}

// Age writes a duration in its largest unit.
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
