package filter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// ReadRules reads the rules in a gitignore file, for Options. It drops comments, blank lines,
// trailing spaces and a byte order mark. Lines end in LF or CRLF. A rule that New would refuse is
// an error with the line number. MaxRules holds here, too.
func ReadRules(r io.Reader) ([]string, error) {
	var rules []string
	number := 0
	for line, err := range lines(r, '\n', MaxRule) {
		number++
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = trimSpaces(line)
		if line == "" {
			continue
		}
		if _, err := parse(line); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", number, clip(line), err)
		}
		if len(rules) == MaxRules {
			return nil, fmt.Errorf("line %d: more than %d rules", number, MaxRules)
		}
		rules = append(rules, line)
	}
	return rules, nil
}

// trimSpaces removes trailing spaces, but not a space after a backslash.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			i++
		}
		end = i + 1
	}
	return line[:min(end, len(line))]
}

// lines yields the text before each delimiter, and after the last one unless that is empty. A
// carriage return before a newline belongs to the delimiter. lines stops after the first error,
// from r or about a line of more than most bytes.
func lines(r io.Reader, delimiter byte, most int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		b := bufio.NewReaderSize(r, most+2)
		for {
			line, err := b.ReadSlice(delimiter)
			if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
				yield("", err)
				return
			}
			if err == io.EOF && len(line) == 0 {
				return
			}
			line = bytes.TrimSuffix(line, []byte{delimiter})
			if delimiter == '\n' {
				line = bytes.TrimSuffix(line, []byte{'\r'})
			}
			if len(line) > most {
				yield("", fmt.Errorf("%q: longer than %d bytes", clip(string(line)), most))
				return
			}
			if !yield(string(line), nil) || err == io.EOF {
				return
			}
		}
	}
}
