package transfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// reportFile writes the file of --report: one object per line and entry.
type reportFile struct {
	file *os.File
	buf  *bufio.Writer
	enc  *json.Encoder
	err  error // first error of writing
}

type reportLine struct {
	Path   string        `json:"path"`
	Raw    []byte        `json:"path_base64,omitempty"` // if the path is not UTF-8
	Kind   string        `json:"kind"`
	Action fxfer.Outcome `json:"action"`
	Bytes  int64         `json:"bytes"`
	Digest string        `json:"digest,omitempty"`
	Error  string        `json:"error,omitempty"`
}

func newReportFile(name string) (*reportFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("report: %w", err)}
	}
	r := &reportFile{file: f, buf: bufio.NewWriterSize(f, 64<<10)}
	r.enc = json.NewEncoder(r.buf)
	r.enc.SetEscapeHTML(false)
	return r, nil
}

func (r *reportFile) line(x *fxfer.FileResult) {
	line := reportLine{Path: x.Path, Raw: term.RawPath(x.Path), Kind: x.Kind, Action: x.Outcome, Bytes: x.Bytes, Digest: x.Digest}
	if x.Err != nil {
		line.Error = x.Err.Error()
	}
	if err := r.enc.Encode(line); err != nil && r.err == nil {
		r.err = err
	}
}

func (r *reportFile) flush() {
	if err := r.buf.Flush(); err != nil && r.err == nil {
		r.err = err
	}
}

// close returns the first error of writing.
func (r *reportFile) close() error {
	r.flush()
	return errors.Join(r.err, r.file.Close())
}

// reporting is a display that also writes a report.
type reporting struct {
	display
	lines *reportFile
}

func (r *reporting) progress(p *fxfer.Progress) {
	r.lines.flush() // so that the file is up to date for a reader, and after a kill
	r.display.progress(p)
}

func (r *reporting) file(x *fxfer.FileResult) {
	r.lines.line(x)
	r.display.file(x)
}
