package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// value is an entry of a bucket.
type value struct {
	key  string
	text []byte
	at   time.Time
	op   jetstream.KeyValueOp
}

func (v value) Bucket() string                  { return "" }
func (v value) Key() string                     { return v.key }
func (v value) Value() []byte                   { return v.text }
func (v value) Revision() uint64                { return 1 }
func (v value) Created() time.Time              { return v.at }
func (v value) Delta() uint64                   { return 0 }
func (v value) Operation() jetstream.KeyValueOp { return v.op }

func put(t *testing.T, key string, at time.Time, v any) value {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return value{key: key, text: text, at: at}
}

// TestMonitor follows a job from its submission to its end.
func TestMonitor(t *testing.T) {
	t.Parallel()
	m := new(Monitor)
	m.reset()
	after := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	job := Job{Version: Version, ID: "j", Source: "/data", URL: "fxfer://nas/files", Submitted: now, State: New}
	record := func(seconds int, key string, r Record) {
		r.Version, r.Message = Version, 7
		m.noteRecord(put(t, key, after(seconds), r))
	}
	m.noteJob(put(t, "old", now, Job{Version: Version, ID: "old", State: Done}))
	m.noteRecord(put(t, "old.finish", now, Record{Version: Version, Outcome: Ready, Bytes: 99}))
	m.begin(true)
	m.noteJob(put(t, "j", now, job))
	look := func(seconds int) JobStatus {
		s := m.status(after(seconds))
		require.True(t, s.Live)
		require.Equal(t, "old", s.Jobs[0].ID, "the newest come first")
		require.Zero(t, s.Jobs[0].Idle)
		return s.Jobs[1]
	}
	require.Equal(t, 10*time.Second, look(10).Idle)

	job.State = Sending
	m.noteJob(put(t, "j", after(11), job))
	record(12, "j.list", Record{Outcome: Ready, List: "1-1", Shards: 2, Bytes: 1000})
	record(13, "j.1-1.0", Record{Outcome: Running, Attempt: 1, Worker: "w"})
	record(14, "j.1-1.0", Record{Outcome: Running, Attempt: 1, Worker: "w", Bytes: 100})
	record(15, "j.1-1.1", Record{Outcome: Running, Attempt: 1, Worker: "x", Bytes: 50})
	m.notePresence([]byte(`{"version":1,"name":"w"}`), after(16))
	m.notePresence([]byte(`{"version":1,"name":"idle"}`), after(16))
	require.Equal(t, 2, look(17).Running)
	require.Zero(t, look(17).Idle)
	require.EqualValues(t, 150, look(17).Written, "what was listed is not written")
	s := m.status(after(17))
	require.Equal(t, []WorkerStatus{{Name: "idle"}, {Name: "w", Task: "j.1-1.0", Since: after(13), Written: 100}}, s.Workers)

	record(20, "j.1-1.0", Record{Outcome: Waiting, Attempt: 1, Reason: "why"})
	record(21, "j.1-1.1", Record{Outcome: Ready, Attempt: 1, Bytes: 60})
	require.Equal(t, 1, look(30).Waiting)
	require.Equal(t, 0, look(30).Running)
	require.Equal(t, 9*time.Second, look(30).Idle, "since anything was heard")
	job.Paused = true
	m.noteJob(put(t, "j", after(30), job))
	record(30, "j.1-1.0", Record{Outcome: Waiting, Attempt: 1, Reason: errPaused.Error()})
	require.Zero(t, look(30).Idle, "nobody waits for a worker")
	paused := look(30)
	require.Equal(t, Paused, paused.Shown())
	job.Paused = false
	m.noteJob(put(t, "j", after(30), job))
	record(31, "j.1-1.0", Record{Outcome: Running, Attempt: 2, Bytes: 40})
	require.EqualValues(t, 200, look(31).Written, "the second attempt writes again")
	record(32, "j.1-1.0", Record{Outcome: Dead, Attempt: 2, Bytes: 0, Reason: "why"})
	m.noteDead(put(t, "j.1-1.0", after(32), DeadTask{Version: Version, Task: Task{Job: "j", Kind: Send, List: "1-1"}, At: after(32), Reason: "why"}))
	record(33, "j.finish", Record{Outcome: Running, Attempt: 1})
	require.Equal(t, 1, look(33).Running)
	m.noteRecord(value{key: "j.finish", at: after(33), op: jetstream.KeyValueDelete})
	require.Zero(t, look(33).Running, "it is tried again")
	job.State = Failed
	m.noteJob(put(t, "j", after(34), job))
	record(35, "j.finish", Record{Outcome: Running, Attempt: 1}) // late
	require.Equal(t, 0, look(36).Running)
	require.Zero(t, look(36).Idle)

	s = m.status(after(60))
	require.Empty(t, s.Workers, "they have said nothing for long")
	require.EqualValues(t, 1, s.Retried)
	require.EqualValues(t, 200, s.Written)
	require.Equal(t, map[State]int64{Failed: 1}, s.JobsEnded, "the old one had ended before")
	require.Equal(t, map[Kind]map[Outcome]int64{List: {Ready: 1}, Send: {Ready: 1, Dead: 1}}, s.Ended)
	require.Len(t, s.Dead, 1)
	m.reset() // its connection was lost
	require.False(t, m.status(after(61)).Live)
	require.EqualValues(t, 200, m.status(after(61)).Written)
	require.Empty(t, m.status(after(61)).Jobs)
}

// What makes no sense changes nothing, and what members publish is bounded.
func TestMonitorHostile(t *testing.T) {
	t.Parallel()
	m := new(Monitor)
	m.reset()
	m.begin(true)
	m.noteJob(nil)
	m.noteRecord(nil)
	m.noteDead(nil)
	for _, text := range []string{"", "{", `{"version":2}`, "null"} {
		v := value{key: "j", text: []byte(text)}
		m.noteJob(v)
		v.key = "j.list"
		m.noteRecord(v)
		m.noteDead(v)
		m.notePresence(v.text, now)
	}
	m.noteRecord(put(t, "\u00fc.list", now, Record{Version: Version, Outcome: Running}))
	m.noteRecord(put(t, "j.other", now, Record{Version: Version, Outcome: Ready, Bytes: -5}))
	for i := range 2 * maxWorkers {
		m.notePresence(fmt.Appendf(nil, `{"version":1,"name":"w%d"}`, i), now)
	}
	s := m.status(now)
	require.Empty(t, s.Jobs)
	require.Empty(t, s.Dead)
	require.Zero(t, s.Written)
	require.Len(t, s.Workers, maxWorkers)
	m.noteJob(put(t, "j", now, Job{Version: Version, ID: "j", State: New}))
	m.noteJob(value{key: "j", op: jetstream.KeyValueDelete})
	require.Empty(t, m.status(now).Jobs)
}
