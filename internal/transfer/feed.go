package transfer

import (
	"context"
	"errors"
	"io"

	"github.com/fxfer/fxfer/internal/wire"
)

// feed reads a source that is a stream, such as standard input, into blocks.
type feed struct {
	entry  *sending
	claims *claims
	lap    *lap

	block int64         // the next one
	read  chan feedRead // has room for one, so that nobody need wait for a read that hangs
}

// feedRead is what a read from the stream gave.
type feedRead struct {
	block []byte
	err   error
}

func newFeed(e *sending, c *claims, lap *lap) *feed {
	return &feed{entry: e, claims: c, lap: lap, read: make(chan feedRead, 1)}
}

// run reads to the end of the stream, or of the session or the entry, which it reports as nil,
// false. The session waits for it, but not for a read from the stream that hangs.
func (f *feed) run(ctx context.Context) (ended bool, err error) {
	for {
		f.lap.enter(Room)
		if !f.claims.waitKept(f.entry) {
			return false, nil
		}
		f.lap.enter(Feed)
		buf, end, err := f.next(ctx)
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, &wire.Error{Code: wire.CodeSourceDisk, Text: "reading the stream: " + err.Error()}
		}
		if len(buf) > 0 {
			f.entry.grow()
			f.claims.keep(f.entry, f.block, buf)
			f.block++
		}
		if end {
			size := f.block << maxBlockLog
			if len(buf) > 0 {
				size += int64(len(buf)) - 1<<maxBlockLog
			}
			f.entry.finish(size)
			return true, nil
		}
	}
}

// next reads a block, and reports whether the stream ends with it.
func (f *feed) next(ctx context.Context) (block []byte, end bool, err error) {
	go func() {
		buf := make([]byte, 1<<maxBlockLog)
		n, err := io.ReadFull(f.entry.item.Stream, buf)
		f.read <- feedRead{buf[:n], err}
	}()
	select {
	case r := <-f.read:
		if errors.Is(r.err, io.EOF) || errors.Is(r.err, io.ErrUnexpectedEOF) {
			return r.block, true, nil
		}
		return r.block, false, r.err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}
