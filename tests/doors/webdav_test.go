package doors

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// dav is a site with the door for WebDAV.
type dav struct {
	*site
	addr   string
	client *http.Client
}

func beginDAV(t *testing.T, change ...func(*fxfer.ServerOptions)) *dav {
	t.Helper()
	return begin(t, append(change, func(o *fxfer.ServerOptions) { o.Doors.WebDAV.Addr = "127.0.0.1:0" })...).dav(t)
}

// dav returns the door for WebDAV of a site that has one.
func (s *site) dav(t *testing.T) *dav {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 30} //nolint:gosec // nobody knows the server's own certificate
	t.Cleanup(transport.CloseIdleConnections)
	for _, d := range s.Doors() {
		if d.Name == "webdav" {
			require.NotEmpty(t, d.Fingerprint)
			return &dav{s, d.Addr, &http.Client{Transport: transport, Timeout: patience}}
		}
	}
	t.Fatal("no door for WebDAV")
	return nil
}

// url returns the URL of a path, with TLS.
func (d *dav) url(p string) string {
	return (&url.URL{Scheme: "https", Host: d.addr, Path: p}).String()
}

// as sends a request with the password of a user. headers are names and values.
func (d *dav) as(t *testing.T, user, method, at, body string, headers ...string) (status int, answer string, h http.Header) {
	t.Helper()
	status, answer, h, err := d.send(t, user, password, method, at, body, headers...)
	require.NoError(t, err)
	return status, answer, h
}

func (d *dav) send(t *testing.T, user, with, method, at, body string, headers ...string) (int, string, http.Header, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
	require.NoError(t, err)
	r.SetBasicAuth(user, with)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := d.client.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), a.Header, err
}

// anna is as for anna, for the status alone.
func (d *dav) anna(t *testing.T, method, p, body string, headers ...string) int {
	t.Helper()
	status, text, _ := d.as(t, "anna", method, d.url(p), body, headers...)
	t.Logf("%s %s %q: %d %.200s", method, p, headers, status, text)
	return status
}

// annaLogsIn is the header with anna's password.
const annaLogsIn = "Authorization: Basic YW5uYTpjb3JyZWN0IGhvcnNl\r\n"

const lockBody = `<?xml version="1.0"?><lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype><owner>me</owner></lockinfo>`

var lockToken = regexp.MustCompile(`urn:uuid:[-0-9a-f]+`)

