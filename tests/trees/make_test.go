//go:build linux

package trees_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// maker makes and changes trees at random. Like in real use, an entry gets a new time with each
// change.
type maker struct {
	t     require.TestingT
	rng   *rand.Rand
	dir   string
	count int64
}

func (m *maker) at(name string) string { return filepath.Join(m.dir, name) }

// bytes returns random content.
func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], m.rng.Uint64())
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// moment returns a time with nanoseconds that no other entry has.
func (m *maker) moment() time.Time {
	m.count++
	return time.Unix(1_000_000_000+m.rng.Int64N(700_000_000), m.count*1_000+m.rng.Int64N(1_000))
}

func (m *maker) file(name string, size int, mode uint32) {
	require.NoError(m.t, os.WriteFile(m.at(name), m.bytes(size), 0o600))
	m.mode(name, mode)
	m.touch(name, m.moment())
}

func (m *maker) folder(name string, mode uint32) {
	require.NoError(m.t, os.Mkdir(m.at(name), 0o755))
	m.mode(name, mode)
}

// mode sets all twelve bits of the mode. os.Chmod has some of them in other places.
func (m *maker) mode(name string, mode uint32) { require.NoError(m.t, unix.Chmod(m.at(name), mode)) }

func (m *maker) symlink(to, name string) {
	require.NoError(m.t, os.Symlink(to, m.at(name)))
	m.touch(name, m.moment())
}

func (m *maker) link(from, name string) { require.NoError(m.t, os.Link(m.at(from), m.at(name))) }

func (m *maker) touch(name string, at time.Time) {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(at.UnixNano())}
	require.NoError(m.t, unix.UtimesNanoAt(unix.AT_FDCWD, m.at(name), ts, unix.AT_SYMLINK_NOFOLLOW))
}

// node makes a fifo, device or socket.
func (m *maker) node(name string, mode uint32, major, minor uint32) {
	require.NoError(m.t, unix.Mknod(m.at(name), mode, int(unix.Mkdev(major, minor))))
	m.touch(name, m.moment())
}

// xattr sets an attribute if the system supports them.
func (m *maker) xattr(name, attr string, value []byte) {
	if err := unix.Lsetxattr(m.at(name), attr, value, 0); !refused(err) {
		require.NoError(m.t, err, "%s of %q", attr, name)
	}
}

// sparse makes a file of size bytes that has data only at these offsets.
func (m *maker) sparse(name string, size int64, data map[int64]int) {
	f, err := os.Create(m.at(name))
	require.NoError(m.t, err)
	defer f.Close()
	require.NoError(m.t, f.Truncate(size))
	for off, n := range data {
		_, err := f.WriteAt(m.bytes(n), off)
		require.NoError(m.t, err)
	}
	m.touch(name, m.moment())
}

