// Package doors uses a server's doors with the clients of others, and attacks them.
package doors

import (
	"bytes"
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/ssh"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var (
	cuts     = flag.Int("cuts", 56, "uploads that the tests of aborted uploads cut off at each door")
	halfOpen = flag.Int("half-open", 500, "connections of TestHalfOpenDoors that say nothing, at each door")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// password is that of every user.
	password = "correct horse"
	// patience bounds what a test waits for, also on a busy host.
	patience = 5 * time.Minute
)

// site is a server with the shares docs, where anna may do anything, and scans, which scanner may
// only write. ro may read docs.
type site struct {
	*fxfer.Server
	dir  string // of the shares and the home folder
	key  string // file of anna's private key
	name string // address of the SFTP door
	port string
}

// share returns the path of a file of a share.
func (s *site) share(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

// hash returns a hash of password that costs little to compare: the clients of these tests log in hundreds
// of times, and others would take half of the processor time.
var hash = sync.OnceValue(func() string {
	salt, b64 := make([]byte, 16), base64.RawStdEncoding
	sum := argon2.IDKey([]byte(password), salt, 1, 8, 1, 32)
	return fmt.Sprintf("$argon2id$v=%d$m=8,t=1,p=1$%s$%s", argon2.Version, b64.EncodeToString(salt), b64.EncodeToString(sum))
})

// begin runs a server until the test ends.
func begin(t *testing.T, change ...func(*fxfer.ServerOptions)) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	home := s.share("home")
	for _, name := range []string{"docs", "scans"} {
		require.NoError(t, os.Mkdir(s.share(name), 0o700))
	}
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	users := ""
	for user, grants := range map[string]string{"anna": "docs=rw,scans=rw", "scanner": "scans=wo", "ro": "docs=ro"} {
		users += user + " " + hash() + "\n"
		g, err := identity.ParseGrants(grants)
		require.NoError(t, err)
		id, err := identity.ParseUser(user)
		require.NoError(t, err)
		require.NoError(t, store.Admit(id, g, ""))
	}
	require.NoError(t, os.WriteFile(filepath.Join(home, "door_users"), []byte(users), 0o600))
	s.key = s.makeKey(t, store)
	opt := fxfer.ServerOptions{
		Home: home, Listen: "127.0.0.1:0", Doors: fxfer.Doors{SFTP: "127.0.0.1:0"},
		Shares: []fxfer.Share{
			{Name: "docs", Dir: s.share("docs"), Rights: identity.Read | identity.Write},
			{Name: "scans", Dir: s.share("scans"), Rights: identity.Read | identity.Write},
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&opt)
	}
	s.Server, err = fxfer.NewServer(opt)
	require.NoError(t, err)
	s.name = s.Doors()[0].Addr
	_, s.port, err = net.SplitHostPort(s.name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return s
}

// makeKey gives anna a key.
func (s *site) makeKey(t *testing.T, store *identity.Store) (file string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	require.NoError(t, store.AddKey("anna", string(ssh.MarshalAuthorizedKey(key))))
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	file = s.share("key")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	return file
}

// need skips a test without these programs.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s", p)
		}
	}
}

// run runs a program, and returns its output.
func run(t *testing.T, input, program string, args ...string) (string, error) {
	t.Helper()
	out, err := output(t, input, program, args...)
	t.Logf("%s %q: %v\n%s", program, args, err, out)
	return out, err
}

// output is run without a log.
func output(t *testing.T, input, program string, args ...string) (string, error) {
	t.Helper()
	return outputIn(t, t.TempDir(), input, program, args...)
}

// outputIn is output in a home folder. It returns what the program has said, then its errors: in one
// pipe, ssh makes that of sftp non-blocking, and sftp loses what a reader is too slow for, without an
// error.
func outputIn(t *testing.T, home, input, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Stdin = strings.NewReader(input)
	c.Dir = home
	c.Env = append(os.Environ(), "HOME="+home, "LC_ALL=C.UTF-8")
	var out, faults bytes.Buffer
	c.Stdout, c.Stderr = &out, &faults
	err := c.Run()
	return out.String() + faults.String(), err
}

