package access

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/wire"
)

// maxClockLead is how far a client's clock may be ahead of ours, in the name of a snapshot that it
// appends.
const maxClockLead = time.Hour

// Series is a series of snapshots, as a scope's client may use it. Its methods are not safe for
// concurrent use.
type Series struct {
	scope *Scope
	disk  *disk.Series
	path  string
}

// Series opens the series at p for an effect.
func (s *Scope) Series(e Effect, p string) (*Series, error) {
	if err := s.check(e, p); err != nil {
		return nil, err
	}
	series, err := s.tree.OpenSeries(p)
	if err != nil {
		return nil, err
	}
	return &Series{s, series, p}, nil
}

// Close releases the lock.
func (x *Series) Close() { x.disk.Close() }

// Lock keeps others from changing the series until Close, see disk.Series.Lock.
func (x *Series) Lock() error { return x.disk.Lock() }

// Snapshots lists complete snapshots and those being filled, in the order of their names.
func (x *Series) Snapshots() (complete, filling []string, err error) { return x.disk.Snapshots() }

// State opens the folder of facts about the snapshots. The caller closes it.
func (x *Series) State() (*os.Root, error) { return x.disk.State() }

// Open opens a complete snapshot for reading. The caller closes the scope.
func (x *Series) Open(name string) (*Scope, error) {
	if err := x.scope.check(Read, path.Join(x.path, name)); err != nil {
		return nil, err
	}
	tree, err := x.disk.Open(name)
	if err != nil {
		return nil, err
	}
	return &Scope{tree: tree, effects: Names | Read, whole: true}, nil
}

// Previous opens the complete snapshot with which a new one shares files. Only a client that may read
// it learns what it holds. The caller closes the scope.
func (x *Series) Previous(name string) (*Scope, error) {
	if err := x.scope.check(Add, x.path); err != nil {
		return nil, err
	}
	tree, err := x.disk.Open(name)
	if err != nil {
		return nil, err
	}
	return &Scope{tree: tree, effects: Names | Reuse | x.reading(name), whole: true}, nil
}

// reading returns Read if the client may read a snapshot.
func (x *Series) reading(name string) Effect {
	if x.scope.check(Read, path.Join(x.path, name)) != nil {
		return 0
	}
	return Read
}

// Newest opens what a new snapshot of this name would be compared with: the newest complete snapshot
// of the series at p, or nothing if there is none. The caller closes the scope.
func (s *Scope) Newest(p, name string) (*Scope, error) {
	if err := s.checkName(name, time.Now()); err != nil {
		return nil, err
	}
	if err := s.mayAdd(p); err != nil {
		return nil, err
	}
	series, err := s.tree.OpenSeries(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nothing(), nil
	}
	if err != nil {
		return nil, err
	}
	complete, _, err := series.Snapshots()
	if err != nil {
		return nil, err
	}
	if len(complete) == 0 {
		return nothing(), nil
	}
	return (&Series{s, series, p}).Open(complete[len(complete)-1])
}

// AddTo opens the series at p to add a snapshot of this name, or makes one. room is asked for so many
// entries before any is made; done is called at the end with what room returned.
func (s *Scope) AddTo(p, name string, room func(entries int64) (done func(), err error)) (*Series, error) {
	if err := s.checkName(name, time.Now()); err != nil {
		return nil, err
	}
	if err := s.mayAdd(p); err != nil {
		return nil, err
	}
	if _, err := s.tree.OpenSeries(p); errors.Is(err, fs.ErrNotExist) {
		done, err := room(s.lacking(p) + seriesEntries)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	series, err := s.tree.MakeSeries(p, s.client)
	if err != nil {
		return nil, err
	}
	s.folder.began.Add(1)
	return &Series{s, series, p}, nil
}

// seriesEntries is how many entries a series has beside its snapshots: the folder of facts, the
// owners, the lock.
const seriesEntries = 3

// lacking counts the folders that are missing from a path up.
func (s *Scope) lacking(dir string) (n int64) {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := s.tree.Stat(dir); err == nil {
			break
		}
		n++
	}
	return n
}

// appendsOnly reports whether the client may add snapshots to series of its own only.
func (s *Scope) appendsOnly() bool { return !s.rights.Has(identity.Write) }

// mayAdd refuses a series to which the client may not add: one of another client, or a place that is
// taken, if it may only append.
func (s *Scope) mayAdd(p string) error {
	if err := disk.CheckPath(p); err != nil {
		return err
	}
	w, err := s.placeOf(p)
	if err != nil {
		return err
	}
	if w.series == "" {
		w, err = s.folderPlace(p)
	}
	switch {
	case err != nil:
		return err
	case w.series == "":
		return s.mayBegin(p)
	case !ruleOf(Add).allows(s.rights, w.place, w.own):
		return s.notOwner()
	}
	return nil
}

// mayBegin refuses places at which the client may not begin a series. The share itself is none: a
// series there would leave no room for others. The place must be free for a client that may only
// append, and for all others it must not look as if it had snapshots already.
func (s *Scope) mayBegin(p string) error {
	switch {
	case !ruleOf(Add).allows(s.rights, Outside, true):
		return RefuseRight(s.share, identity.Append)
	case p == ".":
		return wire.Errorf(wire.CodePath,
			"snapshots need a folder of their own below share %q: add its name to the URL", s.share)
	}
	var taken error
	err := s.tree.Names(context.Background(), p, func(names []string, _ []disk.Kind) error {
		if s.appendsOnly() {
			taken = s.notOwner()
		} else if slices.ContainsFunc(names, isSeriesName) {
			taken = wire.Errorf(wire.CodePath,
				"%q has entries with the names of snapshots, but is not a folder of snapshots", p)
		}
		return taken
	})
	if taken == nil && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return taken
}

