package faults

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs, 0 to skip it")

// TestSoak lets clients of one server send, get and verify files, folders and streams. Meanwhile it
// kills them and resets their connections. In the end every undisturbed transfer was exact, and the
// server has no more threads, descriptors, memory or partial files than after a short while.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("make soak")
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
		require.NoError(t, (&medium{files: source, folders: foldersOf(source)}).restore(dir, nil))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	metrics := "http://" + free.Addr().String() + "/metrics"
	srv := right.serve(t, share, "127.0.0.1:0", "--web", free.Addr().String())
	defer func() { srv.kill() }()
	require.NoError(t, left.command("ls", srv.url).Run())
	via := relay(t, srv.address())
	known, err := os.ReadFile(filepath.Join(left.home, "known_servers"))
	require.NoError(t, err)
	words := strings.Fields(string(known))
	pin := words[len(words)-1]

	sum := endCounts{of: map[disturbance]*[3]int{}}
	work := func(worker int, until time.Time) {
		rng := rand.New(rand.NewPCG(*seed, uint64(worker)))
		for n := 0; time.Now().Before(until); n++ {
			dir := filepath.Join(base, fmt.Sprintf("to%d", worker))
			in := fmt.Sprintf("in%d", worker)
			fault := disturbances[rng.IntN(len(disturbances))]
			address := srv.address()
			if fault.relayed() {
				address = via.address()
			}
			url := "fxfer://" + address + "/data/"
			flags := []string{"--quiet", "--retry-for", "1m", "--pin", pin}
			var args []string
			var stdin io.Reader
			check, again := func() {}, true // the command retries by itself
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
				stdin, again = bytes.NewReader(b), false
				args = append([]string{"send", "-", url + filepath.Base(name)}, "--quiet", "--pin", pin)
				check = func() {
					got, err := os.ReadFile(name)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(b, got))
				}
			case 4:
				args, again = []string{"verify", url + "source", "--against", sourceDir, "--pin", pin}, false
			}
			c := left.command(args...)
			c.Stdin = stdin
			var disturb []func()
			switch fault {
			case byKill:
				disturb = append(disturb, func() { _ = c.Process.Kill() })
			case byStop:
				disturb = append(disturb, func() {
					_ = c.Process.Signal(syscall.SIGSTOP)
					time.Sleep(2 * time.Second)
					_ = c.Process.Signal(syscall.SIGCONT)
				})
			case byReset:
				disturb = append(disturb, via.reset)
			case byStall:
				disturb = append(disturb, func() { via.freeze(3 * time.Second) })
			case byLoss:
				disturb = append(disturb, via.forget)
			case byNothing:
			}
			out, err := within(2*time.Minute, c, time.Duration(rng.IntN(400))*time.Millisecond, disturb...)
			switch {
			case err == nil:
				check()
				sum.add(fault, exact)
			case fault == byKill:
				sum.add(fault, cut)
			case fault.relayed() && !again:
				sum.add(fault, ended)
			default:
				sum.add(fault, ended)
				assert.NoError(t, err, "%s: %v\n%s", fault, args, out)
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
	look := func(files int) level { return srv.level(t, files, share, metrics) }
	idle := look(40)
	run(*soak / 3) // fills pools and caches
	before := look(idle.files + 5)
	t.Logf("fresh: %v", idle)
	t.Logf("start: %v", before)
	run(*soak - *soak/3)
	after := look(idle.files + 5)
	t.Logf("end:   %v", after)
	for _, fault := range slices.Compact(slices.Clone(disturbances)) {
		n := sum.of[fault]
		if n == nil {
			n = new([3]int)
		}
		keepRow(t, "soaked", fault, n[exact], n[cut], n[ended])
		t.Logf("%-12s %d exact, %d killed, %d of streams and verify ended with an error", fault+":", n[exact], n[cut], n[ended])
	}
	require.LessOrEqual(t, after.threads, before.threads+8)
	require.LessOrEqual(t, after.goroutines, before.goroutines+8)
	require.LessOrEqual(t, after.rss, before.rss*3/2+32<<20)
	out, err := right.command("partial", "rm", "--older-than", "0s", share).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	require.Zero(t, leftBelow(t, share), "held by nobody")
	cleaned := look(idle.files + 5)
	t.Logf("after partial rm: %v", cleaned)
	for _, x := range []struct {
		when string
		level
	}{{"fresh", idle}, {fmt.Sprintf("after %v", *soak/6), before}, {fmt.Sprintf("after %v", *soak), after}, {"after `partial rm`", cleaned}} {
		keepRow(t, "soak", x.when, x.threads, x.goroutines, x.files, fmt.Sprintf("%.1f MiB", float64(x.rss)/(1<<20)), x.partial)
	}
}

