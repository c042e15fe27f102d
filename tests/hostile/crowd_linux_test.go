package hostile

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var (
	crowd      = flag.Int("crowd", 24, "clients of TestCrowd")
	crowdBytes = flag.Int64("crowd-bytes", 1<<20, "bytes that each of them sends")
	crowdReset = flag.Float64("crowd-reset", 0.05, "part of their connections that are reset")
	crowdTime  = flag.Duration("crowd-time", 5*time.Minute, "how long all may take")
	crowdDir   = flag.String("crowd-dir", "", "where they send from and to; a temporary folder if empty")
)

// program is a process of fxfer that listens.
type program struct {
	*exec.Cmd
	home string
	addr string
	said chan string // its whole output, sent when it has ended
}

// startServer runs fxfer serve with a home folder, until the test ends.
func startServer(t *testing.T, home string, args ...string) *program {
	t.Helper()
	return startProgram(t, home, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
}

// startProgram runs a command of fxfer that listens, until the test ends.
func startProgram(t *testing.T, home string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...), home: home}
	p.Env = append(os.Environ(), serveEnv+"=1", "FXFER_HOME="+home)
	out, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	said := bufio.NewScanner(out)
	listening := regexp.MustCompile(`"msg":"listening","address":"([^"]+)"`)
	var log []string
	for p.addr == "" && said.Scan() {
		log = append(log, said.Text())
		if m := listening.FindStringSubmatch(said.Text()); m != nil {
			p.addr = m[1]
		}
	}
	require.NotEmpty(t, p.addr, "%q", log)
	p.said = make(chan string, 1)
	go func() {
		var all strings.Builder
		for said.Scan() {
			all.WriteString(said.Text() + "\n")
		}
		p.said <- all.String()
	}()
	t.Cleanup(func() {
		if t.Failed() { // the trace shows what it does
			_ = p.Process.Signal(syscall.SIGQUIT)
			t.Log(<-p.said)
			_ = p.Wait()
			return
		}
		_ = p.Process.Signal(os.Interrupt)
		late := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
		defer late.Stop()
		require.NoError(t, p.Wait())
	})
	return p
}

var peakLine = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// peak returns the most memory that the process has used, in bytes.
func (p *program) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	require.NoError(t, err)
	m := peakLine.FindSubmatch(text)
	require.NotNil(t, m)
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(t, err)
	return kib << 10
}

// fickle forwards connections from many hosts to an address, and resets some of them on the way.
type fickle struct {
	to            string
	part          float64
	bytes         int64 // a connection to reset passes at most this many
	mu            sync.Mutex
	rng           *mathrand.Rand
	all, cut      atomic.Int64
	ctx           context.Context
	carrying      sync.WaitGroup
	closeAccepted func()
}

func newFickle(t *testing.T, to string, part float64, bytes int64) *fickle {
	t.Helper()
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	f := &fickle{to: to, part: part, bytes: bytes, rng: mathrand.New(mathrand.NewPCG(seed, 0))}
	f.ctx, f.closeAccepted = context.WithCancel(context.Background())
	t.Cleanup(func() { f.closeAccepted(); f.carrying.Wait() })
	return f
}

// host returns an address that forwards to the server. To the server, each such address looks like
// a host of its own.
func (f *fickle) host(t *testing.T, number int) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(number>>8), byte(number))}}
	context.AfterFunc(f.ctx, func() { l.Close() })
	f.carrying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.carrying.Go(func() { f.carry(c.(*net.TCPConn), &from) })
		}
	})
	return l.Addr()
}

func (f *fickle) carry(near *net.TCPConn, from *net.Dialer) {
	defer near.Close()
	out, err := from.DialContext(f.ctx, "tcp", f.to)
	if err != nil {
		return
	}
	far := out.(*net.TCPConn)
	defer far.Close()
	defer context.AfterFunc(f.ctx, func() { near.Close(); far.Close() })()
	f.all.Add(1)
	f.mu.Lock()
	resets, after := f.rng.Float64() < f.part, f.rng.Int64N(f.bytes)
	f.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(near, far); _ = near.CloseWrite() })
	if !resets {
		_, _ = io.Copy(far, near)
		_ = far.CloseWrite()
	} else if _, err := io.CopyN(far, near, after); err == nil {
		f.cut.Add(1)
		_ = near.SetLinger(0)
		_ = far.SetLinger(0)
		near.Close()
		far.Close()
	}
	back.Wait()
}

