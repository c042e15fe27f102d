// Package compress encodes blocks with zstd (RFC 8878) and decides when that pays off.
//
// Encode and Decode work in place, so a data stream needs no second buffer. All streams of the
// process share their memory, which grows with the number of cores and not with the number of
// streams. An encoded block is one zstd frame with the block's length. It has no dictionary, and no
// checksum: the block's digest covers the decoded data.
package compress

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// MaxBlock is the length of the longest block and the encoder's window, in bytes.
	MaxBlock = 1 << 20

	// minBlock is the length of the shortest block that is worth a frame, in bytes.
	minBlock = 128
	// maxWorkers limits how many blocks are encoded at the same time, and how many are decoded.
	// That limits the memory: an encoder takes about 3 MiB, a decoder 1.3 MiB.
	maxWorkers = 6

	// A block of more than probeFrom bytes is encoded only if samples of it shrink.
	probeFrom = 8 << 10
	// A sample has so many bytes, and there is one for each probeEvery bytes of a block, within
	// these limits. With fewer samples, random bytes look compressible, and the encoder wastes time
	// on them.
	sample                 = 1 << 10
	probeEvery             = 32 << 10
	minSamples, maxSamples = 4, 8

	// minStretch is how many bytes each zstd block of a frame must decode to on average, after the
	// first one. Every zstd block can make the decoder build new tables. That takes microseconds
	// and costs a hostile peer only a few bytes.
	minStretch = 1 << 10
	// zstdBlockHeader is the length of Block_Header (RFC 8878, 3.1.1.2). rle is the Block_Type with
	// one byte of content.
	zstdBlockHeader, rle = 3, 1
)

// worth reports whether n bytes instead of size are worth the decoding: at least a tenth less.
func worth(n, size int) bool {
	return n <= size-size/10
}

// promising reports whether samples shrink enough: at least a sixteenth less. They cannot show
// repetitions that are farther apart than a sample is long.
func promising(n, size int) bool {
	return n <= size-size/16
}

// workers lends a T to as many goroutines as there are cores, but at most to maxWorkers. The
// garbage collector may free idle ones.
type workers[T any] struct {
	slots chan struct{}
	idle  sync.Pool
}

func newWorkers[T any](fresh func() *T) *workers[T] {
	return &workers[T]{
		slots: make(chan struct{}, min(runtime.GOMAXPROCS(0), maxWorkers)),
		idle:  sync.Pool{New: func() any { return fresh() }},
	}
}

func (w *workers[T]) take() *T {
	w.slots <- struct{}{}
	return w.idle.Get().(*T)
}

func (w *workers[T]) give(t *T) {
	w.idle.Put(t)
	<-w.slots
}

var (
	encoders = newWorkers(newEncoder)
	decoders = newWorkers(newDecoder)
)

// encoder encodes one block at a time.
type encoder struct {
	zstd    *zstd.Encoder
	out     []byte // empty; room for any frame
	samples [maxSamples * sample]byte
}

func newEncoder() *encoder {
	// On text, the fastest level encoded 290 MB/s per core with a ratio of 4.5, the next levels 210
	// MB/s with 4.85 and 140 MB/s with 5.2. With two cores, the first fills 1 Gbit/s, the others
	// 700 and 440 Mbit/s. Literals are entropy-coded even if nothing repeats: that shrinks base64.
	z, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(MaxBlock),
		zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("compress: " + err.Error()) // an option is out of range
	}
	return &encoder{zstd: z, out: make([]byte, 0, z.MaxEncodedSize(MaxBlock))}
}

