package disk

import (
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
)

// These functions map users and groups to names and back. They are safe for concurrent use, and may
// block while the system asks a directory service. The process remembers every result, also that
// there is none.
var (
	userNames  = memo[uint32, string]{find: findUserName}
	groupNames = memo[uint32, string]{find: findGroupName}
	userIDs    = memo[string, ownerID]{find: findUser}
	groupIDs   = memo[string, ownerID]{find: findGroup}
)

// UserName returns the name of the user with this number on this system, "" if there is none.
func UserName(uid uint32) string { return userNames.get(uid) }

// GroupName returns the name of the group with this number on this system, "" if there is none.
func GroupName(gid uint32) string { return groupNames.get(gid) }

// LookupUser returns the number of the user with this name on this system.
func LookupUser(name string) (uid uint32, ok bool) {
	id := userIDs.get(name)
	return id.number, id.known
}

// LookupGroup returns the number of the group with this name on this system.
func LookupGroup(name string) (gid uint32, ok bool) {
	id := groupIDs.get(name)
	return id.number, id.known
}

type ownerID struct {
	number uint32
	known  bool
}

func findUserName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

func findGroupName(gid uint32) string {
	g, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10))
	if err != nil {
		return ""
	}
	return g.Name
}

func findUser(name string) ownerID {
	u, err := user.Lookup(name)
	if err != nil {
		return ownerID{}
	}
	return parseID(u.Uid)
}

func findGroup(name string) ownerID {
	g, err := user.LookupGroup(name)
	if err != nil {
		return ownerID{}
	}
	return parseID(g.Gid)
}

// parseID reads a number. On Windows, owners have none.
func parseID(s string) ownerID {
	n, err := strconv.ParseUint(s, 10, 32)
	return ownerID{number: uint32(n), known: err == nil}
}

// maxMemo bounds how many names a peer can make us remember.
const maxMemo = 4096

// memo remembers what find returned.
type memo[K comparable, V any] struct {
	find  func(K) V
	last  atomic.Pointer[found[K, V]] // most files of a tree have the same owner
	mu    sync.Mutex                  // guards known; not held while finding
	known map[K]*found[K, V]
}

// found is what find returned for a key. It does not change.
type found[K comparable, V any] struct {
	key   K
	value V
}

func (m *memo[K, V]) get(key K) V {
	if last := m.last.Load(); last != nil && last.key == key {
		return last.value
	}
	m.mu.Lock()
	x := m.known[key]
	m.mu.Unlock()
	if x == nil {
		x = &found[K, V]{key, m.find(key)}
		m.keep(x)
	}
	m.last.Store(x)
	return x.value
}

func (m *memo[K, V]) keep(x *found[K, V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMemo {
		m.known = make(map[K]*found[K, V])
	}
	m.known[x.key] = x
}
