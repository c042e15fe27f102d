package disk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Sweep removes what killed transfers left anywhere below path, if it was last written longer than
// olderThan ago: partial files with their checkpoints, lone checkpoints, temporary entries and
// unfinished snapshots. It keeps what a Partial or Staged has open, in this or another process.
// Folders keep their modes and modification times. Sweep returns the number of targets whose
// leftovers it removed. It continues after an error and returns the first one.
func (t *Tree) Sweep(ctx context.Context, path string, olderThan time.Duration) (removed int, err error) {
	before := time.Now().Add(-olderThan)
	var first error
	note := func(path string, err error) {
		if first == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnsupportedKind) && !errors.Is(err, ErrPath) {
			first = at("sweep", path, err)
		}
	}
	w := walker{
		tree:   t,
		ctx:    ctx,
		visit:  func(Meta) error { return nil },
		failed: note,
		reserved: func(f *folder, name string) {
			gone, err := false, error(nil)
			if series, none := t.OpenSeries(f.path); none == nil && isSnapshot(name) {
				gone, err = series.sweep(name, before)
			} else {
				gone, err = sweepName(f.root, name, before)
			}
			if err != nil {
				note(name, err)
			} else if gone {
				removed++
			}
		},
	}
	if err = w.walk(path); err == nil {
		err = first
	}
	return removed, err
}

// SweepFolder is Sweep for the folder at path itself, without what is below, and for leftovers of
// any age.
func (t *Tree) SweepFolder(path string) error {
	return at("sweep", path, t.withFolder(path, func(folder *os.Root) error {
		dir, err := folder.Open(".")
		if err != nil {
			return err
		}
		defer dir.Close()
		for {
			names, readErr := dir.Readdirnames(readBatch)
			for _, name := range names {
				if !isReserved(name) {
					continue
				}
				if _, err := sweepName(folder, name, time.Now().Add(time.Hour)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if errors.Is(readErr, io.EOF) {
				return nil
			}
			if readErr != nil {
				return readErr
			}
		}
	}))
}

// sweepName removes the leftover whose main file is name in folder. Nothing else in folder changes.
func sweepName(folder *os.Root, name string, before time.Time) (gone bool, err error) {
	info, err := folder.Stat(".")
	if err != nil {
		return false, err
	}
	err = opened(folder, func() (err error) {
		gone, err = sweepLeftover(folder, name, before)
		return err
	})
	if gone {
		_ = folder.Chtimes(".", time.Time{}, info.ModTime()) // only its owner may set the time
	}
	return gone, err
}

func sweepLeftover(in *os.Root, name string, before time.Time) (gone bool, err error) {
	if !olderThan(in, name, before) {
		return false, nil
	}
	switch {
	case strings.HasSuffix(name, partialSuffix):
		return sweepPartial(in, name, before)
	case strings.HasSuffix(name, checkpointSuffix):
		if _, err := in.Lstat(strings.TrimSuffix(name, checkpointSuffix) + partialSuffix); err == nil {
			return false, nil // it goes or stays with its partial file
		}
		return true, in.Remove(name)
	case strings.HasSuffix(name, linkSuffix), strings.HasSuffix(name, hardSuffix):
		return true, in.Remove(name)
	case strings.HasSuffix(name, removingSuffix):
		return true, removeAll(&folder{root: in, path: "."}, name)
	}
	return false, nil
}

func sweepPartial(folder *os.Root, name string, before time.Time) (gone bool, err error) {
	checkpoint := strings.TrimSuffix(name, partialSuffix) + checkpointSuffix
	if _, err := folder.Lstat(checkpoint); err == nil && !olderThan(folder, checkpoint, before) {
		return false, nil
	}
	file, err := openLeftover(folder, name)
	if err != nil {
		if errors.Is(err, ErrChanged) {
			err = nil // a process uses it
		}
		return false, err
	}
	defer file.Close()
	if err := lockFile(file); err != nil {
		if errors.Is(err, ErrBusy) {
			err = nil
		}
		return false, err
	}
	// It is locked now, but somebody may have committed or written it since the first look.
	if !holds(folder, name, file) || !olderThan(folder, name, before) {
		return false, nil
	}
	return true, errors.Join(removeIfThere(folder, checkpoint), folder.Remove(name))
}

func olderThan(folder *os.Root, name string, before time.Time) bool {
	info, err := folder.Lstat(name)
	return err == nil && info.ModTime().Before(before)
}
