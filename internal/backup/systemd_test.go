package backup

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestOnCalendar(t *testing.T) {
	analyze, _ := exec.LookPath("systemd-analyze")
	for line, want := range map[string][]string{
		"30 2 * * *":        {"*-*-* 02:30:00 Europe/Berlin"},
		"*/15 8-10 * * 1-5": {"Mon,Tue,Wed,Thu,Fri *-*-* 08,09,10:00,15,30,45:00 Europe/Berlin"},
		"0 4 1 */6 *":       {"*-01,07-01 04:00:00 Europe/Berlin"},
		"0 4 1 * sun":       {"*-*-01 04:00:00 Europe/Berlin", "Sun *-*-* 04:00:00 Europe/Berlin"},
		"*/20 * * * * *":    {"*-*-* *:*:00,20,40 Europe/Berlin"},
	} {
		s, err := ParseSchedule(line, zone(t, "Europe/Berlin"))
		require.NoError(t, err)
		require.Equal(t, want, s.onCalendar(), line)
		for _, text := range want {
			if analyze != "" {
				out, err := exec.Command(analyze, "calendar", text).CombinedOutput()
				require.NoError(t, err, string(out))
			}
		}
	}
}

func TestUnits(t *testing.T) {
	c, err := parseConfig("jobs", []byte("time-zone: UTC\njobs:\n- {name: a, schedule: 0 2 * * *, jitter: 10m, window: 22:00-06:00, overrun: pause, sources: [/a], destination: fxfer://h/s/a}\n- {name: b, sources: [/a], destination: fxfer://h/s/b}"))
	require.NoError(t, err)
	o := UnitOptions{Program: "/usr/bin/fxfer", File: "/etc/my jobs%.yaml", Home: "/var/lib/fxfer", User: "backup"}
	one := Units(c, o)
	require.Len(t, one, 1)
	require.Contains(t, one[0].Text, "\nUser=backup\n")
	require.Contains(t, one[0].Text, "\nExecStart=/usr/bin/fxfer backup daemon --file \"/etc/my jobs%%.yaml\"\n")
	require.Contains(t, one[0].Text, "\nExecReload=/usr/bin/fxfer backup check --file \"/etc/my jobs%%.yaml\"\nExecReload=/bin/kill -HUP $MAINPID\n")
	o.Timers = true
	units := Units(c, o)
	require.Len(t, units, 2, "b is run by hand")
	require.Equal(t, []string{"fxfer-backup@.service", "fxfer-backup-a.timer"}, []string{units[0].Name, units[1].Name})
	for _, line := range []string{"OnCalendar=*-*-* 02:00:00 UTC", "22:00:00 UTC", "RandomizedDelaySec=600", "Persistent=yes", "Unit=fxfer-backup@a.service"} {
		require.Contains(t, strings.Split(units[1].Text, "[Install]")[0], line)
	}
}

// A timer runs what is due, what was missed and what was interrupted, each once.
func TestRunDue(t *testing.T) {
	clock := &leapingClock{now: moment(t, "2026-11-20T02:00:07Z")}
	var fail error
	runs := 0
	r := &Runner{Store: testStore(t), Clock: clock, Log: quiet(), Transferrer: transferFunc(func(context.Context, *Task) (*fxfer.Report, error) {
		runs++
		return &fxfer.Report{}, fail
	})}
	job := oneJob(t, "  sources: [/a]\n  schedule: 0 2 * * *\n  window: 01:00-05:00\n  retries: 0\n")
	due := func(at string) *Record {
		clock.now = moment(t, at)
		record, err := r.RunDue(t.Context(), job)
		require.NoError(t, err)
		return record
	}
	require.Equal(t, "2026-11-20T02:00:00Z", due("2026-11-20T02:00:07Z").Due.UTC().Format(time.RFC3339), "also at the first look")
	require.Nil(t, due("2026-11-20T03:00:00Z"))
	require.Nil(t, due("2026-11-25T06:00:00Z"), "missed, but the window is closed")
	require.Equal(t, "2026-11-25T02:00:00Z", due("2026-11-26T01:00:00Z").Due.UTC().Format(time.RFC3339))
	fail = errors.New("no")
	require.Equal(t, Failed, due("2026-11-26T02:00:00Z").Outcome)
	require.Nil(t, due("2026-11-26T02:01:00Z"))
	require.Equal(t, 3, runs)
}
