package disk

import (
	"errors"
	"fmt"
	"sync"
)

// maxBatch bounds what Most returns: enough files that a sync of the file system
// costs each of them little, and few enough for the usual limits of open files.
const maxBatch = 4096

// Batch gives many staged targets their names at the price of one sync. Its
// methods are safe for concurrent use; what is added during a Commit is for the
// next.
type Batch struct {
	tree *Tree
	opt  TargetOptions
	most int

	mu     sync.Mutex // guards the following
	staged []*Staged
}

// NewBatch makes an empty batch for targets of t, of which opt.Sync counts.
func NewBatch(t *Tree, opt TargetOptions) *Batch {
	return &Batch{tree: t, opt: opt, most: min(maxBatch, max(openFiles()/4, 1))}
}

// Add adds a target, which now is the batch's.
func (b *Batch) Add(s *Staged) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.staged = append(b.staged, s)
}

// Most is how many targets should be open at a time at most.
func (b *Batch) Most() int { return b.most }

// Commit gives the targets their names, over files and symlinks that are there,
// and returns an error for each in the order in which they were added, nil where
// that worked; ErrExists says that a folder has the name. A target with an error
// is the caller's again, to be added once more or discarded.
//
// With SyncBatch all data is on the medium before the first rename, by one
// syncfs(2) for each file system. The new names get there with the next Commit,
// or SyncAll. So a power cut may undo names that were given last, and leave an
// older file or none there, but never lets a name lead to wrong content. Systems
// without syncfs(2) sync each file, and then each folder.
//
// With SyncFile the files were synced one by one before, and Commit returns when
// their names are on the medium, too. The error of syncing a folder is that of all
// targets in it, which have their names then and need no Discard.
func (b *Batch) Commit() []error {
	b.mu.Lock()
	staged := b.staged
	b.staged = nil
	b.mu.Unlock()
	errs := make([]error, len(staged))
	byFile := false
	if b.opt.Sync != SyncNone {
		_ = b.opt.syncing(func() error { byFile = b.syncData(staged, errs); return nil })
	}
	b.name(staged, errs)
	if byFile {
		_ = b.opt.syncing(func() error { b.syncFolders(staged, errs); return nil })
	}
	return errs
}

// syncData returns when the data of all targets is on the medium, or noted what
// prevents it. It reports whether that was done file by file.
func (b *Batch) syncData(staged []*Staged, errs []error) (byFile bool) {
	byFile = b.opt.Sync == SyncFile
	volumes := map[uint64]error{}
	for i, s := range staged {
		if s.synced {
			continue
		}
		err := errors.ErrUnsupported
		if !byFile {
			var done bool
			if err, done = volumes[s.dev]; !done {
				err = b.tree.volumes.sync(s.dev)
				volumes[s.dev] = err
			}
		}
		if errors.Is(err, errors.ErrUnsupported) {
			byFile = true
			err = s.sync()
		}
		if err != nil {
			errs[i] = at("sync", s.path, err)
			s.fail(errs[i])
		}
	}
	return byFile
}

// name renames all targets that have no error yet. Those that follow each other
// in the same folder share its handle.
func (b *Batch) name(staged []*Staged, errs []error) {
	for from := 0; from < len(staged); {
		above, _ := splitPath(staged[from].path)
		to := from
		for ; to < len(staged); to++ {
			if other, _ := splitPath(staged[to].path); other != above {
				break
			}
		}
		next := from // goes on there when the folder has to be opened once more
		err := b.tree.with(above, func(f *folder) error {
			for ; next < to; next++ {
				if errs[next] != nil {
					continue
				}
				_, base := splitPath(staged[next].path)
				if err := staged[next].name(f, base); err != nil {
					if errors.Is(err, errTakenAway) && !b.tree.leadsTo(above, f) {
						return err
					}
					errs[next] = at("commit", staged[next].path, err)
				}
			}
			return nil
		})
		for ; err != nil && next < to; next++ {
			if errs[next] == nil {
				errs[next] = at("commit", staged[next].path, err)
			}
		}
		from = to
	}
}

// syncFolders returns when the names of all targets are on the medium.
func (b *Batch) syncFolders(staged []*Staged, errs []error) {
	folders := map[string]error{}
	for i, s := range staged {
		if errs[i] != nil {
			continue
		}
		above, _ := splitPath(s.path)
		err, done := folders[above]
		if !done {
			err = b.tree.with(above, func(f *folder) error { return syncFolder(f.root) })
			if err != nil {
				err = at("sync folder", above, fmt.Errorf("names in it: %w", bare(err)))
			}
			folders[above] = err
		}
		errs[i] = err
	}
}
