package disk

import "sync"

// unnamed has the targets of this process whose files have no name yet. It does for them what locks
// do for partial files: whoever writes the same target later waits for the first, and so the last
// one wins. Writers in other processes do not see it: of two, the one wins that gives its file the
// name last. Names are given and moved in one step, so the target is always the file of one of them.
var unnamed = unnamedFiles{targets: make(map[unnamedTarget]struct{})}

// unnamedTarget is a name in a folder.
type unnamedTarget struct {
	folder fileRef
	base   string
}

func targetIn(f *folder, base string) unnamedTarget { return unnamedTarget{refOf(f.info), base} }

type unnamedFiles struct {
	mu      sync.Mutex // guards the following
	targets map[unnamedTarget]struct{}
}

// add adds a target. It returns false if the target has such a file.
func (u *unnamedFiles) add(x unnamedTarget) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, busy := u.targets[x]; busy {
		return false
	}
	u.targets[x] = struct{}{}
	return true
}

func (u *unnamedFiles) remove(x unnamedTarget) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.targets, x)
}

// has reports whether base in f has such a file. Whoever makes a partial file asks afterwards, and
// whoever adds a target looks for a partial file afterwards: so at least one of them notices.
func (u *unnamedFiles) has(f *folder, base string) bool { return u.hasTarget(targetIn(f, base)) }

func (u *unnamedFiles) hasTarget(x unnamedTarget) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, busy := u.targets[x]
	return busy
}
