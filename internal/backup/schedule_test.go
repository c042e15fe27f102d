package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func zone(t require.TestingT, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func TestSchedule(t *testing.T) {
	for _, test := range []struct {
		line, zone, after string
		want              []string
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", []string{ // 02:30 is skipped on the 29th
			"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
		}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{ // and comes twice on the 25th
			"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
		}},
		{"15,45 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{
			"2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00", "2026-03-29T03:45:00+02:00", "2026-03-30T02:15:00+02:00",
		}},
		{"0 */1 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		{"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", []string{
			"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00",
		}},
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"0 4 31 * *", "UTC", "2026-01-31T05:00:00Z", []string{"2026-03-31T04:00:00Z", "2026-05-31T04:00:00Z"}},
		{"0 4 1 * mon", "UTC", "2026-06-01T05:00:00Z", []string{"2026-06-08T04:00:00Z"}}, // one match is enough
		{"0 4 * * fri-mon", "UTC", "2026-06-01T05:00:00Z", []string{"2026-06-05T04:00:00Z", "2026-06-06T04:00:00Z", "2026-06-07T04:00:00Z", "2026-06-08T04:00:00Z"}},
		{"0 4 * * 7", "UTC", "2026-06-01T05:00:00Z", []string{"2026-06-07T04:00:00Z"}},
		{"@daily", "America/Sao_Paulo", "2017-10-14T12:00:00Z", []string{"2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"}}, // no midnight
		{"@daily", "America/Havana", "2026-10-31T12:00:00Z", []string{"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"}},    // two midnights
		{"30 23 30 * *", "Pacific/Apia", "2011-12-29T00:00:00Z", []string{"2011-12-31T00:00:00+14:00"}},                             // no 30th at all
		{"*/20 30 4 jun-aug/2 * wed", "UTC", "2026-06-01T05:00:00Z", nil},
		{"*/20 30 4 * jun-aug/2 wed", "UTC", "2026-06-10T04:30:20Z", []string{"2026-06-10T04:30:40Z", "2026-06-17T04:30:00Z"}},
	} {
		s, err := ParseSchedule(test.line, zone(t, test.zone))
		if test.want == nil {
			require.Error(t, err, test.line)
			continue
		}
		require.NoError(t, err, test.line)
		at, err := time.Parse(time.RFC3339, test.after)
		require.NoError(t, err)
		for _, want := range test.want {
			at = s.Next(at)
			require.Equal(t, want, at.Format(time.RFC3339), "%s in %s", test.line, test.zone)
		}
	}
	for _, bad := range []string{"", "* * * *", "60 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 * 13 *", "0 0 31 2 *", "5-1 * * * *", "*/0 * * * *", "x * * * *", "1,, * * * *"} {
		_, err := ParseSchedule(bad, time.UTC)
		require.Error(t, err, bad)
	}
}

// Next returns the first match of a clock on the wall that is checked every minute.
func TestScheduleLikeClock(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo", "Pacific/Apia"}
	lines := []string{"30 2 * * *", "*/20 1,2,3 * * *", "15 */2 * * *", "45 0 * * *", "*/30 * * * sun", "0 3 1 * mon", "10 23,0 * * *"}
	rapid.Check(t, func(t *rapid.T) {
		loc := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		s, err := ParseSchedule(rapid.SampledFrom(lines).Draw(t, "line"), loc)
		require.NoError(t, err)
		// The time is near a day on which clocks are set, or any time.
		start := time.Unix(rapid.Int64Range(1262304000, 1893456000).Draw(t, "start")/60*60, 0).In(loc)
		if _, set := start.ZoneBounds(); !set.IsZero() && rapid.Bool().Draw(t, "set") {
			start = set.Truncate(time.Minute).Add(-5 * time.Hour)
		}
		end := start.Add(30 * time.Hour)
		var got, want []time.Time
		for at := s.Next(start); !at.After(end); at = s.Next(at) {
			got = append(got, at.In(loc))
		}
		shown := map[string]bool{} // times that clocks have shown
		for at := start.Add(-26 * time.Hour); !at.After(end); at = at.Add(time.Minute) {
			at := at.In(loc)
			before := at.Add(-time.Minute)
			due := false
			// Clocks skip some minutes, or show some minutes again.
			for wall := wallOf(before).Add(time.Minute); !s.steady && wall.Before(wallOf(at)); wall = wall.Add(time.Minute) {
				due = due || s.shows(wall)
			}
			wall := wallOf(at).Format(time.DateTime)
			due = due || s.shows(wallOf(at)) && (s.steady || !shown[wall])
			shown[wall] = true
			if due && at.After(start) {
				want = append(want, at)
			}
		}
		require.Equal(t, want, got)
	})
}

// wallOf returns the time that clocks show, as if it were UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
}

func (s *Schedule) shows(wall time.Time) bool {
	return s.matches(wall) && s.hour&(1<<wall.Hour()) != 0 && s.minute&(1<<wall.Minute()) != 0
}

func TestScheduleLast(t *testing.T) {
	s, err := ParseSchedule("* * * * * *", time.UTC)
	require.NoError(t, err)
	now := time.Date(2026, 6, 1, 0, 0, 0, 500, time.UTC)
	require.Equal(t, now.Truncate(time.Second), s.Last(now.AddDate(-3, 0, 0), now))
	require.True(t, s.Last(now, now).IsZero())
	daily, err := ParseSchedule("30 2 * * *", time.UTC)
	require.NoError(t, err)
	require.Equal(t, "2026-05-31T02:30:00Z", daily.Last(now.AddDate(0, 0, -7), now).Format(time.RFC3339))
	require.True(t, daily.Last(now.Add(-time.Hour), now).IsZero())
}
