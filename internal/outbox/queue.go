package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fxfer/fxfer/internal/database"
)

// About is what a queue knows beside its files.
type About struct {
	Dir    string `json:"dir"` // absolute
	URL    string `json:"url"` // without secrets
	Paused bool   `json:"paused,omitempty"`
	// Removes says that the last watcher removed or moved what was there.
	Removes bool `json:"removes,omitempty"`
	// Reached says that a session with the server has succeeded once. From then on, no error of a
	// session ends the watcher.
	Reached bool `json:"reached,omitempty"`
	// Error is why the last session failed as a whole, "" if it did not.
	Error string `json:"error,omitempty"`
}

// Word returns the word for the state of a file.
func (f *File) Word() string {
	if f.Dropped {
		return dropped
	}
	return string(f.State)
}

const dropped = "dropped"

// Listing is a file in the queue, for people.
type Listing struct {
	Path string
	File
}

// Sum counts the files of a queue by their states.
type Sum struct {
	Arriving, Waiting, Sending, There int

	Failed  int       // of those that wait
	Dropped int       // in no other state
	Oldest  time.Time // when the oldest file arrived that is not there yet; zero for none
}

// SumOf counts files.
func SumOf(files []Listing) (s Sum) {
	for _, f := range files {
		switch {
		case f.Dropped:
			s.Dropped++
			continue
		case f.State == There:
			s.There++
			continue
		case f.State == Arriving:
			s.Arriving++
		case f.State == Waiting:
			s.Waiting++
		case f.State == Sending:
			s.Sending++
		}
		if f.Error != "" {
			s.Failed++
		}
		if s.Oldest.IsZero() || f.Arrived.Before(s.Oldest) {
			s.Oldest = f.Arrived
		}
	}
	return s
}

var (
	aboutBucket   = []byte("about")   // "about" → About
	filesBucket   = []byte("files")   // path → File
	pendingBucket = []byte("pending") // paths of files in state Waiting or Sending
	asideBucket   = []byte("aside")   // path → note of a file that is about to be removed
	newsBucket    = []byte("news")    // number → News that nobody has heard yet
)

// queueWait is how long to wait for another process that has the file open. Each has it open for
// milliseconds, unless its host is very busy.
const queueWait = time.Minute

// maxPath bounds the paths of files, in bytes.
const maxPath = bolt.MaxKeySize

// queuesName is the folder of the queues in fxfer's folder.
const queuesName = "outbox"

// Queue is the durable queue of one folder and one URL. It is a file that is open only during each
// call, so that commands can look at the queue of a running watcher and change it. The methods are
// safe for concurrent use.
type Queue struct {
	path   string
	noSync bool       // tests need not survive a power cut
	mu     sync.Mutex // held while the file is open: the lock on it would make this process poll

	following sync.Mutex                 // guards followers
	followers map[string][]chan struct{} // by the path of the file that each follows
}

// OpenQueue returns the queue for a folder and a URL in fxfer's folder home. A new queue gets a file
// with its first files.
func OpenQueue(home, dir, url string) *Queue {
	sum := sha256.Sum256([]byte(dir + "\x00" + url))
	return &Queue{path: filepath.Join(home, queuesName, hex.EncodeToString(sum[:8])+".db")}
}

// Queues returns the queues in fxfer's folder home.
func Queues(home string) (all []*Queue, err error) {
	return queuesIn(filepath.Join(home, queuesName))
}

// others returns the other queues in the same folder.
func (q *Queue) others() ([]*Queue, error) {
	all, err := queuesIn(filepath.Dir(q.path))
	return slices.DeleteFunc(all, func(other *Queue) bool { return other.path == q.path }), err
}

func queuesIn(folder string) (all []*Queue, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.db"))
	for _, name := range names {
		all = append(all, &Queue{path: name})
	}
	return all, err
}

// change is a transaction that can write.
type change struct {
	tx    *bolt.Tx
	made  bool
	files []string // paths of the files that have changed
}

// update runs f in a transaction. It costs no write to the disk if f makes no change.
func (q *Queue) update(f func(*change) error) error {
	if err := os.MkdirAll(filepath.Dir(q.path), 0o700); err != nil {
		return err
	}
	unmade := errors.New("nothing has changed")
	var c *change
	err := q.open(false, func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			c = &change{tx: tx}
			for _, name := range [][]byte{aboutBucket, filesBucket, pendingBucket, asideBucket, newsBucket} {
				if tx.Bucket(name) != nil {
					continue
				}
				c.made = true
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
			if err := f(c); err != nil {
				return err
			}
			if !c.made {
				return unmade
			}
			return nil
		})
	})
	if errors.Is(err, unmade) {
		return nil
	}
	if err == nil {
		q.signal(c.files)
	}
	return err
}

