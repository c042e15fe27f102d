package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/shard"
	"github.com/fxfer/fxfer/internal/wire"
)

// File is an open source file.
type File interface {
	io.ReaderAt
	io.Closer
	// Unchanged returns an error that wraps disk.ErrChanged if the file is not what it was when it
	// was opened.
	Unchanged() error
}

// Content is what a Source knows of a file's content. It may be a wholeReader and a refresher, too.
type Content interface {
	Open() (File, error)
}

// wholeReader is a Content that reads a whole file, or fails if it changed.
type wholeReader interface {
	Read(b []byte) error
}

// refresher is a Content that returns the entry as it is now, after it changed.
type refresher interface {
	Refresh() (Item, error)
}

// Item is one entry of a Source. For a File entry exactly one of Content and Stream is set.
type Item struct {
	Entry   wire.Entry
	Names   uint64 // how many names (hard links) the file has
	Unread  error  // why Entry.Xattrs is not complete
	Content Content
	Compare func([32]byte) error // refuses another digest than that of the file; nil if none is known
	Stream  io.Reader            // a file of unknown length, which is read once
	Early   bool                 // the beginning of a file that still grows; it gets no name
}

// compare compares the digest of what was read with the file's, if that is known.
func (i *Item) compare(read [32]byte) error {
	if i.Compare == nil {
		return nil
	}
	return i.Compare(read)
}

// Source lists what is to be sent.
type Source interface {
	// Walk calls visit for each item in manifest order, and failed for each path that cannot be
	// listed. It ends early with visit's error.
	Walk(ctx context.Context, visit func(Item) error, failed func(path string, err error)) error
	// Single reports whether there is exactly one entry, a regular file or stream.
	Single() bool
	// Folders returns the paths, in the manifest, of the folders that are sent with all they hold.
	Folders() []string
	// Has reports whether the source has an entry at this path of the manifest, or leaves it to the
	// target.
	Has(path string) (bool, error)
}

// Root is one thing to be sent from a tree.
type Root struct {
	Tree *access.Scope
	Path string // in the tree; "." for all of it
	As   string // its path in the manifest; "" for a folder that stands for the target itself
	Name string // what the user calls it, for messages

	// Leaves says that large files leave the page cache as they are sent. One that many get stays.
	Leaves bool
}

// TreeSource is a Source of files and folders. Where several roots have an entry of the same path
// in the manifest, the first of them counts, and the others fail. Folders are joined.
type TreeSource struct {
	Roots         []Root
	Filter        *filter.Filter // of paths below each root; nil for all
	OneFileSystem bool
	ListOnly      bool                     // nothing is sent, so items lack extended attributes
	DryRun        bool                     // nothing is made, so joined folders come once
	Absent        []Absent                 // further roots, which are not there
	Paths         iter.Seq2[string, error] // only these below the one root; nil for all
	// Intact, unless nil, leaves out each of Paths that is not a regular file, or for which it returns
	// false after the metadata were read. A file that changes later fails.
	Intact func(path string) bool
	// Part says that Paths are a part of what is sent, like a Shard: the folders above them come, too,
	// and paths that are gone are no failure.
	Part  bool
	Shard shard.Shard // only the files of this part, and the folders above them
	Range *FileRange  // only this range of the one file in Paths; nil for all

	plan *shard.Plan // of Shard, made by the first Walk
}

// Absent is something to be sent that is not there.
type Absent struct {
	Path string // as in Root
	Err  error
}

// Single implements Source.
func (s *TreeSource) Single() bool {
	if len(s.Roots) != 1 || s.Absent != nil || s.Roots[0].As == "" || s.Paths != nil {
		return false
	}
	m, err := s.Roots[0].Tree.Stat(s.Roots[0].Path)
	return err == nil && m.Kind == disk.File
}

// Walk implements Source.
func (s *TreeSource) Walk(
	ctx context.Context, visit func(Item) error, failed func(string, error),
) error {
	if s.Shard.All() {
		return s.walkAll(ctx, visit, failed)
	}
	if s.plan == nil {
		plan, err := s.planShards(ctx)
		if err != nil {
			return err
		}
		s.plan = plan
	}
	return s.walkAll(ctx, (&lateFolders{visit: visit}).item, failed)
}

// walkAll is Walk of all shards, as far as the plan does not say who sends what.
func (s *TreeSource) walkAll(
	ctx context.Context, visit func(Item) error, failed func(string, error),
) error {
	if s.Paths != nil {
		return s.walkPaths(ctx, visit, failed)
	}
	for _, x := range s.Absent {
		failed(x.Path, x.Err)
	}
	earlier := s.newEarlier()
	for i := range s.Roots {
		r := &s.Roots[i]
		earlier.before = i
		hide := func(m disk.Meta) bool { return earlier.hide(r, &m, failed) }
		if err := s.walk(ctx, r, r.Path, earlier, hide, visit, failed); err != nil {
			return err
		}
	}
	return nil
}

