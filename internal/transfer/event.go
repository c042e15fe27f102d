package transfer

import "github.com/fxfer/fxfer/internal/wire"

// EventKind says what happened to an entry.
type EventKind uint8

// The events of an entry come in this order. Each entry ends with exactly one of Committed, Same,
// Done, Failed, Again, Skipped, WouldSend and WouldSet.
const (
	Found     EventKind = iota + 1 // the entry is part of the manifest
	Started                        // the receiver needs it; it has Bytes from an earlier run
	Written                        // Bytes more are written at the receiver
	Committed                      // the file has its final name and is durable; Digest is set
	Same                           // the target has the same already
	Done                           // the folder, symlink or hard link is in place
	Failed                         // Err says why
	Listed                         // the manifest is complete; there is no entry
	Again                          // it changed meanwhile; it comes again under another Index
	Skipped                        // Target.Compare leaves it out
	WouldSend                      // in a dry run; New: the target has nothing of that name
	WouldSet                       // in a dry run: only metadata differs
	Removed                        // the source does not have it; Entry has only Kind and Path
	Warned                         // Warning says what the target cannot store
	NotPruned                      // nothing is removed, because entries failed; there is no entry
)

// Event reports progress. The events of one session come one at a time. Who gets one must not change it,
// nor keep it after the call. Its Entry may be kept until the last event of that entry.
type Event struct {
	Kind   EventKind
	Index  uint64
	Entry  *wire.Entry // must not be changed; nil for Listed and NotPruned
	At     string      // with the last event at the receiver: the path in the target's tree
	Bytes  int64
	Copied int64    // with Written: how many of Bytes came from an old version
	Digest [32]byte // zero for a file with holes, since holes are not digested
	Err    error
	New    bool
	Reused bool // with Same: the file came from the previous snapshot

	Warning *wire.Warning
}

// outcomes maps each verdict that ends an entry to its event.
var outcomes = [256]EventKind{
	wire.Same: Same, wire.Done: Done, wire.Skip: Skipped, wire.Meta: WouldSet, wire.Lack: WouldSend,
}

// warned is the event of a warning.
func warned(w *wire.Warning) Event {
	return Event{Kind: Warned, Index: wire.NoEntry, Entry: new(wire.Entry), Warning: w}
}
