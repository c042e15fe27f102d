package webdav

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/webdav"

	"github.com/fxfer/fxfer/internal/door"
)

const (
	// maxEntries bounds the entries of a folder that is listed, maxOwnListed those of all folders that
	// a user lists at a time, and maxListed those of all users: the library keeps them. Each takes some
	// 300 bytes.
	maxEntries   = 100_000
	maxOwnListed = 2 * maxEntries
	maxListed    = 4 * maxEntries
)

var (
	errListed = fmt.Errorf("a folder has more than %d entries", maxEntries)
	errLists  = errors.New("too many entries are listed at a time: try again in a moment")
	errThere  = errors.New("a folder that is not empty, or a file where a folder would come, is not replaced: remove it first")
	errLinked = errors.New("a link to a folder is in the folder, and a copy would not have what it leads to")
)

// listed counts the entries that are listed at a time. The zero listed is ready, and safe for
// concurrent use.
type listed struct {
	mu  sync.Mutex // guards the following
	all int
	own map[string]int // by user
}

// take reports whether a user may list one more entry.
func (l *listed) take(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxListed || l.own[user] >= maxOwnListed {
		return false
	}
	if l.own == nil {
		l.own = make(map[string]int)
	}
	l.all++
	l.own[user]++
	return true
}

func (l *listed) give(user string, n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all -= n
	if l.own[user] -= n; l.own[user] == 0 {
		delete(l.own, user)
	}
}

// request is one request of a user who is logged in. It is the webdav.FileSystem of that request,
// and belongs to its goroutine.
type request struct {
	door *Door
	tree *door.Tree
	user string
	head *http.Request

	target string // of COPY and MOVE
	fault  error  // what went wrong, if the library can't say that
	unsent error  // why the client does not get the rest of the answer
	lists  chan struct{}
	listed int // entries that the library keeps
	// children are the entries of the folder that a PROPFIND lists.
	children []fs.FileInfo
	// doomed is what a COPY or MOVE replaces. It stays until its successor is whole.
	doomed   string
	replaces bool   // a PUT, a file
	last     *entry // that was described last: the library asks several times
}

func (q *request) end() { q.forget(q.listed) }

// forget notes that the library keeps n entries less.
func (q *request) forget(n int) {
	q.listed -= n
	q.door.listed.give(q.user, n)
}

var methods = []string{
	http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete,
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK",
}

// check refuses what the library would misunderstand, or take too much for, and makes the rest plain
// to it.
func (q *request) check() (status int, err error) {
	r := q.head
	if err := checkURL(r.URL); err != nil {
		return http.StatusBadRequest, err
	}
	h := r.Header
	switch r.Method {
	case http.MethodPut:
		return q.checkPut()
	case "COPY", "MOVE":
		if status, err := q.checkTarget(); err != nil {
			return status, err
		}
		if h.Get("Overwrite") == "" { // the default, which the library has for COPY only
			h.Set("Overwrite", "T")
		}
	case "PROPFIND":
		if status, err := q.checkList(h.Get("Depth")); err != nil {
			return status, err
		}
	case "LOCK":
		h.Set("Timeout", capTimeout(h.Get("Timeout")))
	case "PROPPATCH": // before anybody reads its body
		if err := q.tree.MayWrite(r.URL.Path); err != nil {
			return refusal(err)
		}
	case "MKCOL":
		if r.ContentLength != 0 {
			return http.StatusUnsupportedMediaType, errors.New("a new folder has no body")
		}
	}
	switch {
	case !slices.Contains(methods, r.Method):
		return http.StatusMethodNotAllowed, fmt.Errorf("%w: %q", door.ErrUnsupported, r.Method)
	case r.ContentLength > maxXML:
		return http.StatusRequestEntityTooLarge, errXML
	case slices.Contains(conditional, r.Method) && !q.matches():
		return http.StatusPreconditionFailed, errChanged
	}
	return 0, nil
}

// conditional are the methods besides PUT for which If-Match and If-None-Match count, though the
// library ignores them.
var conditional = []string{http.MethodDelete, "PROPPATCH", "COPY", "MOVE"}

// refusal returns the status of an error before the library has seen the request, and why.
func refusal(err error) (status int, why error) {
	status, text := statusOf(err, http.StatusInternalServerError)
	return status, errors.New(text)
}

var errChanged = errors.New("there is another version of this by now")

