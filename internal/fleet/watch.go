package fleet

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// watch follows a bucket. The client makes its watch again when a server has died, and gives up without
// a word if that fails, as it may while a cluster elects a leader. So a watch is held against the bucket.
type watch struct {
	jetstream.KeyWatcher
	kv   jetstream.KeyValue
	seen uint64 // the last revision that has come
	due  uint64 // what the bucket had when it was last asked
}

// newWatch begins to follow a bucket.
func newWatch(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) (*watch, error) {
	last, err := revision(ctx, js, kv)
	if err != nil {
		return nil, err
	}
	w, err := kv.WatchAll(ctx)
	return &watch{KeyWatcher: w, kv: kv, seen: last}, err // everything up to last comes first
}

var errWatch = errors.New("the connection is lost")

// all visits what the bucket has now.
func (w *watch) all(ctx context.Context, visit func(jetstream.KeyValueEntry)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case entry, open := <-w.Updates():
			if !open {
				return errWatch
			}
			if entry == nil {
				return nil
			}
			visit(entry)
		}
	}
}

// see takes what has come: an entry, or nil.
func (w *watch) see(entry jetstream.KeyValueEntry) {
	if entry != nil {
		w.seen = max(w.seen, entry.Revision())
	}
}

// behind takes the last revision of the bucket. It reports whether the watch lacks what the bucket had
// already the last time.
func (w *watch) behind(last uint64) bool {
	lacks := w.seen < w.due
	w.due = last
	return lacks
}

// arrives fails if the changes of the bucket do not arrive any more.
func (w *watch) arrives(ctx context.Context, js jetstream.JetStream) error {
	last, err := revision(ctx, js, w.kv)
	if err == nil && w.behind(last) {
		err = errors.New("changes of " + w.kv.Bucket() + " do not arrive")
	}
	return err
}

// revision returns the last revision of a bucket.
func revision(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := js.Stream(ctx, "KV_"+kv.Bucket())
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}
