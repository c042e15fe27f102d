package disk

import (
	"container/list"
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxFolders is how many folders a tree keeps open for the next call, with at
	// most two descriptors each.
	maxFolders = 256
	// folderIdle is how long one stays open that nobody uses, twice that at most: a
	// long-lived tree must not hold file systems busy nor removed folders.
	folderIdle = 10 * time.Second
	// folderFresh is how long an open folder is used without another look whether
	// its path still leads there, which takes as many system calls as opening and
	// closing a file.
	folderFresh = 20 * time.Millisecond
)

// folder is an open folder of a tree. It is shared: whoever got it releases it,
// and nobody closes it. It stays usable after the tree was closed.
type folder struct {
	root *os.Root
	path string      // in the tree, when it was entered
	info fs.FileInfo // which folder it is

	refs atomic.Int32 // the cache's among them; the last one closes

	// Guarded by the cache's lock.
	used    bool  // since the last dropIdle
	checked int64 // when path was last seen to lead here; of the cache's clock

	opening sync.Mutex               // held while file is opened
	file    atomic.Pointer[os.File]  // nil until somebody needs it
	newFile atomic.Pointer[newcomer] // what files made here are like; nil if unknown
}

// newcomer says what a file made in a folder just then got from it and the
// process, beside the mode, and that there were no extended attributes to remove.
type newcomer struct {
	at       int64 // before it was made; of the cache's clock
	uid, gid uint32
}

// dir is the folder as a file, for calls that os.Root has not. It is closed with
// the folder. Its read position is everybody's, so names are not read from it.
func (f *folder) dir() (*os.File, error) {
	if file := f.file.Load(); file != nil {
		return file, nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if file := f.file.Load(); file != nil {
		return file, nil
	}
	file, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	f.file.Store(file)
	return file, nil
}

// retain adds a reference to a folder that has one.
func (f *folder) retain() *folder {
	f.refs.Add(1)
	return f
}

// release gives a reference back.
func (f *folder) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	f.root.Close()
	if file := f.file.Load(); file != nil {
		file.Close()
	}
}

// folder opens the folder at path, never through a symlink. What was open
// already costs one look whether path still leads there, however deep it is, or
// none if that was done less than folderFresh ago. The caller releases it, and
// soon where it deals with many folders: each that is not released stays open.
func (t *Tree) folder(path string) (*folder, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	return t.openFolder(path)
}

// openFolder is folder for a path that is checked.
func (t *Tree) openFolder(path string) (*folder, error) {
	f, misplaced, err := t.tryFolder(path)
	if misplaced {
		f, _, err = t.tryFolder(path)
	}
	return f, err
}

// tryFolder is openFolder, and reports whether the error is worth another try.
func (t *Tree) tryFolder(path string) (_ *folder, misplaced bool, err error) {
	f, err := t.nearest(path)
	if err != nil {
		return nil, false, err
	}
	rest := ""
	if path != f.path {
		rest = path
		if f.path != "." {
			rest = path[len(f.path)+1:]
		}
	}
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next, err := t.enter(f, name)
		misplaced = t.misplaced(f, err)
		f.release()
		if err != nil {
			return nil, misplaced, err
		}
		f = next
	}
	return f, false, nil
}

// misplaced reports whether err is due to f being no longer in its place. If so
// all folders are checked before their next use, as those above may be, too.
func (t *Tree) misplaced(f *folder, err error) bool {
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
	if !gone || f.path == "." || t.leadsTo(f.path, f) {
		return false
	}
	t.folders.changed()
	return true
}

// nearest is the open folder that path or most of it leads to.
func (t *Tree) nearest(path string) (*folder, error) {
	for path != "." {
		if f, fresh := t.folders.get(path); f != nil {
			if fresh || t.check(f) {
				return f, nil
			}
			f.release()
			t.folders.forgetBelow(path)
		}
		path, _ = splitPath(path)
	}
	return t.folders.top()
}

// check reports whether the path of f still leads to it.
func (t *Tree) check(f *folder) bool {
	now := t.folders.now() // what happens from here on may go unnoticed
	if !t.leadsTo(f.path, f) {
		return false
	}
	t.folders.confirm(f, now)
	return true
}

// enter opens the folder name in f and keeps it. The caller releases it.
func (t *Tree) enter(f *folder, name string) (*folder, error) {
	// Its path is as sure as that of f.
	since := t.folders.checked(f)
	next, err := f.enter(name)
	if err != nil {
		return nil, err
	}
	next.checked = since
	return t.folders.add(next), nil
}

// parent opens the folder that holds path, and says under which name. The root
// is held by itself under ".". The caller releases the folder.
func (t *Tree) parent(path string) (f *folder, base string, err error) {
	if err := CheckPath(path); err != nil {
		return nil, "", err
	}
	above, base := splitPath(path)
	f, err = t.openFolder(above)
	return f, base, err
}

// withFolder calls do with the folder at path, and once more if do didn't find
// something because that folder was removed or replaced at the same time. do
// must not keep the folder.
func (t *Tree) withFolder(path string, do func(*os.Root) error) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	return t.with(path, func(f *folder) error { return do(f.root) })
}

// withParent is withFolder for the folder that holds path, under the name base.
func (t *Tree) withParent(path string, do func(f *folder, base string) error) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	above, base := splitPath(path)
	return t.with(above, func(f *folder) error { return do(f, base) })
}

func (t *Tree) with(path string, do func(*folder) error) error {
	for retry := false; ; retry = true {
		f, err := t.openFolder(path)
		if err != nil {
			return err
		}
		err = do(f)
		again := !retry && t.misplaced(f, err)
		f.release()
		if !again {
			return err
		}
	}
}

