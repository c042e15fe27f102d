package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"golang.org/x/sync/errgroup"
)

// manifest collects the digests of the files that are in place, in the format of b3sum. The digest
// of a file that was not sent, or that has holes, is not known from the transfer. Such files are
// noted in a second file and read at the end, so that neither the transfer waits for that nor
// memory grows with their number.
type manifest struct {
	name  string                                     // of the file when it is complete, behind any symlinks
	local func(entry string) (*access.Scope, string) // where an entry is on this host; nil if nowhere
	exact bool                                       // local files are the source and must not have changed

	special bool // name is to be written to, as isSpecial says

	mu    sync.Mutex // guards what follows
	lines *textFile
	later *textFile
	count int64 // files noted in later
	err   error // the first of writing
}

// textFile is a temporary file with a buffer.
type textFile struct {
	*os.File
	buf *bufio.Writer
}

func newTextFile(dir string) (*textFile, error) {
	f, err := os.CreateTemp(dir, ".fxfer-manifest-*") // a name that no walk sends
	if err != nil {
		return nil, err
	}
	return &textFile{f, bufio.NewWriterSize(f, 64<<10)}, nil
}

// empty removes what was written.
func (f *textFile) empty() error {
	f.buf.Reset(f.File)
	_, err := f.Seek(0, io.SeekStart)
	return errors.Join(err, f.Truncate(0))
}

func (f *textFile) remove() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// newManifest creates the temporary files: beside the file that name leads to, or in the folder for
// temporary files if name is special. The caller calls discard in any case.
func newManifest(name string, local func(string) (*access.Scope, string)) (*manifest, error) {
	m := &manifest{name: name, local: local}
	dir := os.TempDir()
	if m.special = isSpecial(name); !m.special {
		m.name = behindLinks(name)
		dir = filepath.Dir(m.name)
	}
	var err error
	if m.lines, err = newTextFile(dir); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.later, err = newTextFile(dir); err != nil {
		m.lines.remove()
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// Restart forgets everything, because a new session finds each entry again.
func (m *manifest) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count = 0
	m.err = errors.Join(m.lines.empty(), m.later.empty())
}

// Add notes a file that is in place.
func (m *manifest) Add(r *session.FileResult, x *wire.Entry) {
	switch {
	case x.Kind != wire.File && x.Kind != wire.Hardlink:
		return
	case r.Outcome != session.Committed && r.Outcome != session.Unchanged && r.Outcome != session.Made:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Digest != "" {
		m.lineLocked(r.Digest, r.Path)
		return
	}
	m.count++
	b := binary.AppendUvarint(nil, uint64(len(r.Path)))
	b = append(b, r.Path...)
	size, modified := x.Size, x.ModTime
	if x.Kind == wire.Hardlink {
		size = -1
	}
	b = binary.AppendVarint(binary.AppendVarint(b, size), modified)
	if _, err := m.later.buf.Write(b); err != nil && m.err == nil {
		m.err = err
	}
}

// unread is the number of files that finish will read.
func (m *manifest) unread() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// lineLocked writes a line as b3sum does. Bytes that are not UTF-8 are replaced, because b3sum
// could not read them.
func (m *manifest) lineLocked(digest, path string) {
	path = strings.ToValidUTF8(path, "\ufffd")
	mark := ""
	if strings.ContainsAny(path, "\\\n") {
		mark, path = `\`, escapeLine.Replace(path)
	}
	if _, err := fmt.Fprintf(m.lines.buf, "%s%s  %s\n", mark, digest, path); err != nil && m.err == nil {
		m.err = err
	}
}

// finish reads the files whose digests are missing and gives the manifest its name. It calls failed
// for files that cannot be read or have changed, and leaves them out.
func (m *manifest) finish(ctx context.Context, failed func(session.FileResult)) error {
	if err := m.digestLater(ctx, failed); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.err
	if err == nil {
		err = m.lines.buf.Flush()
	}
	if err == nil && m.special {
		err = m.copyToSpecial(ctx)
	} else if err == nil {
		err = m.rename()
	}
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// rename gives the complete manifest its name.
func (m *manifest) rename() error {
	if err := m.lines.Chmod(0o644); err != nil {
		return err
	}
	if err := m.lines.Sync(); err != nil {
		return err
	}
	return os.Rename(m.lines.Name(), m.name)
}

// copyToSpecial writes the complete manifest to a special target.
func (m *manifest) copyToSpecial(ctx context.Context) error {
	if _, err := m.lines.Seek(0, io.SeekStart); err != nil {
		return err
	}
	w, err := openSpecial(ctx, m.name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, m.lines)
	return errors.Join(err, w.Close())
}

func (m *manifest) digestLater(ctx context.Context, failed func(session.FileResult)) error {
	if err := m.later.buf.Flush(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if _, err := m.later.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	in := bufio.NewReaderSize(m.later, 64<<10)
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for reading.Err() == nil {
		path, size, modified, err := nextLater(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("manifest: %w", err), group.Wait())
		}
		group.Go(func() error {
			digest, err := m.digest(reading, path, size, modified)
			switch {
			case reading.Err() != nil:
				return context.Cause(reading)
			case err != nil:
				failed(session.FileResult{Path: path, Kind: session.KindName(wire.File), Outcome: session.Failed, Err: fmt.Errorf("not in the manifest: %w", err)})
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.lineLocked(digest, path)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func nextLater(in *bufio.Reader) (path string, size, modified int64, err error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return "", 0, 0, err
	}
	b := make([]byte, n) // n is from our own file
	if _, err = io.ReadFull(in, b); err == nil {
		size, err = binary.ReadVarint(in)
	}
	if err == nil {
		modified, err = binary.ReadVarint(in)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return string(b), size, modified, err
}

// digest reads a file of this host. Its size is -1 if unknown.
func (m *manifest) digest(ctx context.Context, path string, size, modified int64) (string, error) {
	tree, at := m.local(path)
	if tree == nil {
		return "", fs.ErrNotExist
	}
	d, id, err := tree.Digest(ctx, at)
	if err != nil {
		return "", err
	}
	if size >= 0 && id.Size != size || m.exact && id.ModTime != modified {
		return "", disk.ErrChanged
	}
	return digest.Hex(d), nil
}

// discard removes the temporary files.
func (m *manifest) discard() {
	m.lines.remove()
	m.later.remove()
}
