// Package ssh_test sends to and gets from a host where no server runs, through a real sshd, and
// looks for what stays behind.
package ssh_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/fxfer/fxfer/internal/cli" // a change of the program makes cached results invalid
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// program is the path of the fxfer binary under test.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fxfer-ssh-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		program = filepath.Join(dir, "fxfer")
		err = hosts.Build(program, "../../cmd/fxfer", "CGO_ENABLED=0")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// far is a host that only ssh reaches: an sshd of the test's own, on a port of the loopback.
type far struct {
	t    *testing.T
	dir  string
	home string // of the user over there
	tmp  string // its folder for temporary files
	bin  string // the first folder of its PATH
	port string // of its sshd
}

// privsep is the folder that Debian's sshd needs if root starts it.
const privsep = "/run/sshd"

// newFar starts an sshd. options are further lines of its configuration.
func newFar(t *testing.T, options ...string) *far {
	t.Helper()
	daemon, err := exec.LookPath("sshd")
	if err != nil {
		daemon = "/usr/sbin/sshd"
	}
	for _, name := range []string{daemon, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing: install openssh-server and openssh-client", name)
		}
	}
	f := &far{t: t, dir: t.TempDir()}
	f.home, f.tmp, f.bin = filepath.Join(f.dir, "home"), filepath.Join(f.dir, "tmp"), filepath.Join(f.dir, "bin")
	for _, dir := range []string{f.home, f.tmp, f.bin, filepath.Join(f.dir, "near")} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	for _, key := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(f.dir, key)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	if _, err := os.Stat(privsep); err != nil && os.Geteuid() == 0 {
		_ = os.Mkdir(privsep, 0o755) // it stays, as after a start of the service: others may use it by now
	}
	port := freePort(t)
	f.port = strconv.Itoa(port)
	f.write("sshd_config", append([]string{
		"ListenAddress 127.0.0.1", fmt.Sprint("Port ", port), "HostKey " + f.dir + "/host", "AuthorizedKeysFile " + f.dir + "/user.pub",
		"PidFile none", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "LogLevel ERROR",
		"SetEnv HOME=" + f.home + " TMPDIR=" + f.tmp + " XDG_RUNTIME_DIR= PATH=" + f.bin + ":/usr/bin:/bin",
	}, options...)...)
	me, err := exec.Command("id", "-un").Output()
	require.NoError(t, err)
	hostKey, err := os.ReadFile(f.dir + "/host.pub")
	require.NoError(t, err)
	f.write("known_hosts", fmt.Sprintf("[127.0.0.1]:%d %s", port, hostKey))
	f.write("ssh_config", "Host far", "HostName 127.0.0.1", fmt.Sprint("Port ", port), "User "+strings.TrimSpace(string(me)),
		"IdentityFile "+f.dir+"/user", "IdentitiesOnly yes", "UserKnownHostsFile "+f.dir+"/known_hosts", "StrictHostKeyChecking yes",
		"BatchMode yes", "LogLevel ERROR", "RemoteCommand false", "PermitLocalCommand yes", "LocalCommand touch "+f.dir+"/near/local")
	// The name of this host resolves nowhere, so only ssh itself reaches it.
	f.write("inside_config", "Host far", "HostName far.invalid", "HostKeyAlias [127.0.0.1]:"+strconv.Itoa(port),
		"ProxyCommand "+daemon+" -i -f "+f.dir+"/sshd_config", "User "+strings.TrimSpace(string(me)), "IdentityFile "+f.dir+"/user",
		"IdentitiesOnly yes", "UserKnownHostsFile "+f.dir+"/known_hosts", "StrictHostKeyChecking yes", "LogLevel ERROR")
	var said bytes.Buffer
	sshd := exec.Command(daemon, "-D", "-e", "-f", f.dir+"/sshd_config")
	sshd.Stderr = &said
	require.NoError(t, sshd.Start())
	t.Cleanup(func() {
		_ = sshd.Process.Kill()
		_ = sshd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", said.String())
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 30*time.Second, 20*time.Millisecond, "sshd does not listen")
	return f
}

