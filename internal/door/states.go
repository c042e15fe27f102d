package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"sync"
	"time"
	"weak"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// Forwarder sends the files of a share on to another server. It is safe for concurrent use.
type Forwarder interface {
	// States returns the files that are on their way, then those that reached their destination less
	// than a day ago, both in the order of their paths. The caller does not change them. cut reports
	// that there are more.
	States() (all []Forwarded, cut bool, err error)
	// StatesOf is States for these paths alone, and never lacks one.
	StatesOf(paths []string) ([]Forwarded, error)
	// Confirm waits until the file that is at a path now has reached its destination, and returns its
	// state, which is "there" then. It returns another state if it has waited long enough, and "" at
	// once if clients are not to wait. The error is fs.ErrNotExist if somebody replaces or removes the
	// file meanwhile.
	Confirm(ctx context.Context, path string) (state string, err error)
}

// Forwarded is a file that is sent on.
type Forwarded struct {
	Path  string
	State string    // arriving, waiting, sending, there or dropped
	Since time.Time // when it arrived here or, in state there, at its destination
}

// statesName is the name of a file at the top of a share that is sent on. It says how far the other
// files are. No list has it, because clients that copy whole folders would copy it, too.
const statesName = ".state"

// maxStates bounds the size of that file, in bytes. It also bounds the sum of those that a
// connection has open in one share, because they are in memory.
const maxStates = 4 << 20

var errTexts = fmt.Errorf("this connection has %s open: %w", statesName, disk.ErrTooManyFiles)

var errStates = fmt.Errorf("the server itself writes %s: %w", statesName, fs.ErrPermission)

// there is the state of a file that has reached its destination.
const there = "there"

// confirm waits until a file that has come has reached its destination, if clients are to wait for
// that.
func (s *session) confirm(ctx context.Context, p string) error {
	f := s.Forward()
	if f == nil {
		return nil
	}
	state, err := f.Confirm(ctx, p)
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

// isStates reports whether rel is the file that says how far the others are.
func (s *session) isStates(rel string) bool { return rel == statesName && s.Forward() != nil }

// text is the content of that file at one time.
type text struct {
	all []byte
	id  disk.Identity
}

// cutLine is the last line where not all files have room.
const cutLine = "# There are more files: only the first ones are listed.\n"

// textOf writes a line for each file. cut says that files does not have all of them.
func textOf(files []Forwarded, cut bool) *text {
	var b bytes.Buffer
	var line []byte
	var newest time.Time
	for _, f := range files {
		line = fmt.Appendf(line[:0], "%-8s  %s  %s\n", f.State, f.Since.UTC().Format(time.RFC3339), wire.Printable(f.Path))
		if b.Len()+len(line)+len(cutLine) > maxStates {
			cut = true
			break
		}
		b.Write(line)
		if f.Since.After(newest) {
			newest = f.Since
		}
	}
	if cut {
		b.WriteString(cutLine)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b.Bytes())
	return &text{bytes.Clone(b.Bytes()), disk.Identity{ // without the room that the buffer has left
		Size: int64(b.Len()), ModTime: newest.UnixNano(), Ino: sum.Sum64(), // another one for another content
	}}
}

// Texts lets all users who may list a share read the same text of how far its files are, because it
// may be large, and the users many. The zero Texts is ready, and safe for concurrent use.
type Texts struct {
	mu  sync.Mutex // guards all
	all map[string]lastText
}

// lastText is the text that was written last, and the list that it was written of. It keeps neither
// of them in memory.
type lastText struct {
	first weak.Pointer[Forwarded]
	n     int
	text  weak.Pointer[text]
}

// of returns the text of a share's list.
func (t *Texts) of(share string, files []Forwarded, cut bool) *text {
	if len(files) == 0 {
		return textOf(nil, cut)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, first := t.all[share], weak.Make(&files[0])
	if last.first == first && last.n == len(files) {
		if x := last.text.Value(); x != nil {
			return x
		}
	}
	x := textOf(files, cut)
	if t.all == nil {
		t.all = make(map[string]lastText)
	}
	t.all[share] = lastText{first, len(files), weak.Make(x)}
	return x
}

// states returns how far the files are, as far as the user may know. A user who may not list the
// share may know of the files that came on this connection.
func (s *session) states() (*text, error) {
	right := identity.List
	if !s.Rights.Has(right) {
		right = identity.Write
	}
	if !s.Rights.Has(right) { // a right that it has not would end the session
		return nil, fmt.Errorf("%s: %w", statesName, fs.ErrNotExist)
	}
	if err := s.Needs(s.Ctx, right); err != nil {
		return nil, err
	}
	f := s.Forward()
	if f == nil {
		return nil, fmt.Errorf("%s: %w", statesName, fs.ErrNotExist)
	}
	if right == identity.List {
		files, cut, err := f.States()
		if err != nil {
			return nil, errUnknown
		}
		return s.Texts.of(s.share, files, cut), nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	files, err := f.StatesOf(s.ownPaths())
	if err != nil {
		return nil, errUnknown
	}
	return textOf(files, false), nil
}

var errUnknown = fmt.Errorf("%s can't be read now: %w", statesName, disk.ErrBusy)

func (t *text) meta() disk.Meta {
	return disk.Meta{Kind: disk.File, Mode: 0o444, Size: t.id.Size, ModTime: time.Unix(0, t.id.ModTime), ID: t.id}
}

// openText is a text that a client has open. It is a source.
type openText struct {
	*bytes.Reader
	s *session
	*text
}

// open opens a text, which stays in memory meanwhile.
func (s *session) open(t *text) (*openText, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts+t.id.Size > maxStates {
		return nil, errTexts
	}
	s.texts += t.id.Size
	return &openText{bytes.NewReader(t.all), s, t}, nil
}

func (t *openText) Identity() disk.Identity { return t.id }

func (t *openText) Close() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.texts -= t.id.Size
	return nil
}
