// Package exit handles the end of a command: its error and hint, its exit code, and signals.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Exit codes that do not depend on the kind of an error. Classify has the others.
const (
	OK          = 0   // done
	interrupted = 130 // 128 + SIGINT, as shells report it
)

// Classify returns the name of an error's kind, which JSON output uses, and the exit code. The help
// of the root command lists the codes.
func Classify(err error) (kind string, code int) {
	var child Status
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
		return "interrupted", interrupted
	case fxfer.KindNotFound:
		return "not_found", 10
	case fxfer.KindOther:
	}
	return "other", 1
}

// Usage returns the error for a wrong use of a command. The advice becomes the hint; "" is none.
func Usage(advice, format string, args ...any) error {
	return WithHint(&fxfer.Error{Kind: fxfer.KindUsage, Err: fmt.Errorf(format, args...)}, advice)
}

// hinted is an error with a hint for people.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// Hint returns the hint. Package hint looks for this method.
func (e *hinted) Hint() string { return e.hint }

// WithHint adds a hint to an error. The text "" adds none.
func WithHint(err error, text string) error {
	if text == "" {
		return err
	}
	return &hinted{err, text}
}

// Print writes an error and its hint, for people.
func Print(w io.Writer, err error) {
	if silent(err) {
		return
	}
	fmt.Fprintf(w, "fxfer: error: %s\n", term.OneLine(text(err)))
	if text := hint.Of(err); text != "" {
		fmt.Fprintf(w, "fxfer: hint: %s\n", term.OneLine(text))
	}
}

// PrintJSON writes an error and its hint as a JSON line, for programs.
func PrintJSON(w io.Writer, err error) {
	if !silent(err) {
		kind, code := Classify(err)
		term.JSON(w, JSONError{Type: "error", Kind: kind, Message: text(err), Hint: hint.Of(err), ExitCode: code})
	}
}

// text is what an error says, without Go's words for a deadline.
func text(err error) string {
	return strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "no answer in time")
}

// silent reports whether the command has printed everything already.
func silent(err error) bool {
	var child Status
	return errors.As(err, &child) && err.Error() == child.Error()
}

// Interrupted returns the error of a command that a signal stopped.
func Interrupted(advice string) error {
	return WithHint(&fxfer.Error{Kind: fxfer.KindInterrupted, Err: errors.New("interrupted")}, advice)
}

// Outcome returns the error with which a command ends for people and programs. After a signal, that is an
// interruption, whatever the command has noticed first.
func Outcome(err error) error {
	kind := fxfer.KindOf(err)
	if errors.Is(err, context.Canceled) && (kind == fxfer.KindOther || kind == fxfer.KindInterrupted) {
		return Interrupted(hint.Of(err))
	}
	return err
}

// JSONError is the last line of a command with --json that ends with an error.
type JSONError struct {
	Type     string `json:"type"`
	Kind     string `json:"kind"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

// Status asks main to end with this exit code and without a message, because the command has
// printed everything.
type Status struct {
	Code int
}

func (e Status) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// With returns the error that makes fxfer end with this exit code.
func With(code int) error {
	if code == 0 {
		return nil
	}
	return Status{Code: code}
}