// TestWebDAVMethods says what each method does, with and without TLS.
func TestWebDAVMethods(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	status, _, h := d.as(t, "anna", "OPTIONS", "http://"+d.addr+"/docs/", "")
	require.Equal(t, 200, status)
	require.Equal(t, "1, 2", h.Get("DAV"))
	require.Equal(t, "DAV", h.Get("MS-Author-Via"))

	require.Equal(t, 201, d.anna(t, "MKCOL", "/docs/d", ""))
	require.Equal(t, 405, d.anna(t, "MKCOL", "/docs/d", ""))
	require.Equal(t, 409, d.anna(t, "MKCOL", "/docs/x/y", ""))
	require.Equal(t, 409, d.anna(t, "PUT", "/docs/x/y", "a"))
	status, _, h = d.as(t, "anna", "PUT", d.url("/docs/d/file"), "0123456789")
	require.Equal(t, 201, status)
	tag := h.Get("ETag")
	status, text, h := d.as(t, "anna", "GET", d.url("/docs/d/file"), "", "Range", "bytes=3-5")
	require.Equal(t, 206, status)
	require.Equal(t, "345", text)
	require.Equal(t, tag, h.Get("ETag"))
	require.Equal(t, "sandbox", h.Get("Content-Security-Policy"))
	require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
	require.Equal(t, 304, d.anna(t, "GET", "/docs/d/file", "", "If-None-Match", tag))
	require.Equal(t, 416, d.anna(t, "GET", "/docs/d/file", "", "Range", "bytes=20-"))
	require.Equal(t, 412, d.anna(t, "PUT", "/docs/d/file", "x", "If-Match", `"other"`))
	require.Equal(t, 412, d.anna(t, "PUT", "/docs/d/file", "x", "If-None-Match", "*"))
	for _, method := range []string{"DELETE", "MOVE", "COPY", "PROPPATCH"} {
		require.Equal(t, 412, d.anna(t, method, "/docs/d/file", "", "If-Match", `"other"`, "Destination", d.url("/docs/copy")))
	}
	require.Equal(t, 400, d.anna(t, "PUT", "/docs/d/file", "x", "Content-Range", "bytes 3-3/10"))
	require.Equal(t, 415, d.anna(t, "PUT", "/docs/d/file", "x", "Content-Encoding", "gzip"))
	requireFile(t, []byte("0123456789"), d.share("docs/d/file"))

	status, text, _ = d.as(t, "anna", "PROPFIND", d.url("/docs/d"), "", "Depth", "1")
	require.Equal(t, 207, status)
	require.Contains(t, text, "<D:getcontentlength>10</D:getcontentlength>")
	require.Contains(t, text, "<D:getetag>"+tag+"<")
	require.Equal(t, 403, d.anna(t, "PROPFIND", "/docs", "", "Depth", "infinity"))
	require.Equal(t, 403, d.anna(t, "PROPFIND", "/docs", ""))
	require.Equal(t, 404, d.anna(t, "PROPFIND", "/nothing", "", "Depth", "0"))

	// COPY and MOVE replace only what has a successor.
	to := func(p string) []string { return []string{"Destination", d.url(p)} }
	require.Equal(t, 201, d.anna(t, "COPY", "/docs/d/file", "", to("/docs/copy")...))
	require.Equal(t, 204, d.anna(t, "PUT", "/docs/copy", "new"))
	require.Equal(t, 412, d.anna(t, "COPY", "/docs/d/file", "", append(to("/docs/copy"), "Overwrite", "F")...))
	require.Equal(t, 412, d.anna(t, "MOVE", "/docs/d/file", "", append(to("/docs/copy"), "Overwrite", "F")...))
	require.Equal(t, 404, d.anna(t, "MOVE", "/docs/nothing", "", to("/docs/copy")...))
	require.Equal(t, 404, d.anna(t, "COPY", "/docs/nothing", "", to("/docs/copy")...))
	require.Equal(t, 403, d.anna(t, "COPY", "/docs/d/file", "", to("/docs/d")...))
	require.Equal(t, 403, d.anna(t, "MOVE", "/docs/d", "", to("/docs/d/e")...))
	requireFile(t, []byte("new"), d.share("docs/copy"))
	require.Equal(t, 204, d.anna(t, "COPY", "/docs/d/file", "", to("/docs/copy")...))
	requireFile(t, []byte("0123456789"), d.share("docs/copy"))
	require.Equal(t, 201, d.anna(t, "COPY", "/docs/d", "", to("/scans/d")...))
	requireFile(t, []byte("0123456789"), d.share("scans/d/file"))
	require.Equal(t, 501, d.anna(t, "MOVE", "/docs/d", "", to("/scans/e")...))
	require.Equal(t, 201, d.anna(t, "MOVE", "/docs/d", "", to("/docs/e")...))
	require.Equal(t, 204, d.anna(t, "MOVE", "/docs/e/file", "", to("/docs/copy")...))
	require.Equal(t, 204, d.anna(t, "MOVE", "/docs/copy", "", to("/docs/e")...))
	requireFile(t, []byte("0123456789"), d.share("docs/e"))
	require.Equal(t, 502, d.anna(t, "MOVE", "/docs/e", "", "Destination", "https://elsewhere/docs/x"))
	require.Equal(t, 400, d.anna(t, "MOVE", "/docs/e", ""))
	require.Equal(t, 204, d.anna(t, "DELETE", "/scans/d", ""))
	require.Equal(t, 404, d.anna(t, "DELETE", "/scans/d", ""))
	require.Equal(t, []string{"e"}, names(t, d.share("docs")))
	require.Empty(t, names(t, d.share("scans")))

	// What Windows sets after an upload.
	status, text, _ = d.as(t, "anna", "PROPPATCH", d.url("/docs/e"), `<propertyupdate xmlns="DAV:" xmlns:Z="urn:schemas-microsoft-com:"><set><prop>`+
		`<Z:Win32LastModifiedTime>Sat, 03 Feb 2001 04:05:06 GMT</Z:Win32LastModifiedTime><Z:Win32FileAttributes>00000020</Z:Win32FileAttributes></prop></set></propertyupdate>`)
	require.Equal(t, 207, status)
	require.Contains(t, text, "200 OK")
	info, err := os.Stat(d.share("docs/e"))
	require.NoError(t, err)
	require.True(t, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).Equal(info.ModTime()), "%v", info.ModTime())
	_, text, _ = d.as(t, "anna", "PROPPATCH", d.url("/docs/e"), `<propertyupdate xmlns="DAV:"><set><prop><x xmlns="urn:x">1</x></prop></set></propertyupdate>`)
	require.Contains(t, text, "403 Forbidden")
}

