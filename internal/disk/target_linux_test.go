package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// collect returns options that gather warnings.
func collect(opt TargetOptions) (TargetOptions, *[]Warning) {
	var warnings []Warning
	opt.Warn = func(w Warning) { warnings = append(warnings, w) }
	return opt, &warnings
}

// acl is the ACL user::rw- user:1234:r-- group::r-- mask::r-- other::---.
var acl = []byte{
	2, 0, 0, 0,
	1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff,
	2, 0, 4, 0, 0xd2, 4, 0, 0,
	4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
	16, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
	32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
}

// same requires that the entry matches m.
func same(t *testing.T, tree *Tree, m Meta, opt TargetOptions) {
	t.Helper()
	got, err := tree.StatXattrs(m.Path)
	require.NoError(t, err)
	require.NoError(t, got.XattrErr)
	require.False(t, Differs(&got, &m, &opt), "%+v\n%+v", got, m)
}

func TestMetadataOfFiles(t *testing.T) {
	asRoot(t)
	tree, dir := openTree(t)
	m := testMeta("file", 10)
	m.Mode = os.ModeSetuid | os.ModeSetgid | 0o640
	m.UID, m.GID = 1234, 4321
	m.Xattrs = []Xattr{
		{"security.capability", []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{aclPrefix + "access", acl}, {"trusted.b", nil}, {"user.a", bytes.Repeat([]byte("x"), 2000)},
	}
	opt, warnings := collect(TargetOptions{Owner: true, Xattrs: true, Privileged: true})
	batch := NewBatch(tree, opt)
	batch.Add(stage2(t, tree, m, opt))
	require.Equal(t, []error{nil}, batch.Commit())
	same(t, tree, m, opt)

	m.Path = "partial"
	p := openPartial(t, tree, m, opt)
	put(t, p, 0)
	require.NoError(t, p.Commit(m))
	same(t, tree, m, opt)
	require.Empty(t, *warnings)

	// New files would inherit a folder's default ACL.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	require.NoError(t, unix.Setxattr(filepath.Join(dir, "d"), aclPrefix+"default", acl, 0))
	plain := testMeta("d/plain", 10)
	batch.Add(stage2(t, tree, plain, opt))
	require.Equal(t, []error{nil}, batch.Commit())
	same(t, tree, plain, opt)
	got, err := tree.StatXattrs("d/plain")
	require.NoError(t, err)
	require.Empty(t, got.Xattrs)
}

func TestStartMode(t *testing.T) {
	like := &newcomer{uid: 1, gid: 2}
	plain := Meta{Mode: 0o754, UID: 1, GID: 2}
	for name, c := range map[string]struct {
		alter func(m *Meta)
		like  *newcomer
		owner bool
		want  uint32
	}{
		"all as it will be":      {nil, like, true, 0o754},
		"unknown":                {nil, nil, true, 0o600},
		"another owner":          {func(m *Meta) { m.UID = 3 }, like, true, 0o600},
		"another group":          {func(m *Meta) { m.GID = 3 }, like, true, 0o600},
		"owner doesn't count":    {func(m *Meta) { m.UID, m.GID = 3, 3 }, like, false, 0o754},
		"setuid":                 {func(m *Meta) { m.Mode |= os.ModeSetuid }, like, true, 0o600},
		"attributes, maybe ACLs": {func(m *Meta) { m.Xattrs = []Xattr{{Name: "user.x"}} }, like, true, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			m := plain
			if c.alter != nil {
				c.alter(&m)
			}
			require.Equal(t, c.want, startMode(m, c.like, c.owner))
		})
	}
}

// Files of one folder are made one after the other. What the first one was like is assumed for the
// others only as long as it is true.
func TestMetadataInFolder(t *testing.T) {
	asRoot(t)
	defer unix.Umask(unix.Umask(0o027))
	tree, dir := openTree(t)
	require.NoError(t, tree.Mkdir("d", 0o755))
	opt, warnings := collect(TargetOptions{Owner: true, Xattrs: true, Privileged: true})
	batch := NewBatch(tree, opt)
	n := 0
	check := func(alter func(m *Meta)) {
		t.Helper()
		for range 3 {
			m := testMeta(fmt.Sprintf("d/%d", n), 10)
			m.Mode = 0o646
			if alter != nil {
				alter(&m)
			}
			n++
			batch.Add(stage2(t, tree, m, opt))
			require.Equal(t, []error{nil}, batch.Commit())
			same(t, tree, m, opt)
			checkContent(t, filepath.Join(dir, m.Path), 10)
		}
	}
	check(nil)
	check(func(m *Meta) { m.Mode = 0o400 })
	check(func(m *Meta) { m.Mode = 0 })
	check(func(m *Meta) { m.UID, m.GID = 7, 8 })
	check(func(m *Meta) { m.Mode |= os.ModeSetgid })
	check(func(m *Meta) { m.Xattrs = []Xattr{{"user.x", []byte("1")}} })

	folder := Meta{Path: "d", Kind: Dir, Mode: os.ModeSetgid | 0o755, GID: 9}
	require.NoError(t, tree.Apply(folder, opt))
	check(nil)
	check(func(m *Meta) { m.GID = 9 })
	folder.Xattrs = []Xattr{{aclPrefix + "default", acl}}
	require.NoError(t, tree.Apply(folder, opt))
	check(nil)
	check(func(m *Meta) { m.Mode, m.Xattrs = 0o640, []Xattr{{aclPrefix + "access", acl}} })
	folder.Xattrs = nil
	require.NoError(t, tree.Apply(folder, opt))
	check(nil)
	require.Empty(t, *warnings)
}

