package transfer

import (
	"context"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/wire"
)

// comparesAtOnce bounds the files that a side reads at a time only to compare them.
const comparesAtOnce = 4

// comparison reads files for a receiver that asks whether it has the same.
type comparison struct {
	side  *side
	slots chan struct{}
}

func newComparison(s *side) comparison {
	return comparison{side: s, slots: make(chan struct{}, comparesAtOnce)}
}

// start compares a file with a digest in the background, and sends the result. failed hears of a
// file that cannot be read.
func (c *comparison) start(e *sending, want [32]byte, failed func(*sending, error)) error {
	if e.answered || e.item.Entry.Kind != wire.File || e.item.Content == nil {
		return protocolError("entry %d cannot be compared", e.index)
	}
	if e.comparing {
		return protocolError("entry %d is compared twice", e.index)
	}
	e.comparing = true
	c.side.running.Go(func() {
		if !c.side.slot(c.slots) {
			return
		}
		defer func() { <-c.slots }()
		have, err := c.digest(e)
		if err == nil {
			err = e.item.compare(have)
		}
		if err != nil {
			failed(e, err)
			return
		}
		c.side.pump.send(&wire.Compared{Index: e.index, Same: have == want})
	})
	return nil
}

// digest reads a whole file.
func (c *comparison) digest(e *sending) (root [32]byte, err error) {
	defer c.side.checking()()
	buf := make([]byte, 1<<e.item.Entry.BlockLog)
	var hash digest.Hasher
	var tree digest.Tree
	for block := range e.fixed {
		if c.side.over() {
			return root, context.Cause(c.side.ctx)
		}
		if _, _, err := e.readBlock(nil, block, buf, &hash); err != nil {
			return root, err
		}
		tree.Add(block, hash.Sum())
	}
	root, _ = tree.Root(e.fixed)
	return root, nil
}
