package ledger

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// The digests of a snapshot are a list of their own, or the list of an earlier one, a hard link to which stays with each snapshot that needs it,
// and what differs from that. So any snapshot can be removed, and nothing has to be counted.
const (
	listSuffix = ".b3"
	baseSuffix = ".base"
	diffSuffix = ".diff"
)

// What stands in the place of a digest in a list of what differs.
const (
	goneWord   = "gone"   // there is no such file
	beforeWord = "before" // in the first line: bytes of the lists of what differs from the same base before this one
)

// smallList is the size, in bytes, up to which a list is written anew each time.
const smallList = 64 << 10

// digestWriter writes the digests of a snapshot, in the order of the paths, in both ways.
type digestWriter struct {
	root  *os.Root
	name  string
	small int64
	whole *list

	from   string // the base, "" for none
	base   *lines
	diff   *list
	before int64
}

// writeDigests begins the lists of a snapshot. previous is the one before, "" for none.
func writeDigests(root *os.Root, name, previous string, small int64) (d *digestWriter, err error) {
	d = &digestWriter{root: root, name: name, small: small, base: &lines{}}
	defer func() {
		if err != nil {
			d.discard()
		}
	}()
	if d.whole, err = create(root, name+listSuffix); err != nil || previous == "" {
		return d, err
	}
	if d.from, d.before, err = baseOf(root, previous); err != nil || d.from == "" {
		return d, err
	}
	if d.base, err = openLines(root, d.from); err != nil {
		return d, err
	}
	if d.diff, err = create(root, name+diffSuffix); err == nil {
		err = d.diff.line(beforeWord, strconv.FormatInt(d.before, 10))
	}
	return d, err
}

// baseOf returns the list that a snapshot after this one can be told from, "" for none, and the bytes of what was told from it until now.
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

// keep keeps the smaller one in the long run.
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
	if err := remove(d.root, base); err != nil { // a session that did not come to its end left it
		return err
	}
	if d.diff != nil && d.whole.size > d.small && !wantsWhole(d.whole.size, d.diff.size, d.before) && d.root.Link(d.from, base) == nil {
		return errors.Join(d.diff.keep(), remove(d.root, d.name+listSuffix))
	}
	return errors.Join(d.whole.keep(), remove(d.root, diff))
}

// wantsWhole tells whether a list of its own is worth its room, whole, instead of one of what differs, diff. before have been spent on such ones since
// the last whole one. When they come to as much as that, a whole one saves the growing differences from then on.
func wantsWhole(whole, diff, before int64) bool { return before+diff >= whole }

func (d *digestWriter) discard() {
	d.base.close()
	for _, l := range []*list{d.whole, d.diff} {
		if l != nil {
			l.discard()
		}
	}
}

// digestReader reads the digests of a snapshot, in the order of the paths. The zero one is empty.
type digestReader struct {
	base, diff lines
	path       string
	digest     [32]byte
	some       bool
}

// readDigests opens the digests of a complete snapshot. fs.ErrNotExist says that there are none.
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

// find returns the digest of a path. Paths are asked for in their order.
func (d *digestReader) find(path string) (digest [32]byte, ok bool) {
	for d.some && d.path < path {
		d.next()
	}
	if d.some && d.path == path {
		return d.digest, true
	}
	return digest, false
}

// Digests visits the digests of a complete snapshot, in the order of the paths. fs.ErrNotExist says that there are none.
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
