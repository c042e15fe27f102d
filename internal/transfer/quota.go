package transfer

import (
	"context"
	"sync"
)

// Quota bounds what a target may hold. Its methods may be called concurrently.
type Quota interface {
	// Take claims room for that many more bytes and entries, before anything is written. It may
	// read the whole target to find out what is there. The error says why there is no room.
	Take(ctx context.Context, bytes, entries int64) error
	// Settle ends a claim. there reports whether what it was for is in the target now.
	Settle(bytes, entries int64, there bool)
	// Freed reports that something may have gone that was there.
	Freed()
	// Moving reports that something is about to move within the target, until moved is called.
	Moving() (moved func())
}

// claimed is what was claimed of a Quota.
type claimed struct{ bytes, entries int64 }

// usage keeps what entries have claimed of the target's quota, if it has one.
type usage struct {
	ctx   context.Context
	quota Quota // nil for none

	mu sync.Mutex // guards claimed of all entries; a leaf
}

// take claims room for an entry.
func (u *usage) take(e *receiving, bytes, entries int64) error {
	if u.quota == nil || bytes <= 0 && entries <= 0 {
		return nil
	}
	if err := u.quota.Take(u.ctx, bytes, entries); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e.claimed.bytes += bytes
	e.claimed.entries += entries
	return nil
}

// takeBeside is take for bytes beside which there has to be room for so many more.
func (u *usage) takeBeside(e *receiving, bytes, entries, more int64) error {
	if u.quota == nil {
		return nil
	}
	if err := u.quota.Take(u.ctx, more, 0); err != nil {
		return err
	}
	defer u.quota.Settle(more, 0, false)
	return u.take(e, bytes, entries)
}

// settle ends the claims of an entry. An entry that replaced another was one more only for a while.
func (u *usage) settle(e *receiving, there bool) {
	if u.quota == nil {
		return
	}
	u.mu.Lock()
	c := e.claimed
	e.claimed = claimed{}
	u.mu.Unlock()
	if there && !e.lacks && c.entries > 0 {
		u.quota.Settle(0, 1, false)
		c.entries--
	}
	if c != (claimed{}) {
		u.quota.Settle(c.bytes, c.entries, there)
	}
}

// freed reports that something may have gone that was there.
func (u *usage) freed() {
	if u.quota != nil {
		u.quota.Freed()
	}
}

// moving reports that something is about to move to the backup folder, until moved is called.
func (u *usage) moving(backup string) (moved func()) {
	if u.quota == nil || backup == "" {
		return func() {}
	}
	return u.quota.Moving()
}
