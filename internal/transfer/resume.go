package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/fxfer/fxfer/internal/blockset"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
)

// recheck reads the blocks that an earlier run left of an entry, while others arrive. Damaged ones
// are to come again.
func (v *Receiver) recheck(e *receiving, have blockset.Set) {
	defer v.side.checking()()
	part := e.partial()
	bad, err := readAgain(v.side.ctx, e, part, have)
	if v.side.over() || err != nil && errors.Is(err, fs.ErrClosed) {
		return
	}
	var lost int64
	for b := range bad.Blocks() {
		_ = part.Drop(b)
		lost += int64(e.blockLen(b))
	}
	e.endCheck(bad)
	v.side.counts.rejected.Add(bad.Count())
	v.side.counts.resumed.Add(-lost)
	v.committer.commitComplete(e)
	if !bad.Empty() {
		v.send(&wire.Resend{Index: e.index, Blocks: blockset.Runs[wire.Extent](bad)})
		v.side.event(Event{Kind: Written, Index: e.index, Entry: &e.entry, Bytes: -lost})
	}
}

// recorded is a partial file whose blocks have digests.
type recorded interface {
	io.ReaderAt
	Recorded(visit func(block int64, cv [32]byte) error) error
}

// readAgain reads the blocks in have, and adds the nodes of those that are as recorded. It returns
// the others. It empties have.
func readAgain(
	ctx context.Context, e *receiving, part recorded, have blockset.Set,
) (bad blockset.Set, err error) {
	buf := make([]byte, 1<<e.entry.BlockLog)
	var hash digest.Hasher
	err = part.Recorded(func(block int64, cv [32]byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !have.Has(block) {
			return nil
		}
		have.Remove(block)
		data, off := buf[:e.blockLen(block)], block<<e.entry.BlockLog
		if _, err := part.ReadAt(data, off); err != nil {
			bad.Add(block)
			return nil
		}
		hash.Reset(off)
		hash.Write(data)
		node := hash.Sum()
		if digest.ChainingValue(&node) != cv {
			bad.Add(block)
			return nil
		}
		e.addNode(block, node)
		return nil
	})
	return bad.Union(have), err // the checkpoint does not know the rest any more
}
