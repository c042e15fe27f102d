package wire

import (
	"fmt"
	"maps"
	"slices"
)

// Code says why something was refused or failed. Codes are part of the protocol: a number never
// changes its meaning.
type Code uint64

// The codes.
const (
	CodeOther       Code = 1  // anything else
	CodeVersion     Code = 2  // another major version
	CodeTrust       Code = 3  // the key is not admitted, or the invitation is not valid
	CodeRight       Code = 4  // no such share for this client, or the right is missing
	CodePath        Code = 5  // the path is refused
	CodeNotFound    Code = 6  // no such file
	CodeSourceDisk  Code = 7  // reading failed
	CodeTargetDisk  Code = 8  // writing failed
	CodeNoSpace     Code = 9  // the target is full
	CodeBusy        Code = 10 // the server is full, or another session has the file: try again
	CodeIntegrity   Code = 11 // digests differ
	CodeChanged     Code = 12 // the source changed while it was read
	CodeUnsupported Code = 13 // a kind of entry or a setting is not supported here
	CodeProtocol    Code = 14 // the peer broke the protocol
	CodeDraining    Code = 15 // the server shuts down: try again
	CodeCancelled   Code = 16 // the peer's user stopped the session
	CodeAgain       Code = 17 // the source changed; a new entry follows
	CodeSilent      Code = 18 // the peer was silent for too long: try again
	CodeExists      Code = 19 // the snapshot is already complete
	CodeIncomplete  Code = 20 // the snapshot lacks entries and stays invisible
	CodeCertificate Code = 21 // the client's certificate is not valid, or its name not admitted
	CodeNotEmpty    Code = 22 // a folder that holds entries
	CodeFolder      Code = 23 // a folder where a file is needed
	CodeTaken       Code = 24 // another entry has the name
)

// codeNames are also the values of a label in the metrics.
var codeNames = map[Code]string{
	CodeOther:       "failed",
	CodeVersion:     "version not supported",
	CodeTrust:       "not admitted",
	CodeRight:       "no right",
	CodePath:        "path refused",
	CodeNotFound:    "not found",
	CodeSourceDisk:  "source disk",
	CodeTargetDisk:  "target disk",
	CodeNoSpace:     "no space",
	CodeBusy:        "busy",
	CodeIntegrity:   "integrity",
	CodeChanged:     "source changed",
	CodeUnsupported: "not supported",
	CodeProtocol:    "protocol",
	CodeDraining:    "server ends",
	CodeCancelled:   "cancelled",
	CodeAgain:       "changed, sent again",
	CodeSilent:      "nothing heard",
	CodeExists:      "exists",
	CodeIncomplete:  "incomplete",
	CodeCertificate: "certificate not admitted",
	CodeNotEmpty:    "not empty",
	CodeFolder:      "is a folder",
	CodeTaken:       "name taken",
}

// String names the code for people.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code %d", uint64(c))
}

// Codes returns all codes in order.
func Codes() []Code { return slices.Sorted(maps.Keys(codeNames)) }

// Error is a failure with the code that travels to the peer.
type Error struct {
	Code   Code
	Text   string // one line; it may come from the peer, so print it with Printable
	Remote bool   // the peer reported it
}

// Errorf makes a local Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the text, or the code's name if there is none.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Code.String()
	}
	return Printable(e.Text)
}

// Printable replaces control characters. A peer's text or a file's name could otherwise drive a
// terminal or forge a line of output.
func Printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		if isControl(r) {
			r = '\ufffd'
		}
		out = append(out, r)
	}
	return string(out)
}

func isControl(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r == 0x2028, r == 0x2029: // separators of lines and paragraphs
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 // direction of writing
}
