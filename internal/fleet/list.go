package fleet

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// shardBytes and shardFiles are what a shard has at most: some minutes of a fast line, or of a disk
	// with many small files.
	shardBytes = 32e9
	shardFiles = 20_000
	// shardsOfSize is how many shards a list has before the next ones are twice as large: what the
	// controller holds follows the number of shards.
	shardsOfSize = 50_000
	// maxList bounds the list of a shard, in bytes. A worker holds it in memory.
	maxList = 64 << 20
	// largest bounds both, so that no sum is too large for an int64.
	largest = 1 << 60
)

// cutter decides where a list is cut into shards.
type cutter struct {
	maxBytes, maxFiles  int64
	bytes, files, names int64 // of the present shard; names is the length of its list
	cuts                int64
}

// next takes a file, whose name takes so many bytes in the list. It reports whether a new shard begins
// with it.
func (c *cutter) next(size, name int64) (cut bool) {
	if cut = c.files > 0 && (c.bytes+size > c.maxBytes || c.files == c.maxFiles || c.names+name > maxList); cut {
		c.bytes, c.files, c.names = 0, 0, 0
		c.count()
	}
	c.bytes += size
	c.files++
	c.names += name
	return cut
}

// count counts a shard that the present one follows.
func (c *cutter) count() {
	if c.cuts++; c.cuts%shardsOfSize == 0 {
		c.maxBytes, c.maxFiles = min(2*c.maxBytes, largest), min(2*c.maxFiles, largest)
	}
}

// lister cuts a source into shards.
type lister struct {
	cutter
	prefix            string                              // of all paths, see prefixOf
	put               func(number int, list []byte) error // takes the list of a shard: paths, each with NUL at its end, or a range
	whole             bool                                // files are not cut into ranges
	linked            map[uint64]uint64                   // by inode: names of listed files that were not met yet
	list              []string                            // paths of the present shard
	shards            int
	total, totalBytes int64
}

// prefixOf returns what the paths of a source begin with in lists, as at the target. With a slash at its
// end, a source stands for what is in it.
func prefixOf(source string) string {
	if strings.HasSuffix(source, "/") {
		return ""
	}
	return filepath.Base(source) + "/"
}

// file takes a file. Only one name of each file is listed: the last task makes the others.
func (l *lister) file(f fxfer.SourceFile) error {
	if f.Path == "." { // the source is one file; the last task sends it if it is no large one
		if log := rangeLog(f.Size, l.maxBytes); log > 0 && !l.whole {
			l.total, l.totalBytes = 1, f.Size
			return l.putRanges(f, log)
		}
		return nil
	}
	if f.Names > 1 && f.Inode != 0 {
		if left, met := l.linked[f.Inode]; met {
			if left--; left == 0 {
				delete(l.linked, f.Inode)
			} else {
				l.linked[f.Inode] = left
			}
			return nil
		}
		l.linked[f.Inode] = f.Names - 1
	}
	if log := rangeLog(f.Size, l.maxBytes); log > 0 && !l.whole {
		l.total++
		l.totalBytes += f.Size
		return l.putRanges(f, log)
	}
	if l.next(f.Size, int64(len(l.prefix)+len(f.Path)+1)) {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.total++
	l.totalBytes += f.Size
	l.list = append(l.list, l.prefix+f.Path)
	return nil
}

// flush hands over the present shard, if there is one. Several goroutines list, so its paths are put in
// the order of one walk: a session visits each folder once then.
func (l *lister) flush() error {
	if len(l.list) == 0 {
		return nil
	}
	slices.SortFunc(l.list, byFolder)
	var list []byte
	for _, p := range l.list {
		list = append(append(list, p...), 0)
	}
	err := l.put(l.shards, list)
	l.shards++
	l.list = l.list[:0]
	return err
}

// byFolder compares paths so that what is in a folder comes together.
func byFolder(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// run lists a job's source, which has to be in one of the folders within.
func (l *lister) run(ctx context.Context, j *Job, within []string) error {
	l.prefix = prefixOf(j.Source)
	l.linked = make(map[uint64]uint64)
	l.maxBytes, l.maxFiles = shardBytes, shardFiles
	l.whole = j.Options.Checksum // to compare a file takes all of it
	if n := j.Options.ShardBytes; n > 0 {
		l.maxBytes = min(n, largest)
	}
	if n := j.Options.ShardFiles; n > 0 {
		l.maxFiles = min(n, largest)
	}
	selection := j.Options.selection()
	selection.Within = within
	if err := fxfer.ListSource(ctx, j.Source, selection, l.file); err != nil {
		return err
	}
	return l.flush()
}

func (o *Options) selection() fxfer.Selection {
	return fxfer.Selection{Rules: o.Rules, OneFileSystem: o.OneFileSystem}
}

// paths reads the list of a shard, whose paths begin with prefix, and yields them as they are below the
// source. Whoever made the list may want more than that.
func paths(list []byte, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for len(list) > 0 {
			name, rest, ok := bytes.Cut(list, []byte{0})
			p := string(name)
			switch {
			case !ok:
				yield("", refused("is cut off"))
				return
			case p == "", !strings.HasPrefix(p, prefix), path.Clean("/"+p) != "/"+p:
				yield("", refused("has %q, which is not in the source", p))
				return
			case !yield(p[len(prefix):], nil):
				return
			}
			list = rest
		}
	}
}

func refused(format string, a ...any) error {
	return &fxfer.Error{Kind: fxfer.KindUsage, Err: fmt.Errorf("the list of a shard "+format, a...)}
}
