package main

import "math"

// What the fleet does by default (internal/fleet/list.go and controller.go). Files are not cut into
// ranges here.
const (
	shardBytes   = 32e9
	shardFiles   = 20_000
	shardsOfSize = 50_000
	maxList      = 64 << 20
	lease        = 30.0 // s; a worker renews it five times as often
)

// resource is something that a pass may wait for.
type resource int

// The resources.
const (
	listing     resource = iota // the one worker that lists
	queueing                    // JetStream: one thing after the other, each synced to the disk
	counting                    // the controller: one record after the other
	working                     // the workers' processors
	workerLines                 // the line of each worker
	sharedLine                  // the line to the server
	serving                     // the server's processors
	finishing                   // the one worker that compares all at the end
	resources
)

// fleetModel is a fleet and its pass. Rates are in bytes/s.
type fleetModel struct {
	times
	workers    int
	files      int64
	bytes      int64
	names      float64 // bytes of a path in a list
	changed    float64 // part of the files that is sent, 0 to 1
	workerLine float64
	line       float64
	processors float64 // of the server
	together   bool    // workers and controller run on the server's processors, too
	shardBytes int64   // 0: as by default
	shardFiles int64
	faster     [resources]float64 // than it is; 0: 1
}

// pass is what became of a pass. Times are in seconds since its begin.
type pass struct {
	total     float64
	listed    float64 // the list has ended
	sent      float64 // the last shard has ended
	counted   float64 // the controller has noted that
	clear     float64 // so long the controller removes lists afterwards
	shards    int
	sentFiles int64
	sentBytes int64
	backlog   int                // most shards that waited for a worker
	uncounted int                // most records that waited for the controller
	busy      [resources]float64 // part of the pass for which a resource was busy
	overload  bool               // renewing leases takes all of the queue
	memory    float64            // of the controller, bytes
	lists     float64            // bytes of lists on the controller's disk
}

// run is a pass in virtual time.
type run struct {
	*fleetModel
	pass
	now    float64
	seq    int
	events events // that come at a time

	// Transfers share the line and the processors: all go at the same part of the speed that they have
	// alone. done is what one has done that was there from the begin, in seconds of its lone speed.
	done        float64
	transfers   events // that come when done is so far
	bytesPerS   float64
	cpuPerS     float64
	queueFree   float64
	controlFree float64

	left      int64 // files to list
	perShard  int64 // files
	maxBytes  int64
	maxFiles  int64
	ready     []int64 // files of the shards that wait
	idle      int
	waiting   int // records that the controller has not seen
	listEnded bool
	endedAll  int // shards that the controller has counted
	finished  bool
	carry     float64 // changed files that were not sent yet
}

type happening struct {
	at  float64
	seq int // in order where at is the same
	do  func()
}

// before reports which of two comes first.
func (h *happening) before(other *happening) bool {
	return h.at < other.at || h.at == other.at && h.seq < other.seq
}

// events is a heap. container/heap would allocate for each.
type events []happening

func (e *events) push(h happening) {
	*e = append(*e, h)
	all := *e
	i := len(all) - 1
	for i > 0 && h.before(&all[(i-1)/2]) {
		all[i] = all[(i-1)/2]
		i = (i - 1) / 2
	}
	all[i] = h
}

func (e *events) pop() happening {
	all := *e
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = happening{}
	all = all[:len(all)-1]
	*e = all
	for i := 0; len(all) > 0; {
		child := 2*i + 1
		if child+1 < len(all) && all[child+1].before(&all[child]) {
			child++
		}
		if child >= len(all) || !all[child].before(&last) {
			all[i] = last
			break
		}
		all[i] = all[child]
		i = child
	}
	return first
}

// speed is by how much a resource is faster than what was measured.
func (m *fleetModel) speed(r resource) float64 {
	if m.faster[r] == 0 {
		return 1
	}
	return m.faster[r]
}

// simulate runs a pass.
func (m fleetModel) simulate() pass {
	r := &run{fleetModel: &m, idle: m.workers - 1, left: m.files, maxBytes: shardBytes, maxFiles: shardFiles}
	if m.shardBytes > 0 {
		r.maxBytes = m.shardBytes
	}
	if m.shardFiles > 0 {
		r.maxFiles = m.shardFiles
	}
	r.queue(m.Begin, m.BeginAlone, r.list) // the first worker lists
	for !r.finished {
		r.step()
	}
	r.total = r.now
	for i := range r.busy {
		r.busy[i] /= r.total
	}
	r.clear = float64(r.shards) * m.Clear
	r.memory = m.MemoryBase + float64(r.shards)*m.MemoryPerShard
	return r.pass
}

// step goes to the next event.
func (r *run) step() {
	part := r.part()
	at := math.Inf(1)
	if len(r.transfers) > 0 {
		at = r.now + max(0, r.transfers[0].at-r.done)/part
	}
	ended := len(r.events) == 0 || at < r.events[0].at
	if !ended {
		at = r.events[0].at
	}
	took := at - r.now
	r.now = at
	r.done += took * part
	r.busy[sharedLine] += took * r.bytesPerS * part / (r.line * r.speed(sharedLine))
	r.busy[serving] += took * r.cpuPerS * part / (r.processors * r.speed(serving))
	queue := &r.events
	if ended {
		queue = &r.transfers
		r.done = r.transfers[0].at
	}
	queue.pop().do()
}

// part is how fast transfers are, as part of their lone speed.
func (r *run) part() float64 {
	part := 1.0
	if r.bytesPerS > 0 {
		part = min(part, r.line*r.speed(sharedLine)/r.bytesPerS)
	}
	if r.cpuPerS > 0 {
		part = min(part, r.processors*r.speed(serving)/r.cpuPerS)
	}
	return part
}

