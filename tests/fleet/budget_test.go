//go:build linux

package fleet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
)

// given returns what the controller has given out of the line, by worker, or nil while it is away.
func (s *site) given() map[string]int64 {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	m, err := fleet.Connect(ctx, s.queue)
	if err != nil {
		return nil
	}
	defer m.Close()
	lines, err := m.Lines(ctx)
	if err != nil {
		return nil
	}
	require.Len(s.t, lines, 1)
	sum := int64(0)
	for _, rate := range lines[0].Given {
		sum += rate
	}
	require.LessOrEqual(s.t, sum, lines[0].Rate)
	return lines[0].Given
}

// TestBudget has three workers behind one line. They all get a part of its rate, also after the controller
// has died. What a worker had that dies is given to the others. Together these are not faster than the
// line with another job, and at the end nobody has any of it.
func TestBudget(t *testing.T) {
	t.Parallel()
	const rate = 8_000_000
	s := newSite(t, 0, "none", short, "--line", fmt.Sprintf("wan=%dbit,low", rate))
	rng := random(t)
	s.large(rng)
	small := filepath.Join(s.dir, "source", "small")
	require.NoError(t, os.Mkdir(small, 0o700))
	content, total := make([]byte, 1_000_000), 0
	for i := range 10 {
		for j := range content {
			content[j] = byte(rng.Uint32())
		}
		require.NoError(t, os.WriteFile(filepath.Join(small, fmt.Sprint(i)), content, 0o600))
		total += len(content)
	}
	for range 3 {
		s.workers = append(s.workers, s.run(program, "member", append([]string{"fleet", "worker",
			"--read", s.source(), "--name", fmt.Sprint("w", len(s.workers)), "--line", "wan"}, s.member...)...))
	}
	large := filepath.Join(s.source(), "folder") // a source that is a file is no shard
	require.NoError(t, os.Mkdir(large, 0o700))
	require.NoError(t, os.Rename(filepath.Join(s.source(), "large"), filepath.Join(large, "large")))
	id := s.submit(large+"/", "/large", fleet.Options{ShardBytes: 4 << 20}) // for 100 s
	have := func(workers ...string) func() bool {
		return func() bool {
			given, sum := s.given(), int64(0)
			for worker, share := range given {
				if share > 0 {
					sum += share
				}
				ours := false
				for _, w := range workers {
					ours = ours || strings.HasPrefix(worker, w+"-") && share > rate/10
				}
				if !ours {
					return false
				}
			}
			return len(given) == len(workers) && sum > rate*9/10
		}
	}
	within := func(what string, workers ...string) {
		from := time.Now()
		require.Eventually(t, have(workers...), longest, 50*time.Millisecond)
		t.Logf("%s: all have their shares after %v", what, time.Since(from))
	}
	within("the job is new", "w0", "w1", "w2")
	s.controller.kill()
	s.controller.start()
	within("the controller died", "w0", "w1", "w2")
	// What a worker had is given to nobody else until its lease ends. So if the controller still has its share after it
	// died, the others have theirs only because they got that. It may just have left its share, having no task.
	for {
		s.workers[0].kill()
		if have("w0", "w1", "w2")() {
			break
		}
		s.workers[0].start()
		within("a worker that had no task is back", "w0", "w1", "w2")
	}
	within("a worker died", "w1", "w2")
	require.Empty(t, s.ask("cancel", id))

	began := time.Now()
	j, dead := s.wait(s.submit(small+"/", "/out", fleet.Options{ShardFiles: 1}))
	took := time.Since(began)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	agree(t, small, filepath.Join(s.dir, "files", "out"))
	require.Eventually(t, func() bool { given := s.given(); return given != nil && len(given) == 0 }, longest, 50*time.Millisecond)
	fastest := time.Duration(float64(total) * 8 / rate * float64(time.Second))
	t.Logf("%v, and the line could do it in %v", took, fastest)
	require.Greater(t, took, fastest*9/10)
}

// TestUnknownLine has a worker behind a line that the controller does not know. The worker says so.
func TestUnknownLine(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0, "none", short)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "file"), make([]byte, 1<<20), 0o600))
	w := s.run(program, "member", append([]string{"fleet", "worker", "--read", s.source(), "--line", "wan"}, s.member...)...)
	require.Contains(t, w.says("no share of the line"), "the controller knows no line of this name")
}

// TestLineOfTwoControllers has two controllers of one queue in a NATS server. If the one dies that gives out shares
// of the line, the other one does.
func TestLineOfTwoControllers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	address := free(t)
	config := filepath.Join(s.dir, "nats.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "listen: %q\njetstream { store_dir: %q }\n", address, filepath.Join(s.dir, "nats")), 0o600))
	s.queue = &fleet.NATS{URLs: []string{"nats://" + address}}
	s.member = []string{"--nats", "nats://" + address}
	s.run(natsServer(t), "nats", "-c", config)
	var controllers []*process
	for range 2 {
		s.control("fxfer: jobs in ", append([]string{"--line", "wan=2mbit"}, s.member...)...)
		controllers = append(controllers, s.controller)
	}
	s.large(random(t))
	w := s.run(program, "member", append([]string{"fleet", "worker", "--read", s.source(), "--line", "wan"}, s.member...)...)
	s.submit(s.source()+"/", "/out", fleet.Options{})
	w.says("msg=task")
	given := func() bool { return len(s.given()) == 1 }
	require.Eventually(t, given, longest, 100*time.Millisecond)
	for _, c := range controllers { // the one that does is one of these
		c.kill()
		require.Eventually(t, given, longest, 100*time.Millisecond)
		c.start()
	}
}
