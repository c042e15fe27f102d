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
	// tokenBytes is the number of random bytes in a token.
	tokenBytes = 16
	cookieLife = 90 * 24 * time.Hour
)

// guard protects the dashboard. It admits only clients that have the token, and only requests
// whose Host header names this host.
type guard struct {
	token  string
	cookie string // the cookie's name
	pass   string // the cookie's value
	names  map[string]bool
	origin *http.CrossOriginProtection
}

// newGuard reads the token from the folder home, or creates it there. If home is empty, the token
// is stored nowhere and ends with the process.
func newGuard(home string, names []string, port string) (*guard, error) {
	token, err := keptToken(home)
	if err != nil {
		return nil, fmt.Errorf("create the dashboard's token: %w", err)
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
	if len(token) < tokenBytes {
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

// admits reports whether a request carries the token, or the cookie that stands for it.
func (g *guard) admits(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, g.token)
	}
	cookie, err := r.Cookie(g.cookie)
	return err == nil && same(cookie.Value, g.pass)
}

// logIn gives a browser the cookie if the token is right.
func (g *guard) logIn(w http.ResponseWriter, r *http.Request, token string) bool {
	if !same(token, g.token) {
		return false
	}
	// Browsers use plain HTTP on this machine, and would not store a Secure cookie there.
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure depends on TLS, see above
		Name: g.cookie, Value: g.pass, Path: "/", MaxAge: int(cookieLife.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	return true
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
			plain(w, http.StatusMisdirectedRequest, "this server does not go by that name: fxfer serve --name NAME")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}))
}
