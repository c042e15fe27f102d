package doors

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// beginFTP runs a server whose clients may use FTP with TLS, and without it if clear is set.
func beginFTP(t *testing.T, clear bool, change ...func(*fxfer.ServerOptions)) *site {
	return begin(t, append(change, func(o *fxfer.ServerOptions) {
		o.Doors.FTP = fxfer.FTPDoor{Addr: "127.0.0.1:0", ImplicitTLS: "127.0.0.1:0", Active: true}
		if clear {
			o.Doors.FTP.Clear = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}
	})...)
}

// ftp returns the address of the door, with implicit TLS if it is "ftps".
func (s *site) ftp(name string) string {
	for _, d := range s.Doors() {
		if d.Name == name {
			return d.Addr
		}
	}
	return ""
}

// TestFTPClients uses curl, lftp, tnftp, Python and rclone.
func TestFTPClients(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, true)
	local := t.TempDir()
	data := write(t, filepath.Join(local, "data"), 3<<20+3)
	host, port, err := net.SplitHostPort(s.ftp("ftp"))
	require.NoError(t, err)
	s.many(t, "scans/many")
	t.Run("curl", func(t *testing.T) {
		t.Parallel()
		need(t, "curl")
		for name, args := range map[string][]string{
			"clear": {}, "explicit": {"--ssl-reqd", "--insecure"}, "implicit": {"--insecure"}, "pasv": {"--disable-epsv"},
			"eprt": {"--ftp-port", "-"}, "port": {"--ftp-port", "-", "--disable-eprt"},
		} {
			url := "ftp://" + s.ftp("ftp") + "/docs/curl/" + name
			if name == "implicit" {
				url = "ftps://" + s.ftp("ftps") + "/docs/curl/" + name
			}
			curl := func(more ...string) string {
				t.Helper()
				return must(t, "", "curl", append(append([]string{"-sS", "--ftp-create-dirs", "-u", "anna:" + password}, args...), append(more, url)...)...)
			}
			back := filepath.Join(local, "curl "+name)
			curl("-T", filepath.Join(local, "data"))
			requireFile(t, data, s.share("docs/curl", name))
			require.NoError(t, os.WriteFile(back, data[:1<<20], 0o600))
			curl("-C", "-", "-o", back) // goes on
			requireFile(t, data, back)
			require.Contains(t, curl("-I"), fmt.Sprintf("Content-Length: %d", len(data)))
			require.NoError(t, os.WriteFile(s.share("docs/curl", name), data[:1<<20], 0o600))
			curl("-C", "-", "-T", filepath.Join(local, "data"))
			requireFile(t, data, s.share("docs/curl", name))
		}
		login := []string{"-sS", "--ssl-reqd", "--insecure", "-u", "anna:" + password}
		for _, name := range oddNames {
			if strings.Contains(name, "\t") { // it refuses control characters
				continue
			}
			quietly(t, "", "curl", append(login, "-T", filepath.Join(local, "data"), "ftp://"+s.ftp("ftp")+"/docs/curl/"+escape(name))...)
			requireFile(t, data, s.share("docs/curl", name))
		}
		quietly(t, "", "curl", append(login, "-Q", "RNFR /docs/curl/clear", "-Q", "RNTO /docs/curl/moved", "-o", os.DevNull, "ftp://"+s.ftp("ftp"))...)
		requireFile(t, data, s.share("docs/curl/moved"))
		requireMany(t, quietly(t, "", "curl", append(login, "-l", "ftp://"+s.ftp("ftp")+"/scans/many/")...))
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return "", "curl", twice(login, from, "ftp://"+s.ftp("ftp")+"/docs/"+escape(name), back)
		})
	})
	t.Run("lftp", func(t *testing.T) {
		t.Parallel()
		need(t, "lftp")
		tree, back := filepath.Join(local, "tree"), filepath.Join(local, "back")
		require.NoError(t, os.MkdirAll(filepath.Join(tree, "in", "deep"), 0o700))
		for _, name := range oddNames {
			write(t, filepath.Join(tree, "in", name), 1000)
		}
		for i := range 50 {
			write(t, filepath.Join(tree, "in", "deep", fmt.Sprint(i)), 100*i)
		}
		old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
		require.NoError(t, os.Chtimes(filepath.Join(tree, "in", "a b"), old, old))
		open := fmt.Sprintf(`set ssl:verify-certificate no
set ftp:ssl-force yes
set net:max-retries 2
set cmd:fail-exit yes
open -u anna,"%s" ftp://%s/docs
`, password, s.ftp("ftp"))
		for _, half := range []string{filepath.Join(local, "lftp half"), s.share("docs/half")} {
			require.NoError(t, os.WriteFile(half, data[:1000], 0o600))
		}
		must(t, open+fmt.Sprintf(`mkdir l
put %[1]s/data -o l/one
mv l/one l/two
pget -n 3 l/two -o %[1]s/lftp
get -c l/two -o "%[1]s/lftp half"
put -c %[1]s/data -o half
chmod 640 l/two
mirror -R -P 3 %[1]s/tree l/tree
mirror -P 3 l/tree %[2]s
bye
`, local, back), "lftp", "--norc")
		requireFile(t, data, filepath.Join(local, "lftp half"))
		requireFile(t, data, s.share("docs/half"))
		requireMany(t, quietly(t, open+"cls -1 /scans/many\nbye\n", "lftp", "--norc"))
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return fmt.Sprintf("%sput %s -o %q\nmv %[3]q %[4]q\nget %[4]q -o %[5]q\nbye\n", open, from, "l "+name, name, back), "lftp", []string{"--norc"}
		})
		requireFile(t, data, filepath.Join(local, "lftp"))
		requireFile(t, data, s.share("docs/l/two"))
		info, err := os.Stat(s.share("docs/l/two"))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode())
		require.Equal(t, names(t, tree), names(t, s.share("docs/l/tree")))
		require.Equal(t, names(t, tree), names(t, back))
		info, err = os.Stat(s.share("docs/l/tree/in/a b"))
		require.NoError(t, err)
		require.True(t, old.Equal(info.ModTime()), "%v", info.ModTime())
		for _, name := range oddNames {
			want, err := os.ReadFile(filepath.Join(tree, "in", name))
			require.NoError(t, err)
			requireFile(t, want, s.share("docs/l/tree/in", name))
			requireFile(t, want, filepath.Join(back, "in", name))
		}
	})
	t.Run("tnftp", func(t *testing.T) {
		t.Parallel()
		need(t, "tnftp")
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), data[:1<<20], 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lines"), []byte("one\ntwo\n"), 0o600))
		out := must(t, fmt.Sprintf(`open %s %s
user anna "%s"
binary
cd docs
mkdir t
put %s t/one.bin
put %[4]s t/two.bin
rename t/one.bin t/three.bin
lcd %[5]s
get t/two.bin two.bin
restart 1048576
get t/three.bin half
cd t
mget *o.bin
ls
nlist ../../scans/many names
delete two.bin
cd ..
ascii
put %[4]s t/bytes
put %[5]s/lines t/lines
get t/lines back
bye
`, host, port, password, filepath.Join(local, "data"), dir), "tnftp", "-n", "-i")
		require.Contains(t, out, "three.bin")
		requireFile(t, data, s.share("docs/t/three.bin"))
		requireFile(t, data, s.share("docs/t/bytes")) // converted there and back
		requireFile(t, []byte("one\ntwo\n"), s.share("docs/t/lines"))
		requireFile(t, []byte("one\ntwo\n"), filepath.Join(dir, "back"))
		requireFile(t, data, filepath.Join(dir, "half"))
		requireFile(t, data, filepath.Join(dir, "two.bin"))
		require.NoFileExists(t, s.share("docs/t/two.bin"))
		list, err := os.ReadFile(filepath.Join(dir, "names"))
		require.NoError(t, err)
		requireMany(t, string(list))

		require.NoError(t, os.WriteFile(s.share("docs/t/shorter"), data[:1000], 0o600))
		var odd strings.Builder
		plain := slices.DeleteFunc(slices.Clone(oddNames), func(name string) bool { return strings.Contains(name, `"`) }) // it has no way to write this
		for i, name := range plain {
			fmt.Fprintf(&odd, "put %s %s\nget %[2]s %[3]s/odd%[4]d\n", filepath.Join(local, "data"), quoted("t/"+name), dir, i)
		}
		begin := fmt.Sprintf("open %s %s\nuser anna %q\nbinary\ncd docs\n", host, port, password)
		must(t, begin+odd.String()+"restart 1000\nput "+filepath.Join(local, "data")+" t/shorter\nbye\n", "tnftp", "-n", "-i")
		requireFile(t, data, s.share("docs/t/shorter"))
		for i, name := range plain {
			requireFile(t, data, s.share("docs/t", name))
			requireFile(t, data, filepath.Join(dir, fmt.Sprint("odd", i)))
		}
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return fmt.Sprintf("%sput %s %q\nget %[3]q %[4]q\nbye\n", begin, from, name, back), "tnftp", []string{"-n", "-i"}
		})
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		need(t, "python3")
		script := filepath.Join(t.TempDir(), "script.py")
		require.NoError(t, os.WriteFile(script, []byte(ftplibScript), 0o600))
		must(t, "", "python3", append([]string{script, host, port, password, filepath.Join(local, "data")}, oddNames...)...)
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return "", "python3", []string{"-c", `
import ftplib, sys
ftp = ftplib.FTP()
ftp.connect(sys.argv[1], int(sys.argv[2]), timeout=60)
ftp.login("anna", sys.argv[3])
ftp.storbinary("STOR docs/" + sys.argv[5], open(sys.argv[4], "rb"))
ftp.retrbinary("RETR docs/" + sys.argv[5], open(sys.argv[6], "wb").write)
`, host, port, password, from, name, back}
		})
	})
	t.Run("rclone", func(t *testing.T) {
		t.Parallel()
		remote := ":ftp,host=" + host + ",port=" + port + ",user=anna,explicit_tls=true,no_check_certificate=true,pass=" + obscured(t) + ":docs/r"
		rclone := mirror(t, remote, s.share("docs/r"), oddNames[:5]...) // it has other names for those with control characters
		requireMany(t, rclone("lsf", strings.Replace(remote, ":docs/r", ":scans/many", 1)))
		rclone("moveto", remote+"/in/file 4", remote+"/in/moved")
		require.FileExists(t, s.share("docs/r/in/moved"))
	})
}

