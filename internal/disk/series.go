package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/snapshot"
)

const (
	// LatestName is the name of the symlink to the newest snapshot.
	LatestName = "latest"

	// These are beside the snapshots: the folder with facts about them, a snapshot that is being
	// filled, and one that is being removed.
	seriesState    = reservedPrefix + "snapshots"
	fillingSuffix  = ".snap"
	removingSuffix = ".gone"

	seriesOwners = "owners"
	seriesLock   = "lock"
)

// checkSnapshot returns an error that matches ErrPath if name is not the name of a snapshot.
func checkSnapshot(name string) error {
	if _, err := snapshot.ParseName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrPath, err)
	}
	return nil
}

// Series is a folder of snapshots: plain folders with times for names, and the symlink latest. A
// snapshot is filled under a reserved name, and gets its own when it is complete, so everything
// visible is whole. The methods are not safe for concurrent use. Lock excludes other Series of the
// same folder, also of other processes.
type Series struct {
	tree *Tree
	path string
	lock *os.File
}

// OpenSeries opens the series at path. It returns fs.ErrNotExist if there is none.
func (t *Tree) OpenSeries(path string) (*Series, error) {
	s := &Series{tree: t, path: path}
	err := s.inState(func(*os.Root) error { return nil })
	if err != nil {
		return nil, at("open snapshots", path, err)
	}
	return s, nil
}

