package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/fxfer/fxfer/internal/blockset"
)

// The checkpoint file is beside the partial file. Whoever writes either of them holds the lock of
// the partial file. Integers are little endian, CRC is CRC-32C (Castagnoli).
//
//	header, 512 bytes           record, 48 bytes
//	  0  magic "fxfer-ck"         0  kind
//	  8  uint32 version, 2        1  zero
//	 12  uint32 block size        4  int64 number, by kind
//	 16  int64 target size       12  32 bytes value, by kind
//	 24  source identity:        44  uint32 CRC of salt, record index (uint64)
//	     size, mtime ns, inode       and bytes 0–43
//	     (device left out)
//	 48  salt, 8 random bytes    kind  number   value
//	 56  uint16 name length      done  block    its digest
//	 58  final name, zero padded drop  block    zero
//	320  uint64 inode of the     sync  records  zero
//	     partial file            boot  0        boot id, zero where there is none
//	508  uint32 CRC of 0–507      range first   number of blocks, int64
//	                              seal  changed zero
//
// A record counts only if all records before it are sound. The first bad record ends the log, and
// the rest is cut off. Salt and index in the CRC reject a record of another log, or of another
// place in this one.
//
// A sync record with number n says that everything the first n records claim is on the medium. It
// is written after the data was synced. Later claims hold only in the run of the kernel in which
// they were made: a killed process does not lose that kernel's page cache. The last boot record
// names the run. In any other run, later claims are cut off.
const (
	checkpointMagic   = "fxfer-ck"
	checkpointVersion = 2
	headerSize        = 512
	recordSize        = 48

	recordDone = 1
	recordDrop = 2
	recordSync = 3
	recordBoot = 4
	// recordRange says that a range of blocks is complete, those without data included. A later record
	// of one of its blocks undoes that for this block.
	recordRange = 5
	// recordSeal is the last record of a log whose partial file nobody has open: when the file was last
	// changed, in ns since 1970. Whoever finds another time, or another last record, can't know that
	// complete ranges are as they came.
	recordSeal = 6

	maxBuffered = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logHeader is what a log must agree on with a new run that resumes it.
type logHeader struct {
	blockSize int64
	size      int64
	source    Identity
	name      string
	partial   uint64 // inode of the partial file, 0 where the system has none
	salt      [8]byte
}

func (h *logHeader) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, checkpointMagic)
	binary.LittleEndian.PutUint32(b[8:], checkpointVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.blockSize))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.size))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.source.Size))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.source.ModTime))
	binary.LittleEndian.PutUint64(b[40:], h.source.Ino)
	copy(b[48:], h.salt[:])
	binary.LittleEndian.PutUint16(b[56:], uint16(len(h.name)))
	copy(b[58:], h.name)
	binary.LittleEndian.PutUint64(b[320:], h.partial)
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], castagnoli))
	return b
}

// decodeHeader reads a header of any target and source.
func decodeHeader(b []byte) (h logHeader, ok bool) {
	length := int(binary.LittleEndian.Uint16(b[56:]))
	if length > maxElement {
		return h, false
	}
	h = logHeader{
		blockSize: int64(binary.LittleEndian.Uint32(b[12:])),
		size:      int64(binary.LittleEndian.Uint64(b[16:])),
		source: Identity{
			Size:    int64(binary.LittleEndian.Uint64(b[24:])),
			ModTime: int64(binary.LittleEndian.Uint64(b[32:])),
			Ino:     binary.LittleEndian.Uint64(b[40:]),
		},
		name:    string(b[58 : 58+length]),
		partial: binary.LittleEndian.Uint64(b[320:]),
	}
	return h, h.accepts(b) && h.blockSize > 0 && h.size >= 0
}

// accepts reports whether b is the header of a log for the same target and source. It adopts the
// salt of b.
func (h *logHeader) accepts(b []byte) bool {
	copy(h.salt[:], b[48:])
	return bytes.Equal(b, h.encode())
}

type record struct {
	kind   byte
	number int64
	value  [32]byte
}

func (h *logHeader) encodeRecord(b []byte, index int64, r record) []byte {
	start := len(b)
	b = append(b, r.kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.number))
	b = append(b, r.value[:]...)
	return binary.LittleEndian.AppendUint32(b, h.recordCRC(b[start:], index))
}

func (h *logHeader) decodeRecord(b []byte, index int64) (record, bool) {
	r := record{kind: b[0], number: int64(binary.LittleEndian.Uint64(b[4:]))}
	copy(r.value[:], b[12:])
	return r, binary.LittleEndian.Uint32(b[44:]) == h.recordCRC(b[:44], index)
}

