package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// Copy is what a client asks a server to send to another server.
type Copy struct {
	User    string     // the client's key
	Address netip.Addr // from which the client has asked

	Share string
	Path  string // below the share; a slash at the end means the content of a folder

	To         URL
	Pin        string // the key of the server there
	Capability []byte // for this server at that one
	Until      time.Time

	RateLimit int64 // bit/s; 0 is none
	Priority  Priority
}

// CopyState says whether a copy goes on.
type CopyState string

// The states. The last three are final.
const (
	CopyWaiting   CopyState = "waiting" // for its turn, or for the next try
	CopyRunning   CopyState = "running"
	CopyPaused    CopyState = "paused"
	CopyDone      CopyState = "done" // all of it is in place
	CopyFailed    CopyState = "failed"
	CopyCancelled CopyState = "cancelled"
)

// Ended reports whether the state is final.
func (s CopyState) Ended() bool {
	return s == CopyDone || s == CopyFailed || s == CopyCancelled
}

// CopyStatus is the state and the progress of a copy.
type CopyStatus struct {
	ID    string // names it among the copies of its user
	From  string // share and path
	To    string // the target's URL
	State CopyState
	Added time.Time
	Ended time.Time // zero while it goes on
	Until time.Time // it does not begin to send after that

	Bytes, TotalBytes int64  // at the target, and found so far
	Files, TotalFiles int64  // in place, and found so far
	Failed            int64  // entries
	Rate              int64  // bit/s now, or on average when it has ended
	Text              string // why it failed or waits; when it is done, what held it back
}

// CopyChange is what a client does to a copy.
type CopyChange string

// The changes.
const (
	PauseCopy  CopyChange = "pause"
	ResumeCopy CopyChange = "resume"
	CancelCopy CopyChange = "cancel"
)

// Errors of copies.
var (
	ErrNoCopy     = errors.New("there is no such copy")
	ErrCopyEnded  = errors.New("the copy has ended")
	ErrCopiesFull = errors.New("this client has too many copies under way")
)

// WireCopy puts a status into the words of the protocol.
func WireCopy(s *CopyStatus) *wire.CopyState {
	return &wire.CopyState{
		ID: s.ID, From: s.From, To: s.To, State: string(s.State),
		Added: unixOf(s.Added), Ended: unixOf(s.Ended), Until: unixOf(s.Until),
		Bytes: s.Bytes, TotalBytes: s.TotalBytes, Files: s.Files, TotalFiles: s.TotalFiles,
		Failed: s.Failed, Rate: s.Rate, Text: s.Text,
	}
}

// CopyStatusOf is the reverse of WireCopy. Its texts may have any characters.
func CopyStatusOf(m *wire.CopyState) CopyStatus {
	return CopyStatus{
		ID: m.ID, From: m.From, To: m.To, State: CopyState(m.State),
		Added: timeOf(m.Added), Ended: timeOf(m.Ended), Until: timeOf(m.Until),
		Bytes: m.Bytes, TotalBytes: m.TotalBytes, Files: m.Files, TotalFiles: m.TotalFiles,
		Failed: m.Failed, Rate: m.Rate, Text: m.Text,
	}
}

func unixOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func timeOf(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}

// Source is what a server sends to another one, as a user may read it now. Server.OpenCopy opens it.
type Source struct{ parts SourceParts }

// SourceParts are what a Source has for the client that sends it.
type SourceParts struct {
	Ctx   context.Context //nolint:containedctx // ends when the user may not read it any more
	Named []string        // what the user named, for messages
	Roots []transfer.Root // of the manifest
	Out   func() *pace.Queue
	Event func(*transfer.Event) // takes the engine's events
	Close func(error)
}

// NewSource returns a Source. Who opens it calls Close.
func NewSource(p SourceParts) *Source { return &Source{p} }

// PartsOf returns the parts of a Source.
func PartsOf(s *Source) SourceParts { return s.parts }

// Err returns why the user may not read the source any more, nil while it may.
func (s *Source) Err() error { return context.Cause(s.parts.Ctx) }

// Close ends the use of a Source, whose sending has ended with this error, nil for none.
func (s *Source) Close(err error) { s.parts.Close(err) }

// CheckCopyTarget returns an error unless a URL is the target of a capability for this share and path.
func CheckCopyTarget(to URL, share, path string) error {
	at := to.Path
	if at == "" {
		at = "."
	}
	if to.Share != share || at != path || to.Token != "" {
		return fmt.Errorf("the capability is not for %s", to.Redacted())
	}
	return nil
}
