package backup

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

// shell makes a command for the shell of the system. When ctx ends, the command and its children
// are asked to end, then killed.
func shell(ctx context.Context, command string, env []string) *exec.Cmd {
	name, args := shellArgs(command)
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
	mu  sync.Mutex
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

// runCommand runs a command with a text on its standard input.
func runCommand(ctx context.Context, command string, timeout time.Duration, env []string, stdin io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := shell(ctx, command, env)
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, said, said
	if err := cmd.Run(); err != nil {
		return commandError(ctx, err, said)
	}
	return nil
}

// outputOf starts a command and returns its output. The output ends with io.EOF only if the command
// succeeded, because nobody may take the output of a failed command for the whole. The caller
// cancels ctx and then calls done.
func outputOf(ctx context.Context, command string, env []string) (o *output, done func(), err error) {
	cmd := shell(ctx, command, env)
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	// A child process that the command left behind may still hold the output open.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*killAfter, func() { _ = out.Close() }) })
	o = &output{Reader: out, wait: sync.OnceValue(func() error {
		if err := cmd.Wait(); err != nil {
			return &commandFailed{commandError(ctx, err, said)}
		}
		return nil
	})}
	return o, func() { _ = o.wait() }, nil
}

type output struct {
	io.Reader
	wait func() error
	err  atomic.Pointer[error]
}

// failed returns the error of the command if the command itself failed.
func (o *output) failed() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		if failed := o.wait(); failed != nil {
			o.err.Store(&failed)
			return n, failed
		}
		return n, io.EOF
	}
	return n, err
}

// commandFailed is the error of a job whose command failed.
type commandFailed struct{ err error }

func (e *commandFailed) Error() string { return "the command failed: " + e.err.Error() }
func (e *commandFailed) Unwrap() error { return e.err }
