package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// ErrSnapshotExists says that the snapshot to be sent is complete already.
var ErrSnapshotExists = errors.New("the snapshot is complete")

// Kind classes errors by what a user can do about them.
type Kind int

// The kinds.
const (
	KindOther       Kind = iota
	KindUsage            // the request makes no sense
	KindPartial          // some entries failed, the others are in place
	KindTrust            // a key, a certificate, an invitation or a right is missing
	KindUnreachable      // no connection, or lost and not regained in time
	KindIntegrity        // data, or the self-test of the ciphers, did not pass a check
	KindLocalDisk        // this host's disk
	KindRemoteDisk       // the peer's disk
	KindInterrupted      // stopped by the user, or by the end of the caller's context, which it matches
	KindNotFound         // the peer has no such file or folder
)

var kindNames = [...]string{
	KindOther: "other", KindUsage: "usage", KindPartial: "partial", KindTrust: "trust",
	KindUnreachable: "unreachable", KindIntegrity: "integrity", KindLocalDisk: "local disk",
	KindRemoteDisk: "remote disk", KindInterrupted: "interrupted", KindNotFound: "not found",
}

// String returns the kind as a word, such as "usage".
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

// Advice is what helps against an error, beyond what its text says. Package hint has the words.
type Advice string

// The kinds of advice. Each is for the user of the side that has the error.
const (
	AdviceResume            Advice = "resume"                      // make the same transfer again
	AdviceRetry             Advice = "resume, or retry for longer" // see RetryFor of the client's options
	AdviceRetryLater        Advice = "retry later"
	AdviceMakeRoom          Advice = "make room at the server" // then resume
	AdviceAgain             Advice = "start again"             // it does not resume
	AdviceMakeRoomAgain     Advice = "make room, start again"  // it does not resume
	AdviceMakeFolder        Advice = "make the folder"         // that the target is in
	AdviceRename            Advice = "rename the entry"        // or leave it out
	AdviceInvitation        Advice = "ask for an invitation"
	AdviceReadmit           Advice = "be admitted by the administrator" // no invitation does it
	AdviceServerLog         Advice = "ask the administrator"            // whose log says more
	AdviceServerPort        Advice = "check the port"                   // another service may have it
	AdviceServerCopies      Advice = "have copies allowed"              // or transfer the files by way of this host
	AdviceServerCertificate Advice = "give the server a certificate"    // or trust its key
	AdviceServerClientCA    Advice = "name the CA at the server"        // or use the key
	AdviceCheckPin          Advice = "check the pin"
	AdviceFixPathMTU        Advice = "let ICMP pass"  // or probe the MTU
	AdviceNotStrict         Advice = "be less strict" // see Strict of the target
	AdviceUpdateServer      Advice = "update the server"
	AdviceRestartServer     Advice = "restart the server" // its confinement does not include the folder
	AdviceRelay             Advice = "look after the relay"
	AdviceRelayInvitation   Advice = "ask for the relay's invitation" // which has its key
	AdviceStandardCrypto    Advice = "use the standard library"       // see StandardCrypto of the options
)

// Error is an error with its kind, and advice where there is some.
type Error struct {
	Kind   Kind
	Err    error
	Advice Advice
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of a client or server; KindOther for nil and for errors that
// are not theirs.
func KindOf(err error) Kind {
	var known *Error
	var remote *wire.Error
	var netErr net.Error // also what the system says about a file
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return KindOther
	case errors.As(err, &known):
		return known.Kind
	case errors.Is(err, context.Canceled):
		return KindInterrupted
	case errors.Is(err, identity.ErrUnknownServer), errors.Is(err, identity.ErrServerChanged):
		return KindTrust
	case errors.As(err, &remote):
		return KindOfCode(remote)
	case errors.Is(err, disk.ErrPath), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, disk.ErrNoSpace):
		return KindLocalDisk
	case errors.Is(err, os.ErrDeadlineExceeded):
		return KindUnreachable
	case errors.As(err, &path), errors.As(err, &link):
		return KindLocalDisk
	case errors.As(err, &netErr):
		return KindUnreachable
	}
	return KindOther
}

// KindOfCode returns the kind of an error with a code of the protocol. It is about the peer if the
// peer sent the code.
func KindOfCode(e *wire.Error) Kind {
	diskKind := KindLocalDisk
	if e.Remote {
		diskKind = KindRemoteDisk
	}
	switch e.Code {
	case wire.CodeTrust, wire.CodeRight, wire.CodeCertificate:
		return KindTrust
	case wire.CodePath, wire.CodeExists, wire.CodeNotEmpty, wire.CodeFolder, wire.CodeTaken:
		return KindUsage
	case wire.CodeIncomplete:
		return KindPartial
	case wire.CodeIntegrity, wire.CodeChanged:
		return KindIntegrity
	case wire.CodeNotFound:
		if e.Remote {
			return KindNotFound
		}
		return KindLocalDisk
	case wire.CodeSourceDisk, wire.CodeTargetDisk, wire.CodeNoSpace, wire.CodeUnsupported:
		return diskKind
	case wire.CodeDraining, wire.CodeBusy, wire.CodeSilent:
		return KindUnreachable
	case wire.CodeCancelled:
		return KindInterrupted
	}
	return KindOther
}

// CongestionError is the error for the user if err is that this host does not have the congestion control
// that was asked for, or does not allow it; otherwise nil.
func CongestionError(err error) error {
	if !errors.Is(err, transport.ErrCongestion) {
		return nil
	}
	var socket *net.OpError // the address has nothing to do with it
	if errors.As(err, &socket) {
		err = socket.Err
	}
	return &Error{Kind: KindUsage, Err: err}
}

// ListenError explains why this host can't listen on an address.
func ListenError(addr string, err error) error {
	var bad *net.AddrError
	var unknown *net.DNSError
	if known := CongestionError(err); known != nil {
		return known
	}
	if errors.As(err, &bad) || errors.As(err, &unknown) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return Usage("", "listen on %s: %w", addr, err)
	}
	// The port is taken, or this user may not use it.
	return &Error{Kind: KindOther, Err: fmt.Errorf("listen on %s: %w", addr, err)}
}

// Usage is the error of a request that makes no sense. Its text ends with what to do instead, which
// may be "".
func Usage(instead, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if instead != "" {
		err = fmt.Errorf("%w: %s", err, instead)
	}
	return &Error{Kind: KindUsage, Err: err}
}
