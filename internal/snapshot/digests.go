package snapshot

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// A snapshot has its digests in a list of its own; or it has a list of the differences from the
// list of an earlier snapshot, and a hard link to that. So any snapshot can be removed, and nothing
// counts references.
const (
	listSuffix = ".b3"
	baseSuffix = ".base"
	diffSuffix = ".diff"
)

// Words in a list of differences, in place of a digest.
const (
	goneWord = "gone" // the file does not exist
	// beforeWord stands in the first line, with the size of all earlier lists of differences from
	// the same base, in bytes.
	beforeWord = "before"
)

// smallList is the size up to which every snapshot gets a list of its own, in bytes.
const smallList = 64 << 10

// digestWriter writes the digests of a snapshot in both ways, in the order of the paths.
type digestWriter struct {
	root  *os.Root
	name  string
	small int64
	whole *list

	from   string // file name of the base, "" if there is none
	base   *lines
	diff   *list
	before int64 // see beforeWord
}

// writeDigests begins the lists of a snapshot. previous names the snapshot before it, or is "". The
// caller discards the lists, also after an error.
func writeDigests(root *os.Root, name, previous string, small int64) (d *digestWriter, err error) {
	d = &digestWriter{root: root, name: name, small: small, base: &lines{}}
	if d.whole, err = createList(root, name+listSuffix); err != nil || previous == "" {
		return d, err
	}
	if d.from, d.before, err = baseOf(root, previous); err != nil || d.from == "" {
		return d, err
	}
	if d.base, err = openLines(root, d.from); err != nil {
		return d, err
	}
	if d.diff, err = createList(root, name+diffSuffix); err == nil {
		err = d.diff.line(beforeWord, strconv.FormatInt(d.before, 10))
	}
	return d, err
}

// baseOf returns the file that the next snapshot's list of differences can refer to, "" if there is
// none, and the size of all lists that refer to it so far.
func baseOf(root *os.Root, name string) (file string, before int64, err error) {
	if _, err = root.Lstat(name + listSuffix); err == nil {
		return name + listSuffix, 0, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	l, err := openLines(root, name+diffSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer l.close()
	info, err := l.file.Stat()
	if err != nil {
		return "", 0, err
	}
	return name + baseSuffix, l.before + info.Size(), nil
}

func (d *digestWriter) add(path string, digest [32]byte) error {
	text := hex.EncodeToString(digest[:])
	if err := d.whole.line(text, path); err != nil || d.diff == nil {
		return err
	}
	for ; d.base.some && d.base.path < path; d.base.next() {
		if err := d.diff.line(goneWord, d.base.path); err != nil {
			return err
		}
	}
	if d.base.some && d.base.path == path {
		same := d.base.digest == digest
		if d.base.next(); same {
			return nil
		}
	}
	return d.diff.line(text, path)
}

// keep keeps the list that takes less room in the long run.
func (d *digestWriter) keep() error {
	if d.diff != nil {
		for ; d.base.some; d.base.next() {
			if err := d.diff.line(goneWord, d.base.path); err != nil {
				return err
			}
		}
		if d.base.err != nil {
			return d.base.err
		}
	}
	base, diff := d.name+baseSuffix, d.name+diffSuffix
	if err := removeFiles(d.root, base); err != nil { // an interrupted session may have left it
		return err
	}
	if d.wantsDiff() && d.root.Link(d.from, base) == nil {
		return errors.Join(d.diff.keep(), removeFiles(d.root, d.name+listSuffix))
	}
	return errors.Join(d.whole.keep(), removeFiles(d.root, diff))
}

func (d *digestWriter) wantsDiff() bool {
	return d.diff != nil && d.whole.size > d.small &&
		!wantsWhole(d.whole.size, d.diff.size, d.before)
}

// wantsWhole decides between a whole list and a list of differences, from their sizes. before is
// the size of all lists of differences since the last whole list. Once they take as much as a whole
// list, a new whole list saves room: from then on the differences are small again.
func wantsWhole(whole, diff, before int64) bool { return before+diff >= whole }

func (d *digestWriter) discard() {
	d.base.close()
	for _, l := range []*list{d.whole, d.diff} {
		if l != nil {
			l.discard()
		}
	}
}

// digestReader reads the digests of a snapshot in the order of the paths. The zero value is empty.
type digestReader struct {
	base, diff lines
	path       string
	digest     [32]byte
	some       bool // path and digest are valid
}

// readDigests opens the digests of a complete snapshot. The error is fs.ErrNotExist if it has none.
func readDigests(root *os.Root, name string) (*digestReader, error) {
	d := &digestReader{}
	base, err := openLines(root, name+listSuffix)
	diff := &lines{}
	if errors.Is(err, fs.ErrNotExist) {
		if base, err = openLines(root, name+baseSuffix); err == nil {
			diff, err = openLines(root, name+diffSuffix)
		}
	}
	d.base, d.diff = *base, *diff
	if err != nil {
		d.close()
		return &digestReader{}, err
	}
	d.next()
	return d, nil
}

func (d *digestReader) close() {
	d.base.close()
	d.diff.close()
}

func (d *digestReader) err() error { return errors.Join(d.base.err, d.diff.err) }

func (d *digestReader) next() {
	for d.some = false; d.base.some || d.diff.some; {
		if !d.diff.some || d.base.some && d.base.path < d.diff.path {
			d.path, d.digest, d.some = d.base.path, d.base.digest, true
			d.base.next()
			return
		}
		if d.base.some && d.base.path == d.diff.path {
			d.base.next()
		}
		d.path, d.digest, d.some = d.diff.path, d.diff.digest, !d.diff.gone
		if d.diff.next(); d.some {
			return
		}
	}
}

// find returns the digest of a path. The caller asks for paths in their order.
func (d *digestReader) find(path string) (digest [32]byte, ok bool) {
	for d.some && d.path < path {
		d.next()
	}
	if d.some && d.path == path {
		return d.digest, true
	}
	return digest, false
}

// Digests visits the digests of a complete snapshot in the order of the paths. The error is
// fs.ErrNotExist if it has none.
func Digests(root *os.Root, name string, visit func(path string, digest [32]byte) error) error {
	d, err := readDigests(root, name)
	if err != nil {
		return err
	}
	defer d.close()
	for ; d.some; d.next() {
		if err := visit(d.path, d.digest); err != nil {
			return err
		}
	}
	return d.err()
}

// DigestsOf returns the digests of those files of a complete snapshot that are wanted, as far as
// they are noted.
func DigestsOf[T any](root *os.Root, name string, wanted map[string]T) (map[string][32]byte, error) {
	found := make(map[string][32]byte)
	err := Digests(root, name, func(path string, digest [32]byte) error {
		if _, ok := wanted[path]; ok {
			found[path] = digest
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}

// digestsOfLinks returns the digests of files of a complete snapshot by their further names.
func digestsOfLinks(root *os.Root, name string) (map[string][32]byte, error) {
	firsts := make(map[string][]string)
	err := Links(root, name, func(first, path string) error {
		firsts[first] = append(firsts[first], path)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found, err := DigestsOf(root, name, firsts)
	digests := make(map[string][32]byte)
	for first, digest := range found {
		for _, path := range firsts[first] {
			digests[path] = digest
		}
	}
	return digests, err
}
