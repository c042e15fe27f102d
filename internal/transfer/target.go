package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// busyFor is how long a session waits for files that an earlier one holds, busyLeast for one at
	// any time, and busyEvery how long between two attempts.
	busyFor   = silence + 2*pingEvery
	busyLeast = 5 * time.Second
	busyEvery = 100 * time.Millisecond
)

// target is the tree that the receiver writes: where entries belong in it, and how they get there.
// Its methods may be called concurrently once begin has returned.
type target struct {
	ctx      context.Context
	tree     *access.Scope
	opt      wire.Target
	path     string   // as in ReceiverOptions
	names    []string // as in ReceiverOptions
	snapshot *Snapshot
	meta     disk.TargetOptions
	usage    *usage
	warnings warnings
	remover  *remover
	flush    func() // gives staged files their names

	busyUntil time.Time

	base   string // the folder that entries are below; the file's own name if rename; set by begin
	rename bool
}

// begin decides where in the tree the entries belong.
func (t *target) begin(single bool) error {
	if dir := t.opt.BackupDir; dir != "" {
		if err := disk.CheckPath(dir); err != nil {
			return &wire.Error{Code: wire.CodePath, Text: err.Error()}
		}
	}
	t.base = strings.TrimSuffix(t.path, "/")
	if t.base == "." || t.base == "" {
		t.base = "."
		return nil
	}
	if err := disk.CheckPath(t.base); err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	have, err := t.tree.Stat(t.base)
	switch {
	case err == nil && have.Kind == disk.Dir:
		return nil
	case err == nil && single && have.Kind != disk.File && have.Kind != disk.Symlink:
		return &wire.Error{Code: wire.CodePath, Text: fmt.Sprintf(
			"%q is a device, a pipe or a socket, and no file may replace it", t.base)}
	case err == nil && !single:
		return &wire.Error{Code: wire.CodePath, Text: fmt.Sprintf("%q is not a folder", t.base)}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return diskError(err)
	}
	folder := t.base
	if single && !strings.HasSuffix(t.path, "/") {
		t.rename = true
		folder = path.Dir(t.base)
	}
	if folder != "." && !t.opt.DryRun {
		if err := t.mkdir(folder); err != nil {
			return diskError(err)
		}
	}
	return nil
}

// checkPath refuses a path of the manifest that is malformed, or that was not asked for.
func (t *target) checkPath(p string) error {
	if err := disk.CheckPath(p); err != nil {
		return err
	}
	return t.checkAsked(p)
}

// checkAsked refuses a path of the manifest that was not asked for.
func (t *target) checkAsked(p string) error {
	if t.names == nil {
		return nil
	}
	if first, _, _ := strings.Cut(p, "/"); !slices.Contains(t.names, first) {
		return fmt.Errorf("%w: %q was not asked for", disk.ErrPath, p)
	}
	return nil
}

// pathOf returns where an entry belongs.
func (t *target) pathOf(x *wire.Entry) (string, error) {
	if t.rename {
		return t.base, nil
	}
	if x.Size == wire.Unknown && t.base != "." && t.snapshot == nil {
		return "", &wire.Error{Code: wire.CodePath, Text: fmt.Sprintf("%q is a folder, and a stream has no name of its own", t.base)}
	}
	if err := t.checkAsked(x.Path); err != nil {
		return "", err
	}
	if x.Path == "." && x.Kind != wire.Dir {
		return "", fmt.Errorf("%w: %q", disk.ErrPath, x.Path)
	}
	p := x.Path
	switch {
	case t.base == ".":
	case p == ".":
		p = t.base
	default: // not path.Join, which would make a path clean before it is checked
		p = t.base + "/" + p
	}
	return p, disk.CheckPath(p)
}