// TestWebDAVLocks locks what is there and what is not.
func TestWebDAVLocks(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	lock := func(user, p string, headers ...string) (status int, token string) {
		t.Helper()
		status, text, _ := d.as(t, user, "LOCK", d.url(p), lockBody, headers...)
		return status, lockToken.FindString(text)
	}
	with := func(token string) []string { return []string{"If", "(<" + token + ">)"} }
	status, token := lock("anna", "/docs/new", "Depth", "0", "Timeout", "Infinite, Second-4100000000")
	require.Equal(t, 201, status)
	require.Empty(t, names(t, d.share("docs")), "nothing shows before it is whole")
	status, text, _ := d.as(t, "anna", "PROPFIND", d.url("/docs/new"), "", "Depth", "0")
	require.Equal(t, 207, status, "who has the lock sees an empty file")
	require.Contains(t, text, "<D:getcontentlength>0<")
	require.Equal(t, 404, d.anna(t, "GET", "/docs/new", ""))
	status, _, _ = d.as(t, "ro", "PROPFIND", d.url("/docs/new"), "", "Depth", "0")
	require.Equal(t, 404, status)
	require.Equal(t, 423, d.anna(t, "PUT", "/docs/new", "x"), "without the token")
	require.Equal(t, 403, d.anna(t, "LOCK", "/docs", lockBody), "nobody locks a whole share")
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/new", "x", with(token)...))
	requireFile(t, []byte("x"), d.share("docs/new"))
	status, _ = lock("anna", "/docs/new")
	require.Equal(t, 423, status)
	require.Equal(t, 423, d.anna(t, "MOVE", "/docs/new", "", "Destination", d.url("/docs/other")))
	status, text, _ = d.as(t, "anna", "LOCK", d.url("/docs/new"), "", append(with(token), "Timeout", "Second-5")...)
	require.Equal(t, 200, status)
	require.Contains(t, text, "Second-5<")
	status, text, _ = d.as(t, "anna", "LOCK", d.url("/docs/new"), "", append(with(token), "Timeout", "Second-4000000")...)
	require.Equal(t, 200, status)
	require.Contains(t, text, "Second-3600<")

	// Others can neither use nor take the lock, and need the right to write.
	status, _, _ = d.as(t, "ro", "UNLOCK", d.url("/docs/new"), "", "Lock-Token", "<"+token+">")
	require.Equal(t, 409, status)
	status, _ = lock("ro", "/docs/free")
	require.Equal(t, 403, status)
	require.Equal(t, 201, d.anna(t, "MOVE", "/docs/new", "", append(with(token), "Destination", d.url("/docs/other"))...))
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/new", "free again"), "the lock is gone with the file")

	require.Equal(t, 201, d.anna(t, "MKCOL", "/docs/d", ""))
	status, token = lock("anna", "/docs/d")
	require.Equal(t, 200, status)
	require.Equal(t, 423, d.anna(t, "PUT", "/docs/d/in", "x"))
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/d/in", "x", with(token)...))
	status, inner := lock("anna", "/docs/d/in")
	require.Equal(t, 423, status, inner)
	require.Equal(t, 412, d.anna(t, "PUT", "/docs/d/in", "x", "If", "(Not <"+token+">)"))
	require.Equal(t, 204, d.anna(t, "UNLOCK", "/docs/d", "", "Lock-Token", "<"+token+">"))
	_, inner = lock("anna", "/docs/d/in")
	require.Equal(t, 423, d.anna(t, "DELETE", "/docs/d", ""))
	require.Equal(t, 204, d.anna(t, "DELETE", "/docs/d", "", "If", "<"+d.url("/docs/d/in")+"> (<"+inner+">)"))

	// Locks without end.
	refused := 0
	for i := range 400 {
		status, _ := lock("anna", fmt.Sprintf("/docs/%d", i))
		if status != 201 {
			require.Equal(t, 507, status)
			refused++
		}
	}
	require.Equal(t, 400-256, refused)
	require.Equal(t, []string{"new", "other"}, names(t, d.share("docs")))
	status, _ = lock("anna", "/docs/huge", "Timeout", "Second-99999999999999999999")
	require.Equal(t, 400, status)
}

// TestWebDAVReplaces says what COPY and MOVE put in place of what. A folder with something in it stays.
func TestWebDAVReplaces(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	for _, p := range []string{"docs/full/in", "docs/from", "docs/empty", "docs/room", "docs/links", "docs/deep", "scans/from"} {
		require.NoError(t, os.MkdirAll(d.share(p), 0o700))
	}
	data := write(t, d.share("docs/file"), 10)
	for _, p := range []string{"docs/full/in/a", "docs/from/b", "scans/from/c"} {
		write(t, d.share(p), 10)
	}
	for link, to := range map[string]string{"docs/link": "full", "docs/links/good": "../file", "docs/links/broken": "nowhere", "docs/deep/up": "../full"} {
		require.NoError(t, os.Symlink(to, d.share(link)))
	}
	all := func() []string { return append(names(t, d.share("docs")), names(t, d.share("scans"))...) }
	before := all()
	for _, c := range []struct {
		method, from, to string
		want             int
	}{
		{"MOVE", "/docs/from", "/docs/full", 412}, {"MOVE", "/docs/file", "/docs/full", 412}, {"MOVE", "/docs/from", "/docs/file", 412},
		{"COPY", "/docs/from", "/docs/full", 412}, {"COPY", "/docs/file", "/docs/full", 412}, {"COPY", "/docs/from", "/docs/file", 412},
		{"MOVE", "/scans/from", "/docs/full", 412}, {"MOVE", "/scans/from", "/docs/empty", 501}, {"MOVE", "/docs/nothing", "/docs/empty", 404},
		{"COPY", "/docs/link/in", "/docs/full/in", 403}, {"COPY", "/docs/link", "/docs/full/new", 403}, {"COPY", "/docs/link", "/docs/full", 403},
	} {
		require.Equal(t, c.want, d.anna(t, c.method, c.from, "", "Destination", d.url(c.to)), "%+v", c)
		require.Equal(t, before, all(), "%+v", c)
	}
	status, _, _ := d.as(t, "ro", "MOVE", d.url("/docs/from"), "", "Destination", d.url("/docs/empty"))
	require.Equal(t, 403, status)
	require.Equal(t, before, all())

	require.Equal(t, 204, d.anna(t, "MOVE", "/docs/from", "", "Destination", d.url("/docs/empty")))
	require.Equal(t, 204, d.anna(t, "COPY", "/docs/empty", "", "Destination", d.url("/docs/room")))
	require.FileExists(t, d.share("docs/empty/b"))
	require.FileExists(t, d.share("docs/room/b"))
	require.NoDirExists(t, d.share("docs/from"))
	require.Equal(t, 201, d.anna(t, "COPY", "/docs/links", "", "Destination", d.url("/docs/copy")))
	require.Equal(t, []string{"good"}, names(t, d.share("docs/copy")))
	requireFile(t, data, d.share("docs/copy/good"))
	require.Equal(t, 403, d.anna(t, "COPY", "/docs/deep", "", "Destination", d.url("/docs/other")))
	require.NoDirExists(t, d.share("docs/other/up"))
}

