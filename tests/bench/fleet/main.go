// Command fleet says how far a fleet scales: it measures service times on this machine, and simulates
// fleets with them in virtual time, of up to a thousand workers and a billion files. It also has real
// fleets of a few workers send, and compares. It writes docs/evidence/fleet.md, its charts, and what
// was measured as fleet.json. It needs Linux.
//
//	go run ./tests/bench/fleet             # measures and simulates: half an hour
//	go run ./tests/bench/fleet -simulate   # simulates with what fleet.json has
//	go run ./tests/bench/fleet -quick      # shows whether everything works; prints the page
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

func main() {
	if err := evidence(); err != nil {
		fmt.Fprintf(os.Stderr, "fleet: error: %v\n", err)
		os.Exit(1)
	}
}

// measurement is what was measured, as docs/evidence/fleet.json has it.
type measurement struct {
	Machine string    `json:"machine"`
	Times   times     `json:"times"`
	Checks  []checked `json:"checks"`

	found map[string][]bottleneck // by tree and pass
}

func evidence() error {
	small := flag.Bool("quick", false, "see whether everything works: little is measured, and the page goes to standard output")
	simulate := flag.Bool("simulate", false, "measure nothing: take the figures of docs/evidence/fleet.json")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is one argument too many", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	docs := filepath.Join(root, "docs", "evidence")
	m := new(measurement)
	if *simulate {
		text, err := os.ReadFile(filepath.Join(docs, "fleet.json"))
		if err == nil {
			err = json.Unmarshal(text, m)
		}
		if err != nil {
			return err
		}
	} else {
		size := full
		if *small {
			size = quick
		}
		if err := m.take(ctx, root, size); err != nil {
			return err
		}
	}
	page, charts := report(m)
	if *small {
		fmt.Println(page)
		return nil
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	files := map[string]string{"fleet.md": page, "fleet.json": string(text) + "\n"}
	for name, text := range charts {
		files[name] = text
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, name), []byte(text), 0o644))
	}
	return err
}

// take measures.
func (m *measurement) take(ctx context.Context, root string, size sizes) (err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	dir, err := os.MkdirTemp("", "fxfer-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "fxfer")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/fxfer")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build fxfer: %w", err)
	}
	s, err := newSite(ctx, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	q, err := openQueue(ctx, s)
	if err != nil {
		return err
	}
	defer q.conn.Close()
	if err := q.measure(ctx, size.queue, &m.Times); err != nil {
		return err
	}
	if err := s.measureMemory(ctx, size.held, size.held/10, &m.Times); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	say("the queue is measured")
	if err := s.measureTransfers(ctx, size, &m.Times, say); err != nil {
		return err
	}
	m.Machine = hosts.Describe(began)
	m.Checks, err = s.check(ctx, size, &m.Times, say)
	return err
}