// disturbance is what a test does to a transfer.
type disturbance string

const (
	byNothing disturbance = "undisturbed"
	byKill    disturbance = "killed"
	byStop    disturbance = "stopped 2 s"
	byReset   disturbance = "reset"
	byStall   disturbance = "stalled 3 s" // its connections pass nothing
	byLoss    disturbance = "forgotten"   // its connections lead nowhere any more, but new ones work
)

// disturbances are equally likely.
var disturbances = []disturbance{byNothing, byNothing, byNothing, byKill, byStop, byReset, byStall, byLoss}

func (d disturbance) relayed() bool { return d == byReset || d == byStall || d == byLoss }

// endCounts counts how transfers ended.
type endCounts struct {
	mu sync.Mutex
	of map[disturbance]*[3]int
}

const (
	exact = iota
	cut
	ended
)

func (s *endCounts) add(d disturbance, how int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[d] == nil {
		s.of[d] = new([3]int)
	}
	s.of[d][how]++
}

// leftBelow counts the partial files below a folder.
func leftBelow(t *testing.T, dir string) (n int) {
	for name := range contentBelow(t, dir) {
		if strings.HasPrefix(path.Base(name), ".fxfer-") {
			n++
		}
	}
	return n
}

// level is the use of resources by a process.
type level struct {
	threads, goroutines, files int
	partial                    int // partial files
	rss                        int64
	open                       []string // what the descriptors refer to
}

func (l level) String() string {
	return fmt.Sprintf("%d threads, %d goroutines, %d descriptors, %.1f MiB resident, %d partial files", l.threads, l.goroutines, l.files, float64(l.rss)/(1<<20), l.partial)
}

// level waits until the server has closed connections and folders, so that at most this many
// descriptors are open. It returns the use of resources.
func (s *server) level(t *testing.T, files int, share, metrics string) (l level) {
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
			l.partial = leftBelow(t, share)
			l.goroutines = goroutinesOf(t, metrics)
			return l
		}
		require.True(t, time.Now().Before(end), "%d descriptors stay open: %q", l.files, l.open)
		time.Sleep(time.Second)
	}
}

// goroutinesOf returns the number of goroutines from the server's metrics.
func goroutinesOf(t *testing.T, metrics string) (n int) {
	r, err := http.Get(metrics)
	require.NoError(t, err)
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "go_goroutines %d", &n); err == nil {
			http.DefaultClient.CloseIdleConnections()
			return n
		}
	}
	require.Fail(t, "no go_goroutines")
	return 0
}

// relayed forwards connections. It resets, stalls or forgets them when a test says so.
type relayed struct {
	listener net.Listener
	mu       sync.Mutex
	conns    map[*net.TCPConn]bool
	lost     map[*net.TCPConn]bool // data read from these is thrown away
	until    time.Time             // until then nothing passes
}

func relay(t *testing.T, to string) *relayed {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relayed{listener: listener, conns: map[*net.TCPConn]bool{}, lost: map[*net.TCPConn]bool{}}
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
	both.Go(func() { r.copy(a, b) })
	both.Go(func() { r.copy(b, a) })
	both.Wait()
	a.Close()
	b.Close()
	r.mu.Lock()
	for _, c := range []*net.TCPConn{a, b} {
		delete(r.conns, c)
		delete(r.lost, c)
	}
	r.mu.Unlock()
}

func (r *relayed) copy(to, from *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		lost, wait := r.lost[from], time.Until(r.until)
		r.mu.Unlock()
		if wait > 0 && !lost {
			time.Sleep(wait)
		}
		if lost {
			n = 0
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			if !lost {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

// freeze lets nothing pass for this long.
func (r *relayed) freeze(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Now().Add(d)
}

// forget throws away all data of the connections that are open, without closing them.
func (r *relayed) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		r.lost[c] = true
	}
}

// reset resets all open connections.
func (r *relayed) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.SetLinger(0)
		c.Close()
	}
}
