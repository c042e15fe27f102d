package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func moment(t require.TestingT, s string) time.Time {
	at, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return at
}

func TestTimetable(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	table, err := ParseTimetable("mon-fri 08:00-18:00 50mbit, fri 22:00-06:00 10mbit, otherwise unlimited", berlin)
	require.NoError(t, err)
	for _, change := range []struct {
		at   string
		rate int64
	}{
		{"2026-11-20T07:00:00Z", 50e6}, // a Friday
		{"2026-11-20T17:00:00Z", 0},
		{"2026-11-20T21:00:00Z", 10e6},
		{"2026-11-21T05:00:00Z", 0},
		{"2026-11-23T07:00:00Z", 50e6},
	} {
		at := moment(t, change.at)
		require.Equal(t, at, table.Change(at.Add(-time.Minute)).UTC())
		require.Equal(t, at, table.Change(at.Add(-time.Nanosecond)).UTC())
		require.NotEqual(t, change.rate, table.Rate(at.Add(-time.Nanosecond)))
		require.Equal(t, change.rate, table.Rate(at))
	}
	// Each day counts with its own offset from UTC.
	require.Equal(t, "2026-10-23T06:00:00Z", table.Change(moment(t, "2026-10-23T00:00:00Z")).UTC().Format(time.RFC3339))
	require.Equal(t, "2026-10-26T07:00:00Z", table.Change(moment(t, "2026-10-25T00:00:00Z")).UTC().Format(time.RFC3339))

	steady, err := ParseTimetable("200mbit", berlin)
	require.NoError(t, err)
	require.Equal(t, int64(200e6), steady.Rate(time.Now()))
	require.True(t, steady.Change(time.Now()).IsZero())
	require.Zero(t, Timetable{}.Rate(time.Now()))

	days, err := ParseTimetable("sat, sun 100mbit, 10:00-12:00:30 5MB/s", time.UTC)
	require.NoError(t, err)
	require.Equal(t, int64(100e6), days.Rate(moment(t, "2026-11-21T11:00:00Z")))
	require.Equal(t, int64(40e6), days.Rate(moment(t, "2026-11-20T12:00:29Z")))
	require.Zero(t, days.Rate(moment(t, "2026-11-20T12:00:30Z")))

	for _, bad := range []string{"", "mon-fri", "08:00-18:00", "mon 8-18 50mbit", "50mbit, otherwise unlimited", "mon-xyz 5mbit", "mon 08:00-08:00 5mbit", "mon 08:00-18:00 50", "mon 08:00-18:00 x 5mbit", "a,", "24:00-06:00 5mbit", "23:00-25:00 5mbit"} {
		_, err := ParseTimetable(bad, time.UTC)
		require.Error(t, err, bad)
	}
}

func TestWindow(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	night, err := ParseWindow("22:00-06:00", berlin)
	require.NoError(t, err)
	require.True(t, night.Open(moment(t, "2026-11-20T21:00:00Z")))
	require.False(t, night.Open(moment(t, "2026-11-21T05:00:00Z")))
	require.Equal(t, "2026-11-21T21:00:00Z", night.Opening(moment(t, "2026-11-21T05:00:00Z")).UTC().Format(time.RFC3339))
	require.False(t, night.Always())
	require.True(t, Window{}.Always())
	require.True(t, Window{}.Open(time.Now()))
	length := func(w Window, from string) time.Duration {
		open := w.Opening(moment(t, from))
		return w.Change(open).Sub(open)
	}
	require.Equal(t, 8*time.Hour, length(night, "2026-03-27T12:00:00Z"))
	require.Equal(t, 7*time.Hour, length(night, "2026-03-28T12:00:00Z"), "clocks are set forward")
	require.Equal(t, 9*time.Hour, length(night, "2026-10-24T12:00:00Z"), "and back")
	gap, err := ParseWindow("01:00-02:30", berlin)
	require.NoError(t, err)
	require.Equal(t, time.Hour, length(gap, "2026-03-28T12:00:00Z"), "ends with the jump")
	whole, err := ParseWindow("00:00-24:00", berlin)
	require.NoError(t, err)
	require.True(t, whole.Always())
	weekend, err := ParseWindow("mon-thu 22:00-06:00, fri 22:00-24:00, sat,sun", berlin)
	require.NoError(t, err)
	require.Equal(t, 50*time.Hour, length(weekend, "2026-11-20T12:00:00Z"))
	for _, bad := range []string{"", "22-6", "22:00", "mon 22:00-06:00 5mbit", "night", "22:00-06:00,"} {
		_, err := ParseWindow(bad, time.UTC)
		require.Error(t, err, bad)
	}
}

// Change returns the first second at which the rate differs.
func TestChangeToTheSecond(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"}
	tables := []string{
		"mon-fri 08:00-18:00 50mbit, otherwise unlimited", "02:15-02:45 1mbit, 01:30-03:10 2mbit", "sun 00:00-24:00 5mbit", "sat-sun 23:59:59-00:30 3mbit, 4mbit",
	}
	rapid.Check(t, func(t *rapid.T) {
		loc := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		table, err := ParseTimetable(rapid.SampledFrom(tables).Draw(t, "table"), loc)
		require.NoError(t, err)
		at := time.Unix(rapid.Int64Range(1262304000, 1893456000).Draw(t, "start"), 0)
		if _, set := at.In(loc).ZoneBounds(); !set.IsZero() && rapid.Bool().Draw(t, "set") {
			at = set.Add(-time.Duration(rapid.IntRange(0, 4*3600).Draw(t, "before")) * time.Second)
		}
		change := table.Change(at)
		limit := at.Add(6 * time.Hour)
		for second := at.Add(time.Second); second.Before(limit); second = second.Add(time.Second) {
			if table.Rate(second) != table.Rate(at) {
				require.Equal(t, second.Unix(), change.Unix())
				return
			}
		}
		require.False(t, change.Before(limit), "%v", change)
	})
}
