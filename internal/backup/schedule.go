package backup

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule says when a job is due, by a crontab line of a time zone.
//
// On days when clocks are set, it follows Vixie cron: a skipped time counts once, right after the
// jump, and a time that comes twice counts once, the first time. Only a schedule whose hour begins
// with "*" follows the clock: it is due each time that clocks show its minute.
type Schedule struct {
	text                                      string
	loc                                       *time.Location
	second, minute, hour, day, month, weekday uint64 // a bit for each value
	steady                                    bool   // the hour begins with "*"
	either                                    bool   // neither day nor weekday begins with "*": one match is enough
}

var monthNames = []string{"", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * sun", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
}

// errSchedule is the error for a text that is not a crontab line.
var errSchedule = errors.New(`expected minute, hour, day, month and weekday, as in "30 2 * * mon-fri", with a field for seconds before them if need be, or @daily and the like`)

// ParseSchedule reads a crontab line: minute, hour, day of the month, month, day of the week. If
// there are six fields, the first one is the second.
func ParseSchedule(text string, loc *time.Location) (*Schedule, error) {
	line := text
	if long, ok := shorthands[text]; ok {
		line = long
	}
	fields := strings.Fields(strings.ToLower(line))
	if len(fields) == 5 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 6 {
		return nil, fmt.Errorf("%q is not a schedule: %w", text, errSchedule)
	}
	s := &Schedule{text: text, loc: loc, steady: fields[2][0] == '*', either: fields[3][0] != '*' && fields[5][0] != '*'}
	for i, f := range []struct {
		name     string
		set      *uint64
		min, max int
		names    []string
	}{
		{"second", &s.second, 0, 59, nil}, {"minute", &s.minute, 0, 59, nil}, {"hour", &s.hour, 0, 23, nil},
		{"day", &s.day, 1, 31, nil}, {"month", &s.month, 1, 12, monthNames}, {"weekday", &s.weekday, 0, 7, dayNames},
	} {
		set, err := parseField(fields[i], f.min, f.max, f.names)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", f.name, fields[i], err)
		}
		*f.set = set
	}
	if s.weekday&(1<<7) != 0 { // Sunday, too
		s.weekday = s.weekday&^(1<<7) | 1
	}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return nil, fmt.Errorf("%q is never due: no such day exists", text)
	}
	return s, nil
}

// parseField reads a field such as "*", "*/15", "1-5", "mon,wed" or "8-18/2".
func parseField(field string, least, most int, names []string) (set uint64, err error) {
	number := func(s string) (int, error) {
		if i := slices.Index(names, s); i >= 0 && s != "" {
			return i, nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not from %d to %d", s, least, most)
		}
		return n, nil
	}
	for part := range strings.SplitSeq(field, ",") {
		values, stepText, hasStep := strings.Cut(part, "/")
		step := 1
		if hasStep {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > most {
				return 0, fmt.Errorf("the step %q is not from 1 to %d", stepText, most)
			}
		}
		from, to := least, most
		if values != "*" {
			first, last, isRange := strings.Cut(values, "-")
			if from, err = number(first); err != nil {
				return 0, err
			}
			switch {
			case isRange:
				if to, err = number(last); err != nil {
					return 0, err
				}
			case !hasStep:
				to = from
			}
		}
		if most == 7 && to < from { // fri-mon
			to += 7
		}
		if to < from {
			return 0, fmt.Errorf("%q ends before it begins", values)
		}
		for n := from; n <= to; n += step {
			if n > most {
				set |= 1 << (n - 7)
				continue
			}
			set |= 1 << n
		}
	}
	return set, nil
}

func (s *Schedule) String() string { return s.text }

// Location is the time zone.
func (s *Schedule) Location() *time.Location { return s.loc }

// searchDays is how many days ahead the next time is searched. There can be eight years without a
// 29th of February.
const searchDays = 9 * 366

// Next returns the first time after t at which the job is due, zero if there is none.
func (s *Schedule) Next(t time.Time) time.Time {
	year, month, day := t.In(s.loc).Date()
	for i := -1; i < searchDays; i++ { // a time skipped yesterday may count today
		if next := s.nextOf(year, month, day+i, t); !next.IsZero() {
			// If clocks are set back over midnight, they show the end of a day again after the next
			// day has begun.
			if other := s.nextOf(year, month, day+i+1, t); !other.IsZero() && other.Before(next) {
				return other
			}
			return next
		}
	}
	return time.Time{}
}

// nextOf returns the first time of a day after t.
func (s *Schedule) nextOf(year int, month time.Month, day int, t time.Time) (best time.Time) {
	date := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	if !s.matches(date) {
		return best
	}
	year, month, day = date.Date()
	consider := func(at time.Time) {
		if at.After(t) && (best.IsZero() || at.Before(best)) {
			best = at
		}
	}
	found := 24
	for hour := range 24 {
		if s.hour&(1<<hour) == 0 {
			continue
		}
		if _, last, _ := instants(s.loc, year, month, day, hour*3600+3599); !last.After(t) {
			continue
		}
		if hour > found+3 { // clocks are never set by more
			break
		}
		for minutes := s.minute; minutes != 0; minutes &= minutes - 1 {
			for seconds := s.second; seconds != 0; seconds &= seconds - 1 {
				first, last, n := instants(s.loc, year, month, day, hour*3600+bits.TrailingZeros64(minutes)*60+bits.TrailingZeros64(seconds))
				switch {
				case !s.steady:
					consider(first)
				case n > 0:
					consider(first)
					consider(last)
				}
			}
		}
		if !best.IsZero() {
			found = min(found, hour)
		}
	}
	return best
}

// matches reports whether the job is due on a day.
func (s *Schedule) matches(date time.Time) bool {
	day, weekday := s.day&(1<<date.Day()) != 0, s.weekday&(1<<date.Weekday()) != 0
	if s.month&(1<<date.Month()) == 0 {
		return false
	}
	if s.either {
		return day || weekday
	}
	return day && weekday
}

// Last returns the last time in the interval (after, until] at which the job was due, or zero if it
// was not. The cost does not depend on the length of the interval.
func (s *Schedule) Last(after, t time.Time) (last time.Time) {
	for _, back := range []time.Duration{time.Minute, time.Hour, 48 * time.Hour, 40 * 24 * time.Hour, searchDays * 24 * time.Hour} {
		from := t.Add(-back)
		if from.Before(after) {
			from = after
		}
		for next := s.Next(from); !next.IsZero() && !next.After(t); next = s.Next(next) {
			last = next
		}
		if !last.IsZero() || from.Equal(after) {
			return last
		}
	}
	return last
}
