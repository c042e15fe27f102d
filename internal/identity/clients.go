package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Rights say what a client may do in a share.
type Rights uint8

// The rights.
const (
	Read   Rights = 1 << iota // get; includes List
	Write                     // send
	List                      // see names
	Append                    // add snapshots and get one's own, but change nothing
)

// rightWords are the names of the rights.
var rightWords = []struct {
	right Rights
	word  string
}{{Read, "read"}, {Write, "write"}, {List, "list"}, {Append, "append"}}

const anyRight = Read | Write | List | Append

// expand adds the rights that other rights include.
func (r Rights) expand() Rights {
	if r&Read != 0 {
		r |= List
	}
	if r&(Read|Write) == Read|Write {
		r |= Append
	}
	return r
}

// normal removes the rights that other rights include.
func (r Rights) normal() Rights {
	if r&Read != 0 {
		r &^= List
	}
	if r&(Read|Write) == Read|Write {
		r &^= Append
	}
	return r
}

// String returns "rw", "ro" or "wo", other rights by their names with "+" between them, or "none".
func (r Rights) String() string {
	r = r.normal()
	switch r {
	case Read | Write:
		return "rw"
	case Read:
		return "ro"
	case Write:
		return "wo"
	}
	var words []string
	for _, w := range rightWords {
		if r&w.right != 0 {
			words = append(words, w.word)
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, "+")
}

// Has reports whether r includes all of want.
func (r Rights) Has(want Rights) bool { return r.expand()&want == want }

// And returns the rights that both include.
func (r Rights) And(other Rights) Rights { return (r.expand() & other.expand()).normal() }

// RightsSyntax says what ParseRights reads, in error messages and help.
func RightsSyntax() string {
	words := make([]string, len(rightWords))
	for i, w := range rightWords {
		words[i] = w.word
	}
	last := len(words) - 1
	return "rw, ro, wo, or some of " + strings.Join(words[:last], ", ") + " and " + words[last] + " with + between them"
}

// ParseRights reads "rw", "ro" or "wo", or names of rights with "+" between them.
func ParseRights(s string) (r Rights, err error) {
	switch s {
	case "rw":
		return Read | Write, nil
	case "ro":
		return Read, nil
	case "wo":
		return Write, nil
	}
	for word := range strings.SplitSeq(s, "+") {
		right := Rights(0)
		for _, w := range rightWords {
			if w.word == word {
				right = w.right
			}
		}
		if right == 0 {
			return 0, fmt.Errorf("%q is not a right: expected %s", clip(s), RightsSyntax())
		}
		r |= right
	}
	return r.normal(), nil
}

// AllShares is the name in Grants for every share that has no entry of its own.
const AllShares = "*"

// CheckShare returns an error unless name can be the name of a share: 1 to 255 bytes of UTF-8
// without slashes and control characters, and not ".", ".." or "*".
func CheckShare(name string) error {
	switch {
	case name == "":
		return errors.New("the name of the share is empty")
	case name == "." || name == ".." || name == AllShares:
		return fmt.Errorf("%q can't be the name of a share", name)
	case len(name) > 255:
		return fmt.Errorf("%q is too long for the name of a share: at most 255 bytes", clip(name))
	case !utf8.ValidString(name) || strings.Contains(name, "/") || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q can't be the name of a share: expected UTF-8 without slashes and control characters", clip(name))
	}
	return nil
}

// Grants are the rights of one client. The key is the name of a share, or AllShares.
type Grants map[string]Rights

// On returns the rights on one share. An entry for the share itself takes precedence over
// AllShares, so "*=rw,old=ro" protects old.
func (g Grants) On(share string) Rights {
	if r, ok := g[share]; ok {
		return r
	}
	return g[AllShares]
}

// Merge returns grants that give, on every share, the rights of g and of other together.
func (g Grants) Merge(other Grants) Grants {
	merged := make(Grants, len(g)+len(other))
	for _, side := range []Grants{g, other} {
		for share := range side {
			merged[share] = (g.On(share) | other.On(share)).normal()
		}
	}
	return merged
}

// String returns the form that ParseGrants reads, sorted by share.
func (g Grants) String() string {
	var b strings.Builder
	for i, share := range slices.Sorted(maps.Keys(g)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(escapeShare(share))
		b.WriteByte('=')
		b.WriteString(g[share].String())
	}
	return b.String()
}

// ParseGrants reads "share=rights[,share=rights…]". The share "*" means all shares. A character of
// a name may be written as % and two hexadecimal digits. Blanks, commas, "=", "#" and "%" must be.
func ParseGrants(s string) (Grants, error) {
	grants := Grants{}
	for item := range strings.SplitSeq(s, ",") {
		escaped, rightsText, ok := strings.Cut(item, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not a grant: expected share=rights", clip(item))
		}
		share, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, fmt.Errorf("%q is not the name of a share: expected two hexadecimal digits after %%", clip(escaped))
		}
		if escaped != AllShares {
			if err := CheckShare(share); err != nil {
				return nil, err
			}
		}
		rights, err := ParseRights(rightsText)
		if err != nil {
			return nil, err
		}
		if _, ok := grants[share]; ok {
			return nil, fmt.Errorf("the share %q is named twice", clip(share))
		}
		grants[share] = rights
	}
	return grants, nil
}

