package doors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// ssh returns the options of OpenSSH's programs for the site.
func (s *site) ssh() []string {
	var args []string
	for _, o := range []string{
		"StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes", "BatchMode=yes",
		"IdentityFile=" + s.key, "GlobalKnownHostsFile=/dev/null", "LogLevel=ERROR",
	} {
		args = append(args, "-o", o)
	}
	return append(args, "-F", "none")
}

// oddNames are names that clients quote, and that a server takes literally.
var oddNames = []string{"a b", "ä ö", "-rf", "$HOME;x", "#x%41", "tab\there", "quote'\"", strings.Repeat("n", 255)}

// quoted writes a name as many programs take it in their own commands.
func quoted(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// TestOpenSSH uses sftp and scp.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	need(t, "sftp", "scp")
	s := begin(t)
	local := t.TempDir()
	big := write(t, filepath.Join(local, "big"), 5<<20+7)
	require.NoError(t, os.Chmod(filepath.Join(local, "big"), 0o750))
	to := "anna@127.0.0.1"
	sftp := func(batch string) string {
		t.Helper()
		return must(t, batch, "sftp", append(s.ssh(), "-q", "-P", s.port, "-b", "-", to)...)
	}
	require.Contains(t, sftp("pwd\nls -l\n"), "scans")
	s.many(t, "scans/many")
	requireMany(t, quietly(t, "ls -1 scans/many\n", "sftp", append(s.ssh(), "-q", "-P", s.port, "-b", "-", to)...))
	sftp(fmt.Sprintf("cd docs\nmkdir d\nput %[1]s/big d/one\nrename d/one d/two\nput %[1]s/big d/one\nget d/two %[1]s/back\n", local))
	requireFile(t, big, s.share("docs/d/one"))
	requireFile(t, big, s.share("docs/d/two"))
	requireFile(t, big, filepath.Join(local, "back"))
	info, err := os.Stat(s.share("docs/d/one"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o750), info.Mode().Perm())
	require.NoError(t, os.WriteFile(filepath.Join(local, "half"), big[:2<<20], 0o600))
	sftp(fmt.Sprintf("reget docs/d/one %s/half\nrm docs/d/one\nrename docs/d/two docs/d/three\nchmod 600 docs/d/three\n-rmdir docs/d\n", local))
	requireFile(t, big, filepath.Join(local, "half"))
	require.Equal(t, []string{"d", "d/three"}, names(t, s.share("docs")))

	// reput goes on with a file that is there, and is whole at every moment.
	require.NoError(t, os.WriteFile(s.share("docs/d/three"), big[:1<<20], 0o600))
	sftp(fmt.Sprintf("reput %s/big docs/d/three\n", local))
	requireFile(t, big, s.share("docs/d/three"))

	tree := filepath.Join(local, "tree")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "in"), 0o700))
	for _, name := range oddNames {
		write(t, filepath.Join(tree, "in", name), 100)
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(tree, "in", "a b"), old, old))
	must(t, "", "scp", append(s.ssh(), "-q", "-p", "-r", "-P", s.port, tree, to+":docs/")...)
	require.Equal(t, names(t, tree), names(t, s.share("docs/tree")))
	info, err = os.Stat(s.share("docs/tree/in/a b"))
	require.NoError(t, err)
	require.True(t, old.Equal(info.ModTime()), "%v", info.ModTime())
	must(t, "", "scp", append(s.ssh(), "-q", "-r", "-P", s.port, to+":docs/tree", filepath.Join(local, "copy"))...)
	require.Equal(t, names(t, tree), names(t, filepath.Join(local, "copy")))

	s.crowd(t, func(from, name, back string) (string, string, []string) {
		return fmt.Sprintf("put %s %q\nget %[2]q %[3]q\n", from, "docs/"+name, back), "sftp", append(s.ssh(), "-q", "-P", s.port, "-b", "-", to)
	})

	s.crowd(t, func(from, name, back string) (string, string, []string) {
		return "", "sh", []string{"-c", `scp $0 "$1" "$2" && scp $0 "$2" "$3"`, strings.Join(append(s.ssh(), "-q", "-P", s.port), " "), from, to + ":docs/" + name, back}
	})
	var batch strings.Builder
	for i, name := range oddNames {
		fmt.Fprintf(&batch, "put %s/big %s\nget %[2]s %[1]s/odd%[3]d\n", local, quoted("docs/"+name), i)
	}
	sftp(batch.String())
	for i, name := range oddNames {
		requireFile(t, big, s.share("docs", name))
		requireFile(t, big, filepath.Join(local, fmt.Sprint("odd", i)))
	}

	out, err := run(t, "", "ssh", append(s.ssh(), "-p", s.port, to, "id")...)
	require.Error(t, err)
	require.Contains(t, out, "only SFTP")
}

