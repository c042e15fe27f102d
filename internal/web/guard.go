package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
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
	"time"
)

const (
	tokenFile = "web-token"
	// tokenBytes is how much of chance a token holds.
	tokenBytes = 16
	cookieLife = 90 * 24 * time.Hour
)

// guard admits to the dashboard who has its token, and browsers only under names that are this host's.
type guard struct {
	token  string
	cookie string // name
	pass   string // what the cookie holds
	names  map[string]bool
	origin *http.CrossOriginProtection
}

// newGuard reads the token that home keeps, or makes one. Without home it is kept by nobody.
func newGuard(home string, names []string, port string) (*guard, error) {
	token, err := keptToken(home)
	if err != nil {
		return nil, fmt.Errorf("token of the dashboard: %w", err)
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("cookie"))
	g := &guard{
		token: token, cookie: "fxfer-" + port, pass: hex.EncodeToString(mac.Sum(nil)),
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

// keptToken returns the token in a folder. A file that others may read is refused: whoever reads it may revoke clients.
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
		return "", fmt.Errorf("others may read %s: chmod 600, or remove it for a new one", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < tokenBytes {
		return "", fmt.Errorf("%s is too short for a token: remove it for a new one", path)
	}
	return token, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// knows tells whether a request is for this host. Who has a name point at our address, as a page elsewhere may, does not know it.
func (g *guard) knows(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return g.names[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// admits tells whether a request comes with the token, or with the cookie that stands for it.
func (g *guard) admits(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, g.token)
	}
	cookie, err := r.Cookie(g.cookie)
	return err == nil && same(cookie.Value, g.pass)
}

// let gives a browser the cookie, if the token is right.
func (g *guard) let(w http.ResponseWriter, r *http.Request, token string) bool {
	if !same(token, g.token) {
		return false
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure would lose it over plain HTTP, which is what this machine alone is spoken to by
		Name: g.cookie, Value: g.pass, Path: "/", MaxAge: int(cookieLife.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	return true
}

// headers forbids a page whatever it does not need: no script, style or image from elsewhere or within the page, no frame around it.
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

// private is for what only the administrator may see or do.
func (g *guard) private(next http.HandlerFunc) http.Handler {
	return g.public(func(w http.ResponseWriter, r *http.Request) {
		if !g.admits(r) {
			plain(w, http.StatusUnauthorized, "the token is missing")
			return
		}
		next(w, r)
	})
}

// public is for what a browser may have without the token.
func (g *guard) public(next http.HandlerFunc) http.Handler {
	return g.origin.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header())
		if !g.knows(r.Host) {
			plain(w, http.StatusMisdirectedRequest, "this server does not go by that name: fxfer serve --name NAME")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}))
}
