package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const scheme = "ssh://"

// target is a place on a host that ssh reaches.
type target struct {
	host string // [user@]host, as ssh takes it; an IPv6 address has no brackets
	port int    // 0 is what ssh chooses
	path string // absolute, or below the home folder over there; "" is that folder
	// below has the elements after path from the first one with a pattern on, as in a URL. "" is none.
	below  string
	folder bool // the path ended with a slash
}

// Is reports whether an argument means a place on a host that ssh reaches: ssh://host/path, or
// host:path with a colon before any slash, as for scp.
func Is(s string) bool {
	if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
		return true
	}
	if filepath.VolumeName(s) != "" || strings.Contains(s, "://") { // a drive of Windows; a URL of another kind
		return false
	}
	host, _ := cutHost(s)
	return host != "" && !strings.EqualFold(host, "fxfer") // fxfer:/host/share is a URL with a slash too few
}

// cutHost cuts host:path at the colon after the host. host is "" if there is none.
func cutHost(s string) (host, path string) {
	colon := strings.IndexByte(s, ':')
	if open := strings.IndexByte(s, '['); open == 0 || open > 0 && s[open-1] == '@' {
		if end := strings.Index(s, "]:"); end > 0 { // the colons before are an IPv6 address
			colon = end + 1
		}
	}
	if colon < 1 || strings.Contains(s[:colon], "/") {
		return "", ""
	}
	return s[:colon], s[colon+1:]
}

// parse reads an argument that Is accepts. With patterns, *, ? and [ in the path have a
// meaning.
func parse(s string, patterns bool) (t target, err error) {
	if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
		t, err = parseURL(s[len(scheme):], patterns)
	} else {
		host, path := cutHost(s)
		if t.host, err = checkHost(host); err == nil {
			err = t.setPath(path, patterns, false)
		}
	}
	if err != nil {
		return t, exit.Usage("write [user@]host:path, or ssh://[user@]host[:port]/path; ./a:b is a file of this host", "%q: %w", s, err)
	}
	return t, nil
}

// parseURL reads [user@]host[:port][/path]. The path is absolute; /~/path is below the home folder.
func parseURL(s string, patterns bool) (t target, err error) {
	authority, path, found := strings.Cut(s, "/")
	if found && path != "~" && !strings.HasPrefix(path, "~/") {
		path = "/" + path
	}
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexAny(authority, "]@") {
		port, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil || port == 0 {
			return t, fmt.Errorf("%q is not a port from 1 to 65535", authority[i+1:])
		}
		t.port, authority = int(port), authority[:i]
	}
	if t.host, err = checkHost(authority); err != nil {
		return t, err
	}
	return t, t.setPath(path, patterns, true)
}

// setPath cuts a path before its first pattern. escaped says that %XX stands for a byte.
func (t *target) setPath(path string, patterns, escaped bool) error {
	t.folder = strings.HasSuffix(path, "/")
	elements := strings.Split(path, "/")
	n := 0
	for ; n < len(elements) && !(patterns && strings.ContainsAny(elements[n], "*?[")); n++ {
		if escaped {
			plain, err := url.PathUnescape(elements[n])
			if err != nil {
				return fmt.Errorf("%w: write %%25 for %% itself", err)
			}
			elements[n] = plain
		}
		if strings.ContainsAny(elements[n], "/\x00") {
			return errors.New("a name can't hold a slash or a NUL")
		}
	}
	if t.path = strings.Join(elements[:n], "/"); t.path == "" && strings.HasPrefix(path, "/") {
		t.path = "/"
	}
	if !escaped {
		for i := range elements[n:] {
			elements[n+i] = escapePattern(elements[n+i])
		}
	}
	t.below = strings.Join(elements[n:], "/")
	return nil
}

// escapePattern writes an element as a URL has it, and leaves what belongs to a pattern.
func escapePattern(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("*?[]^-!", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString(url.PathEscape(string(c)))
	}
	return b.String()
}

// checkHost checks [user@]host, which becomes an argument of ssh and may be pasted into a command by
// its configuration. It returns an IPv6 address without brackets.
func checkHost(s string) (string, error) {
	at := strings.LastIndexByte(s, '@')
	user, host := s[:at+1], s[at+1:]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	switch {
	case host == "" || user == "@":
		return "", errors.New("the name of the host or of the user is empty")
	case strings.HasPrefix(host, "-") || strings.HasPrefix(user, "-"):
		return "", errors.New("the name of a host or of a user can't begin with -")
	}
	for _, c := range user + host {
		if c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(".-_:%+@", c) || unicode.IsControl(c) {
			return "", fmt.Errorf("%q can't be in the name of a host or of a user", c)
		}
	}
	return user + host, nil
}

// name returns the host without the user.
func (t *target) name() string { return t.host[strings.LastIndexByte(t.host, '@')+1:] }

// asURL returns the URL that the user may have meant, if the path begins with what looks like a port.
func (t *target) asURL() string {
	port, path, _ := strings.Cut(t.path, "/")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || t.port != 0 || strings.Contains(t.host, "@") {
		return ""
	}
	return "fxfer://" + net.JoinHostPort(t.host, port) + "/" + path
}

// asked returns the path to ask the host for.
func (t *target) asked() string {
	if t.below != "" && NameOf(t.path) != "" {
		return t.path + "/"
	}
	return t.path
}

// NameOf returns the name that what is at a path of a Request has for the user: the last element.
// It is "" if the path ends with a slash or does not say the name.
func NameOf(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if name == "." || name == ".." || path == "~" {
		return ""
	}
	return name
}

// check checks the URL that the host has made of t. What is read gets the last name of the URL at
// this host, so the host must not choose it: it could be .ssh.
func (t *target) check(text string, write bool) error {
	u, _, err := fxfer.ParsePattern(text)
	if err != nil || write || t.folder || t.below != "" { // of a folder, the content is asked for
		return err
	}
	name, want := path.Base(cmp.Or(u.Path, u.Share)), NameOf(t.path)
	windows := want[strings.LastIndexByte(want, '\\')+1:] // the name, if the host has Windows
	if u.TrailingSlash || name != want && name != windows && (want != "" || strings.HasPrefix(name, ".")) {
		return exit.WithHint(&fxfer.Error{Kind: fxfer.KindTrust, Err: fmt.Errorf("%s was asked for %q and wants to send %q", t.host, t.path, name)},
			"a slash at the end asks for the content of a folder, whatever its name is")
	}
	return nil
}

// urlOf returns the URL of the place on a server that has the path of t at path.
func (t *target) urlOf(server fxfer.URL, path string) string {
	server.Path, server.TrailingSlash = path, t.folder && t.below == ""
	if t.below == "" {
		return server.String()
	}
	return server.String() + "/" + t.below
}