// MakeSeries opens the series at path, or makes one for owner. A series cannot be inside another.
func (t *Tree) MakeSeries(path, owner string) (*Series, error) {
	if s, err := t.OpenSeries(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if above, _ := splitPath(path); path != "." {
		if in, _, err := t.SeriesOf(above); err != nil || in != "" {
			if err == nil {
				err = fmt.Errorf("%w: it is inside the snapshots of %q", ErrPath, in)
			}
			return nil, at("make snapshots", path, err)
		}
	}
	if err := t.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	err := t.withFolder(path, func(root *os.Root) error {
		// The series exists only once its owner is recorded, also after a power cut: a client that may only
		// append could never use one without.
		fresh := seriesState + ".new"
		if err := root.RemoveAll(fresh); err != nil {
			return err
		}
		if err := root.Mkdir(fresh, 0o700); err != nil {
			return err
		}
		if err := writeOwner(root, fresh, owner); err != nil {
			return err
		}
		if err := root.Rename(fresh, seriesState); err != nil {
			_ = root.RemoveAll(fresh)
			if _, there := root.Lstat(seriesState); there != nil {
				return err
			}
		}
		return syncFolder(root)
	})
	if err != nil {
		return nil, at("make snapshots", path, err)
	}
	return t.OpenSeries(path)
}

// writeOwner records the owner in the folder state, and returns when that is on the medium.
func writeOwner(root *os.Root, state, owner string) error {
	folder, err := root.OpenRoot(state)
	if err != nil {
		return err
	}
	defer folder.Close()
	file, err := folder.OpenFile(seriesOwners, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(owner + "\n")
	return errors.Join(err, syncData(file), file.Close(), syncFolder(folder))
}

// SeriesOf returns the path of the series that contains path, or is path, and the rest of path
// behind it. It returns "" if there is none.
func (t *Tree) SeriesOf(path string) (series, rest string, err error) {
	if err := CheckPath(path); err != nil {
		return "", "", err
	}
	for above := path; ; above, _ = splitPath(above) {
		_, err := t.OpenSeries(above)
		switch {
		case err == nil && above == path:
			return above, "", nil
		case err == nil && above == ".":
			return above, path, nil
		case err == nil:
			return above, path[len(above)+1:], nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrNotFolder):
			return "", "", err
		}
		if above == "." {
			return "", "", nil
		}
	}
}

// inState calls do with the folder of facts about the snapshots.
func (s *Series) inState(do func(*os.Root) error) error {
	if err := CheckPath(s.path); err != nil {
		return err
	}
	return s.tree.with(s.path, func(f *folder) error {
		state, err := f.enter(seriesState)
		if err != nil {
			return err
		}
		defer state.release()
		return do(state.root)
	})
}

// Owned reports whether owner is an owner of this series.
func (s *Series) Owned(owner string) (bool, error) {
	var text []byte
	err := s.inState(func(root *os.Root) error {
		file, info, err := openRegular(root, seriesOwners, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer file.Close()
		if info.Size() > 1<<20 {
			return fs.ErrInvalid
		}
		text, err = io.ReadAll(file)
		return err
	})
	if err != nil {
		return false, at("read the owners of", s.path, err)
	}
	for line := range bytes.Lines(text) {
		if owner != "" && string(bytes.TrimSpace(line)) == owner {
			return true, nil
		}
	}
	return false, nil
}

// Lock keeps others from filling, publishing and removing snapshots of this series until Close. It
// returns ErrBusy if somebody else holds the lock.
func (s *Series) Lock() error {
	err := s.inState(func(root *os.Root) error {
		file, err := root.OpenFile(seriesLock, os.O_RDWR|os.O_CREATE|openNonblock, 0o600)
		if err != nil {
			return err
		}
		if err := lockFile(file); err != nil {
			file.Close()
			return err
		}
		s.lock = file
		return nil
	})
	return at("lock", s.path, err)
}

// LockNotes keeps others, also in other processes, from LockNotes until unlock. It is held while a
// snapshot gets its name and while damage is recorded, which may happen beside whoever holds Lock.
// It waits for the present holder until ctx is done, and returns the cause of that.
func (s *Series) LockNotes(ctx context.Context) (unlock func(), err error) {
	for wait := time.Millisecond; ; wait = min(2*wait, notesEvery) {
		file, err := s.lockOwners()
		if err == nil {
			return func() { file.Close() }, nil
		}
		if errors.Is(err, ErrBusy) {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return nil, at("lock the notes on", s.path, err)
	}
}

// notesEvery is how often LockNotes looks at most whether the lock is free.
const notesEvery = 100 * time.Millisecond

// lockOwners locks the list of owners, which every series has: a series that may only be read gets no
// new file. It returns ErrBusy if somebody else holds the lock.
func (s *Series) lockOwners() (locked *os.File, err error) {
	err = s.inState(func(root *os.Root) error {
		file, _, err := openRegular(root, seriesOwners, os.O_RDWR) // NFS locks only what may be written
		if err != nil {
			file, _, err = openRegular(root, seriesOwners, os.O_RDONLY)
		}
		if err != nil {
			return err
		}
		if err := lockFile(file); err != nil {
			file.Close()
			return err
		}
		locked = file
		return nil
	})
	return locked, err
}

// Close releases the lock.
func (s *Series) Close() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// Snapshots lists the snapshots, complete ones and those being filled, in the order of their names.
func (s *Series) Snapshots() (complete, filling []string, err error) {
	err = s.each(func(_ *os.Root, name string, info fs.FileInfo) error {
		if checkSnapshot(name) == nil && info.IsDir() {
			complete = append(complete, name)
		}
		if inner := within(name, fillingSuffix); inner != "" && info.IsDir() {
			filling = append(filling, inner)
		}
		return nil
	})
	slices.Sort(complete)
	slices.Sort(filling)
	return complete, filling, at("list snapshots", s.path, err)
}

// isSnapshot reports whether a reserved name belongs to a snapshot that is being filled or removed.
func isSnapshot(name string) bool {
	return within(name, fillingSuffix)+within(name, removingSuffix) != ""
}

// within returns the snapshot that a reserved name with this suffix belongs to, "" for none.
func within(name, suffix string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(name, reservedPrefix), suffix)
	if checkSnapshot(inner) != nil || name != reservedPrefix+inner+suffix {
		return ""
	}
	return inner
}

// each visits the entries of the series' folder.
func (s *Series) each(visit func(root *os.Root, name string, info fs.FileInfo) error) error {
	return s.tree.withFolder(s.path, func(root *os.Root) error {
		for name, err := range namesIn(root) {
			if err != nil {
				return err
			}
			info, err := root.Lstat(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = visit(root, name, info)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Open opens a complete snapshot as a tree. The caller closes it.
func (s *Series) Open(name string) (*Tree, error) {
	if err := checkSnapshot(name); err != nil {
		return nil, err
	}
	return s.sub(name, name)
}

// sub opens a folder of the series as a tree.
func (s *Series) sub(entry, name string) (*Tree, error) {
	var sub *Tree
	err := s.tree.withFolder(s.path, func(root *os.Root) error {
		f := folder{root: root, path: s.path}
		next, err := f.enter(entry)
		if err != nil {
			return err
		}
		next.path = "."
		sub = &Tree{folders: new(folders), root: next.root, above: s.tree.root, place: childPath(s.path, entry)}
		sub.folders.start(next)
		return nil
	})
	return sub, at("open snapshot", childPath(s.path, name), err)
}

// Fill opens the folder in which to make the snapshot name. It reports whether an earlier run left
// that folder, perhaps for an older snapshot that was never finished. It returns fs.ErrExist if the
// snapshot is complete. It removes what a killed Remove left. The caller holds the lock and closes
// the tree.
func (s *Series) Fill(name string) (tree *Tree, resumed bool, err error) {
	if err := checkSnapshot(name); err != nil {
		return nil, false, err
	}
	if err := s.clean(); err != nil {
		return nil, false, err
	}
	_, left, err := s.Snapshots()
	if err != nil {
		return nil, false, err
	}
	filling := reservedPrefix + name + fillingSuffix
	err = s.tree.withFolder(s.path, func(root *os.Root) error {
		if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fs.ErrExist
			}
			return err
		}
		if n, _ := slices.BinarySearch(left, name); n > 0 && !slices.Contains(left, name) {
			if err := root.Rename(reservedPrefix+left[n-1]+fillingSuffix, filling); err != nil {
				return err
			}
		}
		err := root.Mkdir(filling, 0o700)
		if resumed = errors.Is(err, fs.ErrExist); resumed {
			return openUp(root, filling, ErrNotFolder)
		}
		return err
	})
	if err != nil {
		return nil, false, at("make snapshot", childPath(s.path, name), err)
	}
	tree, err = s.sub(filling, name)
	return tree, resumed, err
}

// Publish gives a complete and durable snapshot its name, and points latest to the newest one. own
// says that the folder already has its final metadata. Otherwise it gets the mode of new folders.
// The caller must have closed the tree from Fill.
func (s *Series) Publish(name string, own bool) error {
	err := s.inState(syncFolder) // the facts about the snapshot, such as its digests, are there before it is
	if err != nil {
		return at("publish snapshot", childPath(s.path, name), err)
	}
	err = s.tree.withFolder(s.path, func(root *os.Root) error {
		filling := reservedPrefix + name + fillingSuffix
		if !own {
			if err := root.Chmod(filling, 0o755); err != nil {
				return err
			}
		}
		if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return fs.ErrExist
		}
		if err := root.Rename(filling, name); err != nil {
			return err
		}
		return syncFolder(root)
	})
	s.tree.folders.changed()
	if err != nil {
		return at("publish snapshot", childPath(s.path, name), err)
	}
	return s.pointLatest()
}

// pointLatest points latest to the newest snapshot.
func (s *Series) pointLatest() error {
	complete, _, err := s.Snapshots()
	if err != nil {
		return err
	}
	err = s.tree.withFolder(s.path, func(root *os.Root) error {
		info, err := root.Lstat(LatestName)
		switch {
		case err == nil && info.Mode().Type() != fs.ModeSymlink:
			return nil // it belongs to somebody else
		case len(complete) == 0:
			return removeIfThere(root, LatestName)
		}
		newest := complete[len(complete)-1]
		if have, err := root.Readlink(LatestName); err == nil && have == newest {
			return nil
		}
		fresh := reservedName(LatestName) + linkSuffix
		if err := removeIfThere(root, fresh); err != nil {
			return err
		}
		if err := root.Symlink(newest, fresh); err != nil {
			if cannotHold(err) {
				return nil // the system has no symlinks
			}
			return err
		}
		if err := root.Rename(fresh, LatestName); err != nil {
			return err
		}
		return syncFolder(root)
	})
	return at("link the latest snapshot of", s.path, err)
}

// Remove removes a complete snapshot and the facts about it. The snapshot is invisible at once. The
// caller holds the lock.
func (s *Series) Remove(name string) error {
	if err := checkSnapshot(name); err != nil {
		return err
	}
	s.tree.folders.forgetBelow(childPath(s.path, name))
	err := s.tree.withFolder(s.path, func(root *os.Root) error {
		if err := root.Rename(name, reservedPrefix+name+removingSuffix); err != nil {
			return err
		}
		return syncFolder(root)
	})
	s.tree.folders.changed()
	if err != nil {
		return at("remove snapshot", childPath(s.path, name), err)
	}
	return errors.Join(s.pointLatest(), s.clean())
}

// clean removes snapshots whose removal was interrupted.
func (s *Series) clean() error {
	err := s.each(func(root *os.Root, name string, _ fs.FileInfo) error {
		inner := within(name, removingSuffix)
		if inner == "" {
			return nil
		}
		if err := removeAll(&folder{root: root, path: s.path}, name); err != nil {
			return err
		}
		return s.inState(func(state *os.Root) (failed error) {
			for name, err := range namesIn(state) {
				if err == nil && strings.HasPrefix(name, inner+".") {
					err = removeIfThere(state, name)
				}
				failed = errors.Join(failed, err)
			}
			return failed
		})
	})
	return at("remove snapshots of", s.path, err)
}

// State opens the folder of facts about the snapshots. Its files are named by a snapshot, a dot,
// and more. Remove removes them. The caller closes the folder.
func (s *Series) State() (root *os.Root, err error) {
	err = s.tree.withFolder(s.path, func(top *os.Root) error {
		f := folder{root: top, path: s.path}
		state, err := f.enter(seriesState)
		if err == nil {
			root = state.root
		}
		return err
	})
	return root, at("open the state of", s.path, err)
}

// LinkFrom is Link for a file of another tree on the same file system.
func (t *Tree) LinkFrom(other *Tree, from, to string) error {
	err := other.withParent(from, func(source *folder, sourceBase string) error {
		return t.withParent(to, func(f *folder, base string) error {
			if base == "." {
				return errFolderExists
			}
			err := t.linkFrom(other, source, sourceBase, f, base)
			if errors.Is(err, fs.ErrExist) {
				err = t.swapIn(f, base, hardSuffix, func(name string) error { return t.linkFrom(other, source, sourceBase, f, name) })
			}
			return err
		})
	})
	return at("link", to, err)
}

// written returns when the snapshot name was last filled, as far as is known.
func (s *Series) written(name string) (at time.Time) {
	_ = s.inState(func(root *os.Root) error {
		for file, err := range namesIn(root) {
			if err != nil {
				return err
			}
			if info, err := root.Lstat(file); err == nil && strings.HasPrefix(file, name+".") && info.ModTime().After(at) {
				at = info.ModTime()
			}
		}
		return nil
	})
	if !at.IsZero() {
		return at
	}
	_ = s.tree.withFolder(s.path, func(root *os.Root) error {
		info, err := root.Lstat(reservedPrefix + name + fillingSuffix)
		if err == nil {
			at = info.ModTime() // the source's time, perhaps
		}
		return err
	})
	return at
}

// filled describes what an interrupted run left of the snapshot name. Its space is that of files
// that no other snapshot shares.
func (s *Series) filled(ctx context.Context, name string) (l Leftover, ok bool) {
	tree, err := s.sub(reservedPrefix+name+fillingSuffix, name)
	if err != nil {
		return l, false
	}
	defer func() { _ = tree.Close() }()
	l = Leftover{Path: name, Known: true, Size: -1, ModTime: s.written(name)}
	// What cannot be read does not count.
	_ = tree.Walk(ctx, ".", WalkOptions{}, func(m Meta) error {
		if m.Kind == File && m.Nlink < 2 {
			l.Done += m.Size
		}
		return nil
	}, func(string, error) {})
	l.Allocated = l.Done
	return l, ctx.Err() == nil
}

// sweep removes snapshots that nobody filled since before, and those whose removal was interrupted,
// unless somebody works on the series.
func (s *Series) sweep(entry string, before time.Time) (gone bool, err error) {
	name := within(entry, fillingSuffix)
	if name == "" && within(entry, removingSuffix) == "" || name != "" && !s.written(name).Before(before) {
		return false, nil
	}
	if err := s.Lock(); err != nil {
		if errors.Is(err, ErrBusy) {
			err = nil
		}
		return false, err
	}
	defer s.Close()
	if name != "" {
		err = s.tree.withFolder(s.path, func(root *os.Root) error {
			return root.Rename(entry, reservedPrefix+name+removingSuffix)
		})
	}
	if err == nil {
		err = s.clean()
	}
	return err == nil, err
}
