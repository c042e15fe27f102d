package transfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// reportFile writes the file of --report: the objects of the entries that --json prints.
type reportFile struct {
	file *os.File
	buf  *bufio.Writer
	enc  *json.Encoder
	err  error // first error of writing
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
	if err := r.enc.Encode(jsonFileOf(x)); err != nil && r.err == nil {
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
	if l, ok := r.display.(lister); ok {
		l.file(x)
	}
}
