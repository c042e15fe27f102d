// Package term writes text for people and lines for programs, and asks questions on the terminal.
package term

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/fxfer/fxfer/internal/wire"
)

// Present tells whether there is somebody to ask.
func Present() bool {
	in, out, err := open()
	if err != nil {
		return false
	}
	in.Close()
	out.Close()
	return true
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// OneLine makes text that may hold a file's name or a peer's words fit for a terminal.
func OneLine(s string) string { return wire.Printable(strings.ReplaceAll(s, "\n", "; ")) }

// ShortName fits a path of any origin into width columns, with its end visible.
func ShortName(path string, width int) string {
	path = OneLine(path)
	if over := runewidth.StringWidth(path) - width; over > 0 {
		return runewidth.TruncateLeft(path, over+1, "…")
	}
	return path
}

// Nonzero formats a number, or returns "" for 0.
func Nonzero(n int64, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// PathAnd joins a path, which may be missing, and what there is to say of it, which may be, too.
func PathAnd(path, text string) string {
	path, text = OneLine(path), OneLine(text)
	if path != "" && text != "" {
		return path + ": " + text
	}
	return path + text
}
