package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestChangeOf(t *testing.T) {
	const (
		a      = "- {name: a, schedule: 0 2 * * *, sources: [/a], destination: fxfer://h/s/a}\n"
		b      = "- name: b\n  sources: [/b]\n  destination: fxfer://h/s/b\n"
		later  = "- {name: a, schedule: 0 3 * * *, sources: [/a], destination: fxfer://h/s/a}\n"
		spaced = "\n# by night\n- {name: a, schedule: 0 2 * * *, sources: [/a], destination: fxfer://h/s/a} # so\n"
		top    = "time-zone: UTC\n"
		notify = "notify: {command: x}\n"
	)
	for _, test := range []struct{ before, after, end, begin string }{
		{top + "jobs:\n" + a + b, top + "jobs:\n" + a + b, "", ""},
		{top + "jobs:\n" + a + b, top + "jobs:\n" + b + spaced, "", ""},
		{top + "jobs:\n" + a, top + "jobs:\n" + a + b, "", "b"},
		{top + "jobs:\n" + a + b, top + "jobs:\n" + b, "a", ""},
		{top + "jobs:\n" + a + b, top + "jobs:\n" + later + b, "a", "a"},
		{top + "jobs:\n" + a + b, "time-zone: Europe/Berlin\njobs:\n" + a + b, "a b", "a b"},
		{top + "jobs:\n" + a, top + notify + "jobs:\n" + a, "a", "a"},
		{top + notify + "jobs:\n" + a, top + notify + "jobs:\n" + a, "", ""},
	} {
		jobs := func(text string) []*Job {
			c, err := parseConfig("jobs", []byte(text))
			require.NoError(t, err)
			return c.Jobs
		}
		c := changeOf(jobs(test.before), jobs(test.after))
		require.Equal(t, test.end, strings.Join(names(c.end), " "), "%+v", test)
		require.Equal(t, test.begin, strings.Join(names(c.begin), " "), "%+v", test)
	}
}

// While runs are under way, the file of jobs changes, is faulty for a while, and loses jobs. Runs
// under way end as they began, and no run is made twice. The new file counts from the second look
// on, or at once if asked.
func TestReload(t *testing.T) {
	store := testStore(t)
	file := filepath.Join(t.TempDir(), "backup.yaml")
	written := 0
	write := func(text string, jobs ...string) {
		for _, j := range jobs {
			name, rest, _ := strings.Cut(j, " ")
			text += fmt.Sprintf("- {name: %s, time-zone: UTC, sources: [/a], destination: fxfer://h/s/%s, %s}\n", name, name, rest)
		}
		require.NoError(t, os.WriteFile(file, []byte("jobs:\n"+text), 0o600))
		written++
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(int64(written), 0)))
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var done []string
		transferrer := transferFunc(func(ctx context.Context, task *Task) (*fxfer.Report, error) {
			SystemClock{}.Sleep(ctx, 30*time.Minute)
			mu.Lock()
			defer mu.Unlock()
			end := "cut"
			if ctx.Err() == nil {
				end = time.Now().UTC().Format("15:04")
			}
			done = append(done, fmt.Sprintf("%s %s %s", task.Job.Name, task.Job.Delta, end))
			return &fxfer.Report{}, ctx.Err()
		})
		runs := func() []string {
			mu.Lock()
			defer mu.Unlock()
			was := done
			done = nil
			return was
		}
		write("", "same schedule: 0 * * * *", "changed schedule: 0 * * * *", "gone schedule: 0 * * * *")
		config, err := Load(file)
		require.NoError(t, err)
		reload := make(chan struct{})
		daemon := &Daemon{Runner: &Runner{Store: store, Transferrer: transferrer, Clock: SystemClock{}, Log: quiet()}, Config: config, Reload: reload}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { require.NoError(t, daemon.Run(ctx)) })

		time.Sleep(65 * time.Minute) // it is 01:05
		require.Empty(t, runs())
		write("", "same schedule: 0 * * * *", "changed {schedule: 20 * * * *, delta: none", "new schedule: 40 * * * *") // invalid YAML
		time.Sleep(2 * time.Minute)
		write("", "same schedule: 0 * * * *", "changed schedule: 20 * * * *, delta: none", "new schedule: 40 * * * *")
		time.Sleep(13 * time.Minute) // 01:20
		require.Empty(t, runs(), "all are under way")
		time.Sleep(15 * time.Minute) // 01:35
		require.ElementsMatch(t, []string{"same auto 01:30", "changed auto 01:30", "gone auto 01:30"}, runs())
		time.Sleep(time.Hour) // 02:35: the run that was due at 01:20 was made up for
		require.ElementsMatch(t, []string{"changed none 02:00", "new auto 02:10", "same auto 02:30"}, runs())

		write("", "new schedule: 40 * * * *, delta: fixed")
		reload <- struct{}{}
		time.Sleep(time.Hour) // 03:35
		require.ElementsMatch(t, []string{"changed none 02:50", "new fixed 03:10"}, runs())
		require.NoError(t, os.Remove(file))
		time.Sleep(time.Hour) // 04:35
		require.ElementsMatch(t, []string{"new fixed 04:10"}, runs())
		time.Sleep(10 * time.Minute)
		cancel()
		running.Wait()
		require.Equal(t, []string{"new fixed cut"}, runs())
	})
}
