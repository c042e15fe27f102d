package disk

import (
	"errors"
	"fmt"
	"sync"
)

// maxBatch bounds the result of Most. So many files share the cost of a file-system sync well, and
// stay below the usual limits of open files.
const maxBatch = 4096

// Batch gives many staged targets their names at the price of one sync. Its methods are safe for
// concurrent use. A target that is added during a Commit belongs to the next one.
type Batch struct {
	tree *Tree
	opt  TargetOptions
	most int

	mu     sync.Mutex // guards the following
	staged []*Staged
}

// NewBatch makes an empty batch for targets of t. It uses only Sync of opt.
func NewBatch(t *Tree, opt TargetOptions) *Batch {
	return &Batch{tree: t, opt: opt, most: batchOf(OpenFiles())}
}

// batchOf returns how many targets may be open at a time if this process may have so many files open,
// 0 for an unknown number.
func batchOf(openFiles uint64) int {
	if openFiles == 0 {
		return maxBatch
	}
	return int(min(maxBatch, max(openFiles/4, 1)))
}

// Add adds a target, and takes it over from the caller.
func (b *Batch) Add(s *Staged) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.staged = append(b.staged, s)
}

// Most returns how many targets may be open at a time.
func (b *Batch) Most() int { return b.most }

// Commit gives the targets their names, and replaces files and symlinks of these names. It returns
// an error for each target in the order of Add, nil for success, and ErrExists if a folder has the
// name. The caller gets a target with an error back, to add it again or to discard it.
//
// With SyncBatch, one syncfs(2) for each file system puts all data on the medium before the first
// rename. The new names get there with the next Commit or SyncAll. So a power cut may undo the
// latest names, which then lead to an older file or to none. It never lets a name lead to wrong
// content. Systems without syncfs(2) sync each file, and then each folder.
//
// With SyncFile, the files were synced before, one by one, and Commit returns when their names are
// on the medium, too. If syncing a folder fails, all targets in it get that error. They have their
// names then and need no Discard.
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

// syncData returns when the data of all targets is on the medium, or when it has noted what
// prevents that. It reports whether it synced file by file.
func (b *Batch) syncData(staged []*Staged, errs []error) (byFile bool) {
	byFile = b.opt.Sync == SyncFile
	volumes := map[*syncer]error{}
	for i, s := range staged {
		if s.synced {
			continue
		}
		err := errors.ErrUnsupported
		if !byFile {
			var done bool
			v := s.before.syncer
			if err, done = volumes[v]; !done {
				err = v.sync()
				volumes[v] = err
			}
			if err == nil {
				err = s.before.err()
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

// name renames all targets that have no error yet. Consecutive targets in one folder share its
// handle.
func (b *Batch) name(staged []*Staged, errs []error) {
	for from := 0; from < len(staged); {
		above, _ := splitPath(staged[from].path)
		to := from
		for ; to < len(staged); to++ {
			if other, _ := splitPath(staged[to].path); other != above {
				break
			}
		}
		next := from // where to continue if the folder has to be opened again
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
