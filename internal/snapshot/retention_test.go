package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	nightly := func(from time.Time, days int) (names []string) {
		for i := range days {
			names = append(names, Name(from.AddDate(0, 0, i)))
		}
		return names
	}
	all := nightly(time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC), 365)
	kept := func(k Keep, names []string) (kept []string) {
		for _, s := range first(k.Decide(names, berlin)) {
			kept = append(kept, s.Name[:10])
		}
		return kept
	}
	require.Equal(t, []string{"2026-12-31", "2026-12-30", "2026-12-29", "2026-12-27", "2026-12-20", "2026-11-30"},
		kept(Keep{Daily: 3, Weekly: 3, Monthly: 2}, all))
	require.Equal(t, []string{"2026-12-31"}, kept(Keep{Yearly: 10}, all))
	require.Len(t, kept(Keep{}, all), 365)

	// Periods without a snapshot do not count.
	sparse := []string{"2026-01-05T020000Z", "2026-03-05T020000Z", "2026-07-05T020000Z"}
	require.Equal(t, []string{"2026-07-05", "2026-03-05"}, kept(Keep{Monthly: 2}, sparse))

	// The hour that comes twice is two hours; the day around it is one.
	twice := []string{"2026-10-25T003000Z", "2026-10-25T013000Z"}
	require.Len(t, kept(Keep{Hourly: 5}, twice), 2)
	require.Len(t, kept(Keep{Daily: 5}, twice), 1)

	// A day ends where the time zone says.
	evening := []string{"2026-06-01T213000Z", "2026-06-01T223000Z"}
	require.Len(t, kept(Keep{Daily: 5}, evening), 2)

	// Names that are not snapshots are ignored.
	keep, remove := Keep{Last: 1}.Decide([]string{"latest", "2026-06-01T213000Z", "2026-13-01T213000Z", ".partial"}, time.UTC)
	require.Equal(t, []Kept{{"2026-06-01T213000Z", []string{"last"}}}, keep)
	require.Empty(t, remove)
}

func first[A, B any](a A, _ B) A { return a }

// naive decides for each snapshot on its own: is it the newest of its period, and how many later
// periods have a snapshot?
func naive(k Keep, names []string, loc *time.Location) map[string]bool {
	times := map[string]time.Time{}
	for _, n := range names {
		at, _ := ParseName(n)
		times[n] = at.In(loc)
	}
	stays := map[string]bool{}
	for name, at := range times {
		newer := 0
		for _, other := range times {
			if other.After(at) {
				newer++
			}
		}
		if newer < k.Last || newer == 0 || k == (Keep{}) {
			stays[name] = true
		}
		for _, rule := range []struct {
			n      int
			period func(time.Time) [5]int
		}{
			{k.Hourly, func(t time.Time) [5]int {
				_, offset := t.Zone()
				return [5]int{t.Year(), int(t.Month()), t.Day(), t.Hour(), offset}
			}},
			{k.Daily, func(t time.Time) [5]int { return [5]int{t.Year(), int(t.Month()), t.Day()} }},
			{k.Weekly, func(t time.Time) [5]int { // the Monday of the week
				monday := time.Date(t.Year(), t.Month(), t.Day()-(int(t.Weekday())+6)%7, 12, 0, 0, 0, time.UTC)
				return [5]int{monday.Year(), int(monday.Month()), monday.Day()}
			}},
			{k.Monthly, func(t time.Time) [5]int { return [5]int{t.Year(), int(t.Month())} }},
			{k.Yearly, func(t time.Time) [5]int { return [5]int{t.Year()} }},
		} {
			newest, later := true, map[[5]int]bool{}
			for _, other := range times {
				if other.After(at) {
					newest = newest && rule.period(other) != rule.period(at)
					later[rule.period(other)] = true
				}
			}
			if newest && len(later) < rule.n {
				stays[name] = true
			}
		}
	}
	return stays
}

func TestDecideLikeNaive(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		require.NoError(t, err)
		number := rapid.IntRange(0, 12)
		k := Keep{number.Draw(t, "last"), number.Draw(t, "hourly"), number.Draw(t, "daily"), number.Draw(t, "weekly"), number.Draw(t, "monthly"), number.Draw(t, "yearly")}
		span := rapid.SampledFrom([]int64{3600, 86400, 30 * 86400, 5 * 365 * 86400}).Draw(t, "span")
		start := time.Date(2024, 10, 26, 0, 0, 0, 0, time.UTC).Unix()
		var names []string
		for _, s := range rapid.SliceOfN(rapid.Int64Range(0, span), 0, 60).Draw(t, "seconds") {
			names = append(names, Name(time.Unix(start+s, 0)))
		}
		keep, remove := k.Decide(names, loc)
		want := naive(k, names, loc)
		require.Len(t, keep, len(want))
		for _, s := range keep {
			require.True(t, want[s.Name], "%s %v", s.Name, s.Rules)
			require.NotEmpty(t, s.Rules)
		}
		for _, n := range remove {
			require.False(t, want[n], n)
			require.Contains(t, names, n)
		}
		require.True(t, slices.IsSorted(remove))
		require.True(t, slices.IsSortedFunc(keep, func(a, b Kept) int { return strings.Compare(b.Name, a.Name) }))
		// A second decision removes nothing more.
		var left []string
		for _, s := range keep {
			left = append(left, s.Name)
		}
		_, again := k.Decide(left, loc)
		require.Empty(t, again)
	})
}

func TestParseKeep(t *testing.T) {
	k, err := ParseKeep("last=3, daily=7,yearly=2")
	require.NoError(t, err)
	require.Equal(t, Keep{Last: 3, Daily: 7, Yearly: 2}, k)
	again, err := ParseKeep(k.String())
	require.NoError(t, err)
	require.Equal(t, k, again)
	k, err = ParseKeep("all")
	require.NoError(t, err)
	require.Equal(t, "all", k.String())
	for _, bad := range []string{"", "daily", "daily=-1", "dayly=3", "daily=0"} {
		_, err := ParseKeep(bad)
		require.Error(t, err, bad)
	}
}
