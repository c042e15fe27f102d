//go:build linux

// Package trees_test sends whole trees between real processes, kills the processes, and changes the
// source meanwhile. It compares the target with the source itself, and also by rsync.
package trees_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	_ "github.com/fxfer/fxfer/internal/cli" // a change of the program makes cached results invalid
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var seed = flag.Uint64("seed", 0, "seed of what is random, 0 for a new one")

// program is the path of the fxfer binary under test. TestOrdinaryUser passes it on in the
// environment.
var program = os.Getenv(programVariable)

const programVariable = "FXFER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if flag.Lookup("rapid.checks").Value.String() == "100" { // the default of rapid
		_ = flag.Set("rapid.checks", "8")
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	unix.Umask(0o022)
	if program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "fxfer-trees-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = os.Chmod(dir, 0o755) // some clients run as other users
	}
	if err == nil {
		program = filepath.Join(dir, "fxfer")
		err = hosts.Build(program, "../../cmd/fxfer")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// random returns a generator and logs its seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// scratch makes a folder that any user may enter. It is removed at the end, whatever modes are set
// below it.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fxfer-trees-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { clearTree(t, dir) })
	return dir
}

// clearTree removes dir and everything below it.
func clearTree(t require.TestingT, dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) // before the folder is read
		}
		return nil
	})
	require.NoError(t, os.RemoveAll(dir))
}

// pair is a server and a client that the server has admitted. The server shares dir as "data".
type pair struct {
	dir     string
	home    string // FXFER_HOME of the client
	other   bool   // the client runs as nobody
	state   string // FXFER_HOME of the server
	server  *exec.Cmd
	said    *bytes.Buffer // output of the server; to be read only after it has ended
	ended   chan struct{}
	address string
	pin     string
}

// newPair starts a server and admits the client.
func newPair(t *testing.T, dir string) *pair {
	t.Helper()
	p := &pair{dir: dir, home: scratch(t), state: scratch(t)}
	invitation := p.serve(t, "--invite")
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the server said:\n%s", p.said)
		}
	})
	out, err := p.command("ls", invitation).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return p
}

// serve starts the server. If there are args, it returns the first line of output.
func (p *pair) serve(t require.TestingT, args ...string) (printed string) {
	file := filepath.Join(p.state, "shares.yaml") // the trees have setuid programs and devices
	text := fmt.Sprintf("shares: {data: {dir: %q, privileged: true}}\n", p.dir)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	p.server = exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0", "--config", file}, args...)...)
	p.server.Env = append(os.Environ(), "FXFER_HOME="+p.state, "FXFER_LOG_FORMAT=text")
	stdout, err := p.server.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.server.Start())
	p.said, p.ended, p.pin = new(bytes.Buffer), make(chan struct{}), ""
	lines := bufio.NewReader(stderr)
	for p.pin == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "the server ended: %s", line)
		if rest, ok := strings.CutPrefix(line, "fxfer: listening on "); ok {
			p.address = strings.TrimSpace(rest)
		}
		if rest, ok := strings.CutPrefix(line, "fxfer: key "); ok {
			p.pin = strings.TrimSpace(rest)
		}
	}
	if len(args) > 0 {
		printed, err = bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
	}
	said, ended := p.said, p.ended
	go func() {
		defer close(ended)
		_, _ = lines.WriteTo(said)
	}()
	return strings.TrimSpace(printed)
}

// kill ends the server with SIGKILL if it runs.
func (p *pair) kill() {
	if p.server == nil {
		return
	}
	_ = p.server.Process.Kill()
	<-p.ended
	_ = p.server.Wait()
	p.server = nil
}

// survived fails the test if the server has ended by itself, and starts it again.
func (p *pair) survived(t require.TestingT) {
	select {
	case <-p.ended:
	default:
		return
	}
	said := p.said.String()
	p.kill()
	p.serve(t)
	require.Fail(t, "the server ended", "%s", said)
}

// url returns the URL of a path in the share.
func (p *pair) url(path string) string { return "fxfer://" + p.address + "/data/" + path }

func (p *pair) command(args ...string) *exec.Cmd {
	if args[0] == "get" {
		args = append([]string{"get", "--privileged"}, args[1:]...)
	}
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "FXFER_HOME="+p.home)
	if p.other {
		asNobody(c)
	}
	return c
}

