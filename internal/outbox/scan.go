package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// ownPrefix begins the names of what fxfer itself makes in folders. It is never sent, in any case,
// since file systems may ignore case.
const ownPrefix = ".fxfer-"

// isOwn reports whether fxfer itself made the entry at a path.
func isOwn(p string) bool {
	name := path.Base(p)
	return len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix)
}

// seriesName is the folder by which a folder of snapshots is known. Snapshots are not sent: nothing
// in them may be removed, and they are backups already.
const seriesName = ownPrefix + "snapshots"

// isSnapshot reports whether the folder at a path, in a folder of snapshots, is one. Some file systems
// ignore the case of letters.
func isSnapshot(p string) bool {
	_, err := snapshot.ParseName(strings.ToUpper(path.Base(p)))
	return err == nil
}

// found is what a scan of the folder found.
type found struct {
	files   map[string]Version // by their paths
	markers map[string]Version // by the paths of the files that they stand for
	folders []string           // paths of the folders, the top as "."
	// unread are the folders that could not be read, each with a slash at its end. What is below
	// them may be there.
	unread []string
	errs   []error // why
}

// marker returns the marker of a file, nil if there is none.
func (f *found) marker(p string) *Version {
	if m, ok := f.markers[p]; ok {
		return &m
	}
	return nil
}

// hides reports whether a path is below a folder that could not be read.
func (f *found) hides(p string) bool {
	for _, dir := range f.unread {
		if strings.HasPrefix(p, dir) {
			return true
		}
	}
	return false
}

// scan lists the regular files below a folder. Symlinks, special files and snapshots are left out, and
// so is what the filter excludes. marker is the suffix of marker files, "" for none.
func scan(root *os.Root, rules *filter.Filter, marker string) (*found, error) {
	f := &found{files: map[string]Version{}, markers: map[string]Version{}}
	series := map[string]bool{}
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && p != ".":
			return nil // it went while the scan was under way
		case err != nil && p == ".":
			return err
		case err != nil:
			f.unread, f.errs = append(f.unread, p+"/"), append(f.errs, fmt.Errorf("%s: %w", p, cause(err)))
			return nil
		case p == ".":
			f.folders = append(f.folders, p)
			return nil
		}
		own := isOwn(p)
		if strings.EqualFold(path.Base(p), seriesName) { // it comes before the snapshots: their names begin with a digit
			series[path.Dir(p)] = true
		}
		switch {
		case len(p) > maxPath:
			f.unread, f.errs = append(f.unread, p+"/"), append(f.errs, fmt.Errorf("%.100s…: the path has more than %d bytes", p, maxPath))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() && (own || series[path.Dir(p)] && isSnapshot(p) || rules.Skip(p, true, -1, time.Time{})):
			return fs.SkipDir
		case d.IsDir():
			f.folders = append(f.folders, p)
			return nil
		case own || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // it has gone, or is another kind by now: the next scan decides
		}
		if of, ok := strings.CutSuffix(p, marker); ok && marker != "" && path.Base(p) != marker {
			f.markers[of] = versionOf(info)
			return nil
		}
		if !rules.Skip(p, false, -1, time.Time{}) {
			f.files[p] = versionOf(info)
		}
		return nil
	})
	return f, err
}

// look returns the version of the regular file at a path, nil if there is none.
func look(root *os.Root, p string) *Version {
	info, err := root.Lstat(p)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	v := versionOf(info)
	return &v
}

// isOpen reports whether some process writes to the file at a path, as far as the system tells.
func isOpen(root *os.Root, p string) bool {
	f, err := root.OpenFile(p, openFlags, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return isOpenForWriting(f)
}

// cause returns the error below a PathError, whose path messages have already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