// TestCrowd lets many clients with different keys send to one server at once, while connections are
// reset. Each file arrives intact, memory stays bounded, and afterwards the server is as before.
// With -crowd 200 -crowd-bytes 50000000 the test is a measurement. Over QUIC no connection is
// reset. There all clients have one address, unless each route to the server has its own source
// address, as inside of:
//
//	unshare -n sh -c 'ip link set lo up; for i in $(seq 100); do ip route replace local 127.1.0.$i dev lo src 127.1.0.$i table local; done; …'
func TestCrowd(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies the memory that is measured here")
	}
	dir := *crowdDir
	if dir == "" {
		dir = t.TempDir()
	} else {
		var err error
		dir, err = os.MkdirTemp(dir, "fxfer-crowd-")
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	share := filepath.Join(dir, "share")
	require.NoError(t, os.Mkdir(share, 0o700))
	sources := make([]string, min(8, *crowd))
	digests := make([][32]byte, len(sources))
	for i := range sources {
		sources[i] = filepath.Join(dir, fmt.Sprint("source", i))
		b := make([]byte, *crowdBytes)
		_, _ = rand.Read(b)
		digests[i] = blake3.Sum256(b)
		require.NoError(t, os.WriteFile(sources[i], b, 0o600))
	}

	home := filepath.Join(dir, "server")
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	pin := string(identity.PinOf(key.Public().(ed25519.PublicKey)))
	clients := make([]*fxfer.Client, *crowd)
	var mu sync.Mutex
	notices := map[string]int{}
	number := regexp.MustCompile(`\d+(\.\d+)?`)
	var admitted []byte
	for i := range clients {
		at := filepath.Join(dir, fmt.Sprint("client", i))
		s, err := identity.OpenStore(at)
		require.NoError(t, err)
		k, err := s.Key()
		require.NoError(t, err)
		admitted = fmt.Appendf(admitted, "%s *=rw\n", identity.PinOf(k.Public().(ed25519.PublicKey)))
		clients[i], err = fxfer.NewClient(fxfer.Options{Home: at, Pin: pin, Transport: carrier, RetryFor: 10 * time.Minute, Notice: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			notices[number.ReplaceAllString(text, "N")]++
		}})
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(home, "authorized_clients"), admitted, 0o600))
	web, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, web.Close())
	listen := "127.0.0.1:0"
	if carrier == fxfer.TransportQUIC && apart(t) {
		listen = ":0"
	}
	server := startServer(t, home, "--listen", listen, "--share", "data="+share, "--max-sessions", strconv.Itoa(max(128, *crowd)),
		"--max-connections-per-address", "4096", "--web", web.Addr().String())
	// Once it answers a stranger, all that it does by itself has begun.
	if c, err := tls.Dial("tcp", server.addr, &tls.Config{InsecureSkipVerify: true}); err == nil { //nolint:gosec // nobody is trusted
		_ = c.Close() // the server may have hung up
	}
	before := server.level(t, web.Addr().String())

	ctx, cancel := context.WithTimeout(t.Context(), *crowdTime)
	defer cancel()
	var proxy *fickle
	ways := make([]string, len(clients))
	_, port, err := net.SplitHostPort(server.addr)
	require.NoError(t, err)
	if carrier != fxfer.TransportQUIC {
		proxy = newFickle(t, "127.0.0.1:"+port, *crowdReset, min(256<<10, max(1, *crowdBytes/16)))
	}
	for i := range ways {
		switch {
		case proxy != nil:
			ways[i] = proxy.host(t, 1+i).String()
		case listen == ":0":
			ways[i] = fmt.Sprintf("127.1.%d.%d:%s", (1+i)>>8, (1+i)&255, port)
		default:
			ways[i] = server.addr
		}
	}
	start := time.Now()
	took := make([]time.Duration, len(clients))
	var reconnects, resent atomic.Int64
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			u, err := fxfer.ParseURL(fmt.Sprintf("fxfer://%s/data/f%d", ways[i], i))
			if err != nil {
				t.Error(err)
				return
			}
			r, err := c.Send(ctx, []string{sources[i%len(sources)]}, u, fxfer.Transfer{})
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			took[i] = time.Since(start)
			reconnects.Add(int64(r.Reconnects))
			resent.Add(r.Resent)
		})
	}
	all.Wait()
	elapsed := time.Since(start)
	peak := server.peak(t)
	for i := range clients {
		got, err := os.ReadFile(filepath.Join(share, fmt.Sprint("f", i)))
		require.NoError(t, err)
		require.Equal(t, digests[i%len(digests)], blake3.Sum256(got), "client %d", i)
	}
	names, err := os.ReadDir(share)
	require.NoError(t, err)
	require.Len(t, names, len(clients), "nothing else is left")
	slices.Sort(took)
	rate := func(d time.Duration) float64 { return float64(*crowdBytes) * 8 / 1e6 / d.Seconds() }
	fastest, slowest := took[0], took[len(took)-1]
	t.Logf("%d clients × %d bytes in %.1f s: %.0f Mbit/s in all; %d sessions lost, %d bytes sent again",
		len(clients), *crowdBytes, elapsed.Seconds(), float64(len(clients))*rate(elapsed), reconnects.Load(), resent.Load())
	if proxy != nil {
		t.Logf("%d of %d connections reset", proxy.cut.Load(), proxy.all.Load())
	}
	sum, squares := 0.0, 0.0
	for _, d := range took {
		sum += rate(d)
		squares += rate(d) * rate(d)
	}
	t.Logf("goodput of a client: max %.2f, median %.2f, min %.2f Mbit/s; max/min %.2f; Jain's index %.3f; server's peak memory %.0f MiB",
		rate(fastest), rate(took[len(took)/2]), rate(slowest), rate(fastest)/rate(slowest), sum*sum/(float64(len(took))*squares), float64(peak)/(1<<20))
	for text, n := range notices {
		t.Logf("%d × %s", n, text)
	}
	require.Less(t, peak, int64(fxfer.DefaultMaxMemory)*5/4)
	after := server.level(t, web.Addr().String())
	for deadline := time.Now().Add(patience); (after.goroutines > before.goroutines+8 || after.files > before.files+4) && time.Now().Before(deadline); {
		<-time.After(100 * time.Millisecond)
		after = server.level(t, web.Addr().String())
	}
	t.Logf("server before: %v", before)
	t.Logf("server after:  %v", after)
	require.LessOrEqual(t, after.goroutines, before.goroutines+8)
	require.LessOrEqual(t, after.files, before.files+4)
}

