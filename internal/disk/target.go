package disk

import (
	"errors"
	"io/fs"
	"syscall"
)

// Sync says when a target's data must be on the medium.
type Sync uint8

const (
	// SyncBatch syncs the file system once for each Batch, before any of its files gets its name.
	// The names follow with the next Batch, or Tree.SyncAll.
	SyncBatch Sync = iota
	// SyncFile has each file, and its name, on the medium when it is committed.
	SyncFile
	// SyncNone leaves that to the system: after a power cut, a file may have its name without its
	// content.
	SyncNone
)

// TargetOptions say how to write targets. The zero value is usable.
type TargetOptions struct {
	Sync   Sync
	Owner  bool // set owner and group
	Xattrs bool // set extended attributes and ACLs, and remove those that the source lacks
	// Privileged also sets what gives privilege: see Meta.Plain. Otherwise calls that set metadata
	// leave that out with a warning, and never add it to what an entry has.
	Privileged bool
	// Replace allows opening a Partial where a folder has its name. Commit and Batch still refuse
	// that.
	Replace bool
	// Warn, unless nil, gets what the target cannot store, which is no failure. The goroutine of
	// the call that it concerns calls it.
	Warn func(Warning)
	// Syncing, unless nil, is called before each sync that a call waits for. Its result is called
	// after that sync.
	Syncing func() (done func())
}

// syncing reports a sync to opt.Syncing.
func (o *TargetOptions) syncing(sync func() error) error {
	if o.Syncing != nil {
		defer o.Syncing()()
	}
	return sync()
}

// Warning says which part of an entry the target cannot store.
type Warning struct {
	Path string
	What string // "owner", "mode", "xattr", "acl", "device", "time", "holes", or "privilege"
	Err  error
}

func (o *TargetOptions) warn(path, what string, err error) {
	if o.Warn != nil {
		o.Warn(Warning{Path: path, What: what, Err: bare(err)})
	}
}

// cannotHold reports whether err says that the system lacks something, or lacks it for this user,
// and not that a medium fails.
func cannotHold(err error) bool {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return true
	}
	for _, no := range []syscall.Errno{syscall.EINVAL, syscall.ERANGE, syscall.E2BIG, syscall.EOVERFLOW, syscall.ENAMETOOLONG} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// hold turns an error into a warning if it only says that the target cannot store what of path.
func (o *TargetOptions) hold(path, what string, err error) error {
	if err != nil && cannotHold(err) {
		o.warn(path, what, err)
		return nil
	}
	return err
}
