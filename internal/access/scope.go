package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// Scope is what a session may do with a tree. Its methods are safe for concurrent use. Unless they
// say otherwise, they do what those of disk.Tree do, or refuse it: with a wire.Error of CodeRight if
// a right is missing, of CodePath in a snapshot, and with disk.ErrPath outside of what was asked
// for.
type Scope struct {
	folder  *Folder    // the share; nil for a tree of its own
	tree    *disk.Tree // nil if nothing is there, see nothing
	effects Effect     // that the session may have anywhere

	share  string
	client string
	rights identity.Rights // on the share
	below  string          // what is elsewhere is out of reach; "" for nothing

	whole  bool   // effects hold for the whole tree: it is nobody else's
	filled bool   // the tree is a snapshot that is being filled
	asked  *Asked // what may be written; nil for anything
	backup string // what is replaced or removed goes there; "" for nowhere

	privileged bool
	private    bool
	places     placeCache
	compared   compared
}

// nothing returns a scope in which nothing is there.
func nothing() *Scope { return &Scope{effects: Names | Read, whole: true} }

// Close ends the use of a scope. It may record damage that Compare found.
func (s *Scope) Close() error {
	if s.tree == nil {
		return nil
	}
	return errors.Join(s.compared.close(), s.tree.Close())
}

// check returns why an effect on the entry at p is refused, or nil. It is the gate.
func (s *Scope) check(e Effect, p string) error {
	switch {
	case s.tree == nil:
		return fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	case s.effects&e == 0:
		return s.refusal(e, Outside, p)
	}
	return s.checkPlace(e, p)
}

// checkPlace is check for a session that may have the effect somewhere.
func (s *Scope) checkPlace(e Effect, p string) error {
	switch {
	case s.asked != nil:
		return s.asked.check(e, p)
	case s.whole:
		return nil
	case s.below != "" && !isBelow(p, s.below):
		return wire.Errorf(wire.CodeRight, "%q is not what the capability is for", p)
	}
	return s.checkRights(e, p)
}

// checkRights compares the client's rights with the rule for an effect at p.
func (s *Scope) checkRights(e Effect, p string) error {
	rule := ruleOf(e)
	if rule.everywhere(s.rights) {
		return nil
	}
	if err := disk.CheckPath(p); err != nil {
		return err
	}
	w, err := s.placeOf(p)
	if err == nil && w.series == "" && e != Write { // p may be a series itself
		w, err = s.folderPlace(p)
	}
	if err != nil {
		return err
	}
	if !rule.allows(s.rights, w.place, w.owns(p)) {
		return s.refusal(e, w.place, p)
	}
	return nil
}

// refusal is the error of an effect that the client may not have at a place. A client that may have
// it nowhere does not learn whether the place is in a snapshot.
func (s *Scope) refusal(e Effect, at Place, p string) error {
	rule := ruleOf(e)
	right := cmp.Or(rule.Right[at], rule.Right[Outside])
	switch {
	case !s.whole && !s.rights.Has(right):
		return RefuseRight(s.share, right)
	case rule.Right[at] == 0:
		return inSnapshot(p)
	}
	return wire.Errorf(wire.CodeRight, "this session may not %s", rule.Does)
}

func inSnapshot(p string) error {
	return wire.Errorf(wire.CodePath, "%q is in a snapshot, which can't be changed", p)
}

// look is check for the metadata of one entry, which whoever may write it learns, too.
func (s *Scope) look(p string) error {
	err := s.check(Names, p)
	if err == nil || s.effects&Write == 0 {
		return err
	}
	return s.check(Write, p)
}

// May returns the right by which a client may have an effect on the entry at p, or why it may not.
func (s *Scope) May(e Effect, p string) (by identity.Rights, err error) {
	if err := s.check(e, p); err != nil {
		return 0, err
	}
	for _, right := range ruleOf(e).Right {
		if right != 0 && s.rights.Has(right) {
			return right, nil
		}
	}
	return identity.Append, nil
}

// MayTarget returns why entries can't be received at p, or nil, in a dry run, too.
func (s *Scope) MayTarget(p string) error { return s.checkPlace(Write, p) }

