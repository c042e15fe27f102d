package transfer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// Root is one thing to be sent from a tree.
type Root struct {
	Tree *disk.Tree
	Path string // in the tree; "." for all of it
	As   string // its path in the manifest; "" for a folder whose contents go without it
}

// TreeSource is a Source of files and folders.
type TreeSource struct {
	Roots []Root
}

// Single implements Source.
func (s *TreeSource) Single() bool {
	if len(s.Roots) != 1 || s.Roots[0].As == "" {
		return false
	}
	m, err := s.Roots[0].Tree.Stat(s.Roots[0].Path)
	return err == nil && m.Kind == disk.File
}

// Walk implements Source.
func (s *TreeSource) Walk(ctx context.Context, visit func(Item) error, failed func(string, error)) error {
	for i := range s.Roots {
		r := &s.Roots[i]
		err := r.Tree.Walk(ctx, r.Path, func(m disk.Meta) error {
			if as := r.as(m.Path); as != "" {
				return visit(r.item(m, as))
			}
			return nil
		}, failed)
		if err != nil {
			return err
		}
	}
	return nil
}

// as translates a path of the tree to one of the manifest.
func (r *Root) as(p string) string {
	rest := p
	if p == r.Path {
		rest = ""
	} else if r.Path != "." {
		rest = p[len(r.Path)+1:]
	}
	return path.Join(r.As, rest)
}

func (r *Root) item(m disk.Meta, as string) Item {
	item := Item{Entry: EntryOf(m, as)}
	if m.Kind == disk.File {
		item.Open = func() (File, error) { return openSame(r.Tree, m) }
		item.Refresh = func() (Item, error) {
			now, err := r.Tree.Stat(m.Path)
			if err == nil && now.Kind != disk.File {
				err = fmt.Errorf("%q is no longer a file", m.Path)
			}
			if err != nil {
				return Item{}, err
			}
			return r.item(now, as), nil
		}
	}
	return item
}

// openSame opens the file that the manifest describes.
func openSame(tree *disk.Tree, m disk.Meta) (File, error) {
	f, err := tree.OpenFile(m.Path)
	if err != nil {
		return nil, err
	}
	if f.Identity() != m.ID {
		_ = f.Close()
		return nil, fmt.Errorf("%q: %w", m.Path, disk.ErrChanged)
	}
	return f, nil
}

// EntryOf describes what is in a tree as an entry of a manifest.
func EntryOf(m disk.Meta, as string) wire.Entry {
	return wire.Entry{
		Kind: wire.Kind(m.Kind), Path: as, Size: m.Size, ModTime: m.ModTime.UnixNano(), Mode: modeBits(m.Mode),
		Link: m.Link, Ino: m.ID.Ino, Dev: m.ID.Dev, BlockLog: blockLog(m.Size),
	}
}

func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// StreamSource is a Source of one file whose length is not known, such as standard input.
type StreamSource struct {
	Entry wire.Entry // Size is wire.Unknown
	R     io.Reader
}

// Single implements Source.
func (s *StreamSource) Single() bool { return true }

// Walk implements Source.
func (s *StreamSource) Walk(_ context.Context, visit func(Item) error, _ func(string, error)) error {
	item := Item{Entry: s.Entry, Stream: s.R}
	item.Entry.BlockLog = maxBlockLog
	return visit(item)
}
