package identity

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"
)

const (
	// lookEvery is the shortest time between two checks of the files.
	lookEvery = time.Second
	// maxRenewed is the largest size of such a file in bytes. A list of a million revoked
	// certificates takes some 40 MB.
	maxRenewed = 64 << 20
)

// watched is a value that is parsed from files, and parsed again when somebody renews them.
type watched[T any] struct {
	paths []string
	parse func(texts [][]byte) (T, error)
	tell  func(error) // gets nil after a renewal, and an error when the new content cannot be used; one call at a time

	mu     sync.Mutex // guards what follows
	value  T
	texts  [][]byte
	seen   []fs.FileInfo // nil: read the files again
	read   time.Time
	looked time.Time
	failed string // last error that tell got, "" if there is none
}

// watch reads files for the first time.
func watch[T any](paths []string, parse func(texts [][]byte) (T, error), tell func(error)) (*watched[T], error) {
	w := &watched[T]{paths: paths, parse: parse, tell: tell}
	if w.tell == nil {
		w.tell = func(error) {}
	}
	now := time.Now()
	texts, seen, err := readAll(paths)
	if err == nil {
		w.value, err = parse(texts)
	}
	w.texts, w.seen, w.read, w.looked = texts, seen, now, now
	return w, err
}

// get returns the value, at most a second old. It ignores files that cannot be parsed, such as
// files that are being written.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.looked) >= lookEvery {
		w.looked = now
		w.lookLocked(now)
	}
	return w.value
}

// look is get without the wait for the next check.
func (w *watched[T]) look() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = time.Now()
	w.seen = nil
	w.lookLocked(w.looked)
	return w.value
}

func (w *watched[T]) lookLocked(now time.Time) {
	same := w.seen != nil
	for i, path := range w.paths {
		same = same && unchanged(path, w.seen[i], w.read)
	}
	if same {
		return
	}
	texts, seen, err := readAll(w.paths)
	if err == nil && slices.EqualFunc(texts, w.texts, bytes.Equal) {
		w.seen, w.read, w.failed = seen, now, ""
		return
	}
	var fresh T
	if err == nil {
		fresh, err = w.parse(texts)
	}
	if err != nil {
		w.seen = nil
		if text := err.Error(); text != w.failed {
			w.failed = text
			w.tell(err)
		}
		return
	}
	w.value, w.texts, w.seen, w.read, w.failed = fresh, texts, seen, now, ""
	w.tell(nil)
}

// readAll reads files, and returns the info of each from the moment of reading.
func readAll(paths []string) (texts [][]byte, seen []fs.FileInfo, err error) {
	for _, path := range paths {
		text, info, err := readRenewed(path)
		if err != nil {
			return nil, nil, err
		}
		texts, seen = append(texts, text), append(seen, info)
	}
	return texts, seen, nil
}

func readRenewed(path string) ([]byte, fs.FileInfo, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRenewed+1))
	if err == nil && len(text) > maxRenewed {
		err = fmt.Errorf("%s has more than %d MiB", path, maxRenewed>>20)
	}
	return text, info, err
}
