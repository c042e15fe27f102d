package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOtherKinds(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "z"), nil, 0o600))
	kinds := map[string]Kind{}
	require.NoError(t, tree.Walk(t.Context(), ".", WalkOptions{}, func(m Meta) error {
		kinds[m.Path] = m.Kind
		return nil
	}, func(path string, err error) { t.Errorf("%s: %v", path, err) }))
	require.Equal(t, map[string]Kind{".": Dir, "pipe": Fifo, "z": File}, kinds)
	_, err := tree.OpenFile("pipe")
	require.ErrorIs(t, err, ErrUnsupportedKind)
	m, err := tree.Stat("pipe")
	require.NoError(t, err)
	require.Equal(t, Fifo, m.Kind)

	// A pipe in place of a partial file must neither block nor be written to.
	require.NoError(t, os.Rename(filepath.Join(dir, "pipe"), filepath.Join(dir, reservedName("file")+partialSuffix)))
	p := openPartial(t, tree, testMeta("file", 10), TargetOptions{Sync: SyncNone})
	put(t, p, 0)
	require.NoError(t, p.Commit(testMeta("file", 10)))
}

func TestStrangeNamesAndModes(t *testing.T) {
	tree, dir := openTree(t)
	name := "\xff\xfe\n*:\\?"
	m := testMeta(name, 3)
	m.Mode = os.ModeSetuid | os.ModeSetgid | os.ModeSticky | 0o451
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone, Privileged: true})
	put(t, p, 0)
	require.NoError(t, p.Commit(m))
	got, err := tree.Stat(name)
	require.NoError(t, err)
	require.Equal(t, m.Mode, got.Mode)
	require.FileExists(t, filepath.Join(dir, name))
	require.NoError(t, tree.Symlink(Meta{Path: "l", Link: name}, TargetOptions{}))
	got, err = tree.Stat("l")
	require.NoError(t, err)
	require.Equal(t, name, got.Link)
}

// A kill between setting the mode and the rename leaves this state.
func TestReadOnlyLeftover(t *testing.T) {
	tree, dir := openTree(t)
	m := testMeta("file", 5*testBlock)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	put(t, p, 0)
	require.NoError(t, p.Close())
	require.NoError(t, os.Chmod(filepath.Join(dir, reservedName("file")+partialSuffix), 0))
	asNobody(t, dir, func() {
		p = openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
		require.Equal(t, []Extent{{0, 1}}, p.Have())
		require.NoError(t, p.Close())
	})
}

// asNobody runs f without the rights of root, if the test has them. dir belongs to that user.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	require.NoError(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}))
	runtime.LockOSThread() // the call without its wrapper is about this thread alone
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) {
		const keep = ^uintptr(0)
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep)
		require.Zero(t, errno)
	}
	become(nobody)
	defer become(0)
	f()
}

// tmpfs mounts a file system of this size in bytes, and returns its folder.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a small tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestFullDisk(t *testing.T) {
	const capacity = 16 << 20
	dir := tmpfs(t, "size=16m")
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()

	_, err = tree.Partial(testMeta("large", capacity+testBlock), testBlock, TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, err, ErrNoSpace)
	var space *NoSpaceError
	require.ErrorAs(t, err, &space)
	require.EqualValues(t, capacity+testBlock, space.Need)
	require.LessOrEqual(t, space.Free, int64(capacity))
	require.Empty(t, leftovers(t, dir))

	// There is enough space at the time of opening. Then somebody else takes it.
	m := testMeta("file", capacity/2)
	p := openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, capacity*3/4), 0o600))
	require.ErrorIs(t, writeUntilError(p), ErrNoSpace)
	require.ErrorIs(t, p.Commit(m), ErrIncomplete)
	require.NoFileExists(t, filepath.Join(dir, "file"))
	require.NoError(t, p.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, "other")))
	p = openPartial(t, tree, m, TargetOptions{Sync: SyncNone})
	require.NotEmpty(t, p.Have(), "goes on once there is space")
	require.NoError(t, p.Abort())

	p = openPartial(t, tree, testMeta("stream", -1), TargetOptions{Sync: SyncNone})
	require.ErrorIs(t, writeUntilError(p), ErrNoSpace)
	require.NoError(t, p.Close())
	require.Empty(t, leftovers(t, dir))
	require.NoFileExists(t, filepath.Join(dir, "stream"))
}

func writeUntilError(p *Partial) error {
	for block := int64(0); ; block++ {
		b, cv := blockOf(block, testBlock)
		if _, err := p.WriteAt(b, block*testBlock); err != nil {
			return err
		}
		if err := p.Mark(block, cv); err != nil {
			return err
		}
	}
}

