package confine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// captive is an environment variable: with it, this program confines itself and tries to escape.
const captive = "FXFER_TEST_CAPTIVE"

// captivePort is a free TCP port, which it may use.
const captivePort = "FXFER_TEST_CAPTIVE_PORT"

// captiveConnects is set if it may connect.
const captiveConnects = "FXFER_TEST_CAPTIVE_CONNECTS"

func connects() bool { return os.Getenv(captiveConnects) != "" }

func TestMain(m *testing.M) {
	if dir := os.Getenv(captive); dir != "" {
		escape(dir)
		return
	}
	os.Exit(m.Run())
}

// escape confines this process to dir and prints what it still can do. It runs as root or not.
func escape(dir string) {
	in := func(p string) string { return filepath.Join(dir, p) }
	folders := []Folder{{in("rw"), true}, {in("ro"), false}, {in("none"), true}}
	port, _ := strconv.Atoi(os.Getenv(captivePort))
	// With cgo, this begins the program once more.
	if err := Anew(folders, []string{in("file")}, []int{port}, connects()); err != nil {
		fmt.Println("not begun anew:", err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil && !begunAnew() {
		fmt.Println("listen:", err)
		return
	}
	// Threads that exist before, and are all in use: each thread has rights of its own.
	const threads = 8
	confined, tried := make(chan struct{}), make(chan error)
	for range threads {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			<-confined
			_, err := os.ReadFile(in("outside/secret"))
			tried <- err
		}()
		<-ready
	}
	if err := To(folders, connects()); err != nil {
		fmt.Println("not confined:", err)
		return
	}
	close(confined)
	for range threads {
		if err := <-tried; !errors.Is(err, fs.ErrPermission) {
			fmt.Println("escaped: another thread:", err)
		}
	}
	refused := func(what string, err error) {
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EXDEV) {
			fmt.Printf("escaped: %s: %v\n", what, err)
		}
	}
	allowed := func(what string, err error) {
		if err != nil {
			fmt.Printf("kept from: %s: %v\n", what, err)
		}
	}
	_, err = os.ReadFile(in("outside/secret"))
	refused("read outside", err)
	_, err = os.ReadFile(in("rw/link"))
	refused("read through a symlink", err)
	_, err = os.ReadFile("/proc/self/root" + in("outside/secret"))
	refused("read by way of /proc", err)
	_, err = os.ReadDir(in("outside"))
	refused("list outside", err)
	refused("write outside", os.WriteFile(in("outside/new"), nil, 0o600))
	refused("truncate outside", os.Truncate(in("outside/secret"), 0))
	refused("remove outside", os.Remove(in("outside/secret")))
	refused("rename out", os.Rename(in("rw/file"), in("outside/file")))
	refused("rename in", os.Rename(in("outside/secret"), in("rw/secret")))
	refused("link in", os.Link(in("outside/secret"), in("rw/secret")))
	refused("write what is read-only", os.WriteFile(in("ro/file"), nil, 0o600))
	refused("make in what is read-only", os.Mkdir(in("ro/new"), 0o700))
	refused("execute", exec.Command("/bin/sh", "-c", "true").Run())
	if abi, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); abi >= 4 {
		address := "127.0.0.1:1"
		if listener != nil {
			address = listener.Addr().String()
		}
		if _, err = net.Dial("tcp", address); connects() && address != "127.0.0.1:1" {
			allowed("connect", err)
		} else if !connects() {
			refused("connect", err)
		}
		var plain net.ListenConfig
		plain.SetMultipathTCP(false) // Landlock does not see MPTCP
		_, err = plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
		refused("listen anew", err)
	}

	_, err = os.ReadFile(in("ro/file"))
	allowed("read", err)
	if begunAnew() {
		_, err = os.ReadFile(in("file"))
		allowed("read a single file", err)
		var plain net.ListenConfig
		plain.SetMultipathTCP(false)
		_, err = plain.Listen(context.Background(), "tcp", "127.0.0.1:"+os.Getenv(captivePort))
		allowed("listen on the port", err)
	}
	allowed("write", os.WriteFile(in("rw/file"), []byte("more"), 0o600))
	allowed("make a folder", os.Mkdir(in("rw/d"), 0o700))
	allowed("rename to another folder", os.Rename(in("rw/file"), in("rw/d/file")))
	allowed("link in another folder", os.Link(in("rw/d/file"), in("rw/file")))
	allowed("symlink", os.Symlink("x", in("rw/symlink")))
	allowed("make a FIFO", unix.Mkfifo(in("rw/fifo"), 0o600))
	allowed("truncate", os.Truncate(in("rw/file"), 1))
	allowed("remove", os.RemoveAll(in("rw/d")))
	fmt.Printf("done by %d, begun anew: %t", os.Getpid(), begunAnew())
}

// TestEscape tries to escape from both kinds of programs.
func TestEscape(t *testing.T) {
	for name, env := range map[string]string{"without cgo": "CGO_ENABLED=0", "with cgo": "CGO_ENABLED=1"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("gcc"); err != nil && name == "with cgo" {
				t.Skip("no C compiler")
			}
			testEscape(t, env)
			testEscape(t, env, captiveConnects+"=1")
		})
	}
}

func testEscape(t *testing.T, cgo string, env ...string) {
	abi, err := version()
	if err != nil {
		t.Skip(err)
	}
	anew := cgo == "CGO_ENABLED=1" && abi < 8
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	dir := t.TempDir()
	for _, d := range []string{"rw", "ro", "outside"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	for _, f := range []string{"file", "rw/file", "ro/file", "outside/secret"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), []byte("content"), 0o600))
	}
	require.NoError(t, os.Symlink("../outside/secret", filepath.Join(dir, "rw/link")))
	program := filepath.Join(t.TempDir(), "captive")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), cgo)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := exec.Command(program)
	c.Env = append(os.Environ(), captive+"="+dir, captivePort+"="+strconv.Itoa(port))
	c.Env = append(c.Env, env...)
	out, err = c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, fmt.Sprintf("done by %d, begun anew: %t", c.Process.Pid, anew), string(out))
	secret, err := os.ReadFile(filepath.Join(dir, "outside/secret"))
	require.NoError(t, err)
	require.Equal(t, "content", string(secret))
}