// rootError is the error of a Root that was not listed, or not completely.
type rootError struct{ error }

func (e rootError) Unwrap() error { return e.error }

// walk visits what is at from and below, except what hide hides.
func (s *TreeSource) walk(
	ctx context.Context, r *Root, from string, earlier *earlier, hide func(disk.Meta) bool,
	visit func(Item) error, failed func(string, error),
) error {
	planning := !s.Shard.All() && s.plan == nil
	opt := disk.WalkOptions{OneFileSystem: s.OneFileSystem, Xattrs: !planning && !s.ListOnly, Foreign: true}
	opt.Skip = func(m disk.Meta) bool {
		return s.leavesOut(&m, r.rest(m.Path)) || hide(m) || s.plan != nil && s.isElsewhere(&m, r.manifestPath(m.Path))
	}
	return r.Tree.Walk(ctx, from, opt, func(m disk.Meta) error {
		as := r.manifestPath(m.Path)
		if first, joined := earlier.folder(&m, as); joined && s.DryRun {
			return nil
		} else if joined { // again, because what comes now changes its time
			m = first
		}
		item := r.item(m, as)
		if s.Range != nil && m.Kind == disk.File {
			ok, err := s.Range.limit(&item)
			if err != nil {
				failed(m.Path, err)
			}
			if !ok {
				return nil
			}
		}
		if f, ok := item.Content.(*treeFile); ok && s.Intact != nil {
			item.Content = steadyFile{f, f}
		}
		if m.Kind == disk.File && m.Size == 0 { // nothing is read
			if err := item.compare(digest.Empty()); err != nil {
				failed(m.Path, err)
				return nil
			}
		}
		return visit(item)
	}, func(path string, err error) {
		if path == r.Path {
			err = rootError{err}
		}
		failed(path, err)
	})
}

// leavesOut reports whether the filter leaves out an entry. rest is its path below the root.
func (s *TreeSource) leavesOut(m *disk.Meta, rest string) bool {
	size := m.Size
	if m.Kind != disk.File {
		size = -1
	}
	return s.Filter != nil && rest != "" && s.Filter.Skip(rest, m.Kind == disk.Dir, size, m.ModTime)
}

