package door

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

const (
	// maxOwn bounds the files that one connection remembers as its own, where it sees no others.
	maxOwn = 4096
	// maxOpen bounds the files that one connection has open.
	maxOpen = 64
	// maxLists bounds the folders that one connection reads at a time. Each takes up to 2 MiB.
	maxLists = 8

	// busyFor is how long an upload waits for a file that somebody writes, and busyEvery how long
	// between two attempts.
	busyFor   = 3 * time.Second
	busyEvery = 50 * time.Millisecond
)

var (
	errTop   = fmt.Errorf("%w: only shares are at the top", fs.ErrPermission)
	errOpen  = fmt.Errorf("this connection has %d files open: %w", maxOpen, disk.ErrTooManyFiles)
	errLists = fmt.Errorf("this connection reads %d folders: %w", maxLists, disk.ErrTooManyFiles)
)

// Tree is what one user sees of a server on one connection: "/" has its shares, and "/scans/a" is a
// in the share scans. Links lead elsewhere in their share, and none is followed where something is
// changed. A file that arrives shows to nobody else until it is whole. Who may write a share but not
// see its names finds its folders, and files that came on this connection.
//
// Paths are absolute. The methods are safe for concurrent use. Their errors are for FaultOf.
type Tree struct {
	ctx     context.Context
	account Account
	lists   chan struct{} // holds a value for each folder that is read

	mu       sync.Mutex // guards the following
	sessions map[string]*session
	uploads  map[string]*Upload // under way, by path
	open     int                // files, those that arrive and folders that are read included
}

// session is a Session with what this connection has brought to its share.
type session struct {
	*Session
	share string

	mu    sync.Mutex // guards the following
	own   map[string]bool
	texts int64 // bytes of those that are open

	writing sync.Mutex // held while a text is written for this session alone
}

// NewTree returns the tree of a user who is logged in. Its sessions end with ctx. The caller closes
// it.
func NewTree(ctx context.Context, a Account) *Tree {
	return &Tree{
		ctx: ctx, account: a, lists: make(chan struct{}, maxLists),
		sessions: make(map[string]*session), uploads: make(map[string]*Upload),
	}
}

// Close gives up the files that still arrive, and ends the sessions. why is nil if the client has
// left in good order.
func (t *Tree) Close(why error) {
	t.mu.Lock()
	uploads, sessions := t.uploads, t.sessions
	t.uploads, t.sessions = nil, nil
	t.mu.Unlock()
	for _, u := range uploads {
		_ = u.Abort(errGone)
	}
	for _, s := range sessions {
		s.Close(why)
	}
}

// Start is the folder in which clients begin: that of the user's share if it has only one.
func (t *Tree) Start() string {
	if all := t.account.Shares(); len(all) == 1 {
		return "/" + all[0].Name
	}
	return "/"
}

// at returns the session and the path in its share. rel is "." for the share, and s nil for the top.
func (t *Tree) at(p string) (s *session, rel string, err error) {
	p = path.Clean("/" + p)
	if p == "/" {
		return nil, "", t.ctx.Err()
	}
	share, rel, found := strings.Cut(p[1:], "/")
	if !found {
		rel = "."
	}
	if s, err = t.enter(share); err != nil {
		return nil, "", err
	}
	return s, rel, disk.CheckPath(rel)
}

// below is at for an entry of a share, which is neither the top nor the share itself.
func (t *Tree) below(p string) (*session, string, error) {
	s, rel, err := t.at(p)
	if err == nil && (s == nil || rel == ".") {
		err = errTop
	}
	return s, rel, err
}

// inShare is below for an entry that is on the disk.
func (t *Tree) inShare(p string) (*session, string, error) {
	s, rel, err := t.below(p)
	if err == nil && s.isStates(rel) {
		err = errStates
	}
	return s, rel, err
}

func (t *Tree) enter(share string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[share]; s != nil {
		if s.Ctx.Err() != nil {
			return nil, context.Cause(s.Ctx)
		}
		return s, nil
	}
	if t.sessions == nil {
		return nil, errGone
	}
	known := false // a name that is no share does not cost a session
	for _, x := range t.account.Shares() {
		known = known || x.Name == share
	}
	if !known {
		return nil, fmt.Errorf("there is no share %q for this user: %w", share, fs.ErrNotExist)
	}
	x, err := t.account.Enter(t.ctx, share)
	if err != nil {
		return nil, err
	}
	s := &session{Session: x, share: share, own: make(map[string]bool)}
	t.sessions[share] = s
	return s, nil
}