// stage2 puts a file with m's metadata.
func stage2(t *testing.T, tree *Tree, m Meta, opt TargetOptions) *Staged {
	t.Helper()
	content, _ := blockOf(0, int(m.Size))
	s, err := tree.Put(m, content, opt)
	require.NoError(t, err)
	return s
}

func TestApply(t *testing.T) {
	asRoot(t)
	tree, dir := openTree(t)
	opt, warnings := collect(TargetOptions{Owner: true, Xattrs: true, Privileged: true})
	fill(t, dir, "file")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for path, kind := range map[string]Kind{"file": File, "folder": Dir, "link": Symlink, "pipe": Fifo, ".": Dir} {
		m := Meta{Path: path, Kind: kind, Mode: 0o640 | os.ModeSetgid, UID: 1, GID: 2, ModTime: someTime,
			Xattrs: []Xattr{{"trusted.x", []byte("1")}, {"trusted.y", nil}}}
		if kind == Symlink {
			m.Link = "nowhere"
		}
		require.NoError(t, tree.Apply(m, opt), path)
		same(t, tree, m, opt)

		// If nothing differs, nothing is done.
		before, err := os.Lstat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.NoError(t, tree.Apply(m, opt))
		after, err := os.Lstat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, changedAt(before), changedAt(after), path)

		m.UID, m.Xattrs, m.ModTime = 3, []Xattr{{"trusted.x", []byte("2")}}, someTime.Add(time.Hour)
		require.NoError(t, tree.Apply(m, opt), path)
		same(t, tree, m, opt)
		require.NoError(t, tree.Apply(Meta{Path: path, Kind: kind, Mode: m.Mode, Link: m.Link}, TargetOptions{}))
		same(t, tree, m, opt)
	}
	require.Empty(t, *warnings)
	require.ErrorIs(t, tree.Apply(Meta{Path: "file", Kind: Dir}, opt), ErrExists)
	require.ErrorIs(t, tree.Apply(Meta{Path: "none", Kind: File}, opt), os.ErrNotExist)
}

// changedAt returns when anything of the entry was last changed.
func changedAt(info os.FileInfo) syscall.Timespec { return info.Sys().(*syscall.Stat_t).Ctim }

// Anything the target cannot store is a warning, and no program runs as another user.
func TestWarnings(t *testing.T) {
	asRoot(t)
	tree, dir := openTree(t)
	fill(t, dir, "theirs")
	require.NoError(t, tree.Mkdir("folder", 0o755))
	asNobody(t, filepath.Join(dir, "folder"), func() {
		opt, warnings := collect(TargetOptions{Owner: true, Xattrs: true, Privileged: true})
		m := testMeta("folder/file", 10)
		m.Mode, m.UID, m.GID = os.ModeSetuid|os.ModeSetgid|0o755, 0, 5
		m.Xattrs = []Xattr{{"system.other", nil}, {"user.fine", []byte("1")}}
		batch := NewBatch(tree, opt)
		batch.Add(stage2(t, tree, m, opt))
		require.Equal(t, []error{nil}, batch.Commit())
		got, err := tree.StatXattrs(m.Path)
		require.NoError(t, err)
		require.EqualValues(t, 0o755, got.Mode)
		require.Equal(t, []Xattr{{"user.fine", []byte("1")}}, got.Xattrs)
		var what []string
		for _, w := range *warnings {
			require.Equal(t, m.Path, w.Path)
			what = append(what, w.What)
		}
		require.Equal(t, []string{"owner", "xattr"}, what)

		*warnings = nil
		require.NoError(t, tree.Special(Meta{Path: "folder/null", Kind: CharDevice, Rdev: unix.Mkdev(1, 3)}, opt))
		require.Len(t, *warnings, 1)
		require.Equal(t, "device", (*warnings)[0].What)
		require.NoFileExists(t, filepath.Join(dir, "folder/null"))
		require.NoError(t, tree.Special(Meta{Path: "folder/pipe", Kind: Fifo, UID: 65534}, opt))
		require.Len(t, *warnings, 1)
	})
	require.NoError(t, os.Chmod(dir, 0o755))
}

