package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keep is a retention policy: how many snapshots stay. Last counts snapshots. Every other rule
// counts periods, from the newest back, and the newest snapshot in each of them stays; periods
// without a snapshot do not count. A snapshot stays if any rule wants it. The zero Keep keeps all.
type Keep struct {
	Last    int
	Hourly  int
	Daily   int
	Weekly  int // weeks begin on Monday (ISO 8601)
	Monthly int
	Yearly  int
}

// fields returns the policy's numbers by the names of their rules.
func (k *Keep) fields() []field {
	return []field{
		{"last", &k.Last}, {"hourly", &k.Hourly}, {"daily", &k.Daily},
		{"weekly", &k.Weekly}, {"monthly", &k.Monthly}, {"yearly", &k.Yearly},
	}
}

type field struct {
	name string
	n    *int
}

// KeepRules returns the names of the rules, as in ParseKeep and Set.
func KeepRules() (names []string) {
	for _, f := range new(Keep).fields() {
		names = append(names, f.name)
	}
	return names
}

// Set sets the number of a rule, and reports whether there is such a rule.
func (k *Keep) Set(rule string, n int) bool {
	for _, f := range k.fields() {
		if f.name == rule {
			*f.n = n
			return true
		}
	}
	return false
}

// String returns the policy in the form that ParseKeep reads.
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
		rule, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || !k.Set(rule, int(n)) {
			return k, fmt.Errorf("%q is not a rule such as daily=7: expected last, hourly, daily, "+
				"weekly, monthly or yearly, and a number", part)
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

// Decide splits snapshots into those that stay, newest first, and those to remove, oldest first.
// Periods are those of the time zone loc. The newest snapshot always stays. Decide ignores names
// that are not snapshots. The caller passes only complete snapshots: an incomplete one would take
// the place of a good one.
func (k Keep) Decide(names []string, loc *time.Location) (keep []Kept, remove []string) {
	rules := k.rules()
	for i, s := range newestFirst(names, loc) {
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

// newestFirst returns the snapshots among names, each once.
func newestFirst(names []string, loc *time.Location) (all []snapshot) {
	for _, name := range names {
		if t, err := ParseName(name); err == nil {
			all = append(all, snapshot{name, t.In(loc)})
		}
	}
	slices.SortFunc(all, func(a, b snapshot) int { return b.at.Compare(a.at) })
	return slices.CompactFunc(all, func(a, b snapshot) bool { return a.name == b.name })
}

// rule applies one number of a policy to all snapshots, from the newest to the oldest.
type rule struct {
	name   string
	left   int
	period func(i int, at time.Time) string // names the period of a snapshot
	last   string                           // the last period that had one
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
		{name: "last", left: k.Last, period: func(i int, _ time.Time) string {
			return strconv.Itoa(i)
		}},
		// The offset makes two hours of the hour that comes twice when clocks go back.
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
