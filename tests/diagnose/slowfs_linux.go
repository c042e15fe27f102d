package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// mount shows the folder backing at point as if it were on the disk d. This process serves the
// mount. It must not use it, not even as the working directory of a command. The caller calls
// unmount when nobody uses it any more.
func (d disk) mount(backing, point string) (unmount func() error, err error) {
	if err := errors.Join(os.MkdirAll(point, 0o755)); err != nil {
		return nil, err
	}
	root, err := fs.NewLoopbackRoot(backing)
	if err != nil {
		return nil, fmt.Errorf("a slow disk: %w", err)
	}
	timeout := time.Second // the kernel caches entries this long, as for a disk
	server, err := fs.Mount(point, &slowNode{LoopbackNode: root.(*fs.LoopbackNode), device: &device{disk: d}}, &fs.Options{
		AttrTimeout: &timeout, EntryTimeout: &timeout,
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true, FsName: "fxfer-slow", Name: "fxfer", MaxWrite: 1 << 20, EnableLocks: false},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a slow disk: %w", err)
	}
	return server.Unmount, nil
}

// slowNode is a file or folder whose content is in the file system below.
type slowNode struct {
	*fs.LoopbackNode
	device *device
}

var (
	_ fs.NodeWrapChilder = (*slowNode)(nil)
	_ fs.NodeOpener      = (*slowNode)(nil)
	_ fs.NodeCreater     = (*slowNode)(nil)
	_ fs.NodeFsyncer     = (*slowNode)(nil)
)

// WrapChild implements fs.NodeWrapChilder.
func (n *slowNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &slowNode{LoopbackNode: ops.(*fs.LoopbackNode), device: n.device}
}

// Open implements fs.NodeOpener.
func (n *slowNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.device.take(n.device.open)
	f, _, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &slowFile{content: f.(content), device: n.device}, 0, 0
}

// Create implements fs.NodeCreater.
func (n *slowNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, f, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, &slowFile{content: f.(content), device: n.device}, 0, 0
}

// Tmpfile hides the method of the embedded node, whose files would be fast.
func (n *slowNode) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.ENOSYS
}

// Fsync implements fs.NodeFsyncer, also for folders.
func (n *slowNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	n.device.take(n.device.sync)
	return 0
}

// content has the methods that are needed of a file in the file system below. The kernel does
// without the others.
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

type slowFile struct {
	content
	device *device
}

// Read implements fs.FileReader.
func (f *slowFile) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.device.take(spell(len(dest), f.device.read))
	return f.content.Read(ctx, dest, off)
}

// Write implements fs.FileWriter.
func (f *slowFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f.device.take(spell(len(data), f.device.write))
	return f.content.Write(ctx, data, off)
}
