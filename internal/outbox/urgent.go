package outbox

import "sync"

// urgent are files that somebody waits for: they are sent as soon as they can be. The zero urgent has
// none. Those from newUrgent are safe for concurrent use, and copies of one have the same files.
type urgent struct {
	*urgentPaths
	more chan struct{} // signalled when there is another one
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
	u.paths[path]++
	u.mu.Unlock()
	signal(u.more)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.paths[path]--; u.paths[path] == 0 {
			delete(u.paths, path)
		}
	}
}

func (u urgent) has(path string) bool {
	if u.urgentPaths == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.paths[path] > 0
}
