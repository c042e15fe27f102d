package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
	"golang.org/x/sync/errgroup"
)

// Verification says what is reported while Verify or Scrub runs. Its zero value reports nothing.
type Verification struct {
	// Difference is called for each difference, from one goroutine at a time.
	Difference func(Difference)
	// Progress is called a few times a second, from one goroutine at a time.
	Progress func(session.Progress)
}

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
	Lacking    int64 // since the snapshot was made, which is no difference
}

// differences is the number of entries that are not the same.
func (s *Comparison) differences() int64 { return s.Missing + s.Extra + s.Different + s.Unreadable }

// Verify compares the content of what a server has below u with a folder of this host, or with a
// file in the format of b3sum, which lists regular files only. Modes, times and owners don't count.
// If there are differences, both a Comparison and an *Error of KindPartial are returned.
//
// Memory does not grow with the number of entries, except for the lines of such a file.
func (c *Client) Verify(ctx context.Context, u session.URL, against string, call Verification) (*Comparison, error) {
	if err := needShare(u); err != nil {
		return nil, err
	}
	v := verifier{findings: newFindings(u, call)}
	if err := v.open(against); session.KindOf(err) == session.KindUsage {
		return nil, err
	} else if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	if v.tree != nil {
		defer v.tree.Close()
	}
	err := v.run(ctx, c, u)
	sum := v.done()
	if n := sum.differences(); err == nil && n > 0 {
		err = &session.Error{Kind: session.KindPartial, Err: fmt.Errorf("%s", differ(n))}
	}
	return sum, describe(ctx, err, sum.Server)
}

// differ says how many entries differ.
func differ(n int64) string {
	if n == 1 {
		return "1 entry differs"
	}
	return fmt.Sprintf("%d entries differ", n)
}

// verifier is the intent to compare what a server has with a folder or a list of digests here.
type verifier struct {
	tree     *access.Scope       // what is compared with, or nil for
	manifest map[string][32]byte // the files that the server has not shown yet; guarded by findings.mu

	// The goroutine that reads messages uses these.
	next  uint64 // number of the next entry
	batch []compared
	first uint64 // number of the first in batch

	findings
}

// compared is an entry of the server.
type compared struct {
	entry  wire.Entry
	digest *[32]byte
	fault  string // why there is no digest
}

// open opens what is compared with.
func (v *verifier) open(against string) error {
	info, err := os.Stat(against)
	switch {
	case err != nil:
	case info.IsDir():
		v.tree, err = access.OpenSource(against)
	default:
		v.manifest, err = readManifest(against)
	}
	return err
}

func (v *verifier) run(ctx context.Context, c *Client, u session.URL) error {
	x, err := c.begin(ctx, u, wire.Hello{Intent: wire.Verify, Share: u.Share, Paths: []string{sourcePath(u)}})
	if err != nil {
		return err
	}
	defer x.close()
	if err := v.compareAll(ctx, x); err != nil {
		return err
	}
	if v.tree == nil {
		for _, p := range slices.Sorted(maps.Keys(v.manifest)) {
			v.found(p, session.Missing, "")
		}
		return nil
	}
	return v.findMissing(ctx, x)
}

// compareAll reads what the server has, and compares it with as many workers as there are cores.
func (v *verifier) compareAll(ctx context.Context, x *exchange) error {
	group, ctx := errgroup.WithContext(ctx)
	work := make(chan compared, session.VerifyAhead)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for entry := range work {
				if err := v.compare(ctx, &entry); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(work)
		return v.readAll(ctx, x, work)
	})
	return group.Wait()
}

// readAll reads batches of entries, each followed by the digests of its files, and gives them to
// the workers.
func (v *verifier) readAll(ctx context.Context, x *exchange, work chan<- compared) error {
	for {
		m, err := x.next()
		if err != nil {
			return err
		}
		end, err := v.take(m)
		if err != nil {
			return err
		}
		entries, next := m.(*wire.Entries)
		if next || end {
			if err := v.handOver(ctx, work); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
		if next {
			v.begin(entries)
		}
	}
}

// begin begins a batch of entries.
func (v *verifier) begin(m *wire.Entries) {
	v.first = m.First
	for i := range m.Entries {
		v.batch = append(v.batch, compared{entry: m.Entries[i]})
	}
	v.next += uint64(len(m.Entries))
}

// take adds what a message says about the present batch. It reports whether the batch was the last.
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

// handOver gives the batch to the workers.
func (v *verifier) handOver(ctx context.Context, work chan<- compared) error {
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

// judge compares an entry. The finding is "" if it is the same.
func (v *verifier) judge(ctx context.Context, x *compared) (session.Finding, string) {
	if v.tree == nil {
		return v.listed(x)
	}
	return v.local(ctx, x)
}

// listed compares an entry with the manifest. b3sum replaces what is not UTF-8 in names.
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
		return session.Different, "a " + session.KindName(x.entry.Kind) + ", not a file"
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
		return session.Different, fmt.Sprintf("a %s at the server, a %s here", session.KindName(x.entry.Kind), m.Kind)
	case m.Kind == disk.Symlink && m.Link != x.entry.Link:
		return session.Different, fmt.Sprintf("leads to %q at the server, to %q here", x.entry.Link, m.Link)
	case m.Kind != disk.File:
		return "", ""
	case x.digest == nil:
		return session.Unreadable, x.fault
	case m.Size != x.entry.Size:
		return session.Different, fmt.Sprintf("%d bytes at the server, %d here", x.entry.Size, m.Size)
	}
	digest, _, err := v.tree.Digest(ctx, x.entry.Path)
	switch {
	case err != nil:
		return session.Unreadable, "here: " + err.Error()
	case digest != *x.digest:
		return session.Different, "content"
	}
	return "", ""
}

// question is a Folder message that the server has not answered.
type question struct {
	path  string
	names []string
}

// maxQuestions bounds them.
const maxQuestions = 64

// findMissing walks the folder and asks the server which entries of it are missing there.
func (v *verifier) findMissing(ctx context.Context, x *exchange) error {
	group, ctx := errgroup.WithContext(ctx)
	asked := make(chan question, maxQuestions-2) // one is being asked and one being answered
	group.Go(func() error {
		defer close(asked)
		return v.ask(ctx, x, asked)
	})
	group.Go(func() error {
		for q := range asked {
			if err := v.hear(x, q); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// ask sends a question for each folder, several for one of many names.
func (v *verifier) ask(ctx context.Context, x *exchange, asked chan<- question) error {
	todo := []string{"."}
	for len(todo) > 0 {
		folder := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := v.tree.NamesAndForeign(ctx, folder, func(names []string, kinds []disk.Kind) error {
			select {
			case asked <- question{folder, names}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			x.send(&wire.Folder{Path: folder, Names: names})
			for i, name := range names {
				if kinds[i] == disk.Dir {
					todo = append(todo, path.Join(folder, name))
				}
			}
			return nil
		}, func(name string) { v.neverSent(path.Join(folder, name)) })
		var unreadable *fs.PathError
		if errors.As(err, &unreadable) && ctx.Err() == nil {
			v.found(folder, session.Unreadable, "here: "+err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// neverSent reports an entry here whose name no server takes.
func (v *verifier) neverSent(p string) {
	detail := ""
	if err := disk.CheckPath(p); err != nil {
		detail = err.Error()
	}
	v.found(p, session.Missing, detail)
}

// hear reads the answer to a question.
func (v *verifier) hear(x *exchange, q question) error {
	for {
		m, err := x.next()
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
