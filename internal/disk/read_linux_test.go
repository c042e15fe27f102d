package disk

import (
	"errors"
	"fmt"
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

func TestMetaOfStat(t *testing.T) {
	st := unix.Stat_t{
		Dev: 5, Ino: 7, Nlink: 3, Uid: 1000, Gid: 4294967294, Rdev: 1<<40 | 9, Size: 8192, Blocks: 15,
		Mtim: unix.Timespec{Sec: -5, Nsec: 999999999},
	}
	for _, c := range []struct {
		mode  uint32
		kind  Kind
		size  int64
		rdev  uint64
		holes bool
		perm  os.FileMode
	}{
		{unix.S_IFREG | 0o644, File, 8192, 0, true, 0o644},
		{unix.S_IFREG | 0o6755, File, 8192, 0, true, 0o755 | os.ModeSetuid | os.ModeSetgid},
		{unix.S_IFDIR | 0o1777, Dir, 0, 0, false, 0o777 | os.ModeSticky},
		{unix.S_IFLNK | 0o777, Symlink, 0, 0, false, 0o777},
		{unix.S_IFIFO, Fifo, 0, 0, false, 0},
		{unix.S_IFCHR | 0o600, CharDevice, 0, 1<<40 | 9, false, 0o600},
		{unix.S_IFBLK | 0o600, BlockDevice, 0, 1<<40 | 9, false, 0o600},
		{unix.S_IFSOCK | 0o700, Socket, 0, 0, false, 0o700},
	} {
		st.Mode = c.mode
		got, err := metaOfStat("p", &st)
		require.NoError(t, err)
		require.Equal(t, Meta{
			Path: "p", Kind: c.kind, Size: c.size, ModTime: time.Unix(-5, 999999999), Mode: c.perm,
			ID:  Identity{Size: 8192, ModTime: -4000000001, Ino: 7, Dev: 5},
			UID: 1000, GID: 4294967294, Nlink: 3, Rdev: c.rdev, Holes: c.holes,
		}, got)
	}
	st.Mode = 0
	_, err := metaOfStat("p", &st)
	require.ErrorIs(t, err, ErrUnsupportedKind)
}

func TestStatDescribesAll(t *testing.T) {
	tree, dir := openTree(t)
	name := func(s string) string { return filepath.Join(dir, s) }
	require.NoError(t, os.WriteFile(name("file"), make([]byte, 5000), 0o600))
	require.NoError(t, os.Link(name("file"), name("second")))
	require.NoError(t, os.WriteFile(name("sparse"), nil, 0o600))
	require.NoError(t, os.Truncate(name("sparse"), 1<<20))
	require.NoError(t, unix.Mknod(name("socket"), unix.S_IFSOCK|0o600, 0))
	want := map[string]Meta{
		"file": {Kind: File, Nlink: 2}, "second": {Kind: File, Nlink: 2}, "sparse": {Kind: File, Nlink: 1, Holes: true},
		"socket": {Kind: Socket, Nlink: 1},
	}
	const device = 1<<20 | 259<<8 | 3 // of several bytes each
	if os.Geteuid() == 0 {
		require.NoError(t, unix.Mknod(name("char"), unix.S_IFCHR|0o600, device))
		require.NoError(t, unix.Mknod(name("block"), unix.S_IFBLK|0o600, device))
		require.NoError(t, os.Lchown(name("socket"), 12, 34))
		want["char"] = Meta{Kind: CharDevice, Nlink: 1, Rdev: device}
		want["block"] = Meta{Kind: BlockDevice, Nlink: 1, Rdev: device}
		want["socket"] = Meta{Kind: Socket, Nlink: 1, UID: 12, GID: 34}
	}
	for path, w := range want {
		m, err := tree.Stat(path)
		require.NoError(t, err)
		if path != "socket" || os.Geteuid() != 0 {
			w.UID, w.GID = uint32(os.Geteuid()), uint32(os.Getegid())
		}
		got := Meta{Kind: m.Kind, Nlink: m.Nlink, Holes: m.Holes, Rdev: m.Rdev, UID: m.UID, GID: m.GID}
		require.Equal(t, w, got, path)
		if w.Kind != File {
			_, err = tree.OpenFile(path)
			require.ErrorIs(t, err, ErrUnsupportedKind)
		}
	}
	listed := map[string]Kind{}
	require.NoError(t, tree.List(t.Context(), ".", func(m Meta) error {
		listed[m.Path] = m.Kind
		return nil
	}, func(name string, err error) { t.Errorf("%s: %v", name, err) }))
	require.Len(t, listed, len(want))
	require.Equal(t, Socket, listed["socket"])
}

func TestXattrs(t *testing.T) {
	tree, dir := openTree(t)
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, nil, 0o600))
	set := func(path, name string, value []byte) {
		t.Helper()
		if err := unix.Lsetxattr(path, name, value, 0); errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
			t.Skipf("setting %s: %v", name, err)
		} else {
			require.NoError(t, err)
		}
	}
	set(outside, "user.outside", []byte("secret"))
	for _, name := range []string{"file", "plain", "broken", "line\nbreak \xff"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	large := []byte(strings.Repeat("large", 500))
	set(filepath.Join(dir, "file"), "user.z", []byte{0, 1, 0xff, 0})
	set(filepath.Join(dir, "file"), "user.empty", nil)
	set(filepath.Join(dir, "file"), "user.large", large)
	set(filepath.Join(dir, "folder"), "user.folder", []byte("of it"))
	set(filepath.Join(dir, "line\nbreak \xff"), "user.\xff", []byte("x"))
	set(dir, "user.root", []byte("the root's"))
	want := map[string][]Xattr{
		".":                {{Name: "user.root", Value: []byte("the root's")}},
		"file":             {{"user.empty", []byte{}}, {"user.large", large}, {"user.z", []byte{0, 1, 0xff, 0}}},
		"plain":            nil,
		"broken":           nil,
		"line\nbreak \xff": {{Name: "user.\xff", Value: []byte("x")}},
		"folder":           {{Name: "user.folder", Value: []byte("of it")}},
		"link":             nil,
	}
	if os.Geteuid() == 0 {
		// Only trusted attributes are allowed on a symlink.
		set(filepath.Join(dir, "link"), "trusted.link", []byte("own"))
		want["link"] = []Xattr{{Name: "trusted.link", Value: []byte("own")}}
		// ACL and capability, in the layouts of linux/posix_acl_xattr.h and linux/capability.h.
		acl := []byte("\x02\x00\x00\x00" + "\x01\x00\x06\x00\xff\xff\xff\xff" + "\x02\x00\x04\x00\x01\x00\x00\x00" +
			"\x04\x00\x00\x00\xff\xff\xff\xff" + "\x10\x00\x04\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff")
		capability := []byte("\x01\x00\x00\x02" + "\x00\x04\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00")
		set(filepath.Join(dir, "folder"), "system.posix_acl_default", acl)
		set(filepath.Join(dir, "folder"), "system.posix_acl_access", acl)
		set(filepath.Join(dir, "plain"), "security.capability", capability)
		want["folder"] = []Xattr{{"system.posix_acl_access", acl}, {"system.posix_acl_default", acl}, want["folder"][0]}
		want["plain"] = []Xattr{{"security.capability", capability}}
	}
	got := map[string][]Xattr{}
	require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{Xattrs: true}, func(m Meta) error {
		require.NoError(t, m.XattrErr)
		got[m.Path] = m.Xattrs
		again, err := tree.StatXattrs(m.Path)
		require.NoError(t, err)
		require.Equal(t, m, again)
		without, err := tree.Stat(m.Path)
		require.NoError(t, err)
		require.Nil(t, without.Xattrs)
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	require.Equal(t, want, got)
}

// An entry with too many attributes keeps everything except these.
func TestTooManyXattrs(t *testing.T) {
	dir := tmpfs(t, "size=8m")
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	for i := range 3 {
		if err := unix.Lsetxattr(path, fmt.Sprint("trusted.", i), make([]byte, 30<<10), 0); err != nil {
			t.Skipf("setting large attributes: %v", err)
		}
	}
	m, err := tree.StatXattrs("file")
	require.NoError(t, err)
	require.EqualValues(t, 7, m.Size)
	require.ErrorIs(t, m.XattrErr, errXattrSize)
	require.Nil(t, m.Xattrs)
	require.NoError(t, unix.Lremovexattr(path, "trusted.1"))
	m, err = tree.StatXattrs("file")
	require.NoError(t, err)
	require.NoError(t, m.XattrErr)
	require.Len(t, m.Xattrs, 2)
	require.Len(t, m.Xattrs[1].Value, 30<<10)
}

func TestOneFileSystem(t *testing.T) {
	dir := tmpfs(t, "size=1m")
	other := filepath.Join(dir, "a", "other")
	require.NoError(t, os.MkdirAll(other, 0o755))
	require.NoError(t, unix.Mount("tmpfs", other, "tmpfs", 0, "size=1m"))
	defer func() { require.NoError(t, unix.Unmount(other, unix.MNT_DETACH)) }()
	require.NoError(t, os.WriteFile(filepath.Join(other, "file"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bound"), nil, 0o600))
	require.NoError(t, unix.Mount(filepath.Join(other, "file"), filepath.Join(dir, "bound"), "", unix.MS_BIND, ""))
	defer func() { require.NoError(t, unix.Unmount(filepath.Join(dir, "bound"), unix.MNT_DETACH)) }()

	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	require.Equal(t, []string{".", "a", "a/other"}, walked(t, tree, ".", WalkOptions{OneFileSystem: true}))
	require.Equal(t, []string{".", "a", "a/other", "a/other/file", "bound"}, walked(t, tree, ".", WalkOptions{}))
	require.Equal(t, []string{"a/other", "a/other/file"}, walked(t, tree, "a/other", WalkOptions{OneFileSystem: true}))
}

func TestData(t *testing.T) {
	const unit = 64 << 10 // a multiple of every file system's block
	tree, dir := openTree(t)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	path := filepath.Join(dir, "file")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	const units = 40
	hasData := make([]bool, units)
	for i := range hasData {
		if hasData[i] = random.IntN(3) == 0; hasData[i] {
			_, err := file.WriteAt([]byte(strings.Repeat("d", unit)), int64(i)*unit)
			require.NoError(t, err)
		}
	}
	size := int64(units*unit - random.IntN(2)*unit/2)
	require.NoError(t, file.Truncate(size))

	source, err := tree.OpenFile("file")
	require.NoError(t, err)
	defer source.Close()
	whole, err := source.Data(0, 1<<62)
	require.NoError(t, err)
	if len(whole) == 1 && whole[0] == (Range{0, size}) && slices.Contains(hasData, false) {
		t.Skip("the file system doesn't tell")
	}
	for range 500 {
		off := random.Int64N(size + unit)
		n := random.Int64N(size)
		ranges, err := source.Data(off, n)
		require.NoError(t, err)
		next, end := off, min(off+n, size)
		for _, r := range ranges {
			require.GreaterOrEqual(t, r.Off, next)
			require.Positive(t, r.Len)
			for at := next; at < r.Off; at = (at/unit + 1) * unit {
				require.False(t, hasData[at/unit], "%d is in a hole of %v", at, ranges)
			}
			for at := r.Off; at < r.Off+r.Len; at = (at/unit + 1) * unit {
				require.True(t, hasData[at/unit], "%d is in data of %v", at, ranges)
			}
			next = r.Off + r.Len + 1
			require.LessOrEqual(t, r.Off+r.Len, end)
		}
		for at := next; at < end; at = (at/unit + 1) * unit {
			require.False(t, hasData[at/unit], "%d is in a hole of %v", at, ranges)
		}
	}
	_, err = source.Data(-1, 1)
	require.Error(t, err)
	none, err := source.Data(size, 10)
	require.NoError(t, err)
	require.Empty(t, none)

	require.NoError(t, os.Truncate(path, 0))
	_, err = source.Data(0, size)
	require.NoError(t, err)
	require.ErrorIs(t, source.Unchanged(), ErrChanged)
}

// The blocks of a large file cost no search each.
func TestDataOfLargeFile(t *testing.T) {
	const size, block, from = 100 << 30, 1 << 20, 40 << 30
	tree, dir := openTree(t)
	file, err := os.Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer file.Close()
	_, err = file.WriteAt(make([]byte, 2*block), from)
	require.NoError(t, err)
	if err := file.Truncate(size); err != nil {
		t.Skip(err)
	}
	source, err := tree.OpenFile("file")
	require.NoError(t, err)
	defer source.Close()
	var found []Range
	for off := int64(0); off < size; off += block {
		ranges, err := source.Data(off, block)
		require.NoError(t, err)
		found = append(found, ranges...)
	}
	require.Equal(t, []Range{{from, block}, {from + block, block}}, found)
}

// A symlink's target comes whole, however long it is.
func TestLongLinks(t *testing.T) {
	tree, dir := openTree(t)
	want := map[string]string{}
	for _, n := range []int{1, 255, 256, 257, 1024, 4095} {
		name, to := fmt.Sprint("link", n), strings.Repeat("x", n)
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
		want[name] = to
		m, err := tree.Stat(name)
		require.NoError(t, err)
		require.Equal(t, to, m.Link)
	}
	got := map[string]string{}
	require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{}, func(m Meta) error {
		if m.Kind == Symlink {
			got[m.Path] = m.Link
		}
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	require.Equal(t, want, got)
}

// A walk does not follow a symlink that takes the place of a folder after the folder was visited.
func TestWalkExchangedFolder(t *testing.T) {
	tree, dir := openTree(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	require.NoError(t, tree.Mkdir("folder/below", 0o755))
	var seen []string
	var failure error
	require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{}, func(m Meta) error {
		seen = append(seen, m.Path)
		if m.Path != "folder" {
			return nil
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "folder")))
		return os.Symlink(outside, filepath.Join(dir, "folder"))
	}, func(_ string, err error) { failure = err }))
	require.Equal(t, []string{".", "folder"}, seen)
	require.ErrorIs(t, failure, ErrNotFolder)
}

// A walk of a wide and a deep tree keeps nothing of them.
func TestWalkWideAndDeep(t *testing.T) {
	tree, dir := openTree(t)
	const wide, deep = 3*readerRoom/32 + 7, 250 // a name takes 24 bytes and more
	path := "deep"
	for range deep {
		require.NoError(t, tree.Mkdir(path, 0o755))
		path += "/d"
	}
	require.NoError(t, tree.Mkdir("wide", 0o755))
	for i := range wide {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "wide", fmt.Sprint(i)), nil, 0o600))
	}
	before := openDescriptors(t)
	seen := walked(t, tree, ".", WalkOptions{})
	require.Len(t, seen, 1+1+wide+deep)
	require.Len(t, slices.Compact(seen), 1+1+wide+deep)
	require.LessOrEqual(t, openDescriptors(t), before+2*maxFolders)

	skipped := walked(t, tree, ".", WalkOptions{Skip: func(m Meta) bool {
		return m.Path == "deep/d/d" || strings.HasPrefix(m.Path, "wide/1")
	}})
	require.Contains(t, skipped, "deep/d")
	require.NotContains(t, skipped, "deep/d/d")
	require.NotContains(t, skipped, "deep/d/d/d")
	require.Contains(t, skipped, "wide/2")
	require.NotContains(t, skipped, "wide/100")
	require.Empty(t, walked(t, tree, "wide", WalkOptions{Skip: func(Meta) bool { return true }}))
}

