package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/fxfer/fxfer/internal/identity"
)

const urlScheme = "fxfer://"

// URL names a place on a server: fxfer://host[:port]/share[/path]. An invitation has the form
// fxfer://TOKEN:PIN@host[:port]/share, in which PIN is a pin without its prefix "ed25519:".
//
// In a share and a path, any byte but NUL may be written as % and two hexadecimal digits; "%", "?"
// and "#" must be. String escapes every byte that has a meaning in a shell, so that its text can
// be pasted without quotes (in zsh, except for the brackets of an IPv6 address).
type URL struct {
	Host  string       // DNS name in lower case, IPv4 address, or IPv6 address without brackets
	Port  int          // 1 to 65535
	Share string       // "" means the server itself, whose shares can be listed
	Path  string       // below the share, elements separated by slashes; "" means the share itself
	Token string       // of an invitation, secret; "" if none
	Pin   identity.Pin // of an invitation: set with Token, and only then

	// TrailingSlash reports whether the share or path ended with a slash, which means the contents of
	// a folder.
	TrailingSlash bool
}

// Address returns host and port.
func (u URL) Address() string { return net.JoinHostPort(u.Host, strconv.Itoa(u.Port)) }

// IsURL reports whether s is meant as a URL rather than a local path.
func IsURL(s string) bool {
	return len(s) >= len(urlScheme) && strings.EqualFold(s[:len(urlScheme)], urlScheme)
}

// ParseURL parses a URL. Repeated slashes in the path count as one; the elements "." and ".." are
// rejected. Its errors are of KindUsage, one line, and never show what may be a token.
func ParseURL(s string) (URL, error) {
	u, err := parseURL(s)
	if err != nil {
		return URL{}, Usage("", "%s", maskSecrets(err.Error()))
	}
	return u, nil
}

func parseURL(s string) (u URL, err error) {
	if !IsURL(s) {
		return URL{}, fmt.Errorf("%q is not a URL: expected fxfer://host[:port]/share[/path]", shorten(s))
	}
	authority, rest, _ := strings.Cut(s[len(urlScheme):], "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if u.Token, u.Pin, err = parseInvitation(authority[:at]); err != nil {
			return URL{}, err
		}
		authority = authority[at+1:]
	}
	if strings.HasPrefix(authority, "[") {
		authority = strings.Replace(authority, "%25", "%", 1) // before an IPv6 zone, RFC 6874
	}
	if u.Host, u.Port, err = identity.SplitHost(authority); err != nil {
		return URL{}, fmt.Errorf("%w, in fxfer://host[:port]/share[/path]", err)
	}
	share, path, slash := strings.Cut(rest, "/")
	if share == "" {
		if slash {
			return URL{}, errors.New("the name of the share is empty: expected fxfer://host[:port]/share[/path]")
		}
		return u, nil
	}
	if u.Share, err = unescape(share); err != nil {
		return URL{}, err
	}
	if err := identity.CheckShare(u.Share); err != nil {
		return URL{}, err
	}
	u.TrailingSlash = slash && (path == "" || strings.HasSuffix(path, "/"))
	var elements []string
	for escaped := range strings.SplitSeq(path, "/") {
		element, err := unescape(escaped)
		switch {
		case err != nil:
			return URL{}, err
		case element == "." || element == "..":
			return URL{}, fmt.Errorf("%q in the path is refused: name the place itself", element)
		case strings.ContainsAny(element, "/\x00"):
			return URL{}, fmt.Errorf("%q in the path is refused: a name can't hold a slash or a NUL", shorten(escaped))
		case element != "":
			elements = append(elements, element)
		}
	}
	u.Path = strings.Join(elements, "/")
	return u, nil
}

// tokenForm matches every token that an invitation can have: base64url of 16 to 64 bytes.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]{22,86}$`)

func parseInvitation(s string) (token string, pin identity.Pin, err error) {
	token, bare, ok := strings.Cut(s, ":")
	if !ok || !tokenForm.MatchString(token) {
		if token == "TOKEN" {
			return "", "", fmt.Errorf("%q is a placeholder: paste the URL that `fxfer serve --invite` printed", shorten(s))
		}
		return "", "", errors.New("fxfer has no user names or passwords: only what `fxfer serve --invite` prints can be before @")
	}
	if pin, err = identity.ParsePin(bare); err != nil {
		return "", "", errors.New("the key in the invitation is damaged: expected 43 characters A-Z a-z 0-9 - _ between the token and @")
	}
	return token, pin, nil
}

// unescape resolves %XX in one element of a path.
func unescape(s string) (string, error) {
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		return "", fmt.Errorf("a URL has no %q part: write it as %%%02X if it belongs to a name", s[i], s[i])
	}
	plain, err := url.PathUnescape(s)
	if err != nil {
		var bad url.EscapeError
		errors.As(err, &bad)
		return "", fmt.Errorf("%q is not an escape: expected %% and two hexadecimal digits (%%25 for %% itself)", string(bad))
	}
	return plain, nil
}

// String returns the URL in its canonical form, which ParseURL parses. It shows the secret token;
// see Redacted.
func (u URL) String() string { return u.format(u.Token) }

// Redacted returns the URL like String, without the invitation, for messages, logs and records.
func (u URL) Redacted() string { return u.format("") }

// LogValue keeps the token out of logs.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.Redacted()) }

func (u URL) format(token string) string {
	var b strings.Builder
	b.WriteString(urlScheme)
	if token != "" {
		b.WriteString(token + ":" + u.Pin.Bare() + "@")
	}
	if strings.Contains(u.Host, ":") {
		b.WriteString("[" + strings.Replace(u.Host, "%", "%25", 1) + "]")
	} else {
		b.WriteString(u.Host)
	}
	if u.Port != identity.DefaultPort {
		b.WriteString(":" + strconv.Itoa(u.Port))
	}
	b.WriteByte('/')
	escapeTo(&b, u.Share)
	if u.Path != "" {
		b.WriteByte('/')
		escapeTo(&b, u.Path)
	}
	if u.TrailingSlash {
		b.WriteByte('/')
	}
	return b.String()
}

// escapeTo writes a path. It escapes everything that has a meaning in a shell, a URL or a line of
// text.
func escapeTo(b *strings.Builder, path string) {
	for _, c := range []byte(path) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("/-._+,=@:", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}

var secretLike = regexp.MustCompile(`[A-Za-z0-9_-]{22,}`)

// maskSecrets hides whatever is long enough to be a token, wherever it is, because a token in the
// wrong place is a reason for a URL to be rejected.
func maskSecrets(s string) string { return secretLike.ReplaceAllString(s, "xxxxx") }

func shorten(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
