package identity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultPort is the TCP and UDP port of a server when none is given.
const DefaultPort = 7433

const serversHeader = "# Servers this user trusts, one a line: host:port pin  # comment\n"

var (
	// ErrUnknownServer matches an UnknownServerError.
	ErrUnknownServer = errors.New("unknown server")
	// ErrServerChanged matches a ServerChangedError.
	ErrServerChanged = errors.New("the server's key has changed")
)

// UnknownServerError says that no key is known for a server. It matches ErrUnknownServer.
type UnknownServerError struct {
	Server  string // host:port
	Offered Pin
	Names   []string // host:port of the servers that are known to have this key
	File    string   // the list it is missing from
}

func (e *UnknownServerError) Error() string {
	text := fmt.Sprintf("the server %s is not known yet; its key is %s", e.Server, e.Offered)
	if len(e.Names) > 0 {
		text += ", which is known as that of " + strings.Join(e.Names, ", ")
	}
	return text
}

// Is reports whether target is ErrUnknownServer.
func (e *UnknownServerError) Is(target error) bool { return target == ErrUnknownServer }

// ServerChangedError says that a server offers another key than the known one. It matches
// ErrServerChanged.
type ServerChangedError struct {
	Server  string // host:port
	Known   Pin
	Offered Pin
	File    string
	Line    int // where Known stands in File, counted from 1
}

func (e *ServerChangedError) Error() string {
	return fmt.Sprintf("THE KEY OF %s HAS CHANGED: it offers %s, but %s:%d pins %s", e.Server, e.Offered, e.File, e.Line, e.Known)
}

// Is reports whether target is ErrServerChanged.
func (e *ServerChangedError) Is(target error) bool { return target == ErrServerChanged }

// SplitHost reads "host", "host:port", an IPv6 address, or "[IPv6]:port" and returns the host as it
// is compared and dialled: in lower case, an IPv6 address in its canonical form (RFC 5952) without
// brackets. The port is DefaultPort if none is given.
func SplitHost(s string) (host string, port int, err error) {
	host, portText, hasPort := s, "", false
	switch {
	case strings.HasPrefix(s, "["):
		var rest string
		var closed bool
		host, rest, closed = strings.Cut(s[1:], "]")
		if !closed {
			return "", 0, fmt.Errorf("%q is not a host: the ] of the IPv6 address is missing", clip(s))
		}
		portText, hasPort = strings.CutPrefix(rest, ":")
		if !hasPort && rest != "" {
			return "", 0, fmt.Errorf("%q is not a host: expected :port after the ]", clip(s))
		}
		if !strings.Contains(host, ":") {
			return "", 0, fmt.Errorf("%q is not an IPv6 address", clip(host))
		}
	case strings.Count(s, ":") == 1:
		host, portText, hasPort = strings.Cut(s, ":")
	}
	port = DefaultPort
	if hasPort {
		n, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || n == 0 {
			return "", 0, fmt.Errorf("%q is not a port: expected a number from 1 to 65535", clip(portText))
		}
		port = int(n)
	}
	host, err = normalizeHost(host)
	return host, port, err
}

func normalizeHost(host string) (string, error) {
	if host == "" {
		return "", errors.New("the host is missing")
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || strings.ContainsFunc(addr.Zone(), func(r rune) bool { return !hostRune(r) }) {
			return "", fmt.Errorf("%q is not an IPv6 address", clip(host))
		}
		return addr.String(), nil
	}
	host = strings.ToLower(host)
	odd := strings.ContainsFunc(host, func(r rune) bool { return !hostRune(r) })
	if odd || len(host) > 253 || strings.HasPrefix(host, ".") || strings.HasPrefix(host, "-") || strings.Contains(host, "..") {
		return "", fmt.Errorf("%q is not a host: expected a DNS name or an IP address", clip(host))
	}
	return host, nil
}

func hostRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
}

