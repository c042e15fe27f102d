// Command bench compares fxfer with the limit of emulated lines, with iperf3 and with other
// programs. It writes docs/evidence/benchmarks.md and its charts. It needs Linux, root, iperf3 and
// b3sum. Other programs take part if they are installed.
//
// The grids neighbours and window show what somebody who sends does to others on the line. They take
// hours and run only when they are named. They write neighbours.md and window.md. The grids deadline,
// budget, branch and fleet run only when they are named, too. They write deadline.md, host.md, branch.md
// and fleet-line.md.
//
//	go run ./tests/bench [-grid seeds|rtt|loss|short|narrow|host|trees|transports] [-rows REGEXP] [-reps N] [-privileged=false] [-quick]
//	go run ./tests/bench -grid neighbours|window|window-alone|window-beside|window-low|window-troubles|window-rate [-rows REGEXP] [-reps N] [-seconds N] [-before PROGRAM] [-quick]
//	go run ./tests/bench -grid deadline|budget|branch|fleet [-reps N] [-quick]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := benchmark(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
		os.Exit(1)
	}
}

func benchmark() (err error) {
	alone := []string{deadlineGrid, budgetGrid, branchGrid, fleetGrid}
	var names []string
	for _, g := range grids {
		names = append(names, g.name)
	}
	gridName := flag.String("grid", "", "measure only this grid: "+strings.Join(slices.Concat(names, []string{"neighbours", "window"}, alone), ", ")+" or a part of window, such as window-low")
	rows := flag.String("rows", "", "measure only the rows whose name matches this `regexp`; the report goes to standard output, but rows of window into its page, and those of neighbours make theirs anew")
	reps := flag.Int("reps", 0, "repeat so `often` instead of as often as the grid says")
	quick := flag.Bool("quick", false, "see whether everything works: small files, single runs; the report goes to standard output")
	seconds := flag.Int("seconds", 20, "neighbours, window: how many seconds of data a run has")
	before := flag.String("before", "", "neighbours: an older fxfer `program` that takes part")
	privileged := flag.Bool("privileged", true, "measure fxfer with CAP_NET_ADMIN as well")
	flag.Parse()
	pattern, err := regexp.Compile(*rows)
	if *quick {
		*seconds = quickSeconds
	}
	shared := slices.DeleteFunc(sharings(time.Duration(*seconds)*time.Second, *before != ""), func(g sharing) bool { return !g.named(*gridName) })
	switch {
	case err != nil:
		return fmt.Errorf("-rows: %w", err)
	case *gridName != "" && !slices.Contains(alone, *gridName) && !slices.Contains(names, *gridName) && len(shared) == 0:
		return fmt.Errorf("-grid: there is no %q, but %s, neighbours, window, %s", *gridName, strings.Join(names, ", "), strings.Join(alone, ", "))
	case *seconds < 1:
		return errors.New("-seconds: at least 1 is needed")
	case flag.NArg() > 0:
		return fmt.Errorf("%q is one argument too many", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	f, err := newFolder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Remove()) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", f.Abs("fxfer"), "./cmd/fxfer")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build fxfer: %w", err)
	}

	b := &bench{folder: f, quick: *quick, reps: *reps, netAdmin: *privileged, say: progress(time.Now())}
	if *before != "" {
		if err := b.takeOlder(*before); err != nil {
			return fmt.Errorf("-before: %w", err)
		}
	}
	evidence := filepath.Join(root, "docs", "evidence")
	if slices.Contains(alone, *gridName) {
		if *quick || *rows != "" {
			evidence = ""
		}
		var page, text string
		switch *gridName {
		case budgetGrid:
			return b.writeBudget(ctx, evidence)
		case branchGrid:
			page = "branch.md"
			text, err = b.branches(ctx, pattern)
		case fleetGrid:
			page = "fleet-line.md"
			text, err = b.fleets(ctx, pattern)
		case deadlineGrid:
			page = "deadline.md"
			text, err = b.deadlines(ctx, max(1, *reps))
		}
		if err != nil {
			return err
		}
		if evidence == "" {
			fmt.Println(text)
			return nil
		}
		return os.WriteFile(filepath.Join(evidence, page), []byte(text), 0o644)
	}
	for i := range shared {
		docs := evidence
		if *quick {
			docs = ""
		}
		if err := b.shareAll(ctx, &shared[i], pattern, docs); err != nil {
			return err
		}
	}
	for i := range grids {
		g := &grids[i]
		if *gridName != "" && g.name != *gridName {
			continue
		}
		m, err := describeMachine(time.Now())
		if err != nil {
			return fmt.Errorf("describe the machine: %w", err)
		}
		var results []result
		for _, sc := range g.scenarios {
			sc.tests = slices.DeleteFunc(slices.Clone(sc.tests), func(t test) bool { return !pattern.MatchString(sc.rowName(t)) })
			if len(sc.tests) > 0 {
				results = append(results, b.scenario(ctx, sc, g.measure)...)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if len(results) == 0 {
			continue
		}
		section := strings.ReplaceAll(renderSection(g, &m, results), f.Path+"/", "")
		if *quick || *rows != "" {
			fmt.Println(section)
			continue
		}
		if err := write(evidence, g, section, renderChart(g, results), names); err != nil {
			return err
		}
	}
	return nil
}

// write puts the section of a grid into the document and writes its chart beside it.
func write(docs string, g *grid, section, chart string, all []string) error {
	if err := os.MkdirAll(docs, 0o755); err != nil {
		return err
	}
	path := filepath.Join(docs, "benchmarks.md")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.WriteFile(path, []byte(replaceSection(string(old), intro, g.name, section, all)), 0o644),
		os.WriteFile(filepath.Join(docs, chartName(g.name)), []byte(chart), 0o644))
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it inside the module: go run ./tests/bench")
	}
	return filepath.Dir(mod), nil
}

// progress returns a function that prints a line on standard error, with the time since begin.
func progress(begin time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}
