package webdav

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/webdav"
)

const (
	// maxLock is the longest time that a lock lasts without being renewed.
	maxLock = time.Hour
	// maxLocks bounds the locks of all users, and maxOwnLocks those of one. Each takes up to 8 KiB.
	maxLocks    = 4096
	maxOwnLocks = 256
	// maxOwner bounds what a client says about the owner of a lock. More is left out.
	maxOwner = 1024
	// maxLockPath bounds the path of a lock.
	maxLockPath = 4096
)

// lockTable has the locks of all users. The zero table is ready, and safe for concurrent use.
type lockTable struct {
	mu  sync.Mutex // guards the following
	all map[string]*lock
}

// lock is a write lock on an entry, exclusive.
type lock struct {
	webdav.LockDetails
	user  string
	until time.Time
	empty bool // on a name where nothing was
}

// covers reports whether a lock is about the entry at p.
func (l *lock) covers(p string) bool {
	return l.Root == p || !l.ZeroDepth && isBelow(p, l.Root)
}

// touches reports whether a lock stands against a change of p and, with deep, of all below it.
func (l *lock) touches(p string, deep bool) bool { return l.covers(p) || deep && isBelow(l.Root, p) }

func (t *lockTable) expireLocked(now time.Time) {
	for token, l := range t.all {
		if !l.until.After(now) {
			delete(t.all, token)
		}
	}
}

// add adds the lock of a user.
func (t *lockTable) add(now time.Time, user string, d webdav.LockDetails) (token string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	own := 0
	for _, l := range t.all {
		if l.touches(d.Root, !d.ZeroDepth) {
			return "", webdav.ErrLocked
		}
		if l.user == user {
			own++
		}
	}
	if own >= maxOwnLocks || len(t.all) >= maxLocks || len(d.Root) > maxLockPath {
		return "", errLocks
	}
	if len(d.OwnerXML) > maxOwner {
		d.OwnerXML = ""
	}
	if t.all == nil {
		t.all = make(map[string]*lock)
	}
	d.OwnerXML, d.Root = strings.Clone(d.OwnerXML), strings.Clone(d.Root)
	token = newToken()
	t.all[token] = &lock{LockDetails: d, user: user, until: now.Add(d.Duration)}
	return token, nil
}

var errLocks = fmt.Errorf("a user has no more than %d locks, and all have %d", maxOwnLocks, maxLocks)

func newToken() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// ownLocked returns the lock of a user that has this token, or nil.
func (t *lockTable) ownLocked(user, token string) *lock {
	if l := t.all[token]; l != nil && l.user == user {
		return l
	}
	return nil
}

// isLocked reports whether there is a lock against a change of p whose token was not given.
func (t *lockTable) isLocked(now time.Time, user, p string, deep bool, given func(token string) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	for token, l := range t.all {
		if l.touches(p, deep) && (l.user != user || !given(token)) {
			return true
		}
	}
	return false
}

// reserve notes that there is nothing under the lock of a user on p.
func (t *lockTable) reserve(user, p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.all {
		if l.user == user && l.Root == p {
			l.empty = true
		}
	}
}

// reserved reports whether a user has reserved p.
func (t *lockTable) reserved(user, p string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(time.Now())
	for _, l := range t.all {
		if l.empty && l.user == user && l.Root == p {
			return true
		}
	}
	return false
}

// forget removes the locks on p and below, which is gone.
func (t *lockTable) forget(p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, l := range t.all {
		if isBelow(l.Root, p) {
			delete(t.all, token)
		}
	}
}

// drop removes the locks of a user.
func (t *lockTable) drop(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for token, l := range t.all {
		if l.user == user {
			delete(t.all, token)
		}
	}
}