// check returns an error unless g can be written and read back.
func (g Grants) check() error {
	if len(g) == 0 {
		return errors.New("the client gets no rights on any share")
	}
	for share, rights := range g {
		if share != AllShares {
			if err := CheckShare(share); err != nil {
				return err
			}
		}
		if rights == 0 || rights&^anyRight != 0 {
			return fmt.Errorf("%d is not a set of rights on the share %q", rights, share)
		}
	}
	return nil
}

func escapeShare(share string) string {
	if share == AllShares {
		return share
	}
	var b strings.Builder
	for _, c := range []byte(share) {
		if hostRune(rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

const clientsHeader = "# Clients this server admits, one a line: pin share=rw|ro|wo[,share=…]  # comment   (*=rw: all shares; revoked instead: none)\n"

// revoked is written in place of grants.
const revoked = "revoked"

// Client is one client of the file authorized_clients.
type Client struct {
	ID      Principal
	Grants  Grants
	Revoked bool   // has no rights, whatever other places grant
	Comment string // for people
}

// clientCache is the content of authorized_clients at the last read.
type clientCache struct {
	info   fs.FileInfo // nil: nothing read yet, or no file
	readAt time.Time
	list   []Client // each once, in the order of the file
	byID   map[Principal]int
	bad    error // a *LineError, or nil
}

// Client returns one client of authorized_clients, and whether the file has it. A change of the file
// acts at the next call. A key on several lines has the rights of all of them, or is revoked if one of
// them says so.
//
// A line with a fault admits nobody, and the other lines stay in force. Only clients that are not
// found, and CheckAuthorized, get the fault, as a *LineError.
func (s *Store) Client(id Principal) (Client, bool, error) {
	cache, err := s.readClients()
	if err != nil {
		return Client{}, false, err
	}
	i, ok := cache.byID[id]
	if !ok {
		return Client{}, false, cache.bad
	}
	c := cache.list[i]
	c.Grants = maps.Clone(c.Grants)
	return c, true, nil
}

// Clients returns all clients of authorized_clients in the order of the file. It does so even with
// a *LineError.
func (s *Store) Clients() ([]Client, error) {
	cache, err := s.readClients()
	if err != nil {
		return nil, err
	}
	return slices.Clone(cache.list), cache.bad
}

// CheckAuthorized returns a *LineError if lines of authorized_clients have faults.
func (s *Store) CheckAuthorized() error {
	cache, err := s.readClients()
	if err != nil {
		return err
	}
	return cache.bad
}

// racy is the resolution of the coarsest time stamps, those of FAT. A file that changed this
// recently may change again without a new time stamp.
const racy = 2 * time.Second

// unchanged reports whether path is still the file that was read at the given time.
func unchanged(path string, read fs.FileInfo, at time.Time) bool {
	info, err := os.Stat(path)
	return err == nil && read != nil && os.SameFile(info, read) && info.Size() == read.Size() &&
		info.ModTime().Equal(read.ModTime()) && info.Mode() == read.Mode() && at.Sub(info.ModTime()) > racy
}

// readClients returns the content of authorized_clients, from memory if the file did not change.
// The caller must not change it.
func (s *Store) readClients() (clientCache, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.clients
	if unchanged(s.path(clientsFile), c.info, c.readAt) {
		return *c, nil
	}
	*c = clientCache{readAt: time.Now()}
	text, info, err := s.read(clientsFile)
	if err != nil {
		return clientCache{}, err
	}
	c.info = info
	c.list, c.byID, c.bad = parseClients(text, s.path(clientsFile))
	return *c, nil
}

// Admit gives a client these rights on these shares, and a comment unless that is "". Rights on
// other shares, an older comment, and the other lines of authorized_clients stay. A revocation does
// not. The comment is for people: characters that cannot be printed become blanks.
func (s *Store) Admit(id Principal, grants Grants, comment string) error {
	return s.addClient(id, grants, comment, replaceRights)
}

func replaceRights(old Client, c *Client) error {
	if !old.Revoked {
		others := maps.Clone(old.Grants)
		maps.Copy(others, c.Grants)
		c.Grants = others
	}
	c.Comment = cmp.Or(c.Comment, old.Comment)
	return nil
}

// ErrRevoked refuses to enrol a client whose rights were taken away.
var ErrRevoked = errors.New("this client was revoked here, and no invitation admits it again")

// Enrol adds rights to those that a client has, and a comment if it has none: it was invited. The
// error is ErrRevoked if the client is revoked.
func (s *Store) Enrol(id Principal, grants Grants, comment string) error {
	return s.addClient(id, grants, comment, mergeRights)
}

func mergeRights(old Client, c *Client) error {
	if old.Revoked {
		return ErrRevoked
	}
	c.Grants = old.Grants.Merge(c.Grants)
	c.Comment = cmp.Or(old.Comment, c.Comment)
	return nil
}

func (s *Store) addClient(
	id Principal, grants Grants, comment string, join func(old Client, c *Client) error,
) error {
	if err := id.check(); err != nil {
		return fmt.Errorf("admit a client: %w", err)
	}
	if err := grants.check(); err != nil {
		return fmt.Errorf("admit a client: %w", err)
	}
	c := Client{ID: id, Grants: grants, Comment: cleanComment(comment)}
	return s.update(clientsFile, func(text string) (string, error) {
		return addClient(text, c, join)
	})
}

// addClient adds a client to the text of authorized_clients. If the text has it, join completes it
// with what the text says.
func addClient(
	text string, c Client, join func(old Client, c *Client) error,
) (string, error) {
	all, byID, _ := parseClients(text, "")
	if i, known := byID[c.ID]; known {
		old := all[i]
		if err := join(old, &c); err != nil {
			return "", err
		}
		if !old.Revoked && maps.Equal(c.Grants, old.Grants) && c.Comment == old.Comment {
			return text, nil
		}
	}
	return putClient(text, c.ID, c.Grants.String(), c.Comment), nil
}

// Revoke takes all rights from a client, also rights that it has elsewhere, such as in a server's
// configuration. Admit admits it again.
func (s *Store) Revoke(id Principal) error {
	if err := id.check(); err != nil {
		return fmt.Errorf("revoke a client: %w", err)
	}
	return s.update(clientsFile, func(text string) (string, error) {
		all, byID, _ := parseClients(text, "")
		comment := ""
		if i, ok := byID[id]; ok {
			if all[i].Revoked {
				return text, nil
			}
			comment = all[i].Comment
		}
		return putClient(text, id, revoked, comment), nil
	})
}

// putClient replaces the first line for id, and removes further lines for id. Without such a line it
// appends one.
func putClient(text string, id Principal, rights, comment string) string {
	var lines []string
	found := false
	for line := range strings.SplitSeq(text, "\n") {
		c, err := parseClientLine(line)
		switch {
		case err != nil || c.ID != id:
			lines = append(lines, line)
		case !found:
			found = true
			lines = append(lines, clientLine(id, rights, comment))
		}
	}
	if found {
		return strings.Join(lines, "\n")
	}
	return appendLine(text, clientsHeader, clientLine(id, rights, comment))
}

func clientLine(id Principal, rights, comment string) string {
	line := string(id) + " " + rights
	if comment != "" {
		line += "  # " + comment
	}
	return line
}

// parseClients reads the text of authorized_clients. It skips lines with faults and returns them as
// a *LineError.
func parseClients(text, file string) (list []Client, byID map[Principal]int, err error) {
	byID = map[Principal]int{}
	bad := &LineError{File: file}
	for n, line := range strings.Split(text, "\n") {
		c, err := parseClientLine(line)
		i, known := byID[c.ID]
		switch {
		case err != nil:
			bad.add(n+1, err)
		case c.ID == "":
		case !known:
			byID[c.ID] = len(list)
			list = append(list, c)
		default:
			old := &list[i]
			old.Grants, old.Revoked = old.Grants.Merge(c.Grants), old.Revoked || c.Revoked
			if old.Comment == "" {
				old.Comment = c.Comment
			}
		}
	}
	return list, byID, bad.err()
}

// parseClientLine reads one line of authorized_clients. An empty line or a comment gives an empty
// ID.
func parseClientLine(line string) (c Client, err error) {
	entry, comment, _ := strings.Cut(line, "#")
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return c, nil
	}
	if len(fields) != 2 {
		return c, fmt.Errorf("expected a pin or a name and share=rights[,share=rights…], found %d words", len(fields))
	}
	id, err := ParsePrincipal(fields[0])
	if err != nil {
		return c, err
	}
	c = Client{ID: id, Comment: strings.TrimSpace(comment)}
	if fields[1] == revoked {
		c.Revoked = true
		return c, nil
	}
	if c.Grants, err = ParseGrants(fields[1]); err != nil {
		return Client{}, err
	}
	return c, nil
}

// cleanComment makes one printable line of at most 100 characters from text that a client
// chose before it was authenticated.
func cleanComment(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > 100 {
		s = strings.TrimSpace(string(runes[:100]))
	}
	return s
}