// TestSSHFS mounts a share.
func TestSSHFS(t *testing.T) {
	t.Parallel()
	need(t, "sshfs", "fusermount3")
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skip("needs /dev/fuse")
	} else {
		f.Close()
	}
	s := begin(t)
	at := t.TempDir()
	c := exec.Command("sshfs", append(s.ssh(), "-f", "-p", s.port, "anna@127.0.0.1:/docs", at)...)
	c.Stderr = t.Output()
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = exec.Command("fusermount3", "-u", "-z", at).Run() // also if somebody looks at it
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	require.NoError(t, os.Mkdir(s.share("docs/there"), 0o700))
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(at, "there")); return err == nil }, patience, 20*time.Millisecond)

	require.NoError(t, os.Mkdir(filepath.Join(at, "there", "made"), 0o700))
	s.many(t, "docs/many")
	list, err := os.ReadDir(filepath.Join(at, "many"))
	require.NoError(t, err)
	require.Len(t, list, 10_000)
	require.NoError(t, os.RemoveAll(s.share("docs/many")))
	for _, name := range oddNames {
		odd := write(t, filepath.Join(at, "there", name), 10)
		arrives(t, odd, s.share("docs/there", name))
	}

	data := write(t, filepath.Join(at, "file"), 3<<20+5)
	arrives(t, data, s.share("docs/file"))
	requireFile(t, data, filepath.Join(at, "file"))
	f, err := os.OpenFile(filepath.Join(at, "file"), os.O_RDWR, 0) // in place: some bytes, more bytes, fewer bytes
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("in place"), 100)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("behind"), 4<<20)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<20))
	_, err = f.WriteAt([]byte("end"), 2<<20)
	require.NoError(t, err)
	requireFile(t, data, s.share("docs/file")) // nothing shows before it is closed
	require.NoError(t, f.Close())
	want := append(append([]byte{}, data[:1<<20]...), make([]byte, 1<<20)...)
	copy(want[100:], "in place")
	want = append(want, "end"...)
	arrives(t, want, s.share("docs/file"))
	require.NoError(t, os.Rename(filepath.Join(at, "file"), filepath.Join(at, "there", "moved")))
	require.NoError(t, os.Truncate(filepath.Join(at, "there", "moved"), 10))
	arrives(t, want[:10], s.share("docs/there/moved"))
	require.NoError(t, os.RemoveAll(filepath.Join(at, "there")))
	require.Empty(t, names(t, s.share("docs")))
	require.Error(t, os.Symlink("/etc", filepath.Join(at, "link")))
}

