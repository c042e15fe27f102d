package disk

import (
	"errors"
	"io/fs"
	"syscall"
)

// Sync is when a target's data must be on the medium.
type Sync uint8

const (
	// SyncBatch has one sync of the file system for each Batch, before any of its
	// files gets its name. The names follow with the next Batch, or Tree.SyncAll.
	SyncBatch Sync = iota
	// SyncFile has each file, and its name, on the medium when it is committed.
	SyncFile
	// SyncNone leaves that to the system: after a power cut a file may have its
	// name and not its content.
	SyncNone
)

// TargetOptions choose how targets are written. The zero value is usable.
type TargetOptions struct {
	Sync   Sync
	Owner  bool // set owner and group
	Xattrs bool // set extended attributes and ACLs, and remove those that the source has not
	// Replace lets a Partial be opened where a folder has its name; Commit and Batch
	// still refuse.
	Replace bool
	// Warn, unless nil, is told what the target cannot hold, which is no failure. It
	// is called by the goroutine of the call that it belongs to.
	Warn func(Warning)
	// Syncing, unless nil, is called before each sync that a call waits for, and what it returns after.
	Syncing func() (done func())
}

// syncing tells of a sync.
func (o *TargetOptions) syncing(sync func() error) error {
	if o.Syncing != nil {
		defer o.Syncing()()
	}
	return sync()
}

// Warning says what of an entry the target does not hold.
type Warning struct {
	Path string
	What string // "owner", "mode", "xattr", "acl", "device", "time", or "holes"
	Err  error
}

func (o *TargetOptions) warn(path, what string, err error) {
	if o.Warn != nil {
		o.Warn(Warning{Path: path, What: what, Err: bare(err)})
	}
}

// cannotHold tells the errors by which a system says that it has no such thing,
// or not for this user, from those of a medium that fails.
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

// hold turns an error that only says that the target can't hold what of path into
// a warning.
func (o *TargetOptions) hold(path, what string, err error) error {
	if err != nil && cannotHold(err) {
		o.warn(path, what, err)
		return nil
	}
	return err
}
