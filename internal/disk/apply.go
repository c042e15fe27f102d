package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

const (
	specialBits = fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

	aclPrefix = "system.posix_acl_"
)

// errBitsLost is the cause of a warning: the system removed special mode bits silently. Linux does
// that with setgid for users outside the group.
var errBitsLost = errors.New("the system did not keep setuid, setgid or sticky")

// Apply gives the entry at m.Path the owner, mode, extended attributes and modification time of m,
// if opt asks for them and they differ. Apply a folder last: every change inside it alters its
// time. Apply does not touch size and content.
//
// Errors: fs.ErrNotExist, ErrExists for an entry of another kind, ErrPath and ErrNotFolder for a
// bad path.
func (t *Tree) Apply(m Meta, opt TargetOptions) error {
	err := t.withParent(m.Path, func(f *folder, base string) error {
		return t.apply(f, base, m, &opt)
	})
	return at("set metadata", m.Path, err)
}

// apply is Apply for the entry base in f.
func (t *Tree) apply(f *folder, base string, m Meta, opt *TargetOptions) error {
	if m.Kind == Dir && f.looksLike(base, m, opt) { // which takes half as many system calls
		return nil
	}
	h, err := openHandle(f, base)
	if err != nil {
		return err
	}
	defer h.Close()
	have, err := h.describe(m.Path)
	if err != nil {
		return err
	}
	if have.Kind != m.Kind {
		return ErrExists
	}
	if _, err := t.volumes.note(have.ID.Dev, f); err != nil {
		return err
	}
	if m.Kind == Dir && (have.Mode != m.Mode&modeBits || opt.Owner && (have.UID != m.UID || have.GID != m.GID) || len(m.Xattrs) > 0) {
		defer t.folders.changed() // new files would inherit another group or ACL
	}
	return opt.dress(h, &have, m)
}

// looksLike reports whether the entry base in f has the metadata of m already.
func (f *folder) looksLike(base string, m Meta, opt *TargetOptions) bool {
	dir, err := f.dir()
	if err != nil {
		return false
	}
	have, err := f.describe(dir, base, m.Path)
	if err != nil {
		return false
	}
	if opt.Xattrs {
		have.Xattrs, have.XattrErr = readXattrs(dir, base)
	}
	return have.XattrErr == nil && !Differs(&have, &m, opt)
}

// Differs reports whether Apply with want would change the entry that have describes, or could not
// make it equal. It compares kinds, targets of symlinks and device numbers, too, but not size and
// content. Xattrs count only if opt asks for them.
func Differs(have, want *Meta, opt *TargetOptions) bool {
	switch {
	case have.Kind != want.Kind, have.Link != want.Link:
		return true
	case isDevice(want.Kind) && have.Rdev != want.Rdev:
		return true
	case want.Kind != Symlink && (have.Mode^want.Mode)&modeBits != 0:
		return true
	case opt.Owner && (have.UID != want.UID || have.GID != want.GID):
		return true
	case !want.ModTime.IsZero() && !have.ModTime.Equal(want.ModTime):
		return true
	}
	return opt.Xattrs && !opt.sameXattrs(have.Xattrs, want.Xattrs)
}

func isDevice(k Kind) bool { return k == CharDevice || k == BlockDevice }

func (o *TargetOptions) sameXattrs(a, b []Xattr) bool {
	find := func(in []Xattr, x Xattr) bool {
		value, there := valueOf(in, x.Name)
		return there && bytes.Equal(value, x.Value)
	}
	for _, x := range a {
		if o.removable(x.Name) && !find(b, x) {
			return false
		}
	}
	for _, x := range b {
		if !find(a, x) {
			return false
		}
	}
	return true
}

func valueOf(in []Xattr, name string) (value []byte, there bool) {
	i := slices.IndexFunc(in, func(x Xattr) bool { return x.Name == name })
	if i < 0 {
		return nil, false
	}
	return in[i].Value, true
}

// settable reports whether a peer may set an attribute. Other names in system.* are commands to a
// file system.
func (o *TargetOptions) settable(name string) bool {
	if isPrivileged(name) {
		return o.Privileged
	}
	return !strings.HasPrefix(name, "system.") || strings.HasPrefix(name, aclPrefix)
}

// removable reports whether to remove an attribute that the source lacks. A SELinux label stays:
// the target's system puts one on every file.
func (o *TargetOptions) removable(name string) bool {
	return o.settable(name) && name != "security.selinux"
}

