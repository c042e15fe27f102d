package units

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([A-Za-z/]*)$`)

// SizeUnits are the bytes of each unit of a size.
var SizeUnits = map[string]int64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// RateUnits are the bit/s of each unit of a rate.
var RateUnits = map[string]int64{
	"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9,
	"B/s": 8, "KB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9,
	"KiB/s": 8 << 10, "MiB/s": 8 << 20, "GiB/s": 8 << 30,
}

// ParseRate returns a rate in bit/s, more than zero. Bits are lower-case (200mbit), bytes
// upper-case (20MB/s). A unit that is not clearly one or the other is an error.
func ParseRate(s string) (int64, error) {
	n, ok := parseQuantity(s, RateUnits)
	if !ok || n == 0 {
		return 0, fmt.Errorf("%q is not a rate: give bits as 200mbit (bit, kbit, mbit, gbit) "+
			"or bytes as 20MB/s (B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)", s)
	}
	return n, nil
}

// ExactRate writes a rate in bit/s as ParseRate reads it.
func ExactRate(bits int64) string {
	for _, unit := range []string{"gbit", "mbit", "kbit"} {
		if n := RateUnits[unit]; bits%n == 0 {
			return strconv.FormatInt(bits/n, 10) + unit
		}
	}
	return strconv.FormatInt(bits, 10) + "bit"
}

// ParseSize returns a size in bytes. KB is 1000 bytes, KiB 1024, and so on.
func ParseSize(s string) (int64, error) {
	n, ok := parseQuantity(s, SizeUnits)
	if !ok {
		return 0, fmt.Errorf("%q is not a size: give bytes as 17520 or 64KiB "+
			"(B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)", s)
	}
	return n, nil
}

// parseQuantity returns the value of s, if it is a whole number and fits int64.
func parseQuantity(s string, units map[string]int64) (int64, bool) {
	m := quantity.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	unit, known := units[m[2]]
	value, ok := new(big.Rat).SetString(m[1])
	if !known || !ok {
		return 0, false
	}
	value.Mul(value, new(big.Rat).SetInt64(unit))
	if !value.IsInt() || !value.Num().IsInt64() {
		return 0, false
	}
	return value.Num().Int64(), true
}

// ParsePercent reads a percentage and returns it as a part of 1. The sign is required: a bare 1
// could mean all or a hundredth.
func ParsePercent(s string) (float64, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if (!ok && n != 0) || err != nil || !(n >= 0 && n <= 100) {
		return 0, fmt.Errorf("%q is not a percentage such as 0.1%%", s)
	}
	return n / 100, nil
}

// maxDays is a century.
const maxDays = 36500

// ParseTime reads a duration that is not negative: days or weeks, such as 14d and 2w, or what
// time.ParseDuration reads.
func ParseTime(s string) (time.Duration, error) {
	if days, ok := ParseDays(s); ok && days <= maxDays {
		return time.Duration(days) * day, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 30s, 10m, 1h30m, 14d or 2w", s)
	}
	return d, nil
}

var daysForm = regexp.MustCompile(`^([0-9]{1,6})([dw])$`)

// ParseDays reads a number of days or weeks, such as 14d and 2w, and returns the days.
func ParseDays(s string) (days int, ok bool) {
	m := daysForm.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	days, err := strconv.Atoi(m[1])
	if m[2] == "w" {
		days *= 7
	}
	return days, err == nil
}
