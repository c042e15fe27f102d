package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// queueOf starts a queue with all that a fleet needs, but no controller that follows it.
func queueOf(t *testing.T) (*Controller, Queue) {
	c := &Controller{Dir: t.TempDir(), Listen: "127.0.0.1:0", Lease: DefaultLease, Log: slog.New(slog.DiscardHandler)}
	keys, cert, err := controllerKeys(c.Dir)
	require.NoError(t, err)
	s, err := c.serve(keys, cert)
	require.NoError(t, err)
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	q := &inProcess{s, keys}
	conn, err := connect(t.Context(), q, "test")
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c.js, err = jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, c.prepare(t.Context()))
	return c, q
}

// TestListsAreComplete: each job is in each list once, also one that changes meanwhile.
func TestListsAreComplete(t *testing.T) {
	t.Parallel()
	c, q := queueOf(t)
	m, err := Connect(t.Context(), q)
	require.NoError(t, err)
	defer m.Close()
	const jobs = 10
	put := func(n, files int) error {
		id := fmt.Sprint("job-", n)
		text, err := json.Marshal(&Job{Version: Version, ID: id, Files: int64(files)})
		if err == nil {
			_, err = c.jobs.Put(context.Background(), id, text)
		}
		return err
	}
	for n := range jobs {
		require.NoError(t, put(n, 0))
	}
	over, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			select {
			case <-over:
				done <- nil
				return
			default:
				err = put(n%jobs, n)
			}
		}
		done <- err
	}()
	for range 100 {
		all, err := m.Jobs(t.Context())
		require.NoError(t, err)
		found := make(map[string]bool)
		for _, j := range all {
			found[j.ID] = true
		}
		require.Len(t, all, jobs)
		require.Len(t, found, jobs)
	}
	close(over)
	require.NoError(t, <-done)
}

// TestOpened: a free worker hears that a paused job goes on, also if it has met the pause itself.
func TestOpened(t *testing.T) {
	t.Parallel()
	c, q := queueOf(t)
	conn, err := connect(t.Context(), q, "worker")
	require.NoError(t, err)
	defer conn.Close()
	tasks, err := newChooser(conn, c.tasks)
	require.NoError(t, err)
	defer tasks.close()
	job, task := &Job{ID: "j", Paused: true}, &Task{Version: Version, Job: "j", Kind: List}
	require.NoError(t, c.queue(t.Context(), job))
	require.NoError(t, publish(t.Context(), c.js, task, 0))
	tasks.avoid(task.subject(), time.Now().Add(time.Hour))
	m, err := tasks.next(t.Context()) // it begins to listen
	require.NoError(t, err)
	require.Nil(t, m)
	require.NoError(t, conn.Flush())
	job.Paused = false
	require.NoError(t, c.queue(t.Context(), job))
	m, err = tasks.next(t.Context())
	require.NoError(t, err)
	require.Nil(t, m)
	m, err = tasks.next(t.Context())
	require.NoError(t, err)
	require.NotNil(t, m, "it avoids the job no more")
}
