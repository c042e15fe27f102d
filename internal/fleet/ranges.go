package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// rangesOfFile bounds the ranges of a file, which may be a small one with a very large hole.
const rangesOfFile = 1 << 14

// rangeLog returns the size of the ranges of a large file where a shard has at most so many bytes, as a
// power of two. It returns 0 for a file that is one shard.
func rangeLog(size, shard int64) uint8 {
	log := uint8(min(max(bits.Len64(uint64(shard))-1, fxfer.MinRangeLog), fxfer.MaxRangeLog))
	if size <= max(shard, 1<<log) {
		return 0
	}
	for (size-1)>>log >= rangesOfFile {
		log++
	}
	return log
}

// putRanges puts a shard for each range of a large file.
func (l *lister) putRanges(f fxfer.SourceFile, log uint8) error {
	for n := range (f.Size-1)>>log + 1 {
		if err := l.put(l.shards, rangeList(fxfer.Range{File: f, Log: log, Number: n}, l.prefix)); err != nil {
			return err
		}
		l.shards++
		l.count()
	}
	return nil
}

// rangeList is the list of a shard that is a range: a NUL, which begins no list of paths, what the range
// and its file are, and the path with the prefix. The source itself is ".".
func rangeList(r fxfer.Range, prefix string) []byte {
	name := path.Clean(prefix + r.File.Path)
	return fmt.Appendf(nil, "\x00%d %d %d %d %d\x00%s\x00", r.Log, r.Number, r.File.Size, r.File.ModTime.UnixNano(), r.File.Inode, name)
}

// rangeIn reads the list of a shard that is a range, whose path begins with prefix, or is the source
// itself. The path of its file is below the source then. It returns nil for a list of paths.
func rangeIn(list []byte, prefix string) (*fxfer.Range, error) {
	about, isRange := bytes.CutPrefix(list, []byte{0})
	if !isRange {
		return nil, nil
	}
	about, name, _ := bytes.Cut(about, []byte{0})
	r, modified := new(fxfer.Range), int64(0)
	_, err := fmt.Sscanf(string(about), "%d %d %d %d %d", &r.Log, &r.Number, &r.File.Size, &modified, &r.File.Inode)
	r.File.ModTime = time.Unix(0, modified)
	if source := path.Clean("/" + prefix)[1:]; source != "" && string(name) == source+"\x00" {
		r.File.Path, name = ".", nil
	}
	for p, err := range paths(name, prefix) {
		if err != nil {
			return nil, err
		}
		r.File.Path = p
	}
	none := r.Log < fxfer.MinRangeLog || r.Log > fxfer.MaxRangeLog || r.File.Size <= 0 || r.Number < 0 || r.Number > (r.File.Size-1)>>r.Log
	if err != nil || none || !bytes.Equal(rangeList(*r, prefix), list) {
		return nil, refused("has %q, which is not a range of a file", about[:min(len(about), 100)])
	}
	return r, nil
}

// length is how many bytes a range has.
func length(r *fxfer.Range) int64 { return min(1<<r.Log, r.File.Size-r.Number<<r.Log) }

// sendRange sends a range of a file. If the file has to be sent whole, that is for the first range. What
// is not what was listed any more is left to the last task.
func (h *held) sendRange(ctx context.Context, r *fxfer.Range) (*Record, error) {
	u, err := fxfer.ParseURL(h.job.URL)
	if err != nil {
		return nil, err
	}
	o := &h.job.Options
	transfer := fxfer.Transfer{
		Selection: fxfer.Selection{OneFileSystem: o.OneFileSystem, Within: h.Read},
		Target:    fxfer.Target{Delete: o.Delete, NumericIDs: o.NumericIDs},
		Progress:  func(p fxfer.Progress) { h.bytes.Store(min(p.BytesDone, length(r))) },
	}
	done := h.onLine(&transfer)
	report, err := h.Client.SendRange(ctx, h.job.Source, *r, u, transfer)
	done() // what is sent whole begins anew
	switch {
	case errors.Is(err, fxfer.ErrNoRange) && r.Number == 0:
		h.Log.Info("sent whole", "key", h.task.key(), "path", r.File.Path, "reason", err)
		h.note.Store(err.Error())
		return h.sendFiles(ctx, func(yield func(string, error) bool) { yield(r.File.Path, nil) })
	case errors.Is(err, fxfer.ErrNoRange):
		return &Record{}, nil
	case err != nil:
		return nil, because(err, report)
	case report.Files == 0:
		h.Log.Info("not what was listed", "key", h.task.key(), "path", r.File.Path)
	}
	return &Record{Bytes: h.bytes.Load()}, nil
}
