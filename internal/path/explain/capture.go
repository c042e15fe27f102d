package explain

import (
	"context"
	"errors"
	"io"
)

// ErrNoCapture matches the errors of Capture about files of another format.
var ErrNoCapture = errors.New("this is no capture in the format pcap or pcapng")

// Capture reads a capture.
func Capture(ctx context.Context, in io.Reader, name string) (*Report, error) {
	return nil, ErrNoCapture
}