func (h *logHeader) recordCRC(b []byte, index int64) uint32 {
	var seed [16]byte
	copy(seed[:], h.salt[:])
	binary.LittleEndian.PutUint64(seed[8:], uint64(index))
	return crc32.Update(crc32.Checksum(seed[:], castagnoli), castagnoli, b)
}

// checkpointLog appends to a checkpoint file. append is cheap: it only buffers. The methods are
// safe for concurrent use.
type checkpointLog struct {
	header logHeader
	file   *os.File

	mu   sync.Mutex // guards the following
	buf  []byte     // encoded records not handed to the kernel yet
	next int64      // index of the next record
	dead bool       // accepts no more records

	writing sync.Mutex // held while buf is written out; guards spare
	spare   []byte
}

// earlierRun is what a log says about the runs before this one.
type earlierRun struct {
	trusted int64           // records that count
	synced  int64           // how many of these lie under the last sync record
	boot    [32]byte        // last boot record
	latest  map[int64]int64 // block → index of its record that counts, for blocks with several; -1 if dropped
	have    blockset.Set    // blocks that are done
	durable blockset.Set    // blocks that are done by the synced records
	ranges  blockset.Set    // complete ranges
	sealed  int64           // by the last record, 0 if that is another one
}

// createLog starts the log name in folder, and replaces an existing one.
func createLog(folder *os.Root, name string, header logHeader) (*checkpointLog, error) {
	if err := removeIfThere(folder, name); err != nil {
		return nil, err
	}
	file, err := folder.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, _ = rand.Read(header.salt[:]) // never fails
	if _, err := file.WriteAt(header.encode(), 0); err != nil {
		file.Close()
		return nil, err
	}
	l := &checkpointLog{header: header, file: file}
	return l, l.begin([32]byte{})
}