// checkPut refuses what would make something else of a file than what the client means: the library
// takes any body as a whole file.
func (q *request) checkPut() (status int, err error) {
	h := q.head.Header
	switch encoding := h.Get("Content-Encoding"); {
	case h.Get("Content-Range") != "":
		return http.StatusBadRequest, errors.New("a part of a file can't be sent: send all of it")
	case encoding != "" && encoding != "identity":
		return http.StatusUnsupportedMediaType, errors.New("a file is sent as it is, without Content-Encoding")
	case h.Get("Content-Length") == "" && len(q.head.TransferEncoding) == 0:
		return http.StatusLengthRequired, errors.New("a file has a length, or comes in chunks")
	case !q.matches():
		return http.StatusPreconditionFailed, errChanged
	}
	return 0, nil
}

// checkList reads the folder of a PROPFIND: the library does so when it has begun to answer.
func (q *request) checkList(depth string) (status int, err error) {
	switch {
	case depth == "0":
		return 0, nil
	case depth != "1":
		return http.StatusForbidden, errors.New("a list has a depth of 0 or 1 here")
	}
	e, err := q.entry(q.head.URL.Path)
	if err == nil && e.IsDir() {
		q.children, err = q.list(e.path)
	}
	if err != nil {
		return refusal(err)
	}
	return 0, nil
}

// list returns the entries of a folder. A login reads few folders at a time: others wait.
func (q *request) list(p string) (all []fs.FileInfo, err error) {
	select {
	case q.lists <- struct{}{}:
		defer func() { <-q.lists }()
	case <-q.head.Context().Done():
		return nil, q.head.Context().Err()
	}
	_, err = q.tree.List(p, func(i door.Info) error {
		switch {
		case len(all) >= maxEntries:
			return errListed
		case !q.door.listed.take(q.user):
			return errLists
		}
		q.listed++
		all = append(all, i)
		return q.head.Context().Err()
	})
	return all, err
}

// copied returns the entries of the folder at p that a COPY takes. As in lists, there are no links
// that lead nowhere. The copy has the file that a link leads to. A link to a folder is an error,
// because it could lead to the copy itself.
func (q *request) copied(p string, all []fs.FileInfo) (some []fs.FileInfo, err error) {
	for _, i := range all {
		if isLink(i) {
			there, err := q.tree.Stat(path.Join(p, i.Name()), true)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				return nil, err
			case there.IsDir():
				return nil, errLinked
			}
		}
		some = append(some, i)
	}
	return some, nil
}

// matches evaluates If-Match and If-None-Match (RFC 9110, 13.1), which the library does not know for
// methods that change something.
func (q *request) matches() bool {
	match, none := q.head.Header.Get("If-Match"), q.head.Header.Get("If-None-Match")
	if match == "" && none == "" {
		return true
	}
	tag := ""
	if info, err := q.tree.Stat(q.head.URL.Path, true); err == nil {
		tag = tagOf(info)
	}
	return (match == "" || hasTag(match, tag)) && (none == "" || !hasTag(none, tag))
}

// hasTag reports whether a list of entity tags has this one. "" is that of no file.
func hasTag(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); tag != "" && (one == "*" || one == tag) {
			return true
		}
	}
	return false
}

func tagOf(i door.Info) string { return `"` + i.Version() + `"` }

// checkTarget reads the Destination of COPY and MOVE.
func (q *request) checkTarget() (status int, err error) {
	to, err := url.Parse(q.head.Header.Get("Destination"))
	if err == nil {
		err = checkURL(to)
	}
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("the header Destination: %w", err)
	}
	if to.Host != "" && !strings.EqualFold(to.Host, q.head.Host) {
		return http.StatusBadGateway, errors.New("the header Destination names another server")
	}
	target := path.Clean(to.Path)
	sources := []string{path.Clean(q.head.URL.Path)}
	if q.head.Method == "COPY" { // the others follow no links
		at, err := q.tree.Follow(sources[0])
		if err != nil {
			return refusal(err)
		}
		sources = append(sources, at)
	}
	for _, from := range sources {
		if isBelow(from, target) || isBelow(target, from) {
			return http.StatusForbidden, errors.New("the source is in the target, or the target in the source")
		}
	}
	to.Host = q.head.Host
	q.target = target
	q.head.Header.Set("Destination", to.String())
	return 0, nil
}