// TestWebDAVUnfinished: nobody sees a file that still arrives, and a condition holds until it is whole.
func TestWebDAVUnfinished(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	write(t, d.share("docs/old"), 10)
	_, _, h := d.as(t, "anna", "GET", d.url("/docs/old"), "")
	for _, c := range []struct {
		p, header, value string
		shows            int
	}{{"/docs/new", "If-None-Match", "*", 404}, {"/docs/old", "If-Match", h.Get("ETag"), 207}} {
		have := len(names(t, d.share("docs")))
		body, client := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, d.url(c.p), body)
		require.NoError(t, err)
		r.SetBasicAuth("anna", password)
		r.Header.Set(c.header, c.value)
		done := make(chan int, 1)
		go func() {
			a, err := d.client.Do(r)
			if err != nil {
				done <- 0
				return
			}
			a.Body.Close()
			done <- a.StatusCode
		}()
		_, err = client.Write([]byte("half"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(names(t, d.share("docs"))) > have }, patience, 10*time.Millisecond, "it has begun")
		status, text, _ := d.as(t, "anna", "PROPFIND", d.url(c.p), "", "Depth", "0")
		require.Equal(t, c.shows, status)
		require.Equal(t, status == 207, strings.Contains(text, "<D:getcontentlength>10<"))
		require.NoError(t, os.WriteFile(d.share(c.p), []byte("theirs"), 0o600))
		_, err = client.Write([]byte("rest"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.Equal(t, 412, <-done, c.p)
		requireFile(t, []byte("theirs"), d.share(c.p))
	}
}

// TestWebDAVLists: a list of shares costs no session, and one that was cut off does not look whole.
func TestWebDAVLists(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	status, text, _ := d.as(t, "anna", "PROPFIND", d.url("/"), "", "Depth", "1")
	require.Equal(t, 207, status)
	require.Contains(t, text, ">/docs/<")
	require.Contains(t, text, ">/scans/<")
	require.Zero(t, d.Status().Sessions)

	const files = 15_000 // whose list has 14 MB, more than the connection keeps
	for i := range files {
		require.NoError(t, os.WriteFile(d.share("scans", fmt.Sprintf("%0200d", i)), nil, 0o600))
	}
	conn, err := net.Dial("tcp", d.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(16<<10))
	_, err = fmt.Fprintf(conn, "PROPFIND /scans HTTP/1.1\r\nHost: x\r\nDepth: 1\r\n"+annaLogsIn+"\r\n")
	require.NoError(t, err)
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer a.Body.Close()
	require.Equal(t, 207, a.StatusCode)
	require.NoError(t, d.Revoke("user:anna"))
	require.Eventually(t, func() bool { return d.anna(t, "PROPFIND", "/scans", "", "Depth", "0") == 403 }, patience, 50*time.Millisecond)
	got, err := io.ReadAll(a.Body)
	require.Less(t, strings.Count(string(got), "<D:response>"), files, "the client was slow")
	require.Error(t, err)
}

// TestWebDAVLostRight: who may not write any more can't keep a lock.
func TestWebDAVLostRight(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	status, text, _ := d.as(t, "anna", "LOCK", d.url("/docs/new"), lockBody)
	require.Equal(t, 201, status)
	refresh := func() int {
		return d.anna(t, "LOCK", "/docs/new", "", "If", "(<"+lockToken.FindString(text)+">)")
	}
	require.Equal(t, 200, refresh())
	store, err := identity.OpenStore(d.share("home"))
	require.NoError(t, err)
	grants, err := identity.ParseGrants("docs=ro")
	require.NoError(t, err)
	id, err := identity.ParseUser("anna")
	require.NoError(t, err)
	require.NoError(t, store.Admit(id, grants, ""))
	require.Eventually(t, func() bool { return refresh() >= 400 }, patience, 50*time.Millisecond)
}

// TestWebDAVClients uses curl, rclone, cadaver and davfs2.
func TestWebDAVClients(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	local := t.TempDir()
	data := write(t, filepath.Join(local, "data"), 5<<20+3)
	d.many(t, "scans/many")
	t.Run("curl", func(t *testing.T) {
		need(t, "curl")
		curl := func(args ...string) string {
			t.Helper()
			return must(t, "", "curl", append([]string{"-sS", "--fail", "--insecure", "-u", "anna:" + password}, args...)...)
		}
		curl("-X", "MKCOL", d.url("/docs/curl"))
		for i, name := range oddNames {
			curl("-T", filepath.Join(local, "data"), d.url("/docs/curl/"+name))
			back := filepath.Join(local, fmt.Sprint("curl", i))
			curl("-o", back, d.url("/docs/curl/"+name))
			requireFile(t, data, back)
			requireFile(t, data, d.share("docs/curl", name))
		}
		curl("-H", "Transfer-Encoding: chunked", "-T", filepath.Join(local, "data"), d.url("/docs/curl/chunked"))
		requireFile(t, data, d.share("docs/curl/chunked"))
		half := filepath.Join(local, "half")
		require.NoError(t, os.WriteFile(half, data[:1<<20], 0o600))
		curl("-C", "-", "-o", half, d.url("/docs/curl/chunked"))
		requireFile(t, data, half)
		out, err := run(t, "", "curl", "-sS", "--fail", "--insecure", "-u", "anna:"+password, "-C", "1000", "-T", filepath.Join(local, "data"), d.url("/docs/curl/chunked"))
		require.Error(t, err, "the rest of a file is no file: %s", out)
		requireFile(t, data, d.share("docs/curl/chunked"))
		curl("-X", "MOVE", "-H", "Destination: "+d.url("/docs/curl/moved"), d.url("/docs/curl/chunked"))
		requireFile(t, data, d.share("docs/curl/moved"))
		login := []string{"-sS", "--fail", "--insecure", "-u", "anna:" + password}
		requireMany(t, quietly(t, "", "curl", append(login, "-X", "PROPFIND", "-H", "Depth: 1", d.url("/scans/many/"))...))
		d.crowd(t, func(from, name, back string) (string, string, []string) {
			return "", "curl", twice(login, from, d.url("/docs/"+name), back)
		})
	})
	t.Run("rclone", func(t *testing.T) {
		remote := ":webdav,vendor=other,user=anna,pass=" + obscured(t) + ",url='" + d.url("") + "':docs/r"
		rclone := mirror(t, remote, d.share("docs/r"), oddNames[:5]...) // it has other names for those with control characters
		rclone("moveto", remote+"/in/file 4", remote+"/in/moved")
		rclone("copyto", remote+"/in/moved", remote+"/in/file 4")
		rclone("purge", remote+"/in")
		require.NoDirExists(t, d.share("docs/r/in"))
		requireMany(t, rclone("lsf", strings.Replace(remote, ":docs/r", ":scans/many", 1)))
	})
	t.Run("cadaver", func(t *testing.T) {
		need(t, "cadaver")
		home := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(home, ".netrc"), []byte("machine 127.0.0.1 login anna password \""+password+"\"\n"), 0o600))
		script := filepath.Join(home, "rc")
		require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, `lcd %s
mkcol cadaver
cd cadaver
put data one
copy one two
move two three
lock one
put data one
unlock one
ls
get three back
delete three
propget one
ls ../../scans/many
quit
`, local), 0o600))
		out, err := runIn(t, home, "cadaver", "-r", script, "http://"+d.addr+"/docs/")
		require.NoError(t, err)
		require.NotContains(t, out, "failed")
		requireMany(t, out)
		requireFile(t, data, filepath.Join(local, "back"))
		require.Equal(t, []string{"one"}, names(t, d.share("docs/cadaver")))
		requireFile(t, data, d.share("docs/cadaver/one"))

		var odd strings.Builder
		for i, name := range oddNames {
			fmt.Fprintf(&odd, "put data %s\nget %[1]s odd%[2]d\n", quoted(name), i)
		}
		require.NoError(t, os.WriteFile(script, []byte("lcd "+local+"\ncd cadaver\n"+odd.String()+"quit\n"), 0o600))
		out, err = runIn(t, home, "cadaver", "-r", script, "http://"+d.addr+"/docs/")
		require.NoError(t, err)
		require.NotContains(t, out, "failed")
		for i, name := range oddNames {
			requireFile(t, data, d.share("docs/cadaver", name))
			requireFile(t, data, filepath.Join(local, fmt.Sprint("odd", i)))
		}
		d.crowd(t, func(from, name, back string) (string, string, []string) {
			rc := filepath.Join(home, name)
			require.NoError(t, os.WriteFile(rc, fmt.Appendf(nil, "put %s %q\nget %[2]q %[3]q\nquit\n", from, name, back), 0o600))
			return "", "sh", []string{"-c", `HOME=$0 exec cadaver -r "$1" "$2"`, home, rc, "http://" + d.addr + "/docs/"}
		})
	})
	t.Run("davfs2", func(t *testing.T) {
		need(t, "mount.davfs", "umount")
		if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Getuid() != 0 {
			t.Skip("needs root and /dev/fuse")
		} else {
			f.Close()
		}
		home, at := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(home, "secrets"), fmt.Appendf(nil, "http://%s/docs anna \"%s\"\n", d.addr, password), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(home, "cache"), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(home, "cache"), 0o777)) // it becomes another user
		require.NoError(t, os.Chmod(filepath.Dir(home), 0o755))
		conf := filepath.Join(home, "conf")
		require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "secrets %s/secrets\ncache_dir %[1]s/cache\ndelay_upload 0\n", home), 0o600))
		d.many(t, "docs/many") // before davfs2 remembers the top folder
		out, err := runIn(t, home, "mount.davfs", "-o", "conf="+conf, "http://"+d.addr+"/docs", at)
		if err != nil {
			t.Skipf("no mount here: %s", out)
		}
		mounted := true
		unmount := func() { // it waits for uploads
			if mounted {
				out, err := exec.Command("umount", at).CombinedOutput()
				require.NoError(t, err, "%s", out)
				mounted = false
			}
		}
		t.Cleanup(unmount)
		require.NoError(t, os.Mkdir(filepath.Join(at, "davfs"), 0o700))
		list, err := os.ReadDir(filepath.Join(at, "many"))
		require.NoError(t, err)
		require.Len(t, list, 10_000)
		odd := map[string][]byte{}
		for _, name := range oddNames[:len(oddNames)-1] { // it has no room for the longest one
			odd[name] = write(t, filepath.Join(at, "davfs", name), 10)
		}
		data := write(t, filepath.Join(at, "davfs", "file"), 1<<20)
		require.NoError(t, os.Rename(filepath.Join(at, "davfs", "file"), filepath.Join(at, "davfs", "moved")))
		requireFile(t, data, filepath.Join(at, "davfs", "moved"))
		require.NoError(t, os.Mkdir(filepath.Join(at, "full"), 0o700))
		require.NoError(t, os.Mkdir(filepath.Join(at, "empty"), 0o700))
		in := write(t, filepath.Join(at, "full", "in"), 10)
		arrives(t, in, d.share("docs/full/in"))
		out, err = run(t, "", "mv", "-T", filepath.Join(at, "empty"), filepath.Join(at, "full"))
		require.Error(t, err, "davfs2 leaves it to the server: %s", out)
		requireFile(t, in, d.share("docs/full/in"))
		unmount()
		requireFile(t, data, d.share("docs/davfs/moved"))
		require.Len(t, names(t, d.share("docs/davfs")), 1+len(odd))
		for name, want := range odd {
			requireFile(t, want, d.share("docs/davfs", name))
		}
	})
}

