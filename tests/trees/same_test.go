//go:build linux

package trees_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mostDifferences is the number of differences after which the comparison stops.
const mostDifferences = 20

// blockSlack is how many bytes the space of two equal files may differ. A file system may also keep
// its lists of extents there.
const blockSlack = 16 << 10

// hostLabels are attributes that programs inside the kernel set on files by themselves
// (bpf_set_dentry_xattr). A host that marks private keys this way marks every copy, also those of
// rsync.
const hostLabels = "security.bpf."

// comparison says what to compare besides everything that must be equal.
type comparison struct {
	space     bool // compare the allocated space
	leftovers bool // b may contain remains of killed transfers of another state of a, which are removed later
}

// differ returns the differences between two trees.
type differ struct {
	a, b   string
	opt    comparison
	leader [2]map[[2]uint64]string
	buf    [2][]byte
	found  []string
	files  int64
}

var errEnough = errors.New("enough differences")

// differences lists how the tree b differs from the tree a: kinds, modes, owners, device numbers,
// sizes, times, extended attributes, targets of symlinks, content, and hard links.
func differences(a, b string, opt comparison) []string {
	d := &differ{a: a, b: b, opt: opt, leader: [2]map[[2]uint64]string{{}, {}}, buf: [2][]byte{make([]byte, 1<<20), make([]byte, 1<<20)}}
	if err := d.entry("."); err != nil && !errors.Is(err, errEnough) {
		d.found = append(d.found, err.Error())
	}
	return d.found
}