// take counts an open file or folder of a share.
func (t *Tree) take(s *session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= maxOpen {
		return errOpen
	}
	if err := s.Files.Take(); err != nil {
		return err
	}
	t.open++
	return nil
}

func (t *Tree) give(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Files.Give(1)
	t.open--
}

// Info describes an entry. It is an fs.FileInfo.
type Info struct {
	name string
	meta disk.Meta
}

func (i Info) Name() string       { return i.name }
func (i Info) Size() int64        { return max(0, i.meta.Size) }
func (i Info) ModTime() time.Time { return i.meta.ModTime }
func (i Info) IsDir() bool        { return i.meta.Kind == disk.Dir }
func (i Info) Sys() any           { return nil }
func (i Info) Mode() fs.FileMode  { return i.meta.Mode.Perm() | kindBits[i.meta.Kind] }

// Version is a text that is another one when the content of the entry is.
func (i Info) Version() string {
	return fmt.Sprintf("%x-%x-%x", i.meta.ID.ModTime, i.meta.ID.Size, i.meta.ID.Ino)
}

// Link is where a link leads, as it says itself.
func (i Info) Link() string { return i.meta.Link }

var kindBits = map[disk.Kind]fs.FileMode{
	disk.Dir: fs.ModeDir, disk.Symlink: fs.ModeSymlink, disk.Fifo: fs.ModeNamedPipe,
	disk.CharDevice: fs.ModeDevice | fs.ModeCharDevice, disk.BlockDevice: fs.ModeDevice,
	disk.Socket: fs.ModeSocket,
}

func folderInfo(name string, modTime time.Time) Info {
	return Info{name, disk.Meta{Kind: disk.Dir, Mode: 0o755, ModTime: modTime}}
}

// Follow returns p with the links on the way replaced by where they lead, as far as the user may
// follow them.
func (t *Tree) Follow(p string) (string, error) {
	s, rel, err := t.at(p)
	if err != nil || s == nil {
		return "/", err
	}
	at, err := s.Scope.Follow(access.Names, rel, true)
	return path.Join("/", s.share, at), err
}

// Stat describes the entry at p. follow asks for what a link there leads to.
func (t *Tree) Stat(p string, follow bool) (Info, error) {
	s, rel, err := t.at(p)
	switch {
	case err != nil:
		return Info{}, err
	case s == nil:
		return folderInfo("/", time.Now()), nil
	}
	if u := t.uploading(p); u != nil {
		return u.info(), nil
	}
	if s.isStates(rel) {
		x, err := s.states()
		if err != nil {
			return Info{}, err
		}
		return Info{statesName, x.meta()}, nil
	}
	m, err := s.stat(rel, follow)
	return Info{path.Base(path.Clean(p)), m}, err
}

func (t *Tree) uploading(p string) *Upload {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.uploads[path.Clean("/"+p)]; u != nil && !u.hidden {
		return u
	}
	return nil
}

func (s *session) stat(rel string, follow bool) (disk.Meta, error) {
	at, err := s.Scope.Follow(access.Names, rel, follow)
	if err != nil {
		return disk.Meta{}, err
	}
	m, err := s.describe(at)
	if err == nil && follow && m.Kind == disk.Symlink {
		err = fmt.Errorf("%s: the link leads nowhere in this share: %w", rel, fs.ErrNotExist)
	}
	return m, err
}

// describe is Scope.Stat that shows what the user may see.
func (s *session) describe(at string) (disk.Meta, error) {
	if s.may(access.Names, at) == nil {
		return s.Scope.Stat(at)
	}
	m, err := s.Scope.Stat(at) // whoever may write an entry may do this, too
	var refused *wire.Error
	switch {
	case at == ".":
		return disk.Meta{Kind: disk.Dir, Mode: 0o755, ModTime: time.Now()}, nil
	case err == nil && (m.Kind == disk.Dir || s.isOwn(at)):
		return m, s.Needs(s.Ctx, identity.Write)
	case errors.As(err, &refused):
		return m, err
	}
	return m, fmt.Errorf("%s: %w", at, fs.ErrNotExist)
}