// Encode replaces the first n bytes of block by its encoded form; the rest of block is then
// garbage. If that would not save a tenth, n is 0 and block is unchanged: send it as it is. Samples
// recognise incompressible data in about 10 µs per MiB. A block of more than MaxBlock bytes is not
// encoded.
//
// spent is the time that encoding took, for Meter.Block. It does not count waiting for a core.
//
// Encode is safe for concurrent use.
func Encode(block []byte) (n int, spent time.Duration) {
	if len(block) < minBlock || len(block) > MaxBlock {
		return 0, 0
	}
	e := encoders.take()
	defer encoders.give(e)
	start := time.Now()
	if e.probe(block) {
		if out := e.zstd.EncodeAll(block, e.out); worth(len(out), len(block)) {
			n = copy(block, out)
		}
	}
	return n, time.Since(start)
}

// probe reports whether block seems to shrink.
func (e *encoder) probe(block []byte) bool {
	if len(block) <= probeFrom {
		return true
	}
	count := min(max(len(block)/probeEvery, minSamples), maxSamples)
	samples := e.samples[:0]
	for i := range count {
		at := (len(block) - sample) / (count - 1) * i
		samples = append(samples, block[at:at+sample]...)
	}
	return promising(len(e.zstd.EncodeAll(samples, e.out)), len(samples))
}

// decoder decodes one block at a time.
type decoder struct {
	zstd  *zstd.Decoder
	coded [MaxBlock]byte
}

func newDecoder() *decoder {
	// The frame is decoded into the block, which is also the window. These limits hold even if the
	// checks in Decode miss something.
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock))
	if err != nil {
		panic("compress: " + err.Error()) // an option is out of range
	}
	return &decoder{zstd: z}
}

// Decode replaces the encoded form in the first n bytes of block by the decoded data, which must
// fill block. Anything else than one frame as Encode makes it is an error: also a frame that
// decodes to another length, or that is not shorter than the block. After an error the content of
// block is undefined. Memory is limited by MaxBlock and time by len(block), whatever the frame
// says.
//
// Decode is safe for concurrent use.
func Decode(block []byte, n int) error {
	if len(block) > MaxBlock || n <= 0 || n >= len(block) {
		return fmt.Errorf("compress: frame of %d bytes for a block of %d", n, len(block))
	}
	if err := checkFrame(block[:n], len(block)); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	d := decoders.take()
	defer decoders.give(d)
	coded := d.coded[:copy(d.coded[:], block[:n])]
	out, err := d.zstd.DecodeAll(coded, block[:0:len(block)])
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if len(out) != len(block) || &out[0] != &block[0] {
		return fmt.Errorf("compress: %d bytes decoded for a block of %d", len(out), len(block))
	}
	return nil
}

// checkFrame checks without decoding that coded is one complete frame that promises size bytes,
// needs no other memory, and has no more zstd blocks than an honest encoder makes.
func checkFrame(coded []byte, size int) error {
	var h zstd.Header
	if err := h.Decode(coded); err != nil {
		return fmt.Errorf("frame header: %w", err)
	}
	switch {
	case h.Skippable:
		return errors.New("the frame is skippable")
	case !h.SingleSegment || h.DictionaryID != 0 || h.HasCheckSum:
		return errors.New("the frame has a window, a dictionary or a checksum")
	case h.FrameContentSize != uint64(size):
		return fmt.Errorf("the frame holds %d bytes, the block %d", h.FrameContentSize, size)
	}
	rest := coded[h.HeaderSize:]
	for range 1 + size/minStretch {
		if len(rest) < zstdBlockHeader {
			return errors.New("the frame is cut off")
		}
		header := int(rest[0]) | int(rest[1])<<8 | int(rest[2])<<16
		last, kind, length := header&1 != 0, header>>1&3, header>>3
		if kind == rle {
			length = 1
		}
		rest = rest[zstdBlockHeader:]
		if length > len(rest) {
			return errors.New("the frame is cut off")
		}
		if rest = rest[length:]; !last {
			continue
		}
		if len(rest) > 0 {
			return fmt.Errorf("%d bytes after the frame", len(rest))
		}
		return nil
	}
	return errors.New("the frame has too many zstd blocks")
}
