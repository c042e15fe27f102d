package fleet

import "time"

// progress is what the records say about a job.
type progress struct {
	list, finish *Record           // nil without
	shards       map[string]*ended // by list
	open         map[place]begun   // tasks that were begun, and have not ended
	resumed      time.Time         // when the last pause ended, as far as this controller saw
}

// place is that of a task in its job.
type place struct {
	kind   Kind
	list   string
	number int
}

// begun is a task that was begun, and when JetStream got that record: clocks of workers may be wrong.
type begun struct {
	record *Record
	at     time.Time
}

// ended are the shards of a list that have ended.
type ended struct {
	dead  map[int]bool // of each
	count int          // of dead ones
}

// add takes a record that JetStream got at that time.
func (t *progress) add(p place, r *Record, at time.Time) {
	if r.Outcome == Ready || r.Outcome == Dead {
		delete(t.open, p)
	} else {
		if t.open == nil {
			t.open = make(map[place]begun)
		}
		t.open[p] = begun{r, at}
	}
	switch p.kind {
	case List:
		t.list = r
		return
	case Finish:
		t.finish = r
		return
	}
	if t.shards == nil {
		t.shards = make(map[string]*ended)
	}
	if t.shards[p.list] == nil {
		t.shards[p.list] = &ended{dead: make(map[int]bool)}
	}
	t.shards[p.list].add(p.number, r.Outcome)
}

// forget takes it back that there is a record of the list or of the last task.
func (t *progress) forget(p place) {
	delete(t.open, p)
	switch p.kind {
	case List:
		t.list = nil
	case Finish:
		t.finish = nil
	}
}

// add takes what became of a shard. It may have ended before: another worker had it, too, or it was dead
// and is tried again.
func (e *ended) add(number int, o Outcome) {
	if e.dead[number] {
		e.count--
	}
	if o != Ready && o != Dead {
		delete(e.dead, number)
		return
	}
	e.dead[number] = o == Dead
	if o == Dead {
		e.count++
	}
}

// has reports whether a shard has ended.
func (e *ended) has(number int) bool {
	_, has := e.dead[number]
	return has
}

// next decides what follows in a job. It returns the job as it is then, and a task to publish before
// that, or nil.
func next(j Job, t *progress, now time.Time) (Job, *Task) {
	task := func(k Kind, known *Record) *Task {
		if known != nil { // it was published before the job's record could be written
			return nil
		}
		return &Task{Version: Version, Job: j.ID, Kind: k}
	}
	switch j.State {
	case New:
		j.State = Listing
		return j, task(List, t.list)
	case Listing:
		switch {
		case t.list == nil:
		case t.list.Outcome == Dead:
			return j.end(Failed, t.list.Reason, now), nil
		case t.list.Outcome == Ready:
			j.State, j.List = Sending, t.list.List
			j.Shards, j.Files, j.Bytes = t.list.Shards, t.list.Files, t.list.Bytes
			return next(j, t, now)
		}
	case Sending:
		if e := t.shards[j.List]; e != nil {
			j.Done, j.Dead = len(e.dead)-e.count, e.count
		}
		if j.Done+j.Dead >= j.Shards {
			j.State = Finishing
			return j, task(Finish, t.finish)
		}
	case Finishing:
		switch {
		case t.finish == nil:
		case t.finish.Outcome == Dead:
			return j.end(Failed, t.finish.Reason, now), nil
		case t.finish.Outcome == Ready:
			return j.end(Done, "", now), nil
		}
	case Done, Failed, Cancelled:
	}
	return j, nil
}

// overdue returns the tasks of a job that should have been heard of again: a worker renews the record of
// what it does, and JetStream delivers again what a worker has given back, or holds no longer.
func overdue(j Job, t *progress, lease time.Duration, now time.Time) []*Task {
	var late []*Task
	for p, b := range t.open {
		task := &Task{Version: Version, Job: j.ID, Kind: p.kind, List: p.list, Number: p.number}
		expected := b.at.Add(3 * lease)
		if t.resumed.After(b.at) {
			expected = t.resumed.Add(3 * lease)
		}
		if b.record.Outcome == Waiting {
			expected = expected.Add(backoff(b.record.Attempt))
		}
		if wanted(task, &j) && now.After(expected) {
			late = append(late, task)
		}
	}
	return late
}

// unheard returns tasks of a job that nobody has begun, as far as records say.
func unheard(j Job, t *progress) []*Task {
	const most = 1000 // at a time; a record may claim any number of shards
	var all []*Task
	add := func(k Kind, list string, number int) {
		all = append(all, &Task{Version: Version, Job: j.ID, Kind: k, List: list, Number: number})
	}
	switch {
	case j.State == Listing && t.list == nil:
		add(List, "", 0)
	case j.State == Finishing && t.finish == nil:
		add(Finish, "", 0)
	case j.State == Sending:
		for n := 0; n < j.Shards && len(all) < most; n++ {
			_, open := t.open[place{Send, j.List, n}]
			if e := t.shards[j.List]; !open && (e == nil || !e.has(n)) {
				add(Send, j.List, n)
			}
		}
	}
	return all
}

// end returns the job as it ends.
func (j Job) end(s State, reason string, now time.Time) Job {
	j.State, j.Reason, j.Ended = s, reason, &now
	return j
}

// wanted reports whether a task is still of use to its job. A task is published before the job is in
// the state that it belongs to.
func wanted(t *Task, j *Job) bool {
	if j.Retries > j.Retried && j.State == Failed {
		return true
	}
	switch t.Kind {
	case List:
		return j.State == New || j.State == Listing
	case Send:
		return j.State == Listing || j.State == Sending && j.List == t.List
	case Finish:
		return j.State == Sending || j.State == Finishing
	}
	return false
}