// may asks for an effect on the entry at p, and notes the right that it takes.
func (s *session) may(e access.Effect, p string) error {
	right, err := s.Scope.May(e, p)
	if err != nil {
		return err
	}
	return s.Needs(s.Ctx, right)
}

// List visits the entries of the folder at p. Those that no client can name are in left, and so are
// those for which visit returns ErrName.
func (t *Tree) List(p string, visit func(Info) error) (left Omitted, err error) {
	s, rel, err := t.at(p)
	if err != nil {
		return left, err
	}
	if s == nil {
		for _, share := range t.account.Shares() {
			if err := visit(folderInfo(share.Name, share.ModTime)); err != nil {
				return left, err
			}
		}
		return left, nil
	}
	select {
	case t.lists <- struct{}{}:
		defer func() { <-t.lists }()
	default:
		return left, errLists
	}
	if err := t.take(s); err != nil {
		return left, err
	}
	defer t.give(s)
	m, err := s.stat(rel, true)
	if err != nil {
		return left, err
	}
	if m.Kind != disk.Dir {
		return left, fmt.Errorf("%s: %w", rel, disk.ErrNotFolder)
	}
	at, err := s.Scope.Follow(access.Names, rel, true)
	if err != nil {
		return left, err
	}
	left, err = s.list(at, func(m disk.Meta) error {
		name := path.Base(m.Path)
		if s.isStates(path.Join(at, name)) {
			return nil // nobody reads what the disk has there
		}
		if err := disk.CheckPath(path.Join(rel, name)); err != nil { // longer than below at
			return err
		}
		return visit(Info{name, m})
	})
	if left.Count > 0 {
		s.Omitted(rel, left)
	}
	return left, err
}

// list visits what the user may see of a folder.
func (s *session) list(at string, visit func(disk.Meta) error) (left Omitted, err error) {
	for _, right := range []identity.Rights{identity.List, identity.Append} {
		if s.Rights.Has(right) {
			if err := s.Needs(s.Ctx, right); err != nil {
				return left, err
			}
			return s.Scope.List(s.Ctx, at, visit)
		}
	}
	return left, s.listOwn(at, visit)
}

// listOwn visits what this connection has brought to a folder.
func (s *session) listOwn(at string, visit func(disk.Meta) error) error {
	s.mu.Lock()
	var own []string
	for p := range s.own {
		if path.Dir(p) == at {
			own = append(own, p)
		}
	}
	s.mu.Unlock()
	for _, p := range own {
		m, err := s.Scope.Stat(p)
		if err != nil {
			continue // somebody has taken it away
		}
		m.Path = path.Base(p)
		if err := visit(m); err != nil {
			return err
		}
	}
	return s.Ctx.Err()
}

// ownPaths returns the paths of the files that this connection has brought, in their order.
func (s *session) ownPaths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.own))
}

func (s *session) isOwn(p string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own[p]
}

// bring notes a file that this connection has brought.
func (s *session) bring(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.own) < maxOwn {
		s.own[p] = true
	}
}

// moveOwn notes the new name of a file, "" if it is gone.
func (s *session) moveOwn(p, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.own[p]
	delete(s.own, p)
	if to == "" {
		return
	}
	if delete(s.own, to); was { // what had that name is gone
		s.own[to] = true
	}
}

// Readlink returns where the link at p leads.
func (t *Tree) Readlink(p string) (string, error) {
	s, rel, err := t.inShare(p)
	if err != nil {
		return "", err
	}
	m, err := s.stat(rel, false)
	if err == nil && m.Kind != disk.Symlink {
		err = fmt.Errorf("%s is not a link: %w", rel, disk.ErrUnsupportedKind)
	}
	return m.Link, err
}

// Mkdir makes the folder at p.
func (t *Tree) Mkdir(p string) error {
	s, rel, err := t.inShare(p)
	if err == nil {
		err = s.may(access.Write, rel)
	}
	if err == nil {
		err = s.Quota.Take(s.Ctx, 0, 1)
	}
	if err != nil {
		return err
	}
	err = s.Scope.MakeDir(rel, 0o755)
	s.Quota.Settle(0, 1, err == nil)
	s.Record(Record{Outcome: Made, Path: rel, Err: err})
	return err
}