// acl is a POSIX ACL in the kernel's format (acl(5), linux/posix_acl_xattr.h). The owner has all
// rights, a user has some, a group has others, and everybody else has none.
func acl(user, group uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, ^uint32(0)}, {2, 6, user}, {4, 5, ^uint32(0)}, {8, 4, group}, {16, 7, ^uint32(0)}, {32, 0, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// capability lets a program open raw sockets: CAP_NET_RAW, permitted and effective
// (linux/capability.h, revision 2).
var capability = []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// everything makes a tree with each kind of entry and metadata that this user may make.
func (m *maker) everything() {
	for i, mode := range []uint32{0o644, 0o600, 0o400, 0o444, 0o755, 0o777, 0o4755, 0o2755, 0o6711, 0o1644} {
		m.file(fmt.Sprintf("mode-%d", i), 100+i, mode)
	}
	for i, size := range []int{0, 1, 4095, 4096, 4097, 65536, 256 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5<<20 + 3} {
		m.file(fmt.Sprintf("size-%d", i), size, 0o644)
	}
	m.folder("empty", 0o700)
	m.folder("sticky", 0o1777)
	m.folder("setgid", 0o2775)
	m.file("setgid/below", 10, 0o640)
	m.folder("readonly", 0o755)
	m.file("readonly/below", 10, 0o440)

	m.folder("links", 0o755)
	m.folder("links/other", 0o755)
	m.link("size-3", "links/one")
	m.link("size-3", "links/other/two")
	m.link("size-10", "links/large")
	m.link("size-0", "links/empty")
	m.symlink("one", "links/to-file")
	m.symlink("../links/other", "links/to-folder")
	m.symlink("nowhere/at/all", "links/dangling")
	m.symlink("/etc/passwd", "links/absolute")
	m.symlink("../../../../etc", "links/outside")
	m.symlink("self", "links/self")
	m.link("links/dangling", "links/other/dangling-too")
	m.symlink("a \n\xff"+strings.Repeat("x", 1000), "links/odd")

	m.folder("nodes", 0o755)
	m.node("nodes/fifo", unix.S_IFIFO|0o620, 0, 0)
	m.node("nodes/socket", unix.S_IFSOCK|0o600, 0, 0)
	m.link("nodes/fifo", "links/fifo")
	m.link("nodes/socket", "nodes/socket-too")
	if root() {
		m.node("nodes/null", unix.S_IFCHR|0o666, 1, 3)
		m.node("nodes/large", unix.S_IFCHR|0o600, 400, 70000)
		m.node("nodes/block", unix.S_IFBLK|0o660, 7, 200)
		m.link("nodes/null", "links/null")
		for i, name := range []string{"mode-6", "mode-0", "size-2", "empty", "links/dangling", "nodes/fifo", "nodes/null"} {
			require.NoError(m.t, os.Lchown(m.at(name), 12345+i, 54321+i))
		}
		m.mode("mode-6", 0o4755)
		m.xattr("size-4", "security.capability", capability)
		m.xattr("links/dangling", "trusted.test", []byte("of a symlink"))
		m.xattr("empty", "trusted.test", []byte{0})
	}
	m.xattr("size-1", "user.test", []byte("value"))
	m.xattr("size-1", "user.empty", nil)
	m.xattr("size-1", "user.binary \xff\n", []byte{0, 1, 0xff, '\n'})
	m.xattr("size-9", "user.large", m.bytes(2000))
	m.xattr("size-10", "user.test", []byte("of several names"))
	m.xattr("empty", "user.test", []byte("of a folder"))
	m.xattr("size-5", "system.posix_acl_access", acl(1000, 2000))
	m.xattr("setgid", "system.posix_acl_access", acl(1, 3))
	m.xattr("setgid", "system.posix_acl_default", acl(2, 4))
	m.folder("setgid/inherits", 0o700)
	m.file("setgid/inherits/file", 7, 0o640)

	const mib = 1 << 20
	m.folder("sparse", 0o755)
	m.sparse("sparse/all", 3*mib+5, nil)
	m.sparse("sparse/start", 9*mib, map[int64]int{7 * mib: 2 * mib})
	m.sparse("sparse/middle", 9*mib, map[int64]int{0: mib, 8*mib + 4096: mib - 4096})
	m.sparse("sparse/end", 9*mib, map[int64]int{0: 100_000})
	m.sparse("sparse/small", 300_000, map[int64]int{8192: 4096, 204_800: 10})
	m.sparse("sparse/many", 40*mib, map[int64]int{0: 4096, mib - 4096: 8192, 5*mib + 65536: 4096, 17 * mib: 3 * mib, 39 * mib: 1})
	m.file("sparse/zeros", 1, 0o644)
	require.NoError(m.t, os.WriteFile(m.at("sparse/zeros"), make([]byte, 3*mib), 0o600)) // these zeros are data, not a hole
	m.touch("sparse/zeros", m.moment())

	m.folder("names", 0o755)
	for _, name := range []string{
		"new\nline", "\xff\xfe not UTF-8 \x80", strings.Repeat("n", 255), "-rf", "--delete", " ", "a b ", "*", "?[a-z]", "\\", "\x01\x1b[31m\x7f",
		"'\"", "ünïcödé", "…", "..a", "a.", "~", "#x#", ".hidden", ".fxfe", "con", strings.Repeat("é", 127), "%s%n",
	} {
		m.file("names/"+name, 20, 0o644)
	}
	m.folder("names/\xe4\n", 0o755)
	m.file("names/\xe4\n/\xf6", 3, 0o644)

	deep := "deep"
	m.folder(deep, 0o755)
	for i := range 100 {
		deep += fmt.Sprintf("/d%02d", i)
		m.folder(deep, 0o755)
	}
	m.file(deep+"/bottom", 30, 0o644)

	m.folder("many", 0o755)
	for i := range 1500 { // more than one read of a folder returns
		m.file(fmt.Sprintf("many/%04d", i), m.rng.IntN(3000), 0o644)
	}

	m.touch("size-2", time.Unix(-600_000_000, 123_456_789)) // 1950
	m.touch("size-4", time.Unix(0, 1))
	m.touch("size-6", time.Unix(0, 0))
	m.touch("links/dangling", time.Unix(5_000_000_000, 999_999_999)) // 2128
	m.touch("nodes/fifo", time.Unix(9_000_000_000, 1))
	m.touch("sparse", time.Unix(4_200_000_000, 5))
	m.touch("names", time.Unix(-1, 1))
	m.mode("readonly", 0o555)
	m.touchFolders()
}

// touchFolders gives each folder a time of its own, except those with special times.
func (m *maker) touchFolders() {
	m.each(func(name string, d fs.DirEntry) {
		if info, err := d.Info(); err == nil && d.IsDir() && time.Since(info.ModTime()).Abs() < time.Hour {
			m.touch(name, m.moment())
		}
	})
}

// each visits all entries, deepest first.
func (m *maker) each(visit func(name string, d fs.DirEntry)) {
	type entry struct {
		name string
		d    fs.DirEntry
	}
	var all []entry
	require.NoError(m.t, filepath.WalkDir(m.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(m.dir, name)
		all = append(all, entry{name, d})
		return err
	}))
	for _, e := range slices.Backward(all) {
		visit(e.name, e.d)
	}
}

