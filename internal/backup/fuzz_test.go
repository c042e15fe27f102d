package backup

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/config"
)

// FuzzJobs: a file of jobs is either rejected with its faults, or its jobs have everything they
// need.
func FuzzJobs(f *testing.F) {
	for _, text := range []string{
		"", "jobs:\n  - name: a\n    sources: [/srv/a]\n    destination: fxfer://host/share\n    schedule: '30 2 * * *'\n", "jobs: []\n", "jobs:\n  - &x {name: a}\n  - *x\n",
		"timezone: Europe/Berlin\njobs:\n  - {name: a, sources: [/a], to: fxfer://h/s, rate-limit: 20mbit}\n", "jobs:\n- ? [a]\n  : b\n", "{a: {b: [c, {d: e}]}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		c, err := parseConfig("jobs.yaml", text)
		var faults config.Faults
		if err != nil {
			require.True(t, errors.As(err, &faults) && len(faults) > 0, "%v", err)
			require.NotEmpty(t, err.Error())
			return
		}
		for i := range c.Jobs {
			require.NotEmpty(t, c.Jobs[i].Name)
		}
	})
}

// FuzzSchedule: every accepted schedule is due after any time, and parses again from its text.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"30 2 * * mon-fri", "@daily", "*/15 8-18/2 1,15 jan-jun 0-7", "0 0 0 29 2 *", "0 0 31 2 *", "5-1 * * * *", "* * * * * *"} {
		f.Add(s, int64(1_795_000_000))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, at int64) {
		s, err := ParseSchedule(text, berlin)
		if err != nil || at < 0 || at > 4e9 { // until 2096
			return
		}
		from := time.Unix(at, 0)
		next := s.Next(from)
		require.True(t, next.After(from), "%q after %v: %v", text, from, next)
		again, err := ParseSchedule(text, berlin)
		require.NoError(t, err)
		require.Equal(t, next, again.Next(from))
	})
}

// FuzzWindow: the state of every accepted window lasts until its next change, and every timetable
// has a rate at any time.
func FuzzWindow(f *testing.F) {
	for _, s := range []string{"22:00-06:00", "mon-fri 22:00-06:00, sat 00:00-24:00", "08:00-08:00", "mon-fri 08:00-18:00 20mbit; 100mbit", "", ","} {
		f.Add(s, int64(1_795_000_000))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, at int64) {
		if at < 0 || at > 4e9 {
			return
		}
		from := time.Unix(at, 0)
		if w, err := ParseWindow(text, berlin); err == nil {
			if change := w.Change(from); !change.IsZero() {
				require.True(t, change.After(from), "%q after %v: %v", text, from, change)
				require.NotEqual(t, w.Open(from), w.Open(change), "%q at %v and %v", text, from, change)
			}
		}
		if table, err := ParseTimetable(text, berlin); err == nil {
			require.GreaterOrEqual(t, table.Rate(from), int64(0))
		}
	})
}
