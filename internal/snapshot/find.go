package snapshot

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
)

const (
	// findWindow is how much of a list is searched at a time, in bytes.
	findWindow = 4 << 10
	// findWindows bounds the parts of a list that a Finder keeps: files of one folder lie together.
	findWindows = 256
	// findMarks bounds the places of a list that a Finder remembers, in bytes of their paths.
	findMarks = 1 << 20
	// longestLine bounds a line of a list: two paths with every byte escaped.
	longestLine = 4 * maxRecord
)

// Finder finds the noted digests of a complete snapshot's files, in any order. It reads a few pages
// of the lists for each, and remembers where it looked. It is not safe for concurrent use.
type Finder struct {
	diff, whole, links *sortedList // nil if there is none
}

// NewFinder opens the lists of a complete snapshot. The error is fs.ErrNotExist if it has none.
func NewFinder(root *os.Root, name string) (f *Finder, err error) {
	f = &Finder{}
	if f.whole, err = openSorted(root, name+listSuffix, splitDigest); errors.Is(err, fs.ErrNotExist) {
		if f.whole, err = openSorted(root, name+baseSuffix, splitDigest); err == nil {
			f.diff, err = openSorted(root, name+diffSuffix, splitDigest)
		}
	}
	if err == nil {
		f.links, err = openSorted(root, name+linksSuffix, splitLink)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the lists.
func (f *Finder) Close() {
	for _, l := range []*sortedList{f.diff, f.whole, f.links} {
		if l != nil {
			l.file.Close()
		}
	}
}

// Digest returns the digest of the file at path, and false if none is noted.
func (f *Finder) Digest(path string) (digest [32]byte, ok bool, err error) {
	digest, ok, err = f.noted(path)
	if ok || err != nil {
		return digest, ok, err
	}
	first, ok, err := f.links.find(path)
	if !ok || err != nil {
		return digest, false, err
	}
	return f.noted(first)
}

func (f *Finder) noted(path string) (digest [32]byte, ok bool, err error) {
	text, ok, err := f.diff.find(path)
	if err == nil && !ok {
		text, ok, err = f.whole.find(path)
	}
	if err != nil || !ok || text == goneWord {
		return digest, false, err
	}
	if n, err := hex.Decode(digest[:], []byte(text)); n != len(digest) || err != nil {
		return digest, false, errBroken
	}
	return digest, true, nil
}

// sortedList finds lines of a list that is sorted by path. A nil one is empty.
type sortedList struct {
	file  *os.File
	size  int64
	split func(line []byte) (path, value string, err error)
	in    *bufio.Reader

	marks map[int64]mark // by the offset where find looked
	held  int            // bytes of paths in marks

	windows map[int64][]byte // parts of the list, by offset
}

// mark is the first line that begins behind some offset.
type mark struct {
	at   int64 // where it begins; the size of the list if there is none
	path string
}

func openSorted(root *os.Root, name string, split func([]byte) (string, string, error)) (*sortedList, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &sortedList{
		file: file, size: info.Size(), split: split, in: bufio.NewReaderSize(file, 512), marks: make(map[int64]mark),
		windows: make(map[int64][]byte),
	}, nil
}

// find returns the value of the line with this path.
func (l *sortedList) find(path string) (value string, ok bool, err error) {
	if l == nil {
		return "", false, nil
	}
	from, to := int64(0), l.size
	for to-from > findWindow {
		m, err := l.behind(from + (to-from)/2)
		if err != nil {
			return "", false, err
		}
		switch {
		case m.at >= to && to-from > 2*longestLine:
			return "", false, errBroken
		case m.at >= to: // one line takes half of it
			return l.search(path, from, to)
		case m.path <= path:
			from = m.at
		default:
			to = m.at
		}
	}
	return l.search(path, from, to)
}

// behind returns the first line that begins behind an offset.
func (l *sortedList) behind(at int64) (mark, error) {
	if m, ok := l.marks[at]; ok {
		return m, nil
	}
	l.in.Reset(io.NewSectionReader(l.file, at, math.MaxInt64-at))
	skipped, err := l.in.ReadBytes('\n')
	m := mark{at: at + int64(len(skipped))}
	var line []byte
	if err == nil {
		line, err = l.in.ReadBytes('\n')
	}
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		m.at = l.size
	case err != nil:
		return m, errors.Join(errBroken, err)
	default:
		if m.path, _, err = l.split(line); err != nil {
			return m, err
		}
	}
	if l.held += len(m.path); l.held <= findMarks {
		l.marks[at] = m
	}
	return m, nil
}

// search searches the lines between two offsets.
func (l *sortedList) search(path string, from, to int64) (value string, ok bool, err error) {
	window, err := l.part(from, to)
	if err != nil {
		return "", false, err
	}
	end := []byte(escaper.Replace(path) + "\n")
	for rest := window; ; {
		i := bytes.Index(rest, end)
		if i < 0 {
			return "", false, nil
		}
		line := rest[bytes.LastIndexByte(rest[:i], '\n')+1 : i+len(end)]
		if at, value, err := l.split(line); err != nil || at == path {
			return value, err == nil, err
		}
		rest = rest[i+len(end):]
	}
}

// part returns the list between two offsets.
func (l *sortedList) part(from, to int64) ([]byte, error) {
	if b, ok := l.windows[from]; ok && int64(len(b)) == to-from {
		return b, nil
	}
	b := make([]byte, to-from)
	if _, err := l.file.ReadAt(b, from); err != nil {
		return nil, err
	}
	if len(l.windows) == findWindows {
		clear(l.windows)
	}
	l.windows[from] = b
	return b, nil
}

// splitDigest splits a line of a list of digests or of differences.
func splitDigest(line []byte) (path, digest string, err error) {
	digest, path, err = splitLine(line)
	if digest == beforeWord {
		path = "\x00" // no path
	}
	return path, digest, err
}

// splitLink splits a line of a list of hard links.
func splitLink(line []byte) (path, first string, err error) {
	_, both, err := splitLine(line)
	first, path, ok := strings.Cut(both, "\x00")
	if err == nil && !ok {
		err = errBroken
	}
	return path, first, err
}
