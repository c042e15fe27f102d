package wire

import (
	"fmt"
	"maps"
	"slices"
)

// Code tells a peer why something was refused or failed. Codes are part of the protocol: never renumbered.
type Code uint64

// The codes.
const (
	CodeOther       Code = 1  // anything else
	CodeVersion     Code = 2  // other major version
	CodeTrust       Code = 3  // key not admitted, invitation not valid
	CodeRight       Code = 4  // share does not exist for this client, or the right is missing
	CodePath        Code = 5  // path refused
	CodeNotFound    Code = 6  // no such file
	CodeSourceDisk  Code = 7  // reading failed
	CodeTargetDisk  Code = 8  // writing failed
	CodeNoSpace     Code = 9  // target full
	CodeBusy        Code = 10 // another transfer has this file, or the server is full: come again
	CodeIntegrity   Code = 11 // digests differ
	CodeChanged     Code = 12 // source changed while it was read
	CodeUnsupported Code = 13 // kind of entry or setting not supported here
	CodeProtocol    Code = 14 // peer broke the protocol
	CodeDraining    Code = 15 // server ends: come again
	CodeCancelled   Code = 16 // the peer's user stopped it
	CodeAgain       Code = 17 // source changed, the entry follows anew
	CodeSilent      Code = 18 // nothing was heard of the peer for too long: come again
	CodeExists      Code = 19 // the snapshot is complete
	CodeIncomplete  Code = 20 // the snapshot lacks entries, and is not visible
	CodeCertificate Code = 21 // the client's certificate is not valid, or its name not admitted
)

var codeNames = map[Code]string{
	CodeOther: "failed", CodeVersion: "version not supported", CodeTrust: "not admitted", CodeRight: "no right",
	CodePath: "path refused", CodeNotFound: "not found", CodeSourceDisk: "source disk", CodeTargetDisk: "target disk",
	CodeNoSpace: "no space", CodeBusy: "busy", CodeIntegrity: "integrity", CodeChanged: "source changed",
	CodeUnsupported: "not supported", CodeProtocol: "protocol", CodeDraining: "server ends", CodeCancelled: "cancelled", CodeAgain: "changed, sent again",
	CodeSilent: "nothing heard", CodeExists: "exists", CodeIncomplete: "incomplete", CodeCertificate: "certificate not admitted",
}

// String names the code for people.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Codes returns all codes, in order.
func Codes() []Code { return slices.Sorted(maps.Keys(codeNames)) }

// Error is a failure with the code that crosses the wire.
type Error struct {
	Code   Code
	Text   string // one line; may come from the peer: print it with Printable
	Remote bool   // reported by the peer
}

// Errorf makes a local Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error is the text, or the code's name where there is none.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Code.String()
	}
	return Printable(e.Text)
}

// Printable replaces control characters, so that a peer's text or a file's name cannot drive a terminal or forge a line.
func Printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			r = '\ufffd'
		}
		out = append(out, r)
	}
	return string(out)
}