func normalizeServer(hostport string) (string, error) {
	host, port, err := SplitHost(hostport)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// KnownServer returns the pin of a server from the file known_servers. It reads the host like
// SplitHost.
//
// Lines with faults do not hide the others, but they make the answer "not known" uncertain. In that
// case, and when two lines pin different keys for this server, the error is a *LineError.
func (s *Store) KnownServer(hostport string) (Pin, bool, error) {
	server, err := normalizeServer(hostport)
	if err != nil {
		return "", false, err
	}
	text, _, err := s.read(serversFile)
	if err != nil {
		return "", false, err
	}
	pin, _, err := findServer(text, s.path(serversFile), server)
	return pin, pin != "", err
}

// KnownServers returns the servers in the file known_servers, as host:port. It passes over lines with
// faults.
func (s *Store) KnownServers() (all []string, err error) {
	text, _, err := s.read(serversFile)
	for line := range strings.SplitSeq(text, "\n") {
		server, _, lineErr := parseServerLine(line)
		if lineErr == nil && server != "" && !slices.Contains(all, server) {
			all = append(all, server)
		}
	}
	return all, err
}

// CheckServer compares the key that a server offers with the known one. It returns nil if they are
// the same, an *UnknownServerError, a *ServerChangedError, or the error of KnownServer.
func (s *Store) CheckServer(hostport string, offered Pin) error {
	server, err := normalizeServer(hostport)
	if err != nil {
		return err
	}
	text, _, err := s.read(serversFile)
	if err != nil {
		return err
	}
	known, line, err := findServer(text, s.path(serversFile), server)
	switch {
	case err != nil:
		return err
	case known == "":
		names := namesOf(text, offered)
		return &UnknownServerError{Server: server, Offered: offered, Names: names, File: s.path(serversFile)}
	case known != offered:
		return &ServerChangedError{Server: server, Known: known, Offered: offered, File: s.path(serversFile), Line: line}
	}
	return nil
}

// AddKnownServer adds a server to the file known_servers and keeps the other lines. Adding the same
// pin again does nothing. A pin that differs from the known one is refused with a
// *ServerChangedError.
func (s *Store) AddKnownServer(hostport string, pin Pin) error {
	server, err := normalizeServer(hostport)
	if err != nil {
		return err
	}
	if _, err := pin.Key(); err != nil {
		return err
	}
	file := s.path(serversFile)
	return s.update(serversFile, func(text string) (string, error) {
		known, line, err := findServer(text, file, server)
		var bad *LineError
		switch {
		case known == pin:
			return text, nil
		case known != "":
			return "", &ServerChangedError{Server: server, Known: known, Offered: pin, File: file, Line: line}
		case errors.As(err, &bad) && bad.conflict:
			return "", err
		}
		return appendLine(text, serversHeader, server+" "+string(pin)), nil
	})
}

// findServer looks up a normalised server in the text of known_servers. The pin is empty if the
// text lacks it.
func findServer(text, file, server string) (pin Pin, line int, err error) {
	bad := &LineError{File: file}
	for i, l := range strings.Split(text, "\n") {
		s, p, err := parseServerLine(l)
		switch {
		case err != nil:
			bad.add(i+1, err)
		case s != server || p == pin:
		case pin != "":
			problem := fmt.Sprintf("a second key for %s, other than in line %d", server, line)
			return "", 0, &LineError{File: file, Line: i + 1, Problem: problem, conflict: true}
		default:
			pin, line = p, i+1
		}
	}
	if pin == "" {
		return "", 0, bad.err()
	}
	return pin, line, nil
}

// namesOf returns the servers that have a key in the text of known_servers.
func namesOf(text string, key Pin) (names []string) {
	for line := range strings.SplitSeq(text, "\n") {
		server, pin, err := parseServerLine(line)
		if err == nil && server != "" && pin == key && !slices.Contains(names, server) {
			names = append(names, server)
		}
	}
	return names
}

// parseServerLine reads one line of known_servers. An empty line or a comment gives an empty
// server.
func parseServerLine(line string) (server string, pin Pin, err error) {
	entry, _, _ := strings.Cut(line, "#")
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return "", "", nil
	}
	if len(fields) != 2 {
		return "", "", fmt.Errorf("expected host:port and a pin, found %d words", len(fields))
	}
	if server, err = normalizeServer(fields[0]); err != nil {
		return "", "", err
	}
	if pin, err = ParsePin(fields[1]); err != nil {
		return "", "", err
	}
	return server, pin, nil
}

// appendLine adds a line to the text of a list. A new list starts with header.
func appendLine(text, header, line string) string {
	if text == "" {
		text = header
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}
