// Package ledger keeps the digests of a snapshot's files beside it: what was received while it was filled, over any number of
// sessions, and in the end a list in the form of b3sum, sorted by path, with what did not change taken from that of the
// snapshot before, or only what differs from such a list. Memory is bounded whatever the number of files.
package ledger

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The files of a snapshot, by what follows its name: what was received, the digests, the hard links, and what is not whole yet.
const (
	logSuffix    = ".log"
	linksSuffix  = ".links"
	failedSuffix = ".failed"
	newSuffix    = ".new"
	runSuffix    = ".run"
)

// kind is what is known of a file.
type kind byte

const (
	begin     kind = iota + 1 // a session
	committed                 // received, with its digest
	reused                    // from the snapshot before
	same                      // from an earlier session
	sparse                    // received, its digest is not known
	link                      // another name of a file
	other                     // a folder, a symlink or a special file
	failed                    // it is not there
)

type record struct {
	kind   kind
	path   string
	digest [32]byte
	first  string // of a link: the file's other name; of what failed: why
	seq    uint64
}

// maxRecord bounds an encoded record: two paths and what is beside them.
const maxRecord = 16 << 10

// sortRoom is how much is sorted in memory, in bytes.
const sortRoom = 16 << 20

// Ledger is of one snapshot that is being filled. Its methods are safe for concurrent use.
type Ledger struct {
	root  *os.Root
	name  string
	room  int
	small int64 // see smallList

	mu      sync.Mutex
	file    *os.File
	session int64 // where the present one begins in it
	out     *bufio.Writer
	fails   int64 // in it
	err     error // the first
}

// Open goes on with the ledger of a snapshot, or begins it. root is the folder for it. The caller closes it.
func Open(root *os.Root, name string) (*Ledger, error) {
	file, err := root.OpenFile(name+logSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	// What a killed process wrote in part is cut off.
	whole := int64(0)
	in := bufio.NewReaderSize(file, 64<<10)
	for {
		_, n, err := read(in)
		if err != nil {
			break
		}
		whole += int64(n)
	}
	err = file.Truncate(whole)
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	l := &Ledger{root: root, name: name, room: sortRoom, small: smallList, file: file, session: whole, out: bufio.NewWriterSize(file, 64<<10)}
	l.add(record{kind: begin})
	return l, nil
}

// Committed notes the digest of a file that was received.
func (l *Ledger) Committed(path string, digest [32]byte) {
	l.add(record{kind: committed, path: path, digest: digest})
}

// Sparse notes a file that was received, and of which b3sum would say something else than the sender.
func (l *Ledger) Sparse(path string) { l.add(record{kind: sparse, path: path}) }

// Reused notes a file that the snapshot before has, too.
func (l *Ledger) Reused(path string) { l.add(record{kind: reused, path: path}) }

// Same notes a file that an earlier session received.
func (l *Ledger) Same(path string) { l.add(record{kind: same, path: path}) }

// Link notes another name of the file first.
func (l *Ledger) Link(path, first string) { l.add(record{kind: link, path: path, first: first}) }

// Other notes what is no file.
func (l *Ledger) Other(path string) { l.add(record{kind: other, path: path}) }

// Failed notes what is not there, and why. Of what could not be listed the path may be "".
func (l *Ledger) Failed(path, why string) {
	l.add(record{kind: failed, path: path, first: strings.Join(strings.Fields(why), " ")})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails++
}

// There visits what this session has noted as being there, in the order in which it was, some perhaps several times.
func (l *Ledger) There(visit func(path string)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.out.Flush()); err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(l.file, l.session, math.MaxInt64-l.session), 64<<10)
	for {
		r, _, err := read(in)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case r.kind != begin && r.kind != failed:
			visit(r.path)
		}
	}
}

func (l *Ledger) add(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(encode(&r)); err != nil && l.err == nil {
		l.err = err
	}
}

// Close ends the use of the ledger. What was noted stays for a later session.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.err, l.out.Flush(), l.file.Close())
	return err
}