// follow returns a channel that is signalled, until done is called, after this process has changed the
// file at a path in the queue.
func (q *Queue) follow(path string) (changed <-chan struct{}, done func()) {
	c := make(chan struct{}, 1)
	q.following.Lock()
	defer q.following.Unlock()
	if q.followers == nil {
		q.followers = make(map[string][]chan struct{})
	}
	q.followers[path] = append(q.followers[path], c)
	return c, func() {
		q.following.Lock()
		defer q.following.Unlock()
		left := slices.DeleteFunc(q.followers[path], func(x chan struct{}) bool { return x == c })
		if q.followers[path] = left; len(left) == 0 {
			delete(q.followers, path)
		}
	}
}

// signal signals those who follow one of these files.
func (q *Queue) signal(paths []string) {
	q.following.Lock()
	defer q.following.Unlock()
	for _, p := range paths {
		for _, c := range q.followers[p] {
			signal(c)
		}
	}
}

// view runs f in a transaction that only reads. It does nothing if there is no file.
func (q *Queue) view(f func(*bolt.Tx) error) error {
	if info, err := os.Stat(q.path); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	return q.open(true, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			if tx.Bucket(filesBucket) == nil {
				return nil
			}
			return f(tx)
		})
	})
}

func (q *Queue) open(readOnly bool, f func(*bolt.DB) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return database.Use(q.path, &bolt.Options{Timeout: queueWait, ReadOnly: readOnly, NoSync: q.noSync, NoGrowSync: q.noSync, FreelistType: bolt.FreelistMapType}, f)
}

// read decodes a value. It leaves to alone if there is none.
func read(b *bolt.Bucket, key []byte, to any) error {
	text := b.Get(key)
	if text == nil {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("the queue is damaged at %q: %w", key, err)
	}
	return nil
}

// about reads the description of the queue.
func about(tx *bolt.Tx) (a About, err error) {
	return a, read(tx.Bucket(aboutBucket), aboutBucket, &a)
}

// setAbout changes the description of the queue.
func (c *change) setAbout(f func(*About)) error {
	old, err := about(c.tx)
	if err != nil {
		return err
	}
	a := old
	if f(&a); a == old {
		return nil
	}
	return c.write(aboutBucket, string(aboutBucket), a)
}

// file returns a file of the queue, nil if it has none at this path.
func (c *change) file(path string) (f *File, err error) {
	return f, read(c.tx.Bucket(filesBucket), []byte(path), &f)
}

// put stores a file, nil to forget it.
func (c *change) put(path string, f *File) error {
	c.files = append(c.files, path)
	if f == nil {
		return errors.Join(c.remove(filesBucket, path), c.remove(pendingBucket, path))
	}
	err := c.write(filesBucket, path, f)
	switch pending := f.State == Waiting || f.State == Sending; {
	case err != nil:
		return err
	case pending:
		return c.tx.Bucket(pendingBucket).Put([]byte(path), []byte{})
	}
	return c.tx.Bucket(pendingBucket).Delete([]byte(path))
}

func (c *change) write(bucket []byte, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	c.made = true
	return c.tx.Bucket(bucket).Put([]byte(key), text)
}

func (c *change) remove(bucket []byte, key string) error {
	c.made = true
	return c.tx.Bucket(bucket).Delete([]byte(key))
}

// each calls visit for each file of the queue, in the order of the paths.
func each(tx *bolt.Tx, visit func(path string, f *File) error) error {
	return tx.Bucket(filesBucket).ForEach(func(k, v []byte) error {
		f := new(File)
		if err := json.Unmarshal(v, f); err != nil {
			return fmt.Errorf("the queue is damaged at %q: %w", k, err)
		}
		return visit(string(k), f)
	})
}

// pending returns the files in state Waiting or Sending.
func (c *change) pending() (all []named, err error) {
	err = c.tx.Bucket(pendingBucket).ForEach(func(k, _ []byte) error {
		f, err := c.file(string(k))
		if err == nil && f != nil {
			all = append(all, named{string(k), f})
		}
		return err
	})
	return all, err
}

// List returns what the queue is about and its files, in the order of the paths.
func (q *Queue) List() (a About, files []Listing, err error) {
	err = q.view(func(tx *bolt.Tx) error {
		if a, err = about(tx); err != nil {
			return err
		}
		return each(tx, func(path string, f *File) error {
			files = append(files, Listing{path, *f})
			return nil
		})
	})
	return a, files, err
}

