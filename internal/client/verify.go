package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
	"golang.org/x/sync/errgroup"
)

// Difference is an entry that is not the same on both sides.
type Difference struct {
	Path    string
	Finding session.Finding
	Detail  string // one line, may be ""
}

// Comparison sums a verification up.
type Comparison struct {
	Server     string
	Duration   time.Duration
	Files      int64 // regular files that the server has
	Bytes      int64 // of these
	Same       int64 // of the files
	Missing    int64 // entries
	Extra      int64
	Different  int64
	Unreadable int64
	Lacking    int64 // from the beginning, so that is no difference
}

// Verify compares what a server has, by content, with a folder of this host, or with a file in the form of b3sum, which says nothing
// of anything but files. Modes, times and owners don't count. visit is called for each difference, from one goroutine at a time. If
// there are any, the Comparison comes with an *Error.
//
// Memory does not follow the number of entries, but for the lines of such a file.
func (c *Client) Verify(ctx context.Context, u session.URL, against string, visit func(Difference)) (*Comparison, error) {
	if u.Share == "" {
		return nil, session.Usage("fxfer ls "+u.Redacted()+" shows the shares", "the URL names no share")
	}
	server := serverOf(u)
	v := &verifier{visit: visit, sum: Comparison{Server: server}, start: time.Now(), progress: c.opt.Progress}
	info, err := os.Stat(against)
	switch {
	case err != nil:
	case info.IsDir():
		if v.tree, err = disk.Open(against); err == nil {
			defer v.tree.Close()
		}
	default:
		v.manifest, err = readManifest(against)
	}
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	s := &clientSession{client: c, url: u, hello: wire.Hello{Intent: wire.Verify, Share: u.Share, Paths: []string{u.Path}}}
	err = v.run(ctx, s)
	v.sum.Duration = time.Since(v.start)
	n := v.sum.Missing + v.sum.Extra + v.sum.Different + v.sum.Unreadable
	if err == nil && n > 0 {
		err = &session.Error{Kind: session.KindPartial, Err: fmt.Errorf("%d entries are not the same", n)}
	}
	return &v.sum, describe(err, server)
}

// verifier is the client's side of a Verify.
type verifier struct {
	tree     *disk.Tree          // what is compared with, or
	manifest map[string][32]byte // what of it the server has not shown yet
	start    time.Time
	progress func(session.Progress)

	next  uint64 // number of the next entry
	batch []compared
	first uint64 // number of the first in batch

	mu    sync.Mutex
	visit func(Difference)
	sum   Comparison
	shown time.Time // when progress was
}

// compared is an entry of the server.
type compared struct {
	entry  wire.Entry
	digest *[32]byte
	fault  string // why there is none
}

func (v *verifier) run(ctx context.Context, s *clientSession) error {
	_, _ = rand.Read(s.hello.Session[:]) // never fails
	_, _ = rand.Read(s.hello.Secret[:])
	s.cfg = s.config()
	defer s.group.Close(session.PartWithin)
	conn, err := s.openThrough(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := wire.NewReader(conn, wire.MaxMessage)
	if err := v.compareAll(ctx, s, conn, r); err != nil {
		return interrupted(ctx, err)
	}
	if v.tree == nil {
		for _, p := range slices.Sorted(maps.Keys(v.manifest)) {
			v.found(p, session.Missing, "")
		}
		return nil
	}
	return interrupted(ctx, v.findMissing(ctx, conn, r))
}

// interrupted puts the end of ctx in the place of what it caused.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// compareAll reads what the server has, and compares with as many workers as there are cores.
func (v *verifier) compareAll(ctx context.Context, s *clientSession, conn transport.Conn, r *wire.Reader) error {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan compared, session.VerifyAhead)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for x := range work {
				if err := v.compare(ctx, &x); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(work)
		for {
			m, err := nextMessage(conn, r)
			if err != nil {
				return err
			}
			end, err := v.take(m)
			if err != nil {
				return err
			}
			if _, next := m.(*wire.Entries); next || end {
				if err := v.hand(ctx, work); err != nil {
					return err
				}
			}
			switch m := m.(type) {
			case *wire.Entries:
				v.begin(m)
			case *wire.Welcome:
				s.message(conn, m)
			}
			if end {
				return nil
			}
		}
	})
	return group.Wait()
}

func nextMessage(conn transport.Conn, r *wire.Reader) (wire.Message, error) {
	if err := conn.SetReadDeadline(time.Now().Add(session.DialTimeout)); err != nil {
		return nil, err
	}
	m, err := r.Next()
	if err != nil {
		return nil, err
	}
	if refused, ok := m.(*wire.Refuse); ok {
		return nil, &wire.Error{Code: refused.Code, Text: refused.Text, Remote: true}
	}
	return m, nil
}