// encode is the length of the rest, its CRC, and the rest.
func encode(r *record) []byte {
	b := []byte{byte(r.kind)}
	b = binary.AppendUvarint(b, uint64(len(r.path)))
	b = append(b, r.path...)
	switch r.kind {
	case committed:
		b = append(b, r.digest[:]...)
	case link, failed:
		b = append(b, r.first...)
	case begin, reused, same, sparse, other:
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	head = binary.BigEndian.AppendUint32(head, crc32.ChecksumIEEE(b))
	return append(head, b...)
}

var errBroken = errors.New("broken record")

// read returns the next record, and its length.
func read(in io.Reader) (r record, n int, err error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return r, 0, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > maxRecord {
		return r, 0, errBroken
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(in, b); err != nil {
		return r, 0, errBroken
	}
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(head[4:]) {
		return r, 0, errBroken
	}
	r.kind = kind(b[0])
	length, k := binary.Uvarint(b[1:])
	rest := b[1+max(k, 0):]
	if k <= 0 || length > uint64(len(rest)) {
		return r, 0, errBroken
	}
	r.path, b = string(rest[:length]), rest[length:]
	switch r.kind {
	case committed:
		if len(b) != len(r.digest) {
			return r, 0, errBroken
		}
		copy(r.digest[:], b)
	case link, failed:
		r.first = string(b)
	case begin, reused, same, sparse, other:
	default:
		return r, 0, errBroken
	}
	return r, len(head) + int(size), nil
}

// Finish writes the lists of a snapshot that is complete: what the last session noted is what it holds. previous is the snapshot that
// files were reused of, "" for none. digest reads a file of which nothing is known. The ledger takes nothing any more.
func (l *Ledger) Finish(previous string, digest func(path string) ([32]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.err, l.out.Flush())
	if err == nil {
		err = l.finish(previous, digest)
	}
	if err != nil {
		return fmt.Errorf("the snapshot's digests: %w", err)
	}
	return nil
}

func (l *Ledger) finish(previous string, digest func(path string) ([32]byte, error)) (err error) {
	s := sorter{root: l.root, name: l.name, room: l.room}
	defer s.discard()
	session, err := l.sortInto(&s)
	if err != nil {
		return err
	}
	old := &digestReader{}
	if previous != "" {
		if old, err = readDigests(l.root, previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	defer old.close()
	list, err := writeDigests(l.root, l.name, previous, l.small)
	if err != nil {
		return err
	}
	defer list.discard()
	links, err := create(l.root, l.name+linksSuffix)
	if err != nil {
		return err
	}
	defer links.discard()
	fails, err := create(l.root, l.name+failedSuffix)
	if err != nil {
		return err
	}
	defer fails.discard()
	if l.fails > 0 {
		if err := fails.line(countWord, strconv.FormatInt(l.fails, 10)); err != nil {
			return err
		}
	}
	err = s.each(func(group []record) error {
		now := group[len(group)-1]
		if now.seq < session {
			return nil // it is gone
		}
		known, ok := now.digest, now.kind == committed
		switch now.kind {
		case link:
			return links.line("link", now.first+"\x00"+now.path)
		case same: // unless it came from a snapshot that may not be the previous one
			for _, r := range group {
				if r.kind != same {
					known, ok = r.digest, r.kind == committed
				}
			}
		case reused:
			known, ok = old.find(now.path)
		case other:
			return nil
		case failed:
			return fails.failures(group, session)
		case begin, committed, sparse:
		}
		if !ok {
			var err error
			if known, err = digest(now.path); err != nil {
				return err
			}
		}
		return list.add(now.path, known)
	})
	if err == nil {
		err = old.err()
	}
	if err != nil {
		return err
	}
	return errors.Join(list.keep(), links.keep(), fails.keepSome(), l.root.Remove(l.name+logSuffix))
}

// failures writes what a session noted of one path: of what could not be listed, there may be several.
func (l *list) failures(group []record, session uint64) error {
	for _, r := range group {
		if r.seq >= session && r.kind == failed {
			if err := l.line(r.first, r.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// sortInto feeds the log to a sorter, and returns where its last session begins.
func (l *Ledger) sortInto(s *sorter) (session uint64, err error) {
	file, err := l.root.Open(l.name + logSuffix)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	for seq := uint64(0); ; seq++ {
		r, _, err := read(in)
		if errors.Is(err, io.EOF) {
			return session, nil
		}
		if err != nil {
			return 0, err
		}
		r.seq = seq
		if r.kind == begin {
			session = seq
			continue
		}
		if err := s.add(r); err != nil {
			return 0, err
		}
	}
}

// sorter sorts records by path and sequence, in runs of bounded size.
type sorter struct {
	root *os.Root
	name string
	room int
	held []record
	size int
	file *os.File // all runs, one after the other
	ends []int64
}

func (s *sorter) add(r record) error {
	s.held = append(s.held, r)
	if s.size += 128 + len(r.path) + len(r.first); s.size < s.room {
		return nil
	}
	return s.spill()
}

func compare(a, b *record) int {
	return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.seq, b.seq))
}

func (s *sorter) sort() { slices.SortFunc(s.held, func(a, b record) int { return compare(&a, &b) }) }

func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = s.root.OpenFile(s.name+runSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
	}
	s.sort()
	out := bufio.NewWriterSize(s.file, 64<<10)
	for i := range s.held {
		b := binary.AppendUvarint(nil, s.held[i].seq)
		if _, err := out.Write(append(b, encode(&s.held[i])...)); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	end, err := s.file.Seek(0, io.SeekCurrent)
	s.ends = append(s.ends, end)
	s.held, s.size = s.held[:0], 0
	return err
}

func (s *sorter) discard() {
	if s.file != nil {
		s.file.Close()
		_ = s.root.Remove(s.name + runSuffix)
	}
}

// run is a sorted part.
type run struct {
	next record
	in   *bufio.Reader
}

func (r *run) advance() error {
	seq, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	if r.next, _, err = read(r.in); err != nil {
		return err
	}
	r.next.seq = seq
	return nil
}

type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compare(&r[i].next, &r[j].next) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// each visits the records of each path, in order.
func (s *sorter) each(visit func(group []record) error) error {
	if s.file == nil {
		s.sort()
		for len(s.held) > 0 {
			n := 1
			for n < len(s.held) && s.held[n].path == s.held[0].path {
				n++
			}
			if err := visit(s.held[:n]); err != nil {
				return err
			}
			s.held = s.held[n:]
		}
		return nil
	}
	if len(s.held) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	var all runs
	from := int64(0)
	for _, end := range s.ends {
		r := &run{in: bufio.NewReaderSize(io.NewSectionReader(s.file, from, end-from), 16<<10)}
		if err := r.advance(); err != nil {
			return err
		}
		all, from = append(all, r), end
	}
	heap.Init(&all)
	var group []record
	for len(all) > 0 {
		next := all[0].next
		if len(group) > 0 && group[0].path != next.path {
			if err := visit(group); err != nil {
				return err
			}
			group = group[:0]
		}
		group = append(group, next)
		switch err := all[0].advance(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&all)
		case err != nil:
			return err
		default:
			heap.Fix(&all, 0)
		}
	}
	if len(group) > 0 {
		return visit(group)
	}
	return nil
}