func TestSpecial(t *testing.T) {
	asRoot(t)
	tree, dir := openTree(t)
	opt, warnings := collect(TargetOptions{Owner: true, Xattrs: true, Privileged: true})
	fill(t, dir, "entry")
	for _, m := range []Meta{
		{Kind: Fifo, Mode: 0o620}, {Kind: Socket, Mode: 0o755}, {Kind: CharDevice, Mode: 0o666, Rdev: unix.Mkdev(1, 3)},
		{Kind: BlockDevice, Mode: 0o600, Rdev: unix.Mkdev(7, 300)}, {Kind: BlockDevice, Rdev: unix.Mkdev(7, 1)},
	} {
		m.Path, m.ModTime, m.UID, m.GID = "entry", someTime, 5, 6
		require.NoError(t, tree.Special(m, opt))
		same(t, tree, m, opt)
		first, err := tree.Stat("entry")
		require.NoError(t, err)
		m.Mode |= 0o004
		require.NoError(t, tree.Special(m, opt))
		same(t, tree, m, opt)
		second, err := tree.Stat("entry")
		require.NoError(t, err)
		require.Equal(t, first.ID.Ino, second.ID.Ino, "kept")
	}
	require.Empty(t, *warnings)
	require.Empty(t, leftovers(t, dir))
	require.NoError(t, tree.Mkdir("folder", 0o755))
	require.ErrorIs(t, tree.Special(Meta{Path: "folder", Kind: Fifo}, opt), ErrExists)
	require.ErrorIs(t, tree.Special(Meta{Path: "x", Kind: File}, opt), ErrUnsupportedKind)
	require.Empty(t, leftovers(t, dir))
}

func TestHoles(t *testing.T) {
	tree, dir := openTree(t)
	const size = 64*testBlock + 5
	m := testMeta("file", size)
	m.Holes = true
	p := openPartial(t, tree, m, TargetOptions{})
	put(t, p, 3)
	// The block was written, and is perhaps on the disk, but was never marked.
	_, err := p.WriteAt(bytes.Repeat([]byte{7}, 2*testBlock), 10*testBlock)
	require.NoError(t, err)
	require.NoError(t, p.Mark(60, [32]byte{}), "a hole")
	require.NoError(t, p.Close())

	p = openPartial(t, tree, m, TargetOptions{})
	require.Equal(t, []Extent{{3, 1}, {60, 1}}, p.Have())
	put(t, p, 5)
	require.NoError(t, p.Drop(5), "and sent again as a hole")
	require.ErrorIs(t, p.Commit(m), ErrIncomplete)
	for block := range int64(65) {
		require.NoError(t, p.Mark(block, [32]byte{}))
	}
	require.NoError(t, p.Commit(m))
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	want := make([]byte, size)
	content, _ := blockOf(3, testBlock)
	copy(want[3*testBlock:], content)
	require.True(t, bytes.Equal(want, got))
	info, err := os.Stat(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.LessOrEqual(t, allocated(info), int64(testBlock+64<<10))

	// A small file and a stream end with a hole.
	for _, size := range []int64{100_000, -1} {
		m := testMeta("other", size)
		m.Holes = true
		p := openPartial(t, tree, m, TargetOptions{})
		_, err := p.WriteAt([]byte("x"), 0)
		require.NoError(t, err)
		m.Size = 100_000
		require.ErrorIs(t, p.Commit(m), ErrIncomplete, "not marked")
		require.NoError(t, p.Mark(0, [32]byte{}))
		require.NoError(t, p.Commit(m))
		got, err := os.ReadFile(filepath.Join(dir, "other"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(append([]byte("x"), make([]byte, 99_999)...), got))
	}
}

// The system reports to one sync only that data could not be written back, and that sync may be of
// other files. None of those that were written before gets its name.
func TestFailedSyncOfOthers(t *testing.T) {
	tree, dir := openTree(t)
	opt := TargetOptions{Sync: SyncBatch}
	commit := func(s *Staged) error {
		batch := NewBatch(tree, opt)
		batch.Add(s)
		return batch.Commit()[0]
	}
	part, err := tree.Partial(Meta{Path: "part", Kind: File, Size: 5, Mode: 0o644, ModTime: someTime}, 1<<20, opt)
	require.NoError(t, err)
	first, second := stage(t, tree, "first", 1, opt), stage(t, tree, "second", 1, opt)
	disk := tree.volumes.all()[0]
	works := disk.dir
	disk.dir, err = os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, disk.dir.Close())
	require.Error(t, commit(first))
	disk.dir = works

	require.Error(t, commit(second))
	later := stage(t, tree, "later", 1, opt)
	require.NoError(t, commit(later))
	_, err = part.WriteAt([]byte("hello"), 0)
	require.NoError(t, err)
	opened, err := part.Stage(Meta{Path: "part", Kind: File, Size: 5, Mode: 0o644, ModTime: someTime})
	require.NoError(t, err)
	require.Error(t, commit(opened), "part of it may have been written before")
	for _, s := range []*Staged{first, second, opened} {
		require.NoError(t, s.Discard())
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.Equal(t, "later", names[0].Name())
}
