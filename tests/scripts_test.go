// Package tests contains tests from outside: of the command line, as scripts.
package tests

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/cli"
)

var (
	update = flag.Bool("update", false, "write what cmp finds into the scripts")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the files' random content")
)

func TestMain(m *testing.M) {
	// Scripts wait more than they compute, so more of them run at the same time unless -parallel
	// says otherwise.
	_ = flag.Set("test.parallel", "6")
	testscript.Main(m, map[string]func(){
		"fxfer": func() {
			leaveTerminal()
			os.Exit(cli.Main(os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	t.Logf("seed %d", *seed)
	testscript.Run(t, testscript.Params{
		Dir:                 "scripts",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FXFER_HOME", filepath.Join(e.WorkDir, "client"))
			e.Setenv("FXFER_TRANSPORT", os.Getenv("FXFER_TRANSPORT"))
			e.Values[serversKey{}] = map[string]*server{}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "quic" { // everything is to run over QUIC
				return os.Getenv("FXFER_TRANSPORT") == "quic", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit":      cmdExit,
			"until":     cmdUntil,
			"random":    cmdRandom,
			"digest":    cmdDigest,
			"json":      cmdJSON,
			"lines":     cmdLines,
			"write":     cmdWrite,
			"serve":     cmdServe,
			"shutdown":  cmdShutdown,
			"interrupt": cmdInterrupt,
			"hangup":    cmdHangup,
			"readenv":   cmdReadenv,
		},
	})
}

// cmdExit runs a program that must end with this exit code: exit CODE PROGRAM [ARG...].
func cmdExit(ts *testscript.TestScript, _ bool, args []string) {
	want := number(ts, args[0])
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// cmdUntil runs a program again and again until a line of its standard output matches: until PATTERN
// PROGRAM [ARG...].
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // it may fail until then
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Since(began) > 2*time.Minute {
			ts.Fatalf("it does not print %s", args[0])
		}
	}
}

// cmdRandom makes a file with random content: random FILE BYTES.
func cmdRandom(ts *testscript.TestScript, _ bool, args []string) {
	content := make([]byte, number(ts, args[1]))
	var key [32]byte
	copy(key[:], fmt.Sprint(*seed))
	_, err := rand.NewChaCha8(key).Read(content)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), content, 0o600))
}

// cmdDigest sets an environment variable to the BLAKE3 digest of a file: digest VARIABLE FILE.
func cmdDigest(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.Open(ts.MkAbs(args[1]))
	ts.Check(err)
	defer f.Close()
	h := blake3.New(32, nil)
	_, err = io.Copy(h, f)
	ts.Check(err)
	ts.Setenv(args[0], hex.EncodeToString(h.Sum(nil)))
}

// cmdJSON checks that standard output has one JSON object per line. It compares members of the last
// object with this type: json TYPE [MEMBER=VALUE...]. The VALUE >0 means any number above 0.
func cmdJSON(ts *testscript.TestScript, _ bool, args []string) {
	last := lastJSON(ts, ts.ReadFile("stdout"), args[0])
	if last == nil {
		ts.Fatalf("no object of type %q", args[0])
	}
	for _, pair := range args[1:] {
		member, want, _ := strings.Cut(pair, "=")
		got, ok := last[member]
		text := fmt.Sprint(got)
		if n, isNumber := got.(float64); isNumber {
			text = strconv.FormatFloat(n, 'f', -1, 64)
			ok = ok && (want != ">0" || n > 0)
		}
		if !ok || want != ">0" && text != want {
			ts.Fatalf("%s is %q, want %q", member, text, want)
		}
	}
}

func lastJSON(ts *testscript.TestScript, text, kind string) (last map[string]any) {
	for line := range strings.Lines(text) {
		var object map[string]any
		ts.Check(json.Unmarshal([]byte(line), &object))
		if object["type"] == kind {
			last = object
		}
	}
	return last
}

// cmdLines checks the number of lines of a file: lines FILE COUNT.
func cmdLines(ts *testscript.TestScript, _ bool, args []string) {
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); got != number(ts, args[1]) {
		ts.Fatalf("%s has %d lines, want %s", args[0], got, args[1])
	}
}

// cmdWrite makes a file with one line, and expands variables in it: write FILE TEXT.
func cmdWrite(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(args[1]+"\n"), 0o600))
}

// cmdReadenv sets an environment variable to the text of a file without its final newline: readenv
// VARIABLE FILE.
func cmdReadenv(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSuffix(ts.ReadFile(args[1]), "\n"))
}

