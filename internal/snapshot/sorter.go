package snapshot

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
)

// sorter sorts records by path and position. It holds a bounded number of them in memory, and
// writes the rest to a file in sorted runs, which it merges in the end.
type sorter struct {
	root *os.Root
	name string // of the snapshot
	room int    // bytes to hold in memory

	held []record
	size int
	file *os.File // all runs, one after the other
	ends []int64  // of the runs
}

func (s *sorter) add(r record) error {
	s.held = append(s.held, r)
	if s.size += 128 + len(r.path) + len(r.first) + len(r.why); s.size < s.room {
		return nil
	}
	return s.spill()
}

func compareRecords(a, b *record) int {
	return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.seq, b.seq))
}

func (s *sorter) sort() {
	slices.SortFunc(s.held, func(a, b record) int { return compareRecords(&a, &b) })
}

// spill writes the records in memory as a run.
func (s *sorter) spill() (err error) {
	if s.file == nil {
		flags := os.O_RDWR | os.O_CREATE | os.O_TRUNC
		if s.file, err = s.root.OpenFile(s.name+runSuffix, flags, 0o600); err != nil {
			return err
		}
	}
	s.sort()
	out := bufio.NewWriterSize(s.file, 64<<10)
	for i := range s.held {
		b := binary.AppendUvarint(nil, s.held[i].seq)
		if _, err := out.Write(append(b, s.held[i].encode()...)); err != nil {
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

// each visits the records of one path after the other.
func (s *sorter) each(visit func(group []record) error) error {
	if s.file == nil {
		return s.eachHeld(visit)
	}
	if len(s.held) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	runs, err := s.openRuns()
	if err != nil {
		return err
	}
	var group []record
	for len(runs) > 0 {
		next := runs[0].next
		if len(group) > 0 && group[0].path != next.path {
			if err := visit(group); err != nil {
				return err
			}
			group = group[:0]
		}
		group = append(group, next)
		if err := runs.advance(); err != nil {
			return err
		}
	}
	if len(group) > 0 {
		return visit(group)
	}
	return nil
}

func (s *sorter) eachHeld(visit func(group []record) error) error {
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

// run is a sorted part of the file.
type run struct {
	next record
	in   *bufio.Reader
}

func (r *run) advance() error {
	seq, err := binary.ReadUvarint(r.in)
	if err != nil {
		return err
	}
	if r.next, _, err = readRecord(r.in); err != nil {
		return err
	}
	r.next.seq = seq
	return nil
}

func (s *sorter) openRuns() (all runs, err error) {
	from := int64(0)
	for _, end := range s.ends {
		part := io.NewSectionReader(s.file, from, end-from)
		r := &run{in: bufio.NewReaderSize(part, 16<<10)}
		if err := r.advance(); err != nil {
			return nil, err
		}
		all, from = append(all, r), end
	}
	heap.Init(&all)
	return all, nil
}

// runs is a heap: the run with the least record is the first.
type runs []*run

// advance goes on to the next record.
func (r *runs) advance() error {
	switch err := (*r)[0].advance(); {
	case errors.Is(err, io.EOF):
		heap.Pop(r)
	case err != nil:
		return err
	default:
		heap.Fix(r, 0)
	}
	return nil
}

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compareRecords(&r[i].next, &r[j].next) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }

// Pop implements heap.Interface.
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
