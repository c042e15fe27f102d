package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
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

// setAside renames a file of this version that the server has to its place in asideName. It does
// nothing if the file has changed, or if that place is taken.
func (w *Watcher) setAside(root *os.Root, p string, v Version) error {
	if now := look(root, p); now == nil || *now != v {
		return nil
	}
	to := path.Join(asideName, p)
	if _, err := root.Lstat(to); err == nil {
		return nil
	}
	if err := root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return err
	}
	// The note comes first: a crash after the rename must not make the file look like a new one.
	err := w.Queue.update(func(c *change) error { return c.write(asideBucket, p, v) })
	if err != nil {
		return err
	}
	return root.Rename(p, to)
}

// finishAside removes the files that have been aside long enough, or moves them to Then.MoveTo. It
// puts those back that are not what the server has, and those that it does not know. It returns the
// number of files that remain aside.
func (w *Watcher) finishAside(root *os.Root, now time.Time) (left int, err error) {
	if _, err := root.Lstat(asideName); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	notes := map[string]Version{}
	err = w.Queue.view(func(tx *bolt.Tx) error {
		return tx.Bucket(asideBucket).ForEach(func(k, _ []byte) error {
			var v Version
			err := read(tx.Bucket(asideBucket), k, &v)
			notes[string(k)] = v
			return err
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
		began, seen := w.aside[p]
		if !seen {
			began, w.aside[p] = now, now
		}
		if now.Sub(began) < asideFor {
			waits[p] = true
			continue
		}
		delete(w.aside, p)
		note, noted := notes[p]
		failed = append(failed, w.endAside(root, p, note, noted))
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

// endAside decides about one file that has been aside long enough. sent is the version that the
// server has.
func (w *Watcher) endAside(root *os.Root, p string, sent Version, noted bool) error {
	at := path.Join(asideName, p)
	now := look(root, at)
	if !noted || now == nil || !now.sameButRenamed(sent) || isOpen(root, at) {
		w.Log.Info("changed after it was sent: kept", "path", p)
		return putBack(root, at, p)
	}
	if w.Then.MoveTo == "" {
		return errors.Join(root.Remove(at), w.removeMarker(root, p))
	}
	if err := moveTo(root, at, filepath.Join(w.Then.MoveTo, filepath.FromSlash(p))); err != nil {
		w.kept[p] = true
		return errors.Join(fmt.Errorf("move %s: %w", p, cause(err)), putBack(root, at, p))
	}
	return w.removeMarker(root, p)
}

// removeMarker removes the marker of a file that is gone. A new file there keeps it.
func (w *Watcher) removeMarker(root *os.Root, p string) error {
	if _, err := root.Lstat(p); w.Marker == "" || err == nil {
		return nil
	}
	if err := root.Remove(p + w.Marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// putBack returns a file to its place, or beside it if that is taken. It replaces nothing.
func putBack(root *os.Root, at, p string) error {
	if err := root.MkdirAll(path.Dir(p), 0o777); err != nil {
		return err
	}
	return eachFree(p, func(to string) error {
		err := root.Link(at, to)
		if err == nil {
			return root.Remove(at)
		}
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, taken := root.Lstat(to); taken == nil { // a file system without hard links
			return fs.ErrExist
		}
		return root.Rename(at, to)
	})
}

// moveTo moves a file out of the folder to a path, or beside it if that is taken. It replaces
// nothing. Both ends are named below handles of their folders, because others may write to these.
func moveTo(root *os.Root, at, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	from, err := root.Open(path.Dir(at))
	if err != nil {
		return err
	}
	defer from.Close()
	into, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer into.Close()
	err = eachFree(filepath.Base(to), func(name string) error { return linkBetween(from, path.Base(at), into, name) })
	if err == nil {
		err = root.Remove(at)
	}
	return err
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
