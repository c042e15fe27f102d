package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzConfig: whatever a file holds, it is read or its faults have a line in it; what is read can be asked when.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(fullConfig))
	for _, s := range []string{
		"jobs: [{name: a, schedule: '*/7 1-5 31 feb,mar fri-mon', sources: /a, destination: fxfer://h/s/a}]", "jobs: &x [*x]", "? [a]\n: b", "jobs:\n- <<: {name: a}", "{", "jobs: !!binary x",
		"jobs: [{name: a, window: 'sat 23:59:59-24:00, 00:00-00:01', rate: 'sun 1bit, otherwise 1gbit', sources: /a, destination: fxfer://h/s/a}]", "null: null", "jobs: |\n x", "---\n---\na",
	} {
		f.Add([]byte(s))
	}
	start := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig("jobs", text)
		if err != nil {
			var problems Problems
			require.ErrorAs(t, err, &problems)
			for _, p := range problems {
				require.Positive(t, p.Line)
				require.NotEmpty(t, p.Text)
			}
			return
		}
		require.NotEmpty(t, c.Jobs)
		for _, j := range c.Jobs {
			at := start
			if j.Schedule != nil {
				for range 3 {
					next := j.Schedule.Next(at)
					require.True(t, next.After(at), "%v after %v", next, at)
					require.Equal(t, next, j.Schedule.Last(at, next))
					at = next
				}
			}
			if change := j.Window.Change(start); !change.IsZero() {
				require.NotEqual(t, j.Window.Open(start), j.Window.Open(change))
			}
			if change := j.Rate.Change(start); !change.IsZero() {
				require.NotEqual(t, j.Rate.Rate(start), j.Rate.Rate(change))
			}
			s := j.next(&State{Handled: start}, start, start)
			require.False(t, !s.at.IsZero() && s.at.Before(start))
			forecast(j, start, 1e12, 1e6, time.Hour)
		}
	})
}