// ftplibScript uses Python's ftplib.
const ftplibScript = `
import ftplib, hashlib, io, ssl, sys
host, port, password, data = sys.argv[1], int(sys.argv[2]), sys.argv[3], open(sys.argv[4], "rb").read()
plain = ssl._create_unverified_context()
for ftp in ftplib.FTP(), ftplib.FTP_TLS(context=plain):
    ftp.connect(host, port, timeout=60)
    ftp.login("anna", password)
    if isinstance(ftp, ftplib.FTP_TLS):
        ftp.prot_p()
    for passive in True, False:
        ftp.set_pasv(passive)
        assert ftp.pwd() == "/"
        ftp.cwd("docs")
        assert ftp.mkd('p"q') == '/docs/p"q'
        ftp.cwd('p"q')
        ftp.storbinary("STOR one", io.BytesIO(data))
        assert ftp.size("one") == len(data)
        assert ftp.sendcmd("HASH one").split()[3] == hashlib.sha256(data).hexdigest()
        try:
            ftp.retrbinary("RETR none", None, rest=1000)
            sys.exit("there is no such file")
        except ftplib.error_perm:
            pass
        ftp.storbinary("STOR one", io.BytesIO(data))
        assert ftp.size("one") == len(data) # from its beginning
        got = io.BytesIO()
        ftp.retrbinary("RETR one", got.write, rest=1000)
        assert got.getvalue() == data[1000:]
        ftp.storbinary("STOR one", io.BytesIO(b"new"), rest=5)
        got = io.BytesIO()
        ftp.retrbinary("RETR one", got.write)
        assert got.getvalue() == data[:5] + b"new"
        ftp.storbinary("APPE one", io.BytesIO(b" end"))
        assert ftp.size("one") == 12
        ftp.storlines("STOR text", io.BytesIO(b"one\r\ntwo\r\n"))
        assert ftp.size("text") == 8
        lines = []
        ftp.retrlines("RETR text", lines.append)
        assert lines == ["one", "two"], lines
        assert sorted(ftp.nlst()) == ["one", "text"], ftp.nlst()
        assert ftp.nlst("t*") == ["text"]
        facts = dict(ftp.mlsd())
        assert facts["one"]["type"] == "file" and facts["one"]["size"] == "12", facts
        ftp.sendcmd("MFMT 20010203040506 one")
        assert ftp.sendcmd("MDTM one") == "213 20010203040506"
        for name in sys.argv[5:]:
            ftp.storbinary("STOR " + name, io.BytesIO(data))
            assert name in ftp.nlst() and name in dict(ftp.mlsd()), name
            got = io.BytesIO()
            ftp.retrbinary("RETR " + name, got.write)
            assert got.getvalue() == data
            ftp.delete(name)
        ftp.rename("one", "text")
        ftp.delete("text")
        ftp.cwd("..")
        ftp.rmd('p"q')
        assert ftp.nlst('p"q*') == []
        assert len(ftp.nlst("/scans/many")) == len(list(ftp.mlsd("/scans/many"))) == 10000
        ftp.cwd("/")
    ftp.quit()
`

