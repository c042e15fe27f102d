package outbox

import (
	"context"
	"encoding/binary"
	"time"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"
)

// Event is something that a Watcher tells of a file.
type Event string

// The events.
const (
	EventThere  Event = "there"  // the server has committed it
	EventFailed Event = "failed" // it failed for its own sake, for the first time; it is tried again
)

// News is an event of one version of a file.
type News struct {
	Event  Event     `json:"event"`
	At     time.Time `json:"at"`
	Path   string    `json:"path"`                  // below the folder, with slashes
	Raw    []byte    `json:"path_base64,omitempty"` // if the path is not UTF-8
	Bytes  int64     `json:"bytes"`
	Digest string    `json:"digest,omitempty"` // BLAKE3 of what was sent, "" if the server had it already
	Error  string    `json:"error,omitempty"`  // why it failed
}

// newsOf returns what is to be told of a file after a session.
func newsOf(path string, f *File, now time.Time) (n News, tell bool) {
	n = News{At: now, Path: path, Bytes: f.Version.Size, Digest: f.Digest, Error: f.Error}
	if !utf8.ValidString(path) {
		n.Raw = []byte(path)
	}
	switch {
	case f.State == There:
		n.Event = EventThere
	case f.Error != "" && f.Tries == 1:
		n.Event = EventFailed
	default:
		return n, false
	}
	return n, true
}

// Bounds of the news: nobody may ever hear them.
const (
	maxNews    = 100_000        // in the queue; the oldest give way
	newsFor    = 24 * time.Hour // then one is given up
	newsAtOnce = 100            // are read from the queue, and told before they are removed from it
)

// addNews stores news until they are told. It reports whether older ones had to give way.
func (c *change) addNews(n News) (gaveWay bool, err error) {
	b := c.tx.Bucket(newsBucket)
	number, err := b.NextSequence()
	if err != nil {
		return false, err
	}
	if first, _ := b.Cursor().First(); first != nil && (len(first) != 8 || number-binary.BigEndian.Uint64(first) >= maxNews) {
		if gaveWay, err = true, b.Delete(first); err != nil {
			return gaveWay, err
		}
	}
	return gaveWay, c.write(newsBucket, string(binary.BigEndian.AppendUint64(nil, number)), n)
}

// dropNews removes all news from the queue.
func (c *change) dropNews() error {
	if first, _ := c.tx.Bucket(newsBucket).Cursor().First(); first == nil {
		return nil
	}
	c.made = true
	if err := c.tx.DeleteBucket(newsBucket); err != nil {
		return err
	}
	_, err := c.tx.CreateBucket(newsBucket)
	return err
}

// numbered is news with its key in the queue, whose order is that of the events.
type numbered struct {
	News
	key []byte
}

// news returns some of the news in the queue: those after a key or, if there are none, the first.
func (q *Queue) news(after []byte) (all []numbered, err error) {
	err = q.view(func(tx *bolt.Tx) error {
		b := tx.Bucket(newsBucket)
		c := b.Cursor()
		k, _ := c.Seek(append(after[:len(after):len(after)], 0))
		if k == nil {
			k, _ = c.First()
		}
		for ; k != nil && len(all) < newsAtOnce; k, _ = c.Next() {
			n := numbered{key: append([]byte(nil), k...)}
			if err := read(b, k, &n.News); err != nil {
				return err
			}
			all = append(all, n)
		}
		return nil
	})
	return all, err
}

// isOld reports whether news are given up. The time before the telling began does not count, because
// nobody could hear them then: the host was off, or its clock was wrong.
func isOld(at, began, now time.Time) bool { return min(now.Sub(at), now.Sub(began)) > newsFor }

// tellAll tells the news in the queue until ctx ends. What fails is tried again after the others, so
// that news which somebody refuses keep none back.
func (w *Watcher) tellAll(ctx context.Context) {
	began := time.Now()
	var last []byte // key of what was tried last
	for failures := 0; ctx.Err() == nil; {
		all, err := w.Queue.news(last)
		if err == nil && len(all) == 0 {
			select {
			case <-w.news:
			case <-ctx.Done():
			}
			continue
		}
		told := 0
		if err == nil {
			told, err = w.tellSome(ctx, all, began)
			last = all[min(told, len(all)-1)].key
		}
		if told > 0 {
			failures = 0
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		pause := pauseAfter(failures)
		failures++
		w.Log.Warn("telling again", "in", pause.Round(time.Millisecond), "error", err)
		sleep(ctx, pause)
	}
}

// tellSome tells news until one fails, and removes from the queue what was told and what is too old.
// It returns how many these were. What cannot be removed, as on a full disk, is not told again.
func (w *Watcher) tellSome(ctx context.Context, all []numbered, began time.Time) (done int, err error) {
	for _, n := range all {
		if w.told[string(n.key)] {
			done++
			continue
		}
		if isOld(n.At, began, time.Now()) {
			w.Log.Warn("nobody heard it for a day: given up", "event", n.Event, "path", n.Path)
		} else if err = w.Tell(ctx, n.News); err != nil {
			break
		}
		w.told[string(n.key)] = true
		done++
	}
	if done == 0 {
		return 0, err
	}
	if failed := w.Queue.update(func(c *change) error {
		for _, n := range all[:done] {
			if err := c.remove(newsBucket, string(n.key)); err != nil {
				return err
			}
		}
		return nil
	}); failed != nil {
		return 0, failed
	}
	for _, n := range all[:done] {
		delete(w.told, string(n.key))
	}
	return done, err
}