// after calls do so much later.
func (r *run) after(seconds float64, do func()) {
	r.seq++
	r.events.push(happening{r.now + seconds, r.seq, do})
}

// transfer does something that takes so long alone, moves bytes and needs processors.
func (r *run) transfer(c cost, bytes float64, do func()) {
	cpu := c.Server
	if r.together {
		cpu += c.Worker + c.Controller
	}
	if c.Wall <= 0 || bytes == 0 && cpu == 0 {
		r.after(c.Wall, do)
		return
	}
	bytes, cpu = bytes/c.Wall, cpu/c.Wall
	r.bytesPerS += bytes
	r.cpuPerS += cpu
	r.seq++
	r.transfers.push(happening{r.done + c.Wall, r.seq, func() {
		r.bytesPerS -= bytes
		r.cpuPerS -= cpu
		if len(r.transfers) == 0 { // no rounding errors stay
			r.bytesPerS, r.cpuPerS = 0, 0
		}
		do()
	}})
}

// queue has JetStream do something, which takes it so long when it is busy. Whoever asks waits for at
// least alone.
func (r *run) queue(service, alone float64, do func()) {
	speed := r.speed(queueing)
	renewals := float64(r.workers-r.idle) * 5 / lease * r.Renew / speed
	if renewals > 0.95 {
		r.overload = true
		renewals = 0.95
	}
	service /= speed * (1 - renewals)
	start := max(r.now, r.queueFree)
	r.queueFree = start + service
	r.busy[queueing] += service
	r.after(max(r.queueFree, start+alone/speed)-r.now, do)
}

// next is how many files the next shard has. All files have the same size.
func (r *run) next() int64 {
	if r.shards > 0 && r.shards%shardsOfSize == 0 {
		r.maxBytes, r.maxFiles = 2*r.maxBytes, 2*r.maxFiles
	}
	n := min(r.maxFiles, r.left)
	if size := float64(r.bytes) / float64(r.files); size > 0 {
		n = min(n, max(1, int64(float64(r.maxBytes)/size)))
	}
	if r.names > 0 {
		n = min(n, int64(maxList/r.names))
	}
	return n
}

// list lists the next shard.
func (r *run) list() {
	n := r.next()
	if n == 0 {
		r.queue(r.End, r.EndAlone, func() {
			r.listed, r.listEnded = r.now, true
			r.control(func() { r.free() })
		})
		return
	}
	wall := float64(n) * r.List / r.speed(listing)
	r.busy[listing] += wall
	r.left -= n
	r.shards++
	r.transfer(cost{Wall: wall, Worker: wall}, 0, func() {
		paths := r.AddPath * float64(n)
		r.lists += float64(n) * r.names
		r.queue(r.Add+paths, r.AddAlone+paths, func() {
			r.ready = append(r.ready, n)
			r.backlog = max(r.backlog, len(r.ready))
			r.give()
			r.list()
		})
	})
}

// give gives shards to workers that are idle.
func (r *run) give() {
	for r.idle > 0 && len(r.ready) > 0 {
		n := r.ready[0]
		r.ready = r.ready[1:]
		r.idle--
		r.queue(r.Begin, r.BeginAlone+r.BeginPath*float64(n), func() { r.send(n) })
	}
}

// send sends a shard.
func (r *run) send(n int64) {
	files := float64(n)
	size := float64(r.bytes) / float64(r.files)
	r.carry += files * r.changed
	sent := int64(r.carry + 1e-6)
	r.carry -= float64(sent)
	bytes := float64(sent) * size
	c := r.Shard.plus(r.Same.times(files - float64(sent))).plus(r.File.times(float64(sent)))
	c.Worker += bytes * r.Byte.Worker
	c.Server += bytes * r.Byte.Server
	c.Wall = (c.Wall + bytes*r.Byte.Wall) / r.speed(working)
	if r.workerLine > 0 {
		c.Wall = max(c.Wall, bytes/(r.workerLine*r.speed(workerLines)))
		r.busy[workerLines] += bytes / (r.workerLine * r.speed(workerLines)) / float64(r.workers)
	}
	r.busy[working] += c.Wall / float64(r.workers)
	r.sentFiles += n
	r.sentBytes += int64(bytes)
	r.transfer(c, bytes, func() {
		r.queue(r.End, r.EndAlone, func() {
			r.sent = r.now
			r.control(func() { r.endedAll++ })
			r.free()
		})
	})
}

// free has a worker that is free.
func (r *run) free() {
	r.idle++
	r.give()
}

// control has the controller note a record.
func (r *run) control(then func()) {
	service := r.Controller / r.speed(counting)
	r.controlFree = max(r.now, r.controlFree) + service
	r.busy[counting] += service
	r.waiting++
	r.uncounted = max(r.uncounted, r.waiting)
	r.after(r.controlFree-r.now, func() {
		r.waiting--
		then()
		if r.listEnded && r.endedAll == r.shards && r.waiting == 0 {
			r.counted = r.now
			r.finish()
		}
	})
}

// finish has a worker compare everything.
func (r *run) finish() {
	c := r.Finish.times(float64(r.files) / r.speed(finishing))
	r.busy[finishing] += c.Wall
	r.queue(r.Begin, r.BeginAlone, func() {
		r.transfer(c, 0, func() {
			r.queue(r.End, r.EndAlone, func() {
				r.after(r.Controller/r.speed(counting), func() { r.finished = true })
			})
		})
	})
}
