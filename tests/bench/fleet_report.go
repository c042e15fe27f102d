package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// fleetMixed is the name of a row.
const fleetMixed = "a mixed tree"

// fleets runs those rows of the grid fleet whose names match, and returns its page.
func (b *bench) fleets(ctx context.Context, rows *regexp.Regexp) (text string, err error) {
	m, err := describeMachine(time.Now())
	if err != nil {
		return "", err
	}
	size := &wholeFleet
	if b.quick {
		size = &quickFleet
	}
	if err := b.keep(ctx, []payload{size.load}); err != nil {
		return "", err
	}
	s, err := newStar(ctx, b.folder, size)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var runs []fleetRun
	for _, n := range []int{1, 2, 4, 8} {
		if !rows.MatchString(fleetName(n)) {
			continue
		}
		r := s.run(ctx, size, n)
		b.say("%s: %s", fleetName(n), orError(fmt.Sprintf("%.1f s, %s on the line", r.took.Seconds(), showRate(r.rate)), r.failed))
		if err := ctx.Err(); err != nil {
			return "", err
		}
		runs = append(runs, r)
	}
	var beside []fleetNeighbours
	for _, p := range fleetPriorities {
		for _, flows := range []int{1, 8} {
			n := fleetNeighbours{priority: p, flows: flows}
			if !rows.MatchString(n.name()) {
				continue
			}
			s.beside(ctx, size, &n)
			b.say("%s: %s", n.name(), orError(fmt.Sprintf("they keep %s of %s", showRate(n.flow), showRate(n.alone)), n.failed))
			if err := ctx.Err(); err != nil {
				return "", err
			}
			beside = append(beside, n)
		}
	}
	var mixed *mixedResult
	if rows.MatchString(fleetMixed) {
		r := s.mixed(ctx, size)
		b.say("%s: %s", fleetMixed, orError(fmt.Sprintf("%.1f s, again %.1f s, %d differences", r.took.Seconds(), r.again.Seconds(), strings.Count(r.differences, "\n")), r.failed))
		mixed = &r
	}
	return fleetReport(size, runs, beside, mixed, &m), ctx.Err()
}

// fleetName is the name of the row of n workers.
func fleetName(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// fleetReport is the page.
func fleetReport(size *fleetSize, runs []fleetRun, beside []fleetNeighbours, mixed *mixedResult, m *machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A fleet on a shared line\n\n"+
		"`go run ./tests/bench -grid fleet`, run as root on an idle machine, writes this page. Eight hosts\n"+
		"have lines of %s × 2 ms to a host in the middle, and share the one from there to the server, of\n"+
		"%s × 18 ms. Each line has a queue of one bandwidth-delay product. On each host runs\n"+
		"`fxfer fleet worker`, and beside the server the controller. Everything is as by default, but for\n"+
		"shards of %s.\n\n## How much more sends more\n\n", showRate(float64(size.leg)), showRate(float64(size.trunk)), showSize(size.shardBytes))
	rows := [][]string{{"", "whole job", "goodput of that", "on the line while sending", "of what the lines allow", "× one worker"}}
	var failures, paused []string
	note := func(name string, failed error, stood time.Duration) {
		if failed != nil {
			failures = append(failures, name+": "+failed.Error())
		}
		if stood > longPause {
			paused = append(paused, fmt.Sprintf("%s: the machine stood still for %.1f s", name, stood.Seconds()))
		}
	}
	one := 0.0
	for i := range runs {
		r := &runs[i]
		note(fleetName(r.workers), r.failed, r.paused)
		if r.failed != nil {
			continue
		}
		if r.workers == 1 {
			one = r.rate
		}
		row := []string{fleetName(r.workers), fmt.Sprintf("%.1f s", r.took.Seconds()), showRate(float64(r.bytes) * 8 / r.took.Seconds()), showRate(r.rate), fmt.Sprintf("%.3f", r.rate/size.allowed(r.workers)), "–"}
		if one > 0 {
			row[5] = fmt.Sprintf("%.2f", r.rate/one)
		}
		rows = append(rows, row)
	}
	table(&b, rows)
	fmt.Fprintf(&b, "\nThe tree is %d files of %s. \"On the line\" is with the framing of Ethernet, between the first and\n"+
		"the last 5 %% of what is sent. The goal is the lines of the workers, and 0.93 of the shared one.\n", size.load.files, showSize(size.load.size))
	if len(beside) > 0 {
		fmt.Fprintf(&b, "\n## What neighbours keep\n\n"+
			"Cubic flows from the host in the middle are on the shared line before. For the 8 workers, the line\n"+
			"is one with a priority, such as `--line wan=1gbit,low`. Rates are on the line.\n\n")
		rows := [][]string{{"priority", "cubic flows", "they have alone", "beside the fleet", "they keep", "the fleet has"}}
		for i := range beside {
			n := &beside[i]
			note(n.name(), n.failed, n.paused)
			if n.failed == nil {
				rows = append(rows, []string{string(n.priority), strconv.Itoa(n.flows), showRate(n.alone), showRate(n.flow), fmt.Sprintf("%.2f", n.flow/n.alone), showRate(n.rate)})
			}
		}
		table(&b, rows)
		fmt.Fprintf(&b, "\nThe flows are measured for %v, %v after they began, and again for %v, %v after the job\n"+
			"was submitted, which is cancelled then.\n", flowAlone, flowSettles, fleetBeside, fleetSettles)
	}
	if mixed != nil {
		fmt.Fprintf(&b, "\n## A tree with everything in it\n\n")
		if mixed.failed != nil {
			failures = append(failures, fleetMixed+": "+mixed.failed.Error())
		} else {
			differences := "Both times rsync sees **no difference** (`rsync -aHAXn --delete -i`).\n"
			if mixed.differences != "" {
				differences = fmt.Sprintf("rsync sees differences (`rsync -aHAXn --delete -i`):\n\n```text\n%s```\n", mixed.differences)
			}
			fmt.Fprintf(&b, "%s files of %s, ten of them sparse, and %s hard links to other folders, with `--delete` to a\n"+
				"target that has a hundred files more: 8 workers need **%.1f s**. Then one file of a hundred\n"+
				"changes or goes, a folder becomes a file, and a sparse file is cut: **%.1f s**. %s\n"+
				"On their disks the source takes %s, and the target %s.\n",
				showCount(mixed.files), showSize(mixed.bytes), showCount(mixed.links), mixed.took.Seconds(), mixed.again.Seconds(), differences, showSize(mixed.source), showSize(mixed.target))
		}
	}
	if len(failures) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n\n%s", bullets(failures))
	}
	if len(paused) > 0 {
		fmt.Fprintf(&b, "\nThe machine was busy:\n\n%s", bullets(paused))
	}
	fmt.Fprintf(&b, "\n%s\n", m)
	return b.String()
}

// allowed is what the lines allow for so many workers, in bit/s on the wire.
func (size *fleetSize) allowed(workers int) float64 {
	return float64(min(int64(workers)*size.leg, size.trunk))
}