// dress gives an entry of m's kind the metadata of m. have describes the entry, and is nil for a
// new one. The order counts: a change of the owner clears setuid, setgid and file capabilities, and
// ACLs depend on the mode.
func (o *TargetOptions) dress(h handle, have *Meta, m Meta) error {
	m = o.plain(have, m)
	mode, owned := m.Mode&modeBits, false
	if o.Owner && (have == nil || have.UID != m.UID || have.GID != m.GID) {
		lost, err := o.own(h, have, m)
		if err != nil {
			return err
		}
		mode, owned = mode&^lost, true
		if !o.Privileged { // a program would run as its new owner
			mode &^= privilegeBits
		}
	}
	if m.Kind != Symlink && (have == nil || have.Mode != mode || owned && mode&specialBits != 0) {
		if err := o.setMode(h, m.Path, mode); err != nil {
			return err
		}
	}
	if o.Xattrs {
		if err := o.setXattrs(h, m, mode); err != nil {
			return err
		}
	}
	if !m.ModTime.IsZero() && (have == nil || !have.ModTime.Equal(m.ModTime)) {
		return o.hold(m.Path, "time", h.setTime(m.ModTime))
	}
	return nil
}

// own sets owner and group, or at least the group. It returns the mode bits that must not be set
// now: with them a program would run as another user than at the source.
func (o *TargetOptions) own(h handle, have *Meta, m Meta) (lost fs.FileMode, err error) {
	err = h.chown(int64(m.UID), int64(m.GID))
	if err == nil {
		return 0, nil
	}
	if err := o.hold(m.Path, "owner", err); err != nil {
		return 0, err
	}
	if have == nil || have.UID != m.UID {
		lost |= fs.ModeSetuid
	}
	// Users may give a file to another group of theirs.
	if (have == nil || have.GID != m.GID) && h.chown(-1, int64(m.GID)) != nil && m.Kind != Dir {
		lost |= fs.ModeSetgid
	}
	return lost, nil
}

func (o *TargetOptions) setMode(h handle, path string, mode fs.FileMode) error {
	if err := h.chmod(mode); err != nil {
		return o.hold(path, "mode", err)
	}
	if mode&specialBits == 0 {
		return nil
	}
	got, err := h.describe(path)
	if err == nil && got.Mode&specialBits != mode&specialBits {
		o.warn(path, "mode", errBitsLost)
	}
	return err
}

// setXattrs makes the attributes equal to those of m. mode is the entry's mode at the target. If
// its owner may not write the entry, setXattrs opens it meanwhile.
func (o *TargetOptions) setXattrs(h handle, m Meta, mode fs.FileMode) (err error) {
	opened := false
	write := func(do func() error) error {
		err := do()
		if errors.Is(err, fs.ErrPermission) && !opened && m.Kind != Symlink && mode&0o200 == 0 && h.chmod(mode|0o200) == nil {
			opened = true
			err = do()
		}
		return err
	}
	defer func() {
		if opened {
			err = errors.Join(err, o.setMode(h, m.Path, mode))
		}
	}()
	names, err := h.xattrs()
	switch {
	case err != nil && !cannotHold(err):
		return err
	case err != nil:
		if len(m.Xattrs) > 0 {
			o.warn(m.Path, "xattr", err)
		}
		return nil
	}
	for _, name := range names {
		if _, wanted := valueOf(m.Xattrs, name); wanted || !o.removable(name) {
			continue
		}
		if err := o.holdXattr(m.Path, name, write(func() error { return h.removeXattr(name) })); err != nil {
			return err
		}
	}
	for _, x := range m.Xattrs {
		if !o.settable(x.Name) {
			o.warn(m.Path, "xattr", errors.ErrUnsupported)
			continue
		}
		if slices.Contains(names, x.Name) {
			if value, err := h.xattr(x.Name); err == nil && bytes.Equal(value, x.Value) {
				continue
			}
		}
		if err := o.holdXattr(m.Path, x.Name, write(func() error { return h.setXattr(x.Name, x.Value) })); err != nil {
			return err
		}
	}
	return nil
}

// holdXattr is hold for an attribute. On file systems with little room for attributes, such as
// ext4, a value that is too large gives ENOSPC even on an empty medium.
func (o *TargetOptions) holdXattr(path, name string, err error) error {
	what := "xattr"
	if strings.HasPrefix(name, aclPrefix) {
		what = "acl"
	}
	if isNoSpace(err) {
		o.warn(path, what, err)
		return nil
	}
	return o.hold(path, what, err)
}
