// Package door lets clients of older protocols use the shares of a server. A protocol in a folder
// below gets a Tree, whose top has one folder for each share that the user may use. Every effect
// goes through the access.Scope of a share.
package door

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/pace"
	"github.com/fxfer/fxfer/internal/wire"
)

// LoginWithin bounds the time from the connection to a login: people type passwords meanwhile.
const LoginWithin = time.Minute

// SilentFor is how long a client may neither send nor take a byte, where it is its turn.
const SilentFor = 2 * time.Minute

// ErrLogin refuses a login. It does not say whether there is such a user.
var ErrLogin = errors.New("the name or the password is wrong")

// Server is what lies behind a door. It is safe for concurrent use.
type Server interface {
	// Password logs in a user. It takes long for an address that has sent wrong passwords.
	// Errors: ErrLogin, why this user or address may not log in, and those of ctx.
	Password(ctx context.Context, c Client, name, password string) (Account, error)
	// Key is Password for a key of ssh. The caller lets the client prove that it has the private half.
	Key(ctx context.Context, c Client, name string, public []byte) (Account, error)
}

// Client is the other end of a connection.
type Client struct {
	Addr net.Addr
	// Conn is closed when the user loses a right that it uses. nil is nothing.
	Conn io.Closer
}

// Account is a user of the server. It is safe for concurrent use.
type Account interface {
	// LogIn notes that a client has logged in as this user, until left is called. Its error says why
	// this is one client too many.
	LogIn() (left func(), err error)
	// Shares returns the shares that the user may use now, by name.
	Shares() []Share
	// Enter begins a session on a share, which ends with ctx. The caller closes it.
	Enter(ctx context.Context, share string) (*Session, error)
}

// Share is a share as the top of a Tree shows it.
type Share struct {
	Name    string
	ModTime time.Time
}

// Session is what a user does on one share. Close ends it.
type Session struct {
	Ctx     context.Context // ends with the session, also when the server ends it
	Scope   *access.Scope
	Rights  identity.Rights // on the share
	In, Out *pace.Queue     // of what arrives, and of what leaves
	Moved   *Traffic
	Quota   Quota
	Files   Files
	// Forward returns what sends the share's files on now, nil for none.
	Forward func() Forwarder
	Texts   *Texts // of the server
	// Needs notes that the session takes a right. It returns why the user has lost it, or nil.
	Needs func(ctx context.Context, right identity.Rights) error
	// Record takes note of what was done, for logs and counters.
	Record func(Record)
	// Omitted takes note of entries that a list of a folder lacks.
	Omitted func(folder string, left Omitted)
	Close   func(error)
}

// Traffic counts the bytes of files that have arrived and left, those of files that are not whole
// included. It is safe for concurrent use.
type Traffic struct{ In, Out atomic.Int64 }

// Quota bounds what a share may hold. It is that of the engine.
type Quota interface {
	Take(ctx context.Context, bytes, entries int64) error
	Settle(bytes, entries int64, there bool)
	Freed()
	Moving() (moved func())
}

// Files bounds the files that a user has open. It is that of the engine.
type Files interface {
	Take() error
	Give(n int)
}

// Outcome says what was done to an entry.
type Outcome string

// The outcomes.
const (
	Received Outcome = "committed"
	Sent     Outcome = "read"
	Made     Outcome = "made"
	Moved    Outcome = "moved"
	Removed  Outcome = "removed"
	Changed  Outcome = "changed" // its metadata
)

// Record is one thing that was done, or that failed.
type Record struct {
	Outcome Outcome // also of what failed
	Path    string  // in the share
	To      string  // of a move
	Bytes   int64   // received or sent
	Err     error   // nil if it was done
}

// Fault is what is wrong, for the codes of a protocol.
type Fault int

// The faults.
const (
	Other Fault = iota
	NotFound
	Denied
	Exists
	NotEmpty
	NoSpace
	Busy
	Unsupported
)

// Omitted are entries that a list lacks.
type Omitted = access.Omitted

// ErrName marks the name of an entry that no list of a protocol can have.
var ErrName = disk.ErrPath

// ErrUnsupported marks what doors do not do.
var ErrUnsupported = errors.New("this server does not do that")

// FaultOf returns what is wrong, and a text for the user.
func FaultOf(err error) (f Fault, text string) {
	var known *wire.Error
	if errors.As(err, &known) {
		return codeFaults[known.Code], wire.Printable(known.Text)
	}
	text = wire.Printable(err.Error())
	for _, x := range faults {
		if errors.Is(err, x.err) {
			return x.fault, text
		}
	}
	return Other, text
}

var codeFaults = map[wire.Code]Fault{
	wire.CodeRight: Denied, wire.CodePath: Denied, wire.CodeTrust: Denied, wire.CodeNotFound: NotFound,
	wire.CodeNoSpace: NoSpace, wire.CodeBusy: Busy, wire.CodeUnsupported: Unsupported,
	wire.CodeTaken: Exists, wire.CodeNotEmpty: NotEmpty,
}

var faults = []struct {
	err   error
	fault Fault
}{
	{fs.ErrNotExist, NotFound}, {disk.ErrNotFolder, NotFound}, {fs.ErrPermission, Denied}, {disk.ErrPath, Denied},
	{ErrLogin, Denied}, {disk.ErrExists, Exists}, {fs.ErrExist, Exists}, {disk.ErrNotEmpty, NotEmpty},
	{disk.ErrNoSpace, NoSpace}, {disk.ErrBusy, Busy}, {disk.ErrTooManyFiles, Busy},
	{disk.ErrUnsupportedKind, Unsupported}, {ErrUnsupported, Unsupported},
}