// place fills m with where an entry belongs, and what it will look like there.
func (t *target) place(x *wire.Entry, m *disk.Meta) error {
	p, err := t.pathOf(x)
	if err != nil {
		*m = disk.Meta{}
		return err
	}
	*m = disk.Meta{
		Path: p, Kind: disk.Kind(x.Kind), Size: x.Size, ModTime: x.Time(), Mode: fileMode(x.Mode), Link: x.Link,
		Rdev: x.Rdev, Holes: x.Holes, UID: x.UID, GID: x.GID,
		ID: disk.Identity{Size: x.Size, ModTime: x.ModTime, Ino: x.Ino, Dev: x.Dev},
	}
	for _, a := range x.Xattrs {
		m.Xattrs = append(m.Xattrs, disk.Xattr{Name: a.Name, Value: a.Value})
	}
	if !x.Owned { // nobody knows as whom the program would run
		m.Mode &^= fs.ModeSetuid | fs.ModeSetgid
	}
	for _, what := range t.tree.Plain(m) {
		t.warnings.add(disk.Warning{
			Path: p, What: disk.WarnPrivilege, Err: fmt.Errorf("%s is left out", what),
		})
	}
	if t.opt.NumericIDs {
		return nil
	}
	if id, ok := disk.LookupUser(x.User); ok {
		m.UID = id
	}
	if id, ok := disk.LookupGroup(x.Group); ok {
		m.GID = id
	}
	return nil
}

// options are those for an entry's metadata: the source may not have all of it.
func (t *target) options(x *wire.Entry) disk.TargetOptions {
	o := t.meta
	o.Owner = o.Owner && x.Owned
	o.Xattrs = o.Xattrs && x.Listed
	return o
}

// differs reports whether what the target has of an entry lacks some of the metadata that it will have.
func (t *target) differs(have, want *disk.Meta, x *wire.Entry) bool {
	opt := t.options(x)
	return disk.Differs(have, want, &opt)
}

// make calls f, which makes something at a path. Folders above it that were not announced are made,
// and with Delete something of another kind makes way.
func (t *target) make(p string, f func() error) error {
	err := f()
	if errors.Is(err, fs.ErrNotExist) {
		dir := path.Dir(p)
		if dir == "." {
			return err
		}
		if err := t.mkdir(dir); err != nil {
			return err
		}
		err = f()
	}
	if errors.Is(err, disk.ErrExists) && t.opt.Delete {
		if err := t.remover.makeWay(p); err != nil {
			return err
		}
		err = f()
	}
	return err
}

// patient calls f again while a file is busy: an earlier session of the same client may not have
// seen its end, or an older version of the same file may be about to get its name.
func (t *target) patient(f func() error) error {
	err := f()
	if !errors.Is(err, disk.ErrBusy) {
		return err
	}
	until := t.busyUntil
	if least := time.Now().Add(busyLeast); least.After(until) {
		until = least
	}
	for errors.Is(err, disk.ErrBusy) && time.Now().Before(until) && t.ctx.Err() == nil {
		t.flush()
		select {
		case <-t.ctx.Done():
		case <-time.After(busyEvery):
			err = f()
		}
	}
	return err
}

// lacking counts the folders that are missing from a path up.
func (t *target) lacking(dir string) (n int64) {
	if t.usage.quota == nil {
		return 0
	}
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := t.tree.Stat(dir); err == nil {
			break
		}
		n++
	}
	return n
}

// mkdir makes a folder that is no entry, and those above it.
func (t *target) mkdir(dir string) error {
	if lacking := t.lacking(dir); lacking > 0 {
		if err := t.usage.quota.Take(t.ctx, 0, lacking); err != nil {
			return err
		}
		defer t.usage.quota.Settle(0, lacking, true)
	}
	return t.tree.Mkdir(dir, 0o755)
}

