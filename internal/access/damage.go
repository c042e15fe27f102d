package access

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// NoteDamage records what a verification of a complete snapshot found, in the place of what earlier
// ones found. Snapshots share files, so it records the damage in all that have the same file. That
// is the server's own knowledge, which takes no right. It works beside whoever holds the lock.
func (x *Series) NoteDamage(ctx context.Context, name string, found snapshot.Damage) error {
	return x.noteDamage(ctx, name, found, func(*disk.Tree, snapshot.Damage) {})
}

// addDamage records damaged files of a complete snapshot beside those that are known, unless they
// are other files meanwhile.
func (x *Series) addDamage(name string, files map[string]disk.Identity) error {
	found := snapshot.Damage{}
	return x.noteDamage(context.Background(), name, found, func(tree *disk.Tree, before snapshot.Damage) {
		maps.Copy(found, before)
		for p, id := range files {
			if m, err := tree.Stat(p); err == nil && m.ID == id && found[p] == "" {
				found[p] = differs()
			}
		}
	})
}

// lockNotes waits until nobody else, also in other processes, gives a snapshot of the series its name
// or records damage: so a snapshot is either found by those who record, or reads what they recorded.
func (x *Series) lockNotes(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, notesWithin, disk.ErrBusy)
	defer cancel()
	return x.disk.LockNotes(ctx)
}

// notesWithin is how long others may take: who publishes a snapshot also mends older ones from it.
const notesWithin = 10 * time.Minute

// differs says what is wrong with a file of which somebody reads other content than was noted.
func differs() string { return snapshot.DamagedSince("different", time.Now()) }

