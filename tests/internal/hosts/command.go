package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
)

const serverStart = 10 * time.Second // a server has to listen within this time

// Command is a command line to run on a host, in a folder.
type Command struct {
	Host     *lab.Host
	Argv     []string
	Env      []string
	NetAdmin bool // run with CAP_NET_ADMIN
}

// String shows the command without paths.
func (c Command) String() string {
	args := make([]string, len(c.Argv))
	for i, a := range c.Argv {
		args[i] = a
		if strings.ContainsAny(a, " ;'\"*?$&|<>()") {
			args[i] = "'" + a + "'"
		}
	}
	args[0] = filepath.Base(args[0])
	return strings.Join(args, " ")
}

// Prepare returns c, ready to start in the folder as the ordinary user.
func (f *Folder) Prepare(ctx context.Context, c Command) *lab.Cmd {
	cmd := c.Host.Command(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = f.Path
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + f.Abs("home"), "TMPDIR=" + f.Abs("tmp")}, c.Env...)
	cmd.SysProcAttr = credentials(c.NetAdmin)
	cmd.WaitDelay = time.Second // children of servers may keep the output open
	return cmd
}

// Output collects the output of a command. It may be read while the command runs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// lastLine returns the last line that is not empty, shortened.
func (o *Output) lastLine() string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	last := []rune(strings.TrimSpace(lines[len(lines)-1]))
	return string(last[:min(len(last), 200)])
}

// Failure adds the last output of a command to its error.
func (c Command) Failure(err error, said ...*Output) error {
	for _, o := range said {
		if line := o.lastLine(); line != "" {
			return fmt.Errorf("%s: %w: %s", filepath.Base(c.Argv[0]), err, line)
		}
	}
	return fmt.Errorf("%s: %w", filepath.Base(c.Argv[0]), err)
}

// Server is a program that runs until its lab is closed.
type Server struct {
	Cmd    *lab.Cmd
	Stdout Output
	Stderr Output
	ended  chan struct{}
}

// Serve starts a server and returns when it listens on a TCP port.
func (f *Folder) Serve(ctx context.Context, c Command, port int) (*Server, error) {
	v := &Server{Cmd: f.Prepare(ctx, c), ended: make(chan struct{})}
	v.Cmd.Stdout, v.Cmd.Stderr = &v.Stdout, &v.Stderr
	if err := v.Cmd.Start(); err != nil {
		return nil, err
	}
	var exit error
	go func() {
		defer close(v.ended)
		exit = v.Cmd.Wait()
	}()
	err := v.Await(ctx, func() (bool, error) { return listening(c.Host, port) })
	switch {
	case errors.Is(err, errEnded):
		return nil, c.Failure(errors.Join(err, exit), &v.Stderr, &v.Stdout)
	case err != nil:
		return nil, c.Failure(err, &v.Stderr, &v.Stdout)
	}
	return v, nil
}

// End sends the server a signal and returns when it has ended.
func (v *Server) End(s os.Signal) {
	_ = v.Cmd.Process.Signal(s) // the process may have ended
	<-v.ended
}

var errEnded = errors.New("it ended")

// Await returns when ready does, or with an error if the server ends or takes too long.
func (v *Server) Await(ctx context.Context, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-v.ended:
			return errEnded
		case <-ctx.Done():
			return errors.New("it isn't ready")
		case <-look.C:
		}
	}
}

// listening reports whether a process on the host listens on the TCP port.
func listening(h *lab.Host, port int) (found bool, err error) {
	err = h.Do(func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			table, err := os.ReadFile("/proc/thread-self/net/" + name)
			if errors.Is(err, os.ErrNotExist) { // this host has no IPv6
				continue
			}
			if err != nil {
				return err
			}
			found = found || listens(string(table), port)
		}
		return nil
	})
	return found, err
}

// listens reports whether a table of sockets (proc_net_tcp in the kernel's documentation) contains
// one that listens on the port.
func listens(table string, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		// sl local_address rem_address st …
		if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
			return true
		}
	}
	return false
}
