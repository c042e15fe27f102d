package client

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/wire"
)

// Entry is a line of a listing.
type Entry struct {
	Path    string
	Kind    string // of entries, see session.KindName, such as "file" or "folder"; or "share"
	Bytes   int64
	ModTime time.Time
	Mode    uint32
	Link    string
	Rights  string // of a share, such as "rw", "ro" or "list"

	Owner, Group string // names, or numbers that have no name at the server; "" if unknown
}

// List returns the contents of a folder in a share, or one file, or the shares if u names none. With
// an error it returns what it knows of them.
func (c *Client) List(ctx context.Context, u session.URL) ([]Entry, error) {
	l := listing{hello: wire.Hello{Intent: wire.List, Share: u.Share, Paths: []string{u.Path}}, incomplete: c.noticeUnnamed}
	err := l.run(ctx, c, u)
	return l.entries, describe(ctx, err, serverOf(u))
}

// noticeUnnamed tells the user how many entries a list lacks.
func (c *Client) noticeUnnamed(m *wire.Warning) {
	if m.What != session.UnnamedEntry {
		return
	}
	what := "1 entry is not listed"
	if m.Count != 1 {
		what = fmt.Sprintf("%d entries are not listed, the first of them", m.Count)
	}
	c.notice("%s: %s", what, wire.Printable(m.Text))
}

const (
	// maxListing bounds the memory of a listing, in bytes. An entry takes listedEntry and its names.
	maxListing  = 512 << 20
	listedEntry = 160
	// maxSeries is the same for a series of snapshots: a host that gets them lists more than one.
	maxSeries = session.MaxKeep * (listedEntry + 2*len("2026-11-20T020000Z"))
)

// listing is the intent to list a folder, the shares, or the snapshots of a folder.
type listing struct {
	hello      wire.Hello
	incomplete func(*wire.Warning) // is called for what an entry lacks; nil for nobody
	most       int                 // bounds held; 0 is maxListing

	entries []Entry
	held    int // bytes, about
}

func (l *listing) run(ctx context.Context, c *Client, u session.URL) error {
	x, err := c.begin(ctx, u, l.hello)
	if err != nil {
		return err
	}
	defer x.close()
	for {
		m, err := x.next()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Warning:
			if l.incomplete != nil {
				l.incomplete(m)
			}
		case *wire.Entries:
			if err := l.add(m); err != nil {
				l.entries = nil
				return err
			}
		case *wire.EndManifest:
			return nil
		default: // such as pings, which would keep a listing waiting for ever
			return wire.Errorf(wire.CodeProtocol, "a listing has no such message")
		}
	}
}

func (l *listing) add(m *wire.Entries) error {
	for i := range m.Entries {
		if err := l.keep(listed(&m.Entries[i])); err != nil {
			return err
		}
	}
	return nil
}

func (l *listing) keep(e Entry) error {
	l.held += listedEntry + len(e.Path) + len(e.Link) + len(e.Owner) + len(e.Group)
	if l.held > cmp.Or(l.most, maxListing) {
		return wire.Errorf(wire.CodeProtocol, "the listing does not end")
	}
	l.entries = append(l.entries, e)
	return nil
}

func listed(x *wire.Entry) Entry {
	e := Entry{Path: x.Path, Kind: session.KindName(x.Kind), Bytes: max(0, x.Size), ModTime: x.Time(), Mode: x.Mode, Link: x.Link}
	if x.Kind == wire.Share {
		e.Rights, e.Link = x.Link, ""
	}
	if x.Owned {
		e.Owner = cmp.Or(x.User, strconv.FormatUint(uint64(x.UID), 10))
		e.Group = cmp.Or(x.Group, strconv.FormatUint(uint64(x.GID), 10))
	}
	return e
}
