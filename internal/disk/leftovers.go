package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Leftover is what a transfer left of a target when it ended early.
type Leftover struct {
	// Path is the target's path if a checkpoint names the target. Otherwise it is the path of the
	// partial file or temporary entry itself.
	Path  string
	Known bool

	Size      int64     // of the target in bytes; -1 if not known
	Done      int64     // bytes of finished blocks, which a transfer would not send again
	Allocated int64     // bytes on the file system, where that is known
	ModTime   time.Time // when it was last written
}

// Leftovers visits everything below path that Sweep would remove if it were old enough, and what
// running transfers hold now. It locks and changes nothing. It continues after an error and returns
// the first one. An error of visit ends it early.
func (t *Tree) Leftovers(ctx context.Context, path string, visit func(Leftover) error) error {
	var first, stop error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	note := func(path string, err error) {
		if first == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrUnsupportedKind) && !errors.Is(err, ErrPath) {
			first = at("list partial files", path, err)
		}
	}
	w := walker{
		tree:   t,
		ctx:    ctx,
		visit:  func(Meta) error { return nil },
		failed: note,
		reserved: func(f *folder, name string) {
			if stop != nil {
				return
			}
			l, ok := leftoverOf(f.root, name)
			if series, none := t.OpenSeries(f.path); none == nil && within(name, fillingSuffix) != "" {
				l, ok = series.filled(ctx, within(name, fillingSuffix))
			}
			if !ok {
				return
			}
			l.Path = childPath(f.path, l.Path)
			if stop = visit(l); stop != nil {
				cancel()
			}
		},
	}
	err := w.walk(path)
	if stop != nil {
		return stop
	}
	return errors.Join(err, first)
}

// leftoverOf describes the leftover whose main file is name in folder. Its path is relative to
// folder.
func leftoverOf(folder *os.Root, name string) (l Leftover, ok bool) {
	info, err := folder.Lstat(name)
	if err != nil {
		return l, false
	}
	l = Leftover{Path: name, Size: -1, Allocated: allocated(info), ModTime: info.ModTime()}
	reserved, partial := strings.CutSuffix(name, partialSuffix)
	switch {
	case partial:
		l.readCheckpoint(folder, reserved, info.Size())
		return l, true
	case strings.HasSuffix(name, checkpointSuffix):
		_, err := folder.Lstat(strings.TrimSuffix(name, checkpointSuffix) + partialSuffix)
		return l, errors.Is(err, fs.ErrNotExist) // or it belongs to that partial file
	}
	return l, strings.HasSuffix(name, linkSuffix) || strings.HasSuffix(name, hardSuffix)
}

// readCheckpoint adds the facts of the checkpoint, if there is one, of a partial file with fileSize
// bytes.
func (l *Leftover) readCheckpoint(folder *os.Root, reserved string, fileSize int64) {
	file, info, err := openRegular(folder, reserved+checkpointSuffix, os.O_RDONLY)
	if err != nil {
		return
	}
	defer file.Close()
	l.Allocated += allocated(info)
	if info.ModTime().After(l.ModTime) {
		l.ModTime = info.ModTime()
	}
	b := make([]byte, headerSize)
	if _, err := file.ReadAt(b, 0); err != nil {
		return
	}
	header, ok := decodeHeader(b)
	if !ok || reservedName(header.name) != reserved {
		return
	}
	l.Path, l.Known, l.Size = header.name, true, header.size
	run, err := (&checkpointLog{header: header, file: file}).replay(bootID())
	if err != nil {
		return
	}
	p := Partial{size: header.size, blockSize: header.blockSize}
	p.clip(&run.have, fileSize)
	l.Done = p.bytes(&run.have)
}
