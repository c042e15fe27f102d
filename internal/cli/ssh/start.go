package ssh

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// started is an ssh that runs, with a server behind it.
type started struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	pipe  *os.File // its standard output
	out   *bufio.Reader
	tasks sync.WaitGroup
	done  chan struct{} // closed when the server is no longer needed

	silence *time.Timer // fires when it takes too long to the answer: see answerWithin

	calls    *calls    // connections that the server makes
	channels *channels // to the server's port; nil if it is reached otherwise

	ended chan struct{} // closed when ssh has ended
	err   error         // how it ended; set before

	closing sync.Once
	closed  error // what close returns; set by closing
}

// careful are options of ssh for a host that may be hostile: whatever the configuration says, it
// gets no agent, no display and no port of this host, and runs only what fxfer asks for. ssh ends
// when the host does not answer it any more.
var careful = []string{"-x", "-oForwardAgent=no", "-oClearAllForwardings=yes", "-oRemoteCommand=none", "-oPermitLocalCommand=no", "-oServerAliveInterval=15"}

// line returns the command line that makes ssh do something on the host of t.
func (f *Flags) line(t *target, options []string, words ...string) []string {
	line := slices.Concat(f.ssh, careful, options)
	if f.ssh == nil {
		line = slices.Insert(line, 0, "ssh")
	}
	if t.port != 0 {
		line = append(line, "-p", strconv.Itoa(t.port))
	}
	return append(append(line, t.host), words...)
}

// hostName returns the name or address that ssh has for the host of t in its configuration.
func (f *Flags) hostName(ctx context.Context, t *target) string {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	line := f.line(t, []string{"-G"})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay = outputWithin
	text, err := cmd.Output()
	if err != nil { // such as an ssh that knows no -G
		return t.name()
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "hostname "); ok {
			return strings.TrimSpace(name)
		}
	}
	return t.name()
}

// start starts ssh and the server, and returns what the server answers.
func (f *Flags) start(ctx context.Context, t *target, q *Request, errs io.Writer) (*started, *Answer, error) {
	word := q.word()
	s, err := f.run(t, word, q.Dir != "", errs)
	if err != nil {
		return nil, nil, err
	}
	type result struct {
		answer *Answer
		err    error
	}
	results := make(chan result, 1)
	s.tasks.Go(func() {
		if word == "" && WriteRequest(s.in, q) != nil {
			results <- result{nil, errNoAnswer}
			return
		}
		a, err := s.ask(f, t, q)
		results <- result{a, err}
	})
	r := result{}
	select {
	case r = <-results:
	case <-ctx.Done():
		r.err = ctx.Err()
		s.stop()
	case <-s.silence.C:
		r.err = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: fmt.Errorf("ssh %s: no answer within %s", t.host, answerWithin)}
		s.stop()
	}
	if r.err != nil {
		if errors.Is(r.err, errNoAnswer) {
			r.err = s.explain(t)
		}
		_ = s.close(endWithin)
		return nil, nil, r.err
	}
	s.tasks.Go(s.keepAlive)
	s.tasks.Go(s.listen)
	return s, r.answer, nil
}

// run starts ssh, for the first time or again. request is an argument of the server, or "".
func (f *Flags) run(t *target, request string, again bool, errs io.Writer) (*started, error) {
	words := scriptFor(request)
	if f.remote != "" {
		words = strings.TrimSpace(f.remote + " serve --once " + request)
	}
	options := []string{"-T"}
	if again { // the line may be down, and back before the kernel gives up
		options = append(options, fmt.Sprintf("-oConnectTimeout=%d", connectAgain/time.Second))
	}
	line := f.line(t, options, words)
	s := &started{cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{}), ended: make(chan struct{}), calls: newCalls(f.ports)}
	failed := func(err error) (*started, error) {
		return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther, Err: fmt.Errorf("start ssh: %w", err)}, "install OpenSSH's client, or name another one by --ssh-command")
	}
	read, write, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	defer write.Close()
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = write, errs, outputWithin
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		read.Close()
		return failed(err)
	}
	s.pipe, s.out, s.silence = read, bufio.NewReader(read), time.NewTimer(answerWithin)
	go func() {
		// An ssh that stays for further connections (ControlPersist) keeps standard error open.
		if err := s.cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
			s.err = err
		}
		close(s.ended)
	}()
	return s, nil
}

