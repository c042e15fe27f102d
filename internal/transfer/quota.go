package transfer

import (
	"context"
	"path"
)

// Quota bounds what a target may hold. Its methods may be called concurrently.
type Quota interface {
	// Take claims room for so many more bytes and entries before anything is written. It may read the whole target to find out what is
	// there. The error says why there is none.
	Take(ctx context.Context, bytes, entries int64) error
	// Settle ends a claim: what it was for is there, or is not to be.
	Settle(bytes, entries int64, there bool)
	// Freed tells that something may have gone that was there.
	Freed()
	// Moving tells that something is about to be in another place, until what it returns is called.
	Moving() (moved func())
}

// claimed is what a Quota was asked for.
type claimed struct{ bytes, entries int64 }

// take claims room for an entry.
func (v *Receiver) take(e *receiving, bytes, entries int64) error {
	if v.opt.Quota == nil || bytes <= 0 && entries <= 0 {
		return nil
	}
	if err := v.opt.Quota.Take(v.ctx, bytes, entries); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	e.claimed.bytes += bytes
	e.claimed.entries += entries
	return nil
}

// settleEntry ends the claims of an entry. One that took the place of another was one more only for a while.
func (v *Receiver) settleEntry(e *receiving, there bool) {
	c := e.claimed
	e.claimed = claimed{}
	if there && !e.lacks && c.entries > 0 {
		v.settle(claimed{entries: 1}, false)
		c.entries--
	}
	v.settle(c, there)
}

func (v *Receiver) settle(c claimed, there bool) {
	if v.opt.Quota != nil && c != (claimed{}) {
		v.opt.Quota.Settle(c.bytes, c.entries, there)
	}
}

func (v *Receiver) freed() {
	if v.opt.Quota != nil {
		v.opt.Quota.Freed()
	}
}

func (v *Receiver) moving() (moved func()) {
	if v.opt.Quota == nil || v.opt.Target.BackupDir == "" {
		return func() {}
	}
	return v.opt.Quota.Moving()
}

// lacking counts the folders that are missing from a path up.
func (v *Receiver) lacking(dir string) (n int64) {
	if v.opt.Quota == nil {
		return 0
	}
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := v.tree.Stat(dir); err == nil {
			break
		}
		n++
	}
	return n
}

// mkdir makes a folder that no entry is for, and those above it.
func (v *Receiver) mkdir(dir string) error {
	lacking := v.lacking(dir)
	if lacking > 0 {
		if err := v.opt.Quota.Take(v.ctx, 0, lacking); err != nil {
			return err
		}
		defer v.opt.Quota.Settle(0, lacking, true)
	}
	return v.tree.Mkdir(dir, 0o755)
}