// capTimeout returns the first timeout of the header of a LOCK that the library would read, or
// maxLock if that is less.
func capTimeout(header string) string {
	first, _, _ := strings.Cut(header, ",")
	first = strings.TrimSpace(first)
	seconds, has := strings.CutPrefix(first, "Second-")
	if n, err := strconv.ParseUint(seconds, 10, 63); has && (err != nil || n < uint64(maxLock/time.Second)) {
		return first // the library says what is wrong
	}
	return "Second-" + strconv.Itoa(int(maxLock/time.Second))
}

// locks is the table as one request sees it. It implements webdav.LockSystem.
type locks struct{ q *request }

func (q *request) locks() locks { return locks{q} }

// given reports whether the client knows a lock. It need not say for which entry it does: RFC 4918,
// 10.4.1.
func (q *request) given(token string) bool {
	return strings.Contains(q.head.Header.Get("If"), "<"+token+">")
}

// isLocked reports whether a lock stands against what the request does to p.
func (q *request) isLocked(p string) bool {
	deep := q.head.Method == http.MethodDelete || q.target != ""
	return q.door.locks.isLocked(time.Now(), q.user, path.Clean(p), deep, q.given)
}

// Create implements webdav.LockSystem. The library also calls it for a change without an If header,
// which would hold a lock for as long: such a change looks again when it is done.
func (l locks) Create(now time.Time, d webdav.LockDetails) (token string, err error) {
	q := l.q
	d.Root = path.Clean(d.Root)
	if q.head.Method != "LOCK" {
		if q.isLocked(d.Root) {
			err = webdav.ErrLocked
		}
	} else if err = q.tree.MayWrite(d.Root); err == nil {
		token, err = q.door.locks.add(now, q.user, d)
	}
	if err != nil {
		q.fault = err
	}
	return token, err
}

// Confirm implements webdav.LockSystem.
func (l locks) Confirm(now time.Time, p, other string, conditions ...webdav.Condition) (release func(), err error) {
	q := l.q
	base := p
	if base == "" {
		base = other
	}
	for _, c := range conditions {
		if q.holds(path.Clean(base), c) == c.Not {
			return nil, webdav.ErrConfirmationFailed
		}
	}
	changed := []string{q.head.URL.Path, q.target}
	if q.head.Method == "COPY" {
		changed = changed[1:]
	}
	for _, p := range changed {
		if p != "" && q.isLocked(p) {
			q.fault = webdav.ErrLocked
			return nil, webdav.ErrConfirmationFailed
		}
	}
	return func() {}, nil
}

// holds evaluates a condition on the entry at p.
func (q *request) holds(p string, c webdav.Condition) bool {
	if c.Token == "" {
		info, err := q.tree.Stat(p, true)
		return err == nil && c.ETag == tagOf(info)
	}
	t := &q.door.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(time.Now())
	l := t.ownLocked(q.user, c.Token)
	return l != nil && l.covers(p)
}

// Refresh implements webdav.LockSystem.
func (l locks) Refresh(now time.Time, token string, d time.Duration) (webdav.LockDetails, error) {
	t := &l.q.door.locks
	t.mu.Lock()
	own := t.ownLocked(l.q.user, token)
	t.mu.Unlock()
	if own == nil {
		return webdav.LockDetails{}, webdav.ErrNoSuchLock
	}
	if err := l.q.tree.MayWrite(own.Root); err != nil { // any more
		l.q.fault = err
		return webdav.LockDetails{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	if own = t.ownLocked(l.q.user, token); own == nil {
		return webdav.LockDetails{}, webdav.ErrNoSuchLock
	}
	own.Duration, own.until = d, now.Add(d)
	return own.LockDetails, nil
}

// Unlock implements webdav.LockSystem.
func (l locks) Unlock(now time.Time, token string) error {
	if token == "" { // of a change
		return nil
	}
	t := &l.q.door.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	own := t.ownLocked(l.q.user, token)
	if own == nil || !own.covers(path.Clean(l.q.head.URL.Path)) {
		return webdav.ErrNoSuchLock
	}
	delete(t.all, token)
	return nil
}