// must is run for what has to succeed.
func must(t *testing.T, input, program string, args ...string) string {
	t.Helper()
	out, err := run(t, input, program, args...)
	require.NoError(t, err, "%s", out)
	return out
}

// write writes a file with random content, and returns that.
func write(t *testing.T, path string, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	_, _ = cryptorand.Read(data)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return data
}

// requireFile asserts what a file holds.
func requireFile(t *testing.T, want []byte, path string) {
	t.Helper()
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, have), "%s has %d bytes, not the %d expected", path, len(have), len(want))
}

// arrives waits until a file is as expected: sshfs closes files behind the back of its users.
func arrives(t *testing.T, want []byte, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		have, err := os.ReadFile(path)
		return err == nil && bytes.Equal(want, have)
	}, patience, 10*time.Millisecond, path)
}

// names returns all entries below a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if p != dir {
			rel, _ := filepath.Rel(dir, p)
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	}))
	return all
}

// many makes a folder of 10,000 names in a share.
func (s *site) many(t *testing.T, folder string) {
	t.Helper()
	require.NoError(t, os.Mkdir(s.share(folder), 0o700))
	for i := range 10_000 {
		require.NoError(t, os.WriteFile(s.share(folder, fmt.Sprintf("n%05d", i)), nil, 0o600))
	}
}

var manyNames = regexp.MustCompile(`\bn\d{5}\b`)

// requireMany asserts that a list has the names that many has made.
func requireMany(t *testing.T, list string) {
	t.Helper()
	all := map[string]bool{}
	for _, name := range manyNames.FindAllString(list, -1) {
		all[name] = true
	}
	require.Len(t, all, 10_000)
}

// quietly is must without the output in the log.
func quietly(t *testing.T, input, program string, args ...string) string {
	t.Helper()
	out, err := output(t, input, program, args...)
	require.NoError(t, err, "%.2000s", out)
	return out
}

// crowd has 20 runs of a program at once. Each sends a file as docs/NAME, and gets it back. The names
// have that of the test, because crowds of several programs may use one share at once.
func (s *site) crowd(t *testing.T, client func(from, name, back string) (input, program string, args []string)) {
	t.Helper()
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	data := write(t, from, 300_000)
	var all sync.WaitGroup
	nameOf := func(i int) string { return fmt.Sprintf("%s crowd %d", path.Base(t.Name()), i) }
	for i := range 20 {
		name := nameOf(i)
		input, program, args := client(from, name, filepath.Join(dir, name))
		all.Go(func() {
			out, err := output(t, input, program, args...)
			if _, lost := os.Stat(filepath.Join(dir, name)); err != nil || lost != nil { // tnftp says that all is well
				t.Errorf("%s: %v: %.2000s", name, err, out)
			}
		})
	}
	all.Wait()
	for i := range 20 {
		name := nameOf(i)
		requireFile(t, data, s.share("docs", name))
		requireFile(t, data, filepath.Join(dir, name))
	}
}

// mirror has rclone send a tree to a folder of a door, 20 files at once, and compare it there, with the
// entries of extra as well, then remove a file here and there. It returns how to run rclone.
func mirror(t *testing.T, remote, there string, extra ...string) (rclone func(args ...string) string) {
	t.Helper()
	rclone = func(args ...string) string {
		t.Helper()
		return quietly(t, "", "rclone", append([]string{"--config", "", "--no-check-certificate", "--transfers", "20"}, args...)...)
	}
	from := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(from, "in"), 0o700))
	for i := range 20 {
		write(t, filepath.Join(from, "in", fmt.Sprintf("file %d", i)), 1000*i)
	}
	for _, name := range extra {
		write(t, filepath.Join(from, "in", name), 10)
	}
	rclone("sync", from, remote)
	rclone("check", "--download", from, remote)
	require.NoError(t, os.Remove(filepath.Join(from, "in", "file 3")))
	rclone("sync", from, remote)
	require.Equal(t, names(t, from), names(t, there))
	return rclone
}

// obscured is the password as rclone takes it.
func obscured(t *testing.T) string {
	t.Helper()
	need(t, "rclone")
	return strings.TrimSpace(must(t, "", "rclone", "obscure", password))
}

// seeded returns a source of random numbers, and prints its seed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}
