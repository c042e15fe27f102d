package transfer

import (
	"context"
	"encoding/binary"
	"path"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/shard"
	"github.com/fxfer/fxfer/internal/wire"
)

// fileCost is what a file costs beyond its content, in bytes that could travel meanwhile.
const fileCost = 64 << 10

// planShards lists the source and divides its files. The walk that follows reports what cannot be
// listed.
func (s *TreeSource) planShards(ctx context.Context) (*shard.Plan, error) {
	p := shard.NewPlanner(s.Shard.Count)
	err := s.walkAll(ctx, func(item Item) error {
		if x := &item.Entry; x.Kind == wire.File {
			p.Add(shardKey(x.Path, x.Ino, item.Names), uint64(x.Size)+fileCost, item.Names)
		}
		return nil
	}, func(string, error) {})
	return p.Plan(), err
}

// isElsewhere reports whether an entry does not belong to this shard. Folders belong to all, and what
// is neither a file nor a folder to none.
func (s *TreeSource) isElsewhere(m *disk.Meta, as string) bool {
	if m.Kind != disk.File {
		return m.Kind != disk.Dir
	}
	return s.plan.Shard(shardKey(as, m.ID.Ino, m.Nlink)) != s.Shard.Index
}

// shardKey identifies a file on all hosts that see it. They may have other numbers for its device.
func shardKey(as string, ino, names uint64) shard.Key {
	if names < 2 || ino == 0 {
		return keyOf(as)
	}
	linked := [9]byte{} // no path is like it: it begins with NUL
	binary.BigEndian.PutUint64(linked[1:], ino)
	return keyOf(string(linked[:]))
}

// visitAbove visits the folders above a path of a part that were not visited yet. They are in seen
// with a slash at the end: they are visited without what is in them.
func (s *TreeSource) visitAbove(r *Root, p string, seen listed, visit func(Item) error) error {
	above := path.Dir(p)
	if p == r.Path || seen.has(above+"/") {
		return nil
	}
	if err := s.visitAbove(r, above, seen, visit); err != nil {
		return err
	}
	seen.add(above + "/")
	m, err := r.Tree.StatXattrs(above)
	if err != nil || m.Kind != disk.Dir {
		return nil //nolint:nilerr // what is in it is gone as well
	}
	item := r.item(m, r.manifestPath(above))
	item.Entry.Mode |= 0o700 // others still put files into it
	return visit(item)
}

// lateFolders passes the items of a shard on. A folder comes only with the first file in it, and its
// owner may write there: other shards still put files into it.
type lateFolders struct {
	visit   func(Item) error
	folders []Item // above the present item, outermost first, that were not passed on
}

func (f *lateFolders) item(item Item) error {
	x := &item.Entry
	for n := len(f.folders); n > 0; n = len(f.folders) {
		if above := f.folders[n-1].Entry.Path; above == "." || isBelow(x.Path, above) {
			break
		}
		f.folders = f.folders[:n-1]
	}
	if x.Kind == wire.Dir {
		x.Mode |= 0o700
		f.folders = append(f.folders, item)
		return nil
	}
	for _, above := range f.folders {
		if err := f.visit(above); err != nil {
			return err
		}
	}
	f.folders = f.folders[:0]
	return f.visit(item)
}
