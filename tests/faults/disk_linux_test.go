package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// operation is a kind of operation that a sickDisk can make fail or hang.
type operation string

const (
	reading  operation = "read"
	writing  operation = "write"
	syncing  operation = "sync"
	changing operation = "change" // of names and metadata
)

// sickDisk is a file system that shows a folder, and fails when a test says so.
type sickDisk struct {
	mu   sync.Mutex
	ills map[operation]syscall.Errno
	hang chan struct{} // closed to let reads, writes and syncs continue; nil if they do not hang

	losing  bool             // the next sync of written data fails once and loses the data
	written map[uint64][]gap // ranges that are not synced, by inode
}

// gap is a range of a file.
type gap struct{ off, n int64 }

// fail makes operations fail from now on. The error 0 makes them succeed again.
func (d *sickDisk) fail(errno syscall.Errno, ops ...operation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range ops {
		d.ills[op] = errno
	}
}

// heal makes the disk healthy again.
func (d *sickDisk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ills, d.losing = make(map[operation]syscall.Errno), false
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
}

// stop makes all operations hang until heal.
func (d *sickDisk) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hang = make(chan struct{})
}

// lose makes the next sync of a written file fail, and the data written since its last sync is
// lost. Then the disk is healthy again. Kernels do the same: after a failed write they mark the
// pages clean.
func (d *sickDisk) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.losing = true
}

// sync syncs a file of the folder below.
func (d *sickDisk) sync(backing string, ino uint64) syscall.Errno {
	if errno := d.ask(syncing); errno != 0 {
		return errno
	}
	d.mu.Lock()
	gaps, lost := d.written[ino], d.losing
	delete(d.written, ino)
	lost = lost && len(gaps) > 0
	d.losing = d.losing && !lost
	d.mu.Unlock()
	if !lost {
		return 0
	}
	f, err := os.OpenFile(backing, os.O_WRONLY, 0)
	if err != nil {
		return syscall.EIO
	}
	defer f.Close()
	for _, g := range gaps {
		_, _ = f.WriteAt(make([]byte, g.n), g.off)
	}
	return syscall.EIO
}

func (d *sickDisk) ask(op operation) syscall.Errno {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ills[op]
}

// mount shows the folder backing at point. This process serves the mount and must not use it. The
// caller calls unmount.
func mount(backing, point string) (d *sickDisk, unmount func() error, err error) {
	root, err := fs.NewLoopbackRoot(backing)
	if err != nil {
		return nil, nil, err
	}
	d = &sickDisk{ills: make(map[operation]syscall.Errno), written: make(map[uint64][]gap)}
	timeout := time.Second
	server, err := fs.Mount(point, &sickNode{LoopbackNode: root.(*fs.LoopbackNode), disk: d}, &fs.Options{
		AttrTimeout: &timeout, EntryTimeout: &timeout,
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true, FsName: "fxfer-sick", Name: "fxfer", MaxWrite: 1 << 20},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("mount a disk that fails: %w", err)
	}
	return d, func() error {
		// Labs that begin meanwhile hold copies of all mounts, which keep a plain unmount from it for
		// as long as they run.
		err := unix.Unmount(point, unix.MNT_DETACH)
		server.Wait()
		return err
	}, nil
}

type sickNode struct {
	*fs.LoopbackNode
	disk *sickDisk
}

var (
	_ fs.NodeWrapChilder = (*sickNode)(nil)
	_ fs.NodeOpener      = (*sickNode)(nil)
	_ fs.NodeCreater     = (*sickNode)(nil)
	_ fs.NodeFsyncer     = (*sickNode)(nil)
	_ fs.NodeMkdirer     = (*sickNode)(nil)
	_ fs.NodeRenamer     = (*sickNode)(nil)
	_ fs.NodeUnlinker    = (*sickNode)(nil)
)

func (n *sickNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &sickNode{LoopbackNode: ops.(*fs.LoopbackNode), disk: n.disk}
}

func (n *sickNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, _, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &sickFile{content: f.(content), disk: n.disk, ino: n.StableAttr().Ino}, 0, 0
}

func (n *sickNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if errno := n.disk.ask(changing); errno != 0 {
		return nil, nil, 0, errno
	}
	inode, f, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, &sickFile{content: f.(content), disk: n.disk, ino: inode.StableAttr().Ino}, 0, 0
}

func (n *sickNode) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.ENOSYS
}

// Fsync syncs files and folders.
func (n *sickNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.disk.sync(filepath.Join(n.RootData.Path, n.Path(n.Root())), n.StableAttr().Ino)
}

func (n *sickNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.ask(changing); errno != 0 {
		return nil, errno
	}
	return n.LoopbackNode.Mkdir(ctx, name, mode, out)
}

func (n *sickNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.disk.ask(changing); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

func (n *sickNode) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.disk.ask(changing); errno != 0 {
		return errno
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// content has the methods that are needed of a file in the file system below.
type content interface {
	fs.FileReader
	fs.FileWriter
	fs.FileFlusher
	fs.FileReleaser
	fs.FileGetattrer
	fs.FileSetattrer
	fs.FileAllocater
	fs.FileLseeker
}

type sickFile struct {
	content
	disk *sickDisk
	ino  uint64
}

func (f *sickFile) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := f.disk.ask(reading); errno != 0 {
		return nil, errno
	}
	return f.content.Read(ctx, dest, off)
}

func (f *sickFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := f.disk.ask(writing); errno != 0 {
		return 0, errno
	}
	n, errno := f.content.Write(ctx, data, off)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.written[f.ino] = append(f.disk.written[f.ino], gap{off, int64(n)})
	return n, errno
}

func (f *sickFile) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	if errno := f.disk.ask(writing); errno != 0 {
		return errno
	}
	return f.content.Allocate(ctx, off, size, mode)
}