// file returns a file of the queue, nil if it has none at this path.
func (q *Queue) file(path string) (f *File, err error) {
	err = q.view(func(tx *bolt.Tx) error { return read(tx.Bucket(filesBucket), []byte(path), &f) })
	return f, err
}

// some returns those files at these paths that the queue has.
func (q *Queue) some(paths []string) (files []Listing, err error) {
	err = q.view(func(tx *bolt.Tx) error {
		for _, p := range paths {
			var f *File
			if err := read(tx.Bucket(filesBucket), []byte(p), &f); err != nil {
				return err
			}
			if f != nil {
				files = append(files, Listing{p, *f})
			}
		}
		return nil
	})
	return files, err
}

// About returns what the queue is about.
func (q *Queue) About() (a About, err error) {
	err = q.view(func(tx *bolt.Tx) error {
		a, err = about(tx)
		return err
	})
	return a, err
}

// Pause keeps the watcher from beginning another session, or lets it go on.
func (q *Queue) Pause(paused bool) error {
	return q.update(func(c *change) error {
		return c.setAbout(func(a *About) { a.Paused = paused })
	})
}

var (
	// ErrNoFile means that the queue has no such file.
	ErrNoFile = errors.New("the queue has no such file")
	// ErrState means that a file is in a state in which there is nothing to change.
	ErrState = errors.New("nothing to change")
)

// Retry makes a file due at once, also one that was dropped. With the path "", it does so for all
// files that failed, and returns how many these were. A file that is not in the queue gives
// ErrNoFile, and one that does not wait for another try ErrState.
func (q *Queue) Retry(path string) (n int, err error) {
	return q.edit(path, func(f *File) bool {
		if f.State != Waiting || f.Error == "" && !(f.Dropped && path != "") {
			return false
		}
		f.Dropped, f.Error, f.Tries, f.After = false, "", 0, time.Time{}
		return true
	})
}

// Drop keeps this version of a file from being sent. A later version will be sent. With the path "",
// it drops all files that failed. It returns as Retry does. A file that is being sent, or is there,
// gives ErrState.
func (q *Queue) Drop(path string) (n int, err error) {
	return q.edit(path, func(f *File) bool {
		if f.State != Waiting && f.State != Arriving || f.Dropped || path == "" && f.Error == "" {
			return false
		}
		f.Dropped = true
		return true
	})
}

func (q *Queue) edit(path string, f func(*File) bool) (n int, err error) {
	err = q.update(func(c *change) error {
		n = 0
		if path != "" {
			x, err := c.file(path)
			switch {
			case err != nil:
				return err
			case x == nil:
				return ErrNoFile
			case !f(x):
				return fmt.Errorf("%w: %s", ErrState, x.Word())
			}
			n = 1
			return c.put(path, x)
		}
		all, err := c.pending()
		for _, x := range all {
			if err == nil && f(x.file) {
				n++
				err = c.put(x.path, x.file)
			}
		}
		return err
	})
	return n, err
}

// Remove forgets the queue, what is there included. It changes no file of the folder. It returns
// ErrRunning while a watcher runs.
func (q *Queue) Remove() error {
	unlock, err := q.lock(time.Second)
	if err != nil {
		return err
	}
	defer unlock() // its file stays: another process may wait for it
	return q.open(false, func(*bolt.DB) error { return os.Remove(q.path) })
}

// lock keeps other processes from watching for this queue until unlock is called or this process
// ends. It waits for so long: Running has the lock for a moment.
func (q *Queue) lock(wait time.Duration) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(q.path), 0o700); err != nil {
		return nil, err
	}
	db, err := database.Open(q.path+".lock", &bolt.Options{Timeout: wait}, func(*bolt.DB) error { return nil })
	if errors.Is(err, database.ErrOpen) {
		err = ErrRunning
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = db.Close() }, nil
}

// ErrRunning means that a process watches the folder for this URL already.
var ErrRunning = errors.New("the folder is being watched for this URL already")

// ErrOther means that a process watches the folder for another URL.
var ErrOther = errors.New("the folder is being watched for another URL already, and one of the two removes files")

// Running reports whether a watcher of this queue is running.
func (q *Queue) Running() bool { return q.isRunning(time.Millisecond) }

// isRunning is Running that waits for so long while another process asks, too.
func (q *Queue) isRunning(wait time.Duration) bool {
	unlock, err := q.lock(wait)
	if err == nil {
		unlock()
	}
	return errors.Is(err, ErrRunning)
}
