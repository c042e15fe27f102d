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

// errBitsLost is the cause of a warning: the system took special mode bits away
// without a word, as Linux does with setgid for who is not in the group.
var errBitsLost = errors.New("special bits are not kept")

// Apply gives the entry that exists at m.Path the owner, mode, extended
// attributes and modification time of m, as far as opt asks for them and they
// differ. For a folder it comes last, as every change inside alters the time.
// Size and content are left alone.
//
// Errors: fs.ErrNotExist, ErrExists for an entry of another kind, ErrPath and
// ErrNotFolder for a bad path.
func (t *Tree) Apply(m Meta, opt TargetOptions) error {
	err := t.withParent(m.Path, func(f *folder, base string) error {
		return t.apply(f, base, m, &opt)
	})
	return at("set metadata", m.Path, err)
}

// apply is Apply for the entry base of f.
func (t *Tree) apply(f *folder, base string, m Meta, opt *TargetOptions) error {
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
	if err := t.volumes.note(have.ID.Dev, f); err != nil {
		return err
	}
	if m.Kind == Dir && (have.Mode != m.Mode&modeBits || opt.Owner && (have.UID != m.UID || have.GID != m.GID) || len(m.Xattrs) > 0) {
		defer t.folders.changed() // new files get another group, or an ACL
	}
	return opt.dress(h, &have, m)
}

// Differs reports whether Apply with want would change an entry that is as have
// says, whose Xattrs count only if opt asks for them, or could not make it equal:
// kind, the target of a symlink and the number of a device count, too. Size and
// content don't.
func Differs(have, want Meta, opt TargetOptions) bool {
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
	return opt.Xattrs && !sameXattrs(have.Xattrs, want.Xattrs)
}

func isDevice(k Kind) bool { return k == CharDevice || k == BlockDevice }

func sameXattrs(a, b []Xattr) bool {
	find := func(in []Xattr, x Xattr) bool {
		value, there := valueOf(in, x.Name)
		return there && bytes.Equal(value, x.Value)
	}
	for _, x := range a {
		if removable(x.Name) && !find(b, x) {
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

// settable reports whether an attribute may be set at the request of a peer:
// others in system.* are no attributes but commands to a file system.
func settable(name string) bool {
	return !strings.HasPrefix(name, "system.") || strings.HasPrefix(name, aclPrefix)
}

// removable reports whether an attribute that the source has not is removed. A
// label of SELinux stays: it is the target system's, which puts it on every file.
func removable(name string) bool { return settable(name) && name != "security.selinux" }

// dress gives an entry of m's kind, which is as have says or new if that is nil,
// the metadata of m. The order counts: a change of the owner clears setuid,
// setgid and file capabilities, and ACLs are bound up with the mode.
func (o *TargetOptions) dress(h handle, have *Meta, m Meta) error {
	mode, owned := m.Mode&modeBits, false
	if o.Owner && (have == nil || have.UID != m.UID || have.GID != m.GID) {
		lost, err := o.own(h, have, m)
		if err != nil {
			return err
		}
		mode, owned = mode&^lost, true
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

// own sets owner and group, or at least the group. It returns the mode bits that
// must not be set now, so that no program runs as somebody else than at the
// source.
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
	// A user may give a file to another group that he is in.
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

// setXattrs makes the attributes those of m, whose mode at the target is mode. What
// its owner may not write is opened for that.
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
		if _, wanted := valueOf(m.Xattrs, name); wanted || !removable(name) {
			continue
		}
		if err := o.holdXattr(m.Path, name, write(func() error { return h.removeXattr(name) })); err != nil {
			return err
		}
	}
	for _, x := range m.Xattrs {
		if !settable(x.Name) {
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

// holdXattr is hold for an attribute. Where its room is limited, as on ext4, a
// value that is too large gives ENOSPC on an empty medium.
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
