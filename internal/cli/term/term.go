// Package term writes text for people and lines for programs, and asks questions on the terminal.
package term

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/fxfer/fxfer/internal/units"
)

// Present reports whether there is a terminal with somebody who can answer.
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
	f := File(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// Width returns the columns of the terminal that w is; 0 if it is none.
func Width(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(File(w).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// OneLine makes text from any origin safe for one line of a terminal. Without it, control
// characters or changes of the writing direction in a file name could forge other output.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		turns := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		if turns || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return '\ufffd'
		}
		return r
	}, strings.ReplaceAll(s, "\n", "; "))
}

// Name is OneLine for the name or path of an entry, where a line break is no end of a sentence.
func Name(s string) string { return OneLine(strings.ReplaceAll(s, "\n", "\ufffd")) }

// ShortName shortens a path from any origin to width columns, and keeps its end.
func ShortName(path string, width int) string {
	path = Name(path)
	if over := runewidth.StringWidth(path) - width; over > 0 {
		return runewidth.TruncateLeft(path, over+1, "…")
	}
	return path
}

// Wrap breaks a text into lines of at most width columns: after a comma if the line is not
// much shorter then, or else at a space. A word that is wider stays whole.
func Wrap(text string, width int) (lines []string) {
	for text != "" {
		end := len(text)
		for runewidth.StringWidth(text[:end]) > width {
			cut := strings.LastIndex(text[:end-1], ", ") + 1
			if cut < width/3 { // a short line looks like the end
				cut = strings.LastIndex(text[:end-1], " ")
			}
			if cut <= 0 {
				break
			}
			end = cut
		}
		lines = append(lines, text[:end])
		text = strings.TrimPrefix(text[end:], " ")
	}
	return lines
}

// Nonzero formats a number as %s, or returns "" for 0.
func Nonzero(n int64, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, units.Grouped(n))
}

// PathAnd joins a path and a text about it. Either may be empty.
func PathAnd(path, text string) string {
	path, text = Name(path), OneLine(text)
	if path != "" && text != "" {
		return path + ": " + text
	}
	return path + text
}