// runIn is run in a home folder.
func runIn(t *testing.T, home, program string, args ...string) (string, error) {
	t.Helper()
	out, err := outputIn(t, home, "", program, args...)
	t.Logf("%s %q: %v\n%s", program, args, err, out)
	return out, err
}

// TestWebDAVCrowd has 20 clients at once, and a folder of 10,000 names.
func TestWebDAVCrowd(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	d.many(t, "scans/many")
	require.NoError(t, os.Symlink("nowhere", d.share("scans/many/broken")))
	require.NoError(t, os.Symlink("loop", d.share("scans/many/loop")))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			data := strings.Repeat(fmt.Sprint(i), 1<<18)
			for n := range 5 {
				p := d.url(fmt.Sprintf("/docs/%d-%d", i, n))
				status, text, _, err := d.send(t, "anna", password, "PUT", p, data)
				if err != nil || status != 201 {
					t.Errorf("PUT: %d %s %v", status, text, err)
				}
				if status, text, _, err = d.send(t, "anna", password, "GET", p, ""); err != nil || status != 200 || text != data {
					t.Errorf("GET: %d, %d bytes, %v", status, len(text), err)
				}
			}
			if i%5 == 0 {
				status, text, _, err := d.send(t, "anna", password, "PROPFIND", d.url("/scans/many"), "", "Depth", "1")
				if n := strings.Count(text, "<D:response>"); err != nil || status != 207 || n < 10_001 || !strings.HasSuffix(text, "multistatus>") {
					t.Errorf("PROPFIND: %d, %d names, %v", status, n, err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, names(t, d.share("docs")), 100)
	require.LessOrEqual(t, d.Status().Sessions, 2, "one for each share")
	require.EqualValues(t, 2, d.Status().Counters.Begun["webdav"])
}

// TestAbortedWebDAV cuts connections at random bytes of an upload.
func TestAbortedWebDAV(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	random := seeded(t)
	old := write(t, d.share("docs/there"), 1000)
	data := make([]byte, 1<<20)
	for i := range *cuts {
		conn, err := net.Dial("tcp", d.addr)
		require.NoError(t, err)
		name := []string{"/docs/there", "/docs/new"}[i%2]
		how := i / 2 % 3
		head := "PUT " + name + " HTTP/1.1\r\nHost: x\r\n" + annaLogsIn
		w := bufio.NewWriter(conn)
		part := data[:random.IntN(len(data))]
		switch how {
		case 0: // a length
			fmt.Fprintf(w, "%sContent-Length: %d\r\n\r\n%s", head, len(data), part)
		case 1: // chunks, the last of which is cut
			fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", head, len(data), part)
		case 2: // whole chunks, without the end
			fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", head, len(part), part)
		}
		require.NoError(t, w.Flush())
		if random.IntN(2) == 0 { // and waits for the answer
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				require.GreaterOrEqual(t, answer.StatusCode, 400)
				answer.Body.Close()
			}
		}
		require.NoError(t, conn.Close())
		_, err = os.Lstat(d.share("docs/new"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		requireFile(t, old, d.share("docs/there"))
	}
	// The end of the last connections may not have been seen yet: who tries again at once is served.
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/new", string(data)))
	requireFile(t, data, d.share("docs/new"))
	require.Eventually(t, func() bool { return len(names(t, d.share("docs"))) == 2 }, patience, 10*time.Millisecond, "partial files stay")
	require.Equal(t, 411, rawStatus(t, d.addr, "PUT /docs/there HTTP/1.1\r\nHost: x\r\n"+annaLogsIn+"\r\n"))
	requireFile(t, old, d.share("docs/there"))
}

// rawStatus sends a request as it is, and returns the status of the answer, 0 for none.
func rawStatus(t *testing.T, addr, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, request)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestWebDAVAudit leaves at the head of a download: the audit log says so.
func TestWebDAVAudit(t *testing.T) {
	t.Parallel()
	var log auditLog
	d := beginDAV(t, log.keep)
	write(t, d.share("docs/file"), 10)
	require.NoError(t, os.Truncate(d.share("docs/file"), 64<<20)) // more than sockets hold
	conn, err := net.Dial("tcp", d.addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /docs/file HTTP/1.1\r\nHost: x\r\n"+annaLogsIn+"\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1)) // the file is open
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	log.gets(t, `path=file error=.* bytes=\d+ outcome=failed`)
}

// TestHostileWebDAV tries to leave the shares, and to see and do what the rights forbid.
func TestHostileWebDAV(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	secret := write(t, d.share("secret"), 10)
	write(t, d.share("docs/file"), 10)
	write(t, d.share("scans/old"), 10)
	require.NoError(t, os.MkdirAll(d.share("scans/in/deep"), 0o700))
	write(t, d.share("scans/in/deep/other"), 10)
	require.NoError(t, os.Symlink("../secret", d.share("docs/up")))
	require.NoError(t, os.Symlink(d.dir, d.share("docs/folder")))
	require.NoError(t, os.Symlink("file", d.share("docs/good")))
	raw := func(method, target, headers string) int {
		t.Helper()
		return rawStatus(t, d.addr, method+" "+target+" HTTP/1.1\r\nHost: "+d.addr+"\r\n"+annaLogsIn+headers+"\r\n")
	}
	for _, p := range []string{
		"/docs/../secret", "/docs/%2e%2e/secret", "/docs/..%2fsecret", "/docs/%2E%2E%2Fsecret", "/../secret", "/secret", "/etc/passwd",
		"/docs/./file", "/docs%2ffile", "/docs/x%00y", "/docs/folder/secret", "/docs/.fxfer-x.part", "/home/key.pem", "/docs//../../secret",
		"http://other/docs/../secret", "/docs/%ff", "/docs/" + strings.Repeat("a/", 3000), "/docs/" + strings.Repeat("n", 300),
	} {
		for _, method := range []string{"GET", "PROPFIND", "DELETE", "MKCOL", "PUT", "LOCK"} {
			if strings.HasSuffix(p, "%ff") && method != "GET" { // a name that is no text is still a name
				continue
			}
			status := raw(method, p, "Depth: 0\r\nContent-Length: 0\r\n")
			require.True(t, status == 0 || status >= 400, "%s %.50s: %d", method, p, status)
		}
		if strings.HasPrefix(p, "/") && !strings.HasSuffix(p, "%ff") {
			status := raw("COPY", "/docs/file", "Destination: "+p+"\r\n")
			require.True(t, status >= 400, "COPY to %.50s: %d", p, status)
		}
	}
	require.Equal(t, 200, d.anna(t, "GET", "/docs/good", ""))
	require.Equal(t, 404, d.anna(t, "GET", "/docs/up", ""))
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/up", "x"), "a file takes the place of the link")
	requireFile(t, secret, d.share("secret"))
	for _, p := range []string{"/", "/docs", "/docs/"} {
		require.Equal(t, 403, d.anna(t, "DELETE", p, ""), p)
		require.Equal(t, 403, d.anna(t, "MOVE", p, "", "Destination", d.url("/scans/x")), p)
	}
	require.Equal(t, 403, d.anna(t, "PUT", "/docs/", "x"))
	require.Equal(t, 405, d.anna(t, "TRACE", "/docs", ""))
	require.Equal(t, 405, d.anna(t, "POST", "/docs/file", "x"))

	// Bodies without end, deep and with entities.
	require.Equal(t, 413, d.anna(t, "PROPFIND", "/docs", strings.Repeat("<a>", 10_000), "Depth", "0"))
	bomb := `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><propfind xmlns="DAV:"><prop>&b;</prop></propfind>`
	require.Equal(t, 400, d.anna(t, "PROPFIND", "/docs", bomb, "Depth", "0"))
	require.Equal(t, 400, d.anna(t, "LOCK", "/docs/file", strings.Repeat("<a>", 1000)))
	require.Equal(t, 413, d.anna(t, "PROPPATCH", "/docs/file", strings.Repeat("<a>", 1400)))
	status, _, _ := d.as(t, "ro", "PROPPATCH", d.url("/docs/file"), "<a>")
	require.Equal(t, 403, status, "refused before it is read")
	require.Equal(t, 413, raw("PROPFIND", "/docs", "Depth: 0\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n"+strings.Repeat("<a>", 0x5555)+"\r\n0\r\n"))
	require.Equal(t, 431, raw("GET", "/docs/file", "X: "+strings.Repeat("x", 1<<16)+"\r\n"))

	for method, want := range map[string]int{"PUT": 403, "DELETE": 403, "MKCOL": 403, "LOCK": 403, "PROPPATCH": 403} {
		status, text, _ := d.as(t, "ro", method, d.url("/docs/file"), map[string]string{
			"LOCK":      lockBody,
			"PROPPATCH": `<propertyupdate xmlns="DAV:"><set><prop><x xmlns="urn:schemas-microsoft-com:">1</x></prop></set></propertyupdate>`,
		}[method])
		require.Equal(t, want, status, "%s: %s", method, text)
	}
	status, _, _ = d.as(t, "ro", "GET", d.url("/scans/old"), "")
	require.Equal(t, 404, status)

	// Who may only write sees folders and what it has just brought.
	scanner := func(method, p, body string, headers ...string) (int, string) {
		t.Helper()
		status, text, _ := d.as(t, "scanner", method, d.url(p), body, headers...)
		return status, text
	}
	for _, c := range []struct {
		method, p, body string
		want            int
	}{
		{"GET", "/scans/old", "", 404}, {"PROPFIND", "/scans/old", "", 404}, {"DELETE", "/scans/old", "", 404},
		{"DELETE", "/scans/in", "", 409}, {"PUT", "/scans/in/new", "mine", 201}, {"GET", "/scans/in/new", "", 403},
		{"PROPFIND", "/scans/in/new", "", 207}, {"COPY", "/scans/in/new", "", 403},
	} {
		status, text := scanner(c.method, c.p, c.body, "Depth", "0", "Destination", d.url("/scans/in/copy"))
		require.Equal(t, c.want, status, "%s %s: %s", c.method, c.p, text)
	}
	_, text := scanner("PROPFIND", "/scans/", "", "Depth", "1")
	require.NotContains(t, text, "old")
	_, text = scanner("PROPFIND", "/scans/in/", "", "Depth", "1")
	require.Equal(t, 2, strings.Count(text, "<D:response>"), text)
	require.FileExists(t, d.share("scans/in/deep/other"))
	for _, name := range names(t, d.dir) {
		require.NotContains(t, name, ".fxfer-", "partial files stay")
	}
}

// TestWebDAVLogins tries wrong passwords, hangs before the login, and revokes a user.
func TestWebDAVLogins(t *testing.T) {
	t.Parallel()
	d := beginDAV(t)
	store, err := identity.OpenStore(d.share("home"))
	require.NoError(t, err)
	require.NoError(t, store.SetPassword("idle", password))
	a, err := http.Get("http://" + d.addr + "/docs/")
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, 401, a.StatusCode)
	require.Contains(t, a.Header.Get("WWW-Authenticate"), "Basic ")
	status, _, _ := d.as(t, "idle", "GET", d.url("/docs/"), "")
	require.Equal(t, 403, status, "no rights")

	require.Equal(t, 201, d.anna(t, "PUT", "/docs/file", "x"))
	slow := &dav{d.site, d.addr, &http.Client{Transport: d.client.Transport, Timeout: 2 * time.Second}}
	began, wrong := time.Now(), 0
	for i := range 8 { // the sixth waits for ten seconds
		status, _, _, err := slow.send(t, "anna", fmt.Sprint("wrong ", i), "GET", d.url("/docs/file"), "")
		if err != nil {
			break
		}
		require.Equal(t, 401, status)
		wrong++
	}
	require.LessOrEqual(t, wrong, 5+int(time.Since(began)/(10*time.Second)), "a host that stood still lets one more pass in ten seconds")
	require.GreaterOrEqual(t, d.Status().Counters.Refused["login"], int64(wrong))
	require.Equal(t, 200, d.anna(t, "GET", "/docs/file", ""), "who has logged in goes on")

	require.NoError(t, d.Revoke("user:anna"))
	require.Eventually(t, func() bool {
		status, _, _, err := slow.send(t, "anna", password, "PUT", d.url("/docs/file"), "revoked")
		return err != nil || status == 403
	}, patience, 50*time.Millisecond)
	requireFile(t, []byte("x"), d.share("docs/file"))
	require.Eventually(t, func() bool { return d.Status().Sessions == 0 }, patience, 50*time.Millisecond)
}

// TestWebDAVLimits keeps a user to quota and rate.
func TestWebDAVLimits(t *testing.T) {
	t.Parallel()
	d := beginDAV(t, func(o *fxfer.ServerOptions) {
		o.Shares[1].Quota, o.Shares[1].QuotaFiles = 1<<20, 3
		o.Clients = []fxfer.Admission{{User: "anna", Name: "a", RateLimit: 80e6}}
	})
	require.Equal(t, 507, d.anna(t, "PUT", "/scans/large", string(make([]byte, 2<<20))))
	require.Empty(t, names(t, d.share("scans")))
	for i := range 3 {
		require.Equal(t, 201, d.anna(t, "MKCOL", fmt.Sprintf("/scans/%d", i), ""))
	}
	require.Equal(t, 507, d.anna(t, "MKCOL", "/scans/3", ""))
	require.Equal(t, 204, d.anna(t, "DELETE", "/scans/0", ""))
	require.Equal(t, 201, d.anna(t, "MKCOL", "/scans/3", ""))
	began := time.Now()
	require.Equal(t, 201, d.anna(t, "PUT", "/docs/paced", string(make([]byte, 8<<20))))
	require.Greater(t, time.Since(began), 600*time.Millisecond, "8 MiB at 10 MB/s")
	for _, x := range d.Status().Counters.Traffic {
		if x.Receive && x.Share == "docs" {
			require.EqualValues(t, 8<<20, x.Bytes)
		}
	}
	// A client that leaves in the middle of an answer leaves nothing open.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url("/docs/paced"), nil)
	require.NoError(t, err)
	r.SetBasicAuth("anna", password)
	a, err := d.client.Do(r)
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, a.Body, 1000)
	require.NoError(t, err)
	a.Body.Close()
	require.Equal(t, 204, d.anna(t, "DELETE", "/docs/paced", ""))
}
