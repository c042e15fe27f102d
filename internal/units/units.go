// Package units writes quantities for people, with three significant digits, and reads them.
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
