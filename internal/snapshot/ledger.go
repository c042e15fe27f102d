package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// The files that belong to a snapshot have its name and one of these suffixes. Others are in
// digests.go.
const (
	logSuffix    = ".log"    // what sessions noted while the snapshot was filled
	linksSuffix  = ".links"  // hard links
	failedSuffix = ".failed" // entries that are missing since they failed
	newSuffix    = ".new"    // a file that is not complete yet
	runSuffix    = ".run"    // temporary, of the sorter
)

// sortRoom is how much is sorted in memory, in bytes.
const sortRoom = 16 << 20

// Ledger notes what a snapshot holds while it is filled, over any number of sessions, and in the
// end writes its lists: the digests in the form of b3sum, sorted by path, the hard links, and the
// entries that failed. Its memory is bounded, whatever the number of files. Its methods are safe
// for concurrent use.
type Ledger struct {
	root  *os.Root
	name  string
	room  int
	small int64 // see smallList

	mu      sync.Mutex // guards what follows
	file    *os.File   // the log
	session int64      // offset of the present session in it
	out     *bufio.Writer
	fails   int64 // failures of the present session
	err     error // the first one
}

// OpenLedger begins the ledger of a snapshot, or continues it. root is the folder for its files.
// The caller closes the ledger.
func OpenLedger(root *os.Root, name string) (*Ledger, error) {
	file, err := root.OpenFile(name+logSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	size, err := truncateLog(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	l := &Ledger{
		root: root, name: name, room: sortRoom, small: smallList,
		file: file, session: size, out: bufio.NewWriterSize(file, 64<<10),
	}
	l.add(record{kind: sessionBegins})
	return l, nil
}

// truncateLog cuts off a record that a killed process wrote in part, and returns the size left.
func truncateLog(file *os.File) (size int64, err error) {
	in := bufio.NewReaderSize(file, 64<<10)
	for {
		_, n, err := readRecord(in)
		if err != nil {
			break
		}
		size += int64(n)
	}
	if err := file.Truncate(size); err != nil {
		return 0, err
	}
	return file.Seek(size, io.SeekStart)
}

// Committed notes the digest of a file that was received.
func (l *Ledger) Committed(path string, digest [32]byte) {
	l.add(record{kind: committed, path: path, digest: digest})
}

// Sparse notes a file that was received and has a digest that b3sum would not print.
func (l *Ledger) Sparse(path string) { l.add(record{kind: sparse, path: path}) }

// Reused notes a file that is that of the previous snapshot.
func (l *Ledger) Reused(path string) { l.add(record{kind: reused, path: path}) }

// Same notes a file that an earlier session received.
func (l *Ledger) Same(path string) { l.add(record{kind: same, path: path}) }

// Link notes that path is another name of the file first.
func (l *Ledger) Link(path, first string) { l.add(record{kind: link, path: path, first: first}) }

// Other notes a folder, a symlink or a special file.
func (l *Ledger) Other(path string) { l.add(record{kind: other, path: path}) }

// Failed notes an entry that is missing, and why. The path may be "" if a folder could not be
// listed.
func (l *Ledger) Failed(path, why string) {
	l.add(record{kind: failed, path: path, why: strings.Join(strings.Fields(why), " ")})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails++
}

// There visits the paths that this session noted as present, in the order of the notes. It may
// visit a path several times.
func (l *Ledger) There(visit func(path string)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.err, l.out.Flush()); err != nil {
		return err
	}
	part := io.NewSectionReader(l.file, l.session, math.MaxInt64-l.session)
	in := bufio.NewReaderSize(part, 64<<10)
	for {
		r, _, err := readRecord(in)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case r.kind != sessionBegins && r.kind != failed:
			visit(r.path)
		}
	}
}

func (l *Ledger) add(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(r.encode()); err != nil && l.err == nil {
		l.err = err
	}
}

// Close closes the log. The notes stay for a later session.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.out.Flush(), l.file.Close())
}

// Finish writes the lists of a complete snapshot, which holds what the last session noted. previous
// names the snapshot with the reused files, or is "". shares reports whether a file that an earlier
// session received is one of those: what is noted of it counts, since it may be damaged meanwhile.
// digest reads a file whose digest is not known. Nothing can be noted after Finish.
func (l *Ledger) Finish(previous string, shares func(path string) bool, digest func(path string) ([32]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.err, l.out.Flush())
	if err == nil {
		err = l.finishLocked(previous, shares, digest)
	}
	if err != nil {
		return fmt.Errorf("write the digests of the snapshot: %w", err)
	}
	return nil
}