type serversKey struct{}

// server is a running `fxfer serve`.
type server struct {
	cmd  *exec.Cmd
	rest chan string // its output after it listens, sent when it has ended
	said *said
}

// said is the output of a server so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) count(word string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), word)
}

// cmdServe starts a server on a free port of the loopback interface and waits until it listens:
// serve NAME [ARG...]. The folder NAME contains the server's state. The command sets ADDRESS,
// SERVER (the URL without a path), PIN and, with --invite, INVITE.
func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command("fxfer", append([]string{"serve", "--listen", "127.0.0.1:0"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "FXFER_HOME="+ts.MkAbs(args[0]), "FXFER_LOG_FORMAT=text")
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	s := &server{cmd: cmd, rest: make(chan string, 1), said: new(said)}
	ts.Value(serversKey{}).(map[string]*server)[args[0]] = s
	ts.Defer(func() {
		if cmd.Process.Kill() == nil {
			_, _ = cmd.Process.Wait()
		}
	})

	said := bufio.NewReader(stderr)
	for {
		line, err := said.ReadString('\n')
		if err != nil {
			ts.Fatalf("the server ended: %s", line)
		}
		if address, ok := strings.CutPrefix(line, "fxfer: listening on "); ok {
			ts.Setenv("ADDRESS", strings.TrimSpace(address))
			ts.Setenv("SERVER", "fxfer://"+strings.TrimSpace(address))
			ts.Setenv("ALIAS", "fxfer://"+strings.Replace(strings.TrimSpace(address), "127.0.0.1", "localhost", 1))
		}
		if key, ok := strings.CutPrefix(line, "fxfer: key "); ok {
			ts.Setenv("PIN", strings.TrimSpace(key))
			break
		}
	}
	printed := bufio.NewReader(stdout)
	if strings.Contains(" "+strings.Join(args, " ")+" ", " --invite ") {
		url, err := printed.ReadString('\n')
		ts.Check(err)
		ts.Setenv("INVITE", strings.TrimSpace(url))
	}
	go func() {
		text, _ := io.ReadAll(io.TeeReader(said, s.said))
		more, _ := io.ReadAll(printed)
		s.rest <- string(text) + string(more)
	}()
}

// cmdShutdown ends a server with SIGTERM: shutdown NAME. The exit code must be 0. The output of the
// server becomes the standard error of the command.
func cmdShutdown(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(serversKey{}).(map[string]*server)[args[0]]
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	start := time.Now()
	said := <-s.rest
	err := s.cmd.Wait()
	fmt.Fprint(ts.Stderr(), said)
	ts.Check(err)
	if took := time.Since(start); took > 10*time.Second {
		ts.Fatalf("it took %v to end", took)
	}
}

// cmdHangup sends SIGHUP to a server and waits until it reports that it has loaded or rejected its
// configuration: hangup NAME reloaded|refused.
func cmdHangup(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(serversKey{}).(map[string]*server)[args[0]]
	word := map[string]string{"reloaded": "configuration reloaded", "refused": "configuration is refused"}[args[1]]
	before := s.said.count(word)
	hangup(ts, s.cmd.Process)
	for begin := time.Now(); s.said.count(word) == before; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			ts.Fatalf("it does not say %q", word)
		}
	}
}

// cmdInterrupt runs a transfer with --json, sends it SIGINT after the first progress, and checks
// that it ends soon with exit code 130, which is 2 s on a host that is not busy: interrupt PROGRAM
// [ARG...]. Standard input supplies 64 MiB and then blocks without an end.
func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "FXFER_HOME="+ts.Getenv("FXFER_HOME"))
	stdin, err := cmd.StdinPipe()
	ts.Check(err)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	go func() { _, _ = stdin.Write(make([]byte, 64<<20)) }()
	var all strings.Builder
	printed := bufio.NewScanner(io.TeeReader(stdout, &all))
	var sent time.Time
	for printed.Scan() {
		if p := lastJSON(ts, printed.Text(), "progress"); p != nil && p["bytes_done"].(float64) > 0 && sent.IsZero() {
			sent = time.Now()
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	ts.Check(printed.Err())
	err = cmd.Wait()
	took := time.Since(sent)
	fmt.Fprint(ts.Stdout(), all.String())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 || sent.IsZero() {
		ts.Fatalf("it ended with %v, interrupted: %t", err, !sent.IsZero())
	}
	if took > 10*time.Second {
		ts.Fatalf("it took %v to end", took)
	}
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}
