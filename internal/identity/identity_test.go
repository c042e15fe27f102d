package identity

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// childEnv holds the folder of a store, and makes the test binary act as another process on it.
const childEnv = "FXFER_IDENTITY_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child prints the pin of the store's key, and adds a server and a client of its own to the lists.
func child(dir, n string) error {
	number, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := OpenStore(dir)
	if err != nil {
		return err
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	fmt.Println(PinOf(key.Public().(ed25519.PublicKey)))
	peer := testKey(byte(number))
	if err := s.AddKnownServer("host"+n, PinOf(peer)); err != nil {
		return err
	}
	return s.Admit(Principal(PinOf(peer)), Grants{"data": Read}, "child "+n)
}

// testKey returns a public key that depends on n only.
func testKey(n byte) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
}

// authorized returns the grants of a client's key, and whether it is admitted.
func authorized(s *Store, key ed25519.PublicKey) (Grants, bool, error) {
	c, known, err := s.Client(Principal(PinOf(key)))
	if !known || c.Revoked {
		return nil, false, err
	}
	return c.Grants, true, nil
}

func openTemp(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "fxfer"))
	require.NoError(t, err)
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func requireMode(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm(), path)
}

// requireHint requires an error with this remedy.
func requireHint(t *testing.T, err error, want string) {
	t.Helper()
	var hinted interface{ Hint() string }
	require.ErrorAs(t, err, &hinted)
	require.Contains(t, hinted.Hint(), want)
}

// requireOnly requires that no temporary file is left in the store's folder.
func requireOnly(t *testing.T, s *Store, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	require.ElementsMatch(t, names, found)
}

func TestProcessesAgree(t *testing.T) {
	const processes = 8
	s := openTemp(t)
	var children []*exec.Cmd
	var outputs [processes]bytes.Buffer
	for n := range processes {
		cmd := exec.Command(os.Args[0], strconv.Itoa(n))
		cmd.Env = append(os.Environ(), childEnv+"="+s.dir)
		cmd.Stdout, cmd.Stderr = &outputs[n], &outputs[n]
		require.NoError(t, cmd.Start())
		children = append(children, cmd)
	}
	for n, cmd := range children {
		require.NoError(t, cmd.Wait(), outputs[n].String())
	}
	key, err := s.Key()
	require.NoError(t, err)
	for n := range processes {
		require.Equal(t, string(PinOf(key.Public().(ed25519.PublicKey)))+"\n", outputs[n].String())
		pin, known, err := s.KnownServer("host" + strconv.Itoa(n))
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, PinOf(testKey(byte(n))), pin)
		grants, admitted, err := authorized(s, testKey(byte(n)))
		require.NoError(t, err)
		require.True(t, admitted)
		require.Equal(t, Grants{"data": Read}, grants)
	}
	requireOnly(t, s, keyFile, serversFile, clientsFile, lockFile)
}

func TestHome(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	t.Setenv("FXFER_HOME", dir)
	home, err := Home()
	require.NoError(t, err)
	require.Equal(t, dir, home)
	requireMode(t, dir, 0o700)

	t.Chdir(dir)
	t.Setenv("FXFER_HOME", "state")
	home, err = Home()
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(home))
	require.DirExists(t, filepath.Join(dir, "state"))

	config := t.TempDir()
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		t.Setenv(name, config)
	}
	t.Setenv("FXFER_HOME", "")
	home, err = Home()
	require.NoError(t, err)
	want, err := os.UserConfigDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(want, "fxfer"), home)

	t.Setenv("FXFER_HOME", filepath.Join(dir, "file", "state"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, err = Home()
	var helps interface{ Hint() string }
	require.ErrorAs(t, err, &helps, "%v", err)
	require.Contains(t, helps.Hint(), "FXFER_HOME")
}

func TestOpenStoreRefuses(t *testing.T) {
	_, err := OpenStore("")
	require.Error(t, err)

	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	_, err = OpenStore(filepath.Join(dir, "file"))
	require.Error(t, err)

	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(dir, 0o777))
		_, err = OpenStore(dir)
		require.ErrorContains(t, err, "everyone may change it (mode 0777)")
		requireHint(t, err, "chmod o-w "+dir)
	}
}

func TestListsThatEveryoneMayChangeAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no mode bits")
	}
	s := openTemp(t)
	require.NoError(t, s.AddKnownServer("h", PinOf(testKey(1))))
	require.NoError(t, s.Admit(Principal(PinOf(testKey(1))), Grants{"a": Read}, ""))
	for _, name := range []string{serversFile, clientsFile} {
		require.NoError(t, os.Chmod(s.path(name), 0o666))
	}
	_, known, err := s.KnownServer("h")
	require.False(t, known)
	requireHint(t, err, "chmod o-w ")
	require.Error(t, s.AddKnownServer("i", PinOf(testKey(1))))
	_, admitted, err := authorized(s, testKey(1))
	require.False(t, admitted)
	requireHint(t, err, "chmod o-w ")
}

func TestUpdateKeepsModeAndLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links and modes")
	}
	s := openTemp(t)
	target := filepath.Join(t.TempDir(), "servers")
	write(t, target, "# mine")
	require.NoError(t, os.Chmod(target, 0o640))
	require.NoError(t, os.Symlink(target, s.path(serversFile)))
	require.NoError(t, s.AddKnownServer("h", PinOf(testKey(1))))
	require.Equal(t, "# mine\nh:7433 "+string(PinOf(testKey(1)))+"\n", readText(t, target))
	requireMode(t, target, 0o640)
	requireOnly(t, s, serversFile, lockFile)
}
