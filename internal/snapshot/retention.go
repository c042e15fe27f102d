// Package snapshot decides which snapshots stay, and how they are called. It is pure: the same decision is made by a client for a
// mirror's history and by a server for shares to which clients may only append.
package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nameLayout is that of snapshots: in UTC, so that names sort by time and no clock change makes two the same.
const nameLayout = "2006-01-02T150405Z"

// Name is what a snapshot is called that was due at t, to the second.
func Name(t time.Time) string { return t.UTC().Format(nameLayout) }

// ParseName returns the time of a snapshot, and whether name is one.
func ParseName(name string) (time.Time, bool) {
	t, err := time.Parse(nameLayout, name)
	return t, err == nil && Name(t) == name
}

// Keep is a policy. Each number but Last is of periods that have a snapshot, counted back from the newest: of each such period its
// newest snapshot stays. Periods without one don't count. A snapshot stays if any of the rules wants it. The zero Keep keeps all.
type Keep struct {
	Last    int // the newest ones, whatever their time
	Hourly  int
	Daily   int
	Weekly  int // weeks begin on Monday (ISO 8601)
	Monthly int
	Yearly  int
}

// fields are a policy's numbers, by their names.
func (k *Keep) fields() []field {
	return []field{{"last", &k.Last}, {"hourly", &k.Hourly}, {"daily", &k.Daily}, {"weekly", &k.Weekly}, {"monthly", &k.Monthly}, {"yearly", &k.Yearly}}
}

type field struct {
	name string
	n    *int
}

// Names are the rules, as ParseKeep and Set know them.
func Names() (names []string) {
	for _, f := range new(Keep).fields() {
		names = append(names, f.name)
	}
	return names
}

// Set sets the number of the rule called name, and tells whether there is one.
func (k *Keep) Set(name string, n int) bool {
	for _, f := range k.fields() {
		if f.name == name {
			*f.n = n
			return true
		}
	}
	return false
}

// String is the policy as ParseKeep reads it, "all" for the zero one.
func (k Keep) String() string {
	var parts []string
	for _, f := range k.fields() {
		if *f.n > 0 {
			parts = append(parts, f.name+"="+strconv.Itoa(*f.n))
		}
	}
	if parts == nil {
		return "all"
	}
	return strings.Join(parts, ",")
}

// ParseKeep reads a policy such as "daily=7,weekly=4", or "all".
func ParseKeep(s string) (k Keep, err error) {
	if s == "all" {
		return k, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || !k.Set(name, int(n)) {
			return k, fmt.Errorf("%q is not a rule such as daily=7: expected last, hourly, daily, weekly, monthly or yearly, and a number", part)
		}
	}
	if k == (Keep{}) {
		return k, fmt.Errorf("%q would keep nothing: to keep all, say all", s)
	}
	return k, nil
}

// Kept is a snapshot that stays, with the rules that want it, such as "daily".
type Kept struct {
	Name  string
	Rules []string
}

// Decide tells which of the snapshots called names stay, the newest first, and which are to go, the oldest first. Periods are those of
// loc. Names that are no snapshot's are in neither. The newest snapshot always stays. Only complete snapshots may be given: an
// incomplete one would take the place of a good one.
func (k Keep) Decide(names []string, loc *time.Location) (keep []Kept, remove []string) {
	var snapshots []snapshot
	for _, name := range names {
		if t, ok := ParseName(name); ok {
			snapshots = append(snapshots, snapshot{name, t.In(loc)})
		}
	}
	slices.SortFunc(snapshots, func(a, b snapshot) int { return b.at.Compare(a.at) })
	snapshots = slices.CompactFunc(snapshots, func(a, b snapshot) bool { return a.name == b.name })
	rules := k.rules()
	for i, s := range snapshots {
		var wanted []string
		for r := range rules {
			if rules[r].wants(i, s.at) {
				wanted = append(wanted, rules[r].name)
			}
		}
		switch {
		case k == (Keep{}):
			keep = append(keep, Kept{s.name, []string{"all"}})
		case wanted != nil:
			keep = append(keep, Kept{s.name, wanted})
		case i == 0:
			keep = append(keep, Kept{s.name, []string{"newest"}})
		default:
			remove = append(remove, s.name)
		}
	}
	slices.Reverse(remove)
	return keep, remove
}

type snapshot struct {
	name string
	at   time.Time
}

// rule is one number of a policy at work, from the newest snapshot to the oldest.
type rule struct {
	name   string
	left   int
	period func(i int, at time.Time) string // that a snapshot is in
	last   string                           // period seen
}

func (r *rule) wants(i int, at time.Time) bool {
	p := r.period(i, at)
	if r.left == 0 || p == r.last {
		return false
	}
	r.left--
	r.last = p
	return true
}

func (k Keep) rules() []rule {
	layout := func(l string) func(int, time.Time) string {
		return func(_ int, at time.Time) string { return at.Format(l) }
	}
	return []rule{
		{name: "last", left: k.Last, period: func(i int, _ time.Time) string { return strconv.Itoa(i) }},
		// With the offset: the hour that comes twice when clocks go back is two.
		{name: "hourly", left: k.Hourly, period: layout("2006-01-02T15 -0700")},
		{name: "daily", left: k.Daily, period: layout("2006-01-02")},
		{name: "weekly", left: k.Weekly, period: func(_ int, at time.Time) string {
			year, week := at.ISOWeek()
			return fmt.Sprint(year, week)
		}},
		{name: "monthly", left: k.Monthly, period: layout("2006-01")},
		{name: "yearly", left: k.Yearly, period: layout("2006")},
	}
}
