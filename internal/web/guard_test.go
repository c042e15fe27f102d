package web

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// do sends a request that change has modified. It returns the status and the body.
func do(t *testing.T, c *http.Client, method, url string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	w, err := c.Do(r)
	require.NoError(t, err)
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.StatusCode, string(text)
}

// The dashboard shows and does nothing without the token, for pages of other sites, or under a
// name that is not ours.
func TestGuard(t *testing.T) {
	s := start(t, fxfer.Options{})
	plain := http.DefaultClient
	token := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.pages.guard.token) }
	for _, path := range []string{"/api/status", "/api/totals", "/api/events", "/api/history", "/api/clients", "/api/jobs", "/api/queues", "/api/transfers/x"} {
		for _, query := range []string{"", "?token=" + s.pages.guard.token} {
			status, text := do(t, plain, http.MethodGet, s.base+path+query, nil)
			require.Equal(t, http.StatusUnauthorized, status, path)
			require.NotContains(t, text, "backup", path)
		}
	}
	for _, path := range []string{"/api/transfers/x/cancel", "/api/transfers/x/priority/low", "/api/clients/x/revoke"} {
		status, _ := do(t, plain, http.MethodPost, s.base+path, nil)
		require.Equal(t, http.StatusUnauthorized, status, path)
	}
	for _, bearer := range []string{"", "guessed", s.pages.guard.token + "x", s.pages.guard.token[1:]} {
		status, _ := do(t, plain, http.MethodGet, s.base+"/api/status", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+bearer) })
		require.Equal(t, http.StatusUnauthorized, status, bearer)
	}
	base, err := url.Parse(s.base)
	require.NoError(t, err)
	status, text := do(t, plain, http.MethodGet, s.base+"/api/status", token)
	require.Equal(t, http.StatusOK, status)
	var v view
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	require.Equal(t, "backup", v.Shares[0].Name)

	// The pages are the same with and without the token. No answer sets a cookie: browsers would
	// send it to all ports of this host.
	for _, path := range []string{"/", "/login", "/api/status", "/metrics"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+path, nil)
		require.NoError(t, err)
		token(r)
		w, err := plain.Do(r)
		require.NoError(t, err)
		w.Body.Close()
		require.Equal(t, http.StatusOK, w.StatusCode, path)
		require.Empty(t, w.Header.Values("Set-Cookie"), path)
	}

	// A page of another origin changes nothing, not even with the token.
	for name, change := range map[string]func(*http.Request){
		"other site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"other origin": func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
		"same host":    func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") },
	} {
		status, _ = do(t, plain, http.MethodPost, s.base+"/api/transfers/x/cancel", func(r *http.Request) { token(r); change(r) })
		require.Equal(t, http.StatusForbidden, status, name)
	}
	status, _ = do(t, plain, http.MethodPost, s.base+"/api/transfers/x/cancel", func(r *http.Request) { token(r); r.Header.Set("Sec-Fetch-Site", "same-origin") })
	require.Equal(t, http.StatusNotFound, status)
	status, _ = do(t, plain, http.MethodGet, s.base+"/api/transfers/x/cancel", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)

	// A client whose certificate has a URI is revoked by that URI.
	status, _ = do(t, plain, http.MethodPost, s.base+"/api/clients/"+url.QueryEscape("uri:spiffe://example.org/nas")+"/revoke", func(r *http.Request) { token(r); r.Header.Set("Sec-Fetch-Site", "same-origin") })
	require.Equal(t, http.StatusNoContent, status)
	clients, err := s.Clients()
	require.NoError(t, err)
	require.Equal(t, []fxfer.ClientStatus{{Key: "uri:spiffe://example.org/nas", Revoked: true}}, clients)

	// A DNS name that somebody else points at this address is rejected.
	for _, host := range []string{"evil.example", "evil.example:" + base.Port(), "127.0.0.1.evil.example"} {
		for _, path := range []string{"/", "/login", "/assets/app.js", "/api/status", "/metrics", "/readyz", "/healthz"} {
			status, text = do(t, plain, http.MethodGet, s.base+path, func(r *http.Request) { token(r); r.Host = host })
			require.Equal(t, http.StatusMisdirectedRequest, status, "%s%s", host, path)
			require.NotContains(t, text, "backup", "%s%s", host, path)
			require.Contains(t, text, "--name")
		}
	}
	status, text = do(t, plain, http.MethodGet, s.base+"/metrics", func(r *http.Request) { r.Host = "localhost" })
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `share="backup"`)
	own, err := os.Hostname()
	require.NoError(t, err)
	for _, host := range []string{"localhost:1", "LOCALHOST", "[::1]:5", "[::1]", "10.1.2.3", strings.ToUpper(own) + ":80"} {
		require.True(t, s.pages.guard.isOurs(host), host)
	}
}

// The token survives restarts, and only its owner can read it.
func TestToken(t *testing.T) {
	home := t.TempDir()
	one, err := newGuard(home, nil)
	require.NoError(t, err)
	two, err := newGuard(home, nil)
	require.NoError(t, err)
	require.Equal(t, one.token, two.token)
	url, err := URL(home, "127.0.0.1:7434")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:7434/#token="+one.token, url)
	path := filepath.Join(home, tokenFile)
	info, err := os.Stat(path)
	require.NoError(t, err)
	if os.PathSeparator == '/' {
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, os.Chmod(path, 0o644))
		_, err = newGuard(home, nil)
		require.ErrorContains(t, err, "others may read")
		require.NoError(t, os.Chmod(path, 0o600))
	}
	require.NoError(t, os.WriteFile(path, []byte("\n"), 0o600))
	_, err = newGuard(home, nil)
	require.ErrorContains(t, err, "too short")
	require.NoError(t, os.Remove(path))
	three, err := newGuard(home, nil)
	require.NoError(t, err)
	require.NotEqual(t, one.token, three.token)
}

// No page loads anything from another site.
func TestAssets(t *testing.T) {
	s := start(t, fxfer.Options{})
	entries, err := assets.ReadDir("assets")
	require.NoError(t, err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".LICENSE" || filepath.Ext(e.Name()) == ".html" {
			continue
		}
		r, err := http.Get(s.base + "/assets/" + e.Name())
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.StatusCode, e.Name())
		require.NotEmpty(t, text)
		require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
		status, _ := do(t, http.DefaultClient, http.MethodGet, s.base+"/assets/"+e.Name(), func(q *http.Request) { q.Header.Set("If-None-Match", r.Header.Get("ETag")) })
		require.Equal(t, http.StatusNotModified, status)
	}
	for _, name := range []string{"index.html", "uplot.LICENSE", "nothing.js", "..%2fweb.go"} {
		status, _ := get(t, s.base+"/assets/"+name)
		require.Equal(t, http.StatusNotFound, status, name)
	}
}
