package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/fxfer/fxfer/internal/wire"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	exitOK          = 0
	exitInterrupted = 130 // 128 + SIGINT, as of a shell
)

// classify returns the name of an error's kind, as in JSON output, and the exit code. The codes are listed in the help
// of the root command.
func classify(err error) (kind string, code int) {
	var child ExitError
	if errors.As(err, &child) {
		return "command", child.Code
	}
	switch fxfer.KindOf(err) {
	case fxfer.KindUsage:
		return "usage", 2
	case fxfer.KindPartial:
		return "partial", 3
	case fxfer.KindTrust:
		return "trust", 4
	case fxfer.KindUnreachable:
		return "unreachable", 5
	case fxfer.KindIntegrity:
		return "integrity", 6
	case fxfer.KindLocalDisk:
		return "local_disk", 7
	case fxfer.KindRemoteDisk:
		return "remote_disk", 8
	case fxfer.KindInterrupted:
		return "interrupted", exitInterrupted
	case fxfer.KindOther:
	}
	return "other", 1
}

func usageError(hint, format string, args ...any) error {
	return &fxfer.Error{Kind: fxfer.KindUsage, Err: fmt.Errorf(format, args...), Remedy: hint}
}

// hintOf returns what may help against err: what its cause suggests, or else the first hint on its chain, or "".
func hintOf(err error) string {
	var name *net.DNSError
	var coded *wire.Error
	switch {
	case errors.As(err, &coded) && (coded.Code == wire.CodeDraining || coded.Code == wire.CodeBusy):
		return "try again later; --retry-for 10m keeps trying"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "is `fxfer serve` running there, and on this port?"
	case errors.As(err, &name) && name.IsNotFound:
		return "check the name of the host"
	}
	for {
		var h interface {
			error
			Hint() string
		}
		if !errors.As(err, &h) {
			return ""
		}
		if hint := h.Hint(); hint != "" {
			return hint
		}
		err = errors.Unwrap(h)
	}
}

func printError(w io.Writer, err error) {
	var child ExitError
	if errors.As(err, &child) && err.Error() == child.Error() {
		return // the command has said what it had to say
	}
	fmt.Fprintf(w, "fxfer: error: %s\n", oneLine(err.Error()))
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "fxfer: hint: %s\n", oneLine(hint))
	}
}

// oneLine makes text that may hold a file's name or a peer's words fit for a terminal.
func oneLine(s string) string { return wire.Printable(strings.ReplaceAll(s, "\n", "; ")) }
