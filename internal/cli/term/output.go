package term

import (
	"io"
	"os"
	"sync"
)

// Output is a file that remembers the first error of writing. Most commands print without looking
// at errors, and the end of the program asks once. It is safe for concurrent use.
type Output struct {
	file *os.File

	mu  sync.Mutex // guards err
	err error
}

// NewOutput returns the output to a file.
func NewOutput(f *os.File) *Output { return &Output{file: f} }

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Err returns the first error of writing.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// File returns the file behind w, and nil if there is none.
func File(w io.Writer) *os.File {
	switch w := w.(type) {
	case *Output:
		return w.file
	case *os.File:
		return w
	}
	return nil
}