// begin gathers a batch of entries.
func (v *verifier) begin(m *wire.Entries) {
	v.first = m.First
	for i := range m.Entries {
		v.batch = append(v.batch, compared{entry: m.Entries[i]})
	}
	v.next += uint64(len(m.Entries))
}

// take adds what a message says of the present batch, and tells whether it was the last.
func (v *verifier) take(m wire.Message) (end bool, err error) {
	switch m := m.(type) {
	case *wire.Entries:
		if m.First != v.next {
			return false, wire.Errorf(wire.CodeProtocol, "entries out of order")
		}
	case *wire.Digests:
		for i := range m.Digests {
			x := v.entry(m.Digests[i].Index)
			if x == nil {
				return false, wire.Errorf(wire.CodeProtocol, "the digest of an unknown entry")
			}
			x.digest = &m.Digests[i].Digest
		}
	case *wire.EntryFailed:
		if m.Index == wire.NoEntry {
			v.found("", session.Unreadable, "at the server: "+m.Text)
		} else if x := v.entry(m.Index); x != nil {
			x.fault = "at the server: " + m.Text
		}
	case *wire.EndManifest:
		return true, nil
	}
	return false, nil
}

// entry returns an entry of the present batch, nil for another.
func (v *verifier) entry(index uint64) *compared {
	if index < v.first || index-v.first >= uint64(len(v.batch)) {
		return nil
	}
	return &v.batch[index-v.first]
}

// hand gives the batch to the workers.
func (v *verifier) hand(ctx context.Context, work chan<- compared) error {
	for _, x := range v.batch {
		select {
		case work <- x:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	v.batch = v.batch[:0]
	return nil
}

// compare compares one entry. Its path may be hostile.
func (v *verifier) compare(ctx context.Context, x *compared) error {
	isFile := x.entry.Kind == wire.File
	if isFile && x.digest == nil && x.fault == "" {
		return wire.Errorf(wire.CodeProtocol, "a file without its digest")
	}
	if err := disk.CheckPath(x.entry.Path); err != nil {
		v.found(x.entry.Path, session.Extra, err.Error())
		return nil
	}
	finding, detail := v.judge(ctx, x)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	v.mu.Lock()
	if isFile {
		v.sum.Files++
		v.sum.Bytes += x.entry.Size
		if finding == "" {
			v.sum.Same++
		}
	}
	v.mu.Unlock()
	if finding != "" {
		v.found(x.entry.Path, finding, detail)
	}
	v.show()
	return nil
}

// judge finds nothing, "", of an entry that is the same.
func (v *verifier) judge(ctx context.Context, x *compared) (session.Finding, string) {
	if v.tree == nil {
		return v.listed(x)
	}
	return v.local(ctx, x)
}

// listed compares an entry with the manifest, in which names that are no UTF-8 stand as b3sum writes them.
func (v *verifier) listed(x *compared) (session.Finding, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := x.entry.Path
	want, ok := v.manifest[name]
	if !ok {
		name = strings.ToValidUTF8(name, "\ufffd")
		want, ok = v.manifest[name]
	}
	if !ok {
		if x.entry.Kind != wire.File {
			return "", ""
		}
		return session.Extra, ""
	}
	delete(v.manifest, name)
	switch {
	case x.entry.Kind != wire.File:
		return session.Different, "a " + session.KindNames[x.entry.Kind] + ", not a file"
	case x.digest == nil:
		return session.Unreadable, x.fault
	case *x.digest != want:
		return session.Different, "content"
	}
	return "", ""
}

// local compares an entry with that of the folder.
func (v *verifier) local(ctx context.Context, x *compared) (session.Finding, string) {
	m, err := v.tree.Stat(x.entry.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, disk.ErrNotFolder):
		return session.Extra, ""
	case err != nil:
		return session.Unreadable, "here: " + err.Error()
	case wire.Kind(m.Kind) != x.entry.Kind:
		return session.Different, fmt.Sprintf("a %s at the server, a %s here", session.KindNames[x.entry.Kind], m.Kind)
	case m.Kind == disk.Symlink && m.Link != x.entry.Link:
		return session.Different, fmt.Sprintf("leads to %q at the server, to %q here", x.entry.Link, m.Link)
	case m.Kind != disk.File:
		return "", ""
	case x.digest == nil:
		return session.Unreadable, x.fault
	case m.Size != x.entry.Size:
		return session.Different, fmt.Sprintf("%d bytes at the server, %d here", x.entry.Size, m.Size)
	}
	digest, _, err := session.DigestFile(ctx, v.tree, x.entry.Path)
	switch {
	case err != nil:
		return session.Unreadable, "here: " + err.Error()
	case digest != *x.digest:
		return session.Different, "content"
	}
	return "", ""
}

// found tells of a difference.
func (v *verifier) found(p string, f session.Finding, detail string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch f {
	case session.Missing:
		v.sum.Missing++
	case session.Extra:
		v.sum.Extra++
	case session.Different:
		v.sum.Different++
	case session.Unreadable:
		v.sum.Unreadable++
	case session.Lacking:
		v.sum.Lacking++
	}
	if v.visit != nil {
		v.visit(Difference{Path: p, Finding: f, Detail: detail})
	}
}

// show reports progress now and then.
func (v *verifier) show() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); v.progress != nil && now.Sub(v.shown) >= session.ReportEvery {
		v.shown = now
		elapsed := now.Sub(v.start)
		v.progress(session.Progress{Elapsed: elapsed, Walking: true, Files: v.sum.Files, FilesDone: v.sum.Files, Bytes: v.sum.Bytes, BytesDone: v.sum.Bytes,
			Goodput: float64(v.sum.Bytes) * 8 / elapsed.Seconds()})
	}
}

