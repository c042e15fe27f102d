// Package compress codes blocks with zstd (RFC 8878) and decides where that pays.
//
// Encode and Decode work in place, so a data stream needs no second buffer, and share their memory among all streams of the process:
// it follows the number of cores, never the number of streams or sessions. A coded block is one zstd frame that names the block's
// length; it has no dictionary and no checksum, since the block's digest covers what it decodes to.
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
	// MaxBlock is the longest block in bytes, and the window of the encoder.
	MaxBlock = 1 << 20

	// minBlock is the shortest block worth a frame, in bytes.
	minBlock = 128
	// maxWorkers bounds the blocks being encoded at once, and those being decoded, and with them the memory: some 3 MiB for each
	// encoded and 1.3 MiB for each decoded.
	maxWorkers = 6

	// A block longer than probeFrom bytes is coded only if samples of it shrink.
	probeFrom = 8 << 10
	// Samples are of sample bytes each, spread evenly: one for each probeEvery bytes of a block within these bounds. In fewer the counts
	// of random bytes differ so much that the encoder tries hard.
	sample                 = 1 << 10
	probeEvery             = 32 << 10
	minSamples, maxSamples = 4, 8

	// minStretch is the number of decoded bytes for each zstd block that a frame may have beyond the first. Every zstd block can
	// make the decoder build its tables anew, which takes microseconds and costs a hostile peer a few bytes.
	minStretch = 1 << 10
	// zstdBlockHeader is the length of Block_Header (RFC 8878, 3.1.1.2), and rle the Block_Type whose content is one byte.
	zstdBlockHeader, rle = 3, 1
)

// worth reports whether n bytes instead of size are worth the decoding: a tenth less.
func worth(n, size int) bool {
	return n <= size-size/10
}

// promising is the same of the samples, which lack the repetitions that are farther apart than they are long: a sixteenth less.
func promising(n, size int) bool {
	return n <= size-size/16
}

// workers lends T to as many goroutines as there are cores, but not more than maxWorkers. Idle ones are the garbage collector's.
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

// encoder is what it takes to encode one block.
type encoder struct {
	zstd    *zstd.Encoder
	out     []byte // empty; room for any frame
	samples [maxSamples * sample]byte
}

func newEncoder() *encoder {
	// The fastest level: on text it was seen to encode 290 MB/s a core to a ratio of 4.5, the next ones 210 MB/s to 4.85 and 140 MB/s
	// to 5.2. Two cores fill 1 Gbit/s with the first, 700 and 440 Mbit/s with the others. Literals are entropy-coded even where
	// nothing repeats, as in base64.
	z, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(MaxBlock),
		zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("compress: " + err.Error()) // only of options out of range
	}
	return &encoder{zstd: z, out: make([]byte, 0, z.MaxEncodedSize(MaxBlock))}
}

// Encode replaces block's first n bytes by its coded form, and the rest has no meaning any more. Where that would not save a tenth, n is
// 0 and block is untouched: it should travel as it is. What doesn't shrink is recognised by samples, in some 10 µs for 1 MiB. A block of
// more than MaxBlock bytes is not coded. Spent is the time it took, without that for which it waited for a core: for Meter.Block.
//
// Encode may be called concurrently.
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

// decoder is what it takes to decode one block.
type decoder struct {
	zstd  *zstd.Decoder
	coded [MaxBlock]byte
}

func newDecoder() *decoder {
	// The frame is decoded into the block, which is the window as well; the limits hold even if the checks before it did not.
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock))
	if err != nil {
		panic("compress: " + err.Error()) // only of options out of range
	}
	return &decoder{zstd: z}
}

// Decode replaces the coded form in block's first n bytes by the whole block, whose length is len(block). What would decode to more or
// less, or isn't shorter than the block, or is anything but one frame of the kind that Encode makes is an error, and block's content is
// then undefined. The memory it uses is bounded by MaxBlock and the time by len(block), whatever the coded form says.
//
// Decode may be called concurrently.
func Decode(block []byte, n int) error {
	if len(block) > MaxBlock || n <= 0 || n >= len(block) {
		return fmt.Errorf("compress: %d bytes for a block of %d", n, len(block))
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

// checkFrame checks, without decoding, that coded is one whole frame that promises size bytes, needs no memory but those, and has no
// more zstd blocks than an honest encoder makes.
func checkFrame(coded []byte, size int) error {
	var h zstd.Header
	if err := h.Decode(coded); err != nil {
		return fmt.Errorf("frame header: %w", err)
	}
	switch {
	case h.Skippable:
		return errors.New("skippable frame")
	case !h.SingleSegment || h.DictionaryID != 0 || h.HasCheckSum:
		return errors.New("frame with a window, a dictionary or a checksum of its own")
	case h.FrameContentSize != uint64(size):
		return fmt.Errorf("frame of %d bytes for a block of %d", h.FrameContentSize, size)
	}
	rest := coded[h.HeaderSize:]
	for range 1 + size/minStretch {
		if len(rest) < zstdBlockHeader {
			return errors.New("frame is cut off")
		}
		header := int(rest[0]) | int(rest[1])<<8 | int(rest[2])<<16
		last, kind, length := header&1 != 0, header>>1&3, header>>3
		if kind == rle {
			length = 1
		}
		rest = rest[zstdBlockHeader:]
		if length > len(rest) {
			return errors.New("frame is cut off")
		}
		if rest = rest[length:]; !last {
			continue
		}
		if len(rest) > 0 {
			return fmt.Errorf("%d bytes after the frame", len(rest))
		}
		return nil
	}
	return errors.New("frame of too many zstd blocks")
}
