package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// cost is what something takes on this machine: seconds on free processors, and CPU seconds.
type cost struct {
	Wall       float64 `json:"wall"`
	Worker     float64 `json:"worker_cpu"`
	Server     float64 `json:"server_cpu"`
	Controller float64 `json:"controller_cpu"`
}

func (c cost) times(n float64) cost {
	return cost{c.Wall * n, c.Worker * n, c.Server * n, c.Controller * n}
}

func (c cost) plus(d cost) cost {
	return cost{c.Wall + d.Wall, c.Worker + d.Worker, c.Server + d.Server, c.Controller + d.Controller}
}

// times are service times in seconds, and sizes in bytes. At the queue, those without Alone are of a
// busy one: the time from the end of one to the end of the next.
type times struct {
	AddAlone   float64 `json:"queue_add_alone"`
	AddPath    float64 `json:"queue_add_path_alone"` // for each path in its list
	Add        float64 `json:"queue_add"`
	BeginAlone float64 `json:"queue_begin_alone"`
	BeginPath  float64 `json:"queue_begin_path_alone"`
	Begin      float64 `json:"queue_begin"`
	Renew      float64 `json:"queue_renew"`
	EndAlone   float64 `json:"queue_end_alone"`
	End        float64 `json:"queue_end"`
	RecordPut  float64 `json:"queue_record"`
	Controller float64 `json:"controller_record"`
	Clear      float64 `json:"controller_clear_list"`

	MemoryBase     float64 `json:"memory_base"`
	MemoryPerShard float64 `json:"memory_per_shard"`
	MemoryPerJob   float64 `json:"memory_per_job"`

	List   float64 `json:"list_file"`
	Shard  cost    `json:"shard"`  // beside its files
	File   cost    `json:"file"`   // a small file that is sent
	Same   cost    `json:"same"`   // a file that is in place, in a shard
	Byte   cost    `json:"byte"`   // of a large file
	Finish cost    `json:"finish"` // for each file, by the last task

	Left float64 `json:"processors_left"` // by others, while it was measured
}

// task is what one task took.
type task struct {
	kind fleet.Kind
	cost
	left float64 // processors that others left
}

// tasksOf pairs the events of one worker.
func tasksOf(events []event) (all []task) {
	began := map[string]event{}
	for _, e := range events {
		b, ok := began[e.key]
		switch {
		case e.begins:
			began[e.key] = e
		case ok:
			wall := e.at.Sub(b.at).Seconds()
			all = append(all, task{e.kind, cost{wall, e.worker - b.worker, e.server - b.server, e.controller - b.controller}, (e.left - b.left) / max(wall, 1e-3)})
		}
	}
	return all
}

// processors is what both ends of a transfer share here.
const processors = 2

// sum adds up what the tasks of a kind took, as if the processors had been free. While others have some
// of them, everything takes longer.
func sum(all []task, kind fleet.Kind) (c cost, n int) {
	var of []task
	for _, t := range all {
		if t.kind == kind {
			c, of = c.plus(t.cost), append(of, t)
		}
	}
	c.Wall *= min(1, left(of)/processors)
	return c, len(of)
}

// left returns how many processors others left while tasks ran, on average.
func left(all []task) float64 {
	wall, seconds := 0.0, 0.0
	for _, t := range all {
		wall, seconds = wall+t.Wall, seconds+t.Wall*t.left
	}
	return seconds / max(wall, 1e-9)
}

// fit solves for what a shard takes and what each of its files takes, from two sizes of shards.
func fit(few cost, fewShards int, many cost, manyShards int, files float64) (shard, file cost) {
	line := func(few, many float64) (shard, file float64) {
		shard = max(0, (many-few)/float64(manyShards-fewShards))
		return shard, max(0, (few-shard*float64(fewShards))/files)
	}
	shard.Wall, file.Wall = line(few.Wall, many.Wall)
	shard.Worker, file.Worker = line(few.Worker, many.Worker)
	shard.Server, file.Server = line(few.Server, many.Server)
	shard.Controller, file.Controller = line(few.Controller, many.Controller)
	return shard, file
}

// measureTransfers measures what a worker does.
func (s *site) measureTransfers(ctx context.Context, size sizes, t *times, say func(string, ...any)) error {
	for _, dir := range []string{"few", "many"} {
		if err := plant(s.source(dir), size.files); err != nil {
			return err
		}
	}
	if err := fill(s.source("large"), size.larges, size.large); err != nil {
		return err
	}
	began, listed, before := time.Now(), 0, s.leftSeconds()
	for listed < size.listed {
		err := fxfer.ListSource(ctx, s.source("few"), fxfer.Selection{}, func(fxfer.SourceFile) error { listed++; return nil })
		if err != nil {
			return err
		}
	}
	took := time.Since(began).Seconds()
	t.List = took / float64(listed) * min(1, (s.leftSeconds()-before)/took)

	fewOpt, manyOpt := fleet.Options{ShardFiles: int64(size.files / 2)}, fleet.Options{ShardFiles: int64(size.files / size.shards)}
	var few, many [2]cost // of the shards, first and again
	var shards [2]int
	var done []task
	for again := range 2 {
		for i, opt := range []fleet.Options{fewOpt, manyOpt} {
			name := []string{"few", "many"}[i]
			events, err := s.job(ctx, name, 1, opt)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all := tasksOf(events)
			done = append(done, all...)
			c, n := sum(all, fleet.Send)
			*[]*cost{&few[again], &many[again]}[i], shards[i] = c, n
			if i == 0 {
				finish, _ := sum(all, fleet.Finish)
				t.Finish = finish.times(1 / float64(size.files))
			}
			say("%s, %d shards: %.2f s on free processors, %.2f + %.2f CPU seconds", name, n, c.Wall, c.Worker, c.Server)
		}
	}
	t.Shard, t.File = fit(few[0], shards[0], many[0], shards[1], float64(size.files))
	_, t.Same = fit(few[1], shards[0], many[1], shards[1], float64(size.files))

	events, err := s.job(ctx, "large", 1, fleet.Options{ShardBytes: size.large})
	if err != nil {
		return fmt.Errorf("large files: %w", err)
	}
	all := tasksOf(events)
	t.Left = left(append(done, all...))
	c, n := sum(all, fleet.Send)
	say("%d shards of %.1f GB: %.2f s on free processors, %.2f + %.2f CPU seconds", n, float64(size.large)/1e9, c.Wall, c.Worker, c.Server)
	t.Byte = c.times(1 / float64(n) / float64(size.large))
	return nil
}

// sizes are how much is measured.
type sizes struct {
	queue  int // tasks
	held   int // shards that a controller holds, ten times as many as jobs
	files  int // of a tree of small ones
	shards int // of that tree, if these are small
	listed int
	larges int
	large  int64
	check  []int // files of the trees that real fleets send
	reps   int   // of each
}

var (
	full  = sizes{queue: 1000, held: 20_000, files: 20_000, shards: 100, listed: 400_000, larges: 4, large: 1 << 30, check: []int{20_000, 200_000}, reps: 1}
	quick = sizes{queue: 200, held: 2000, files: 4000, shards: 20, listed: 20_000, larges: 2, large: 64 << 20, check: []int{4000}, reps: 1}
)