// A tmpfs without limit reports 0 free of 0 blocks.
func TestUnlimitedFileSystem(t *testing.T) {
	dir := tmpfs(t, "size=0")
	tree, err := Open(dir)
	require.NoError(t, err)
	defer tree.Close()
	p := openPartial(t, tree, testMeta("file", 5*testBlock), TargetOptions{Sync: SyncNone})
	require.NoError(t, p.Abort())
}

func TestPreallocation(t *testing.T) {
	tree, _ := openTree(t)
	const size = 5 << 20
	p := openPartial(t, tree, testMeta("file", size), TargetOptions{Sync: SyncNone})
	volume, err := volumeOf(p.file)
	require.NoError(t, err)
	info, err := p.file.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.Zero(t, allocated(info), "an announcement claims nothing")
	_, err = p.WriteAt(make([]byte, 1<<20), 0)
	require.NoError(t, err)
	require.NoError(t, p.file.Sync())
	info, err = p.file.Stat()
	require.NoError(t, err)
	require.LessOrEqual(t, allocated(info), int64(2<<20)+64<<10, "as much again as was written")
	if volume.preallocates {
		require.GreaterOrEqual(t, allocated(info), int64(2<<20))
	}
	_, err = p.WriteAt(make([]byte, 1<<20), 4<<20)
	require.NoError(t, err)
	require.NoError(t, p.Abort())
}

// TestPlantedPartial: in a folder to which others may write, a file that somebody else put under the
// name of a partial file is not written to, whatever proves of it: its maker would read the upload,
// own it, and change it after the check.
func TestPlantedPartial(t *testing.T) {
	const size = 5 << 20
	meta := testMeta("file", size)
	for name, plant := range map[string]func(t *testing.T, dir, partial, checkpoint string){
		"others may write to it": func(t *testing.T, _, partial, _ string) {
			require.NoError(t, os.Chmod(partial, 0o666))
		},
		"a second name": func(t *testing.T, dir, partial, _ string) {
			require.NoError(t, os.Link(partial, filepath.Join(dir, "mine")))
		},
		"another owner": func(t *testing.T, _, partial, _ string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			require.NoError(t, os.Chown(partial, 1, 1))
		},
		"another file under the name": func(t *testing.T, dir, partial, _ string) {
			data, err := os.ReadFile(partial)
			require.NoError(t, err)
			require.NoError(t, os.Rename(partial, filepath.Join(dir, "mine")))
			require.NoError(t, os.WriteFile(partial, data, 0o600))
		},
		"another owner of the checkpoint": func(t *testing.T, _, _, checkpoint string) {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			require.NoError(t, os.Chown(checkpoint, 1, 1))
		},
		"nothing, so it is resumed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			tree, dir := openTree(t)
			p := openPartial(t, tree, meta, TargetOptions{Sync: SyncNone})
			_, err := p.WriteAt(make([]byte, 1<<20), 0)
			require.NoError(t, err)
			require.NoError(t, p.Mark(0, [32]byte{1}))
			partial, checkpoint := filepath.Join(dir, p.partialName()), filepath.Join(dir, p.checkpointName())
			require.NoError(t, p.Close())
			spy, err := os.OpenFile(partial, os.O_RDWR, 0) // its maker keeps it open
			require.NoError(t, err)
			defer spy.Close()
			if plant != nil {
				plant(t, dir, partial, checkpoint)
			}
			p = openPartial(t, tree, meta, TargetOptions{Sync: SyncNone})
			seen, err := spy.Stat()
			require.NoError(t, err)
			mine, err := p.file.Stat()
			require.NoError(t, err)
			require.Equal(t, plant == nil, os.SameFile(seen, mine))
			require.Equal(t, plant == nil, len(p.Have()) > 0)
			require.True(t, isOurs(mine))
			require.NoError(t, p.Abort())

			// A small file has no checkpoint, and is always made anew.
			require.NoError(t, os.WriteFile(partial, []byte("planted"), 0o666))
			require.NoError(t, os.Chmod(partial, 0o666))
			staged, err := tree.Put(testMeta("file", 3), []byte("new"), TargetOptions{Sync: SyncNone})
			require.NoError(t, err)
			planted, err := os.Stat(partial)
			require.NoError(t, err)
			require.Zero(t, planted.Mode().Perm()&0o022)
			require.NoError(t, staged.Discard())
		})
	}
}