// check refuses what was not asked for.
func (a *Asked) check(e Effect, p string) error {
	if a.BackupDir != "" && isBelow(p, a.BackupDir) {
		return nil
	}
	base := cmp.Or(strings.TrimSuffix(a.Base, "/"), ".")
	if p == base && (e != Write || p != ".") {
		return nil
	}
	rest, below := p, true
	if base != "." {
		rest, below = strings.CutPrefix(p, base+"/")
	}
	first, _, _ := strings.Cut(rest, "/")
	if !below || a.Names != nil && !slices.Contains(a.Names, first) {
		return notAsked(p)
	}
	return nil
}

func notAsked(p string) error { return fmt.Errorf("%w: %q was not asked for", disk.ErrPath, p) }

// towards returns p, but for a folder above what the scope is confined to, that. Whoever may make it
// may make the folders above it, and learn whether they are there.
func (s *Scope) towards(p string) string {
	if s.below != "" && (p == "." || isBelow(s.below, p)) {
		return s.below
	}
	return p
}

// isBelow reports whether path is above, or is in it.
func isBelow(p, above string) bool { return p == above || strings.HasPrefix(p, above+"/") }

// Stat describes the entry at p.
func (s *Scope) Stat(p string) (disk.Meta, error) {
	if err := s.look(s.towards(p)); err != nil {
		return disk.Meta{}, err
	}
	return s.tree.Stat(p)
}

// StatXattrs describes the entry at p with its extended attributes.
func (s *Scope) StatXattrs(p string) (disk.Meta, error) {
	if err := s.look(p); err != nil {
		return disk.Meta{}, err
	}
	return s.tree.StatXattrs(p)
}

// StatTarget is StatXattrs for a target that is about to be written.
func (s *Scope) StatTarget(p string) (disk.Meta, error) {
	if err := s.look(p); err != nil {
		return disk.Meta{}, err
	}
	return s.tree.StatTarget(p)
}

// Omitted are entries that a list lacks, because no client could use their names.
type Omitted struct {
	Count int
	First error // names the first, and says what is wrong with it; nil for none
}

// Add counts an entry. why names it.
func (o *Omitted) Add(why error) {
	if o.Count++; o.First == nil {
		o.First = why
	}
}

// List visits the entries in a folder. A client without the right to see them sees its own: where
// it owns the series, snapshots and links; elsewhere, the series that it owns. Outside of its series
// it can't tell a path that does not exist from one that holds nothing for it. After a listing that
// lacks an entry, because that cannot be described, List fails. It does not fail for entries whose
// paths disk.CheckPath rejects, or for which visit returns disk.ErrPath: these are in left.
func (s *Scope) List(ctx context.Context, p string, visit func(disk.Meta) error) (left Omitted, err error) {
	if err := s.check(Names, p); err != nil {
		if !s.rights.Has(identity.Append) || s.effects&Names == 0 {
			return left, err
		}
		return s.listOwn(ctx, p, visit)
	}
	hidden, err := s.hidden(p)
	if err != nil {
		return left, err
	}
	left, lacks, err := s.list(ctx, p, hidden, visit)
	return left, cmp.Or(err, lacks)
}

// list visits what is not hidden. lacks says why the first of the entries that it lacks cannot be
// described.
func (s *Scope) list(
	ctx context.Context, p string, hidden func(entry string) bool, visit func(disk.Meta) error,
) (left Omitted, lacks, err error) {
	err = s.tree.List(ctx, p, func(m disk.Meta) error {
		if hidden(path.Join(p, m.Path)) {
			return nil
		}
		err := visit(m)
		if errors.Is(err, disk.ErrPath) {
			left.Add(err)
			return nil
		}
		return err
	}, func(name string, err error) {
		switch {
		case hidden(path.Join(p, name)):
		case errors.Is(err, disk.ErrPath):
			left.Add(err)
		case lacks == nil:
			lacks = err
		}
	})
	return left, lacks, err
}

// hidden returns which entries a client that may see names at p may still not see: in a series that
// it sees because it owns it, those beside the snapshots.
func (s *Scope) hidden(p string) (is func(entry string) bool, err error) {
	none := func(string) bool { return false }
	if s.whole || ruleOf(Names).everywhere(s.rights) {
		return none, nil
	}
	if err := disk.CheckPath(p); err != nil {
		return nil, err
	}
	w, err := s.folderPlace(p)
	if err != nil || w.place == Snapshot {
		return none, err
	}
	return func(entry string) bool {
		return entry != p && path.Dir(entry) == p && !isSeriesName(path.Base(entry))
	}, nil
}