func (s *Scope) notOwner() error {
	return wire.Errorf(wire.CodeRight,
		"what is at this path of share %q does not belong to this client, which may only append",
		s.share)
}

// checkName refuses what is no name of a snapshot and, from a client that may only append, names in
// the future.
func (s *Scope) checkName(name string, now time.Time) error {
	t, err := snapshot.ParseName(name)
	if err != nil {
		return &wire.Error{Code: wire.CodePath, Text: err.Error()}
	}
	if s.appendsOnly() && t.After(now.Add(maxClockLead)) {
		return wire.Errorf(wire.CodePath,
			"%s is in the future: here it is %s", name, snapshot.Name(now))
	}
	return nil
}

// Fill opens the snapshot that is to be filled, see disk.Series.Fill. The caller holds the lock. A
// client that may only append can't make retention remove older snapshots by its name, or take the
// place of later ones.
func (x *Series) Fill(name string) (filling *Scope, resumed bool, err error) {
	s := x.scope
	if err := s.check(Add, x.path); err != nil {
		return nil, false, err
	}
	if s.appendsOnly() {
		if err := x.checkOrder(name); err != nil {
			return nil, false, err
		}
	}
	tree, resumed, err := x.disk.Fill(name)
	if err == nil && resumed {
		if err = x.mayContinue(name, tree); err != nil {
			_ = tree.Close()
		}
	}
	if err != nil {
		return nil, false, err
	}
	return &Scope{
		tree: tree, effects: Names | Write | Reuse | x.reading(name), whole: true,
		filled: true, privileged: s.privileged,
	}, resumed, nil
}

// mayContinue empties a snapshot that somebody has begun, unless the client owns the series or may
// see what its snapshots hold: whoever continues it learns the names in it.
func (x *Series) mayContinue(name string, tree *disk.Tree) error {
	p := path.Join(x.path, name)
	if w, err := x.scope.placeOf(p); err != nil || w.own || x.scope.check(Names, p) == nil {
		return err
	}
	var begun []string
	err := tree.Names(context.Background(), ".", func(names []string, _ []disk.Kind) error {
		begun = append(begun, names...)
		return nil
	})
	for _, name := range begun {
		if err == nil {
			err = tree.Remove(name, "")
		}
	}
	return err
}

// Note reads a file of a snapshot that is being filled, for the server's notes on it.
func (s *Scope) Note(ctx context.Context, p string) (digest [32]byte, err error) {
	if !s.filled {
		return digest, s.refusal(Read, Outside, p)
	}
	digest, _, err = s.tree.Digest(ctx, p)
	return digest, err
}

func (x *Series) checkOrder(name string) error {
	complete, _, err := x.Snapshots()
	if err != nil {
		return err
	}
	switch n := len(complete); {
	case slices.Contains(complete, name):
		return wire.Errorf(wire.CodeExists, "the snapshot %s is complete", name)
	case n > 0 && name < complete[n-1]:
		return wire.Errorf(wire.CodePath,
			"a snapshot of %s can't be appended: %s is newer", name, complete[n-1])
	}
	return nil
}

// Publish gives a complete snapshot its name, see disk.Series.Publish. It closes filled, the
// snapshot from Fill. It returns how many files are intact again that are known to be damaged in the
// snapshot previous, which may be "", and how many of older snapshots it mended with them.
func (x *Series) Publish(ctx context.Context, name, previous string, filled *Scope, own bool) (h Healed, err error) {
	if err := x.scope.check(Add, x.path); err != nil {
		return h, err
	}
	unlock, err := x.lockNotes(ctx)
	if err != nil {
		return h, err
	}
	defer unlock()
	if h.Files, err = x.settle(name, previous, filled); err != nil {
		return h, err
	}
	_ = filled.Close() // some systems can't rename an open folder
	if err := x.disk.Publish(name, own); err != nil {
		return h, err
	}
	h.Mended, h.Err = x.mend(ctx, name)
	return h, nil
}

// Healed says which damaged files are intact again with a new snapshot.
type Healed struct {
	Files  int64 // of the new snapshot
	Mended int64 // of older ones
	Err    error // why older ones were not mended
}

// Remove removes a complete snapshot. The caller holds the lock.
func (x *Series) Remove(name string) error {
	if err := x.scope.check(Expire, x.path); err != nil {
		return err
	}
	return x.disk.Remove(name)
}

// Retain removes the snapshots that a policy does not keep, until one can't be removed. It reports
// each. Those with the last intact version of a file stay. It is the share's own retention, which
// takes no right. The caller holds the lock.
func (x *Series) Retain(keep snapshot.Keep, at *time.Location, removed func(name string, err error)) error {
	complete, _, err := x.Snapshots()
	if err != nil {
		return err
	}
	_, remove := keep.Decide(complete, at)
	if len(remove) == 0 {
		return nil
	}
	intact, err := x.LastIntact()
	if err != nil {
		return err
	}
	for _, name := range remove {
		if intact[name] {
			continue
		}
		err := x.disk.Remove(name)
		removed(name, err)
		if err != nil {
			return nil
		}
	}
	return nil
}

// Sweep removes what killed transfers left at p and below.
func (s *Scope) Sweep(ctx context.Context, p string, olderThan time.Duration) (int, error) {
	if err := s.check(Write, p); err != nil {
		return 0, err
	}
	return s.tree.Sweep(ctx, p, olderThan)
}