// checkURL refuses paths that somebody between here and the client may read in another way.
func checkURL(u *url.URL) error {
	elements := strings.Split(u.Path, "/")
	switch escaped := strings.ToLower(u.EscapedPath()); {
	case !strings.HasPrefix(u.Path, "/"):
		return errors.New("a path has to begin with a slash")
	case slices.Contains(elements, "..") || slices.Contains(elements, ".") || strings.Contains(escaped, "%2f"):
		return errors.New("a path may not have . and .. and %2F")
	case strings.ContainsRune(u.Path, 0):
		return errors.New("a path may not have a zero byte")
	}
	return nil
}

// isBelow reports whether p is above, or is in it.
func isBelow(p, above string) bool {
	return p == above || above == "/" || strings.HasPrefix(p, above+"/")
}

// reason returns the status and a text for an error of the library.
func (q *request) reason(status int) (int, string) {
	if q.fault == nil || status == http.StatusNotFound && errors.Is(q.fault, fs.ErrNotExist) {
		return status, strings.ToLower(webdav.StatusText(status))
	}
	return statusOf(q.fault, status)
}

// fail notes what went wrong, and returns it as the library expects it.
func (q *request) fail(op, p string, err error) error {
	if err == nil {
		return nil
	}
	kind := err
	switch fault, _ := door.FaultOf(err); fault {
	case door.NotFound:
		kind = fs.ErrNotExist
	case door.Denied:
		kind = fs.ErrPermission
	case door.Exists:
		kind = fs.ErrExist
	}
	if !errors.Is(kind, fs.ErrNotExist) {
		q.fault = err
	}
	return &fs.PathError{Op: op, Path: p, Err: kind}
}

// Stat implements webdav.FileSystem.
func (q *request) Stat(_ context.Context, p string) (fs.FileInfo, error) {
	before := q.fault
	e, err := q.entry(p)
	if err != nil {
		if q.isInList(p) && q.isLink(p) { // lists leave out links that lead nowhere
			q.fault = before
		}
		return nil, err
	}
	return e, nil
}

// isInList reports whether p is in the folder that a PROPFIND lists.
func (q *request) isInList(p string) bool {
	return q.children != nil && path.Dir(path.Clean(p)) == path.Clean(q.head.URL.Path)
}

func (q *request) isLink(p string) bool {
	info, err := q.tree.Stat(p, false)
	return err == nil && isLink(info)
}

func isLink(i fs.FileInfo) bool { return i.Mode()&fs.ModeSymlink != 0 }

func (q *request) entry(p string) (*entry, error) {
	p = path.Clean(p)
	if q.last != nil && q.last.path == p && q.head.Method == "PROPFIND" {
		return q.last, nil
	}
	if path.Dir(p) == "/" && q.isInList(p) { // a session for each share would be too much
		for _, share := range q.children {
			if share.Name() == path.Base(p) {
				return &entry{share, p, func() string { return "" }}, nil
			}
		}
	}
	info, err := q.tree.Stat(p, true)
	if err = q.fail("stat", p, err); errors.Is(err, fs.ErrNotExist) && q.door.locks.reserved(q.user, p) {
		tag := func() string { return `"reserved"` }
		return &entry{reserved(path.Base(p)), p, tag}, nil
	}
	if err != nil {
		return nil, err
	}
	q.last = &entry{info, p, func() string { return tagOf(info) }}
	return q.last, nil
}

// entry describes an entry of the tree for the library.
type entry struct {
	fs.FileInfo
	path string
	tag  func() string
}

// ContentType implements webdav.ContentTyper: the library would read the file.
func (e *entry) ContentType(context.Context) (string, error) { return typeOf(e.path), nil }

