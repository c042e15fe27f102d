package backup

import (
	"errors"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/units"
)

// Window is when a job may transfer. The zero Window is always open.
type Window struct {
	text  string
	loc   *time.Location
	spans []span
}

// ParseWindow reads "22:00-06:00", or "mon-fri 22:00-06:00, sat,sun 00:00-24:00", in the time of
// loc. A span that ends before it begins ends on the next day. If clocks are set forward over its
// end, it ends with the jump. If they are set back, it holds whenever they show its time.
func ParseWindow(text string, loc *time.Location) (Window, error) {
	w := Window{text: text, loc: loc}
	for _, words := range splitRules(text) {
		s, err := parseSpan(words)
		if err == nil && len(words) == 0 {
			err = errors.New(`expected times such as "22:00-06:00"`)
		}
		if err != nil {
			return Window{}, err
		}
		w.spans = append(w.spans, s)
	}
	return w, nil
}

func (w Window) String() string { return w.text }

// Always reports whether the window never closes.
func (w Window) Always() bool { return w.spans == nil || w.Change(time.Unix(0, 0)).IsZero() }

// Open reports whether the window is open at t.
func (w Window) Open(t time.Time) bool {
	if w.spans == nil {
		return true
	}
	local := t.In(w.loc)
	for i := range w.spans {
		if w.spans[i].holds(local) {
			return true
		}
	}
	return false
}

// Change returns when the window next opens or closes after t, zero if never.
func (w Window) Change(t time.Time) time.Time {
	if w.spans == nil {
		return time.Time{}
	}
	return nextChange(t, w.loc, w.spans, w.Open)
}

// Opening returns t if the window is open then, or else when it next opens.
func (w Window) Opening(t time.Time) time.Time {
	if w.Open(t) {
		return t
	}
	return w.Change(t)
}

// Timetable is the speed limit of a job by time. The zero Timetable has no limit.
type Timetable struct {
	text  string
	loc   *time.Location
	spans []span
	rates []int64 // one for each span, then one for all other times; bit/s, 0 is unlimited
}

// ParseTimetable reads rules such as "mon-fri 08:00-18:00 50mbit, otherwise unlimited", in the time
// of loc. The first rule that matches counts.
func ParseTimetable(text string, loc *time.Location) (Timetable, error) {
	t := Timetable{text: text, loc: loc}
	ended := false
	for _, words := range splitRules(text) {
		if len(words) == 0 {
			return Timetable{}, errors.New(`expected a rule such as "mon-fri 08:00-18:00 50mbit"`)
		}
		if ended {
			return Timetable{}, fmt.Errorf("%q comes after the rule for all other times, and would never hold", words[0])
		}
		last := len(words) - 1
		rate, err := parseRate(words[last])
		if err != nil {
			return Timetable{}, err
		}
		t.rates = append(t.rates, rate)
		if ended = last == 0 || last == 1 && words[0] == "otherwise"; ended {
			continue
		}
		s, err := parseSpan(words[:last])
		if err != nil {
			return Timetable{}, err
		}
		t.spans = append(t.spans, s)
	}
	if !ended {
		t.rates = append(t.rates, 0)
	}
	return t, nil
}

func parseRate(s string) (int64, error) {
	if s == "unlimited" {
		return 0, nil
	}
	n, err := units.ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("%w, or unlimited", err)
	}
	return n, nil
}

func (t Timetable) String() string { return t.text }

// Rate returns the limit at a time in bit/s. 0 is unlimited.
func (t Timetable) Rate(at time.Time) int64 {
	if t.rates == nil {
		return 0
	}
	local := at.In(t.loc)
	for i := range t.spans {
		if t.spans[i].holds(local) {
			return t.rates[i]
		}
	}
	return t.rates[len(t.spans)]
}

// Change returns when the rate next changes after at, zero if never.
func (t Timetable) Change(at time.Time) time.Time {
	if t.rates == nil {
		return time.Time{}
	}
	return nextChange(at, t.loc, t.spans, t.Rate)
}