// ftpClient is a client that does what is asked, also what is wrong.
type ftpClient struct {
	t    *testing.T
	text *textproto.Conn
	conn net.Conn // below TLS
	tls  *tls.Config
}

// dialFTP begins a control connection from an address.
func (s *site) dialFTP(t *testing.T) *ftpClient {
	t.Helper()
	c, err := net.Dial("tcp", s.ftp("ftp"))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	x := &ftpClient{t: t, text: textproto.NewConn(c), conn: c}
	x.expect(220)
	return x
}

// logIn logs in, with TLS if secure is set.
func (x *ftpClient) logIn(user string, secure bool) *ftpClient {
	x.t.Helper()
	if secure {
		x.do(234, "AUTH TLS")
		cache := tls.NewLRUClientSessionCache(1)
		x.tls = &tls.Config{InsecureSkipVerify: true, ServerName: "door", ClientSessionCache: cache} //nolint:gosec // it is this test's
		x.text = textproto.NewConn(tls.Client(x.conn, x.tls))
		x.do(200, "PBSZ 0")
		x.do(200, "PROT P")
	}
	x.do(331, "USER %s", user)
	x.do(230, "PASS %s", password)
	x.do(200, "TYPE I")
	return x
}

func (x *ftpClient) expect(code int) string {
	x.t.Helper()
	got, text, err := x.text.ReadResponse(0)
	require.NoError(x.t, err)
	require.Equal(x.t, code, got, text)
	return text
}