// walkPaths visits the paths of a list, each entry once.
func (s *TreeSource) walkPaths(
	ctx context.Context, visit func(Item) error, failed func(string, error),
) error {
	r := &s.Roots[0]
	visited := make(listed)
	for p, err := range s.Paths {
		if err != nil {
			return err
		}
		from := path.Join(r.Path, p)
		if visited.covers(from) {
			continue
		}
		hide := func(m disk.Meta) bool {
			return visited.has(m.Path) || s.Intact != nil && (m.Kind != disk.File || !s.Intact(p))
		}
		if s.Part {
			if err := s.visitAbove(r, from, visited, visit); err != nil {
				return err
			}
		}
		err := s.walk(ctx, r, from, nil, hide, visit, failed)
		if visited.add(from); isMissing(err) && ctx.Err() == nil {
			if !s.Part {
				failed(p, err)
			}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// isMissing reports whether an error says that a tree has nothing at a path.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrPath) || errors.Is(err, disk.ErrNotFolder)
}

// Folders implements Source.
func (s *TreeSource) Folders() []string {
	var folders []string
	for i := range s.Roots {
		r := &s.Roots[i]
		m, err := r.Tree.Stat(r.Path)
		as := path.Join(r.As, ".")
		if err == nil && m.Kind == disk.Dir && s.Paths == nil && s.Shard.All() && !slices.Contains(folders, as) {
			folders = append(folders, as)
		}
	}
	return folders
}

// Has implements Source. Paths that the filter leaves out are left to the target.
func (s *TreeSource) Has(p string) (bool, error) {
	for i := range s.Roots {
		r := &s.Roots[i]
		rest, ok := r.below(p)
		if !ok {
			continue
		}
		if s.Filter != nil && rest != "" && (s.Filter.Excluded(rest, false) || s.Filter.Excluded(rest, true)) {
			return true, nil
		}
		_, err := r.Tree.Stat(path.Join(r.Path, rest))
		switch {
		case err == nil, errors.Is(err, disk.ErrUnsupportedKind):
			return true, nil
		case !isMissing(err):
			return false, err
		}
	}
	return false, nil
}

// rest returns the path below the root, "" for the root itself.
func (r *Root) rest(p string) string {
	switch {
	case p == r.Path:
		return ""
	case r.Path == ".":
		return p
	}
	return p[len(r.Path)+1:]
}

// manifestPath returns the path in the manifest of a path in the tree.
func (r *Root) manifestPath(p string) string {
	rest := r.rest(p)
	switch {
	case rest == "":
		return path.Clean(r.As)
	case r.As == "" || r.As == ".":
		return rest
	case r.As == r.Path:
		return p
	}
	return r.As + "/" + rest
}

// below returns the path below the root of a path in the manifest, "" for the root itself. It
// returns false if the manifest's path is not the root's or one below.
func (r *Root) below(p string) (rest string, ok bool) {
	switch {
	case r.As == "" && p == ".":
		return "", true
	case r.As == "":
		return p, true
	}
	rest, ok = strings.CutPrefix(p, r.As)
	return strings.TrimPrefix(rest, "/"), ok && (rest == "" || rest[0] == '/')
}

// item returns the item for what the tree has, under the path as of the manifest.
func (r *Root) item(m disk.Meta, as string) Item {
	item := Item{Entry: EntryOf(m, as), Names: m.Nlink, Unread: m.XattrErr}
	if m.Kind == disk.File {
		file := &treeFile{root: r, path: m.Path, as: as, id: m.ID}
		item.Content = file
		if r.Tree.InSnapshot(m.Path) {
			item.Compare = file.compare
		}
	}
	return item
}

// treeFile is the Content of a file in a tree, as the manifest describes it.
type treeFile struct {
	root     *Root
	path, as string // in the tree, and in the manifest
	id       disk.Identity
}

// Open implements Content.
func (t *treeFile) Open() (File, error) {
	f, err := t.root.Tree.OpenFile(t.path)
	if err != nil {
		return nil, err
	}
	if f.Identity() != t.id {
		_ = f.Close()
		return nil, fmt.Errorf("%q: %w", t.path, disk.ErrChanged)
	}
	if t.root.Leaves {
		f.Leave()
	}
	return f, nil
}

// Read implements wholeReader.
func (t *treeFile) Read(b []byte) error { return t.root.Tree.ReadFile(t.path, t.id, b) }

// Refresh implements refresher.
func (t *treeFile) Refresh() (Item, error) {
	now, err := t.root.Tree.StatXattrs(t.path)
	if err == nil && now.Kind != disk.File {
		err = fmt.Errorf("%q is no longer a file", t.path)
	}
	if err != nil {
		return Item{}, err
	}
	return t.root.item(now, t.as), nil
}

func (t *treeFile) compare(d [32]byte) error { return t.root.Tree.Compare(t.path, t.id, d) }

// steadyFile is a treeFile that is not sent again when it changed: it is no refresher.
type steadyFile struct {
	Content
	wholeReader
}

// EntryOf returns the manifest's entry for what a tree has.
func EntryOf(m disk.Meta, as string) wire.Entry {
	x := wire.Entry{
		Kind: wire.Kind(m.Kind), Path: as, Size: m.Size, ModTime: m.ModTime.UnixNano(), Mode: modeBits(m.Mode),
		Link: m.Link, Ino: m.ID.Ino, Dev: m.ID.Dev, BlockLog: blockLog(m.Size), Holes: m.Holes, Rdev: m.Rdev,
		Owned: runtime.GOOS != "windows", Listed: runtime.GOOS == "linux" && m.XattrErr == nil, UID: m.UID, GID: m.GID,
	}
	if x.Owned {
		x.User, x.Group = disk.UserName(m.UID), disk.GroupName(m.GID)
	}
	for _, a := range m.Xattrs {
		x.Xattrs = append(x.Xattrs, wire.Xattr{Name: a.Name, Value: a.Value})
	}
	return x
}

// modeBitsOf pairs each special mode bit with its value on the wire, which is that of chmod(2).
var modeBitsOf = [...]struct {
	mode fs.FileMode
	bit  uint32
}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}}

// modeBits returns the mode as on the wire.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, x := range modeBitsOf {
		if m&x.mode != 0 {
			bits |= x.bit
		}
	}
	return bits
}

// fileMode undoes modeBits.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for _, x := range modeBitsOf {
		if bits&x.bit != 0 {
			m |= x.mode
		}
	}
	return m
}

// StreamSource is a Source of one file of unknown length, such as standard input.
type StreamSource struct {
	Entry wire.Entry // Size is wire.Unknown
	R     io.Reader
}

// Single implements Source.
func (s *StreamSource) Single() bool { return true }

// Folders implements Source.
func (s *StreamSource) Folders() []string { return nil }

// Has implements Source.
func (s *StreamSource) Has(string) (bool, error) { return true, nil }

// Walk implements Source.
func (s *StreamSource) Walk(
	_ context.Context, visit func(Item) error, _ func(string, error),
) error {
	item := Item{Entry: s.Entry, Stream: s.R}
	item.Entry.BlockLog = maxBlockLog
	return visit(item)
}
