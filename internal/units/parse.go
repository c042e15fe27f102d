package units

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z/]*)$`)

// SizeUnits are the bytes of each unit of a size.
var SizeUnits = map[string]int64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
}

// RateUnits are the bit/s of each unit of a rate.
var RateUnits = rateUnits()

func rateUnits() map[string]int64 {
	units := map[string]int64{}
	for prefix, n := range map[string]int64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} {
		units[prefix+"bit"], units[prefix+"bit/s"], units[prefix+"bps"] = n, n, n
	}
	for prefix, n := range map[string]int64{"m": 1e6, "g": 1e9, "t": 1e12} { // "mbps" means bytes to some programs
		units[prefix+"bit"], units[prefix+"bit/s"] = n, n
	}
	for unit, n := range SizeUnits {
		if unit != "" && n <= 1<<40 {
			units[unit+"/s"] = 8 * n
		}
	}
	return units
}

// ParseRate returns a rate in bit/s, more than zero. Bits are "bit" or "bps" (200mbit, 200 Mbit/s,
// 200Mbps), bytes are an upper-case B per second (20MB/s). A unit that is not clearly one or the
// other is an error, which names both readings.
func ParseRate(s string) (int64, error) {
	n, ok := parseQuantity(s, RateUnits)
	if ok && n > 0 {
		return n, nil
	}
	if number, prefix, ok := unclear(s, unclearRate); ok {
		return 0, fmt.Errorf("%q is not a rate: write %s%sbit for bits or %s%sB/s for bytes",
			s, number, strings.ToLower(prefix), number, strings.ToUpper(prefix))
	}
	return 0, fmt.Errorf("%q is not a rate: give bits as 200mbit (bit, kbit, mbit, gbit, tbit) "+
		"or bytes as 20MB/s (B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)", s)
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

// ParseSize returns a size in bytes. kB and KB are 1000 bytes, KiB 1024, and so on. A unit that
// other programs use for both is an error, which names both readings.
func ParseSize(s string) (int64, error) {
	if n, ok := parseQuantity(s, SizeUnits); ok {
		return n, nil
	}
	if number, prefix, ok := unclear(s, unclearSize); ok {
		prefix = strings.ToUpper(prefix)
		return 0, fmt.Errorf("%q is not a size: write %s%sB for powers of 1000 or %s%siB for powers of 1024",
			s, number, prefix, number, prefix)
	}
	return 0, fmt.Errorf("%q is not a size: give bytes as 17520 or 64KiB "+
		"(B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)", s)
}

// Units with two readings: "20M" and "20mb/s" may mean bits or bytes, "2G" and "2gb" may count in
// powers of 1000 or 1024. The first submatch is the number, the second the prefix.
var (
	unclearRate = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtT])[bB]?(?:/s|ps)?$`)
	unclearSize = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtTpP])b?$`)
)

// unclear reports whether s has one of these units. It does not report a quantity that has a clear
// unit, and is wrong for another reason.
func unclear(s string, form *regexp.Regexp) (number, prefix string, ok bool) {
	m := form.FindStringSubmatch(s)
	if m == nil {
		return "", "", false
	}
	if _, clear := RateUnits[quantity.FindStringSubmatch(s)[2]]; clear {
		return "", "", false
	}
	return m[1], m[2], true
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
	n, err := strconv.ParseFloat(strings.TrimSuffix(digits, " "), 64)
	if (!ok && n != 0) || err != nil || !(n >= 0 && n <= 100) {
		return 0, fmt.Errorf("%q is not a percentage such as 0.1%%", s)
	}
	return n / 100, nil
}

// century is the longest duration with days or weeks.
const century = 36500 * day

var timeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([a-zµ]+) ?`)

// timeUnits are the units of ParseTime.
var timeUnits = map[string]time.Duration{
	"µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour,
	"d": day, "day": day, "days": day, "w": 7 * day, "week": 7 * day, "weeks": 7 * day,
}

// ParseTime reads a duration that is not negative: what time.ParseDuration reads, days and weeks up
// to a century, and what Time, Span and Age write up to days, such as 4 h 43 min.
func ParseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = parseSpan(s)
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 30s, 10m, 1h30m, 14d or 2w", s)
	}
	return d, nil
}

var errSpan = errors.New("no numbers with units, or too long")

// parseSpan adds up numbers with units.
func parseSpan(s string) (sum time.Duration, err error) {
	for {
		m := timeForm.FindStringSubmatch(s)
		if len(m) != 3 || timeUnits[m[2]] == 0 {
			return 0, errSpan
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n > float64(century/timeUnits[m[2]]) {
			return 0, errSpan
		}
		sum += time.Duration(n * float64(timeUnits[m[2]]))
		s = s[len(m[0]):]
		switch {
		case sum > century:
			return 0, errSpan
		case s == "":
			return sum, nil
		}
	}
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
