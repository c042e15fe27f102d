package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Then says what becomes of a local file once the server has committed it.
type Then struct {
	Delete bool
	MoveTo string // folder on the same file system that takes the file under its path; "" for none
}

// asideName is the folder, below the watched one, of files that are about to be removed.
//
// A file goes there by a rename, so nobody opens it by its name from then on. Whoever had it open
// before can still write to it. That shows in its metadata, and on Linux as a lease that is refused.
// So it stays there for a second, and is then compared with the version that the server has. If it
// differs, or somebody has it open for writing, it goes back to its place.
const asideName = ".fxfer-sent"

// asideFor is how long a file stays in asideName at least. It is far longer than a program takes
// from the lookup of a name to the end of its open.
const asideFor = time.Second

// removes reports whether a file that is there goes.
func (t Then) removes() bool { return t != Then{} }

// Writes returns the folders that the files of dir come from and go to, none if they stay.
func (t Then) Writes(dir string) (folders []string) {
	if t.removes() {
		folders = append(folders, dir)
	}
	if t.MoveTo != "" {
		folders = append(folders, t.MoveTo)
	}
	return folders
}

// note is what the queue knows of a file in asideName: the version that the server has, and the
// marker that it had here, nil for none.
type note struct {
	Version
	Marker *Version `json:"marker,omitempty"`
}

// keep notes that a file could not be removed or moved.
func (w *Watcher) keep(p string, v Version, now time.Time) {
	k := w.kept[p]
	if !k.version.sameButRenamed(v) {
		k = kept{version: v}
	}
	k.tries++
	k.until = now.Add(retryAfter(k.tries))
	w.kept[p] = k
}

// isKept reports whether it is too early to try again to remove or move this version of a file.
func (w *Watcher) isKept(p string, v Version, now time.Time) bool {
	k, failed := w.kept[p]
	if failed && !k.version.sameButRenamed(v) {
		delete(w.kept, p)
		return false
	}
	return failed && now.Before(k.until)
}

// hasRoomAside reports whether a file can get its place in asideName.
func hasRoomAside(root *os.Root, p string) bool {
	_, err := root.Lstat(path.Join(asideName, p))
	return err != nil
}

// setAside renames a file to its place in asideName, unless it has changed. The queue has a note
// about it already: a crash after the rename must not make the file look like a new one.
func setAside(root *os.Root, p string, v Version) error {
	if now := look(root, p); now == nil || *now != v {
		return nil
	}
	to := path.Join(asideName, p)
	if err := root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return err
	}
	return root.Rename(p, to)
}

