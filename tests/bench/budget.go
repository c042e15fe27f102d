package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	budgetGrid = "budget"
	budgetRuns = 5
)

// step is a part of the work on each byte.
type step int

const (
	stepRead step = iota
	stepDigest
	stepSeal
	stepCopyIn // into the socket
	stepStack  // of TCP, both directions
	stepCopyOut
	stepOpen
	stepWrite
	stepSync
	stepWake    // scheduling, waiting and waking up
	stepGarbage // allocation and collection
	stepRest
	steps
)

var stepNames = [steps]string{
	stepRead:    "read from the page cache",
	stepDigest:  "digest, BLAKE3",
	stepSeal:    "seal, AES-GCM",
	stepCopyIn:  "copy into the socket",
	stepStack:   "TCP stack",
	stepCopyOut: "copy out of the socket",
	stepOpen:    "open, AES-GCM",
	stepWrite:   "write into the page cache",
	stepSync:    "sync",
	stepWake:    "scheduler, futex, epoll",
	stepGarbage: "allocation, garbage collection",
	stepRest:    "rest of the program",
}

// costs are CPU seconds for each GB, by step.
type costs [steps]float64

func (c *costs) sum() (all float64) {
	for _, x := range c {
		all += x
	}
	return all
}

// budget is what a gigabyte over loopback costs, and what each step of it costs alone.
type budget struct {
	alone            costs
	sender, receiver costs
	machine          float64 // CPU seconds for each GB of the whole machine
	seconds          float64 // for each GB
	runs             int
}

// floor is what one GB costs at least: each step once, and the digest on both sides.
func (x *budget) floor() float64 { return x.alone.sum() + x.alone[stepDigest] }

// budget measures. size is what is sent, in bytes.
func (b *bench) budget(ctx context.Context, size int64, reps int) (x budget, err error) {
	load := payload{files: 1, size: size}
	if err := b.keep(ctx, []payload{load}); err != nil {
		return x, err
	}
	if x.alone, err = b.stepsAlone(ctx, b.Abs(b.loads[load].paths()[0]), size, reps); err != nil {
		return x, fmt.Errorf("steps alone: %w", err)
	}
	s, err := newStage(b.folder, scenario{})
	if err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	side := newFxfer(fxferName)
	if err := side.serve(ctx, s); err != nil {
		return x, err
	}
	e := entrant{contender: side.contender(), fxfer: side}
	once := func() (r run, err error) {
		if err := errors.Join(s.Empty("in"), s.warm(load.room())); err != nil {
			return r, err
		}
		c, err := e.transfer(ctx, s, b.loads[load], nil)
		if err != nil {
			return r, err
		}
		return b.move(ctx, s, &e, c, b.loads[load], watch{})
	}
	o := outcome{name: fxferName}
	for range reps {
		r, err := once()
		if err != nil {
			return x, err
		}
		b.say("fxfer: %.2f s, %.2f CPU seconds", r.seconds, r.sender+r.receiver)
		o.runs = append(o.runs, r)
	}
	samples, err := b.profile(ctx, func() error { _, err := once(); return err })
	if err != nil {
		return x, err
	}
	server := side.pair.Process.Cmd.Process.Pid
	gigabytes := float64(size) / gb
	share := func(of func(*sample) bool, seconds float64) costs { return distribute(samples, of, seconds/gigabytes) }
	x.sender = share(func(s *sample) bool { return s.comm == "fxfer" && s.pid != server }, o.median(func(r *run) float64 { return r.sender }))
	x.receiver = share(func(s *sample) bool { return s.pid == server }, o.median(func(r *run) float64 { return r.receiver }))
	x.machine, x.seconds, x.runs = o.cpu()/gigabytes, o.seconds()/gigabytes, reps
	return x, nil
}

// report is the document.
func (x *budget) report(m *machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`go run ./tests/bench -grid budget`, run as root on an idle machine, writes this section. One file\n"+
		"goes over loopback, between files in memory, encrypted and with digests. All figures are CPU\n"+
		"seconds for each GB.\n\n"+
		"\"Alone\" is the same step as a loop of its own, by one thread that does nothing else: what it\n"+
		"costs at least on this machine. TCP alone is 256 KiB a write over loopback, in clear. The\n"+
		"other columns are the time of the two processes, divided by the samples of perf.\n\n")
	rows := [][]string{{"step", "alone", "fxfer, sender", "fxfer, receiver", "fxfer ÷ alone"}}
	for i, name := range stepNames {
		sides := 1.0
		if step(i) == stepDigest {
			name, sides = name+", on each side", 2
		}
		ratio := ""
		if floor := sides * x.alone[i]; floor >= 0.005 {
			ratio = fmt.Sprintf("%.1f", (x.sender[i]+x.receiver[i])/floor)
		}
		rows = append(rows, []string{name, showCost(x.alone[i]), showCost(x.sender[i]), showCost(x.receiver[i]), ratio})
	}
	both := x.sender.sum() + x.receiver.sum()
	rows = append(rows, []string{"**together**", showCost(x.floor()), showCost(x.sender.sum()), showCost(x.receiver.sum()), fmt.Sprintf("%.1f", both/x.floor())})
	table(&b, rows)
	fmt.Fprintf(&b, "\nBoth processes: %.2f CPU s/GB; the whole machine: %.2f. One GB takes %.2f s.\n"+
		"Medians of %d runs.\n\n%s\n", both, x.machine, x.seconds, x.runs, m)
	return b.String()
}

// showCost leaves out what is too little to be seen.
func showCost(v float64) string {
	if v < 0.0005 {
		return "–"
	}
	return fmt.Sprintf("%.3f", v)
}

const budgetIntro = "# What a gigabyte costs a host\n"

// writeBudget measures, and writes its section of the page into the folder, or prints it where docs
// is "".
func (b *bench) writeBudget(ctx context.Context, docs string) error {
	m, err := describeMachine(time.Now())
	if err != nil {
		return err
	}
	size, reps := int64(4*gb), budgetRuns
	if b.quick {
		size, reps = 400*mb, 1
	}
	if b.reps > 0 {
		reps = b.reps
	}
	x, err := b.budget(ctx, size, reps)
	if err != nil {
		return err
	}
	m.tools = slices.DeleteFunc(m.tools, func(tool string) bool { return !strings.HasPrefix(tool, "Go ") })
	if docs == "" {
		fmt.Println(x.report(&m))
		return nil
	}
	page := filepath.Join(docs, "host.md")
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := replaceSection(string(old), budgetIntro, "budget", x.report(&m), []string{"budget"})
	return os.WriteFile(page, []byte(text), 0o644)
}
