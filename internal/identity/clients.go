package identity

import (
	"crypto/ed25519"
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
	Read  Rights = 1 << iota // list and get
	Write                    // send
)

// String returns "rw", "ro" or "wo", and "none" for no right at all.
func (r Rights) String() string {
	switch r & (Read | Write) {
	case Read | Write:
		return "rw"
	case Read:
		return "ro"
	case Write:
		return "wo"
	}
	return "none"
}

// Has reports whether r includes all of want.
func (r Rights) Has(want Rights) bool { return r&want == want }

// ParseRights reads "rw", "ro" or "wo".
func ParseRights(s string) (Rights, error) {
	switch s {
	case "rw":
		return Read | Write, nil
	case "ro":
		return Read, nil
	case "wo":
		return Write, nil
	}
	return 0, fmt.Errorf("%q is not a right: expected rw, ro or wo", clip(s))
}

// AllShares is the name in Grants that stands for every share not named itself.
const AllShares = "*"

// CheckShare returns an error unless name can be the name of a share: 1 to 255 bytes of UTF-8 without slashes and control
// characters, and none of ".", ".." and "*".
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

// Grants are the rights of one client by the name of the share, or AllShares.
type Grants map[string]Rights

// On returns the rights on one share. An entry of the share's own takes precedence over AllShares, so that "*=rw,old=ro"
// protects old.
func (g Grants) On(share string) Rights {
	if r, ok := g[share]; ok {
		return r
	}
	return g[AllShares]
}

// Merge returns grants that give on every share what g or other gives there.
func (g Grants) Merge(other Grants) Grants {
	merged := make(Grants, len(g)+len(other))
	for _, side := range []Grants{g, other} {
		for share := range side {
			merged[share] = g.On(share) | other.On(share)
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

// ParseGrants reads "share=rights[,share=rights…]", in which the share "*" stands for all shares. Characters of a name may be
// written as % and two hexadecimal digits; blanks, commas, "=", "#" and "%" must be.
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
		return errors.New("no rights are granted on any share")
	}
	for share, rights := range g {
		if share != AllShares {
			if err := CheckShare(share); err != nil {
				return err
			}
		}
		if rights == 0 || rights > Read|Write {
			return fmt.Errorf("%d are no rights on the share %q", rights, share)
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

const clientsHeader = "# Clients this server admits, one a line: pin share=rw|ro|wo[,share=…]  # comment   (*=rw: all shares)\n"

// clientCache is the file authorized_clients as it was read last.
type clientCache struct {
	info   fs.FileInfo // nil: nothing read yet, or no file
	readAt time.Time
	byPin  map[Pin]Grants
	bad    error // a *LineError, or nil
}

// Authorized returns what the file authorized_clients grants to a client's key, and whether the key is in it. A change of the
// file acts at the next call. A key on several lines has the rights of all of them.
//
// A line that can't be understood admits nobody and leaves the others in force. It is reported, as a *LineError, only to keys
// that are not found, and by CheckAuthorized.
func (s *Store) Authorized(key ed25519.PublicKey) (Grants, bool, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, false, nil
	}
	byPin, bad, err := s.readClients()
	if err != nil {
		return nil, false, err
	}
	grants, ok := byPin[PinOf(key)]
	if !ok {
		return nil, false, bad
	}
	return maps.Clone(grants), true, nil
}

// CheckAuthorized returns a *LineError if the file authorized_clients has lines that can't be understood.
func (s *Store) CheckAuthorized() error {
	_, bad, err := s.readClients()
	if err != nil {
		return err
	}
	return bad
}

// racy is how far back a change of a file may lie and still share its time stamp with a later one: the coarsest clock of
// the file systems in use is FAT's, 2 s.
const racy = 2 * time.Second

// readClients returns the entries of authorized_clients, from memory if the file is the same as at the last call. The map
// must not be changed.
func (s *Store) readClients() (byPin map[Pin]Grants, bad, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.clients
	info, err := os.Stat(s.path(clientsFile))
	if err == nil && c.info != nil && os.SameFile(info, c.info) && info.Size() == c.info.Size() &&
		info.ModTime().Equal(c.info.ModTime()) && info.Mode() == c.info.Mode() && c.readAt.Sub(info.ModTime()) > racy {
		return c.byPin, c.bad, nil
	}
	*c = clientCache{readAt: time.Now()}
	text, info, err := s.read(clientsFile)
	if err != nil {
		return nil, nil, err
	}
	c.info = info
	c.byPin, c.bad = parseClients(text, s.path(clientsFile))
	return c.byPin, c.bad, nil
}

// AddAuthorized admits a client: its key gets grants in addition to what authorized_clients gives it already. Other lines of
// the file stay as they are. The comment, for people, stands behind a new line, or behind one that has none; characters that
// can't be printed become blanks in it.
func (s *Store) AddAuthorized(key ed25519.PublicKey, grants Grants, comment string) error {
	if len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("admit a client: its public key has %d bytes", len(key))
	}
	if err := grants.check(); err != nil {
		return fmt.Errorf("admit a client: %w", err)
	}
	return s.update(clientsFile, func(text string) (string, error) {
		return addClient(text, PinOf(key), grants, cleanComment(comment)), nil
	})
}

// addClient merges grants into the first line for pin, or appends one.
func addClient(text string, pin Pin, grants Grants, comment string) string {
	all, _ := parseClients(text, "")
	merged := all[pin].Merge(grants)
	if maps.Equal(merged, all[pin]) {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		p, _, err := parseClientLine(line)
		if err != nil || p != pin {
			continue
		}
		if _, old, _ := strings.Cut(line, "#"); strings.TrimSpace(old) != "" {
			comment = strings.TrimSpace(old)
		}
		lines[i] = clientLine(pin, merged, comment)
		return strings.Join(lines, "\n")
	}
	return appendLine(text, clientsHeader, clientLine(pin, merged, comment))
}

func clientLine(pin Pin, grants Grants, comment string) string {
	line := string(pin) + " " + grants.String()
	if comment != "" {
		line += "  # " + comment
	}
	return line
}

// parseClients reads the text of authorized_clients. Bad lines are left out and returned as a *LineError.
func parseClients(text, file string) (map[Pin]Grants, error) {
	byPin := map[Pin]Grants{}
	bad := &LineError{File: file}
	for i, line := range strings.Split(text, "\n") {
		pin, grants, err := parseClientLine(line)
		switch {
		case err != nil:
			bad.add(i+1, err)
		case pin != "":
			byPin[pin] = byPin[pin].Merge(grants)
		}
	}
	return byPin, bad.err()
}

// parseClientLine reads one line of authorized_clients; an empty one or a comment gives an empty pin.
func parseClientLine(line string) (Pin, Grants, error) {
	entry, _, _ := strings.Cut(line, "#")
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return "", nil, nil
	}
	if len(fields) != 2 {
		return "", nil, fmt.Errorf("expected a pin and share=rights[,share=rights…], found %d words", len(fields))
	}
	pin, err := ParsePin(fields[0])
	if err != nil {
		return "", nil, err
	}
	grants, err := ParseGrants(fields[1])
	if err != nil {
		return "", nil, err
	}
	return pin, grants, nil
}

// cleanComment makes one printable line of at most 100 characters out of text that a stranger may have chosen.
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
