package disk

import (
	"errors"
	"os"
	"sync"
)

// volumes are the file systems that a tree wrote to, each with an open folder on it: only somebody
// who had something open before learns of an error in writing back.
type volumes struct {
	mu    sync.Mutex // guards the following; not held while syncing
	byDev map[uint64]*os.File
}

// note remembers the file system dev. f is a folder on it.
func (v *volumes) note(dev uint64, f *folder) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byDev[dev] != nil {
		return nil
	}
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	if v.byDev == nil {
		v.byDev = make(map[uint64]*os.File)
	}
	v.byDev[dev] = dir
	return nil
}

// sync returns when everything written to dev is on the medium.
func (v *volumes) sync(dev uint64) error {
	v.mu.Lock()
	dir := v.byDev[dev]
	v.mu.Unlock()
	if dir == nil {
		return os.ErrClosed
	}
	return syncVolume(dir)
}

// all returns the file systems.
func (v *volumes) all() []uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	devs := make([]uint64, 0, len(v.byDev))
	for dev := range v.byDev {
		devs = append(devs, dev)
	}
	return devs
}

func (v *volumes) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, dir := range v.byDev {
		dir.Close()
	}
	v.byDev = nil
}

// SyncAll returns when everything made in the tree, including names and metadata, is on the medium.
// Call it at the end of a transfer: with SyncBatch, the names of the last Batch become durable only
// then, and so do folders, symlinks, links and metadata with any Sync. Only Linux has syncfs(2).
// Elsewhere SyncAll does nothing: Batch.Commit has synced files and their names, and the rest is
// left to the system.
func (t *Tree) SyncAll() error {
	top, err := t.folders.top()
	if err != nil {
		return at("sync", ".", err)
	}
	defer top.release()
	_, dev := fileID(top.info)
	if err := t.volumes.note(dev, top); err != nil {
		return at("sync", ".", err)
	}
	var failed []error
	for _, dev := range t.volumes.all() {
		if err := t.volumes.sync(dev); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			failed = append(failed, at("sync", ".", err))
		}
	}
	return errors.Join(failed...)
}