// enter opens the folder name, one element, in f. Root.OpenRoot would follow a
// symlink inside f; comparing what it opened with what lstat saw under the name
// shows that, also when the two changed places in between.
func (f *folder) enter(name string) (*folder, error) {
	seen, err := f.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, ErrNotFolder
	}
	root, err := f.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	got, err := root.Stat(".")
	if err == nil && !os.SameFile(seen, got) {
		err = ErrNotFolder
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	next := &folder{root: root, path: childPath(f.path, name), info: got}
	next.refs.Store(1)
	return next, nil
}

// leadsToSlowly reports whether path below root is the folder f, with a system
// call for each element.
func leadsToSlowly(root *os.Root, path string, f *folder) bool {
	info, err := root.Lstat(path)
	return err == nil && os.SameFile(info, f.info)
}

// childPath is the path of the entry name in the folder at path.
func childPath(path, name string) string {
	if path == "." {
		return name
	}
	return path + "/" + name
}

// folders are those that a tree keeps open: the root, and the ones that were used
// last. A folder may have been renamed or removed since; who takes one by its
// path checks that, unless somebody has within folderFresh. What the tree itself
// does to folders is noticed at once.
type folders struct {
	started time.Time

	mu     sync.Mutex // guards the following; not held during system calls
	root   *folder    // nil once closed
	byPath map[string]*list.Element
	recent list.List   // of *folder, the last used in front
	timer  *time.Timer // calls dropIdle; runs while there are any
	moved  int64       // what was checked before this is not known any more; of now
}

// now is the cache's clock, in nanoseconds. It takes no system call.
func (c *folders) now() int64 { return int64(time.Since(c.started)) }

// start makes root, whose only reference it takes, that of the tree.
func (c *folders) start(root *folder) {
	root.refs.Store(1)
	root.checked = math.MaxInt64 // it is the tree, wherever it is
	c.started = time.Now()
	c.root, c.byPath = root, make(map[string]*list.Element)
	c.timer = time.AfterFunc(folderIdle, c.dropIdle)
}

// top returns the root of the tree, for the caller to release.
func (c *folders) top() (*folder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.root == nil {
		return nil, os.ErrClosed
	}
	return c.root.retain(), nil
}

// get returns the folder kept for path, for the caller to release, or nil, and
// whether it needs no check.
func (c *folders) get(path string) (f *folder, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byPath[path]
	if element == nil {
		return nil, false
	}
	c.recent.MoveToFront(element)
	f = element.Value.(*folder)
	f.used = true
	return f.retain(), c.freshLocked(f.checked)
}

// fresh reports whether what was seen at a time of now may still be relied on.
func (c *folders) fresh(at int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.freshLocked(at)
}

func (c *folders) freshLocked(at int64) bool { return at > c.moved && c.now()-at < int64(folderFresh) }

// confirm notes that the path of f led to it at a time of now.
func (c *folders) confirm(f *folder, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.checked = max(f.checked, at)
}

// checked returns when the path of f was last known to lead to it.
func (c *folders) checked(f *folder) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(f.checked, c.now())
}

// changed has all folders checked once more: the tree just moved some, or changed
// what is inherited from them.
func (c *folders) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = c.now()
}

// made notes that the tree just made the folder at path: what is kept for that
// must be another.
func (c *folders) made(path string) {
	c.mu.Lock()
	kept := c.byPath[path] != nil
	c.mu.Unlock()
	if kept {
		c.forgetBelow(path)
	}
}

// add keeps f, which the caller goes on to use and releases, in place of what was
// kept for its path. It returns f.
func (c *folders) add(f *folder) *folder {
	var dropped []*folder
	c.mu.Lock()
	if c.root != nil {
		if old := c.byPath[f.path]; old != nil {
			dropped = append(dropped, c.removeLocked(old))
		}
		if c.recent.Len() >= maxFolders {
			dropped = append(dropped, c.removeLocked(c.recent.Back()))
		}
		if c.recent.Len() == 0 {
			c.timer.Reset(folderIdle)
		}
		f.used = true
		c.byPath[f.path] = c.recent.PushFront(f.retain())
	}
	c.mu.Unlock()
	for _, old := range dropped {
		old.release()
	}
	return f
}

// forgetBelow no longer keeps the folder at path and those below it. Where open
// folders can't be removed this comes first.
func (c *folders) forgetBelow(path string) {
	c.drop(func(f *folder) bool {
		return path == "." || f.path == path || strings.HasPrefix(f.path, path) && f.path[len(path)] == '/'
	})
}

// dropIdle no longer keeps the folders that were not used since its last call.
func (c *folders) dropIdle() {
	c.drop(func(f *folder) bool {
		idle := !f.used
		f.used = false
		return idle
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recent.Len() > 0 {
		c.timer.Reset(folderIdle)
	}
}

// drop no longer keeps the folders of which is says so.
func (c *folders) drop(is func(*folder) bool) {
	var dropped []*folder
	c.mu.Lock()
	for _, element := range c.byPath {
		if is(element.Value.(*folder)) {
			dropped = append(dropped, c.removeLocked(element))
		}
	}
	c.mu.Unlock()
	for _, f := range dropped {
		f.release()
	}
}

// close no longer keeps any folder, nor will it.
func (c *folders) close() {
	c.mu.Lock()
	root := c.root
	c.root = nil
	c.mu.Unlock()
	if root != nil {
		c.forgetBelow(".")
		c.timer.Stop()
		root.release()
	}
}

func (c *folders) removeLocked(element *list.Element) *folder {
	f := c.recent.Remove(element).(*folder)
	delete(c.byPath, f.path)
	return f
}
