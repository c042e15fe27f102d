package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

const (
	sampleEvery = 200 * time.Millisecond
	runLimit    = 10 * time.Minute
)

// run is the measurements of one transfer.
type run struct {
	seconds   float64
	projected bool    // stopped before its end; seconds is an estimate for the whole
	again     float64 // seconds of a second run with nothing left to do; 0 if there was none
	cpu       float64 // seconds of all processors of this machine
	sender    float64 // of these, seconds of the command
	receiver  float64 // and seconds of fxfer's server
	peak      int64   // most bytes of memory of the command
	sent      int64   // segments that the link got from left to right
	dropped   int64   // of these, dropped by the queue
	stdout    string
	summary   fxferLine // of fxfer, unless it was stopped
}

// watch decides at some time during a transfer whether it may continue, by an estimate of its total
// time.
type watch struct {
	after  time.Duration // 0 is never
	goOn   func(total float64) bool
	points func(stdout string) []point // reads what has arrived so far from the command's output; nil: look at the files in in/
}

// transfer runs a command that moves l into in/, and checks the files that arrived.
func (s *stage) transfer(ctx context.Context, c hosts.Command, l *load, w watch) (r run, err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := s.Prepare(ctx, c)
	var stdout, stderr hosts.Output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cpu, err := cpuSeconds()
	if err != nil {
		return r, err
	}
	before, _ := s.lab.Counters()
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	var exit error
	var took time.Duration
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit = cmd.Wait()
		took = time.Since(begin)
	}()

	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	var points []point
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-sample.C:
			r.peak = max(r.peak, peakMemory(cmd.Process.Pid))
			at := time.Since(begin)
			if w.after == 0 || at < w.after/2 { // looking takes time, so it is done only when it matters
				continue
			}
			points = append(points, point{at, s.landed()})
			if at < w.after {
				continue
			}
			w.after = 0
			if w.points != nil {
				points = w.points(stdout.String())
			}
			total, ok := projected(points, l.bytes())
			if ok && w.goOn(total.Seconds()) {
				continue
			}
			cmd.Stop(ended, stopGrace)
			if !ok {
				return r, fmt.Errorf("nothing arrived for %v", at/2)
			}
			r.projected, r.seconds = true, total.Seconds()
		}
	}

	after, _ := s.lab.Counters()
	busy, err := cpuSeconds()
	if err != nil {
		return r, err
	}
	r.cpu, r.sent, r.dropped, r.stdout = busy-cpu, after.Sent-before.Sent, after.Dropped-before.Dropped, stdout.String()
	switch {
	case r.projected:
		return r, nil
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case exit != nil:
		return r, c.Failure(exit, &stderr, &stdout)
	}
	r.seconds = took.Seconds()
	r.sender = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return r, s.arrived(l)
}