// freePort finds a port for a program that listens a moment later. It lies below those that Linux
// gives to outgoing connections and to listeners of no port, so that no other test gets it meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	t.Fatal("no free port")
	return 0
}

func (f *far) write(name string, lines ...string) {
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// install gives the far host a program named fxfer.
func (f *far) install() *far {
	require.NoError(f.t, os.Symlink(program, filepath.Join(f.bin, "fxfer")))
	return f
}

// nowhere is an address that no host has (RFC 3849).
const nowhere = "2001:db8::1"

// behind gives the far host a program that takes client for the near host's address, and nowhere for
// its own, and the name hidden, which only ssh can resolve: a jump host leads there.
func (f *far) behind(client string) *far {
	f.write("bin/fxfer", "#!/bin/sh", fmt.Sprintf(`SSH_CONNECTION="%s 1 %s 22" exec %s "$@"`, client, nowhere, program))
	require.NoError(f.t, os.Chmod(f.bin+"/fxfer", 0o700))
	text, err := os.ReadFile(f.dir + "/ssh_config")
	require.NoError(f.t, err)
	hidden := strings.Replace(string(text), "Host far", "Host hidden", 1)
	hidden = strings.Replace(hidden, "HostName 127.0.0.1", "HostName hidden.invalid\nHostKeyAlias [127.0.0.1]:"+f.port+"\nProxyCommand ssh -F "+f.dir+"/ssh_config -W 127.0.0.1:"+f.port+" far", 1)
	jump := strings.NewReplacer("RemoteCommand false\n", "", "PermitLocalCommand yes\n", "").Replace(string(text))
	f.write("ssh_config", jump, hidden)
	return f
}

// command makes a command of the near host.
func (f *far) command(args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Dir = filepath.Join(f.dir, "near")
	c.Env = append(os.Environ(), "FXFER_HOME="+f.dir+"/near-home", "FXFER_SSH_COMMAND=ssh -F '"+f.dir+"/ssh_config'")
	return c
}

// fxfer runs a command of the near host, which has to end with this exit code.
func (f *far) fxfer(code int, args ...string) (stdout, stderr string) {
	f.t.Helper()
	var out, errs bytes.Buffer
	c := f.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run()
	require.Equal(f.t, code, c.ProcessState.ExitCode(), "%q: %s%s", args, out.String(), errs.String())
	return out.String(), errs.String()
}

// processes lists those of the far user.
func (f *far) processes() (all []int) {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(f.t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil && slices.Contains(strings.Split(string(text), "\x00"), "HOME="+f.home) {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			all = append(all, pid)
		}
	}
	return all
}

// clean checks that nothing runs at the far host, that its port is closed, and that its folders
// have only these entries.
func (f *far) clean(port int, entries ...string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return len(f.processes()) == 0 }, 60*time.Second, 50*time.Millisecond, "processes stay")
	if port != 0 {
		_, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 10*time.Second)
		require.ErrorIs(f.t, err, syscall.ECONNREFUSED)
	}
	var found []string
	for _, dir := range []string{f.home, f.tmp} {
		in, err := os.ReadDir(dir)
		require.NoError(f.t, err)
		for _, e := range in {
			found = append(found, e.Name())
		}
	}
	require.ElementsMatch(f.t, entries, found)
	require.NoFileExists(f.t, f.dir+"/near/local", "ssh did what its configuration says")
	left, err := filepath.Glob("/tmp/fxfer.??????????")
	require.NoError(f.t, err)
	require.Empty(f.t, left)
}

// near writes a tree at the near host. It has size bytes of random content.
func (f *far) near(name string, size int) string {
	seed := rand.Uint64()
	f.t.Logf("seed %d", seed)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(content)
	dir := filepath.Join(f.dir, "near", name)
	require.NoError(f.t, os.MkdirAll(filepath.Join(dir, "sub", "empty"), 0o755))
	require.NoError(f.t, os.WriteFile(filepath.Join(dir, "big"), content, 0o644))
	require.NoError(f.t, os.WriteFile(filepath.Join(dir, "sub", "$(touch x); 'a b'.txt"), []byte("small"), 0o600))
	return dir
}