// listOwn lists what this client owns. It finds nothing rather than say why a folder cannot be read.
func (s *Scope) listOwn(ctx context.Context, p string, visit func(disk.Meta) error) (left Omitted, err error) {
	if err := disk.CheckPath(p); err != nil {
		return left, err
	}
	var stop error
	notOwn := func(entry string) bool {
		w, err := s.folderPlace(entry)
		return err != nil || !w.owns(entry)
	}
	left, lacks, err := s.list(ctx, p, notOwn, func(m disk.Meta) error {
		stop = visit(m)
		return stop
	})
	if stop != nil || ctx.Err() != nil {
		return left, err
	}
	return left, lacks
}

// Walk visits the entry at p and everything below it that the client may see. In snapshots, files
// that are known to be damaged fail for who only reads, so that nobody takes them for what was sent.
func (s *Scope) Walk(
	ctx context.Context, p string, opt disk.WalkOptions,
	visit func(disk.Meta) error, failed func(path string, err error),
) error {
	if err := s.check(Names, p); err != nil {
		return err
	}
	hidden, err := s.hidden(p)
	if err != nil {
		return err
	}
	skip := opt.Skip
	opt.Skip = func(m disk.Meta) bool { return hidden(m.Path) || skip != nil && skip(m) }
	if s.folder == nil || s.effects&Write != 0 {
		return s.tree.Walk(ctx, p, opt, visit, failed)
	}
	w := damageWalk{scope: s, failed: failed, known: make(map[string]*damagedSnapshot)}
	return w.walk(ctx, p, opt, visit)
}

// Names visits the names in the folder at p.
func (s *Scope) Names(
	ctx context.Context, p string, visit func(names []string, kinds []disk.Kind) error,
) error {
	if err := s.check(Names, p); err != nil {
		return err
	}
	return s.tree.Names(ctx, p, visit)
}

// NamesAndForeign is Names, and calls foreign with each reserved name that fxfer did not give.
func (s *Scope) NamesAndForeign(
	ctx context.Context, p string, visit func(names []string, kinds []disk.Kind) error, foreign func(name string),
) error {
	if err := s.check(Names, p); err != nil {
		return err
	}
	return s.tree.NamesAndForeign(ctx, p, visit, foreign)
}

// OpenFile opens the regular file at p for reading.
func (s *Scope) OpenFile(p string) (*disk.Source, error) {
	if err := s.check(Read, p); err != nil {
		return nil, err
	}
	return s.tree.OpenFile(p)
}

// ReadFile reads the whole regular file at p.
func (s *Scope) ReadFile(p string, id disk.Identity, buf []byte) error {
	if err := s.check(Read, p); err != nil {
		return err
	}
	return s.tree.ReadFile(p, id, buf)
}

// Digest reads the regular file at p and returns its digest.
func (s *Scope) Digest(ctx context.Context, p string) ([32]byte, disk.Identity, error) {
	if err := s.check(Read, p); err != nil {
		return [32]byte{}, disk.Identity{}, err
	}
	return s.tree.Digest(ctx, p)
}

// Mkdir makes the folder at p and those above it.
func (s *Scope) Mkdir(p string, mode fs.FileMode) error {
	if err := s.check(Write, s.towards(p)); err != nil {
		return err
	}
	return s.tree.Mkdir(p, mode)
}

// MakeDir makes the folder at p, whose name must be free.
func (s *Scope) MakeDir(p string, mode fs.FileMode) error {
	if err := s.check(Write, p); err != nil {
		return err
	}
	return s.tree.MakeDir(p, mode)
}

// Partial opens the partial file of the target m.Path.
func (s *Scope) Partial(m disk.Meta, blockSize int, opt disk.TargetOptions) (*disk.Partial, error) {
	if err := s.check(Write, m.Path); err != nil {
		return nil, err
	}
	opt.Privileged = s.privileged
	return s.tree.Partial(m, blockSize, opt)
}

// PartialRange opens a range of the partial file of the target m.Path.
func (s *Scope) PartialRange(m disk.Meta, blockSize int, start, count int64, opt disk.TargetOptions) (*disk.PartialRange, error) {
	if err := s.check(Write, m.Path); err != nil {
		return nil, err
	}
	opt.Privileged = s.privileged
	return s.tree.PartialRange(m, blockSize, start, count, opt)
}

// Early opens the early partial file of the target m.Path.
func (s *Scope) Early(m disk.Meta, blockSize int, opt disk.TargetOptions) (*disk.Partial, error) {
	if err := s.check(Write, m.Path); err != nil {
		return nil, err
	}
	return s.tree.Early(m, blockSize, opt)
}

