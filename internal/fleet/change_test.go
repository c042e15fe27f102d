package fleet

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		job     Job
		change  Change
		dead    int
		then    Job
		refused string
	}{
		"pause":                   {Job{State: Sending}, Pause, 0, Job{State: Sending, Paused: true}, ""},
		"pause again":             {Job{State: New, Paused: true}, Pause, 0, Job{State: New, Paused: true}, ""},
		"pause what has ended":    {Job{State: Done}, Pause, 0, Job{}, "it is done"},
		"resume":                  {Job{State: Finishing, Paused: true}, Resume, 0, Job{State: Finishing}, ""},
		"resume what is going on": {Job{State: Listing}, Resume, 0, Job{State: Listing}, ""},
		"resume what has ended":   {Job{State: Cancelled}, Resume, 0, Job{}, "it is cancelled"},
		"cancel":                  {Job{State: Sending}, Cancel, 0, Job{State: Cancelled, Ended: &now}, ""},
		"cancel what is paused":   {Job{State: Sending, Paused: true}, Cancel, 0, Job{State: Cancelled, Ended: &now}, ""},
		"cancel what has failed":  {Job{State: Failed}, Cancel, 0, Job{}, "it is failed"},
		"cancel a retry": {
			Job{State: Failed, Retries: 2, Retried: 1}, Cancel, 0,
			Job{State: Cancelled, Ended: &now, Retries: 2, Retried: 2}, "",
		},
		"retry what has failed":    {Job{State: Failed, Reason: "why"}, Retry, 1, Job{State: Failed, Reason: "why", Retries: 1}, ""},
		"retry twice at once":      {Job{State: Failed, Retries: 1}, Retry, 1, Job{State: Failed, Retries: 1}, ""},
		"retry once more":          {Job{State: Failed, Retries: 1, Retried: 1}, Retry, 1, Job{State: Failed, Retries: 2, Retried: 1}, ""},
		"retry shards":             {Job{State: Sending}, Retry, 1, Job{State: Sending, Retries: 1}, ""},
		"retry the first shards":   {Job{State: Listing}, Retry, 1, Job{State: Listing, Retries: 1}, ""},
		"retry what is not dead":   {Job{State: Sending}, Retry, 0, Job{}, "no dead shards"},
		"retry what is finishing":  {Job{State: Finishing}, Retry, 3, Job{}, "is finishing"},
		"retry what is done":       {Job{State: Done}, Retry, 3, Job{}, "it is done"},
		"retry what was cancelled": {Job{State: Cancelled}, Retry, 3, Job{}, "it is cancelled"},
		"another change":           {Job{State: Sending}, "other", 0, Job{}, "there is no change"},
	} {
		then, err := c.job.changed(c.change, c.dead, now)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused, name)
			require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.then, then, name)
	}
}

// Dead shards are published again, and where the list is of no use, the job begins anew.
func TestRevived(t *testing.T) {
	t.Parallel()
	ended := now.Add(-time.Hour)
	records := func(list, finish *Record) *progress {
		all := &progress{list: list, finish: finish}
		for i, o := range []Outcome{Ready, Dead, Running, Dead} {
			all.add(place{Send, "7-1", i}, &Record{Outcome: o}, now)
		}
		all.add(place{Send, "6-1", 9}, &Record{Outcome: Dead}, now)
		return all
	}
	listed := &Record{Outcome: Ready, List: "7-1"}
	failed := Job{State: Failed, Reason: "why", Ended: &ended, List: "7-1", Retries: 3, Retried: 2}
	for name, c := range map[string]struct {
		job      Job
		progress *progress
		state    State
		shards   []int
		forget   []Kind
	}{
		"the last task is dead": {failed, records(listed, &Record{Outcome: Dead}), Sending, []int{1, 3}, []Kind{Finish}},
		"no shard is":           {failed, &progress{list: listed, finish: &Record{Outcome: Dead}}, Sending, nil, []Kind{Finish}},
		"the list is dead":      {failed, records(&Record{Outcome: Dead}, nil), New, nil, []Kind{List, Finish}},
		"its records are gone":  {failed, new(progress), New, nil, []Kind{List, Finish}},
		"it is sending":         {Job{State: Sending, List: "7-1", Retries: 3}, records(listed, nil), Sending, []int{1, 3}, nil},
		"it is listed":          {Job{State: Listing, Retries: 3}, records(&Record{Outcome: Running}, nil), Listing, []int{1, 3, 9}, nil},
	} {
		c.job.ID = "j"
		then, shards, forget := revived(c.job, c.progress)
		require.Equal(t, c.state, then.State, name)
		require.Equal(t, 3, then.Retried, name)
		require.Nil(t, then.Ended, name)
		require.Empty(t, then.Reason, name)
		require.Equal(t, c.forget, forget, name)
		slices.SortFunc(shards, func(a, b *Task) int { return cmp.Compare(a.Number, b.Number) })
		var numbers []int
		for _, s := range shards {
			numbers = append(numbers, s.Number)
			require.NoError(t, s.check(taskPrefix+s.key()))
		}
		require.Equal(t, c.shards, numbers, name)
	}
}

// Before a job goes on, what is dead counts no more.
func TestForget(t *testing.T) {
	t.Parallel()
	job := Job{State: Sending, List: "7-1", Shards: 2}
	all := &progress{finish: &Record{Outcome: Dead}}
	all.add(place{Send, "7-1", 0}, &Record{Outcome: Ready}, now)
	all.add(place{Send, "7-1", 1}, &Record{Outcome: Dead}, now)
	all.forget(place{kind: Finish})
	all.add(place{Send, "7-1", 1}, &Record{Outcome: Waiting}, now)
	then, task := next(job, all, now)
	require.Equal(t, []any{Sending, 1, 0}, []any{then.State, then.Done, then.Dead})
	require.Nil(t, task)
	all.add(place{Send, "7-1", 1}, &Record{Outcome: Ready}, now)
	then, task = next(job, all, now)
	require.Equal(t, []any{Finishing, 2, 0}, []any{then.State, then.Done, then.Dead})
	require.Equal(t, Finish, task.Kind)
}