// change makes n changes: of content, names, kinds and metadata, removals and new entries.
func (m *maker) change(n int) {
	var files, folders []string
	m.each(func(name string, d fs.DirEntry) {
		switch {
		case name == "." || root() && strings.HasPrefix(name, "."):
		case d.IsDir():
			folders = append(folders, name)
		default:
			files = append(files, name)
		}
	})
	if !root() {
		require.NoError(m.t, os.Chmod(m.at("."), 0o755))
		for _, f := range folders {
			_ = os.Chmod(m.at(f), 0o755)
		}
	}
	for range n {
		m.changeOne(files[m.rng.IntN(len(files))], folders[m.rng.IntN(len(folders))])
	}
	m.touchFolders()
}

// changeOne changes a file or a folder if it still exists. A file may be of any kind except a
// folder.
func (m *maker) changeOne(file, folder string) {
	info, err := os.Lstat(m.at(file))
	if err != nil || info.IsDir() {
		return // an earlier change removed it
	}
	if f, err := os.Lstat(m.at(folder)); err != nil || !f.IsDir() {
		folder = "."
	}
	fresh := filepath.Join(folder, fmt.Sprintf("new-%d", m.rng.Uint32()))
	regular := info.Mode().IsRegular()
	switch m.rng.IntN(16) {
	case 0: // remove
		m.gone(file)
	case 1:
		if folder != "." && m.rng.IntN(8) == 0 {
			m.gone(folder)
		}
	case 2, 3: // rename
		require.NoError(m.t, os.Rename(m.at(file), m.at(fresh)))
	case 4:
		if folder != "." {
			require.NoError(m.t, os.Rename(m.at(folder), m.at(filepath.Join(filepath.Dir(folder), filepath.Base(fresh)))))
		}
	case 5: // other kinds
		m.gone(file)
		m.folder(file, 0o750)
		m.file(file+"/in", 50, 0o600)
	case 6:
		m.gone(file)
		m.symlink("x/y", file)
	case 7:
		m.gone(file)
		m.file(file, 60, 0o644)
	case 8:
		if folder != "." && m.rng.IntN(8) == 0 {
			m.gone(folder)
			m.file(folder, 70, 0o644)
		}
	case 9: // metadata
		if info.Mode()&fs.ModeSymlink == 0 {
			m.mode(file, []uint32{0o600, 0o4711, 0o2640, 0o777, 0o444}[m.rng.IntN(5)])
		}
	case 10:
		m.touch(file, m.moment())
	case 11:
		if regular {
			m.xattr(file, "user.test", m.bytes(1+m.rng.IntN(100)))
			m.xattr(file, "system.posix_acl_access", acl(m.rng.Uint32N(1000), m.rng.Uint32N(1000)))
		}
		if root() {
			require.NoError(m.t, os.Lchown(m.at(file), m.rng.IntN(3), m.rng.IntN(3)))
		}
	case 12: // content
		if regular {
			require.NoError(m.t, os.Chmod(m.at(file), 0o600))
			f, err := os.OpenFile(m.at(file), os.O_RDWR, 0)
			require.NoError(m.t, err)
			_, err = f.WriteAt(m.bytes(1+m.rng.IntN(5000)), m.rng.Int64N(info.Size()+1))
			require.NoError(m.t, errors.Join(err, f.Close()))
			m.touch(file, m.moment())
		}
	case 13:
		if regular {
			require.NoError(m.t, os.Chmod(m.at(file), 0o600))
			require.NoError(m.t, os.Truncate(m.at(file), m.rng.Int64N(2*info.Size()+1)))
			m.touch(file, m.moment())
		}
	case 14:
		m.link(file, fresh)
	case 15:
		m.file(fresh, m.rng.IntN(200_000), 0o644)
	}
}

func (m *maker) gone(name string) { clearTree(m.t, m.at(name)) }

// newMaker returns a maker of trees below dir.
func newMaker(t *testing.T, rng *rand.Rand, dir string) *maker {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return &maker{t: t, rng: rng, dir: dir}
}
