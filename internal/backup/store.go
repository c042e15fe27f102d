package backup

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fxfer/fxfer/internal/database"
	"github.com/fxfer/fxfer/internal/units"
)

// Outcome is how a run or a transfer ended.
type Outcome string

// The outcomes.
const (
	Good        Outcome = "good"
	Partial     Outcome = "partial" // some entries failed
	Failed      Outcome = "failed"
	Skipped     Outcome = "skipped" // a hook skipped it
	Interrupted Outcome = "interrupted"
)

// Record is a transfer in history: a run of a job, or a plain send or get.
type Record struct {
	Job      string    `json:"job,omitempty"` // "" for a plain transfer
	Verb     string    `json:"verb"`          // "backup", "send" or "get"
	Target   string    `json:"target"`        // URL
	Snapshot string    `json:"snapshot,omitempty"`
	Due      time.Time `json:"due,omitzero"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Working  float64   `json:"working_seconds"` // without waiting for a window or a retry
	Outcome  Outcome   `json:"outcome"`
	Error    string    `json:"error,omitempty"`
	Hint     string    `json:"hint,omitempty"` // helps against the error or the limiter
	Warnings []string  `json:"warnings,omitempty"`
	Attempts int       `json:"attempts"`
	Pauses   int       `json:"pauses,omitempty"`

	Files    int64 `json:"files"`
	Failures int64 `json:"entries_failed,omitempty"`
	// Causes are the first of them, each with its path and its error. There are at most mostCauses.
	Causes  []string `json:"causes,omitempty"`
	Healed  int64    `json:"files_healed,omitempty"` // damaged in the snapshot before, intact in this
	Bytes   int64    `json:"bytes"`                  // size of all files
	Read    int64    `json:"bytes_read"`
	Written int64    `json:"bytes_written"` // new at the target
	Sent    int64    `json:"bytes_sent"`    // over the network
	Goodput float64  `json:"goodput_bits_per_second"`
	Peak    float64  `json:"peak_bits_per_second"`
	Limiter string   `json:"limiter,omitempty"`
	Digest  string   `json:"digest,omitempty"` // digest of the manifest, or of the only file

	// Priority is that at the end. Priorities are its changes for the sake of a deadline, in words.
	Priority   string   `json:"priority,omitempty"`
	Priorities []string `json:"priority_changes,omitempty"`

	err error
}

// Err returns the error of a run that has just ended. It is nil if the run succeeded or a hook
// skipped it.
func (r *Record) Err() error {
	if r.Outcome == Skipped {
		return nil
	}
	return r.err
}

// Lacking says how many entries a good run lacks, or "" for none.
func (r *Record) Lacking() string {
	if r.Outcome != Good || r.Failures == 0 {
		return ""
	}
	return units.Count(r.Failures, "entry", "entries") + " that failed"
}

// Healing says how many damaged files a run has healed, or "" for none.
func (r *Record) Healing() string {
	if r.Healed == 0 {
		return ""
	}
	return "healed " + units.Count(r.Healed, "damaged file", "damaged files")
}

// Cause says why a run or a transfer is not good: the first entry that failed and how many others
// there are, or else the error. It is "" for a good one.
func (r *Record) Cause() string {
	switch {
	case len(r.Causes) == 0:
		return r.Error
	case r.Failures > 1:
		return fmt.Sprintf("%s (and %d more)", r.Causes[0], r.Failures-1)
	}
	return r.Causes[0]
}

// Duration returns how long the transfer took.
func (r *Record) Duration() time.Duration { return time.Duration(r.Working * float64(time.Second)) }

// State is what fxfer must know about a job after a crash.
type State struct {
	// Since is when the job was first seen.
	Since time.Time `json:"since"`
	// Handled is the latest due time whose run was started. No run that was due until then is made
	// again, whatever the clock says.
	Handled time.Time `json:"handled"`
	// Active is the run that has not ended: it is running, paused, or its process ended.
	Active *Active `json:"active,omitempty"`
	// LastGood is when the run of the newest good backup began: it restores the files of that time. For
	// a replica, it is the time of its newest snapshot.
	LastGood time.Time `json:"last_good"`
	// Snapshot is the newest complete snapshot.
	Snapshot string  `json:"snapshot,omitempty"`
	Last     *Record `json:"last,omitempty"` // the last run
	// Alarmed is the time when the alarm was raised, zero if there is none.
	Alarmed time.Time `json:"alarmed,omitzero"`
	// Verified is the time when the schedule last started a verification. Scrub is the result of
	// the last one, Scrubbing the progress of the one under way, and Snapshots the number of the
	// verification that last read each snapshot to its end.
	Verified  time.Time        `json:"verified,omitzero"`
	Scrub     *Scrub           `json:"scrub,omitempty"`
	Scrubbing *Scrubbing       `json:"scrubbing,omitempty"`
	Snapshots map[string]int64 `json:"snapshots_verified,omitempty"`
	// Damage is what the server knew after the last run or verification, nil for none.
	Damage *Damage `json:"damage,omitempty"`
}

// Damage sums up which snapshots hold files that are known to be damaged at the server.
type Damage struct {
	Newest int64    `json:"files_in_newest_snapshot,omitempty"`
	Older  []string `json:"older_snapshots,omitempty"`
}

// Scrubbing is the progress of a verification.
type Scrubbing struct {
	At       time.Time `json:"at"`
	Snapshot string    `json:"snapshot"`
	Done     int64     `json:"files_done"`
	Files    int64     `json:"files"`
	Bytes    int64     `json:"bytes_done"`
}

// Scrub is the result of a verification.
type Scrub struct {
	At        time.Time `json:"at"`
	Snapshots int       `json:"snapshots"`
	Last      string    `json:"last_snapshot"`
	Files     int64     `json:"files"`
	Bytes     int64     `json:"bytes"`
	Damaged   int64     `json:"files_damaged,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// Active is a run that has not ended.
type Active struct {
	Due      time.Time `json:"due"`
	Manual   bool      `json:"manual,omitempty"`
	Snapshot string    `json:"snapshot"`
	Started  time.Time `json:"started"`
	Working  float64   `json:"working_seconds"` // in the legs that have ended
	Attempts int       `json:"attempts"`
	Pauses   int       `json:"pauses"`
	// Leg is the time when the present leg began, zero while the run is paused. If the process
	// dies, it stays set.
	Leg     time.Time `json:"leg,omitzero"`
	Written int64     `json:"bytes_written"` // in the legs that have ended
	Read    int64     `json:"bytes_read"`
	Sent    int64     `json:"bytes_sent"`
	Now     Progress  `json:"now"`

	Priorities []string `json:"priority_changes,omitempty"` // of the attempts that have ended, in words
}

// Progress is the progress of a run under way.
type Progress struct {
	At      time.Time `json:"at"`
	Walking bool      `json:"walking"`
	Files   int64     `json:"files"`
	Bytes   int64     `json:"bytes"`
	Done    int64     `json:"bytes_done"`    // part of Bytes, written now or before
	Written int64     `json:"bytes_written"` // in this attempt
	Goodput float64   `json:"goodput_bits_per_second"`
	Limiter string    `json:"limiter,omitempty"`
}

var (
	jobsBucket    = []byte("jobs")    // name → State
	historyBucket = []byte("history") // start in ns, sequence → Record
)

// mostCauses is how many failed entries a record names.
const mostCauses = 5

// maxHistory is the largest number of records kept.
const maxHistory = 20_000

// storeWait is how long to wait for another process that has the file open.
const storeWait = 10 * time.Second

// Store keeps states and history in one file. The file is open only during each call, so that
// several processes can share it: the daemon, and commands that send or show the status. The
// methods are safe for concurrent use.
type Store struct {
	path   string
	noSync bool
}

// StoreName is the name of the store's file in fxfer's folder.
const StoreName = "history.db"

// OpenStore returns the store in fxfer's folder home.
func OpenStore(home string) *Store { return &Store{path: filepath.Join(home, StoreName)} }

func (s *Store) use(readOnly bool, f func(*bolt.DB) error) error {
	return database.Use(s.path, &bolt.Options{Timeout: storeWait, ReadOnly: readOnly, NoSync: s.noSync, FreelistType: bolt.FreelistMapType}, f)
}

func (s *Store) update(f func(*bolt.Tx) error) error {
	return s.use(false, func(db *bolt.DB) error { return db.Update(f) })
}

// view reads the file. It does nothing if there is no file.
func (s *Store) view(f func(*bolt.Tx) error) error {
	if info, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	return s.use(true, func(db *bolt.DB) error { return db.View(f) })
}

// State returns the state of a job. The state of a new job is zero.
func (s *Store) State(job string) (st State, err error) {
	err = s.view(func(tx *bolt.Tx) error { return st.load(tx, job) })
	return st, err
}

// Update changes the state of a job. If f fails, nothing changes.
func (s *Store) Update(job string, f func(*State) error) error {
	return s.update(func(tx *bolt.Tx) error { return updateState(tx, job, f) })
}

func updateState(tx *bolt.Tx, job string, f func(*State) error) error {
	var st State
	if err := st.load(tx, job); err != nil {
		return err
	}
	if err := f(&st); err != nil {
		return err
	}
	b, err := tx.CreateBucketIfNotExists(jobsBucket)
	if err != nil {
		return err
	}
	text, err := json.Marshal(&st)
	if err != nil {
		return err
	}
	return b.Put([]byte(job), text)
}

func (st *State) load(tx *bolt.Tx, job string) error {
	b := tx.Bucket(jobsBucket)
	if b == nil {
		return nil
	}
	text := b.Get([]byte(job))
	if text == nil {
		return nil
	}
	if err := json.Unmarshal(text, st); err != nil {
		return fmt.Errorf("the state of %s is damaged: %w", job, err)
	}
	return nil
}

// Add adds a transfer to history.
func (s *Store) Add(r *Record) error {
	return s.update(func(tx *bolt.Tx) error { return addRecord(tx, r) })
}

// Finish adds a run to history and changes the state of its job, in one transaction.
func (s *Store) Finish(r *Record, f func(*State) error) error {
	return s.update(func(tx *bolt.Tx) error {
		return errors.Join(addRecord(tx, r), updateState(tx, r.Job, f))
	})
}

func addRecord(tx *bolt.Tx, r *Record) error {
	return put(tx, historyBucket, maxHistory, r.Started, r)
}

// put adds a value to a bucket that is sorted by time, and keeps the newest.
func put(tx *bolt.Tx, bucket []byte, most uint64, at time.Time, value any) error {
	b, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if n > most { // drop as many as were added
		if oldest, _ := b.Cursor().First(); oldest != nil {
			if err := b.Delete(oldest); err != nil {
				return err
			}
		}
	}
	return b.Put(historyKey(at, n), text)
}

func historyKey(at time.Time, n uint64) []byte {
	var ns uint64
	if at.After(time.Unix(0, 0)) {
		ns = uint64(at.UnixNano())
	}
	key := binary.BigEndian.AppendUint64(nil, ns)
	return binary.BigEndian.AppendUint64(key, n)
}

// History returns the transfers that began since a time, oldest first. If job is "", it returns
// those of all jobs and the plain ones.
func (s *Store) History(job string, since time.Time) (records []Record, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(historyBucket)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Seek(historyKey(since, 0)); k != nil; k, v = c.Next() {
			var r Record
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("history is damaged: %w", err)
			}
			if job == "" || r.Job == job {
				records = append(records, r)
			}
		}
		return nil
	})
	return records, err
}

// errBusy means that this or another process is running the job.
var errBusy = errors.New("it is running already")

// lock keeps other processes from running a job until unlock is called or this process ends.
func (s *Store) lock(job string) (unlock func(), err error) {
	dir := filepath.Join(filepath.Dir(s.path), "jobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, job+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	free, err := tryLock(f)
	if err == nil && !free {
		err = errBusy
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Running reports whether a job is running.
func (s *Store) Running(job string) bool {
	unlock, err := s.lock(job)
	if err == nil {
		unlock()
	}
	return errors.Is(err, errBusy)
}
