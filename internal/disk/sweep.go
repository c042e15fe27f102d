package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Sweep removes what killed transfers left anywhere in the tree and was last
// written longer than olderThan ago: partial files with their checkpoints, lone
// checkpoints and temporary symlinks. What a Partial has open, in this or another
// process, stays. It returns how many targets' leftovers were removed, goes on
// after an error, and returns the first one.
func (t *Tree) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	before := time.Now().Add(-olderThan)
	var first error
	note := func(path string, err error) {
		if first == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnsupportedKind) && !errors.Is(err, ErrPath) {
			first = at("sweep", path, err)
		}
	}
	w := walker{
		ctx:    ctx,
		visit:  func(Meta) error { return nil },
		failed: note,
		reserved: func(folder *os.Root, name string) {
			gone, err := sweepName(folder, name, before)
			if err != nil {
				note(name, err)
			} else if gone {
				removed++
			}
		},
	}
	m, err := t.Stat(".")
	if err == nil {
		err = w.entry(t.root, ".", m)
	}
	if err == nil {
		err = first
	}
	return removed, err
}

// sweepName removes the leftover of which name, in folder, is the main file.
func sweepName(folder *os.Root, name string, before time.Time) (gone bool, err error) {
	if !olderThan(folder, name, before) {
		return false, nil
	}
	switch {
	case strings.HasSuffix(name, partialSuffix):
		return sweepPartial(folder, name, before)
	case strings.HasSuffix(name, checkpointSuffix):
		if _, err := folder.Lstat(strings.TrimSuffix(name, checkpointSuffix) + partialSuffix); err == nil {
			return false, nil // goes or stays with its partial
		}
		return true, folder.Remove(name)
	case strings.HasSuffix(name, linkSuffix):
		return true, folder.Remove(name)
	}
	return false, nil
}

func sweepPartial(folder *os.Root, name string, before time.Time) (gone bool, err error) {
	checkpoint := strings.TrimSuffix(name, partialSuffix) + checkpointSuffix
	if _, err := folder.Lstat(checkpoint); err == nil && !olderThan(folder, checkpoint, before) {
		return false, nil
	}
	p := Partial{folder: folder}
	if err := p.openLeftover(name); err != nil {
		if errors.Is(err, ErrChanged) {
			err = nil // it is in use
		}
		return false, err
	}
	defer p.file.Close()
	if err := lockFile(p.file); err != nil {
		if errors.Is(err, ErrBusy) {
			err = nil
		}
		return false, err
	}
	// Locked, but perhaps committed or written since it was looked at.
	if !p.holds(name) || !olderThan(folder, name, before) {
		return false, nil
	}
	return true, errors.Join(removeIfThere(folder, checkpoint), folder.Remove(name))
}

func olderThan(folder *os.Root, name string, before time.Time) bool {
	info, err := folder.Lstat(name)
	return err == nil && info.ModTime().Before(before)
}