// walked returns what a walk visits, sorted.
func walked(t *testing.T, tree *Tree, path string, opt WalkOptions) []string {
	t.Helper()
	var seen []string
	require.NoError(t, tree.Walk(t.Context(), path, opt, func(m Meta) error {
		seen = append(seen, m.Path)
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	slices.Sort(seen)
	return seen
}

// This is the case before Linux 6.13, and in some sandboxes.
func TestXattrsWithoutListxattrat(t *testing.T) {
	defer noXattrAt.Store(noXattrAt.Swap(true))
	TestXattrs(t)
}

// TestDeepTree: whoever makes a deep tree takes no more descriptors with it than with a flat one,
// and it can be counted, listed, swept, backed up and removed.
func TestDeepTree(t *testing.T) {
	const deep = 700
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = uint64(openDescriptors(t) + 2*maxFolders + 4*openDepth + 16)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	tree, dir := openTree(t)
	grow := func(top string) (last string) {
		path := top
		for len(path) < 2*deep {
			path += "/d"
		}
		require.NoError(t, tree.Mkdir(path, 0o755))
		for _, name := range []string{"e", "f"} { // beside the way down, at its end
			require.NoError(t, tree.Mkdir(path+"/"+name, 0o755))
		}
		return path
	}
	grow("one")
	grow("two")
	walk := func(path string) (entries int) {
		require.NoError(t, tree.Walk(t.Context(), path, WalkOptions{}, func(m Meta) error {
			entries++
			return nil
		}, func(path string, err error) { t.Errorf("%s: %v", path[:min(len(path), 20)], err) }))
		return entries
	}
	all := walk("one")
	require.Greater(t, all, deep-10)
	_, entries, err := tree.Usage(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*all, entries)
	_, err = tree.Sweep(t.Context(), ".", 0)
	require.NoError(t, err)

	require.NoError(t, tree.Mkdir("old", 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir, "two"), filepath.Join(dir, "old/one"))) // it is there already
	require.NoError(t, tree.Remove("one", "old"))
	require.NoDirExists(t, filepath.Join(dir, "one"))
	require.Equal(t, all, walk("old/one"))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "old", reservedPrefix+"0"+removingSuffix, "x"), 0o700)) // an earlier attempt
	require.NoError(t, tree.Remove("old", ""))
	require.Equal(t, []string{"."}, walked(t, tree, ".", WalkOptions{}))
}