// Remove removes the file or link at p or, with folder, the empty folder.
func (t *Tree) Remove(p string, folder bool) error {
	s, rel, err := t.inShare(p)
	if err == nil {
		err = s.may(access.Write, rel)
	}
	if err != nil {
		return err
	}
	see := s.Scope.Stat
	if folder { // what is not a folder stays, so whoever may not see it learns nothing
		see = s.describe
	}
	m, err := see(rel)
	switch {
	case err != nil:
		return err
	case folder && m.Kind != disk.Dir:
		return fmt.Errorf("%s is not a folder: %w", rel, disk.ErrNotFolder)
	case !folder && m.Kind == disk.Dir:
		return fmt.Errorf("%s is a folder: %w", rel, disk.ErrUnsupportedKind)
	}
	err = s.Scope.RemoveOne(rel)
	s.Quota.Freed()
	s.moveOwn(rel, "")
	s.Record(Record{Outcome: Removed, Path: rel, Err: err})
	return err
}

// MayWrite returns why the user may not write the entry at p, which need not exist, or nil.
func (t *Tree) MayWrite(p string) error {
	s, rel, err := t.inShare(p)
	if err != nil {
		return err
	}
	return s.may(access.Write, rel)
}

// RemoveAll removes the entry at p and, if the user may see it, all below it.
func (t *Tree) RemoveAll(p string) error {
	s, rel, err := t.inShare(p)
	if err == nil {
		err = s.may(access.Write, rel)
	}
	if err != nil {
		return err
	}
	m, err := s.describe(rel)
	if err != nil {
		return err
	}
	if m.Kind != disk.Dir || s.may(access.Names, rel) != nil {
		return t.Remove(p, m.Kind == disk.Dir)
	}
	err = s.Scope.RemoveAll(s.Ctx, rel)
	s.Quota.Freed()
	s.Record(Record{Outcome: Removed, Path: rel, Err: err})
	return err
}

// Rename gives the entry at p the path to, in the same share. With replace, a file takes the place
// of another one.
func (t *Tree) Rename(p, to string, replace bool) error {
	s, rel, err := t.inShare(p)
	if err != nil {
		return err
	}
	other, target, err := t.inShare(to)
	if err == nil && other != s {
		err = fmt.Errorf("%w: a name in another share", ErrUnsupported)
	}
	for _, p := range []string{rel, target} {
		if err == nil {
			err = s.may(access.Write, p)
		}
	}
	if err != nil {
		return err
	}
	moved := s.Quota.Moving()
	defer moved()
	err = s.Scope.Move(s.Ctx, rel, target, replace)
	if replace {
		s.Quota.Freed()
	}
	if err == nil {
		s.moveOwn(rel, target)
	}
	s.Record(Record{Outcome: Moved, Path: rel, To: target, Err: err})
	return err
}

// Change is what to change of an entry. nil leaves it.
type Change struct {
	Mode    *fs.FileMode // permissions
	ModTime *time.Time
	Size    *int64
}

// Set changes the entry at p. Owners stay.
func (t *Tree) Set(p string, c Change) error {
	if u := t.uploading(p); u != nil {
		return u.Set(c)
	}
	s, rel, err := t.inShare(p)
	if err == nil {
		err = s.may(access.Write, rel)
	}
	if err != nil {
		return err
	}
	if c.Size != nil {
		u, err := t.Create(p, Creation{Keep: true, MustExist: true})
		if err != nil {
			return err
		}
		if err := u.Set(c); err != nil {
			return u.Abort(err)
		}
		return u.Close()
	}
	if c == (Change{}) {
		return nil
	}
	m, err := s.describe(rel)
	switch {
	case err != nil:
		return err
	case m.Kind != disk.File && m.Kind != disk.Dir:
		return fmt.Errorf("%s: %w", rel, disk.ErrUnsupportedKind)
	}
	m.Path = rel
	c.apply(&m)
	err = s.Scope.Apply(m, disk.TargetOptions{})
	s.Record(Record{Outcome: Changed, Path: rel, Err: err})
	return err
}

func (c Change) apply(m *disk.Meta) {
	if c.Mode != nil {
		m.Mode = m.Mode&^fs.ModePerm | c.Mode.Perm()
	}
	if c.ModTime != nil {
		m.ModTime = *c.ModTime
	}
}