func (f *far) same(a, b string) {
	f.t.Helper()
	out, err := exec.Command("diff", "-r", a, b).CombinedOutput()
	require.NoError(f.t, err, "%s", out)
}

func TestSSH(t *testing.T) {
	f := newFar(t).install()
	tree := f.near("tree", 5<<20)
	port := freePort(t)
	ports := fmt.Sprintf("--ports=%d-%d", port, port)

	f.fxfer(0, "send", ports, "tree", "far:in/new")
	f.same(tree, f.home+"/in/new/tree")
	f.clean(port, "in")
	out, _ := f.fxfer(0, "send", "tree", "far:in/new")
	require.Contains(t, out, "unchanged  2 files")
	f.fxfer(0, "get", ports, "far:in/new/tree", "out/")
	f.same(tree, f.dir+"/near/out/tree")
	out, _ = f.fxfer(0, "get", "--json", "--transport", "quic", "far:in/new/tree", "quic/")
	require.Contains(t, out, `"transport":"quic"`)
	f.same(tree, f.dir+"/near/quic/tree")
	f.fxfer(0, "get", "ssh://far"+f.home+"/in/new/tree/sub/", "far:in/new/tree/b*", "both")
	f.same(tree+"/big", f.dir+"/near/both/big")
	require.FileExists(t, f.dir+"/near/both/$(touch x); 'a b'.txt")
	// A request that is too long for an argument.
	f.fxfer(0, "get", "far:"+strings.Repeat("in/../", 1000)+"in/new/tree/", "long")
	f.same(tree, f.dir+"/near/long")
	out, _ = f.fxfer(0, "ls", "far:")
	require.Contains(t, out, " in/\n")
	out, _ = f.fxfer(0, "ls", "-R", "ssh://far/~/in/new")
	require.Contains(t, out, "tree/sub/$(touch x); 'a b'.txt")
	out, _ = f.fxfer(0, "verify", "far:in/new/tree", "--against", "tree")
	require.Contains(t, out, "2 the same")
	f.fxfer(0, "send", "--exec", "echo hello", "far:notes.txt")
	out, _ = f.fxfer(0, "get", "far:notes.txt", "-")
	require.Equal(t, "hello\n", out)
	for _, name := range []string{"2026-11-20T020000Z", "2026-11-21T020000Z"} { // the second finds the folder
		f.fxfer(0, "send", "--snapshot="+name, "tree/", "far:series")
		f.same(tree, f.home+"/series/"+name)
	}
	f.fxfer(0, "verify", "far:series", "--snapshot", "latest")
	require.NoError(t, os.Symlink("in/new", f.home+"/link"))
	f.fxfer(0, "get", "far:link", "one")
	f.same(tree, f.dir+"/near/one/link/tree")
	f.fxfer(0, "get", "far:link", "far:notes.txt", "several/")
	to, err := os.Readlink(f.dir + "/near/several/link")
	require.NoError(t, err)
	require.Equal(t, "in/new", to)
	require.NoError(t, os.Remove(f.home+"/link"))
	f.clean(port, "in", "notes.txt", "series")

	// What fails says so in one line, and leaves nothing either.
	_, errs := f.fxfer(10, "get", "far:in/none", ".")
	require.Contains(t, errs, `"none" does not exist`)
	_, errs = f.fxfer(5, "ls", "--ssh-command", "ssh -F '"+f.dir+"/ssh_config' -p 1", "far:")
	require.Contains(t, errs, "hint: first make `ssh far` work")
	_, errs = f.fxfer(1, "ls", "--remote-command", f.bin+"/none", "far:")
	require.Contains(t, errs, "exit status 127")
	busy, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	require.NoError(t, err)
	defer busy.Close()
	_, errs = f.fxfer(5, "ls", ports, "far:")
	require.Contains(t, errs, "is free")
	f.clean(0, "in", "notes.txt", "series")

	// The near host has its key, and remembers no server.
	require.NoFileExists(t, f.dir+"/near-home/known_servers")
	require.NoDirExists(t, f.dir+"/near-home/paths")
}

