// Package command runs commands of the system's shell.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// killAfter is how long a command may take to end before it is killed.
const killAfter = 5 * time.Second

// prepare makes a command that runs the program name. When ctx ends, the command and its children
// are asked to end, then killed.
func prepare(ctx context.Context, name string, args, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = killAfter
	detach(cmd)
	return cmd
}

// tailSize is how many bytes of a command's output are kept for messages.
const tailSize = 2 << 10

// tail keeps the last bytes that are written to it.
type tail struct {
	mu  sync.Mutex // guards what follows
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailSize):]...)
	t.buf = t.buf[max(0, len(t.buf)-tailSize):]
	return len(p), nil
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(bytes.TrimSpace(t.buf))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// commandError says how a failed command ended.
func commandError(ctx context.Context, err error, said *tail) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = errors.New("it took too long")
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if last := said.last(); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// Run runs a command with a text on its standard input. The error says how it ended, with the last
// line that it printed.
func Run(ctx context.Context, command string, timeout time.Duration, env []string, stdin io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name, args := shellArgs(command)
	cmd := prepare(ctx, name, args, env)
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, said, said
	if err := cmd.Run(); err != nil {
		return commandError(ctx, err, said)
	}
	return nil
}

// pipefail returns how to run a command so that each part of a pipe has to succeed. Plain shells
// know only how the last part ended, so bash runs commands with a pipe. sure is false if the command
// has a pipe, and there is no bash.
func pipefail(command string) (name string, args []string, sure bool) {
	sure = !strings.Contains(strings.ReplaceAll(command, "||", ""), "|")
	if !sure {
		if bash, err := exec.LookPath("bash"); err == nil {
			return bash, []string{"-o", "pipefail", "-c", command}, true
		}
	}
	name, args = shellArgs(command)
	return name, args, sure
}

// Warning returns what Feed cannot notice about a command, for people; or "".
func Warning(command string) string {
	if _, _, sure := pipefail(command); !sure {
		return "bash is not installed, so only the last program of the pipe counts: if another one fails, the output may be incomplete"
	}
	return ""
}

// Empty is the warning after a command that succeeded and printed nothing.
const Empty = "the command printed nothing, so the file is empty"

// Feed starts a command and calls send with its output. That ends with io.EOF only if the command
// succeeded, because nobody may take the output of a failed command for the whole. In a pipe, each
// part has to succeed, except if Warning says otherwise. When send returns, the command is ended.
// Feed returns a *FailedError if the command failed before, otherwise the error of send. errs gets a
// copy of the command's standard error; nil is nowhere.
func Feed(ctx context.Context, command string, env []string, errs io.Writer, send func(context.Context, io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name, args, _ := pipefail(command)
	cmd := prepare(ctx, name, args, env)
	said := &tail{}
	cmd.Stderr = said
	if errs != nil {
		cmd.Stderr = io.MultiWriter(said, errs)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	// A child process that the command left behind may still hold the output open.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*killAfter, func() { _ = out.Close() }) })
	o := &output{Reader: out, wait: sync.OnceValue(func() error {
		if err := cmd.Wait(); err != nil {
			return &FailedError{commandError(ctx, err, said)}
		}
		return nil
	})}
	err = send(ctx, o)
	failed := o.failed.Load() // what fails from now on fails because the command is ended
	cancel()
	_ = o.wait()
	if err != nil && failed != nil {
		return failed // the error of send only follows from it
	}
	return err
}

type output struct {
	io.Reader
	wait   func() error
	failed atomic.Pointer[FailedError]
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		return n, err
	}
	var failed *FailedError
	if errors.As(o.wait(), &failed) {
		o.failed.Store(failed)
		return n, failed
	}
	return n, io.EOF
}

// FailedError is the error of a command that failed.
type FailedError struct{ err error }

func (e *FailedError) Error() string { return "the command failed: " + e.err.Error() }

func (e *FailedError) Unwrap() error { return e.err }
