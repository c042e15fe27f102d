package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// Forwarder sends the files of a share on to another server. It is safe for concurrent use.
type Forwarder interface {
	// States returns the files that are on their way or are there since less than a day, in the order
	// of their paths. The caller does not change them.
	States() ([]Forwarded, error)
	// Confirm waits until the file at a path, as it is now, is there, and returns its state then. It
	// returns another state if it has waited long enough, and "" at once if nobody is to wait. The
	// error is fs.ErrNotExist if the file is another one meanwhile, or gone.
	Confirm(ctx context.Context, path string) (state string, err error)
}

// Forwarded is a file that is sent on.
type Forwarded struct {
	Path  string
	State string    // arriving, waiting, sending, there or dropped
	Since time.Time // when it arrived here or, in state there, over there
}

// statesName is the name, at the top of a share that is sent on, of a file that says how far each
// file is. No list has it: clients that copy whole folders would copy it, too.
const statesName = ".state"

// maxStates bounds the size of that file, in bytes.
const maxStates = 4 << 20

var errStates = fmt.Errorf("%s is what the server says of the other files: %w", statesName, fs.ErrPermission)

// there is the state of a file that has arrived over there.
const there = "there"

// confirm waits until a file that has come is there, if clients are to wait for that.
func (s *session) confirm(p string) error {
	f := s.Forward()
	if f == nil {
		return nil
	}
	state, err := f.Confirm(s.Ctx, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.CodeBusy, "%s was stored here, but somebody has changed or removed it before it was at its destination", p)
	case err != nil: // its text is about this host
		return wire.Errorf(wire.CodeBusy, "%s is stored here and not lost, but whether it is at its destination is not known", p)
	case state == "", state == there:
		return nil
	}
	return wire.Errorf(wire.CodeBusy, "%s is stored here and not lost, but it is not at its destination yet: its state is %s", p, state)
}

// isStates reports whether the entry at rel is what the server says of the files.
func (s *session) isStates(rel string) bool { return rel == statesName && s.Forward() != nil }

// states is the content of that file: a line for each file that the user may see. It is a source.
type states struct {
	*bytes.Reader
	id disk.Identity
}

func (s states) Identity() disk.Identity { return s.id }
func (states) Close() error              { return nil }

// states returns what the user may know of the files. Who may not list them may know of those that
// came on this connection.
func (s *session) states() (states, error) {
	lists := s.Rights.Has(identity.List)
	right := identity.Write
	if lists {
		right = identity.List
	}
	if err := s.Needs(s.Ctx, right); err != nil {
		return states{}, err
	}
	f := s.Forward()
	if f == nil {
		return states{}, fmt.Errorf("%s: %w", statesName, fs.ErrNotExist)
	}
	all, err := f.States()
	if err != nil {
		return states{}, fmt.Errorf("%s can't be read now: %w", statesName, disk.ErrBusy)
	}
	var text bytes.Buffer
	var newest time.Time
	for _, f := range all {
		if text.Len() >= maxStates {
			break
		}
		if lists || s.isOwn(f.Path) {
			fmt.Fprintf(&text, "%-8s  %s  %s\n", f.State, f.Since.UTC().Format(time.RFC3339), wire.Printable(f.Path))
			if f.Since.After(newest) {
				newest = f.Since
			}
		}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text.Bytes())
	return states{bytes.NewReader(text.Bytes()), disk.Identity{
		Size: int64(text.Len()), ModTime: newest.UnixNano(), Ino: sum.Sum64(), // another one for another content
	}}, nil
}

func (s states) meta() disk.Meta {
	return disk.Meta{Kind: disk.File, Mode: 0o444, Size: s.id.Size, ModTime: time.Unix(0, s.id.ModTime), ID: s.id}
}