// TestChannels: where ssh alone reaches the host, it carries the data.
func TestChannels(t *testing.T) {
	f := newFar(t).install()
	tree := f.near("tree", 5<<20)
	inside := "--ssh-command=ssh -F '" + f.dir + "/inside_config'"
	_, errs := f.fxfer(0, "send", inside, "tree", "far:in")
	require.Contains(t, errs, "can't be reached, so data goes through ssh: it is encrypted twice, and at most 4 streams share the line")
	f.same(tree, f.home+"/in/tree")
	f.fxfer(0, "get", inside, "far:in/tree", "back/")
	f.same(tree, f.dir+"/near/back/tree")
	_, errs = f.fxfer(2, "get", inside, "--transport", "quic", "far:in/tree", "back/")
	require.Contains(t, errs, "QUIC can't go through ssh")
	f.clean(0, "in")

	forbids := newFar(t, "AllowTcpForwarding no").install()
	_, errs = forbids.fxfer(5, "ls", "--ssh-command=ssh -F '"+forbids.dir+"/inside_config'", "far:")
	require.Contains(t, errs, "neither directly nor through ssh")
	forbids.clean(0)
}

// TestCalls: where the near host reaches no port of the far one, the far one connects. Where neither
// can, ssh carries the data.
func TestCalls(t *testing.T) {
	f := newFar(t).behind("127.0.0.1")
	tree := f.near("tree", 5<<20)
	port := freePort(t)
	ports := fmt.Sprintf("--ports=%d-%d", port, min(port+20, 65535)) // one there, another one here
	_, errs := f.fxfer(0, "send", ports, "tree", "hidden:in")
	found := regexp.MustCompile(`note: port (\d+) of hidden did not answer within 500ms, so hidden connects to port (\d+) here`).FindStringSubmatch(errs)
	require.NotNil(t, found, errs)
	f.same(tree, f.home+"/in/tree")
	for _, name := range found[1:] {
		n, err := strconv.Atoi(name)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, port)
		f.clean(n, "in")
	}
	_, errs = f.fxfer(0, "get", "--streams=8", "hidden:in/tree", "back/")
	require.Contains(t, errs, "connects to port")
	f.same(tree, f.dir+"/near/back/tree")
	only := fmt.Sprintf("--ports=%d", freePort(t)) // the far host has it
	_, errs = f.fxfer(0, "get", only, "hidden:in/tree", "third/")
	require.Contains(t, errs, "hidden can't connect to this host: listen for the server")
	require.Contains(t, errs, "so data goes through ssh")
	out, _ := f.fxfer(0, "verify", "hidden:in/tree", "--against", "tree")
	require.Contains(t, out, "2 the same")
	_, errs = f.fxfer(2, "get", "--transport=quic", "hidden:in/tree", "back/")
	require.Contains(t, errs, "QUIC can't go through ssh")
	f.clean(0, "in")

	blocked := newFar(t).behind(nowhere)
	tree = blocked.near("tree", 1<<20)
	_, errs = blocked.fxfer(0, "send", "tree", "hidden:in")
	require.Contains(t, errs, "so data goes through ssh")
	blocked.same(tree, blocked.home+"/in/tree")
	blocked.clean(0, "in")
}

// TestCallsDeaf: a server outlives that nobody reads its output any more, until its input ends.
func TestCallsDeaf(t *testing.T) {
	refused := freePort(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c := exec.Command(program, "serve", "--once")
	c.Env = append(os.Environ(), "SSH_CONNECTION=127.0.0.1 1 127.0.0.1 22")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }()
	client := identity.PinOf(make([]byte, 32))
	_, err = fmt.Fprintf(in, `{"protocol":%d,"client":%q,"paths":[%q]}`+"\n", fxfer.ProtocolVersion, client, t.TempDir())
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `"calls":true`)
	require.NoError(t, out.Close())
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(2*time.Minute)))
	for i := range 20 {
		_, err = fmt.Fprintf(in, "call %d %032x\ncall %d %032x\n", refused, i, l.Addr().(*net.TCPAddr).Port, i)
		require.NoError(t, err)
		conn, err := l.Accept()
		require.NoError(t, err)
		conn.Close()
	}
	require.NoError(t, in.Close())
	_ = c.Wait() // it complains about its output
	require.True(t, c.ProcessState.Exited(), c.ProcessState)
}

