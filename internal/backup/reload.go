package backup

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// change is the difference between two files of jobs.
type change struct {
	end   []*Job // they are gone, or changed
	begin []*Job // they are new, or changed
}

// changeOf compares the jobs by their YAML.
func changeOf(before, after []*Job) (c change) {
	named := func(jobs []*Job) map[string]*Job {
		m := make(map[string]*Job, len(jobs))
		for _, j := range jobs {
			m[j.Name] = j
		}
		return m
	}
	old, now := named(before), named(after)
	for _, j := range before {
		if x := now[j.Name]; x == nil || x.source != j.source {
			c.end = append(c.end, j)
		}
	}
	for _, j := range after {
		if x := old[j.Name]; x == nil || x.source != j.source {
			c.begin = append(c.begin, j)
		}
	}
	return c
}

// jobLoop is the handle of the goroutine that keeps one job.
type jobLoop struct {
	end  context.CancelFunc // ends keeping after the present run
	over chan struct{}      // closed when it has ended
}

// jobLoops keep the jobs of the present file. One goroutine uses them.
type jobLoops struct {
	*Daemon
	jobs   []*Job
	byName map[string]*jobLoop // the last loop of each name
	all    sync.WaitGroup
	seen   string // stamp of the file at the last look
	read   string // stamp of the file when it was last read
}

// change replaces the jobs. It does not touch jobs that stay the same. A run under way ends with
// the settings that it began with, except for its priority.
func (k *jobLoops) change(ctx context.Context, jobs []*Job) change {
	c := changeOf(k.jobs, jobs)
	k.jobs = jobs
	k.priorities.follow(jobs)
	for _, j := range c.end {
		k.byName[j.Name].end()
	}
	for _, j := range c.begin {
		k.begin(ctx, j)
	}
	return c
}

// begin starts to keep a job as soon as the previous goroutine for that name has ended.
func (k *jobLoops) begin(ctx context.Context, j *Job) {
	before := k.byName[j.Name]
	waiting, end := context.WithCancel(ctx)
	now := &jobLoop{end: end, over: make(chan struct{})}
	k.byName[j.Name] = now
	k.all.Go(func() {
		defer close(now.over)
		defer end()
		if before != nil {
			<-before.over
		}
		var both sync.WaitGroup
		both.Go(func() { k.keep(ctx, waiting, j) })
		if j.Verify != nil {
			both.Go(func() { k.keepVerified(ctx, waiting, j) })
		}
		both.Wait()
	})
}

// look reads the file of jobs again if it has changed since it was read, but not since the last
// look: until then it may be half written. If asked is true, look reads the file anyway. A faulty
// file changes nothing.
func (k *jobLoops) look(ctx context.Context, asked bool) {
	now := stamp(k.Config.Path)
	same := now == k.seen
	k.seen = now
	if !asked && (!same || now == k.read) {
		return
	}
	k.read = now
	config, err := Load(k.Config.Path)
	if err != nil {
		k.Log.Error("the file of jobs is refused, and the jobs stay as they are", "error", err)
		return
	}
	c := k.change(ctx, config.Jobs)
	if asked || len(c.end)+len(c.begin) > 0 {
		k.Log.Info("the file of jobs is read again", "jobs", len(config.Jobs), "ended", names(c.end), "begun", names(c.begin))
	}
}

func names(jobs []*Job) []string {
	all := make([]string, 0, len(jobs))
	for _, j := range jobs {
		all = append(all, j.Name)
	}
	return all
}

// stamp returns a text that changes whenever the file changes.
func stamp(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}
