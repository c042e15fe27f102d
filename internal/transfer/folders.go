package transfer

import (
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// folders are those whose metadata is not set yet. It is set last, since every change inside
// changes the time. The manifest goes through the tree depth first. So a folder is complete once an
// entry outside of it was announced and all inside are resolved. Memory follows the depth and the
// entries under way. table.mu guards it.
type folders struct {
	open  map[string]*folder // by path in the manifest
	stack []*folder          // those that the manifest has not left, outermost first
}

// folder is one whose metadata is not set yet.
type folder struct {
	index  uint64
	entry  wire.Entry
	meta   disk.Meta
	held   int     // bytes of names and attributes
	parent *folder // it waits for this one
	wait   int     // how many entries in it are not resolved
	left   bool    // the manifest has left it
}

// enter adds a folder that the manifest has come to.
func (f *folders) enter(x *folder) {
	x.parent = f.holder(x.entry.Path)
	if x.parent != nil {
		x.parent.wait++
	}
	f.open[x.entry.Path] = x
	f.stack = append(f.stack, x)
}

// holder returns the folder that waits for an entry at this path, nil if none does.
func (f *folders) holder(p string) *folder {
	above := "."
	if end := strings.LastIndexByte(p, '/'); end >= 0 {
		above = p[:end]
	}
	return f.open[above]
}

// leave notes that the manifest goes on with path, or ends, for "". It returns folders that are
// complete.
func (f *folders) leave(path string) (done []*folder) {
	for n := len(f.stack); n > 0; n = len(f.stack) {
		last := f.stack[n-1]
		if last.holds(path) {
			break
		}
		f.stack = f.stack[:n-1]
		last.left = true
		if last.wait == 0 {
			delete(f.open, last.entry.Path)
			done = append(done, last)
		}
	}
	return done
}

// holds reports whether a path of the manifest is in the folder.
func (x *folder) holds(path string) bool {
	return path != "" && (x.entry.Path == "." || isBelow(path, x.entry.Path))
}

// isBelow reports whether a path is in the folder above, which is not ".".
func isBelow(path, above string) bool {
	return len(path) > len(above) && path[len(above)] == '/' && path[:len(above)] == above
}

// release notes that an entry for which x waits is resolved, and returns x if that is complete now.
// x may be nil.
func (f *folders) release(x *folder) (done []*folder) {
	if x == nil {
		return nil
	}
	x.wait--
	if x.wait > 0 || !x.left {
		return nil
	}
	delete(f.open, x.entry.Path)
	return []*folder{x}
}