// OpenEarly opens the early partial file of the target m.Path for reading.
func (s *Scope) OpenEarly(m disk.Meta, blockSize int) (*disk.Source, error) {
	if err := s.check(Read, m.Path); err != nil {
		return nil, err
	}
	return s.tree.OpenEarly(m, blockSize)
}

// RemoveEarly removes the early partial file of the target at p.
func (s *Scope) RemoveEarly(p string) (removed bool, err error) {
	if err := s.check(Write, p); err != nil {
		return false, err
	}
	return s.tree.RemoveEarly(p)
}

// Commit completes the partial file of the target m.Path.
func (s *Scope) Commit(p *disk.Partial, m disk.Meta) error {
	if err := s.check(Write, m.Path); err != nil {
		return err
	}
	return p.Commit(m)
}

// Put writes the whole target m.Path, and leaves its name to a Batch.
func (s *Scope) Put(m disk.Meta, data []byte, opt disk.TargetOptions) (*disk.Staged, error) {
	if err := s.check(Write, m.Path); err != nil {
		return nil, err
	}
	opt.Privileged = s.privileged
	return s.tree.Put(m, data, opt)
}

// Symlink makes the symlink m.Path.
func (s *Scope) Symlink(m disk.Meta, opt disk.TargetOptions) error {
	if err := s.check(Write, m.Path); err != nil {
		return err
	}
	opt.Privileged = s.privileged
	return s.tree.Symlink(m, opt)
}

// Special makes the pipe, device or socket m.Path.
func (s *Scope) Special(m disk.Meta, opt disk.TargetOptions) error {
	if err := s.check(Write, m.Path); err != nil {
		return err
	}
	opt.Privileged = s.privileged
	return s.tree.Special(m, opt)
}

// Apply sets the metadata of the entry at m.Path. In a snapshot that is being filled, a file that
// has other names may be that of an older snapshot, too, and is refused.
func (s *Scope) Apply(m disk.Meta, opt disk.TargetOptions) error {
	if err := s.check(Write, m.Path); err != nil {
		return err
	}
	if s.filled && m.Kind == disk.File {
		have, err := s.tree.Stat(m.Path)
		if err != nil {
			return err
		}
		if have.Nlink > 1 {
			return inSnapshot(m.Path)
		}
	}
	opt.Privileged = s.privileged
	return s.tree.Apply(m, opt)
}

// Link makes to another name of the entry from. Whoever writes one of them changes the other.
func (s *Scope) Link(from, to string) error {
	if err := s.check(Reuse, from); err != nil {
		return err
	}
	if err := s.check(Write, to); err != nil {
		return err
	}
	return s.tree.Link(from, to)
}

// MayLink returns why a file that the session has not transferred can't get another name, or nil: the
// client must be allowed to read it, and a user asked for what the server transfers.
func (s *Scope) MayLink(from string) error {
	if s.asked != nil {
		return notAsked(from)
	}
	return s.check(Read, from)
}

// LinkFrom is Link for a file of the previous snapshot, in a snapshot that is being filled.
func (s *Scope) LinkFrom(previous *Scope, from, to string) error {
	if err := previous.check(Reuse, from); err != nil {
		return err
	}
	if err := s.check(Write, to); err != nil {
		return err
	}
	return s.tree.LinkFrom(previous.tree, from, to)
}

// OpenCopy opens the regular file at p for a copy of it where it can't be linked.
func (s *Scope) OpenCopy(p string) (*disk.Source, error) {
	if err := s.check(Reuse, p); err != nil {
		return nil, err
	}
	return s.tree.OpenFile(p)
}

// Removal decides about removing the entry at p with all below it, in a dry run, too. A folder that
// holds snapshots stays. remove does it: it moves the entry to the folder for backups, if there is
// one.
func (s *Scope) Removal(ctx context.Context, p string) (remove func() error, err error) {
	places := []string{p}
	if s.backup != "" {
		places = append(places, path.Join(s.backup, p))
	}
	for _, p := range places {
		if err := s.checkPlace(Write, p); err != nil {
			return nil, err
		}
		if err := s.holdsSeries(ctx, p); err != nil {
			return nil, err
		}
	}
	return func() error {
		if err := s.check(Write, p); err != nil {
			return err
		}
		return s.tree.Remove(p, s.backup)
	}, nil
}

