package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// maxNames bounds the files of several names that Usage remembers, so as to count them once.
const maxNames = 1 << 20

// Usage counts what is in the tree: the bytes that files have, by their lengths, those of several names once, and the entries of any kind but the
// root. What an ended transfer left of a file counts, with no less than it takes on the file system; what a Partial or Staged
// holds now, in this or another process, does not. It goes on after an error, and returns the first one; while others change the tree the
// figures may miss what has changed.
func (t *Tree) Usage(ctx context.Context) (bytes, entries int64, err error) {
	t.folders.changed()
	type id struct{ ino, dev uint64 }
	seen := make(map[id]struct{})
	var first error
	note := func(path string, err error) {
		if first == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnsupportedKind) && !errors.Is(err, ErrPath) {
			first = at("count", path, err)
		}
	}
	var w walker
	w = walker{
		tree: t,
		ctx:  ctx,
		visit: func(m Meta) error {
			if m.Path == "." {
				return nil
			}
			entries++
			if m.Kind != File {
				return nil
			}
			if m.Nlink > 1 && m.ID.Ino != 0 {
				file := id{m.ID.Ino, m.ID.Dev}
				if _, again := seen[file]; again {
					return nil
				}
				if len(seen) < maxNames {
					seen[file] = struct{}{}
				}
			}
			bytes += m.Size
			return nil
		},
		failed: note,
		reserved: func(f *folder, name string) {
			info, err := f.root.Lstat(name)
			switch {
			case err != nil:
				note(name, err)
			case info.IsDir(): // a snapshot that is not complete, or on its way out
				entries++
				sub, err := t.enter(f, name)
				if err != nil {
					note(name, err)
					return
				}
				defer sub.release()
				if err := w.content(sub); err != nil {
					note(name, err)
				}
			case info.Mode().IsRegular() && strings.HasSuffix(name, partialSuffix) && !inUse(f.root, name):
				entries++
				bytes += max(info.Size(), allocated(info))
			}
		},
	}
	if err := w.walk("."); err != nil {
		return bytes, entries, err
	}
	return bytes, entries, first
}

// inUse tells whether a partial file is locked by who writes it. Who wants it at this moment finds it busy.
func inUse(folder *os.Root, name string) bool {
	file, _, err := openRegular(folder, name, os.O_RDWR)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged)
	}
	defer file.Close()
	return errors.Is(lockFile(file), ErrBusy)
}
