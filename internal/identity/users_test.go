package identity

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// TestUsers gives users passwords and keys, and logs them in.
func TestUsers(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(t.TempDir())
	require.NoError(t, err)
	is := func(name, password string) bool {
		ok, err := s.CheckPassword(name, password)
		require.NoError(t, err)
		return ok
	}
	require.False(t, is("anna", "first password"))
	require.NoError(t, s.SetPassword("anna", "first password"))
	require.NoError(t, s.SetPassword("bert", "another one"))
	require.True(t, is("anna", "first password"))
	require.False(t, is("anna", "first passwor"))
	require.False(t, is("anna", ""))
	require.False(t, is("bert", "first password"))
	require.NoError(t, s.SetPassword("anna", "second password"))
	require.True(t, is("anna", "second password"))
	require.False(t, is("anna", "first password"))
	require.True(t, is("bert", "another one"))

	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	line := string(ssh.MarshalAuthorizedKey(key))
	require.NoError(t, s.AddKey("anna", line))
	require.NoError(t, s.AddKey("anna", line))
	has, err := s.HasKey("anna", key.Marshal())
	require.NoError(t, err)
	require.True(t, has)
	has, err = s.HasKey("bert", key.Marshal())
	require.NoError(t, err)
	require.False(t, has)
	require.True(t, is("anna", "second password"))

	for _, bad := range []string{"", "a b", "../a", "-a", ".a", "a#", "ä", "a\nb"} {
		require.Error(t, s.SetPassword(bad, "long enough"), bad)
	}
	require.Error(t, s.SetPassword("anna", "short"))
	require.Error(t, s.AddKey("anna", `command="true" `+line), "options would be ignored")

	file := filepath.Join(s.Dir(), usersFile)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "second")
	require.NoError(t, os.WriteFile(file, append(text, "anna $argon2id$v=19$m=4000000,t=2,p=1$c2FsdHNhbHQ$c3Vtc3Vtc3Vtc3Vtc3VtMDA\n"...), 0o600))
	ok, err := s.CheckPassword("anna", "second password")
	require.True(t, ok, "a line with a fault changes no other")
	var bad *LineError
	require.ErrorAs(t, err, &bad)
	require.NoError(t, os.Chmod(file, 0o644))
	_, err = s.CheckPassword("anna", "second password")
	require.ErrorContains(t, err, "others may read")
}

// FuzzUsers reads lines that people may have edited.
func FuzzUsers(f *testing.F) {
	f.Add("anna " + newPasswordHash("password").String())
	f.Add("bert ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx8xXZyWZz8u0vY5dBpl4hVq9gQ0m0kGk6T1P2n3e5G bert@home")
	f.Fuzz(func(t *testing.T, line string) {
		name, u, err := parseUserLine(line)
		if err != nil || name == "" {
			return
		}
		id, err := ParseUser(name)
		require.NoError(t, err)
		parsed, err := ParsePrincipal(string(id))
		require.NoError(t, err)
		require.Equal(t, id, parsed)
		require.NotEqual(t, u.password == nil, u.keys == nil)
		if h := u.password; h != nil {
			again, err := parsePasswordHash(h.String())
			require.NoError(t, err)
			require.Equal(t, h, again)
			require.LessOrEqual(t, h.memory, uint32(maxHashMemory))
		}
	})
}