// noteDamage records the damage in found. complete completes it from the snapshot and from what was
// known before.
func (x *Series) noteDamage(ctx context.Context, name string, found snapshot.Damage, complete func(*disk.Tree, snapshot.Damage)) error {
	unlock, err := x.lockNotes(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return x.inState(func(state *os.Root) error {
		before, err := snapshot.ReadDamage(state, name)
		if err != nil {
			return err
		}
		all, _, err := x.Snapshots()
		if err != nil || !slices.Contains(all, name) {
			return err
		}
		tree, err := x.disk.Open(name)
		if err != nil {
			return err
		}
		defer tree.Close()
		if complete(tree, before); len(before)+len(found) == 0 {
			return nil
		}
		if err := found.SpreadToLinks(state, name, sameIn(tree)); err != nil {
			return err
		}
		err = snapshot.WriteDamage(state, name, found)
		for _, other := range all {
			if err == nil && other != name && len(found) > 0 {
				err = x.noteShared(state, tree, found, other)
			}
		}
		return err
	})
}

// noteShared records the damage of files that a snapshot shares with tree.
func (x *Series) noteShared(state *os.Root, tree *disk.Tree, found snapshot.Damage, name string) error {
	other, err := x.disk.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	defer other.Close()
	known, err := snapshot.ReadDamage(state, name)
	if err != nil {
		return err
	}
	shared, _ := sharedDamage(tree, found, other)
	if len(shared) == 0 {
		return nil
	}
	for p, what := range known {
		shared[p] = what
	}
	if err := shared.SpreadToLinks(state, name, sameIn(other)); err != nil {
		return err
	}
	return snapshot.WriteDamage(state, name, shared)
}

// sharedDamage returns those of the damaged files that another tree shares, and the paths where it
// has other files.
func sharedDamage(tree *disk.Tree, found snapshot.Damage, other *disk.Tree) (shared, fresh snapshot.Damage) {
	shared, fresh = snapshot.Damage{}, snapshot.Damage{}
	for p, what := range found {
		b, err := other.Stat(p)
		if err != nil || b.Kind != disk.File {
			continue
		}
		if a, err := tree.Stat(p); err == nil && sameFile(a, b) {
			shared[p] = what
		} else {
			fresh[p] = what
		}
	}
	return shared, fresh
}

func sameFile(a, b disk.Meta) bool {
	return a.Kind == disk.File && a.ID.Ino != 0 && a.ID.Ino == b.ID.Ino && a.ID.Dev == b.ID.Dev
}

func sameIn(tree *disk.Tree) func(a, b string) bool {
	return func(a, b string) bool {
		one, err := tree.Stat(a)
		other, otherErr := tree.Stat(b)
		return err == nil && otherErr == nil && sameFile(one, other)
	}
}

func (x *Series) inState(do func(*os.Root) error) error {
	state, err := x.State()
	if err != nil {
		return err
	}
	defer state.Close()
	return do(state)
}

// Damaged returns the files of a complete snapshot that are known to be damaged.
func (x *Series) Damaged(name string) (files []disk.Identity, err error) {
	err = x.inState(func(state *os.Root) error {
		damage, err := snapshot.ReadDamage(state, name)
		if err != nil || len(damage) == 0 {
			return err
		}
		tree, err := x.disk.Open(name)
		if err != nil {
			return err
		}
		defer tree.Close()
		for p := range damage {
			if m, err := tree.Stat(p); err == nil && m.Kind == disk.File {
				files = append(files, disk.Identity{Ino: m.ID.Ino, Dev: m.ID.Dev})
			}
		}
		return nil
	})
	return files, err
}

// settle records which damaged files a snapshot, of which filled is the tree, shares with the one
// before it, and counts those that it has anew. The caller holds the lock for notes.
func (x *Series) settle(name, previous string, filled *Scope) (healed int64, err error) {
	if previous == "" {
		return 0, nil
	}
	err = x.inState(func(state *os.Root) error {
		damage, err := snapshot.ReadDamage(state, previous)
		if err != nil || len(damage) == 0 {
			return errors.Join(err, snapshot.WriteDamage(state, name, nil))
		}
		tree, err := x.disk.Open(previous)
		if err != nil {
			return err
		}
		defer tree.Close()
		shared, fresh := sharedDamage(tree, damage, filled.tree)
		healed = int64(len(fresh))
		if err := shared.SpreadToLinks(state, name, sameIn(filled.tree)); err != nil {
			return err
		}
		return snapshot.WriteDamage(state, name, shared)
	})
	return healed, err
}

// LastIntact returns the snapshots that hold the newest intact version of a file whose newer
// versions are all damaged. They stay until a newer snapshot has the file anew.
func (x *Series) LastIntact() (names map[string]bool, err error) {
	names = make(map[string]bool)
	return names, x.eachVersion(nil, func(name, _ string, older bool) {
		if older {
			names[name] = true
		}
	})
}

// eachVersion visits the newest intact version of each file that is damaged in any snapshot, or of
// those in files if that is not nil. older says that newer versions are damaged.
func (x *Series) eachVersion(files snapshot.Damage, visit func(name, p string, older bool)) error {
	complete, _, err := x.Snapshots()
	if err != nil {
		return err
	}
	return x.inState(func(state *os.Root) error {
		damage := make(map[string]snapshot.Damage)
		left := make(map[string]bool) // files to be found, and whether a damaged one was
		for p := range files {
			left[p] = false
		}
		for _, name := range complete {
			if damage[name], err = snapshot.ReadDamage(state, name); err != nil {
				return err
			}
			for p := range damage[name] {
				if files == nil {
					left[p] = false
				}
			}
		}
		for _, name := range slices.Backward(complete) {
			if len(left) == 0 {
				break
			}
			if err := x.findIntact(name, damage[name], left, visit); err != nil {
				return err
			}
		}
		return nil
	})
}

// findIntact is eachVersion for one snapshot. It removes from left the files that it has.
func (x *Series) findIntact(name string, damage snapshot.Damage, left map[string]bool,
	visit func(name, p string, older bool)) error {
	tree, err := x.disk.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer tree.Close()
	for p, older := range left {
		if _, ok := damage[p]; ok {
			left[p] = true
			continue
		}
		if m, err := tree.Stat(p); err == nil && m.Kind == disk.File {
			visit(name, p, older)
			delete(left, p)
		}
	}
	return nil
}

// damageWalk keeps files that are known to be damaged out of a walk.
type damageWalk struct {
	scope  *Scope
	failed func(path string, err error)
	known  map[string]*damagedSnapshot // by path of the snapshot; nil for one without damage
}

// damagedSnapshot is a snapshot in which a walk comes by.
type damagedSnapshot struct {
	series *Series
	at     string // path of the snapshot
	damage snapshot.Damage
	seen   map[string]bool
	intact map[string]string // snapshots with the newest intact versions, nil before the first refusal
}

// walk is Walk that refuses the files of snapshots that are known to be damaged.
func (w *damageWalk) walk(ctx context.Context, p string, opt disk.WalkOptions, visit func(disk.Meta) error) error {
	err := w.scope.tree.Walk(ctx, p, opt, func(m disk.Meta) error {
		s, err := w.snapshotOf(m.Path)
		if err != nil || s == nil {
			return errors.Join(err, visit(m))
		}
		in := strings.TrimPrefix(m.Path, s.at+"/")
		if _, damaged := s.damage[in]; !damaged {
			return visit(m)
		}
		s.seen[in] = true
		w.failed(m.Path, s.refusal(in))
		return nil
	}, w.failed)
	if err != nil {
		return err
	}
	w.missing(p, opt.Skip)
	return nil
}

// Intact returns why the file at p must not be read: it is in a snapshot and known to be damaged. It
// returns nil for other files.
func (s *Scope) Intact(p string) error {
	if err := s.check(Read, p); err != nil {
		return err
	}
	if err := disk.CheckPath(p); err != nil {
		return err
	}
	w := damageWalk{scope: s, known: make(map[string]*damagedSnapshot)}
	in, err := w.snapshotOf(p)
	if err != nil || in == nil {
		return err
	}
	below := strings.TrimPrefix(p, in.at+"/")
	if _, damaged := in.damage[below]; damaged {
		return in.refusal(below)
	}
	return nil
}

// missing reports the damaged files below p that are not there any more.
func (w *damageWalk) missing(p string, skip func(disk.Meta) bool) {
	for _, s := range w.known {
		if s == nil {
			continue
		}
		for in := range s.damage {
			at := path.Join(s.at, in)
			if s.seen[in] || p != "." && !isBelow(at, p) {
				continue
			}
			if skip == nil || !skip(disk.Meta{Path: at, Kind: disk.File}) {
				w.failed(at, s.refusal(in))
			}
		}
	}
}

// snapshotOf returns the snapshot with known damage that an entry lies in, nil for none.
func (w *damageWalk) snapshotOf(p string) (*damagedSnapshot, error) {
	series, name, ok, err := w.scope.snapshotAt(p)
	if err != nil || !ok {
		return nil, err
	}
	at := path.Join(series, name)
	if s, ok := w.known[at]; ok {
		return s, nil
	}
	s, err := w.open(series, name)
	if err == nil {
		w.known[at] = s
	}
	return s, err
}

// snapshotAt returns the series and the name of the snapshot that an entry lies in.
func (s *Scope) snapshotAt(p string) (series, name string, ok bool, err error) {
	place, err := s.placeOf(p)
	if err != nil || place.place != Snapshot {
		return "", "", false, err
	}
	rest := p
	if place.series != "." {
		rest = p[len(place.series)+1:]
	}
	name, _, _ = strings.Cut(rest, "/")
	return place.series, name, true, nil
}

// open reads the known damage of a snapshot.
func (w *damageWalk) open(in, name string) (*damagedSnapshot, error) {
	series, err := w.scope.tree.OpenSeries(in)
	if err != nil {
		return nil, err
	}
	s := &damagedSnapshot{series: &Series{w.scope, series, in}, at: path.Join(in, name), seen: make(map[string]bool)}
	err = s.series.inState(func(state *os.Root) (err error) {
		s.damage, err = snapshot.ReadDamage(state, name)
		return err
	})
	if err != nil || len(s.damage) == 0 {
		return nil, err
	}
	return s, nil
}

// refusal is the error of a damaged file.
func (s *damagedSnapshot) refusal(in string) error {
	if s.intact == nil {
		s.intact = make(map[string]string)
		_ = s.series.eachVersion(s.damage, func(name, p string, _ bool) { s.intact[p] = name })
	}
	return refuseDamaged(path.Join(s.at, in), s.damage[in], s.intact[in])
}

// refuseDamaged is the error of a damaged file. what says how it is damaged. intact names the
// snapshot with the newest intact version, "" if there is none.
func refuseDamaged(at, what, intact string) error {
	instead := "no snapshot has an intact version"
	if intact != "" {
		instead = intact + " has the newest intact version"
	}
	return wire.Errorf(wire.CodeIntegrity, "%s: it is damaged at the server (%s): %s", at, what, instead)
}