// TestOtherSFTPClients uses lftp, curl and rclone.
func TestOtherSFTPClients(t *testing.T) {
	t.Parallel()
	s := begin(t)
	local := t.TempDir()
	data := write(t, filepath.Join(local, "data"), 1<<20+3)
	s.many(t, "scans/many")
	require.NoError(t, os.Mkdir(filepath.Join(local, "odd"), 0o700))
	for _, name := range oddNames {
		write(t, filepath.Join(local, "odd", name), 10)
	}
	t.Run("lftp", func(t *testing.T) {
		need(t, "lftp", "ssh")
		open := fmt.Sprintf("set sftp:connect-program \"ssh -a -x %s\"\nset net:max-retries 1\nset cmd:fail-exit yes\nopen sftp://anna:@127.0.0.1:%s/docs\n", strings.Join(s.ssh(), " "), s.port)
		requireMany(t, quietly(t, open+"cls -1 /scans/many\nbye\n", "lftp", "--norc"))
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return fmt.Sprintf("%sput %s -o %q\nget %[3]q -o %[4]q\nbye\n", open, from, name, back), "lftp", []string{"--norc"}
		})
		for _, half := range []string{filepath.Join(local, "lftp half"), s.share("docs/half")} {
			require.NoError(t, os.WriteFile(half, data[:1000], 0o600))
		}
		out := must(t, open+fmt.Sprintf(`mkdir l
put %[1]s/data -o l/one
mv l/one l/two
pget -n 3 l/two -o %[1]s/lftp
get -c l/two -o "%[1]s/lftp half"
put -c %[1]s/data -o half
mirror -R %[1]s l/tree
cls -l l
rm l/two
bye
`, local), "lftp", "--norc")
		require.Contains(t, out, "two")
		requireFile(t, data, filepath.Join(local, "lftp"))
		requireFile(t, data, filepath.Join(local, "lftp half"))
		requireFile(t, data, s.share("docs/half"))
		requireFile(t, data, s.share("docs/l/tree/data"))
		require.Equal(t, names(t, filepath.Join(local, "odd")), names(t, s.share("docs/l/tree/odd")))
	})
	t.Run("curl", func(t *testing.T) {
		need(t, "curl")
		if !strings.Contains(must(t, "", "curl", "--version"), "sftp") {
			t.Skip("this curl has no SFTP")
		}
		url := "sftp://127.0.0.1:" + s.port + "/docs/"
		curl := func(args ...string) {
			t.Helper()
			must(t, "", "curl", append([]string{"-sS", "--insecure", "-u", "anna:" + password}, args...)...)
		}
		curl("-T", filepath.Join(local, "data"), url+"curl")
		requireFile(t, data, s.share("docs/curl"))
		curl("-o", filepath.Join(local, "curl"), url+"curl")
		requireFile(t, data, filepath.Join(local, "curl"))
		require.NoError(t, os.WriteFile(s.share("docs/curl"), data[:1000], 0o600))
		curl("-C", "-", "-T", filepath.Join(local, "data"), url+"curl")
		requireFile(t, data, s.share("docs/curl"))
		half := filepath.Join(local, "half")
		require.NoError(t, os.WriteFile(half, data[:1000], 0o600))
		curl("-C", "-", "-o", half, url+"curl")
		requireFile(t, data, half)
		curl("-Q", "mkdir /docs/c", "-Q", "rename /docs/curl /docs/c/moved", "-o", os.DevNull, url)
		requireFile(t, data, s.share("docs/c/moved"))
		for _, name := range oddNames {
			curl("-T", filepath.Join(local, "data"), url+escape(name))
			requireFile(t, data, s.share("docs", name))
		}
		login := []string{"-sS", "--insecure", "-u", "anna:" + password}
		requireMany(t, quietly(t, "", "curl", append(login, "-l", "sftp://127.0.0.1:"+s.port+"/scans/many/")...))
		s.crowd(t, func(from, name, back string) (string, string, []string) {
			return "", "curl", twice(login, from, url+escape(name), back)
		})
	})
	t.Run("rclone", func(t *testing.T) {
		remote := ":sftp,host=127.0.0.1,port=" + s.port + ",user=anna,pass=" + obscured(t) + ",shell_type=none:docs/r"
		rclone := mirror(t, remote, s.share("docs/r"), oddNames[:5]...) // it has other names for those with control characters
		requireMany(t, rclone("lsf", strings.Replace(remote, ":docs/r", ":scans/many", 1)))
		rclone("moveto", remote+"/in/file 4", remote+"/in/moved")
		require.FileExists(t, s.share("docs/r/in/moved"))
	})
}