// do sends a command and expects a reply.
func (x *ftpClient) do(code int, format string, args ...any) string {
	x.t.Helper()
	require.NoError(x.t, x.text.PrintfLine(format, args...))
	return x.expect(code)
}

var extendedPort = regexp.MustCompile(`\|\|\|(\d+)\|`)

// passive asks for a passive port and returns its address.
func (x *ftpClient) passive() string {
	x.t.Helper()
	return net.JoinHostPort("127.0.0.1", extendedPort.FindStringSubmatch(x.do(229, "EPSV"))[1])
}

// data opens a data connection for a command. It returns the connection with and without TLS.
func (x *ftpClient) data(format string, args ...any) (io.ReadWriteCloser, *net.TCPConn) {
	x.t.Helper()
	c, err := net.Dial("tcp", x.passive())
	require.NoError(x.t, err)
	x.t.Cleanup(func() { c.Close() })
	require.NoError(x.t, c.SetDeadline(time.Now().Add(patience)))
	x.do(150, format, args...)
	if x.tls == nil {
		return c, c.(*net.TCPConn)
	}
	return tls.Client(c, x.tls), c.(*net.TCPConn)
}

// TestAbortedFTP cuts uploads at random bytes, in all ways that can be told from a good end.
func TestAbortedFTP(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, true)
	random := seeded(t)
	old := write(t, s.share("docs/there"), 1000)
	data := make([]byte, 1<<20)
	ways := []struct {
		name   string
		secure bool
		cut    func(x *ftpClient, c io.ReadWriteCloser, raw *net.TCPConn)
	}{
		{"TLS without its end", true, func(x *ftpClient, _ io.ReadWriteCloser, raw *net.TCPConn) {
			require.NoError(t, raw.Close())
			x.expect(426)
		}},
		{"half a record", true, func(x *ftpClient, _ io.ReadWriteCloser, raw *net.TCPConn) {
			_, err := raw.Write([]byte{23, 3, 3, 1, 0, 5})
			require.NoError(t, err)
			require.NoError(t, raw.Close())
			x.expect(426)
		}},
		{"reset", false, func(x *ftpClient, _ io.ReadWriteCloser, raw *net.TCPConn) {
			require.NoError(t, raw.SetLinger(0))
			require.NoError(t, raw.Close())
			x.expect(426)
		}},
		{"ABOR", false, func(x *ftpClient, _ io.ReadWriteCloser, _ *net.TCPConn) {
			x.do(426, "\xff\xf4\xff\xf2ABOR")
			x.expect(226)
		}},
		{"ABOR with TLS", true, func(x *ftpClient, _ io.ReadWriteCloser, _ *net.TCPConn) {
			x.do(426, "ABOR")
			x.expect(226)
		}},
		{"the control connection", false, func(x *ftpClient, _ io.ReadWriteCloser, _ *net.TCPConn) {
			require.NoError(t, x.conn.Close())
		}},
		{"fewer bytes than ALLO", false, func(x *ftpClient, c io.ReadWriteCloser, _ *net.TCPConn) {
			require.NoError(t, c.Close())
			x.expect(426)
		}},
	}
	for i := range *cuts {
		how := ways[i%len(ways)]
		x := s.dialFTP(t).logIn("anna", how.secure)
		name := []string{"/docs/there", "/docs/new"}[random.IntN(2)]
		n := random.IntN(len(data))
		x.do(200, "ALLO %d", len(data))
		verb := []string{"STOR", "APPE"}[random.IntN(2)]
		t.Logf("%s: %s %s, %d bytes", how.name, verb, name, n)
		c, raw := x.data("%s %s", verb, name)
		_, err := c.Write(data[:n])
		require.NoError(t, err)
		if verb == "APPE" && how.name == "fewer bytes than ALLO" { // nobody says of what it is the size
			x.do(426, "ABOR")
			x.expect(226)
		} else {
			how.cut(x, c, raw)
		}
		require.NoFileExists(t, s.share("docs/new"), how.name)
		requireFile(t, old, s.share("docs/there"))
		_ = x.conn.Close()
	}
	require.Eventually(t, func() bool { return len(names(t, s.share("docs"))) == 1 }, patience, 10*time.Millisecond, "partial files stay")

	// Nothing shows before the end, and all of it does then.
	for _, secure := range []bool{true, false} {
		x := s.dialFTP(t).logIn("anna", secure)
		c, _ := x.data("STOR /docs/new")
		_, err := c.Write(data)
		require.NoError(t, err)
		other := s.dialFTP(t).logIn("anna", secure)
		other.do(550, "SIZE /docs/new")
		other.passive()
		other.do(450, "STOR /docs/new")
		require.NoFileExists(t, s.share("docs/new"))
		require.NoError(t, c.Close())
		x.expect(226)
		requireFile(t, data, s.share("docs/new"))
		other.do(213, "HASH /docs/new")
		x.do(250, "DELE /docs/new")
	}
}

