package outbox

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// urgent are files that somebody waits for: they are sent as soon as they can be. The zero urgent has
// none. Those from newUrgent are safe for concurrent use, and copies of one have the same files.
type urgent struct {
	*urgentPaths
	queued chan struct{} // signalled when one has come into the queue
}

type urgentPaths struct {
	mu    sync.Mutex // guards paths
	paths map[string]int
}

func newUrgent() urgent {
	return urgent{&urgentPaths{paths: make(map[string]int)}, make(chan struct{}, 1)}
}

// add makes the file at a path urgent until done is called.
func (u urgent) add(path string) (done func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.paths[path]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.paths[path]--; u.paths[path] == 0 {
			delete(u.paths, path)
		}
	}
}

// all returns the paths of the files.
func (u urgent) all() map[string]bool {
	all := map[string]bool{}
	if u.urgentPaths == nil {
		return all
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for p := range u.paths {
		all[p] = true
	}
	return all
}

// enqueue lets a file of this version wait for its turn, without a scan: in a large folder, that takes
// long. It does nothing if the file is another one now, or no watcher has begun.
func (u urgent) enqueue(q *Queue, root *os.Root, p string, v Version, now time.Time) error {
	queued := false
	err := q.update(func(c *change) error {
		if a, err := about(c.tx); err != nil || a.Dir == "" {
			return err
		}
		old, err := c.file(p)
		if err != nil || old != nil && old.Version == v && old.State != Arriving {
			return err
		}
		if here := look(root, p); here == nil || *here != v {
			return nil
		}
		queued = true
		return c.put(p, &File{State: Waiting, Version: v, Arrived: now})
	})
	if queued && err == nil {
		signal(u.queued)
	}
	return err
}

// finds reports whether a scan without rules sends the regular file at a path.
func finds(root *os.Root, p string) bool {
	if len(p) > maxPath || !fs.ValidPath(p) {
		return false
	}
	for at := p; at != "."; at = path.Dir(at) {
		info, err := root.Lstat(at)
		if err != nil || isOwn(at) || at != p && !info.IsDir() || info.IsDir() && isSnapshot(at) && isSeries(root, path.Dir(at)) {
			return false
		}
	}
	return true
}

// isSeries reports whether a folder is one of snapshots.
func isSeries(root *os.Root, dir string) bool {
	f, err := root.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, seriesName) })
}
