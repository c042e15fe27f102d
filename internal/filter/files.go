package filter

import (
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"
)

// maxPath is the length of the longest line in a list of files, in bytes.
const maxPath = 4096

// ReadFiles reads a list of paths, which are relative to the transfer root. There is one path on
// each line, and lines end in LF or CRLF. With nul, each path ends in a NUL byte instead, so that
// names may contain newlines. Empty lines are ignored.
//
// It yields the paths clean and slash separated, in the order of the list, with duplicates. It
// stops after the first error, from r or about a path that is absolute, leads out of the root or
// has more than 4096 bytes. It reads the list during the loop, so the length of the list does not
// matter.
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
		why = "NUL byte; is this a list with NUL bytes between the paths?"
	case path.IsAbs(name) || filepath.VolumeName(line) != "":
		why = "absolute; paths in the list are relative to the transfer root"
	case name == ".." || strings.HasPrefix(name, "../"):
		why = "leads out of the transfer root"
	}
	if why != "" {
		return "", fmt.Errorf("%q: %s", clip(line), why)
	}
	return name, nil
}