// escape writes a name as a part of a URL.
func escape(name string) string { return (&url.URL{Path: name}).EscapedPath() }

// twice are the arguments with which curl sends a file to a URL, and gets it back.
func twice(login []string, from, at, back string) []string {
	args := append(slices.Clone(login), "-T", from, at, "--next")
	return append(append(args, login...), "-o", back, at)
}

// dial connects as a user with the password.
func (s *site) dial(t *testing.T, user string) (*sftp.Client, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", s.name)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, s.name, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(password)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	require.NoError(t, err)
	client, err := sftp.NewClient(ssh.NewClient(c, channels, requests))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client, conn
}

// TestManyNames lists a folder of 10,000 names.
func TestManyNames(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.many(t, "docs/many")
	c, _ := s.dial(t, "ro")
	list, err := c.ReadDir("/docs/many")
	require.NoError(t, err)
	require.Len(t, list, 10_000)
}

// TestAbortedSFTP cuts connections at random bytes of an upload.
func TestAbortedSFTP(t *testing.T) {
	t.Parallel()
	s := begin(t)
	random := seeded(t)
	old := write(t, s.share("docs/there"), 1000)
	data := make([]byte, 1<<20)
	for i := range *cuts {
		c, conn := s.dial(t, "anna")
		name := []string{"/docs/there", "/docs/new"}[i%2]
		f, err := c.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		require.NoError(t, err)
		_, err = f.Write(data[:random.IntN(len(data))])
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		_, err = os.Lstat(s.share("docs/new"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		requireFile(t, old, s.share("docs/there"))
	}
	require.Eventually(t, func() bool { return len(names(t, s.share("docs"))) == 1 }, patience, 10*time.Millisecond, "partial files stay")
	c, _ := s.dial(t, "anna")
	f, err := c.Create("/docs/new")
	require.NoError(t, err)
	_, err = f.Write(data)
	require.NoError(t, err)
	other, _ := s.dial(t, "anna")
	_, err = other.Create("/docs/new")
	require.ErrorContains(t, err, "another transfer is writing")
	_, err = other.Stat("/docs/new")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, f.Close())
	requireFile(t, data, s.share("docs/new"))
}

// TestSFTPAudit leaves before the first byte of a download: the audit log says so.
func TestSFTPAudit(t *testing.T) {
	t.Parallel()
	var log auditLog
	s := begin(t, log.keep)
	write(t, s.share("docs/file"), 10)
	c, conn := s.dial(t, "anna")
	_, err := c.Open("/docs/file")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	log.gets(t, `path=file error=.* bytes=0 outcome=failed`)
}

// TestHostileSFTP tries to leave the shares, and to see and do what the rights forbid.
func TestHostileSFTP(t *testing.T) {
	t.Parallel()
	s := begin(t)
	secret := write(t, s.share("secret"), 10)
	write(t, s.share("docs/file"), 10)
	write(t, s.share("scans/old"), 10)
	require.NoError(t, os.Mkdir(s.share("scans/in"), 0o700))
	require.NoError(t, os.Symlink("../secret", s.share("docs/up")))
	require.NoError(t, os.Symlink(s.share("secret"), s.share("docs/absolute")))
	require.NoError(t, os.Symlink(s.dir, s.share("docs/folder")))
	require.NoError(t, os.Symlink("file", s.share("docs/good")))

	anna, _ := s.dial(t, "anna")
	for _, p := range []string{
		"/docs/up", "/docs/absolute", "/docs/folder/secret", "/docs/../secret", "/../secret", "/secret", "/etc/passwd",
		"/docs/../../../../../../etc/passwd", "/docs//../docs/./up", "/docs/x\x00y", "/docs/" + strings.Repeat("a/", 4000),
		"/docs/.fxfer-x.part", "/home/key.pem",
	} {
		_, err := anna.Open(p)
		require.Error(t, err, p)
		_, err = anna.Stat(p)
		require.Error(t, err, p)
		if p != "/docs/up" && p != "/docs/absolute" && p != "/docs//../docs/./up" { // these replace the link
			_, err = anna.Create(p)
			require.Error(t, err, p)
		}
		require.Error(t, anna.Mkdir(p), p)
		require.Error(t, anna.Rename("/docs/file", p), p)
	}
	f, err := anna.Open("/docs/good")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	f, err = anna.Create("/docs/up") // a file takes the place of the link
	require.NoError(t, err)
	require.NoError(t, f.Close())
	requireFile(t, secret, s.share("secret"))
	for _, p := range []string{"/", "/docs", "/scans"} {
		require.Error(t, anna.RemoveDirectory(p), p)
		require.Error(t, anna.Remove(p), p)
		require.Error(t, anna.Rename(p, "/docs/x"), p)
	}
	require.Error(t, anna.Rename("/docs/file", "/scans/file"), "another share")
	require.Error(t, anna.Symlink("/etc/passwd", "/docs/l"))
	require.Error(t, anna.Link("/docs/file", "/docs/l"))
	require.NoError(t, anna.Chown("/docs/file", 0, 0), "owners stay")
	require.NoError(t, anna.Chmod("/docs/file", 0o4755|os.ModeSetuid))
	info, err := os.Stat(s.share("docs/file"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode())

	ro, _ := s.dial(t, "ro")
	require.Error(t, ro.Remove("/docs/file"))
	_, err = ro.Create("/docs/new")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Error(t, ro.Chmod("/docs/file", 0o777))
	_, err = ro.Stat("/scans/old")
	require.ErrorIs(t, err, fs.ErrNotExist)
	wd, err := ro.Getwd()
	require.NoError(t, err)
	require.Equal(t, "/docs", wd, "the only share")

	scanner, _ := s.dial(t, "scanner")
	list, err := scanner.ReadDir("/scans")
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = scanner.Stat("/scans/old")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = scanner.Open("/scans/old")
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = scanner.OpenFile("/scans/old", os.O_RDWR)
	require.Error(t, err)
	f, err = scanner.Create("/scans/in/new")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	list, err = scanner.ReadDir("/scans/in")
	require.NoError(t, err)
	require.Len(t, list, 1, "what it has just brought")
	again, _ := s.dial(t, "scanner")
	list, err = again.ReadDir("/scans/in")
	require.NoError(t, err)
	require.Empty(t, list)
	for _, name := range names(t, s.share("docs")) {
		require.NotContains(t, name, ".fxfer-", "partial files stay")
	}
}

// TestHostileSizes asks for sizes that no file has, cuts and grows a file, and reads where it may not.
func TestHostileSizes(t *testing.T) {
	t.Parallel()
	s := begin(t)
	c, _ := s.dial(t, "anna")
	create := func(flags int) *sftp.File {
		f, err := c.OpenFile("/docs/file", flags|os.O_WRONLY|os.O_CREATE)
		require.NoError(t, err)
		return f
	}
	f := create(os.O_TRUNC)
	require.Error(t, f.Truncate(math.MaxInt64-1<<31))
	require.Error(t, f.Close())
	f = create(os.O_TRUNC)
	_, err := f.WriteAt([]byte("x"), 1<<62)
	require.Error(t, err)
	require.Error(t, f.Close())
	require.Empty(t, names(t, s.share("docs")))

	// What is cut off is gone, and takes no space when the file grows again.
	const size = 64 << 20
	f = create(os.O_TRUNC)
	_, err = f.Write([]byte("begin, and more"))
	require.NoError(t, err)
	for _, n := range []int64{size, 5, size, size + 3} {
		require.NoError(t, f.Truncate(n))
	}
	_, err = f.WriteAt([]byte("end"), size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	want := append([]byte("begin"), make([]byte, size-5)...)
	requireFile(t, append(want, "end"...), s.share("docs/file"))
	tree, err := disk.Open(s.share("docs"))
	require.NoError(t, err)
	defer tree.Close()
	src, err := tree.OpenFile("file")
	require.NoError(t, err)
	defer src.Close()
	data, err := src.Data(1<<20, size-2<<20)
	require.NoError(t, err)
	require.Empty(t, data)

	// Who appends does not say where, and who may only write may not read.
	f = create(os.O_TRUNC)
	_, err = f.Write([]byte("one"))
	require.NoError(t, err)
	_, err = f.ReadAt(make([]byte, 3), 0)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NoError(t, f.Close())
	f = create(os.O_APPEND)
	_, err = f.Write([]byte(" two"))
	require.NoError(t, err)
	_, err = f.Write([]byte(" three"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	requireFile(t, []byte("one two three"), s.share("docs/file"))
}

// TestAtDoors: the status has who is at doors, and how much of a file has come.
func TestAtDoors(t *testing.T) {
	t.Parallel()
	s := begin(t)
	require.Empty(t, s.Status().AtDoors)
	c, conn := s.dial(t, "anna")
	f, err := c.Create("/docs/file")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	at := func() fxfer.DoorSession {
		t.Helper()
		all := s.Status().AtDoors
		require.Len(t, all, 1)
		require.Equal(t, []any{"sftp", "user:anna", conn.LocalAddr().String(), "docs"}, []any{all[0].Door, all[0].Client, all[0].Peer, all[0].Share})
		return all[0]
	}
	require.Equal(t, []int64{1 << 20, 0, 0}, []int64{at().Received, at().Sent, int64(at().Files)})
	require.NoError(t, f.Close())
	require.Equal(t, 1, at().Files)
	f, err = c.Open("/docs/file")
	require.NoError(t, err)
	_, err = io.ReadFull(f, make([]byte, 1000))
	require.NoError(t, err)
	require.GreaterOrEqual(t, at().Sent, int64(1000))
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return len(s.Status().AtDoors) == 0 }, patience, 10*time.Millisecond)
}

// TestManyFiles opens more files than a connection may have.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	s := begin(t)
	write(t, s.share("docs/file"), 10)
	c, _ := s.dial(t, "anna")
	var err error
	n := 0
	for ; n < 1000 && err == nil; n++ {
		_, err = c.Open("/docs/file")
	}
	require.ErrorContains(t, err, "files open")
	require.Less(t, n, 100)
	other, _ := s.dial(t, "ro")
	_, err = other.Open("/docs/file")
	require.NoError(t, err)
}

// TestLeavingSFTP leaves while the server waits for the rate of what was sent.
func TestLeavingSFTP(t *testing.T) {
	t.Parallel()
	s := begin(t, func(o *fxfer.ServerOptions) {
		o.Clients = []fxfer.Admission{{User: "anna", Name: "a", RateLimit: 1000}}
	})
	c, conn := s.dial(t, "anna")
	f, err := c.Create("/docs/slow")
	require.NoError(t, err)
	sent := make(chan struct{})
	go func() {
		_, _ = f.Write(make([]byte, 1<<20))
		close(sent)
	}()
	select {
	case <-sent:
		t.Fatal("1 MiB took no time at 1 kbit/s")
	case <-time.After(200 * time.Millisecond):
	}
	require.Equal(t, 1, s.Status().Sessions)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return s.Status().Sessions == 0 }, patience, 10*time.Millisecond)
	require.Empty(t, names(t, s.share("docs")))
}