// TestRefusedFTP: what REST and ALLO have said is not for another transfer than the next, which may be
// refused.
func TestRefusedFTP(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, true)
	x := s.dialFTP(t).logIn("anna", false)
	for _, refused := range []struct {
		code    int
		command string
	}{{425, "RETR /docs/file"}, {550, "RETR /docs/none"}, {550, "STOR /none/file"}, {550, "LIST /none"}, {550, "SIZE /docs/none"}} {
		for code, said := range map[int]string{350: "REST 500", 200: "ALLO 1000"} {
			write(t, s.share("docs/file"), 1000)
			if refused.code != 425 {
				x.passive()
			}
			x.do(code, "%s", said)
			x.do(refused.code, "%s", refused.command)
			c, _ := x.data("STOR /docs/file")
			_, err := io.WriteString(c, "new")
			require.NoError(t, err)
			require.NoError(t, c.Close())
			x.expect(226)
			requireFile(t, []byte("new"), s.share("docs/file"))
		}
	}
}

// TestFTPAudit has downloads that fail at each step: the audit log says so.
func TestFTPAudit(t *testing.T) {
	t.Parallel()
	var log auditLog
	s := begin(t, log.keep, func(o *fxfer.ServerOptions) {
		o.Doors.FTP = fxfer.FTPDoor{Addr: "127.0.0.1:0", Active: true, Clear: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	})
	aborts := func(x *ftpClient) {
		x.do(426, "ABOR")
		x.expect(226)
	}
	const aborted = `"the client has aborted the transfer"`
	for name, c := range map[string]struct {
		fails      func(x *ftpClient, retr string)
		err, bytes string // patterns
	}{
		"begun": {func(x *ftpClient, retr string) {
			c, _ := x.data("%s", retr)
			_, err := io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
			aborts(x)
		}, aborted, `[1-9]\d*`},
		"before the connection": {func(x *ftpClient, retr string) {
			x.passive()
			x.do(150, "%s", retr)
			aborts(x)
		}, aborted, "0"},
		"no connection": {func(x *ftpClient, retr string) {
			x.do(200, "EPRT |1|127.0.0.1|%d|", x.conn.LocalAddr().(*net.TCPAddr).Port) // where nobody listens
			x.do(150, "%s", retr)
			x.expect(426)
		}, ".*", "0"},
		"behind the end": {func(x *ftpClient, retr string) {
			x.passive()
			x.do(350, "REST %d", 65<<20)
			x.do(554, "%s", retr)
		}, ".*", "0"},
	} {
		write(t, s.share("docs", name), 10)
		require.NoError(t, os.Truncate(s.share("docs", name), 64<<20)) // more than sockets hold
		x := s.dialFTP(t).logIn("anna", false)
		c.fails(x, "RETR /docs/"+name)
		x.do(200, "NOOP") // the file is closed
		require.Regexp(t, fmt.Sprintf(`path="?%s"? error=%s bytes=%s outcome=failed`, name, c.err, c.bytes), log.String())
	}
}

// auditLog keeps what is logged.
type auditLog struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// keep has a server write its audit log here.
func (l *auditLog) keep(o *fxfer.ServerOptions) { o.Audit = slog.New(slog.NewTextHandler(l, nil)) }

func (l *auditLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *auditLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// gets waits until a line of the log matches a pattern.
func (l *auditLog) gets(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool { return line.MatchString(l.String()) }, patience, 10*time.Millisecond, pattern)
}

// TestHostileFTP tries to leave the shares, to reach others, and to do what the rights forbid.
func TestHostileFTP(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, true)
	secret := write(t, s.share("secret"), 10)
	write(t, s.share("docs/file"), 10)
	write(t, s.share("scans/old"), 10)
	require.NoError(t, os.Symlink("../secret", s.share("docs/up")))
	require.NoError(t, os.Symlink(s.share("secret"), s.share("docs/absolute")))
	require.NoError(t, os.Symlink(s.dir, s.share("docs/folder")))
	anna := s.dialFTP(t).logIn("anna", false)
	for _, p := range []string{
		"/docs/up", "/docs/absolute", "/docs/folder/secret", "/docs/../secret", "/../secret", "/secret", "/etc/passwd", "../../../../etc/passwd",
		"/docs//../docs/./up", "/docs/" + strings.Repeat("a/", 1500), "/docs/.fxfer-x.part", "/home/key.pem",
	} {
		for _, command := range []string{"SIZE", "MDTM", "HASH", "MLST", "CWD"} {
			anna.do(550, "%s %s", command, p)
		}
		anna.passive()
		anna.do(550, "RETR %s", p)
		if p != "/docs/up" && p != "/docs/absolute" && p != "/docs//../docs/./up" {
			anna.passive()
			anna.do(550, "STOR %s", p)
		}
		anna.do(550, "MKD %s", p)
	}
	anna.do(350, "RNFR /docs/file")
	anna.do(550, "RNTO /scans/file")
	anna.do(350, "RNFR /docs/file")
	anna.do(550, "RNTO /docs/folder/file")
	anna.do(550, "RMD /docs")
	anna.do(550, "DELE /docs")
	c, _ := anna.data("STOR /docs/up") // a file takes the place of the link
	require.NoError(t, c.Close())
	anna.expect(226)
	requireFile(t, secret, s.share("secret"))

	// The server connects only to the client, and no connection of others is the client's.
	for _, arg := range []string{"PORT 127,0,0,2,200,1", "PORT 8,8,8,8,200,1", "PORT 127,0,0,1,0,22", "EPRT |1|127.0.0.2|5000|", "EPRT |1|127.0.0.1|22|", "EPRT |2|::1|5000|"} {
		anna.do(504, "%s", arg)
	}
	at := anna.passive()
	thief, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", at)
	if err == nil { // this system has other addresses of the loopback
		defer thief.Close()
		_, err = thief.Read(make([]byte, 1))
		require.Error(t, err)
	}
	own, err := net.Dial("tcp", at)
	require.NoError(t, err)
	defer own.Close()
	anna.do(150, "RETR /docs/file")
	got, err := io.ReadAll(own)
	require.NoError(t, err)
	require.Len(t, got, 10)
	anna.expect(226)
	anna.do(425, "RETR /docs/file")

	ro := s.dialFTP(t).logIn("ro", false)
	ro.do(257, "PWD")
	for _, command := range []string{"DELE file", "MKD d", "MFMT 20010203040506 file", "SITE CHMOD 777 file", "CWD /scans", "SIZE /scans/old"} {
		ro.do(550, "%s", command)
	}
	ro.passive()
	ro.do(550, "STOR new")

	scanner := s.dialFTP(t).logIn("scanner", false)
	list := func() string {
		t.Helper()
		c, _ := scanner.data("NLST")
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		scanner.expect(226)
		return string(text)
	}
	require.Empty(t, list())
	scanner.do(550, "SIZE old")
	scanner.do(550, "RNFR old")
	scanner.passive()
	scanner.do(550, "RETR old")
	for _, commands := range [][]string{{"RMD %s"}, {"REST 5", "STOR %s"}, {"REST 50", "STOR %s"}} {
		var said []string
		for _, name := range []string{"old", "none"} { // one that it does not see, and one that is not there
			if len(commands) > 1 {
				scanner.passive()
				scanner.do(350, "%s", commands[0])
			}
			said = append(said, strings.ReplaceAll(scanner.do(550, commands[len(commands)-1], name), name, "NAME"))
		}
		require.Equal(t, said[0], said[1])
	}
	c, _ = scanner.data("STOU")
	_, err = c.Write([]byte("page"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	scanner.expect(226)
	mine := strings.TrimSpace(list())
	require.Regexp(t, `^stou-[a-z0-9]+$`, mine, "what it has just brought")
	scanner.passive()
	scanner.do(550, "RETR %s", mine)

	// Commands that do not fit.
	long := s.dialFTP(t)
	_, _ = long.conn.Write(bytes.Repeat([]byte("A"), 1<<20))
	_, err = io.Copy(io.Discard, long.conn)
	if err != nil {
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	busy := s.dialFTP(t).logIn("anna", false)
	busy.data("STOR /docs/new")
	_, _ = busy.conn.Write(bytes.Repeat([]byte("NOOP\r\n"), 100))
	_, err = io.Copy(io.Discard, busy.conn)
	if err != nil {
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.NoFileExists(t, s.share("docs/new"))
}

// TestStolenFTP: somebody with the address of a client is faster at its passive port, and gets nothing.
func TestStolenFTP(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, false)
	data := write(t, s.share("docs/file"), 100_000)
	begin := func(x *ftpClient, command string) (own net.Conn, thief net.Conn) {
		t.Helper()
		at := x.passive()
		dial := func() net.Conn {
			c, err := net.Dial("tcp", at)
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			return c
		}
		thief = tls.Client(dial(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is this test's
		own = tls.Client(dial(), x.tls)
		x.do(150, "%s", command)
		return own, thief
	}
	for range 10 {
		x := s.dialFTP(t).logIn("anna", true)
		var all sync.WaitGroup
		own, thief := begin(x, "RETR /docs/file")
		all.Go(func() {
			if got, err := io.ReadAll(thief); len(got) > 0 {
				t.Errorf("the thief has %d bytes, %v", len(got), err)
			}
		})
		got, err := io.ReadAll(own)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
		x.expect(226)
		all.Wait()

		own, thief = begin(x, "STOR /docs/new")
		all.Go(func() {
			_, _ = io.WriteString(thief, "theirs")
			_ = thief.Close()
		})
		_, err = io.WriteString(own, "mine")
		require.NoError(t, err)
		require.NoError(t, own.Close())
		x.expect(226)
		all.Wait()
		requireFile(t, []byte("mine"), s.share("docs/new"))

		x.tls = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a client that can't resume
		own, thief = begin(x, "RETR /docs/file")
		for _, c := range []net.Conn{own, thief} {
			all.Go(func() {
				if got, err := io.ReadAll(c); len(got) > 0 {
					t.Errorf("%d bytes came to one of two, %v", len(got), err)
				}
			})
		}
		x.expect(425)
		all.Wait()
		_ = x.conn.Close()
	}
}

// TestFTPNeedsTLS: no password and no data pass without TLS, unless the configuration names the
// client's address.
func TestFTPNeedsTLS(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, false)
	write(t, s.share("docs/file"), 10)
	x := s.dialFTP(t)
	require.Contains(t, x.do(530, "USER anna"), "AUTH TLS")
	x.do(503, "PASS %s", password)
	x.logIn("anna", true)
	x.do(534, "PROT C")
	c, _ := x.data("RETR /docs/file")
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Len(t, got, 10)
	x.expect(226)

	y := s.dialFTP(t)
	y.do(234, "AUTH TLS")
	y.text = textproto.NewConn(tls.Client(y.conn, &tls.Config{InsecureSkipVerify: true})) //nolint:gosec // it is this test's
	y.do(331, "USER anna")
	y.do(230, "PASS %s", password)
	y.passive()
	require.Contains(t, y.do(521, "RETR /docs/file"), "PROT P")
}

// TestManyFTP lists 10,000 names and moves files for 32 clients at a time, of one address and user.
func TestManyFTP(t *testing.T) {
	t.Parallel()
	s := beginFTP(t, true)
	s.many(t, "docs/many")
	data := write(t, s.share("docs/data"), 1<<20)
	clients := make([]*ftpClient, 32) // half of the passive ports
	for i := range clients {
		clients[i] = s.dialFTP(t).logIn("anna", i%2 == 0)
	}
	var all sync.WaitGroup
	for i, x := range clients {
		all.Go(func() {
			name := fmt.Sprintf("/docs/%d", i)
			c, _ := x.data("STOR %s", name)
			_, _ = c.Write(data)
			_ = c.Close()
			x.expect(226)
			c, _ = x.data("RETR %s", name)
			got, err := io.ReadAll(c)
			_ = c.Close()
			if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
			x.expect(226)
			for _, command := range []string{"MLSD", "LIST", "NLST"} {
				c, _ = x.data("%s /docs/many", command)
				got, _ := io.ReadAll(c)
				_ = c.Close()
				if n := bytes.Count(got, []byte("\r\n")); n != 10_000 {
					t.Errorf("%s: %d names", command, n)
				}
				x.expect(226)
			}
		})
	}
	all.Wait()
	for i := range clients {
		requireFile(t, data, s.share("docs", fmt.Sprint(i)))
	}
}