func typeOf(p string) string {
	if t := mime.TypeByExtension(path.Ext(p)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// ETag implements webdav.ETager.
func (e *entry) ETag(context.Context) (string, error) { return e.tag(), nil }

// reserved is the name of a file that does not exist, but that its user has locked.
type reserved string

func (r reserved) Name() string    { return string(r) }
func (reserved) Size() int64       { return 0 }
func (reserved) Mode() fs.FileMode { return 0o644 }
func (reserved) ModTime() time.Time {
	return time.Now()
}
func (reserved) IsDir() bool { return false }
func (reserved) Sys() any    { return nil }

// Mkdir implements webdav.FileSystem.
func (q *request) Mkdir(_ context.Context, p string, _ fs.FileMode) error {
	if _, err := q.makeRoom(p, true); err != nil {
		return err
	}
	return q.fail("mkdir", p, q.tree.Mkdir(p))
}

// RemoveAll implements webdav.FileSystem.
func (q *request) RemoveAll(_ context.Context, p string) error {
	if q.target != "" { // the library makes room before it knows whether anything comes
		q.doomed = path.Clean(p)
		return nil
	}
	err := q.fail("remove", p, q.tree.RemoveAll(p))
	if errors.Is(err, fs.ErrNotExist) && q.door.locks.reserved(q.user, path.Clean(p)) {
		err = nil
	}
	if err == nil {
		q.door.locks.forget(path.Clean(p))
	}
	return err
}

// makeRoom removes what a COPY or MOVE replaces, if that is p, and an empty folder: it reports whether
// it was. A file takes the place of another one in one step. Nothing else is replaced: nobody knows
// yet whether the successor will be whole.
func (q *request) makeRoom(p string, forFolder bool) (removed bool, err error) {
	if q.doomed == "" || q.doomed != path.Clean(p) {
		return false, nil
	}
	there, err := q.tree.Stat(p, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && !there.IsDir() && !forFolder:
		return false, nil
	case err == nil && there.IsDir():
		if err = q.tree.Remove(p, true); err != nil {
			if fault, _ := door.FaultOf(err); fault == door.NotEmpty {
				err = errThere
			}
		}
	case err == nil:
		err = errThere
	}
	return err == nil, q.fail("replace", p, err)
}

// Rename implements webdav.FileSystem.
func (q *request) Rename(_ context.Context, from, to string) error {
	replace, removed := q.doomed != "" && q.doomed == path.Clean(to), false
	if replace {
		have, err := q.tree.Stat(from, false)
		if err != nil {
			return q.gone(from, err)
		}
		if removed, err = q.makeRoom(to, have.IsDir()); err != nil {
			return err
		}
	}
	if err := q.tree.Rename(from, to, replace); err != nil {
		if removed {
			_ = q.tree.Mkdir(to)
		}
		return q.gone(from, err)
	}
	q.door.locks.forget(path.Clean(from))
	return nil
}

// gone is fail that also notes that there is no source, which the library takes for a refusal.
func (q *request) gone(p string, err error) error {
	defer func() { q.fault = err }()
	return q.fail("move", p, err)
}

// OpenFile implements webdav.FileSystem.
func (q *request) OpenFile(ctx context.Context, p string, flag int, _ fs.FileMode) (webdav.File, error) {
	if err := ctx.Err(); err != nil { // the client has left
		return nil, q.fail("open", p, err)
	}
	p = path.Clean(p)
	switch {
	case flag&os.O_CREATE != 0 && q.head.Method == "LOCK":
		return q.reserve(p)
	case flag&os.O_CREATE != 0:
		return q.create(p)
	case flag&os.O_RDWR != 0:
		return &properties{unsupported{}, q, p}, nil
	}
	e, err := q.entry(p)
	if err != nil {
		return nil, err
	}
	if q.head.Method == "PROPFIND" || e.IsDir() {
		return &folder{unsupported{}, q, e, 0}, nil
	}
	f, err := q.tree.Open(p)
	if err != nil {
		return nil, q.fail("open", p, err)
	}
	info := f.Info()
	return &reader{unsupported{}, q, f, &entry{info, p, func() string { return tagOf(info) }}, 0}, nil
}

// reserve is what LOCK does where nothing is: nothing shows before a file is whole, so the name is
// only noted with the lock.
func (q *request) reserve(p string) (webdav.File, error) {
	up, err := q.tree.Stat(path.Dir(p), true)
	if err == nil && !up.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		q.fault = errNoParent
		return nil, err
	}
	q.door.locks.reserve(q.user, p)
	return &properties{unsupported{}, q, p}, nil
}

var errNoParent = errors.New("there is no folder for this")

func (q *request) create(p string) (webdav.File, error) {
	if _, err := q.makeRoom(p, false); err != nil {
		return nil, err
	}
	alone := q.head.Method == http.MethodPut && q.head.Header.Get("If-None-Match") == "*"
	_, err := q.tree.Stat(p, true)
	q.replaces = err == nil
	u, err := q.tree.Create(p, door.Creation{MustNot: alone, Hidden: true})
	if alone && errors.Is(err, fs.ErrExist) {
		err = errChanged
	}
	if err != nil {
		return nil, q.fail("create", p, err)
	}
	return &writer{unsupported{}, q, u, p, false, 0}, nil
}
