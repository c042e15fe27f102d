package term

import (
	"encoding/json"
	"io"
	"unicode/utf8"
)

// RawPath returns the bytes of a path that JSON can't hold, nil of others.
func RawPath(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// JSON prints v, which holds no value that JSON lacks. Nobody can be told that nobody reads it.
func JSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}
