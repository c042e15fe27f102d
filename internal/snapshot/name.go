// Package snapshot knows what a snapshot is apart from its files: its name, which snapshots stay,
// and the list of digests beside it.
//
// Clients decide with it which snapshots of a mirror stay, and servers do so for shares to which
// clients may only append. Servers keep the lists. The folders that hold snapshots are package
// disk's.
package snapshot

import (
	"fmt"
	"time"
)

// nameLayout is in UTC, so that names sort by time and a clock change gives no name twice.
const nameLayout = "2006-01-02T150405Z"

// Name returns the name of the snapshot of a time, to the second.
func Name(t time.Time) string { return t.UTC().Format(nameLayout) }

// ParseName returns the time in a snapshot's name.
func ParseName(name string) (time.Time, error) {
	t, err := time.Parse(nameLayout, name)
	if err != nil || Name(t) != name {
		return time.Time{}, fmt.Errorf("%.128q is not the name of a snapshot, such as %s", name,
			"2026-11-20T020000Z")
	}
	return t, nil
}