// TestUpload: the program travels, too, where there is none or another version.
func TestUpload(t *testing.T) {
	f := newFar(t)
	tree := f.near("tree", 100_000)
	_, errs := f.fxfer(0, "send", "tree", "far:")
	require.Contains(t, errs, "note: far has no fxfer of this version: uploading one for this time, ")
	f.same(tree, f.home+"/tree")
	f.clean(0, "tree")

	f.write("bin/fxfer", "#!/bin/sh", `test "$1 $2" = "serve --once" || exit 1`, `echo 'fxfer-once {"protocol":999}'`, "exit 2")
	require.NoError(t, os.Chmod(f.bin+"/fxfer", 0o700))
	_, errs = f.fxfer(0, "get", "far:tree", "back")
	require.Contains(t, errs, "uploading one")
	f.same(tree, f.dir+"/near/back/tree")
	_, errs = f.fxfer(1, "get", "--remote-command", "fxfer", "far:tree", "back")
	require.Contains(t, errs, "fxfer on far speaks protocol version 999")
	f.clean(0, "tree")

	// A host of another kind gets the program of a folder that is for it.
	f.write("bin/uname", "#!/bin/sh", `case "$1" in -s) echo Plan9;; -m) echo sparc;; esac`)
	require.NoError(t, os.Chmod(f.bin+"/uname", 0o700))
	_, errs = f.fxfer(1, "ls", "far:")
	require.Contains(t, errs, "not for Plan9 sparc")
	builds := filepath.Join(f.dir, "builds")
	require.NoError(t, os.Mkdir(builds, 0o700))
	_, errs = f.fxfer(7, "ls", "--remote-binary", builds, "far:")
	require.Contains(t, errs, "builds/fxfer-plan9-sparc: no such file")
	require.NoError(t, os.Symlink(program, builds+"/fxfer-plan9-sparc"))
	out, _ := f.fxfer(0, "ls", "--remote-binary", builds, "far:")
	require.Contains(t, out, " tree/\n")
	f.clean(0, "tree")

	f.write("other", "not a program")
	_, errs = f.fxfer(1, "ls", "--remote-binary", f.dir+"/other", "far:")
	require.Contains(t, errs, "error: ssh far: exit status")
	f.clean(0, "tree")
}

// TestNoExec: where neither the home folder nor the one for temporary files allows execution, the
// program runs from another folder.
func TestNoExec(t *testing.T) {
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skipf("unshare -m: %v", err) // it takes root
	}
	f := newFar(t, `ForceCommand exec unshare -m sh -c 'for d in "$HOME" "$TMPDIR"; do mount --bind "$d" "$d" && `+
		`mount -o remount,bind,noexec "$d" || exit 9; done; exec sh -c "$SSH_ORIGINAL_COMMAND"'`)
	before, err := filepath.Glob("/var/tmp/fxfer.??????????")
	require.NoError(t, err)
	tree := f.near("tree", 100_000)
	_, errs := f.fxfer(0, "send", "tree", "far:")
	require.Contains(t, errs, "uploading one")
	f.same(tree, f.home+"/tree")
	f.clean(0, "tree")
	after, err := filepath.Glob("/var/tmp/fxfer.??????????")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestUploaded: a program that is told that it was uploaded removes itself, but not the folder, nor
// one that was installed.
func TestUploaded(t *testing.T) {
	for folder, installed := range map[string]bool{"fxfer.0123456789": false, "bin": true} {
		name := filepath.Join(t.TempDir(), folder, "fxfer")
		require.NoError(t, os.Mkdir(filepath.Dir(name), 0o700))
		require.NoError(t, os.Link(program, name))
		c := exec.Command(name, "serve", "--once")
		c.Stdin = strings.NewReader(`{"protocol":999,"uploaded":true}` + "\n")
		_ = c.Run()
		require.Equal(t, 2, c.ProcessState.ExitCode())
		_, err := os.Stat(name)
		require.Equal(t, installed, err == nil, err)
		require.DirExists(t, filepath.Dir(name))
	}
}

