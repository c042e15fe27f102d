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
	// maxFolders is how many folders a tree keeps open for later calls, with at most two
	// descriptors each, and leastFolders how many it may keep in any case.
	maxFolders   = 1024
	leastFolders = 8
	// maxOurs is how many folders a tree knows to have made.
	maxOurs = 1 << 14
	// maxAllFolders bounds what all trees of this process keep.
	maxAllFolders = 4096
	// folderIdle is how long an unused folder stays open, or up to twice that. A long-lived tree
	// must not keep file systems busy, or removed folders alive.
	folderIdle = 10 * time.Second
	// folderFresh is how long an open folder is used without a check that its path still leads to
	// it. The check takes as many system calls as opening and closing a file.
	folderFresh = 20 * time.Millisecond
	// folderEmpty is how long a folder that the tree has just made is believed to be empty.
	folderEmpty = time.Second
)

// allFolders is what the trees of this process may keep, without the least of each. A tree never has
// more than is left for all others: whoever uses many trees takes little from those who use one.
var allFolders = newFolderPool(OpenFiles())

// folderPool counts the folders that several trees keep.
type folderPool struct {
	most int64
	kept atomic.Int64
}

// newFolderPool returns the pool of a process that may open so many files, 0 if unknown.
func newFolderPool(openFiles uint64) *folderPool {
	most := int64(maxAllFolders)
	if openFiles > 0 { // the rest is for connections and for the files that are transferred
		most = min(most, int64(min(openFiles, 1<<30))/16)
	}
	return &folderPool{most: most}
}

// room is how many folders one tree may keep now.
func (p *folderPool) room() int {
	left := p.most - p.kept.Load()
	return int(min(maxFolders, max(leastFolders, left)))
}

// folder is an open folder of a tree. It is shared: users release it and never close it. It stays
// usable after the tree was closed.
type folder struct {
	root *os.Root
	path string      // in the tree, when it was entered
	info fs.FileInfo // identifies the folder

	ours *ours // nil if the tree did not make it, or long ago

	refs atomic.Int32 // including the cache's; the last one closes the folder

	// Guarded by the cache's lock.
	used    bool  // since the last dropIdle
	checked int64 // when path last led here, by the cache's clock

	opening sync.Mutex               // held while file is opened
	file    atomic.Pointer[os.File]  // nil until somebody uses it
	newFile atomic.Pointer[newcomer] // what new files get here; nil if unknown
}

// ours is what is known of a folder that the tree has made, however often it opens that.
type ours struct {
	made int64 // by the cache's clock

	filled   atomic.Bool // the tree has put something into it
	partials atomic.Bool // the tree has opened a Partial in it
}

// fill notes that the tree puts something into f.
func (f *folder) fill() {
	if f.ours != nil {
		f.ours.filled.Store(true)
	}
}

// newcomer describes what a file got from its folder and the process when it was made. It does not
// change once others know it.
type newcomer struct {
	at       int64 // a time before the file was made, by the cache's clock
	uid, gid uint32
	dev      uint64
	asked    uint32      // the mode that it was made with
	mode     fs.FileMode // that it got
	bare     bool        // there were no extended attributes to remove
}

// dir returns the folder as a file, for calls that os.Root lacks. It is closed with the folder. All
// users share its read position, so nobody reads names from it.
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

// release drops a reference.
func (f *folder) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	if f.root != nil {
		f.root.Close()
	}
	if file := f.file.Load(); file != nil {
		file.Close()
	}
}

// folder opens the folder at path, never through a symlink. If the folder is open already, it costs
// one check that path still leads there, however deep it is, or none within folderFresh of the last
// check. The caller releases it, soon if it uses many folders: every folder that is not released
// stays open.
func (t *Tree) folder(path string) (*folder, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	return t.openFolder(path)
}

// openFolder is folder for a path that was checked.
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

// misplaced reports whether err means that f is no longer in its place. If so, all folders are
// checked before their next use: those above f may have moved, too.
func (t *Tree) misplaced(f *folder, err error) bool {
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)
	if !gone || f.path == "." || t.leadsTo(f.path, f) {
		return false
	}
	t.folders.changed()
	return true
}

// nearest returns the open folder that path, or the longest part of it, leads to.
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
	now := t.folders.now() // a change after this moment may go unnoticed
	if !t.leadsTo(f.path, f) {
		return false
	}
	t.folders.confirm(f, now)
	return true
}

// enter opens the folder name in f, and keeps it in the cache. The caller releases it.
func (t *Tree) enter(f *folder, name string) (*folder, error) {
	// This path is as certain as that of f.
	since := t.folders.checked(f)
	next, err := f.enter(name)
	if err != nil {
		return nil, err
	}
	next.checked = since
	next.ours = t.folders.oursOf(next)
	return t.folders.add(next), nil
}

// withFolder calls do with the folder at path. It calls do once more if do did not find something
// because the folder was removed or replaced meanwhile. do must not keep the folder.
func (t *Tree) withFolder(path string, do func(*os.Root) error) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	return t.with(path, func(f *folder) error { return do(f.root) })
}

// withParent is withFolder for the folder that holds path. base is the name in it.
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

// enter opens the folder name, one element, in f. Root.OpenRoot would follow a symlink inside f. To
// notice that, enter compares what it opened with what look saw under the name, which also shows an
// exchange in between.
func (f *folder) enter(name string) (*folder, error) {
	file, seen, err := f.look(name)
	if err != nil {
		return nil, err
	}
	next := &folder{path: childPath(f.path, name)}
	next.file.Store(file)
	next.refs.Store(1)
	if next.root, err = f.root.OpenRoot(name); err == nil {
		next.info, err = next.root.Stat(".")
	}
	if err == nil && !os.SameFile(seen, next.info) {
		err = ErrNotFolder
	}
	if err != nil {
		next.release()
		return nil, err
	}
	return next, nil
}

