package transfer

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// entryMemory is what an entry under way takes in memory besides names and attributes, bytes.
	entryMemory = 1 << 10
	// ownMemory is what the entries of a session may take without an Account.
	ownMemory = 2 << 20
	// memoryWithin is how long a session waits for other sessions to resolve entries.
	memoryWithin = 10 * time.Second
)

// Account bounds the memory that the entries of several sessions take together. A nil Account
// bounds nothing. Its methods are safe for concurrent use.
type Account struct {
	left  *semaphore.Weighted
	most  int64
	above *Account
}

// NewAccount returns an account of so many bytes, which are also taken from the one above, if that
// is not nil.
func NewAccount(bytes int64, above *Account) *Account {
	return &Account{semaphore.NewWeighted(bytes), bytes, above}
}

var errMemory = errors.New("no memory")

// take waits for n bytes until ctx is done.
func (a *Account) take(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	if n > a.most || a.left.Acquire(ctx, n) != nil {
		return errMemory
	}
	if err := a.above.take(ctx, n); err != nil {
		a.left.Release(n)
		return err
	}
	return nil
}

// TryTake takes n bytes until Give, without waiting. It returns false if there is no memory.
func (a *Account) TryTake(n int64) bool {
	if a == nil {
		return true
	}
	if !a.left.TryAcquire(n) {
		return false
	}
	if !a.above.TryTake(n) {
		a.left.Release(n)
		return false
	}
	return true
}

// Give returns n bytes.
func (a *Account) Give(n int64) {
	if a != nil {
		a.left.Release(n)
		a.above.Give(n)
	}
}

// memoryOf is what an entry takes in memory while it is under way.
func memoryOf(x *wire.Entry) int64 { return entryMemory + int64(heldBy(x)) }

// memory counts what the entries of a session take. What is beyond ownMemory comes from an Account.
// The lock of the table or of the manifest guards it.
type memory struct {
	account  *Account
	used     int64
	borrowed int64
	closed   bool
}

// lacks returns how much to borrow.
func (m *memory) lacks() int64 { return max(0, m.used-ownMemory-m.borrowed) }

// tryTake takes n bytes for as long as the session lasts, without waiting.
func (m *memory) tryTake(n int64) bool {
	m.used += n
	if !m.cover() {
		m.used -= n
		return false
	}
	return true
}

// cover borrows for what is used, without waiting. It returns false if that can't be had now.
func (m *memory) cover() bool {
	lacks := m.lacks()
	if m.closed || lacks > 0 && !m.account.TryTake(lacks) {
		return false
	}
	m.borrowed += lacks
	return true
}

// free notes that something is gone, and gives back what is not needed any more.
func (m *memory) free(n int64) {
	m.used -= n
	m.giveBack(max(0, m.used-ownMemory))
}

// giveBack gives back all but keep.
func (m *memory) giveBack(keep int64) {
	if more := m.borrowed - keep; more > 0 {
		m.borrowed -= more
		m.account.Give(more)
	}
}

// close gives back everything. Nothing is borrowed any more.
func (m *memory) close() {
	m.closed = true
	m.giveBack(0)
}

// reserve waits until the memory for a message of entries is there. Only the reader of the control
// stream calls it.
func (t *table) reserve(ctx context.Context, entries []wire.Entry) error {
	var need int64
	for i := range entries {
		need += memoryOf(&entries[i])
	}
	t.mu.Lock()
	t.memory.used += need
	lacks := t.memory.lacks()
	t.mu.Unlock()
	if lacks == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, memoryWithin)
	defer cancel()
	err := t.memory.account.take(waiting, lacks)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.memory.borrowed += lacks
		if t.memory.closed {
			t.memory.giveBack(0)
		} else {
			t.memory.giveBack(max(0, t.memory.used-ownMemory)) // entries were resolved meanwhile
		}
		return nil
	case ctx.Err() != nil:
		return errClosed
	case t.memory.lacks() == 0:
		return nil
	}
	return wire.Errorf(wire.CodeBusy, "the entries under way take all memory that there is for them")
}
