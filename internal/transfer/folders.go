package transfer

import (
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// folders are those whose metadata is not set yet: that comes last, since every change inside alters the time. The manifest goes through
// the tree depth first, so a folder is complete once an entry outside of it was announced and all inside are resolved.
// Memory follows the depth and the entries under way. Guarded by Receiver.mu.
type folders struct {
	open  map[string]*folder // by path in the manifest
	stack []*folder          // those that the manifest has not left, outermost first
}

type folder struct {
	index  uint64
	entry  wire.Entry
	meta   disk.Meta
	parent *folder // waits for this one
	wait   int     // entries in it that are not resolved
	left   bool    // by the manifest
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
func (f *folders) holder(p string) *folder { return f.open[path.Dir(p)] }

// leave notes that the manifest goes on with path, "" at its end, and returns folders that are complete.
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

// holds tells whether a path of the manifest is in the folder.
func (x *folder) holds(path string) bool {
	return path != "" && (x.entry.Path == "." || strings.HasPrefix(path, x.entry.Path+"/"))
}

// release notes that an entry which x waits for is resolved, and returns x if it is complete. x may be nil.
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

// setFolders sets the metadata of complete folders, and then of those that were waiting only for them.
func (v *Receiver) setFolders(done []*folder) {
	for len(done) > 0 {
		x := done[0]
		done = done[1:]
		if !v.opt.Target.DryRun {
			opt := v.options(&receiving{entry: x.entry})
			if x.meta.Path == "." && v.opt.Snapshot == nil { // the share's rights are its owner's
				if have, err := v.tree.Stat("."); err == nil {
					x.meta.Mode, opt.Owner, opt.Xattrs = have.Mode, false, false
				}
			}
			if err := v.tree.Apply(x.meta, opt); err != nil {
				known := &wire.Error{Code: codeOf(err), Text: err.Error()}
				v.ctrl.send(&wire.EntryFailed{Index: wire.NoEntry, Code: known.Code, Text: known.Text})
				v.event(Event{Kind: Failed, Index: wire.NoEntry, Entry: &x.entry, Err: known})
			}
		}
		v.mu.Lock()
		v.pending--
		done = append(done, v.folders.release(x.parent)...)
		v.cond.Broadcast()
		v.mu.Unlock()
	}
	v.finish()
}

// maxOrphans bounds the entries that changed and are awaited; each comes right after it was given up.
const maxOrphans = 256

// orphan is what waited for an entry that changed, and waits for its return under another index.
type orphan struct {
	folder *folder
	links  []*receiving
}