// finishAside removes the files that have been aside long enough, or moves them to Then.MoveTo. It
// puts those back that are not what the server has, and those that it does not know. Without Then,
// it puts all of them back. It returns the number of files that remain aside.
func (w *Watcher) finishAside(root *os.Root, now time.Time) (left int, err error) {
	if _, err := root.Lstat(asideName); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	notes := map[string]*note{}
	err = w.Queue.view(func(tx *bolt.Tx) error {
		return tx.Bucket(asideBucket).ForEach(func(k, _ []byte) error {
			n := new(note)
			notes[string(k)] = n
			return read(tx.Bucket(asideBucket), k, n)
		})
	})
	if err != nil {
		return 0, err
	}
	var files, folders []string
	err = fs.WalkDir(root.FS(), asideName, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			folders = append(folders, p)
		default:
			files = append(files, strings.TrimPrefix(p, asideName+"/"))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var failed []error
	waits := map[string]bool{}
	for _, p := range files {
		first, seen := w.aside[p]
		if !seen {
			first.since = now
			if v := look(root, path.Join(asideName, p)); v != nil {
				first.version = *v
			}
			w.aside[p] = first
		}
		if now.Sub(first.since) < asideFor {
			waits[p] = true
			continue
		}
		delete(w.aside, p)
		failed = append(failed, w.endAside(root, p, notes[p], first.version, now))
	}
	for i := len(folders) - 1; i >= 0; i-- {
		_ = root.Remove(folders[i]) // fails while it is not empty
	}
	err = w.Queue.update(func(c *change) error {
		for p := range notes {
			if !waits[p] {
				if err := c.remove(asideBucket, p); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return len(waits), errors.Join(append(failed, err)...)
}

// emptyAside decides about all files in asideName before the watcher ends: there may never be another.
func (w *Watcher) emptyAside() {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return
	}
	defer root.Close()
	left, err := w.finishAside(root, time.Now())
	if err == nil && left > 0 {
		time.Sleep(asideFor)
		_, err = w.finishAside(root, time.Now())
	}
	if err != nil {
		w.Log.Error("files that were sent", "error", err)
	}
}

// endAside decides about one file that has been aside long enough. n is the note about it, nil if
// there is none, and first what it was when it was first seen there.
func (w *Watcher) endAside(root *os.Root, p string, n *note, first Version, now time.Time) error {
	at := path.Join(asideName, p)
	v := look(root, at)
	known := n != nil && v != nil && *v == first && v.sameButRenamed(n.Version)
	if !known || !w.Then.removes() || isOpen(root, at) {
		w.Log.Info("back in its place", "path", p)
		return putBack(root, at, p)
	}
	moved, err := "", error(nil)
	if w.Then.MoveTo == "" {
		err = root.Remove(at)
	} else {
		moved, err = w.moveOut(root, at, p)
	}
	if err != nil {
		w.keep(p, n.Version, now)
		return errors.Join(fmt.Errorf("remove or move %s: %w", p, cause(err)), putBack(root, at, p))
	}
	return w.endMarker(root, p, n.Marker, moved)
}

// endMarker removes the marker of a file that is gone, or moves it after the file, which is at the
// path moved below Then.MoveTo then. A marker that is not the one that the scan saw stays, and so does
// that of a new file in the same place.
func (w *Watcher) endMarker(root *os.Root, p string, seen *Version, moved string) error {
	at := p + w.Marker
	v := look(root, at)
	if _, err := root.Lstat(p); err == nil || seen == nil || v == nil || *v != *seen {
		return nil
	}
	if moved == "" {
		return root.Remove(at)
	}
	_, err := w.moveOut(root, at, moved+w.Marker)
	return err
}

// putBack returns a file to its place, or beside it if that is taken. It replaces nothing.
func putBack(root *os.Root, at, p string) error {
	if err := root.MkdirAll(path.Dir(p), 0o777); err != nil {
		return err
	}
	into, err := root.Open(path.Dir(p))
	if err != nil {
		return err
	}
	defer into.Close()
	_, err = moveInto(root, at, into, path.Base(p))
	return err
}

// moveOut moves a file out of the folder to a path below Then.MoveTo, or beside it if that is taken.
// It replaces nothing, and returns the path that the file has then. Who makes symlinks in that folder
// does not lead it elsewhere: the names are those that clients have chosen.
func (w *Watcher) moveOut(root *os.Root, at, to string) (moved string, err error) {
	target, err := os.OpenRoot(w.Then.MoveTo)
	if err != nil {
		return "", err
	}
	defer target.Close()
	dir := path.Dir(to)
	if err := target.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	into, err := target.Open(dir)
	if err != nil {
		return "", err
	}
	defer into.Close()
	name, err := moveInto(root, at, into, path.Base(to))
	return path.Join(dir, name), err
}

// moveInto moves a file into an open folder, under the name or one like it, which it returns. Both
// ends are named below handles of their folders, because others may write to these.
func moveInto(root *os.Root, at string, into *os.File, name string) (as string, err error) {
	from, err := root.Open(path.Dir(at))
	if err != nil {
		return "", err
	}
	defer from.Close()
	err = eachFree(name, func(free string) error {
		as = free
		return renameNew(from, path.Base(at), into, free)
	})
	return as, err
}

// mostNames is how many names eachFree tries.
const mostNames = 1000

// eachFree calls try with a path, then with path.2, path.3 and so on while that returns
// fs.ErrExist.
func eachFree(p string, try func(string) error) error {
	err := try(p)
	for i := 2; errors.Is(err, fs.ErrExist) && i <= mostNames; i++ {
		err = try(p + "." + strconv.Itoa(i))
	}
	return err
}