// Somebody exchanges a folder for a symlink to the outside, over and over, while every kind of read
// and write goes through that folder.
func TestFolderExchangedForSymlink(t *testing.T) {
	tree, dir := openTree(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o600))
	require.NoError(t, os.Chmod(outside, 0o711))
	require.NoError(t, os.Chtimes(outside, someTime, someTime))
	inside := filepath.Join(dir, "folder")
	require.NoError(t, os.Mkdir(inside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(inside, "file"), []byte("inside!"), 0o600))

	ctx, cancel := context.WithCancel(t.Context())
	exchanged := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = os.Rename(inside, inside+".away")
			_ = os.Symlink(outside, inside)
			_ = os.Remove(inside)
			_ = os.Rename(inside+".away", inside)
		}
		exchanged <- n
	}()
	succeeded := 0
	deadline := time.Now().Add(2 * time.Second)
	for i := 0; i < 2000 && (succeeded == 0 || time.Now().Before(deadline)); i++ {
		if source, err := tree.OpenFile("folder/file"); err == nil {
			b := make([]byte, 7)
			_, _ = source.ReadAt(b, 0)
			require.NotEqual(t, "outside", string(b))
			require.NoError(t, source.Close())
		}
		m := testMeta("folder/new", 2048)
		if p, err := tree.Partial(m, 1024, TargetOptions{Sync: SyncNone}); err == nil {
			put(t, p, 0)
			put(t, p, 1)
			if p.Commit(m) == nil {
				succeeded++
			}
			require.NoError(t, p.Close())
		}
		_ = tree.Mkdir("folder/deep/er", 0o755)
		_ = tree.Symlink(Meta{Path: "folder/link", Link: "x", ModTime: someTime}, TargetOptions{})
		_ = tree.Apply(Meta{Path: "folder", Kind: Dir, Mode: 0o755, ModTime: time.Unix(1, 0)}, TargetOptions{})
		if s, err := tree.Put(testMeta("folder/small", 3), []byte("new"), TargetOptions{}); err == nil {
			batch := NewBatch(tree, TargetOptions{})
			batch.Add(s)
			if batch.Commit()[0] != nil {
				_ = s.Discard()
			}
		}
		_ = tree.Link("folder/small", "folder/other")
		_ = tree.Apply(Meta{Path: "folder/file", Kind: File, Mode: 0o600, ModTime: time.Unix(int64(i), 0)}, TargetOptions{})
		_ = tree.Remove("folder/deep", []string{"", "backup"}[i%2])
		_ = tree.Names(ctx, "folder", func(names []string, _ []Kind) error { return tree.Remove("folder/"+names[0]+"/x", "") })
		_, _ = tree.Sweep(ctx, ".", -time.Hour)
	}
	cancel()
	t.Logf("%d exchanges, %d commits", <-exchanged, succeeded)
	require.Positive(t, succeeded)

	info, err := os.Stat(outside)
	require.NoError(t, err)
	require.True(t, info.ModTime().Equal(someTime), "nothing came or went: %v", info.ModTime())
	require.EqualValues(t, 0o711, info.Mode().Perm())
	got, err := os.ReadFile(filepath.Join(outside, "file"))
	require.NoError(t, err)
	require.Equal(t, "outside", string(got))
}

// TestSessionLetsGo: once a session is over, well or badly, the tree that it shared keeps no file
// system busy, except for the folders that are open for later calls.
func TestSessionLetsGo(t *testing.T) {
	tree, dir := openTree(t)
	open := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, fd := range fds {
			to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
			if to == filepath.Join(dir, "mounted") {
				n++
			}
		}
		return n
	}
	require.NoError(t, tree.Mkdir("mounted", 0o755))
	session := tree.Session()
	p, err := session.Partial(testMeta("mounted/f", 5*testBlock), testBlock, TargetOptions{Sync: SyncFile})
	require.NoError(t, err)
	require.NoError(t, p.Close()) // the session fails
	tree.folders.forgetBelow(".")
	require.Positive(t, open(), "an error in writing back would be seen")
	require.NoError(t, session.Close())
	require.Zero(t, open())
	_, err = tree.Stat("mounted")
	require.NoError(t, err, "the tree is still open")
}

// TestWritable: a folder of another account is not writable, whatever root may do elsewhere.
func TestWritable(t *testing.T) {
	tree, dir := openTree(t)
	require.NoError(t, tree.Writable())
	if os.Geteuid() != 0 {
		require.NoError(t, os.Chmod(dir, 0o500))
		require.Error(t, tree.Writable())
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Setfsuid(65534))
	err := tree.Writable()
	require.NoError(t, unix.Setfsuid(0))
	require.ErrorIs(t, err, os.ErrPermission)
}
