package webdav

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"time"

	"golang.org/x/net/webdav"

	"github.com/fxfer/fxfer/internal/door"
)

// unsupported is a webdav.File that can do nothing.
type unsupported struct{}

func (unsupported) Read([]byte) (int, error)           { return 0, door.ErrUnsupported }
func (unsupported) Write([]byte) (int, error)          { return 0, door.ErrUnsupported }
func (unsupported) Seek(int64, int) (int64, error)     { return 0, door.ErrUnsupported }
func (unsupported) Readdir(int) ([]fs.FileInfo, error) { return nil, door.ErrUnsupported }
func (unsupported) Stat() (fs.FileInfo, error)         { return nil, door.ErrUnsupported }
func (unsupported) Close() error                       { return nil }

// folder is a folder to list, or any entry to describe.
type folder struct {
	unsupported
	q     *request
	entry *entry
	holds int // entries that the library keeps
}

func (f *folder) Stat() (fs.FileInfo, error) { return f.entry, nil }

// Readdir implements webdav.File. The library asks for all entries at once.
func (f *folder) Readdir(int) (all []fs.FileInfo, err error) {
	if f.q.head.Method == "PROPFIND" {
		return f.q.children, nil
	}
	before := f.q.listed
	all, err = f.q.list(f.entry.path)
	f.holds = f.q.listed - before
	if err == nil {
		all, err = f.q.copied(f.entry.path, all)
	}
	if err != nil {
		f.q.fault = err
	}
	return all, err
}

// Close implements webdav.File. A COPY closes a folder after all below it.
func (f *folder) Close() error {
	f.q.forget(f.holds)
	f.holds = 0
	return nil
}

// reader is a file that leaves.
type reader struct {
	unsupported
	q     *request
	file  *door.File
	entry *entry
	at    int64
}

func (f *reader) Stat() (fs.FileInfo, error) { return f.entry, nil }

func (f *reader) Close() error {
	f.file.Fail(f.q.unsent)
	return f.file.Close()
}

func (f *reader) Read(b []byte) (int, error) {
	n, err := f.file.ReadAt(b, f.at)
	f.at += int64(n)
	switch {
	case !errors.Is(err, io.EOF):
	case n > 0:
		err = nil
	case f.at < f.file.Size(): // it is shorter than when it was opened, and a copy would be whole
		err = io.ErrUnexpectedEOF
		f.file.Fail(err)
	}
	return n, err
}

func (f *reader) Seek(to int64, from int) (int64, error) {
	switch from {
	case io.SeekCurrent:
		to += f.at
	case io.SeekEnd:
		to += f.file.Size()
	}
	if to < 0 {
		return 0, fs.ErrInvalid
	}
	f.at = to
	return to, nil
}

// copyBuffer is the buffer of a file that arrives.
const copyBuffer = 256 << 10

// writer is a file that arrives.
type writer struct {
	unsupported
	q      *request
	upload *door.Upload
	path   string
	whole  bool // all of it has arrived
	at     int64
}

// ReadFrom implements io.ReaderFrom, by which the library brings the whole file, or what there is of
// it: it closes the file in both cases.
func (f *writer) ReadFrom(r io.Reader) (int64, error) {
	buf := make([]byte, copyBuffer)
	for {
		n, err := door.Fill(r, buf)
		if n > 0 {
			if _, err := f.upload.WriteAt(buf[:n], f.at); err != nil {
				f.q.fault = err
				return f.at, err
			}
			f.at += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			f.whole = true
			return f.at, nil
		case err != nil:
			f.q.fault = fmt.Errorf("%w: %w", errCut, err)
			return f.at, err
		}
	}
}

var errCut = errors.New("the file ended before it was whole")

// Stat implements webdav.File. The library asks for the tag when the file is closed.
func (f *writer) Stat() (fs.FileInfo, error) {
	return &entry{reserved(path.Base(f.path)), f.path, func() string {
		info, err := f.q.tree.Stat(f.path, true)
		if err != nil { // it may be gone already
			return ""
		}
		return tagOf(info)
	}}, nil
}

// Close gives the file its name if it is whole.
func (f *writer) Close() error {
	switch {
	case !f.whole:
		return f.upload.Abort(errCut)
	case f.q.isLocked(f.path): // since the file began
		f.q.fault = webdav.ErrLocked
		return f.upload.Abort(f.q.fault)
	case f.q.head.Method == http.MethodPut && !f.q.matches(): // any more
		f.q.fault = errChanged
		return f.upload.Abort(f.q.fault)
	}
	err := f.upload.Close()
	if err == nil && f.q.head.Method == http.MethodPut { // a COPY may have many files
		err = f.upload.Confirm(f.q.head.Context())
	}
	if err != nil {
		f.q.fault = err
	}
	return err
}

// properties is an entry whose properties the client changes. None is kept but the time.
type properties struct {
	unsupported
	q    *request
	path string
}

// DeadProps implements webdav.DeadPropsHolder.
func (f *properties) DeadProps() (map[xml.Name]webdav.Property, error) { return nil, nil }

// windows is the name space of the properties that Windows sets after each upload. It takes a refusal
// for a failed upload.
const windows = "urn:schemas-microsoft-com:"

// Patch implements webdav.DeadPropsHolder.
func (f *properties) Patch(patches []webdav.Proppatch) ([]webdav.Propstat, error) {
	var modTime *time.Time
	done := webdav.Propstat{Status: http.StatusOK}
	refused := webdav.Propstat{Status: http.StatusForbidden}
	for _, patch := range patches {
		for _, p := range patch.Props {
			name := webdav.Property{XMLName: p.XMLName}
			if patch.Remove || p.XMLName.Space != windows {
				refused.Props = append(refused.Props, name)
				continue
			}
			done.Props = append(done.Props, name)
			if p.XMLName.Local == "Win32LastModifiedTime" {
				if t, err := http.ParseTime(string(p.InnerXML)); err == nil {
					modTime = &t
				}
			}
		}
	}
	if len(refused.Props) > 0 { // all or none
		if done.Status = webdav.StatusFailedDependency; len(done.Props) == 0 {
			return []webdav.Propstat{refused}, nil
		}
		return []webdav.Propstat{refused, done}, nil
	}
	if err := f.q.tree.Set(f.path, door.Change{ModTime: modTime}); err != nil {
		return nil, f.q.fail("set", f.path, err)
	}
	return []webdav.Propstat{done}, nil
}
