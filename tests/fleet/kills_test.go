//go:build linux

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/fleet"
)

// fault is something that goes wrong for a while.
type fault struct {
	name       string
	kill       bool // a process dies by SIGKILL
	longest    time.Duration
	begin, end func()
}

// killed is the fault that a process dies, and comes back.
func killed(name string, p *process, longest time.Duration) *fault {
	return &fault{name: "kill " + name, kill: true, longest: longest, end: p.start, begin: func() {
		require.True(p.t, p.alive(), "it has ended by itself: %s", p.output())
		p.kill()
	}}
}

// stalled is the fault that a process stands still.
func stalled(name string, p *process, longest time.Duration) *fault {
	signal := func(s syscall.Signal) func() {
		return func() { require.NoError(p.t, p.cmd.Process.Signal(s)) }
	}
	return &fault{name: "stall " + name, longest: longest, begin: signal(syscall.SIGSTOP), end: signal(syscall.SIGCONT)}
}

// faults are what may go wrong at a site that has a controller, a server and workers.
func (s *site) faults() (all []*fault) {
	all = append(all, killed("server", s.server, 2*time.Second), stalled("server", s.server, 6*time.Second),
		killed("controller", s.controller, 2*time.Second), stalled("controller", s.controller, 6*time.Second))
	for i, w := range s.workers { // these don't stall: their lease is short, and TestFrozen has one that stalls
		all = append(all, killed(fmt.Sprint("worker ", i), w, 2*time.Second))
	}
	for name, x := range s.lines {
		all = append(all,
			&fault{name: "cut " + name, longest: 3 * time.Second, begin: x.sever, end: x.heal},
			&fault{name: "hold " + name, longest: 3 * time.Second, begin: x.hold, end: x.heal})
	}
	if s.full != "" {
		all = append(all, s.fullDisk())
	}
	return all
}

// fullDisk is the fault that the disk of a worker's own folder is full.
func (s *site) fullDisk() *fault {
	return &fault{name: "full disk", longest: 5 * time.Second, begin: s.fill, end: func() { require.NoError(s.t, os.Remove(s.ballast())) }}
}

func (s *site) ballast() string { return filepath.Join(s.full, "ballast") }

// fill fills the small disk.
func (s *site) fill() {
	f, err := os.Create(s.ballast())
	require.NoError(s.t, err)
	_, err = io.Copy(f, zeros{})
	require.ErrorIs(s.t, err, syscall.ENOSPC)
	require.NoError(s.t, f.Close())
}

// smallDisk makes a folder for the next worker, on a disk of its own that can be filled.
func (s *site) smallDisk(size string) (home string) {
	require.Empty(s.t, s.full)
	s.full = filepath.Join(s.dir, "full")
	require.NoError(s.t, os.Mkdir(s.full, 0o700))
	require.NoError(s.t, syscall.Mount("tmpfs", s.full, "tmpfs", 0, "mode=700,size="+size))
	s.t.Cleanup(func() { require.NoError(s.t, syscall.Unmount(s.full, syscall.MNT_DETACH)) })
	out, err := exec.Command("cp", "-a", filepath.Join(s.dir, "member")+"/.", s.full).CombinedOutput() // others must not read the key
	require.NoError(s.t, err, "%s", out)
	return "full"
}

// trouble has faults begin and end.
type trouble struct {
	rng    *rand.Rand
	all    []*fault
	active map[*fault]time.Time // when it ends
	count  map[string]int
	kills  int
}

// step ends what is over. It begins another fault, unless that affects what another one has.
func (x *trouble) step(conflict func(a, b string) bool) {
	now := time.Now()
	for f, until := range x.active {
		if now.After(until) {
			f.end()
			delete(x.active, f)
		}
	}
	f := x.all[x.rng.IntN(len(x.all))]
	for a := range x.active {
		if conflict(a.name, f.name) {
			return
		}
	}
	f.begin()
	x.active[f] = now.Add(time.Duration(x.rng.Int64N(int64(f.longest))))
	x.count[f.name]++
	if f.kill {
		x.kills++
	}
}

// settle ends all faults.
func (x *trouble) settle() {
	for f := range x.active {
		f.end()
	}
	clear(x.active)
}

// sameThing reports whether two faults are about the same process or line: "kill server", "stall server".
func sameThing(a, b string) bool {
	_, of, _ := strings.Cut(a, " ")
	_, and, _ := strings.Cut(b, " ")
	return of == and
}

// TestKills kills workers, controller and server at random moments, cuts their lines, and fills the disk
// of a worker.
func TestKills(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	rng := random(t)
	s := newSite(t, 0, "", short)
	s.url = s.throughLine()
	for i := range 4 {
		queue := newLine(t, s.address)
		s.lines[fmt.Sprint("line to queue ", i)] = queue
		s.member[1] = queue.address()
		home := "member"
		if i == 0 {
			home = s.smallDisk("512k")
		}
		s.work(home, "20mbit")
	}
	s.endure(rng, s.faults(), *kills, func() {})
}

