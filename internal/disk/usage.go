package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// maxNames bounds how many files with several names Usage remembers to count them once.
const maxNames = 1 << 20

// Usage counts the content of the tree: the lengths of files, once for a file with several names,
// and the entries of any kind except the root. It counts what an ended transfer left of a file,
// with at least the bytes that it takes on the file system. It does not count what a Partial or
// Staged holds now, in this or another process, except what a PartialRange that is open here shares
// with ranges that are not. Usage continues after an error and returns the first one. If others
// change the tree meanwhile, the figures may miss their changes.
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
			held := writing.counted(f, name)
			switch {
			case err != nil:
				note(name, err)
			case held > 0:
				entries++
				bytes += held
			case info.IsDir(): // a snapshot that is not complete, or that is being removed
				entries++
				above, err := f.list()
				if err != nil {
					note(name, err)
					return
				}
				defer above.close()
				sub, err := above.enter(name, childPath(f.path, name))
				if err == nil {
					err = w.content(sub)
				}
				if err != nil {
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

// inUse reports whether a writer has locked the partial file. Another process that wants to lock it
// right now finds it busy.
func inUse(folder *os.Root, name string) bool {
	file, _, err := openRegular(folder, name, os.O_RDWR)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrChanged)
	}
	defer file.Close()
	return errors.Is(lockFile(file), ErrBusy)
}
