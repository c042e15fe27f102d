package ssh

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/fxfer/fxfer/internal/cli/term"
)

const (
	relayedLine  = 4 << 10 // bytes; what is longer becomes several lines
	relayedLines = 200
)

// relay passes on what ssh prints for people. The host can print there as well, so a relay passes
// on lines that are safe for a terminal, and a bounded number of them.
type relay struct {
	w io.Writer

	mu    sync.Mutex // guards what follows
	line  []byte     // the next line as far as it is known
	lines int        // that came
}

func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range p {
		if c != '\n' {
			r.line = append(r.line, c)
		}
		if c == '\n' || len(r.line) == relayedLine {
			r.pass()
		}
	}
	return len(p), nil
}

// end passes on a last line that has no end.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.line) > 0 {
		r.pass()
	}
}

func (r *relay) pass() {
	text := strings.TrimRight(string(r.line), "\r")
	r.line = r.line[:0]
	switch r.lines++; {
	case r.lines <= relayedLines:
		fmt.Fprintln(r.w, term.OneLine(text))
	case r.lines == relayedLines+1:
		fmt.Fprintf(r.w, "fxfer: warning: ssh prints more than %d lines: the others are left out\n", relayedLines)
	}
}
