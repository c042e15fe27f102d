package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	folderPrefix = "fxfer-diagnose-"
	fxferPort    = 7433
	othersFirst  = 3 * time.Second // others on the line fill it in this time
	runLimit     = 45 * time.Second
	stopGrace    = 10 * time.Second // after SIGTERM
)

// summary is the part that is used of the lines that fxfer prints with --json.
type summary struct {
	Type     string  `json:"type"`
	Duration float64 `json:"duration_seconds"`
	Bytes    int64   `json:"bytes"`
	Goodput  float64 `json:"goodput_bits_per_second"`
	Peak     float64 `json:"peak_bits_per_second"` // over a second
	Streams  int     `json:"streams"`
	Limits   []limit `json:"limits"`
	Message  string  `json:"message"` // of an error
}

// limit is a verdict of fxfer.
type limit struct {
	Limiter  string   `json:"limiter"`
	Side     string   `json:"side"`
	Host     string   `json:"host"`
	Share    float64  `json:"share"`
	Seconds  float64  `json:"seconds"`
	Evidence []string `json:"evidence"`
	Remedies []remedy `json:"remedies"`
}

type remedy struct {
	Sysctl *struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"sysctl"`
	Flag    string  `json:"flag"`
	Command string  `json:"command"`
	Advice  string  `json:"advice"`
	Expect  float64 `json:"expect_bits_per_second"`
}

func (r remedy) String() string {
	switch {
	case r.Sysctl != nil:
		return fmt.Sprintf("sysctl -w %s=%q", r.Sysctl.Name, r.Sysctl.Value)
	case r.Flag != "":
		return r.Flag
	case r.Command != "":
		return r.Command
	}
	return r.Advice
}

// parse reads fxfer's output: the summary, and the error if there was one.
func parse(stdout string) (s summary, failure string, err error) {
	for line := range strings.Lines(stdout) {
		if !strings.HasSuffix(line, "\n") {
			break // fxfer was killed
		}
		var l summary
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return s, failure, fmt.Errorf("read fxfer's output: %w", err)
		}
		switch l.Type {
		case "summary":
			s = l
		case "error":
			failure = l.Message
		}
	}
	return s, failure, nil
}

// run is the measurements of one trial.
type run struct {
	summary
	failure string // why the transfer failed
	command string
	stdout  string
}

// harness runs trials, one at a time.
type harness struct {
	*hosts.Folder
	undos []func() error // for the present trial, the last one first
}

func (h *harness) later(undo func() error) { h.undos = append(h.undos, undo) }

// clear undoes all changes that a trial made to the machine.
func (h *harness) clear() error {
	var err error
	for _, undo := range slices.Backward(h.undos) {
		err = errors.Join(err, undo())
	}
	h.undos = nil
	return err
}

const (
	longPause = time.Second // without a tick: the machine was too busy to tell
	attempts  = 4           // at a trial while the machine is too busy
)

var errBusy = fmt.Errorf("the machine is too busy: nothing ran for more than %v", longPause)

// undisturbed runs a trial again if the machine was too busy.
func (h *harness) undisturbed(ctx context.Context, t *trial, fix *remedy, side string) (run, error) {
	for attempt := 1; ; attempt++ {
		pause := hosts.Watch()
		r, err := h.run(ctx, t, fix, side)
		if pause() <= longPause || ctx.Err() != nil {
			return r, err
		}
		if attempt == attempts {
			return r, errors.Join(err, errBusy)
		}
		fmt.Fprintf(os.Stderr, "         %v; again\n", errBusy)
	}
}

// run makes the hosts of t, applies the remedy, if any, to the host named side, and transfers.
func (h *harness) run(ctx context.Context, t *trial, fix *remedy, side string) (r run, err error) {
	defer func() { err = errors.Join(err, h.clear()) }()
	if err := errors.Join(h.Empty("src"), h.Empty("in")); err != nil {
		return r, err
	}
	if t.stdin == 0 {
		if err := h.lay(ctx, t); err != nil {
			return r, fmt.Errorf("make the files: %w", err)
		}
	}
	source, err := h.show(t.source, "src")
	if err != nil {
		return r, err
	}
	target, err := h.show(t.target, "in")
	if err != nil {
		return r, err
	}
	// Random faults must not hit the invitation.
	quiet := t.link
	quiet.Loss, quiet.Reorder, quiet.PMTU, quiet.BlackHole = 0, 0, 0, false
	l, err := lab.Start(quiet)
	if err != nil {
		return r, err
	}
	h.later(l.Close)
	if err := h.set(l, t, fix, side); err != nil {
		return r, fmt.Errorf("set up the hosts: %w", err)
	}

	x := &hosts.Fxfer{Folder: h.Folder, Server: l.Right, Client: l.Left, Addr: l.Right.Addr(), Port: fxferPort, Home: "home/fxfer"}
	share, serverCPU, clientCPU := target, t.rightCPU, t.leftCPU
	if t.get {
		x.Server, x.Client, x.Addr = l.Left, l.Right, l.Left.Addr()
		share, serverCPU, clientCPU = source, t.leftCPU, t.rightCPU
	}
	if err := x.Start(ctx, slices.Concat([]string{"--share", "files=" + share}, t.serverFlags)...); err != nil {
		return r, err
	}
	if err := h.slow(serverCPU, "server", x.Process.Cmd); err != nil {
		return r, err
	}
	if t.cross != nil {
		if err := h.compete(ctx, l, *t.cross); err != nil {
			return r, err
		}
	}
	change, late := lab.Change{Loss: &t.link.Loss, Reorder: &t.link.Reorder}, lab.Change{Down: t.down}
	if t.link.PMTU > 0 {
		late = lab.Change{PMTU: &t.link.PMTU, BlackHole: &t.link.BlackHole}
	}
	if err := l.Set(change); err != nil {
		return r, err
	}
	if t.later == 0 {
		err = l.Set(late)
	} else {
		timer := time.AfterFunc(t.later, func() { _ = l.Set(late) }) // a lab that is gone shows in the verdict
		defer timer.Stop()
	}
	if err != nil {
		return r, err
	}

	c, err := x.Cold(h.args(t, fix, x, source, target)...)
	if err != nil {
		return r, err
	}
	r.command = c.String()
	r.stdout, err = h.transfer(ctx, t, c, clientCPU)
	r.summary, r.failure, err = finish(r.stdout, err)
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil && !t.fails:
		return r, err
	case !t.fails && r.Bytes != t.bytes:
		return r, fmt.Errorf("%d bytes were sent, not %d", r.Bytes, t.bytes)
	}
	return r, nil
}

// finish reads the output of a transfer that ended with exit.
func finish(stdout string, exit error) (summary, string, error) {
	s, failure, err := parse(stdout)
	switch {
	case err != nil:
		return s, failure, err
	case failure != "":
		return s, failure, errors.New(failure)
	}
	return s, failure, exit
}

// args are the arguments of fxfer for t. The flags of the remedy come last, so that they take
// precedence.
func (h *harness) args(t *trial, fix *remedy, x *hosts.Fxfer, source, target string) []string {
	args := []string{"send", "--json"}
	if t.get {
		args[0] = "get"
	}
	args = append(args, t.flags...)
	if fix != nil {
		args = append(args, strings.Fields(fix.Flag)...)
	}
	switch {
	case t.stdin > 0:
		return append(args, "-", x.URL("files/data"))
	case t.get:
		return append(args, x.URL("files/"), target+"/")
	}
	return append(args, source+"/", x.URL("files/"))
}

// lay makes the files to send.
func (h *harness) lay(ctx context.Context, t *trial) error {
	n := max(1, t.files)
	for i := range n {
		if err := h.Fill(ctx, fmt.Sprintf("src/data%04d", i), t.bytes/int64(n), byte(i)); err != nil {
			return err
		}
	}
	return nil
}

// show returns a folder that shows the files of dir as slow as on the disk d.
func (h *harness) show(d disk, dir string) (string, error) {
	if d == (disk{}) {
		return dir, nil
	}
	point := "slow-" + dir
	unmount, err := d.mount(h.Abs(dir), h.Abs(point))
	if err != nil {
		return "", err
	}
	h.later(unmount)
	return point, nil
}

// set changes the settings of both hosts and of the machine. It applies those of the remedy last.
func (h *harness) set(l *lab.Lab, t *trial, fix *remedy, side string) error {
	var machine hosts.Machine
	h.later(machine.Undo)
	for _, s := range t.machine {
		if err := machine.Set(s); err != nil {
			return err
		}
	}
	left, right := slices.Clone(t.left), slices.Clone(t.right)
	if fix != nil && fix.Sysctl != nil {
		s := hosts.Setting{Name: strings.ReplaceAll(fix.Sysctl.Name, ".", "/"), Value: fix.Sysctl.Value}
		switch {
		case strings.HasPrefix(s.Name, "net/core/"): // the same for all namespaces
			if err := machine.Set(s); err != nil {
				return err
			}
		case side == "receiver":
			right = append(right, s)
		default:
			left = append(left, s)
		}
	}
	if err := setHost(l.Left, left); err != nil {
		return err
	}
	if err := setHost(l.Right, right); err != nil {
		return err
	}
	if t.initcwnd > 0 {
		return l.Left.Do(func() error { return setInitcwnd(l.Right.Addr(), t.initcwnd) })
	}
	return nil
}

func setHost(host *lab.Host, settings []hosts.Setting) error {
	return host.Do(func() error {
		for _, s := range settings {
			if err := hosts.SetSysctl(s.Name, s.Value); err != nil {
				return fmt.Errorf("set %s: %w", s.Name, err)
			}
		}
		return nil
	})
}

// slow limits the processor time of a running command until its lab is closed, if share is
// positive.
func (h *harness) slow(share float64, name string, cmd *lab.Cmd) error {
	if share == 0 {
		return nil
	}
	q, err := newQuota(name+"-"+strconv.Itoa(os.Getpid()), share)
	if err != nil {
		return err
	}
	// The group can be removed only when its processes are gone, so the lab is closed first.
	h.undos = slices.Insert(h.undos, 0, q.remove)
	return q.hold(cmd.Process.Pid)
}

// compete lets others use the line until the trial ends, and gives them time to fill it.
func (h *harness) compete(ctx context.Context, l *lab.Lab, others lab.Cross) error {
	traffic, err := l.StartCross(others)
	if err != nil {
		return err
	}
	h.later(func() error { return traffic.Stop().Err })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(othersFirst):
		return nil
	}
}

// transfer runs c, and stops it after a while. It returns the output of c.
func (h *harness) transfer(ctx context.Context, t *trial, c hosts.Command, cpu float64) (string, error) {
	var release io.WriteCloser
	if cpu > 0 { // fxfer looks at its control group when it starts, so it has to be in it before
		c.Argv = slices.Concat([]string{"sh", "-c", `read -r go; exec "$@"`, "sh"}, c.Argv)
	}
	cmd := h.Prepare(ctx, c)
	var stdout, stderr hosts.Output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cpu > 0 {
		var err error
		if release, err = cmd.StdinPipe(); err != nil {
			return "", err
		}
	}
	if t.stdin > 0 {
		r, w, err := os.Pipe()
		if err != nil {
			return "", err
		}
		defer r.Close()
		cmd.Stdin = r
		go feed(w, t.bytes, t.stdin)
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var exit error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit = cmd.Wait()
	}()
	stop := func() { cmd.Stop(ended, stopGrace) }
	if err := h.slow(cpu, "client", cmd); err != nil {
		stop()
		return "", err
	}
	if release != nil {
		if _, err := io.WriteString(release, "\n"); err != nil {
			stop()
			return "", err
		}
	}
	select {
	case <-ended:
	case <-time.After(runLimit):
		stop()
		return stdout.String(), errors.New("it took too long")
	case <-ctx.Done():
		stop()
	}
	if exit != nil {
		exit = c.Failure(exit, &stderr)
	}
	return stdout.String(), exit
}

// feed writes n bytes at a rate, and closes w.
func feed(w io.WriteCloser, n, bytesPerSecond int64) {
	defer w.Close()
	chunk := make([]byte, 64*kib)
	begin := time.Now()
	for done := int64(0); done < n; {
		time.Sleep(time.Until(begin.Add(spell(int(done), bytesPerSecond))))
		part := chunk[:min(int64(len(chunk)), n-done)]
		if _, err := w.Write(part); err != nil {
			return // the reader is gone
		}
		done += int64(len(part))
	}
}

// build compiles fxfer into the folder.
func (h *harness) build(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", h.Abs("fxfer"), "./cmd/fxfer")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build fxfer: %w", err)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it inside the module: go run ./tests/diagnose")
	}
	return filepath.Dir(mod), nil
}
