package disk

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// volumes are the file systems that a tree wrote to, each with an open folder on it: only somebody
// who had something open before learns of an error in writing back.
type volumes struct {
	mu    sync.Mutex // guards the following; not held while syncing
	byDev map[uint64]*syncer
}

// syncer syncs a file system. The system reports an error in writing back to one sync only, and that
// may be of files that this sync was not for. So a failed sync counts for all that was written
// before it.
type syncer struct {
	dir    *os.File
	mu     sync.Mutex            // held while syncing: the one that is told of an error must note it first
	failed atomic.Pointer[error] // of the last sync that failed, nil if none did
}

// moment is a time before a file was written.
type moment struct {
	syncer *syncer
	failed *error // of syncer, then
}

// note remembers the file system dev, and the present moment. f is a folder on it.
func (v *volumes) note(dev uint64, f *folder) (moment, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.byDev[dev]
	if at == nil {
		dir, err := f.root.Open(".")
		if err != nil {
			return moment{}, err
		}
		if v.byDev == nil {
			v.byDev = make(map[uint64]*syncer)
		}
		at = &syncer{dir: dir}
		v.byDev[dev] = at
	}
	return moment{at, at.failed.Load()}, nil
}

// sync returns when everything written to the file system is on the medium.
func (s *syncer) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := syncVolume(s.dir)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		s.failed.Store(&err)
	}
	return err
}

// err returns the error of a sync that failed since, if any did.
func (m moment) err() error {
	if now := m.syncer.failed.Load(); now != m.failed {
		return *now
	}
	return nil
}

// all returns the file systems.
func (v *volumes) all() []*syncer {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.byDev))
}

func (v *volumes) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.byDev {
		x.dir.Close()
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
	if _, err := t.volumes.note(dev, top); err != nil {
		return at("sync", ".", err)
	}
	var failed []error
	for _, v := range t.volumes.all() {
		if err := v.sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			failed = append(failed, at("sync", ".", err))
		}
	}
	return errors.Join(failed...)
}

// volume is what fxfer needs to know about the file system of a target.
type volume struct {
	free         int64 // bytes available to this user
	freeKnown    bool
	inMemory     bool // there is no medium to write back to
	preallocates bool // claims space without writing it
}