// keepOld gives what an entry is about to replace a name in the backup folder, if there is a backup
// folder.
func (t *target) keepOld(e *receiving) {
	backup := t.opt.BackupDir
	if backup == "" {
		return
	}
	defer t.usage.moving(backup)()
	have, err := t.tree.Stat(e.meta.Path)
	if err == nil && have.Kind != disk.Dir {
		kept := path.Join(backup, e.meta.Path)
		if err = t.usage.take(e, 0, 1); err == nil {
			err = t.mkdir(path.Dir(kept))
		}
		if err == nil {
			err = t.tree.KeepOld(e.meta.Path)
		}
		if err != nil { // moved instead, so for a moment nothing has the name
			err = t.tree.Remove(t.ctx, e.meta.Path)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.warnings.add(disk.Warning{Path: e.meta.Path, What: "backup", Err: err})
	}
}

// openPart opens the partial file of an entry. An earlier run may have left some of it.
func (t *target) openPart(e *receiving) (part *disk.Partial, err error) {
	opt := t.options(&e.entry)
	opt.Replace = t.opt.Delete
	err = t.patient(func() error {
		return t.make(e.meta.Path, func() (err error) {
			part, err = t.tree.Partial(e.meta, 1<<e.entry.BlockLog, opt)
			return err
		})
	})
	return part, err
}

// put writes a file of one block at most, which lacks only its name then. ranges are those of data
// that hold data, nil for all.
func (t *target) put(
	e *receiving, data []byte, ranges []disk.Range,
) (staged *disk.Staged, err error) {
	err = t.patient(func() error {
		return t.make(e.meta.Path, func() (err error) {
			if ranges == nil {
				staged, err = t.tree.Put(e.meta, data, t.options(&e.entry))
			} else {
				staged, err = t.putRanges(e, data, ranges)
			}
			return err
		})
	})
	return staged, err
}

func (t *target) putRanges(e *receiving, data []byte, ranges []disk.Range) (*disk.Staged, error) {
	part, err := t.tree.Partial(e.meta, 1<<e.entry.BlockLog, t.options(&e.entry))
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if _, err = part.WriteAt(data[r.Off:][:r.Len], r.Off); err != nil {
			break
		}
	}
	if err == nil {
		err = part.Mark(0, [32]byte{})
	}
	var staged *disk.Staged
	if err == nil {
		staged, err = part.Stage(e.meta)
	}
	if err != nil {
		_ = part.Abort()
	}
	return staged, err
}

// copyFile makes the file of an entry with the content of one that is there, in this tree or
// another. meta and opt are what it gets.
func (t *target) copyFile(
	e *receiving, meta disk.Meta, opt disk.TargetOptions, tree *access.Scope, from string,
) error {
	f, err := tree.OpenCopy(from)
	if err != nil {
		return err
	}
	defer f.Close()
	meta.Size, meta.ID = f.Identity().Size, disk.Identity{}
	opt.Sync = disk.SyncNone // all is made durable at the end
	if err := t.usage.take(e, meta.Size, 0); err != nil {
		return err
	}
	var part *disk.Partial
	err = t.make(e.meta.Path, func() (err error) {
		part, err = t.tree.Partial(meta, 1<<maxBlockLog, opt)
		return err
	})
	if err != nil {
		return err
	}
	if err = t.copyBlocks(part, f, &meta); err == nil {
		err = f.Unchanged()
	}
	if err == nil {
		err = t.tree.Commit(part, meta)
	}
	if err != nil {
		_ = part.Abort()
	}
	return err
}

func (t *target) copyBlocks(part *disk.Partial, f *disk.Source, meta *disk.Meta) error {
	for b := range blocksOf(meta.Size, maxBlockLog) {
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		off, n := b<<maxBlockLog, int64(lengthOf(meta.Size, maxBlockLog, b))
		if err := copyBlock(part, f, off, n, meta.Holes); err != nil {
			return err
		}
		if err := part.Mark(b, [32]byte{}); err != nil {
			return err
		}
	}
	return nil
}

// copyBlock copies n bytes at off from one file to another; only the data of a file with holes.
func copyBlock(part *disk.Partial, f *disk.Source, off, n int64, holes bool) error {
	data := []disk.Range{{Off: off, Len: n}}
	if holes {
		var err error
		if data, err = f.Data(off, n); err != nil {
			return err
		}
	}
	for _, r := range data {
		if err := part.CopyFrom(f, r.Off, r.Off, r.Len); err != nil {
			return err
		}
	}
	return nil
}

