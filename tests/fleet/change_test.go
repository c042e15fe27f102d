//go:build linux

package fleet_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
)

// ask runs a command about the fleet, which prints nothing unless it fails.
func (s *site) ask(args ...string) (refusal string) {
	s.t.Helper()
	c := exec.Command(program, slices.Concat([]string{"fleet"}, args, s.member)...)
	out, err := c.CombinedOutput()
	require.Equal(s.t, err == nil, len(out) == 0, "%s", out)
	return string(out)
}

// until waits until a job is in such a state.
func (s *site) until(id string, what func(*fleet.Job) bool) *fleet.Job {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < longest; time.Sleep(100 * time.Millisecond) {
		if j, _ := s.look(id); j != nil && what(j) {
			return j
		}
	}
	require.Fail(s.t, "the job does not get there")
	return nil
}

// large makes a file that takes a slow worker minutes.
func (s *site) large(rng *rand.Rand) {
	content := make([]byte, 100<<20)
	for i := 0; i < len(content); i += 8 {
		binary.LittleEndian.PutUint64(content[i:], rng.Uint64())
	}
	require.NoError(s.t, os.WriteFile(filepath.Join(s.source(), "large"), content, 0o600))
}

// hurry starts a worker again, without a limit of its rate.
func (p *process) hurry() {
	p.kill()
	p.args[slices.Index(p.args, "--rate-limit")+1] = "none"
	p.start()
}

// TestPause pauses a job again and again while it sends a file, more often than a task may be tried. Each
// time the worker gives the task back, and takes it again when the job is resumed. While the job is
// paused, the worker does another one, and the controller dies.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "2mbit", short)
	s.large(random(t))
	id := s.submit(s.source()+"/", "/out", fleet.Options{})
	w := s.workers[0]
	for round := range 12 {
		w.says("msg=task key=" + id + ".1-1.0")
		require.Empty(t, s.ask("pause", id))
		w.says(`msg="given back" key=` + id)
		w.forget()
		if round == 5 {
			s.controller.kill()
			s.controller.start()
			small := filepath.Join(s.source(), "small")
			require.NoError(t, os.WriteFile(small, nil, 0o600))
			require.Eventually(t, func() bool { j, _ := s.look(id); return j != nil }, longest, 100*time.Millisecond)
			j, _ := s.wait(s.submit(small, "/other", fleet.Options{}))
			require.Equal(t, fleet.Done, j.State, j.Reason)
			j, _ = s.look(id)
			require.True(t, j.Paused)
			require.NotContains(t, w.output(), "msg=task key="+id)
		}
		require.Empty(t, s.ask("resume", id))
	}
	w.hurry()
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
	require.Contains(t, s.ask("pause", id), "fxfer: error: job "+id+" has ended: it is done")
	require.Contains(t, s.ask("pause", "other"), "there is no job other")
}

// TestCancel cancels a job while a worker sends. It stops, and nothing of the job is left in the
// controller's store but its record. The next job completes the file.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "2mbit", short)
	s.large(random(t))
	id := s.submit(s.source()+"/", "/out", fleet.Options{})
	w := s.workers[0]
	w.says("msg=task key=" + id + ".1-1")
	require.Empty(t, s.ask("cancel", id))
	j, _ := s.wait(id)
	require.Equal(t, fleet.Cancelled, j.State)
	js := s.js()
	tasks, err := js.Stream(t.Context(), "fxfer-v1-tasks")
	require.NoError(t, err)
	lists, err := js.ObjectStore(t.Context(), "fxfer-v1-lists")
	require.NoError(t, err)
	gone := func() bool {
		info, err := tasks.Info(t.Context())
		_, none := lists.List(t.Context())
		return err == nil && info.State.Msgs == 0 && info.State.Consumers == 0 && errors.Is(none, jetstream.ErrNoObjectsFound)
	}
	require.Eventually(t, gone, longest, 100*time.Millisecond)
	_, err = lists.PutString(t.Context(), id+".1-1.9", "large\x00") // a worker lists it still
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "fxfer.v1.task."+id+".1-1.9", []byte("{}"))
	require.NoError(t, err)
	require.Eventually(t, gone, longest, 100*time.Millisecond)
	require.Contains(t, s.ask("resume", id), "it is cancelled")
	require.Contains(t, s.ask("retry", id), "it is cancelled")

	next := s.submit(s.source()+"/", "/out", fleet.Options{})
	w.says("msg=task key=" + next) // it has stopped
	w.hurry()
	j, _ = s.wait(next)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
}

// TestRetry has shards that are dead until what is in their way is gone. They are retried while other
// shards wait, and once more when the job has failed. What was sent is not sent again.
func TestRetry(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	out := filepath.Join(s.dir, "files", "out")
	for i := range 5 {
		require.NoError(t, os.WriteFile(filepath.Join(s.source(), fmt.Sprint(i)), []byte("mine"), 0o600))
	}
	way := func(i int) string { return filepath.Join(out, fmt.Sprint(i), "folder") }
	for _, i := range []int{1, 2} {
		require.NoError(t, os.MkdirAll(way(i), 0o755))
	}
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardFiles: 1})
	j, dead := s.wait(id)
	require.Equal(t, fleet.Failed, j.State)
	require.Equal(t, []int{5, 3, 2}, []int{j.Shards, j.Done, j.Dead})
	require.Len(t, dead, 3)

	require.NoError(t, os.RemoveAll(filepath.Join(out, "1")))
	require.Empty(t, s.ask("retry", id))
	j = s.until(id, func(j *fleet.Job) bool { return j.Retried == 1 && j.State.Ended() })
	require.Equal(t, fleet.Failed, j.State)
	require.Equal(t, []int{5, 4, 1}, []int{j.Shards, j.Done, j.Dead})

	s.controller.kill() // what the job needs to go on is in the store
	s.controller.start()
	require.NoError(t, os.RemoveAll(filepath.Join(out, "2")))
	require.Eventually(t, func() bool { j, _ := s.look(id); return j != nil }, longest, 100*time.Millisecond)
	s.workers[0].forget()
	require.Empty(t, s.ask("retry", id))
	j = s.until(id, func(j *fleet.Job) bool { return j.State == fleet.Done })
	require.Equal(t, []int{5, 5, 0}, []int{j.Shards, j.Done, j.Dead})
	require.Equal(t, 2, strings.Count(s.workers[0].output(), "msg=task key="+id), "a shard and the last task")
	_, dead = s.look(id)
	require.Empty(t, dead)
	agree(t, s.source(), out)
}

// TestRetryList retries a job whose source was not there.
func TestRetryList(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	id := s.submit(s.dir, "/out", fleet.Options{}) // which the worker may not read
	j, dead := s.wait(id)
	require.Equal(t, fleet.Failed, j.State)
	require.Len(t, dead, 1)
	s.workers[0].kill()
	s.workers[0].args = append(s.workers[0].args, "--read", s.dir)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "files", "there"), nil, 0o600))
	s.workers[0].start()
	require.Empty(t, s.ask("retry", id))
	s.until(id, func(j *fleet.Job) bool {
		return j.Retried == 1 && j.State == fleet.Sending || j.State == fleet.Finishing || j.State == fleet.Done
	})
	if said := s.ask("cancel", id); said != "" { // the source has the queue's files, which grow
		require.Contains(t, said, "it is done")
	}
}