// resumeLog opens the log name in folder if it has this header, and cuts off what cannot be
// trusted. Otherwise the log is nil.
func resumeLog(folder *os.Root, name string, header logHeader) (*checkpointLog, *earlierRun, error) {
	file, info, err := openRegular(folder, name, os.O_RDWR)
	if err == nil && !isOurs(info) {
		file.Close()
		return nil, nil, nil
	}
	if err != nil {
		// Whatever the reason is, createLog makes nothing worse.
		return nil, nil, nil
	}
	b := make([]byte, headerSize)
	if _, err := file.ReadAt(b, 0); err != nil || !header.accepts(b) {
		file.Close()
		return nil, nil, nil
	}
	l := &checkpointLog{header: header, file: file}
	run, err := l.replay(bootID())
	if err == nil {
		err = l.cut(run.trusted, run.synced)
	}
	if err == nil {
		err = l.begin(run.boot)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return l, run, nil
}

// begin writes a boot record, unless the log's last one names the running kernel.
func (l *checkpointLog) begin(last [32]byte) error {
	if boot := bootID(); boot != last {
		l.append(record{kind: recordBoot, value: boot})
	}
	return l.flush()
}

// replay reads the log twice: first to find how far a kernel with this boot id can trust it, then
// to collect the claims of the trusted part.
func (l *checkpointLog) replay(boot [32]byte) (*earlierRun, error) {
	run := &earlierRun{latest: map[int64]int64{}}
	err := l.each(-1, func(index int64, r record) error {
		run.sealed = 0
		switch r.kind {
		case recordSync:
			if r.number > run.synced && r.number <= index {
				run.synced = r.number
			}
		case recordBoot:
			run.boot = r.value
		case recordSeal:
			run.sealed = r.number
		}
		run.trusted = index + 1
		return nil
	})
	if err != nil {
		return nil, err
	}
	if boot == ([32]byte{}) || run.boot != boot {
		run.trusted, run.boot, run.sealed = run.synced, [32]byte{}, 0
	}
	return run, l.collect(run)
}

// collect takes what the trusted records of run claim.
func (l *checkpointLog) collect(run *earlierRun) error {
	apply := func(to *blockset.Set, r record) {
		switch r.kind {
		case recordDone:
			to.Add(r.number)
		case recordDrop:
			to.Remove(r.number)
		}
	}
	return l.each(run.trusted, func(index int64, r record) error {
		_, several := run.latest[r.number]
		switch {
		case r.kind == recordDone && (several || run.have.Has(r.number)):
			run.latest[r.number] = index
		case r.kind == recordDrop:
			run.latest[r.number] = -1
		}
		apply(&run.have, r)
		run.apply(r)
		if index < run.synced {
			apply(&run.durable, r)
		}
		return nil
	})
}

// apply takes what a record says about ranges.
func (run *earlierRun) apply(r record) {
	switch r.kind {
	case recordDone, recordDrop:
		run.ranges.Remove(r.number)
	case recordRange:
		if count := int64(binary.LittleEndian.Uint64(r.value[:])); r.number >= 0 && count > 0 && count < 1<<62-r.number {
			run.ranges.AddRun(r.number, count)
		}
	}
}

// recorded calls visit with each block in have and its digest in the log, as Partial.Recorded does.
func (run *earlierRun) recorded(l *checkpointLog, visit func(block int64, cv [32]byte) error) error {
	visited := int64(0)
	err := l.each(run.trusted, func(index int64, r record) error {
		if r.kind != recordDone || !run.have.Has(r.number) {
			return nil
		}
		if latest, several := run.latest[r.number]; several && latest != index {
			return nil
		}
		visited++
		return visit(r.number, r.value)
	})
	if err == nil && visited != run.have.Count() {
		err = errors.New("the checkpoint became shorter meanwhile")
	}
	return err
}

// each calls visit for the log's first sound records, in order and in constant memory. It stops
// after limit records, unless limit is negative.
func (l *checkpointLog) each(limit int64, visit func(index int64, r record) error) error {
	chunk := make([]byte, 1024*recordSize)
	for index := int64(0); limit < 0 || index < limit; {
		n, err := l.file.ReadAt(chunk, headerSize+index*recordSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read checkpoint: %w", bare(err))
		}
		for b := chunk[:n]; len(b) >= recordSize && (limit < 0 || index < limit); b = b[recordSize:] {
			r, sound := l.header.decodeRecord(b, index)
			if !sound {
				return nil
			}
			if err := visit(index, r); err != nil {
				return err
			}
			index++
		}
		if err != nil {
			return nil // end of the log
		}
	}
	return nil
}

// cut keeps the first n records, and drops the others and the buffered ones. The first synced
// records are on the medium with what they claim. If cut removes their sync record, it writes that
// again.
func (l *checkpointLog) cut(records, synced int64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.buf, l.next = l.buf[:0], records
	l.mu.Unlock()
	if err := l.file.Truncate(headerSize + records*recordSize); err != nil {
		return fmt.Errorf("cut checkpoint: %w", bare(err))
	}
	if records == synced && synced > 0 {
		l.append(record{kind: recordSync, number: synced})
	}
	return l.flushLocked()
}

// giveUp cuts the log back to what is on the medium, as far as possible, and refuses further
// records.
func (l *checkpointLog) giveUp(synced int64) {
	_ = l.cut(synced, synced)
	l.mu.Lock()
	l.buf, l.dead = nil, true
	l.mu.Unlock()
}

// append buffers a record.
func (l *checkpointLog) append(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	l.buf = l.header.encodeRecord(l.buf, l.next, r)
	l.next++
}

// length returns the number of records, including buffered ones.
func (l *checkpointLog) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// flush hands all buffered records to the kernel.
func (l *checkpointLog) flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.flushLocked()
}

// tryFlush is flush, but does not wait for another goroutine that is flushing: that one also writes
// what was buffered meanwhile. If it gets no CPU and more than maxBuffered records gather,
// everybody waits for it: a killed process loses buffered records.
func (l *checkpointLog) tryFlush() error {
	for {
		switch n := l.buffered(); {
		case n == 0:
			return nil
		case n > maxBuffered:
			l.writing.Lock()
		case !l.writing.TryLock():
			return nil
		}
		err := l.flushLocked()
		l.writing.Unlock()
		if err != nil {
			return err
		}
	}
}

// buffered returns the number of records that neither reached the kernel nor are on their way
// there.
func (l *checkpointLog) buffered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buf) / recordSize
}

func (l *checkpointLog) flushLocked() error {
	l.mu.Lock()
	out := l.buf
	first := l.next - int64(len(out)/recordSize)
	if len(out) > 0 {
		l.buf, l.spare = l.spare[:0], out
	}
	l.mu.Unlock()
	if len(out) == 0 {
		return nil
	}
	if _, err := l.file.WriteAt(out, headerSize+first*recordSize); err != nil {
		return fmt.Errorf("write checkpoint: %w", bare(err))
	}
	return nil
}

// markSynced records that what the first n records claim is on the medium. It returns when that
// sync record is on the medium, too.
func (l *checkpointLog) markSynced(records int64) error {
	l.append(record{kind: recordSync, number: records})
	if err := l.flush(); err != nil {
		return err
	}
	if err := syncData(l.file); err != nil {
		return fmt.Errorf("sync checkpoint: %w", bare(err))
	}
	return nil
}