func (l *Ledger) finishLocked(previous string, shares func(string) bool, digest func(string) ([32]byte, error)) (err error) {
	s := sorter{root: l.root, name: l.name, room: l.room}
	defer s.discard()
	session, err := l.sortInto(&s)
	if err != nil {
		return err
	}
	old := &digestReader{}
	if previous != "" {
		old, err = readDigests(l.root, previous)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	defer old.close()
	lists, err := l.createLists(previous)
	defer lists.discard()
	if err != nil {
		return err
	}
	known := func(group []record) (sum [32]byte, err error) {
		sum, ok := knownDigest(group, old)
		if now := group[0]; !ok && shares(now.path) {
			sum, ok = old.find(now.path)
		}
		if !ok {
			return digest(group[0].path)
		}
		return sum, nil
	}
	err = s.each(func(group []record) error {
		if group[len(group)-1].seq < session {
			return nil // the path does not exist any more
		}
		return lists.add(group, session, known)
	})
	if err := errors.Join(err, old.err()); err != nil {
		return err
	}
	return errors.Join(lists.keep(), l.root.Remove(l.name+logSuffix))
}

// sortInto feeds the log to a sorter, and returns the position at which its last session begins.
func (l *Ledger) sortInto(s *sorter) (session uint64, err error) {
	file, err := l.root.Open(l.name + logSuffix)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	for seq := uint64(0); ; seq++ {
		r, _, err := readRecord(in)
		if errors.Is(err, io.EOF) {
			return session, nil
		}
		if err != nil {
			return 0, err
		}
		r.seq = seq
		if r.kind == sessionBegins {
			session = seq
			continue
		}
		if err := s.add(r); err != nil {
			return 0, err
		}
	}
}

// knownDigest finds the digest of a file in the records about it, or in the previous snapshot.
func knownDigest(group []record, old *digestReader) (digest [32]byte, ok bool) {
	now := group[len(group)-1]
	switch now.kind {
	case committed:
		return now.digest, true
	case reused:
		return old.find(now.path)
	case same:
		// The last record of another kind counts. If that says reused, the digest is not known:
		// the file may have come from a snapshot before the previous one.
		for _, r := range group {
			if r.kind != same {
				digest, ok = r.digest, r.kind == committed
			}
		}
	case sessionBegins, sparse, link, other, failed:
	}
	return digest, ok
}

// ledgerLists are the lists that Finish writes.
type ledgerLists struct {
	digests *digestWriter
	links   *list
	fails   *list
}

func (l *Ledger) createLists(previous string) (x ledgerLists, err error) {
	if x.digests, err = writeDigests(l.root, l.name, previous, l.small); err != nil {
		return x, err
	}
	if x.links, err = createList(l.root, l.name+linksSuffix); err != nil {
		return x, err
	}
	if x.fails, err = createList(l.root, l.name+failedSuffix); err != nil {
		return x, err
	}
	if l.fails > 0 {
		err = x.fails.line(countWord, strconv.FormatInt(l.fails, 10))
	}
	return x, err
}

// add writes what the records of one path say.
func (x *ledgerLists) add(group []record, session uint64,
	digest func([]record) ([32]byte, error)) error {
	now := group[len(group)-1]
	switch now.kind {
	case link:
		return x.links.line("link", now.first+"\x00"+now.path)
	case other:
		return nil
	case failed:
		return x.fails.failures(group, session)
	case sessionBegins, committed, reused, same, sparse:
	}
	sum, err := digest(group)
	if err != nil {
		return err
	}
	return x.digests.add(now.path, sum)
}

func (x *ledgerLists) keep() error {
	return errors.Join(x.digests.keep(), x.links.keep(), x.fails.keepUnlessEmpty())
}

// discard removes the lists that were not kept.
func (x *ledgerLists) discard() {
	if x.digests != nil {
		x.digests.discard()
	}
	for _, l := range []*list{x.links, x.fails} {
		if l != nil {
			l.discard()
		}
	}
}

// failures writes the failures that a session noted for one path. For the path "" there may be
// several.
func (l *list) failures(group []record, session uint64) error {
	for _, r := range group {
		if r.seq >= session && r.kind == failed {
			if err := l.line(r.why, r.path); err != nil {
				return err
			}
		}
	}
	return nil
}
