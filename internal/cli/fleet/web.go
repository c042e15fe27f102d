package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// servePages serves metrics and dashboard of a controller until the returned function is called.
func servePages(c *cobra.Command, x *fleet.Controller, addr, version string) (ended func(), err error) {
	if err := os.MkdirAll(x.Dir, 0o700); err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	x.Monitor = new(fleet.Monitor)
	host, _ := os.Hostname()
	queue := "the queue is in this process"
	if x.External != nil {
		queue = "the queue is in " + x.External.String()
	}
	ask := func() *web.Fleet {
		f := shown(x.Monitor.Status())
		f.Host, f.Queue, f.At = host, queue, web.Milli(time.Now())
		return f
	}
	pages, err := web.ListenFleet(addr, ask, web.Options{Version: version, Home: x.Dir, Log: x.Log})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther, Err: err}, "another program uses this port: choose another one with --web")
	case err != nil:
		return nil, &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	fmt.Fprintf(c.ErrOrStderr(), "fxfer: dashboard on http://%s/, token in %s\n", pages.Addr(), filepath.Join(x.Dir, "web-token"))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pages.Serve(ctx); err != nil {
			x.Log.Error("metrics and dashboard", "error", err)
		}
	})
	return func() { cancel(); running.Wait() }, nil
}

// shown is the state of a fleet as its pages have it.
func shown(s *fleet.Status) *web.Fleet {
	f := &web.Fleet{
		Ready: s.Live, Written: s.Written, Retried: s.Retried, Jobs: []web.FleetJob{}, Workers: []web.FleetWorker{}, Dead: []web.FleetDead{},
		TaskEnds: make(map[string]map[string]int64), JobEnds: make(map[string]int64),
	}
	for _, state := range fleet.States() {
		f.States = append(f.States, string(state))
		if state.Ended() {
			f.JobEnds[string(state)] = s.JobsEnded[state]
		}
	}
	for _, kind := range fleet.Kinds() {
		f.TaskKinds = append(f.TaskKinds, string(kind))
		f.TaskEnds[string(kind)] = make(map[string]int64)
		for outcome, n := range s.Ended[kind] {
			f.TaskEnds[string(kind)][string(outcome)] = n
		}
	}
	for _, j := range s.Jobs {
		x := web.FleetJob{
			ID: j.ID, State: string(j.Shown()), Over: j.State.Ended(), Source: j.Source, URL: j.URL, Submitted: web.Milli(j.Submitted), Files: j.Files, Bytes: j.Bytes,
			Shards: j.Shards, Done: j.Done, Dead: j.Dead, Running: j.Running, Retrying: j.Waiting, Written: j.Written, Idle: j.Idle.Seconds(), Reason: j.Reason,
		}
		if j.Ended != nil {
			x.Ended = web.Milli(*j.Ended)
		}
		f.Jobs = append(f.Jobs, x)
	}
	for _, w := range s.Workers {
		f.Workers = append(f.Workers, web.FleetWorker{Name: w.Name, Began: web.Milli(w.Began), Task: w.Task, Since: web.Milli(w.Since), Written: w.Written})
	}
	for _, d := range s.Dead {
		f.Dead = append(f.Dead, web.FleetDead{Task: d.Task.Key(), Worker: d.Worker, Attempt: d.Attempt, At: web.Milli(d.At), Reason: d.Reason})
	}
	return f
}