// TestClusterKills has the queue in three NATS servers, and kills these, too. Two of three may be dead at
// the same time.
func TestClusterKills(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	rng := random(t)
	s := newServer(t)
	c := newCluster(s)
	s.url = s.throughLine()
	s.control("fxfer: jobs in ", append([]string{"--lease", "10s"}, s.member...)...)
	s.work(s.smallDisk("512k"), "20mbit")
	for range 3 {
		s.work("member", "20mbit")
	}
	all := s.faults()
	for i, n := range c.nodes {
		all = append(all, killed(fmt.Sprint("NATS server ", i), n, 6*time.Second))
	}
	s.endure(rng, all, *kills/2, c.whole) // each takes some time to be well again
}

// throughLine returns the URL of the share through a line that can be cut.
func (s *site) throughLine() string {
	direct := strings.TrimSuffix(strings.TrimPrefix(s.url, "fxfer://"), "/files")
	x := newLine(s.t, direct)
	s.lines["line to server"] = x
	s.enroll(strings.Replace(s.token, direct, x.address(), 1))
	return "fxfer://" + x.address() + "/files"
}

// endure sends a changing tree by one job after the other while faults come and go, until there were
// enough kills. Each job ends, no task is given up, and the target is as one command would have left it.
// whole waits until the queue is well again.
func (s *site) endure(rng *rand.Rand, all []*fault, kills int, whole func()) {
	s.tree(rng, *files)
	out := filepath.Join(s.dir, "files", "out")
	require.NoError(s.t, os.MkdirAll(filepath.Join(out, "extra"), 0o755))
	require.NoError(s.t, os.WriteFile(filepath.Join(out, "extra", "goes"), nil, 0o600))
	slices.SortFunc(all, func(a, b *fault) int { return strings.Compare(a.name, b.name) }) // lines come from a map
	for _, w := range s.workers {
		w.says("msg=working ")
	}
	x := &trouble{rng: rng, all: all, active: make(map[*fault]time.Time), count: make(map[string]int)}
	defer x.settle()
	jobs, shards, most := 0, 0, uint64(0)
	for jobs < 2 || x.kills < kills {
		whole()
		began := time.Now()
		id := s.submit(s.source()+"/", "/out", fleet.Options{Delete: true, ShardFiles: 50, ShardBytes: 8 << 20})
		for x.kills < kills {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			if j, _ := s.look(id); j != nil && j.State.Ended() {
				break
			}
			tried := s.tried(id)
			most = max(most, tried)
			if tried >= enough {
				x.settle()
				continue
			}
			x.step(sameThing)
		}
		x.settle()
		j, dead := s.wait(id)
		require.Equal(s.t, fleet.Done, j.State, j.Reason)
		require.Empty(s.t, dead)
		require.Zero(s.t, j.Dead)
		require.Equal(s.t, j.Shards, j.Done)
		require.Greater(s.t, j.Shards, *files/60)
		agree(s.t, s.source(), out)
		jobs++
		shards += j.Shards
		s.t.Logf("job %d: %d shards in %s, %d kills so far", jobs, j.Shards, time.Since(began).Round(time.Second), x.kills)
		s.change(rng, jobs)
	}
	s.t.Logf("%d jobs, %d shards, no task tried more often than %d times, %d kills: %v", jobs, shards, most, x.kills, x.count)
	for _, w := range s.workers {
		require.Contains(s.t, w.output(), "msg=ended ", "it took no part")
	}
	s.empty()
}

// enough is how often a task is tried while there are faults: it has ten attempts, and on a busy machine each of them
// meets several.
const enough = 7

// tried returns how often the task of a job was tried that was tried most often of those that have not ended, as far
// as members can say now.
func (s *site) tried(id string) (most uint64) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	m, err := fleet.Connect(ctx, s.queue)
	if err != nil {
		return 0
	}
	defer m.Close()
	active, _ := m.Active(ctx, id)
	for _, r := range active {
		most = max(most, r.Attempt)
	}
	return most
}

// empty checks that nothing waits: the controller has removed all tasks, records and lists, and nothing is
// dead.
func (s *site) empty() {
	s.t.Helper()
	conn, err := fleet.Connect(s.t.Context(), s.queue)
	require.NoError(s.t, err)
	defer conn.Close()
	dead, err := conn.Dead(s.t.Context(), "")
	require.NoError(s.t, err)
	require.Empty(s.t, dead)
	js := s.js()
	require.Eventually(s.t, func() bool { // the last job has ended, and is cleared soon
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		defer cancel()
		left := 0
		for _, name := range []string{"fxfer-v1-tasks", "KV_fxfer-v1-records"} {
			stream, err := js.Stream(ctx, name)
			require.NoError(s.t, err)
			left += int(stream.CachedInfo().State.Msgs)
		}
		lists, err := js.ObjectStore(ctx, "fxfer-v1-lists")
		require.NoError(s.t, err)
		names, err := lists.List(ctx)
		if !errors.Is(err, jetstream.ErrNoObjectsFound) {
			require.NoError(s.t, err)
		}
		return left+len(names) == 0
	}, longest, 100*time.Millisecond)
}
