package serve

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// loadServer reads a configuration and makes the folders of its shares, which are below /srv.
func loadServer(t *testing.T, text string, args ...string) (*serveFlags, error) {
	t.Helper()
	dir := t.TempDir()
	for _, m := range regexp.MustCompile(`/srv/[a-z]+`).FindAllString(text, -1) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, m), 0o700))
	}
	path := filepath.Join(dir, "fxfer.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "/srv/", filepath.ToSlash(dir)+"/srv/")), 0o600))
	f := &serveFlags{config: path}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.add(flags)
	require.NoError(t, flags.Parse(args))
	return f, f.load(flags, path)
}

// TestExample loads the example configuration in deploy, which contains every key.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/fxfer.yaml")
	require.NoError(t, err)
	f, err := loadServer(t, string(text), "--max-sessions", "7")
	require.NoError(t, err)
	o := f.opt
	require.Equal(t, ":7433", o.Listen)
	require.Equal(t, 7, o.MaxSessions, "the command line goes before the file")
	require.Equal(t, int64(1e9), o.RateLimit)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}, o.Allow)
	require.Len(t, o.Shares, 3)
	require.Equal(t, "backup", o.Shares[1].Name)
	require.Equal(t, identity.Write, o.Shares[1].Rights)
	require.Equal(t, int64(2e12), o.Shares[1].Quota)
	require.Equal(t, int64(1e6), o.Shares[1].QuotaFiles)
	require.Equal(t, int64(5e8), o.Shares[1].RateLimit)
	require.Len(t, o.Clients, 2)
	require.Equal(t, map[string]fxfer.Rights{"backup": identity.Write, "pub": identity.Read}, o.Clients[0].Rights)
	require.Equal(t, map[string]fxfer.Rights{"*": identity.Read}, o.Clients[1].Rights)
	require.Equal(t, 4, o.Clients[0].MaxSessions)
	require.Equal(t, "/var/log/fxfer/audit.log", f.log.audit)
}

// TestAgain reads a configuration a second time, with the same flags.
func TestAgain(t *testing.T) {
	f, err := loadServer(t, "max-sessions: 5\nallow: 192.0.2.1\nshares: {a: {dir: /srv/a}}\n")
	require.NoError(t, err)
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	new(serveFlags).add(flags)
	require.NoError(t, flags.Parse([]string{"--max-sessions", "9", "--allow", "10.0.0.0/8", "--allow", "::1"}))
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(f.config), "b"), 0o700))
	require.NoError(t, os.WriteFile(f.config, []byte("rate-limit: 8mbit\nallow: 192.0.2.2\nshares: {b: {dir: b}}\n"), 0o600))
	fresh, err := f.again(flags)
	require.NoError(t, err)
	require.Equal(t, 9, fresh.opt.MaxSessions)
	require.Equal(t, int64(8e6), fresh.opt.RateLimit)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, fresh.opt.Allow)
	require.Equal(t, []fxfer.Share{{Name: "b", Dir: filepath.Join(filepath.Dir(f.config), "b"), Rights: identity.Read | identity.Write}}, fresh.opt.Shares)
}

func FuzzServerConfig(f *testing.F) {
	f.Add("shares: {a: {dir: /}}\nclients: {b: {key: x, rights: {a: ro}}}")
	f.Add("shares:\n  a: &x {dir: /, rights: rw}\n  b: *x\n")
	f.Add("- 1\n---\nallow: [1, {2: 3}]")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "fxfer.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		s := new(serveFlags)
		s.add(flags)
		if err := s.load(flags, path); err != nil {
			require.Contains(t, err.Error(), "fxfer.yaml")
		}
	})
}

// deploy/fxfer.yaml has every key of the server, of shares, clients and tls.
func TestExampleHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/fxfer.yaml")
	require.NoError(t, err)
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	new(serveFlags).add(flags)
	flags.VisitAll(func(x *pflag.Flag) {
		if !slices.Contains(notInServerConfig, x.Name) {
			require.Regexp(t, `(?m)^#?`+x.Name+`: `, string(text))
		}
	})
	code, err := os.ReadFile("config.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`config\.(?:Scalar|List|Inner)\("([a-z-]+)"`).FindAllStringSubmatch(string(code), -1) {
		require.Regexp(t, `(?m)[ #{]?`+m[1]+`:`, string(text))
	}
}