// holdsSeries returns an error if a folder of the share is a series, or holds one.
func (s *Scope) holdsSeries(ctx context.Context, p string) error {
	if s.whole {
		return nil
	}
	have, err := s.tree.Stat(p)
	if err != nil || have.Kind != disk.Dir {
		return nil
	}
	opt := disk.WalkOptions{Skip: func(m disk.Meta) bool { return m.Kind != disk.Dir }}
	return s.tree.Walk(ctx, p, opt, func(m disk.Meta) error {
		w, err := s.seriesAt(m.Path)
		if err == nil && w.series != "" {
			err = wire.Errorf(wire.CodePath, "%q has snapshots, which can't be moved or removed", m.Path)
		}
		return err
	}, func(string, error) {})
}

// Remove removes the entry at p and all below it, or moves it to the folder for backups.
func (s *Scope) Remove(ctx context.Context, p string) error {
	remove, err := s.Removal(ctx, p)
	if err != nil {
		return err
	}
	return remove()
}

// RemoveOne removes the file, link or empty folder at p.
func (s *Scope) RemoveOne(p string) error {
	if err := s.check(Write, p); err != nil {
		return err
	}
	return s.tree.RemoveOne(p)
}

// RemoveAll removes the entry at p and all below it, and returns when that is on the medium.
func (s *Scope) RemoveAll(ctx context.Context, p string) error {
	if err := s.Remove(ctx, p); err != nil {
		return err
	}
	return s.tree.SyncFolder(path.Dir(p))
}

// Move gives the entry at from the path to. A folder that holds snapshots stays.
func (s *Scope) Move(ctx context.Context, from, to string, replace bool) error {
	for _, p := range []string{from, to} {
		if err := s.check(Write, p); err != nil {
			return err
		}
	}
	if err := s.holdsSeries(ctx, from); err != nil {
		return err
	}
	return s.tree.Move(from, to, replace)
}

// KeepOld gives the entry at p, which is about to be replaced and is no folder, its name in the
// folder for backups, too. The folder above that name must exist.
func (s *Scope) KeepOld(p string) error { return s.Link(p, path.Join(s.backup, p)) }

// SweepFolder removes what killed transfers left in the folder at p.
func (s *Scope) SweepFolder(p string) error {
	if err := s.check(Write, path.Join(p, sweepName)); err != nil {
		return err
	}
	return s.tree.SweepFolder(p)
}

// sweepName stands for the partial files in a folder: only the folder decides about them.
const sweepName = "partial"

// SyncAll returns when all that was written is on the medium.
func (s *Scope) SyncAll() error {
	if s.tree == nil {
		return nil
	}
	return s.tree.SyncAll()
}

// Privileged reports whether the scope sets what gives privilege.
func (s *Scope) Privileged() bool { return s.privileged }

// Plain takes from m what gives privilege, unless the scope sets that. It returns what it took. In a
// private scope, it also takes the permissions of group and others.
func (s *Scope) Plain(m *disk.Meta) (taken []string) {
	if s.private {
		m.Mode &= 0o700
	}
	if s.privileged {
		return nil
	}
	return m.Plain()
}

// Batch gives staged files their names. Whether they may have them is decided then.
type Batch struct {
	scope  *Scope
	opt    disk.TargetOptions
	most   int
	staged []*disk.Staged
}

// NewBatch makes an empty batch. It is not safe for concurrent use.
func (s *Scope) NewBatch(opt disk.TargetOptions) *Batch {
	return &Batch{scope: s, opt: opt, most: disk.NewBatch(s.tree, opt).Most()}
}

// Add adds a target, and takes it over from the caller.
func (b *Batch) Add(s *disk.Staged) { b.staged = append(b.staged, s) }

// Most returns how many targets may be open at a time.
func (b *Batch) Most() int { return b.most }

// Commit gives the targets their names. It returns an error for each in the order of Add.
func (b *Batch) Commit() []error {
	staged := b.staged
	b.staged = nil
	errs := make([]error, len(staged))
	may := disk.NewBatch(b.scope.tree, b.opt)
	for i, x := range staged {
		if errs[i] = b.scope.check(Write, x.Path()); errs[i] == nil {
			may.Add(x)
		}
	}
	named := may.Commit()
	for i := range errs {
		if errs[i] == nil {
			errs[i], named = named[0], named[1:]
		}
	}
	return errs
}
