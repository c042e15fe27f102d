package web

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	tokenFile = "web-token"
	// leastToken is the number of characters from which the text in tokenFile counts as a token.
	leastToken = 16
)

// guard protects the pages. It admits only requests whose Host header names this host and, for the
// dashboard's data, only clients that have the token.
type guard struct {
	token  string
	names  map[string]bool
	advice string // how it goes by other names; "" if it can't
	origin *http.CrossOriginProtection
}

// newGuard reads the token from the folder home, or creates it there. If home is empty, the token
// is stored nowhere and ends with the process.
func newGuard(home string, names []string) (*guard, error) {
	token, err := keptToken(home)
	if err != nil {
		return nil, fmt.Errorf("create the dashboard's token: %w", err)
	}
	g := &guard{
		token: token,
		names: map[string]bool{"localhost": true}, origin: http.NewCrossOriginProtection(),
	}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own)
	}
	for _, name := range names {
		if name != "" {
			g.names[strings.ToLower(name)] = true
		}
	}
	return g, nil
}

// keptToken returns the token that is stored in a folder, and creates it if there is none. It
// rejects a file that other users can read: with the token they could revoke clients.
func keptToken(home string) (string, error) {
	fresh := rand.Text()
	if home == "" {
		return fresh, nil
	}
	path := filepath.Join(home, tokenFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readToken(path)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.WriteString(fresh + "\n"); err != nil {
		return "", err
	}
	return fresh, f.Sync()
}

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if others := info.Mode().Perm() & 0o077; others != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("others may read %s: run chmod 600 on it, or remove it to get a new token", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastToken {
		return "", fmt.Errorf("%s is too short for a token: remove it to get a new one", path)
	}
	return token, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isOurs reports whether host is a name of this host. A foreign page that points its own DNS name
// at our address (DNS rebinding) fails this check.
func (g *guard) isOurs(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return g.names[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// admits reports whether a request carries the token. Only a header may carry it: browsers send a
// cookie to every port of a host (RFC 6265, section 8.5), whoever listens there, and no attribute or
// prefix of a cookie changes that.
func (g *guard) admits(r *http.Request) bool {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && same(bearer, g.token)
}

// headers denies a page everything that it does not need: scripts, styles and images from other
// sites or inline, and frames around it.
func headers(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "+
		"base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// private wraps handlers that need the token.
func (g *guard) private(next http.HandlerFunc) http.Handler {
	return g.public(func(w http.ResponseWriter, r *http.Request) {
		if !g.admits(r) {
			plain(w, http.StatusUnauthorized, "the token is missing")
			return
		}
		next(w, r)
	})
}

// public wraps handlers that a browser may use without the token.
func (g *guard) public(next http.HandlerFunc) http.Handler {
	return g.origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header())
		if !g.isOurs(r.Host) {
			plain(w, http.StatusMisdirectedRequest, "this is not the name of this host: use localhost, its address, or its own name"+g.advice)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}))
}