// question is a Folder that the server has not answered.
type question struct {
	path  string
	names []string
}

// maxQuestions bounds them.
const maxQuestions = 64

// findMissing walks the folder and asks the server what of it is not there.
func (v *verifier) findMissing(ctx context.Context, conn transport.Conn, r *wire.Reader) error {
	group, ctx := errgroup.WithContext(ctx)
	asked := make(chan question, maxQuestions-2) // one is being asked and one being answered
	group.Go(func() error {
		defer close(asked)
		return v.ask(ctx, conn, asked)
	})
	group.Go(func() error {
		for q := range asked {
			if err := v.hear(conn, r, q); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// ask sends a question for each folder, several for one of many names.
func (v *verifier) ask(ctx context.Context, conn transport.Conn, asked chan<- question) error {
	todo := []string{"."}
	for len(todo) > 0 {
		folder := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := v.tree.Names(ctx, folder, func(names []string, kinds []disk.Kind) error {
			select {
			case asked <- question{folder, names}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if _, err := conn.Write(wire.Append(nil, &wire.Folder{Path: folder, Names: names})); err != nil {
				return err
			}
			for i, name := range names {
				if kinds[i] == disk.Dir {
					todo = append(todo, path.Join(folder, name))
				}
			}
			return nil
		})
		var unreadable *fs.PathError
		if errors.As(err, &unreadable) && ctx.Err() == nil {
			v.found(folder, session.Unreadable, "here: "+err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// hear takes the answer to a question.
func (v *verifier) hear(conn transport.Conn, r *wire.Reader, q question) error {
	for {
		m, err := nextMessage(conn, r)
		if err != nil {
			return err
		}
		extra, ok := m.(*wire.Extra)
		if !ok {
			continue
		}
		for _, i := range extra.Names {
			if i >= uint64(len(q.names)) {
				return wire.Errorf(wire.CodeProtocol, "an answer to what was not asked")
			}
			v.found(path.Join(q.path, q.names[i]), session.Missing, "")
		}
		return nil
	}
}

// maxManifestLine bounds a line of a manifest: a digest, and a path all of whose bytes are escaped.
const maxManifestLine = 64 + 3 + 2*4096

// readManifest reads a file in the form of b3sum.
func readManifest(name string) (map[string][32]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files := make(map[string][32]byte)
	in := bufio.NewReaderSize(f, maxManifestLine+1)
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return files, nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p, digest, ok := parseManifestLine(bytes.TrimSuffix(line, []byte{'\n'}))
		if !ok || errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%s:%d: neither a folder nor a list as of b3sum: expected a digest, two spaces and a path", name, number)
		}
		files[p] = digest
	}
}

// parseManifestLine reads a digest and a path. A backslash before the digest says that the path is escaped.
func parseManifestLine(line []byte) (p string, digest [32]byte, ok bool) {
	line, escaped := bytes.CutPrefix(line, []byte{'\\'})
	sum, name, found := bytes.Cut(line, []byte("  "))
	if !found || len(sum) != 64 || len(name) == 0 {
		return "", digest, false
	}
	if _, err := hex.Decode(digest[:], sum); err != nil {
		return "", digest, false
	}
	p = string(name)
	if escaped {
		if p, ok = unescapeLine(p); !ok {
			return "", digest, false
		}
	}
	return path.Clean(p), digest, true
}

// unescapeLine undoes what b3sum does to a backslash, a newline and, in later versions, a carriage return.
func unescapeLine(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' {
			if i++; i == len(s) {
				return "", false
			}
			switch s[i] {
			case '\\':
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			default:
				return "", false
			}
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