// leadsToSlowly reports whether path below root is the folder f. It uses a system call for each
// element.
func leadsToSlowly(root *os.Root, path string, f *folder) bool {
	info, err := root.Lstat(path)
	return err == nil && os.SameFile(info, f.info)
}

// childPath returns the path of the entry name in the folder at path.
func childPath(path, name string) string {
	if path == "." {
		return name
	}
	return path + "/" + name
}

// folders is a tree's cache of open folders: the root, and those used last. Somebody may have
// renamed or removed a folder since. Whoever takes one by its path checks that, unless somebody did
// within folderFresh. Changes by the tree itself are noticed at once.
type folders struct {
	started time.Time
	pool    *folderPool

	mu     sync.Mutex // guards the following; not held during system calls
	root   *folder    // nil once closed
	byPath map[string]*list.Element
	recent list.List   // of *folder, the last used in front
	timer  *time.Timer // calls dropIdle; runs while there are any
	moved  int64       // checks before this time, by now, are void

	lastMade   string // the folder that the tree made last, "" if somebody has entered it
	lastMadeAt int64  // by now
	ours       map[fileRef]*ours
}

// now returns the time of the cache's clock in nanoseconds. It takes no system call.
func (c *folders) now() int64 { return int64(time.Since(c.started)) }

// start sets the root. The tree takes over its only reference.
func (c *folders) start(root *folder) {
	root.refs.Store(1)
	root.checked = math.MaxInt64 // the root is the tree, wherever it moves
	c.started, c.pool = time.Now(), allFolders
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

// get returns the folder that is kept for path, or nil, and reports whether it needs no check. The
// caller releases the folder.
func (c *folders) get(path string) (f *folder, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.recent.Front() // most calls follow others in the same folder
	if element == nil || element.Value.(*folder).path != path {
		if element = c.byPath[path]; element == nil {
			return nil, false
		}
		c.recent.MoveToFront(element)
	}
	f = element.Value.(*folder)
	f.used = true
	return f.retain(), c.freshLocked(f.checked, c.now())
}

// fresh reports whether a check at this time is recent enough now. Both are by now.
func (c *folders) fresh(at, now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.freshLocked(at, now)
}

func (c *folders) freshLocked(at, now int64) bool { return at > c.moved && now-at < int64(folderFresh) }

// confirm notes that the path of f led to it at this time, by now.
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

// changed makes every folder be checked again: the tree moved some, or changed what entries inherit
// from them.
func (c *folders) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = c.now()
}

// made notes that the tree just made the folder at path. A folder that is kept for that path must
// be another one.
func (c *folders) made(path string) {
	c.mu.Lock()
	c.lastMade, c.lastMadeAt = path, c.now()
	kept := c.byPath[path] != nil
	c.mu.Unlock()
	if kept {
		c.forgetBelow(path)
	}
}

// oursOf returns what is known of f, which was just entered, if the tree made it: a moment ago and
// nobody has entered it since, or it was entered before. Somebody may have put another folder in its
// place that has the same number by chance. At worst a partial file in it is left to Sweep then.
func (c *folders) oursOf(f *folder) *ours {
	ref := refOf(f.info)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastMade != f.path {
		return c.ours[ref]
	}
	c.lastMade = ""
	if c.now()-c.lastMadeAt > int64(folderEmpty) {
		return nil
	}
	x := &ours{made: c.lastMadeAt}
	if c.ours == nil || len(c.ours) >= maxOurs {
		c.ours = make(map[fileRef]*ours)
	}
	if ref.ino != 0 {
		c.ours[ref] = x
	}
	return x
}

// isVacant reports whether the tree has just made f, and put nothing into it.
func (c *folders) isVacant(f *folder) bool {
	return f.ours != nil && !f.ours.filled.Load() && c.now()-f.ours.made < int64(folderEmpty)
}

// neverVacant is isVacant for whoever has to see what others put into a folder.
func neverVacant(*folder) bool { return false }

// add keeps f for its path, instead of the folder kept before, and returns f. The caller still uses
// f and releases it.
func (c *folders) add(f *folder) *folder {
	var dropped []*folder
	c.mu.Lock()
	if c.root != nil {
		if old := c.byPath[f.path]; old != nil {
			dropped = append(dropped, c.removeLocked(old))
		}
		for room := c.pool.room(); c.recent.Len() >= room; {
			dropped = append(dropped, c.removeLocked(c.recent.Back()))
		}
		if c.recent.Len() == 0 {
			c.timer.Reset(folderIdle)
		}
		f.used = true
		c.byPath[f.path] = c.recent.PushFront(f.retain())
		c.pool.kept.Add(1)
	}
	c.mu.Unlock()
	for _, old := range dropped {
		old.release()
	}
	return f
}

// forgetBelow drops the folder at path and those below it from the cache. Where open folders cannot
// be removed, this has to come first.
func (c *folders) forgetBelow(path string) {
	c.drop(func(f *folder) bool {
		return path == "." || f.path == path || strings.HasPrefix(f.path, path) && f.path[len(path)] == '/'
	})
}

// dropIdle drops the folders that nobody used since its last call.
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
	} else {
		c.ours = nil
	}
}

// drop drops the folders for which is returns true.
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

// close drops all folders, and keeps none from now on.
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
	c.pool.kept.Add(-1)
	delete(c.byPath, f.path)
	return f
}