// TestKill kills the client, ssh and the server while files move, and interrupts the client. Nothing
// of them stays at the far host, and the same command resumes.
func TestKill(t *testing.T) {
	f := newFar(t).install()
	tree := f.near("tree", 24<<20)
	for _, victim := range []string{"client", "ssh", "server", "interrupt"} {
		t.Run(victim, func(t *testing.T) {
			c := f.command("send", "--json", "--rate-limit", "64mbit", "tree", "far:"+victim)
			f.killOnce(c, victim)
			require.Error(t, c.Wait())
			if victim == "interrupt" {
				require.Equal(t, 130, c.ProcessState.ExitCode())
			}
			require.Eventually(t, func() bool { return len(f.processes()) == 0 }, 60*time.Second, 50*time.Millisecond)
			text, _ := f.fxfer(0, "send", "--json", "tree", "far:"+victim)
			var sum struct {
				Resumed int64 `json:"bytes_resumed"`
				Written int64 `json:"bytes_written"`
			}
			text = strings.TrimSpace(text)
			require.NoError(t, json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &sum))
			require.Greater(t, sum.Resumed, int64(2<<20))
			f.same(tree, f.home+"/"+victim+"/tree")
		})
	}
	f.clean(0, "client", "ssh", "server", "interrupt")
}

// TestRetry: with --retry-for, a command outlives ssh and the server. It goes on with others, for the
// same folder, although the path that was missing at first is there by now.
func TestRetry(t *testing.T) {
	f := newFar(t).behind("127.0.0.1")
	tree := f.near("tree", 24<<20)
	for _, x := range []struct{ victim, host string }{{"ssh", "far"}, {"server", "far"}, {"ssh", "hidden"}} {
		to := "new/" + x.victim + "-" + x.host
		t.Run(to, func(t *testing.T) {
			c := f.command("send", "--json", "--retry-for", "10m", "--rate-limit", "64mbit", "tree", x.host+":"+to)
			var said bytes.Buffer
			c.Stderr = &said
			last := f.killOnce(c, x.victim)
			require.NoError(t, c.Wait(), said.String())
			var sum struct {
				Reconnects int   `json:"reconnects"`
				Written    int64 `json:"bytes_written"`
			}
			require.NoError(t, json.Unmarshal(last, &sum))
			require.Positive(t, sum.Reconnects, "%s", last)
			require.Less(t, sum.Written, int64(44<<20), "it resumes")
			require.Contains(t, said.String(), "note: the connection of ssh to "+x.host+" has ended: starting another one")
			f.same(tree, f.home+"/"+to+"/tree")
		})
	}
	f.clean(0, "new")
}

// killOnce starts a command and kills one of those that take part in it, once some data is there. It
// returns the last line of the output, and leaves it to the caller to wait.
func (f *far) killOnce(c *exec.Cmd, victim string) (last []byte) {
	t := f.t
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	killed := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		last = bytes.Clone(lines.Bytes())
		var p struct {
			Done int64 `json:"bytes_done"`
		}
		require.NoError(t, json.Unmarshal(last, &p))
		if p.Done < 6<<20 || killed {
			continue
		}
		killed = true
		switch victim {
		case "client":
			require.NoError(t, c.Process.Kill())
		case "interrupt":
			require.NoError(t, c.Process.Signal(os.Interrupt))
		case "ssh":
			killChildren(t, c.Process.Pid)
		case "server":
			for _, pid := range f.processes() {
				if name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); name == program {
					require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
				}
			}
		}
	}
	require.True(t, killed)
	return last
}

// killChildren kills the children of a process. Any of its threads may have started them.
func killChildren(t *testing.T, pid int) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	killed := 0
	for _, name := range names {
		text, _ := os.ReadFile(name) // the thread may have ended
		for _, child := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(child)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
			killed++
		}
	}
	require.Positive(t, killed)
}
