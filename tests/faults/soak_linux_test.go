package faults

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs, 0 to skip it")

// TestSoak has clients of one server send, get and verify files, folders and streams, while they are killed and their connections are
// reset. In the end every transfer that was not disturbed was exact, and the server has no more threads, descriptors, memory or partial
// files than after a short while.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("make soak")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	base, left, right := t.TempDir(), host{t.TempDir()}, host{t.TempDir()}
	share := filepath.Join(base, "share")
	source := map[string][]byte{}
	rng := rand.New(rand.NewPCG(*seed, 0))
	for i := range 300 {
		b := make([]byte, rng.IntN(20_000))
		if i%100 == 0 {
			b = make([]byte, 6<<20+rng.IntN(4<<20))
		}
		_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), 3}).Read(b)
		source[fmt.Sprintf("%d/%d", i%7, i)] = b
	}
	sourceDir := filepath.Join(base, "source")
	for _, dir := range []string{sourceDir, filepath.Join(share, "source")} {
		require.NoError(t, (&medium{files: source, folders: foldersOf(source)}).restore(dir))
	}
	srv := right.serve(t, share, "127.0.0.1:0")
	defer func() { srv.kill() }()
	require.NoError(t, left.command("ls", srv.url).Run())
	via := relay(t, srv.address())
	known, err := os.ReadFile(filepath.Join(left.home, "known_servers"))
	require.NoError(t, err)
	words := strings.Fields(string(known))
	pin := words[len(words)-1]

	var undisturbed, resumed, killed, gaveUp atomic.Int64
	work := func(worker int, until time.Time) {
		rng := rand.New(rand.NewPCG(*seed, uint64(worker)))
		for n := 0; time.Now().Before(until); n++ {
			dir := filepath.Join(base, fmt.Sprintf("to%d", worker))
			in := fmt.Sprintf("in%d", worker)
			fault := rng.IntN(4) // 0: killed, 1: reset, else none
			address := srv.address()
			if fault == 1 {
				address = via.address()
			}
			url := "fxfer://" + address + "/data/"
			flags := []string{"--quiet", "--retry-for", "20s", "--pin", pin}
			var args []string
			var stdin io.Reader
			check := func() {}
			switch kind := rng.IntN(5); kind {
			case 0, 1:
				args = append([]string{"send", sourceDir + "/", url + in + "/"}, flags...)
				dir := filepath.Join(share, in)
				check = func() { assert.True(t, maps.EqualFunc(source, contentBelow(t, dir), bytes.Equal), dir) }
			case 2:
				args = append([]string{"get", url + "source/", dir}, flags...)
				check = func() { assert.True(t, maps.EqualFunc(source, contentBelow(t, dir), bytes.Equal), dir) }
			case 3:
				b := source["0/0"]
				name := filepath.Join(share, fmt.Sprintf("stream%d", worker))
				stdin = bytes.NewReader(b)
				args = append([]string{"send", "-", url + filepath.Base(name)}, "--quiet", "--pin", pin)
				check = func() {
					got, err := os.ReadFile(name)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(b, got))
				}
			case 4:
				args = []string{"verify", url + "source", "--against", sourceDir, "--pin", pin}
			}
			c := left.command(args...)
			c.Stdin = stdin
			var disturb []func()
			switch fault {
			case 0:
				disturb = append(disturb, func() { _ = c.Process.Kill() })
			case 1:
				disturb = append(disturb, via.reset)
			}
			out, err := within(2*time.Minute, c, time.Duration(rng.IntN(400))*time.Millisecond, disturb...)
			switch {
			case err == nil:
				check()
				if fault == 1 {
					resumed.Add(1)
				} else {
					undisturbed.Add(1)
				}
			case fault == 0:
				killed.Add(1)
			case fault == 1:
				gaveUp.Add(1)
			default:
				assert.NoError(t, err, "%v\n%s", args, out)
			}
			if rng.IntN(3) == 0 {
				_ = os.RemoveAll(dir)
				_ = os.RemoveAll(filepath.Join(share, in))
			}
		}
	}
	run := func(d time.Duration) {
		var workers sync.WaitGroup
		for worker := range 3 {
			workers.Go(func() { work(worker+1, time.Now().Add(d)) })
		}
		workers.Wait()
	}
	idle := srv.level(t, 40)
	run(*soak / 6) // pools and caches fill
	before := srv.level(t, idle.files+5)
	t.Logf("fresh: %v", idle)
	t.Logf("start: %v", before)
	run(*soak - *soak/6)
	after := srv.level(t, idle.files+5)
	t.Logf("end:   %v", after)
	t.Logf("%d exact, %d exact though connections were reset, %d killed, %d gave up after a reset", undisturbed.Load(), resumed.Load(), killed.Load(), gaveUp.Load())
	require.LessOrEqual(t, after.threads, before.threads+8)
	require.LessOrEqual(t, after.rss, before.rss*3/2+32<<20)
	out, err := right.command("partial", "rm", "--older-than", "0s", share).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	for name := range contentBelow(t, share) {
		require.NotContains(t, name, ".fxfer-", "held by nobody")
	}
}

// level is what a process holds.
type level struct {
	threads, files int
	rss            int64
	open           []string // what the descriptors are
}

func (l level) String() string {
	return fmt.Sprintf("%d threads, %d descriptors, %.1f MiB resident", l.threads, l.files, float64(l.rss)/(1<<20))
}

// level waits until the server has let go of connections and folders, so that so many descriptors at most are left, and tells what it
// holds.
func (s *server) level(t *testing.T, files int) (l level) {
	proc := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	read := func() level {
		var l level
		for _, fd := range names(t, proc+"fd") {
			if to, err := os.Readlink(proc + "fd/" + fd); err == nil {
				l.open = append(l.open, to)
			}
		}
		l.files = len(l.open)
		text, err := os.ReadFile(proc + "status")
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			_, _ = fmt.Sscanf(line, "Threads: %d", &l.threads)
			if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &l.rss); err == nil {
				l.rss <<= 10
			}
		}
		return l
	}
	for end := time.Now().Add(time.Minute); ; {
		if l = read(); l.files <= files {
			return l
		}
		require.True(t, time.Now().Before(end), "%d descriptors stay open: %q", l.files, l.open)
		time.Sleep(time.Second)
	}
}

// relayed passes connections on, and resets them when asked to.
type relayed struct {
	listener net.Listener
	mu       sync.Mutex
	conns    map[*net.TCPConn]bool
}

func relay(t *testing.T, to string) *relayed {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relayed{listener: listener, conns: map[*net.TCPConn]bool{}}
	var running sync.WaitGroup
	t.Cleanup(func() { listener.Close(); r.reset(); running.Wait() })
	running.Go(func() {
		for {
			a, err := listener.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			running.Go(func() { r.pass(a.(*net.TCPConn), b.(*net.TCPConn)) })
		}
	})
	return r
}

func (r *relayed) address() string { return r.listener.Addr().String() }

func (r *relayed) pass(a, b *net.TCPConn) {
	r.mu.Lock()
	r.conns[a], r.conns[b] = true, true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(a, b); _ = a.CloseWrite() })
	both.Go(func() { _, _ = io.Copy(b, a); _ = b.CloseWrite() })
	both.Wait()
	a.Close()
	b.Close()
	r.mu.Lock()
	delete(r.conns, a)
	delete(r.conns, b)
	r.mu.Unlock()
}

// reset resets all connections that are open.
func (r *relayed) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.SetLinger(0)
		c.Close()
	}
}
