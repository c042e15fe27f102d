package client

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
)

// SourceFile is a regular file of a source.
type SourceFile struct {
	Path    string // below the source; "." for the source itself
	Size    int64  // bytes
	ModTime time.Time
	Inode   uint64 // of all its names; 0 if unknown
	Names   uint64 // how many names (hard links) it has
}

// listers is how many folders ListSource reads at the same time. Where each system call took 1 ms more,
// 2,000 files in 110 folders took 4.5 s with one, 1.4 s with 4, and 0.5 s with 16 or 32. Without that
// there was no difference but noise.
const listers = 16

// ListSource calls visit for each regular file of a source, as Send would list it, but in another order.
// It calls it one at a time. It leaves out what cannot be listed: Send reports that. It returns visit's
// error.
func ListSource(ctx context.Context, source string, selection Selection, visit func(SourceFile) error) error {
	selected, err := selection.filter()
	if err != nil {
		return session.Usage("rules are those of gitignore", "%w", err)
	}
	root, err := openSource(source, selection.Within)
	if err != nil {
		return err
	}
	defer root.Tree.Close()
	root.As = "" // paths begin below it
	tree := &transfer.TreeSource{Roots: []transfer.Root{root}, Filter: selected, OneFileSystem: selection.OneFileSystem, ListOnly: true}
	return tree.ListFiles(ctx, listers, func(item transfer.Item) error {
		x := &item.Entry
		return visit(SourceFile{Path: x.Path, Size: x.Size, ModTime: x.Time(), Inode: x.Ino, Names: item.Names})
	})
}
