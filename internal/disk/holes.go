package disk

import (
	"fmt"
	"os"
)

// Skip notes that count blocks from start on have no data: the file, opened with Holes, is complete
// without them. It may skip blocks that were marked before. Skip is not recorded, so a later run
// has to repeat it.
func (p *Partial) Skip(start, count int64) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	switch {
	case p.ended:
		return at("skip", p.path, os.ErrClosed)
	case !p.holes || start < 0 || count < 0 || start > p.blocks(p.size)-count:
		return at("skip", p.path, fmt.Errorf("no hole of %d blocks at %d", count, start))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.AddRun(start, count)
	return nil
}
