package backup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // hosts without time zone files also need the zones of jobs
)

const (
	secondsOfDay = 24 * 60 * 60
	// zoneChange is longer than the offset of any zone from UTC, and shorter than the time
	// between two changes of a zone.
	zoneChange = 36 * time.Hour
)

// instants returns the times at which clocks in loc show this second of a day. There are two if
// clocks are set back at that time, and none if they are set forward over it. If n is 0, first is
// the time of the jump.
func instants(loc *time.Location, year int, month time.Month, day, second int) (first, last time.Time, n int) {
	utc := time.Date(year, month, day, 0, 0, second, 0, time.UTC)
	offset := func(t time.Time) time.Duration {
		_, s := t.In(loc).Zone()
		return time.Duration(s) * time.Second
	}
	before, after := offset(utc.Add(-zoneChange)), offset(utc.Add(zoneChange))
	early, late := utc.Add(-before).In(loc), utc.Add(-after).In(loc)
	isEarly, isLate := offset(early) == before, offset(late) == after
	switch {
	case isEarly && isLate && before != after:
		return early, late, 2
	case isEarly:
		return early, early, 1
	case isLate:
		return late, late, 1
	}
	jump, _ := early.ZoneBounds()
	return jump.In(loc), jump.In(loc), 0
}

// span is a time of day on some days of the week, as clocks show it. If it ends before it begins,
// it ends on the next day.
type span struct {
	days     [7]bool // the days on which it begins, Sunday first
	from, to int     // seconds of the day
}

func (s *span) holds(local time.Time) bool {
	second := (local.Hour()*60+local.Minute())*60 + local.Second()
	today := local.Weekday()
	yesterday := (today + 6) % 7
	if s.from < s.to {
		return s.days[today] && s.from <= second && second < s.to
	}
	return s.days[today] && s.from <= second || s.days[yesterday] && second < s.to
}

// nextChange returns the first time after t at which value differs from its value at t, zero if
// there is none. The value may change only where a span begins or ends, or where clocks are set.
func nextChange[T comparable](t time.Time, loc *time.Location, spans []span, value func(time.Time) T) time.Time {
	now := value(t)
	local := t.In(loc)
	var candidates []time.Time
	for day := -1; day <= 8; day++ {
		for _, s := range spans {
			for _, second := range []int{s.from, s.to} {
				first, last, _ := instants(loc, local.Year(), local.Month(), local.Day()+day, second)
				candidates = append(candidates, first, last)
			}
		}
	}
	if _, set := local.ZoneBounds(); !set.IsZero() {
		candidates = append(candidates, set)
	}
	slices.SortFunc(candidates, time.Time.Compare)
	for _, c := range candidates {
		if c.After(t) && value(c) != now {
			return c.In(loc)
		}
	}
	return time.Time{}
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseDays reads "mon-fri", "sat", "sat,sun" or "fri-mon", and reports whether s is days.
func parseDays(s string) (days [7]bool, ok bool) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first := slices.Index(dayNames, from)
		last := first
		if isRange {
			last = slices.Index(dayNames, to)
		}
		if first < 0 || last < 0 {
			return days, false
		}
		for d := first; ; d = (d + 1) % 7 {
			days[d] = true
			if d == last {
				break
			}
		}
	}
	return days, true
}

// parseClock reads "22:00" or "22:00:30" as a second of the day; "24:00" is the end of it.
func parseClock(s string) (int, bool) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, false
	}
	var second int
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || len(part) != 2 || n < 0 || n > 59 && i > 0 {
			return 0, false
		}
		second = second*60 + n
	}
	if len(parts) == 2 {
		second *= 60
	}
	return second, second <= secondsOfDay
}

// parseSpan reads words such as "mon-fri" "08:00-18:00". Without the first, the span is on all
// days; without the second, it is the whole day.
func parseSpan(words []string) (s span, err error) {
	const expected = `expected days and times such as "mon-fri 22:00-06:00"`
	s = span{to: secondsOfDay}
	for i := range s.days {
		s.days[i] = true
	}
	if len(words) > 0 {
		if days, ok := parseDays(words[0]); ok {
			s.days, words = days, words[1:]
		}
	}
	if len(words) > 0 {
		from, to, isRange := strings.Cut(words[0], "-")
		begin, ok1 := parseClock(from)
		end, ok2 := parseClock(to)
		switch {
		case !isRange || !ok1 || !ok2 || begin == secondsOfDay:
			return s, fmt.Errorf("%q: %s", words[0], expected)
		case begin == end:
			return s, fmt.Errorf("%q begins when it ends: all the day is 00:00-24:00", words[0])
		}
		s.from, s.to, words = begin, end, words[1:]
	}
	if len(words) > 0 {
		return s, fmt.Errorf("%q: %s", words[0], expected)
	}
	return s, nil
}

// splitRules splits "mon-fri 08:00-18:00 50mbit, sat,sun 100mbit" at the commas between rules, but
// not at those between days.
func splitRules(s string) (rules [][]string) {
	days := ""
	for part := range strings.SplitSeq(s, ",") {
		words := strings.Fields(part)
		if len(words) > 0 {
			if _, ok := parseDays(words[0]); ok && days != "" {
				words[0] = days + "," + words[0]
			} else if days != "" {
				words = append([]string{days}, words...)
			}
			days = ""
			if _, ok := parseDays(words[0]); ok && len(words) == 1 {
				days = words[0]
				continue
			}
		}
		rules = append(rules, words)
	}
	if days != "" {
		rules = append(rules, []string{days})
	}
	return rules
}