// A walk visits each entry of a wide folder once, however deep the folder is.
func TestWalkDeepAndWide(t *testing.T) {
	tree, dir := openTree(t)
	path := strings.Repeat("d/", openDepth+3) + "wide"
	require.NoError(t, tree.Mkdir(path, 0o755))
	for i := range 2*deepBatch + 7 {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, path, fmt.Sprint("folder", i), "below"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path, fmt.Sprint(i)), nil, 0o600))
	}
	seen := walked(t, tree, path, WalkOptions{})
	require.Len(t, seen, 1+3*(2*deepBatch+7), "from there")
	require.Len(t, slices.Compact(seen), 1+3*(2*deepBatch+7))
	require.Len(t, walked(t, tree, ".", WalkOptions{}), openDepth+4+1+3*(2*deepBatch+7))
}

// Sweep removes what a removal that was killed left in a folder.
func TestSweepRemoval(t *testing.T) {
	tree, dir := openTree(t)
	left := filepath.Join(dir, reservedPrefix+"3"+removingSuffix)
	require.NoError(t, os.MkdirAll(filepath.Join(left, "x/y"), 0o700))
	n, err := tree.Sweep(t.Context(), ".", time.Hour)
	require.NoError(t, err)
	require.Zero(t, n, "too young")
	n, err = tree.Sweep(t.Context(), ".", -time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoDirExists(t, left)
}