// zeros returns how many bytes of a file with holes are data of nothing but zeros. A delta may make holes of them, as rsync
// --sparse does.
func zeros(name string, st *unix.Stat_t) (n int64, err error) {
	if st.Blocks*512 >= st.Size {
		return 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	unit, zero := make([]byte, 4096), make([]byte, 4096)
	for at := int64(0); at < st.Size; at += int64(len(unit)) {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return 0, err
		}
		at = data &^ 4095
		got, err := f.ReadAt(unit, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if bytes.Equal(unit[:got], zero[:got]) {
			n += int64(len(unit))
		}
	}
	return n, nil
}

func (d *differ) note(name, format string, args ...any) error {
	d.found = append(d.found, fmt.Sprintf("%q: ", name)+fmt.Sprintf(format, args...))
	if len(d.found) >= mostDifferences {
		return errEnough
	}
	return nil
}

// entry compares an entry and everything below it.
func (d *differ) entry(name string) error {
	pa, pb := filepath.Join(d.a, name), filepath.Join(d.b, name)
	var a, b unix.Stat_t
	if err := unix.Lstat(pa, &a); err != nil {
		return fmt.Errorf("%q: %w", pa, err)
	}
	if err := unix.Lstat(pb, &b); err != nil {
		return d.note(name, "%v", err)
	}
	if a.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT {
		return d.note(name, "kind %#o, want %#o", b.Mode&unix.S_IFMT, a.Mode&unix.S_IFMT)
	}
	kind := a.Mode & unix.S_IFMT
	var faults []string
	fault := func(what string, have, want any) {
		if have != want {
			faults = append(faults, fmt.Sprintf("%s %v, want %v", what, have, want))
		}
	}
	fault("mode", fmt.Sprintf("%#o", b.Mode), fmt.Sprintf("%#o", a.Mode))
	fault("owner", b.Uid, a.Uid)
	fault("group", b.Gid, a.Gid)
	fault("time", b.Mtim.Nano(), a.Mtim.Nano())
	fault("device", b.Rdev, a.Rdev)
	if kind != unix.S_IFDIR {
		fault("size", b.Size, a.Size)
		fault("one file with", d.leaderOf(1, name, &b), d.leaderOf(0, name, &a))
	}
	if x := (b.Blocks - a.Blocks) * 512; d.opt.space && kind == unix.S_IFREG && max(x, -x) > blockSlack {
		spare, err := zeros(pa, &a)
		if err != nil {
			return err
		}
		if x > blockSlack || x < -spare-blockSlack {
			fault("space", b.Blocks*512, a.Blocks*512)
		}
	}
	xa, err := xattrs(pa)
	if err != nil {
		return err
	}
	xb, err := xattrs(pb)
	if err != nil {
		return err
	}
	fault("attributes", xb, xa)
	switch kind {
	case unix.S_IFLNK:
		la, _ := os.Readlink(pa)
		lb, _ := os.Readlink(pb)
		fault("link", lb, la)
	case unix.S_IFREG:
		d.files++
		if a.Size == b.Size {
			at, err := d.content(pa, pb)
			if err != nil {
				return err
			}
			fault("first other byte", at, int64(-1))
		}
	}
	if len(faults) > 0 {
		if err := d.note(name, "%s", strings.Join(faults, "; ")); err != nil {
			return err
		}
	}
	if kind == unix.S_IFDIR {
		return d.folder(name, pa, pb)
	}
	return nil
}

// leaderOf returns the name under which a file with several names was first seen.
func (d *differ) leaderOf(side int, name string, st *unix.Stat_t) string {
	if st.Nlink < 2 {
		return name
	}
	id := [2]uint64{st.Dev, st.Ino}
	if first, ok := d.leader[side][id]; ok {
		return first
	}
	d.leader[side][id] = name
	return name
}

func (d *differ) folder(name, pa, pb string) error {
	na, err := names(pa)
	if err != nil {
		return err
	}
	nb, err := names(pb)
	if err != nil {
		return err
	}
	for _, n := range nb {
		if _, there := slices.BinarySearch(na, n); !there && !(d.opt.leftovers && strings.HasPrefix(n, ".fxfer-")) {
			if err := d.note(filepath.Join(name, n), "too many"); err != nil {
				return err
			}
		}
	}
	for _, n := range na {
		if _, there := slices.BinarySearch(nb, n); !there {
			if err := d.note(filepath.Join(name, n), "missing"); err != nil {
				return err
			}
			continue
		}
		if err := d.entry(filepath.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

// content returns the first offset where two files of equal size differ, or -1. It reads only where
// one of them has data.
func (d *differ) content(pa, pb string) (int64, error) {
	a, err := os.Open(pa)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	b, err := os.Open(pb)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	var off int64
	for {
		from, err := nextData(a, b, off)
		if errors.Is(err, io.EOF) {
			return -1, nil
		}
		if err != nil {
			return 0, err
		}
		off = from
		n, err := a.ReadAt(d.buf[0], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		m, err := b.ReadAt(d.buf[1], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		x, y := d.buf[0][:n], d.buf[1][:m]
		if !bytes.Equal(x, y) {
			i := 0
			for i < min(n, m) && x[i] == y[i] {
				i++
			}
			return off + int64(i), nil
		}
		if n == 0 {
			return -1, nil
		}
		off += int64(n)
	}
}

// nextData returns the first offset from off on where one of the files has data, or io.EOF.
func nextData(a, b *os.File, off int64) (int64, error) {
	best := int64(-1)
	for _, f := range []*os.File{a, b} {
		at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if best < 0 || at < best {
			best = at
		}
	}
	if best < 0 {
		return 0, io.EOF
	}
	return best, nil
}

func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.Readdirnames(-1)
	slices.Sort(list)
	return list, err
}

// xattrs returns all extended attributes of an entry as one text, except those that the host sets.
func xattrs(name string) (string, error) {
	n, err := unix.Llistxattr(name, nil)
	if n == 0 || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	list := make([]byte, max(n, 0))
	if n, err = unix.Llistxattr(name, list); err != nil {
		return "", fmt.Errorf("list attributes of %q: %w", name, err)
	}
	found := strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 })
	found = slices.DeleteFunc(found, func(attr string) bool { return strings.HasPrefix(attr, hostLabels) })
	slices.Sort(found)
	for i, attr := range found {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(name, attr, value)
		if err != nil {
			return "", fmt.Errorf("attribute %q of %q: %w", attr, name, err)
		}
		found[i] = fmt.Sprintf("%s=%x", attr, value[:n])
	}
	return strings.Join(found, " "), nil
}
