package disk

import (
	"errors"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// put writes the file m.Path, base in f: without a name in a folder that the tree made, unless an
// earlier version of the file left a partial file there; elsewhere under its reserved name.
func (t *Tree) put(f *folder, base string, m Meta, data []byte, opt *TargetOptions) (*Staged, error) {
	if f.ours == nil || f.hasPartial(base) {
		return t.putNamed(f, base, m, data, opt)
	}
	s, err := t.putUnnamed(f, m, data, opt)
	if errors.Is(err, errNeedsName) {
		return t.putNamed(f, base, m, data, opt)
	}
	return s, err
}

// hasPartial reports whether base has a partial file, if the tree has opened any in f, which is ours.
func (f *folder) hasPartial(base string) bool {
	if !f.ours.partials.Load() {
		return false
	}
	dir, err := f.dir()
	if err != nil {
		return true
	}
	var st unix.Stat_t
	return !errors.Is(statAt(fdOf(dir), reservedName(base)+partialSuffix, &st), fs.ErrNotExist)
}

// putNamed is put under the reserved name. It takes five system calls if the file is new and gets
// the right mode, owner and attributes from the start.
func (t *Tree) putNamed(f *folder, base string, m Meta, data []byte, opt *TargetOptions) (_ *Staged, err error) {
	name := reservedName(base) + partialSuffix
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	like, now := t.likeNew(f)
	mode := startMode(m, like, opt.Owner)
	file, st, err := makeFile(fdOf(dir), name, mode)
	if errors.Is(err, fs.ErrExist) {
		return t.putOver(f, base, m, data, opt)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(fdOf(dir), name, 0)
			_ = file.Close()
		}
	}()
	s, err := t.fill(f, file, like.as(mode, now, &st), m, data, opt)
	if err != nil {
		return nil, err
	}
	s.ref = fileRef{st.Ino, st.Dev}
	return s, nil
}

// likeNew returns what new files get in f, nil if unknown, and the present time of the cache's
// clock.
func (t *Tree) likeNew(f *folder) (like *newcomer, now int64) {
	now = t.folders.now()
	if like = f.newFile.Load(); like != nil && !t.folders.fresh(like.at, now) {
		like = nil
	}
	return like, now
}

// as returns what a file is like that was made with this mode, now. n is nil if new files of its
// folder are unknown.
func (n *newcomer) as(mode uint32, now int64, st *unix.Stat_t) *newcomer {
	meta, _ := metaOfStat("", st) // of a regular file, so there is no error
	got := &newcomer{at: now, uid: st.Uid, gid: st.Gid, dev: st.Dev, asked: mode, mode: meta.Mode}
	if n != nil {
		got.at, got.bare = n.at, n.bare
	}
	return got
}

// fill writes a new file of f, of which like says what it is like, and gives it its metadata.
func (t *Tree) fill(f *folder, file *plainFile, like *newcomer, m Meta, data []byte, opt *TargetOptions) (*Staged, error) {
	before, err := t.volumes.note(like.dev, f)
	if err != nil {
		return nil, err
	}
	if err := file.write(data); err != nil {
		return nil, err
	}
	h := handle{fd: file.fd, bare: like.bare}
	if !like.bare {
		names, err := h.xattrs()
		h.bare = (err == nil || cannotHold(err)) && !slices.ContainsFunc(names, opt.removable)
		like.bare = h.bare
	}
	if like.bare && like != f.newFile.Load() {
		f.newFile.Store(like)
	}
	m.Kind = File
	// The time is unknown: the file was written.
	have := Meta{Path: m.Path, Kind: File, Mode: like.mode, UID: like.uid, GID: like.gid}
	if err := opt.dress(h, &have, m); err != nil {
		return nil, err
	}
	s := &Staged{tree: t, path: m.Path, file: file, before: before}
	if opt.Sync == SyncFile {
		if err := opt.syncing(file.Sync); err != nil {
			return nil, err
		}
		s.synced = true
	}
	return s, nil
}

// startMode returns the mode to make a file for m with. It is the final mode if like, nil if
// unknown, says that all other metadata will be right from the start. Otherwise only its owner may
// read the file until its metadata is set.
func startMode(m Meta, like *newcomer, owner bool) uint32 {
	settled := like != nil && len(m.Xattrs) == 0 && m.Mode&specialBits == 0 &&
		(!owner || like.uid == m.UID && like.gid == m.GID)
	if !settled {
		return 0o600
	}
	return uint32(m.Mode.Perm())
}

// makeFile makes and locks the file name in the folder dir. fs.ErrExist says that the file exists,
// or existed for a moment.
func makeFile(dir int, name string, mode uint32) (_ *plainFile, st unix.Stat_t, err error) {
	fd, err := openAt(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, st, err
	}
	err = ignoringEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err == nil {
		err = ignoringEINTR(func() error { return unix.Fstat(fd, &st) })
	}
	// The holder of the lock removed the file because it was empty: see claim.
	if err == nil && (st.Nlink == 0 || st.Size > 0) {
		err = fs.ErrExist
	}
	if err != nil {
		unix.Close(fd)
		return nil, st, err
	}
	return &plainFile{fd}, st, nil
}

// plainFile is an open regular file without the cost of an os.File. Its owner closes it. Nobody may
// use it while or after it is closed.
type plainFile struct{ fd int }

// write appends all of b.
func (f *plainFile) write(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(f.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		default:
			b = b[n:]
		}
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (f *plainFile) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		more, err := unix.Pread(f.fd, b[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case more == 0:
			return n, io.EOF
		default:
			n += more
		}
	}
	return n, nil
}

// Sync returns when the file is on the medium.
func (f *plainFile) Sync() error { return ignoringEINTR(func() error { return unix.Fsync(f.fd) }) }

// Close releases the file and its lock.
func (f *plainFile) Close() error { return unix.Close(f.fd) }