// TestLogins tries wrong names, passwords and keys, and hangs before the login.
func TestLogins(t *testing.T) {
	t.Parallel()
	s := begin(t, func(o *fxfer.ServerOptions) { o.MaxConnections, o.MaxConnectionsPerAddress = 100, 100 })
	login := func(user, with string) error {
		c, err := ssh.Dial("tcp", s.name, &ssh.ClientConfig{
			User: user, Auth: []ssh.AuthMethod{ssh.Password(with)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			Timeout: 10 * time.Second,
		})
		if err == nil {
			c.Close()
		}
		return err
	}
	require.NoError(t, login("anna", password))
	store, err := identity.OpenStore(s.share("home"))
	require.NoError(t, err)
	require.NoError(t, store.SetPassword("idle", password))
	for _, user := range []string{"anna", "nobody", "idle", "", strings.Repeat("x", 5000)} {
		with := password + "!"
		if user == "idle" { // it has no rights
			with = password
		}
		require.Error(t, login(user, with), user)
	}
	// Some hundred hang at every step of the login: a quarter of all places is for those, and a quarter
	// of those for one address. The others are closed.
	var hanging []net.Conn
	for i := range 300 {
		c, err := net.Dial("tcp", s.name)
		require.NoError(t, err)
		if i%2 == 0 {
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		}
		hanging = append(hanging, c)
	}
	closed := 0
	for _, c := range hanging {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 8)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	require.GreaterOrEqual(t, closed, 200)
	for _, c := range hanging {
		c.Close()
	}
	require.Eventually(t, func() bool { return login("anna", password) == nil }, patience, 50*time.Millisecond)
	refused := s.Status().Counters.Refused
	require.GreaterOrEqual(t, refused["login"], int64(4))
	require.GreaterOrEqual(t, refused["too many strangers"], int64(200))
}

// TestLimits keeps a user to quota, rate and sessions, and ends what it does when it is revoked.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := begin(t, func(o *fxfer.ServerOptions) {
		o.Shares[1].Quota, o.Shares[1].QuotaFiles = 1<<20, 3
		o.Clients = []fxfer.Admission{{User: "anna", Name: "a", MaxSessions: 2, RateLimit: 80e6}}
	})
	c, _ := s.dial(t, "anna")
	f, err := c.Create("/scans/large")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 2<<20))
	require.ErrorContains(t, err, "quota")
	require.Error(t, f.Close(), "it is not whole")
	require.Empty(t, names(t, s.share("scans")))
	for i := range 3 {
		require.NoError(t, c.Mkdir(fmt.Sprintf("/scans/%d", i)))
	}
	require.ErrorContains(t, c.Mkdir("/scans/3"), "quota")
	require.NoError(t, c.RemoveDirectory("/scans/0"))
	require.NoError(t, c.Mkdir("/scans/3"))

	began := time.Now()
	f, err = c.Create("/docs/paced")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Greater(t, time.Since(began), 600*time.Millisecond, "8 MiB at 10 MB/s")

	other, _ := s.dial(t, "anna") // c has the two sessions: on scans and on docs
	_, err = other.ReadDir("/docs")
	require.ErrorContains(t, err, "limit")
	third, err := ssh.Dial("tcp", s.name, &ssh.ClientConfig{
		User: "anna", Auth: []ssh.AuthMethod{ssh.Password(password)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err == nil { // the door says so by closing
		_, err = third.NewSession()
		third.Close()
	}
	require.Error(t, err, "as many connections as sessions")

	traffic := map[string]int64{}
	for _, x := range s.Status().Counters.Traffic {
		if x.Receive {
			traffic[x.Share] = x.Bytes
		}
	}
	require.EqualValues(t, 8<<20, traffic["docs"])
	require.EqualValues(t, 2, s.Status().Counters.Begun["sftp"])

	f, err = c.Create("/docs/revoked")
	require.NoError(t, err)
	require.NoError(t, s.Revoke("user:anna"))
	_, err = f.Write(make([]byte, 1000))
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Eventually(t, func() bool { _, err := c.Getwd(); return err != nil }, patience, 50*time.Millisecond, "the connection stays")
	require.Eventually(t, func() bool { return slices.Equal([]string{"paced"}, names(t, s.share("docs"))) },
		patience, 50*time.Millisecond, "what was not whole stays")
}