// outcome is the result of a transfer, as far as the tests need it.
type outcome struct {
	Code      int
	Said      string // standard error
	Seconds   float64
	Files     int64
	Sent      int64 `json:"files_sent"`
	Unchanged int64 `json:"files_unchanged"`
	Failed    int64 `json:"entries_failed"`
	Removed   int64 `json:"entries_removed"`
	Written   int64 `json:"bytes_written"`
	Resumed   int64 `json:"bytes_resumed"`
	Warnings  []struct{ What, Path, Message string }
	Failures  []struct{ Path, Error string }
	Message   string // message of the error
}

func (o *outcome) String() string {
	return fmt.Sprintf("exit code %d in %.1f s: %d files: %d sent, %d unchanged; %d entries failed, %d removed; %d bytes written, %d resumed; %s %v %v\n%s",
		o.Code, o.Seconds, o.Files, o.Sent, o.Unchanged, o.Failed, o.Removed, o.Written, o.Resumed, o.Message, o.Warnings, o.Failures, o.Said)
}

// running is a transfer under way.
type running struct {
	cmd     *exec.Cmd
	lines   *bufio.Reader
	said    bytes.Buffer
	started time.Time
}

// start begins a transfer.
func (p *pair) start(t require.TestingT, verb string, args ...string) *running {
	r := &running{cmd: p.command(append([]string{verb, "--json", "--pin", p.pin}, args...)...), started: time.Now()}
	r.cmd.Stderr = &r.said
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.lines = bufio.NewReader(out)
	require.NoError(t, r.cmd.Start())
	return r
}

// wait waits for the end of the transfer. The exit code is -1 if a signal ended it.
func (r *running) wait(t require.TestingT) *outcome {
	o := new(outcome)
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if bytes.HasPrefix(line, []byte(`{"type":"summary"`)) || bytes.HasPrefix(line, []byte(`{"type":"error"`)) {
			require.NoError(t, json.Unmarshal(line, o), "%s", line)
		}
	}
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
	}
	o.Code, o.Said, o.Seconds = r.cmd.ProcessState.ExitCode(), r.said.String(), time.Since(r.started).Seconds()
	return o
}

// do runs a transfer that must succeed without a warning.
func (p *pair) do(t require.TestingT, verb string, args ...string) *outcome {
	o := p.start(t, verb, args...).wait(t)
	require.Zero(t, o.Code, "%v", o)
	require.Empty(t, o.Warnings)
	return o
}

// reportLine is the outcome of an entry.
type reportLine struct {
	Path    string
	Outcome string
	Error   string
}

// reportOf reads the file of --report and returns the lines of each path. A folder that was made
// but could not be read has two lines.
func reportOf(t *testing.T, name string) map[string][]reportLine {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	lines := map[string][]reportLine{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var l reportLine
		require.NoError(t, json.Unmarshal(s.Bytes(), &l), s.Text())
		lines[l.Path] = append(lines[l.Path], l)
	}
	return lines
}

// killOne kills the client or the server of a transfer after a while, waits for the end, and starts
// the server again. It reports whether the transfer was still running when it was killed.
func (p *pair) killOne(t require.TestingT, r *running, server bool, after time.Duration) (killed bool, o *outcome) {
	victim := r.cmd.Process
	if server {
		victim = p.server.Process
	}
	timer := time.AfterFunc(after, func() { _ = victim.Kill() })
	o = r.wait(t)
	early := timer.Stop()
	if server {
		p.kill()
		p.serve(t)
	}
	return !early && o.Code != 0, o
}

// root reports whether the tests run as root.
func root() bool { return os.Geteuid() == 0 }

// nobody is the ID of an ordinary user.
const nobody = 65534

// asNobody makes a command run as an ordinary user.
func asNobody(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// TestOrdinaryUser runs the tests again with an ordinary user on both sides.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if !root() {
		t.Skip("the other tests run as one already")
	}
	dir := scratch(t)
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	binary := filepath.Join(dir, "trees.test")
	require.NoError(t, os.WriteFile(binary, self, 0o755))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	c := exec.Command(binary, "-test.v", "-test.run=^(TestRsyncAgrees|TestRandomTrees|TestShards)$",
		fmt.Sprintf("-seed=%d", *seed), fmt.Sprintf("-edits=%d", *edits),
		"-rapid.checks="+flag.Lookup("rapid.checks").Value.String())
	asNobody(c)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, programVariable+"="+program)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// refused reports whether an error means that the system lacks a feature, or that this user may not
// use it.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTSUP)
}