// apart reports whether this network namespace has no connection to the outside. Then a server may
// listen on all of its addresses.
func apart(t *testing.T) bool {
	t.Helper()
	links, err := net.Interfaces()
	require.NoError(t, err)
	return !slices.ContainsFunc(links, func(l net.Interface) bool { return l.Flags&net.FlagLoopback == 0 && l.Flags&net.FlagUp != 0 })
}

// level is the use of resources by a server.
type level struct {
	goroutines, files int
	resident          int64 // bytes
}

func (l level) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.0f MiB resident", l.goroutines, l.files, float64(l.resident)/(1<<20))
}

var (
	goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)
	residentLine   = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)
)

// level reads the server's metrics and asks the kernel.
func (p *program) level(t *testing.T, web string) (l level) {
	t.Helper()
	r, err := http.Get("http://" + web + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	metrics, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	proc := fmt.Sprintf("/proc/%d/", p.Process.Pid)
	files, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	status, err := os.ReadFile(proc + "status")
	require.NoError(t, err)
	m, n := goroutinesLine.FindSubmatch(metrics), residentLine.FindSubmatch(status)
	require.NotNil(t, m)
	require.NotNil(t, n)
	l.files = len(files)
	l.goroutines, _ = strconv.Atoi(string(m[1]))
	l.resident, _ = strconv.ParseInt(string(n[1]), 10, 64)
	l.resident <<= 10
	return l
}
