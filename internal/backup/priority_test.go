package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// The end of a job's window is the deadline of a transfer. Its decisions go into the record, with
// those of the attempts before.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight of 2000-01-01
		for text, want := range map[string]time.Time{
			"": {},
			"  window: 22:00-06:00\n  priority: normal\n":  time.Date(2000, 1, 1, 6, 0, 0, 0, time.UTC),
			"  window: 10:00-11:00\n":                      {}, // a manual run outside of it
			"  window: 22:00-06:00\n  overrun: pause\n":    time.Date(2000, 1, 1, 6, 0, 0, 0, time.UTC),
			"  window: mon-sun 00:00-24:00\n":              {},
			"  window: 00:00-02:00, sat,sun 01:30-03:30\n": time.Date(2000, 1, 1, 3, 30, 0, 0, time.UTC),
		} {
			job := oneJob(t, "  sources: [/a]\n  retries: 1\n"+text)
			change := fxfer.PriorityChange{At: time.Now(), Priority: fxfer.PriorityNormal, Raised: true, Left: 1e9, Rate: 1e6, Deadline: time.Now().Add(time.Hour)}
			tries := 0
			r := &Runner{Store: testStore(t), Clock: hasty{}, Log: quiet(), Transferrer: transferFunc(func(_ context.Context, task *Task) (*fxfer.Report, error) {
				require.True(t, want.Equal(task.Deadline), "%s: %s", text, task.Deadline)
				require.Equal(t, job.Priority, task.Priority.Get())
				if want.IsZero() {
					require.Nil(t, task.Left, text)
				} else {
					require.Equal(t, int64(70), task.Left(fxfer.Progress{Bytes: 100, BytesDone: 30, Written: 30}))
				}
				report := &fxfer.Report{Changes: []fxfer.PriorityChange{change}, Sharing: fxfer.Sharing{Priority: fxfer.PriorityNormal}}
				if tries++; tries == 1 {
					return report, fmt.Errorf("lost")
				}
				return report, nil
			})}
			record, err := r.Run(t.Context(), job, time.Now(), true)
			require.NoError(t, err)
			require.Equal(t, []string{change.String(), change.String()}, record.Priorities)
			require.Equal(t, "normal", record.Priority)
		}
	})
}

// A new file of jobs changes the priority of a run under way.
func TestPriorityReload(t *testing.T) {
	store, file := testStore(t), filepath.Join(t.TempDir(), "backup.yaml")
	write := func(priority string) {
		text := fmt.Sprintf("jobs:\n- {name: a, schedule: 0 * * * *, time-zone: UTC, sources: [/a], destination: fxfer://h/s/a%s}\n", priority)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	synctest.Test(t, func(t *testing.T) {
		write(", priority: high")
		config, err := Load(file)
		require.NoError(t, err)
		var mu sync.Mutex
		var seen []fxfer.Priority
		slow := transferFunc(func(ctx context.Context, task *Task) (*fxfer.Report, error) {
			for range 6 {
				mu.Lock()
				seen = append(seen, task.Priority.Get())
				mu.Unlock()
				SystemClock{}.Sleep(ctx, 5*time.Minute)
			}
			return &fxfer.Report{}, ctx.Err()
		})
		reload := make(chan struct{})
		daemon := &Daemon{Runner: &Runner{Store: store, Transferrer: slow, Clock: SystemClock{}, Log: quiet()}, Config: config, Reload: reload}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { require.NoError(t, daemon.Run(ctx)) })
		time.Sleep(72 * time.Minute)
		write(", priority: low")
		reload <- struct{}{}
		time.Sleep(10 * time.Minute)
		write("")
		reload <- struct{}{}
		time.Sleep(10 * time.Minute)
		cancel()
		running.Wait()
		require.Equal(t, []fxfer.Priority{"high", "high", "high", "low", "low", ""}, seen)
	})
}

// A run whose priority is that of its profile keeps it when the jobs are read again, until its job has one.
func TestPriorityOfProfile(t *testing.T) {
	var p priorities
	job := &Job{Name: "a", Profile: "office"}
	live := p.begin(job)
	live.Set(fxfer.PriorityLow)
	p.follow([]*Job{job})
	require.Equal(t, fxfer.PriorityLow, live.Get())
	p.follow([]*Job{{Name: "a", Profile: "office", Priority: fxfer.PriorityHigh}})
	require.Equal(t, fxfer.PriorityHigh, live.Get())
}