// digest reads a file of the target and digests it, except its blocks in empty, which have no data.
func (t *target) digest(
	f io.ReaderAt, size int64, log uint8, empty blockset.Set,
) (root [32]byte, err error) {
	buf := make([]byte, 1<<log)
	var hash digest.Hasher
	var tree digest.Tree
	for run := range empty.All() {
		tree.AddRun(run.Start, run.Count, holeNode)
	}
	blocks := blocksOf(size, log)
	for b := int64(0); b < blocks; b++ {
		if t.ctx.Err() != nil {
			return root, context.Cause(t.ctx)
		}
		if run, ok := empty.RunAt(b); ok {
			b = run.End() - 1
			continue
		}
		data := buf[:lengthOf(size, log, b)]
		if err := readFull(f, data, b<<log); err != nil {
			return root, err
		}
		hash.Reset(b << log)
		hash.Write(data)
		tree.Add(b, hash.Sum())
	}
	root, _ = tree.Root(blocks)
	return root, nil
}

// warnings count what the target cannot store, by kind.
type warnings struct {
	mu    sync.Mutex // guards the following; a leaf
	known map[string]*wire.Warning
}

func (w *warnings) add(x disk.Warning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = make(map[string]*wire.Warning)
	}
	known := w.known[x.What]
	if known == nil {
		known = &wire.Warning{What: x.What, Path: x.Path, Text: x.Err.Error()}
		w.known[x.What] = known
	}
	known.Count++
}

// all returns the warnings so far.
func (w *warnings) all() (all []*wire.Warning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.known {
		y := *x
		all = append(all, &y)
	}
	return all
}

// hopeless reports whether what a disk says about one entry holds for all others as well: it is
// full, it takes nothing, or too many files are open here. That one large file does not fit says
// nothing about the next.
func hopeless(err error) bool {
	if err == nil {
		return false
	}
	var large *disk.NoSpaceError
	return errors.Is(err, disk.ErrNoSpace) && !errors.As(err, &large) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, disk.ErrTooManyFiles)
}

// codeOf maps an error of the target's disk to a code.
func codeOf(err error) wire.Code {
	var known *wire.Error
	switch {
	case errors.As(err, &known):
		return known.Code
	case errors.Is(err, disk.ErrPath), errors.Is(err, disk.ErrNotFolder), errors.Is(err, disk.ErrExists),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EILSEQ):
		return wire.CodePath
	case errors.Is(err, disk.ErrBusy), errors.Is(err, disk.ErrTooManyFiles):
		return wire.CodeBusy
	case errors.Is(err, disk.ErrNoSpace):
		return wire.CodeNoSpace
	case errors.Is(err, disk.ErrUnsupportedKind):
		return wire.CodeUnsupported
	}
	return wire.CodeTargetDisk
}

// diskError is an error of the target's disk as the peer gets it.
func diskError(err error) *wire.Error {
	return &wire.Error{Code: codeOf(err), Text: err.Error()}
}

// errorOf is diskError for an error that may have come from the peer or the engine.
func errorOf(err error) *wire.Error {
	var known *wire.Error
	if errors.As(err, &known) {
		return known
	}
	return diskError(err)
}

// entryError is errorOf for an error of the entry at a path of the target's tree. Messages about an
// entry begin with its path, so the text leaves this path out.
func entryError(err error, path string) *wire.Error {
	known := *errorOf(err)
	var at *fs.PathError
	if errors.As(err, &at) && at.Op == "mkdir" && strings.HasPrefix(path, at.Path+"/") {
		known.Text = "its folder can't be made: " + at.Err.Error()
		return &known
	}
	known.Text = withoutPath(known.Text, err, func(at string) bool { return at == path })
	return &known
}

// withoutPath leaves the path of an error of the disk out of a text with that error, if it is the
// own path of the entry that the text is about.
func withoutPath(text string, err error, own func(string) bool) string {
	var at *fs.PathError
	if errors.As(err, &at) && own(at.Path) {
		return strings.Replace(text, at.Error(), at.Op+": "+at.Err.Error(), 1)
	}
	return text
}
