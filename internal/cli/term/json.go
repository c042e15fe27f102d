package term

import (
	"encoding/json"
	"io"
	"unicode/utf8"
)

// RawPath returns the bytes of a path that is not UTF-8, and nil for other paths.
func RawPath(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// JSON prints v as a line of JSON. The caller makes sure that JSON can represent v. Errors of
// writing are ignored, because then nobody reads the output.
func JSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}
