package access

import (
	"context"
	"errors"
	"os"
	"path"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// mending gives older snapshots the intact files of a new one in the place of damaged ones that
// had the same content and metadata. A snapshot gets back what it held; nothing else changes it.
type mending struct {
	series *Series
	state  *os.Root
	name   string // of the new snapshot
	tree   *disk.Tree
	damage snapshot.Damage // of the new snapshot
	opt    disk.TargetOptions
}

// mend mends all older snapshots from the one of this name, and returns how many files it mended.
// It needs no right: the server knows by the digests what was there. The caller holds the lock for
// notes, and that of the series.
func (x *Series) mend(ctx context.Context, name string) (mended int64, err error) {
	complete, _, err := x.Snapshots()
	if err != nil {
		return 0, err
	}
	return mended, x.inState(func(state *os.Root) error {
		m := mending{series: x, state: state, name: name, opt: disk.TargetOptions{Owner: true, Xattrs: true, Privileged: true}}
		if m.damage, err = snapshot.ReadDamage(state, name); err != nil {
			return err
		}
		if m.tree, err = x.disk.Open(name); err != nil {
			return err
		}
		defer m.tree.Close()
		for _, older := range complete {
			damage, err := snapshot.ReadDamage(state, older)
			if err == nil && older < name && len(damage) > 0 {
				before := len(damage)
				err = m.mend(ctx, older, damage)
				mended += int64(before - len(damage))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// mend mends one snapshot, and removes from damage what it mended.
func (m *mending) mend(ctx context.Context, older string, damage snapshot.Damage) error {
	was, err := snapshot.DigestsOf(m.state, older, damage)
	if err != nil {
		return err
	}
	tree, err := m.series.disk.Open(older)
	if err != nil {
		return err
	}
	defer tree.Close()
	for p, digest := range was {
		if m.isAsBefore(ctx, tree, p, digest) && replace(tree, p, m.tree, p) == nil {
			delete(damage, p)
		}
	}
	err = snapshot.Links(m.state, older, func(first, p string) error {
		_, noted := was[first]
		if damage[first] == "" && damage[p] != "" && noted && replace(tree, p, tree, first) == nil {
			delete(damage, p)
		}
		return nil
	})
	return errors.Join(err, tree.SyncAll(), snapshot.WriteDamage(m.state, older, damage))
}

// isAsBefore reports whether the new snapshot has the file that an older one had at p. It reads the
// new one's.
func (m *mending) isAsBefore(ctx context.Context, older *disk.Tree, p string, digest [32]byte) bool {
	have, err := older.StatXattrs(p)
	if err != nil || have.Kind != disk.File || m.damage[p] != "" {
		return false
	}
	now, err := m.tree.StatXattrs(p)
	if err != nil || disk.Differs(&have, &now, &m.opt) {
		return false
	}
	got, _, err := m.tree.Digest(ctx, p)
	return err == nil && got == digest
}

// replace makes p in a snapshot another name of a file. The folder keeps its metadata.
func replace(tree *disk.Tree, p string, from *disk.Tree, file string) error {
	folder, err := tree.Stat(path.Dir(p))
	if err != nil {
		return err
	}
	err = tree.LinkFrom(from, file, p)
	return errors.Join(err, tree.Apply(folder, disk.TargetOptions{}))
}
