package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/lab"
)

// ordinaryUser is "nobody": the user and group that all commands run as.
const ordinaryUser = 65534

const (
	serverStart = 10 * time.Second // for a server to listen
	stopGrace   = 3 * time.Second  // after SIGTERM
)

// stage is a pair of hosts with servers on them. Data moves from the sender to the receiver, which may be the same host.
type stage struct {
	*folder
	lab      *lab.Lab
	loopback bool
	rtt      time.Duration

	sender, receiver         *lab.Host
	senderAddr, receiverAddr netip.Addr

	undo func() error
}

// newStage starts the lab of a scenario. The caller closes the stage.
func newStage(f *folder, sc scenario) (*stage, error) {
	link := sc.link
	if link.Rate == 0 {
		link.Rate = gbit // nothing crosses it
	}
	l, err := lab.Start(link)
	if err != nil {
		return nil, err
	}
	undo, err := setUpHosts(l, sc.hosts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the hosts: %w", err), l.Close())
	}
	s := &stage{folder: f, lab: l, rtt: link.RTT, sender: l.Left, receiver: l.Right, undo: undo}
	s.senderAddr, s.receiverAddr = l.Left.Addr(), l.Right.Addr()
	if sc.link.Rate == 0 {
		local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		s.loopback, s.receiver, s.senderAddr, s.receiverAddr = true, l.Left, local, local
	}
	return s, nil
}

// close ends the servers, removes the lab and restores the machine's limits.
func (s *stage) close() error { return errors.Join(s.lab.Close(), s.undo()) }

// command is a command line to be run on a host, in the folder.
type command struct {
	host     *lab.Host
	argv     []string
	env      []string
	netAdmin bool // run with CAP_NET_ADMIN
}

// String shows the command without paths.
func (c command) String() string {
	args := make([]string, len(c.argv))
	for i, a := range c.argv {
		args[i] = a
		if strings.ContainsAny(a, " ;'\"*?$&|<>()") {
			args[i] = "'" + a + "'"
		}
	}
	args[0] = filepath.Base(args[0])
	return strings.Join(args, " ")
}

func (s *stage) prepare(ctx context.Context, c command) *lab.Cmd {
	cmd := c.host.Command(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir = s.path
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.abs("home"), "TMPDIR=" + s.abs("tmp")}, c.env...)
	cmd.SysProcAttr = credentials(c.netAdmin)
	cmd.WaitDelay = time.Second // servers' children may keep the output open
	return cmd
}

// output collects what a command prints. It may be read meanwhile.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// lastLine returns the last line that isn't empty, shortened.
func (o *output) lastLine() string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	last := []rune(strings.TrimSpace(lines[len(lines)-1]))
	return string(last[:min(len(last), 200)])
}

// failure adds what a command said to its error.
func failure(c command, err error, said ...*output) error {
	for _, o := range said {
		if line := o.lastLine(); line != "" {
			return fmt.Errorf("%s: %w: %s", filepath.Base(c.argv[0]), err, line)
		}
	}
	return fmt.Errorf("%s: %w", filepath.Base(c.argv[0]), err)
}

// server is a program that runs until the stage is closed.
type server struct {
	cmd    *lab.Cmd
	stdout output
	stderr output
	ended  chan struct{}
}

// serve starts a server and returns once it listens on a TCP port.
func (s *stage) serve(ctx context.Context, c command, port int) (*server, error) {
	v := &server{cmd: s.prepare(ctx, c), ended: make(chan struct{})}
	v.cmd.Stdout, v.cmd.Stderr = &v.stdout, &v.stderr
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	var exit error
	go func() {
		defer close(v.ended)
		exit = v.cmd.Wait()
	}()
	err := v.await(ctx, func() (bool, error) { return listening(c.host, port) })
	switch {
	case errors.Is(err, errEnded):
		return nil, failure(c, errors.Join(err, exit), &v.stderr, &v.stdout)
	case err != nil:
		return nil, failure(c, err, &v.stderr, &v.stdout)
	}
	return v, nil
}

var errEnded = errors.New("it ended")

// await returns when ready does, or with an error if the server ends or takes too long.
func (v *server) await(ctx context.Context, ready func() (bool, error)) error {
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

// listening tells whether a process in the host listens on the TCP port.
func listening(h *lab.Host, port int) (found bool, err error) {
	err = h.Do(func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			table, err := os.ReadFile("/proc/thread-self/net/" + name)
			if errors.Is(err, os.ErrNotExist) { // no IPv6
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

// listens tells whether a table of sockets (proc_net_tcp in the kernel's documentation) has one that listens on the port.
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

// quiesce returns when nothing has crossed the link for a while, so that what a stopped command left on its way doesn't
// disturb the next.
func (s *stage) quiesce(ctx context.Context) {
	if s.loopback {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	look := time.NewTicker(200*time.Millisecond + s.rtt)
	defer look.Stop()
	before := int64(-1)
	for {
		there, back := s.lab.Counters()
		now := there.Sent + there.Delivered + back.Sent + back.Delivered
		if now == before {
			return
		}
		before = now
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func hostPort(a netip.Addr, port int) string { return a.String() + ":" + strconv.Itoa(port) }
