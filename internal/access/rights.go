// Package access is the gate before every effect on a tree of files. A session gets a Scope: what
// one client may do with one share for one intent, or what a client does with folders of its own
// host. Its methods are the effects. Each decides by the resolved path, by the owner of the series
// that the path lies in, and by the snapshot. What a Scope does not offer can't be done.
//
// Complete snapshots are read-only for everybody. Only retention removes them, see Series.
package access

import (
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// Effect is a set of things that a session may do.
type Effect uint8

// The effects.
const (
	Names  Effect = 1 << iota // learn which entries there are, and their metadata
	Read                      // learn what files hold, also by digests and as bases of deltas
	Write                     // make, replace, link, move and remove entries, set metadata
	Reuse                     // give content another name, or a copy, without learning it
	Add                       // add a snapshot to a series, or begin a series
	Expire                    // remove complete snapshots
)

// Place says where a path of a share lies.
type Place uint8

// The places.
const (
	Outside  Place = iota // in no series
	Beside                // a series, or in one beside its snapshots; only the series is its owner's
	Snapshot              // a complete snapshot, or below it, or a name that only a snapshot may have
	places
)

// Rule says which right a client needs for an effect.
type Rule struct {
	Effect Effect
	Does   string // the effect, for people
	// Right is what the effect takes at each place; 0 is that nobody may.
	Right [places]identity.Rights
	// Own is what suffices in a series that the client owns; 0 is that owning changes nothing.
	Own [places]identity.Rights
}

// Rules has one row for each effect. It is all that decides about rights.
var Rules = []Rule{
	{
		Names, "see names, sizes and times",
		[places]identity.Rights{identity.List, identity.List, identity.List},
		[places]identity.Rights{0, identity.Append, identity.Append},
	},
	{
		Read, "read files and their digests",
		[places]identity.Rights{identity.Read, identity.Read, identity.Read},
		[places]identity.Rights{0, 0, identity.Append},
	},
	{
		Write, "make, replace and remove entries",
		[places]identity.Rights{identity.Write, identity.Write, 0},
		[places]identity.Rights{},
	},
	{
		Reuse, "link or copy entries",
		[places]identity.Rights{identity.Write, identity.Write, 0},
		[places]identity.Rights{},
	},
	{
		Add, "add a snapshot",
		[places]identity.Rights{identity.Write, identity.Write, 0},
		[places]identity.Rights{identity.Append, identity.Append, 0}, // Outside: a series of its own begins
	},
	{
		Expire, "remove snapshots",
		[places]identity.Rights{identity.Write, identity.Write, identity.Write},
		[places]identity.Rights{},
	},
}

// intents says which effects a session for an intent may have, whatever its rights are.
var intents = map[wire.Intent]Effect{
	wire.Push:   Names | Read | Write | Reuse,
	wire.Pull:   Names | Read,
	wire.List:   Names,
	wire.Verify: Names | Read,
	wire.Scrub:  Names | Read,
	wire.Series: Names,
	wire.Store:  Names | Read | Add,
	wire.Expire: Names | Expire,
	wire.Files:  Names | Read | Write,
	wire.Early:  Write,
	wire.Copy:   Names | Read | Write | Reuse,
	wire.Ranges: Names | Write,
}

// ruleOf returns the rule for one effect.
func ruleOf(e Effect) *Rule {
	for i := range Rules {
		if Rules[i].Effect == e {
			return &Rules[i]
		}
	}
	panic("access: an effect without a rule")
}

// everywhere reports whether these rights suffice for the effect at every place.
func (r *Rule) everywhere(has identity.Rights) bool {
	for _, need := range r.Right {
		if need == 0 || !has.Has(need) {
			return false
		}
	}
	return true
}

// allows reports whether these rights suffice at a place. own says that the client owns the series
// there.
func (r *Rule) allows(has identity.Rights, at Place, own bool) bool {
	if need := r.Right[at]; need != 0 && has.Has(need) {
		return true
	}
	need := r.Own[at]
	return own && need != 0 && has.Has(need)
}

// words are what a refusal says of a right that is missing.
var words = map[identity.Rights]string{
	identity.Write: "written to", identity.Read: "read",
	identity.List: "listed", identity.Append: "appended to",
}

// RefuseRight is the error of a client without a right on a share.
func RefuseRight(share string, right identity.Rights) error {
	return wire.Errorf(wire.CodeRight, "share %q may not be %s by this client", share, words[right])
}
