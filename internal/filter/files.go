package filter

import (
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"
)

// maxPath is the longest line of a list of files, bytes.
const maxPath = 4096

// ReadFiles reads a list of paths relative to the transfer root: one in each line, which ends in LF or CRLF, or with nul
// in front of each NUL byte, so that a name may hold a newline. Empty ones are passed over.
//
// It yields them clean and slash separated, in the order of the list, as often as they occur there. The first error is
// the last element: one of r, or one that names the path that is absolute, leads out of the root or is longer than 4096
// bytes. The list is read as the loop goes, so its length doesn't matter.
func ReadFiles(r io.Reader, nul bool) iter.Seq2[string, error] {
	delimiter, unit := byte('\n'), "line"
	if nul {
		delimiter, unit = 0, "path"
	}
	return func(yield func(string, error) bool) {
		number := 0
		for line, err := range lines(r, delimiter, maxPath) {
			number++
			if err == nil && line == "" {
				continue
			}
			var name string
			if err == nil {
				name, err = cleanPath(line)
			}
			if err != nil {
				yield("", fmt.Errorf("%s %d: %w", unit, number, err))
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

func cleanPath(line string) (string, error) {
	why := ""
	name := path.Clean(filepath.ToSlash(line))
	switch {
	case strings.IndexByte(name, 0) >= 0:
		why = "NUL byte; is this a list that NUL bytes separate?"
	case path.IsAbs(name) || filepath.VolumeName(line) != "":
		why = "absolute; paths of the list are relative to the transfer root"
	case name == ".." || strings.HasPrefix(name, "../"):
		why = "leads out of the transfer root"
	}
	if why != "" {
		return "", fmt.Errorf("%q: %s", clip(line), why)
	}
	return name, nil
}
