package access

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/snapshot"
)

const (
	// placeFresh is how long a folder's place is believed: other processes may begin a series, too.
	// What this process does counts at once.
	placeFresh = time.Second
	// maxPlaces bounds the folders that a scope remembers.
	maxPlaces = 4096
)

// where is the place of a path, and what is known of the series there.
type where struct {
	place  Place
	series string // its path; "" for none
	own    bool   // the client owns the series
}

// owns reports whether the entry at p, which lies there, is the client's: its series, or in one of
// its snapshots. What somebody puts beside the snapshots is not the owner's.
func (w where) owns(p string) bool { return w.own && (w.place == Snapshot || w.series == p) }

// placed is what a scope remembers of a folder. It does not change.
type placed struct {
	where
	folder string
	at     time.Time
	began  int64 // Folder.began at that time
}

// placeCache remembers the places of folders.
type placeCache struct {
	last  atomic.Pointer[placed] // that was used last: most paths follow others in the same folder
	mu    sync.Mutex             // guards known; not held during system calls
	known map[string]*placed
}

func (c *placeCache) get(folder string, began int64) (where, bool) {
	x := c.last.Load()
	if x == nil || x.folder != folder {
		c.mu.Lock()
		x = c.known[folder]
		c.mu.Unlock()
		if x == nil {
			return where{}, false
		}
		c.last.Store(x)
	}
	return x.where, x.began == began && time.Since(x.at) < placeFresh
}

func (c *placeCache) put(x *placed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxPlaces {
		c.known = make(map[string]*placed)
	}
	c.known[x.folder] = x
	c.last.Store(x)
}

// placeOf returns where an entry lies, by the folders above it. Whether the entry itself is a
// series does not count.
func (s *Scope) placeOf(p string) (where, error) {
	if p == "." {
		return where{}, nil
	}
	dir := path.Dir(p)
	above, err := s.folderPlace(dir)
	if err == nil && above.series == dir && isSeriesName(path.Base(p)) {
		above.place = Snapshot
	}
	return above, err
}

// folderPlace returns where the content of a folder lies. There may be no such folder.
func (s *Scope) folderPlace(dir string) (where, error) {
	began := s.folder.began.Load()
	if w, ok := s.places.get(dir, began); ok {
		return w, nil
	}
	now := time.Now()
	w, err := s.placeOf(dir)
	if err == nil && w.series == "" {
		w, err = s.seriesAt(dir)
	}
	if err == nil {
		s.places.put(&placed{w, dir, now, began})
	}
	return w, err
}

// seriesAt returns the place in a folder that is a series, or Outside.
func (s *Scope) seriesAt(dir string) (w where, err error) {
	series, err := s.tree.OpenSeries(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder):
		return w, nil
	case err != nil:
		return w, err
	}
	own, err := series.Owned(s.client)
	return where{Beside, dir, own && err == nil}, nil
}

// isSeriesName reports whether a name in a series belongs to it: those of snapshots, and that of
// the link to the newest. Some file systems ignore the case of letters.
func isSeriesName(name string) bool {
	_, err := snapshot.ParseName(strings.ToUpper(name))
	return err == nil || strings.EqualFold(name, disk.LatestName)
}