// ask returns the answer to the request. If the host has no program that answers, it uploads one.
func (s *started) ask(f *Flags, t *target, q *Request) (*Answer, error) {
	for {
		line, err := readMarked(s.out)
		if err != nil {
			return nil, err
		}
		if system, ok := bytes.CutPrefix(line, []byte("upload ")); ok {
			if q.Uploaded || f.remote != "" {
				return nil, errNoAnswer
			}
			if err := s.upload(f, t, brief(system)); err != nil {
				return nil, err
			}
			q.Uploaded = true
			if err := WriteRequest(s.in, q); err != nil {
				return nil, errNoAnswer
			}
			continue
		}
		a, err := parseAnswer(line, q)
		switch {
		case err != nil:
			return nil, err
		case a.Protocol != q.Protocol && (f.remote != "" || q.Uploaded):
			return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther, Err: fmt.Errorf("fxfer on %s speaks protocol version %d, this one %d", t.host, a.Protocol, q.Protocol)},
				"update it, or leave --remote-command out to have this one uploaded")
		case a.Protocol != q.Protocol:
			continue // the script goes on to an upload
		case a.Error != "":
			return nil, &fxfer.Error{Kind: kindOf(a.Kind), Err: fmt.Errorf("%s: %s", t.host, brief([]byte(a.Error)))}
		}
		return a, nil
	}
}

// brief returns text of the host for a message.
func brief(text []byte) string { return string(text[:min(len(text), 500)]) }

// kindOf returns the kind of an error of the other side.
func kindOf(name string) fxfer.Kind {
	switch name {
	case "local_disk":
		return fxfer.KindRemoteDisk
	case "usage":
		return fxfer.KindUsage
	case "not_found":
		return fxfer.KindNotFound
	case "unreachable":
		return fxfer.KindUnreachable
	}
	return fxfer.KindOther
}

// explain says why ssh ended without an answer. What it printed is on standard error.
func (s *started) explain(t *target) error {
	s.in.Close()
	select {
	case <-s.ended:
	case <-time.After(endWithin):
	}
	err := fmt.Errorf("ssh %s: %w", t.host, s.howEnded())
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == sshFailed {
		advice := "first make `ssh " + t.host + "` work"
		if url := t.asURL(); url != "" {
			advice += "; if a server of fxfer runs there, write " + url
		}
		return exit.WithHint(&fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}, advice)
	}
	return exit.WithHint(err, "the host needs fxfer, or a shell that follows POSIX so that it can be uploaded; --remote-command says where it is")
}

// sshFailed is the exit code of ssh for errors of its own.
const sshFailed = 255

// howEnded returns how ssh has ended.
func (s *started) howEnded() error {
	switch {
	case !s.hasEnded():
		return errors.New("it does not end")
	case s.err != nil:
		return s.err
	}
	return errors.New("it ended")
}

// listen reads what the server says after its answer. When that ends, there are no calls any more.
func (s *started) listen() {
	defer s.calls.close()
	for {
		line, err := readMarked(s.out)
		if err != nil {
			return
		}
		if id, ok := parseFailed(line); ok {
			s.calls.fail(id)
		}
	}
}

// keepAlive asks for the calls that are wanted, and writes an empty line now and then.
func (s *started) keepAlive() {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.ended:
			return
		case line := <-s.calls.wanted:
			_, _ = io.WriteString(s.in, line) // if it fails, ssh has ended
		case <-tick.C:
			_, _ = io.WriteString(s.in, "\n")
		}
	}
}

// stop stops ssh. Killed while it asks for a password, it would leave a terminal that does not show
// what is typed.
func (s *started) stop() {
	if s.cmd.Process.Signal(syscall.SIGTERM) == nil { // Windows has no such signal
		select {
		case <-s.ended:
			return
		case <-time.After(restoreWithin):
		}
	}
	_ = s.cmd.Process.Kill()
}

// hasEnded reports whether ssh has ended.
func (s *started) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// close ends the server and ssh, and waits for both at most this long. Then it stops ssh. It does
// that once.
func (s *started) close(within time.Duration) error {
	s.closing.Do(func() { s.closed = s.closeNow(within) })
	return s.closed
}

func (s *started) closeNow(within time.Duration) (err error) {
	close(s.done)
	s.channels.close()
	s.calls.close()
	s.in.Close()
	select {
	case <-s.ended:
		err = s.err
	case <-time.After(within):
		s.stop()
		<-s.ended
		err = errors.New("the server over there did not end in time: ssh was stopped")
	}
	s.pipe.Close()
	s.tasks.Wait()
	return err
}
