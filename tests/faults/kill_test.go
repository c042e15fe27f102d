// Package faults injects faults into real processes and real networks, and checks that nothing is
// lost.
package faults

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var (
	kills = flag.Int("kills", 2, "how often a transfer is killed")
	size  = flag.Int64("size", 128<<20, "bytes of each transfer that is killed")
	seed  = flag.Uint64("seed", 0, "seed of the random moments, 0 for a new one")
)

// program is the fxfer binary under test.
var program string

// waiting is how many parallel tests run at the same time, unless -parallel says otherwise: most of
// them wait for a line.
const waiting = "6"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", waiting)
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	code, ran, err := hosts.Apart()
	if ran {
		os.Exit(code)
	}
	var dir string
	if err == nil {
		shareMounts()
		dir, err = os.MkdirTemp("", "fxfer-faults-")
	}
	if err == nil {
		program = filepath.Join(dir, "fxfer")
		err = hosts.Build(program, "../../cmd/fxfer", "CGO_ENABLED=0")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code = m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// host runs fxfer with an FXFER_HOME of its own.
type host struct{ home string }

func (h host) command(args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "FXFER_HOME="+h.home)
	return c
}

// server is a running `fxfer serve`.
type server struct {
	cmd *exec.Cmd
	url string // an invitation
}

func (h host) serve(t *testing.T, dir, listen string, flags ...string) *server {
	t.Helper()
	s := &server{cmd: h.command(append([]string{"serve", "--quiet", "--invite", "--listen", listen, "--share", "data=" + dir}, flags...)...)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	s.url, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	s.url = strings.TrimSpace(s.url)
	return s
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) address() string {
	return strings.Split(s.url[strings.LastIndexByte(s.url, '@')+1:], "/")[0]
}

// line is the part of fxfer's JSON lines that these tests read.
type line struct {
	Type    string
	Done    int64  `json:"bytes_done"`
	Resumed int64  `json:"bytes_resumed"`
	Written int64  `json:"bytes_written"`
	Digest  string `json:"digest"`
	Message string `json:"message"`
}

// sending is a running `fxfer send`.
type sending struct {
	cmd  *exec.Cmd
	done sync.WaitGroup

	mu      sync.Mutex
	acked   int64 // bytes that the server reported as written
	summary line
	failed  line
}

func (h host) send(t *testing.T, args ...string) *sending {
	t.Helper()
	s := &sending{cmd: h.command(append([]string{"send", "--json"}, args...)...)}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	s.done.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l line
			if json.Unmarshal(lines.Bytes(), &l) != nil {
				continue // the kill cut this line off
			}
			s.mu.Lock()
			switch l.Type {
			case "progress":
				s.acked = max(s.acked, l.Done)
			case "summary":
				s.summary = l
			case "error":
				s.failed = l
			}
			s.mu.Unlock()
		}
	})
	return s
}

func (s *sending) wait() error {
	s.done.Wait()
	return s.cmd.Wait()
}

func digest(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	h := blake3.New(32, nil)
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

// TestKill kills either side of a transfer with SIGKILL at random moments, and runs the same
// command again. The file arrives intact, it has its name only when it is whole, and only data that
// was in flight is sent twice.
func TestKill(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	source := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(source)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), *size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	want := digest(t, source)

	left, right := host{t.TempDir()}, host{t.TempDir()}
	target := t.TempDir()
	srv := right.serve(t, target, "127.0.0.1:0")
	defer func() { srv.kill() }()
	first := filepath.Join(t.TempDir(), "hello")
	require.NoError(t, os.WriteFile(first, []byte("hello"), 0o600))
	require.NoError(t, left.send(t, first, srv.url).wait())
	url := "fxfer://" + srv.address() + "/data/"

	// At this rate a transfer takes at least two seconds, so a kill hits it under way.
	rate := fmt.Sprintf("%dmbit", *size*8/2/1_000_000)
	for i := range *kills {
		require.NoError(t, os.RemoveAll(filepath.Join(target, "big")))
		moment := time.Duration(rng.Int64N(int64(2 * time.Second)))
		killServer := rng.IntN(2) == 1
		s := left.send(t, "--rate-limit", rate, source, url)
		timer := time.AfterFunc(moment, func() {
			if killServer {
				_ = srv.cmd.Process.Kill()
			} else {
				_ = s.cmd.Process.Kill()
			}
		})
		err := s.wait()
		killed := timer.Stop() || err != nil
		s.mu.Lock()
		acked := s.acked
		s.mu.Unlock()
		if err != nil {
			require.NotContains(t, names(t, target), "big", "no name before the end")
		}
		if killServer {
			srv.kill()
			srv = right.serve(t, target, srv.address())
		}
		again := left.send(t, source, url)
		require.NoError(t, again.wait(), again.failed.Message)
		require.Equal(t, want, digest(t, filepath.Join(target, "big")))
		if err != nil {
			require.Equal(t, want, again.summary.Digest)
			const inFlight = 32 << 20 // a block for each stream, and the records that the server had not passed to its kernel
			require.GreaterOrEqual(t, again.summary.Resumed, acked-inFlight)
			require.Equal(t, *size, again.summary.Resumed+again.summary.Written)
		}
		require.ElementsMatch(t, []string{"hello", "big"}, names(t, target), "nothing is left behind")
		t.Logf("%2d: %v: server %v, killed %v: %d MiB acknowledged, %d MiB resumed, %d MiB sent again or anew",
			i+1, moment.Round(time.Millisecond), killServer, killed, acked>>20, again.summary.Resumed>>20, again.summary.Written>>20)
	}
}
