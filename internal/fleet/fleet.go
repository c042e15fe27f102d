// Package fleet sends one tree with many hosts. A controller keeps jobs and tasks in NATS JetStream,
// which runs in its process. Workers take tasks: one lists the tree and cuts it into shards, all send
// shards, and one sends the whole at the end, as `fxfer send` would. That last task alone decides how
// the target ends, so a shard may be sent twice, or be given up. docs/fleet.md has the subjects.
package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Version is that of all records and subjects.
const Version = 1

// The names in JetStream. Those of another version are beside them.
const (
	taskStream   = "fxfer-v1-tasks"
	taskPrefix   = "fxfer.v1.task."
	idleSubject  = "fxfer.v1.idle"
	openSubject  = "fxfer.v1.open"
	lineSubjects = "fxfer.v1.line.*"

	askSubject    = "fxfer.v1.line.ask"
	statusSubject = "fxfer.v1.line.status"
	jobBucket     = "fxfer-v1-jobs"
	recordBucket  = "fxfer-v1-records"
	deadBucket    = "fxfer-v1-dead"
	listBucket    = "fxfer-v1-lists"
	lineBucket    = "fxfer-v1-lines"
)

// State is how far a job is.
type State string

// The states, in order.
const (
	New       State = "new"
	Listing   State = "listing"
	Sending   State = "sending"
	Finishing State = "finishing"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Paused is what people see of a paused job. Its record has the state in which it goes on.
const Paused State = "paused"

// States returns all of them.
func States() []State {
	return []State{New, Listing, Sending, Finishing, Paused, Done, Failed, Cancelled}
}

// Ended reports whether nothing follows.
func (s State) Ended() bool { return s == Done || s == Failed || s == Cancelled }

// Job is a tree to send. Its record is under its ID in the bucket of jobs. The controller changes it, and
// members as Change says.
type Job struct {
	Version   int        `json:"version"`
	ID        string     `json:"id"`
	Source    string     `json:"source"` // a folder on each worker; with a slash at the end, what is in it
	URL       string     `json:"url"`
	Options   Options    `json:"options"`
	Submitted time.Time  `json:"submitted"`
	State     State      `json:"state"`
	List      string     `json:"list,omitempty"` // which list the shards are of
	Shards    int        `json:"shards"`
	Files     int64      `json:"files"` // in the list
	Bytes     int64      `json:"bytes"` // of these
	Done      int        `json:"shards_done"`
	Dead      int        `json:"shards_dead"`
	Ended     *time.Time `json:"ended,omitempty"`
	Reason    string     `json:"reason,omitempty"` // why it failed
	Paused    bool       `json:"paused,omitempty"`
	Retries   int        `json:"retries,omitempty"` // how often members wanted its dead tasks tried again
	Retried   int        `json:"retried,omitempty"` // how often the controller did that
}

// Shown is the state that people see.
func (j *Job) Shown() State {
	if j.Paused {
		return Paused
	}
	return j.State
}

// over reports whether nothing follows in the job.
func (j *Job) over() bool { return j.State.Ended() && j.Retries <= j.Retried }

// Options are those of `fxfer send` that a job has.
type Options struct {
	Delete        bool     `json:"delete,omitempty"`
	Checksum      bool     `json:"checksum,omitempty"`
	NumericIDs    bool     `json:"numeric_ids,omitempty"`
	OneFileSystem bool     `json:"one_file_system,omitempty"`
	Rules         []string `json:"rules,omitempty"`

	// A shard has at most so many bytes and files, unless one file is larger. 0 is the default.
	ShardBytes int64 `json:"shard_bytes,omitempty"`
	ShardFiles int64 `json:"shard_files,omitempty"`

	// Priority says how many workers the job gets beside other jobs; "" is normal.
	Priority fxfer.Priority `json:"priority,omitempty"`
}

// nameForm matches what names jobs and lists: one part of a subject, of a key and of a line of a log.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// IsName reports whether a line can have this name.
func IsName(s string) bool { return nameForm.MatchString(s) }

// readJob reads the job of an ID.
func readJob(id string, data []byte) (*Job, error) {
	j, err := decode[Job](data)
	if err == nil && (j.ID != id || !nameForm.MatchString(id)) {
		err = fmt.Errorf("it has the ID %q", j.ID)
	}
	return j, err
}

// Check rejects a job that no worker could do.
func (j *Job) Check() error {
	u, err := fxfer.ParseURL(j.URL)
	switch {
	case j.Version != Version:
		return fmt.Errorf("version %d of the job is unknown here", j.Version)
	case !nameForm.MatchString(j.ID):
		return fmt.Errorf("%q is not the ID of a job", j.ID)
	case !filepath.IsAbs(j.Source):
		return fmt.Errorf("%q is not an absolute path", j.Source)
	case j.Source != "/" && filepath.Clean(j.Source) != strings.TrimSuffix(j.Source, "/"): // links change what .. means
		return fmt.Errorf("%q has parts that name nothing", j.Source)
	case err != nil:
		return err
	case j.Options.ShardBytes < 0, j.Options.ShardFiles < 0:
		return errors.New("a shard can't have less than nothing")
	case weightOf[j.Options.Priority] == 0:
		return fmt.Errorf("there is no priority %q", j.Options.Priority)
	case u.Share == "":
		return errors.New("the URL names no share")
	case u.String() != u.Redacted():
		return errors.New("a job has no secrets: workers connect with their own keys")
	}
	return nil
}

// Kind is what a task does.
type Kind string

// The kinds.
const (
	List   Kind = "list"
	Send   Kind = "shard"
	Finish Kind = "finish"
)

// Kinds returns all of them.
func Kinds() []Kind { return []Kind{List, Send, Finish} }

// Task is a message for one worker.
type Task struct {
	Version int    `json:"version"`
	Job     string `json:"job"`
	Kind    Kind   `json:"kind"`
	List    string `json:"list,omitempty"` // of a shard
	Number  int    `json:"number"`         // of a shard, from 0
}

// Key names the task in records and in messages for people.
func (t *Task) Key() string { return t.key() }

// key is the task's place in all buckets, and identifies its message.
func (t *Task) key() string {
	if t.Kind == Send {
		return t.Job + "." + t.List + "." + strconv.Itoa(t.Number)
	}
	return t.Job + "." + string(t.Kind)
}

func (t *Task) subject() string { return taskPrefix + t.key() }

// check rejects a task that has no place in the buckets, or has that of another one. Members can
// publish what they like.
func (t *Task) check(subject string) error {
	switch {
	case t.Kind != List && t.Kind != Send && t.Kind != Finish:
		return fmt.Errorf("there is no task %q", t.Kind)
	case !nameForm.MatchString(t.Job), t.Kind == Send && !nameForm.MatchString(t.List), t.Number < 0:
		return errors.New("its names are refused")
	case t.subject() != subject:
		return fmt.Errorf("it is that of %s", t.subject())
	}
	return nil
}

// Outcome is what became of a task.
type Outcome string

// The outcomes. Running and Waiting are for now, the others last.
const (
	Running Outcome = "running"
	Waiting Outcome = "waiting" // it failed, and will be tried again
	Ready   Outcome = "done"
	Dead    Outcome = "dead" // it was given up
)

// Record is what is known of a task, in the bucket of records. A Record of a list says what was
// listed.
type Record struct {
	Version int       `json:"version"`
	Outcome Outcome   `json:"outcome"`
	Worker  string    `json:"worker"`
	Message uint64    `json:"message"` // its number in the stream; a task published twice has two
	Attempt uint64    `json:"attempt"` // of this message
	At      time.Time `json:"at"`
	Bytes   int64     `json:"bytes"` // written at the server
	List    string    `json:"list,omitempty"`
	Shards  int       `json:"shards,omitempty"`
	Files   int64     `json:"files,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Note    string    `json:"note,omitempty"` // what is special about this attempt
}

// DeadTask is a task that was given up, in the bucket of dead ones.
type DeadTask struct {
	Version int       `json:"version"`
	Task    Task      `json:"task"`
	Worker  string    `json:"worker"`
	Attempt uint64    `json:"attempt"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

// decode reads a record. Other members of the fleet may be of another version, or hostile.
func decode[T any](data []byte) (*T, error) {
	var x struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, err
	}
	if x.Version != Version {
		return nil, fmt.Errorf("version %d of a record is unknown here", x.Version)
	}
	v := new(T)
	return v, json.Unmarshal(data, v)
}

// split divides a key of the bucket of records.
func split(key string) (job, list string, number int, kind Kind) {
	parts := strings.Split(key, ".")
	switch len(parts) {
	case 2:
		return parts[0], "", 0, Kind(parts[1])
	case 3:
		if n, err := strconv.Atoi(parts[2]); err == nil {
			return parts[0], parts[1], n, Send
		}
	}
	return "", "", 0, ""
}
