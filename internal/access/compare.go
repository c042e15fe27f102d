package access

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/snapshot"
)

const (
	// comparedAtOnce is how many snapshots a scope keeps open to compare files with their digests.
	comparedAtOnce = 4
	// recordAtOnce is how many damaged files a scope records as it finds them. It records further
	// ones when it is closed: a broken disk has many, and each time costs the work for all.
	recordAtOnce = 100
)

// compared are the snapshots whose files a scope compares with their digests. The zero value is
// empty.
type compared struct {
	mu     sync.Mutex // guards the following; held while lists are read and damage is recorded
	open   map[string]*comparedSnapshot
	found  int
	unread error // the first error of reading digests
}

// comparedSnapshot is one of them.
type comparedSnapshot struct {
	series  *Series
	name    string
	finder  *snapshot.Finder         // nil if there are no digests
	pending map[string]disk.Identity // damaged files that are not recorded yet
}

// InSnapshot reports whether the file at p has a digest with which Compare compares it: it is in a
// snapshot of a share.
func (s *Scope) InSnapshot(p string) bool {
	if s.folder == nil || s.whole {
		return false
	}
	_, _, ok, err := s.snapshotAt(p)
	return ok || err != nil
}

// Compare compares the digest of a file that was read with the one that was noted when the file was
// sent. The disk has damaged a file that differs: Compare records that, and returns the error with
// which such files are refused. A file whose digest is not noted, or cannot be read, is taken as it
// is: broken notes must not keep anybody from a restore. Close returns why.
func (s *Scope) Compare(p string, id disk.Identity, digest [32]byte) error {
	series, name, ok, err := s.snapshotAt(p)
	if err != nil || !ok {
		return err
	}
	s.compared.mu.Lock()
	defer s.compared.mu.Unlock()
	x, err := s.compared.snapshot(s, series, name)
	if err != nil || x.finder == nil {
		return err
	}
	in := strings.TrimPrefix(p, path.Join(series, name)+"/")
	want, ok, err := x.finder.Digest(in)
	if err != nil && s.compared.unread == nil {
		s.compared.unread = fmt.Errorf("digests of %s: %w", path.Join(series, name), err)
	}
	if !ok || want == digest {
		return nil
	}
	return s.compared.damaged(x, p, in, id)
}

// snapshot opens the digests of a snapshot.
func (c *compared) snapshot(s *Scope, in, name string) (*comparedSnapshot, error) {
	at := path.Join(in, name)
	if x, ok := c.open[at]; ok {
		return x, nil
	}
	if len(c.open) == comparedAtOnce {
		c.unread = cmp.Or(c.unread, c.closeAll())
	}
	series, err := s.tree.OpenSeries(in)
	if err != nil {
		return nil, err
	}
	x := &comparedSnapshot{series: &Series{s, series, in}, name: name, pending: make(map[string]disk.Identity)}
	err = x.series.inState(func(state *os.Root) (err error) {
		x.finder, err = snapshot.NewFinder(state, name)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unread = cmp.Or(c.unread, err)
	}
	if c.open == nil {
		c.open = make(map[string]*comparedSnapshot)
	}
	c.open[at] = x
	return x, nil
}

// damaged records that the file at p, which is in in the snapshot, is damaged.
func (c *compared) damaged(x *comparedSnapshot, p, in string, id disk.Identity) error {
	x.pending[in] = id
	if c.found++; c.found <= recordAtOnce {
		_ = x.record() // whoever reads it meets it again
	}
	intact := ""
	_ = x.series.eachVersion(snapshot.Damage{in: ""}, func(name, _ string, _ bool) {
		if name != x.name {
			intact = name
		}
	})
	return refuseDamaged(p, differs(), intact)
}

// record records the damaged files.
func (x *comparedSnapshot) record() error {
	if len(x.pending) == 0 {
		return nil
	}
	err := x.series.addDamage(x.name, x.pending)
	clear(x.pending)
	return err
}

// close ends the comparing. It records what is not recorded yet.
func (c *compared) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.unread, c.closeAll())
}

func (c *compared) closeAll() (err error) {
	for _, x := range c.open {
		err = errors.Join(err, x.record())
		if x.finder != nil {
			x.finder.Close()
		}
	}
	clear(c.open)
	return err
}
