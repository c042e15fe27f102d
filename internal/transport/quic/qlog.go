package quic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// tracer makes the log of a connection. nil makes none.
type tracer func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace

// traceTo returns a tracer that writes a file for each connection into a folder, for viewers of
// qlog such as qvis. all waits until the files are complete. A file that can't be created is left
// out.
func traceTo(dir string, all *sync.WaitGroup) tracer {
	if dir == "" {
		return nil
	}
	return func(_ context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s.sqlog", id)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil
		}
		seq := qlogwriter.NewConnectionFileSeq(&tracedFile{bufio.NewWriter(f), f}, isClient, id)
		all.Go(seq.Run)
		return seq
	}
}

var _ = qlog.EventSchema // quic-go needs its package for the names of the events

// tracedFile is a file behind a buffer.
type tracedFile struct {
	*bufio.Writer
	file io.Closer
}

func (f *tracedFile) Close() error { return errors.Join(f.Flush(), f.file.Close()) }
