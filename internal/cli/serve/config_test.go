package serve

import (
	"cmp"
	"flag"
	"fmt"
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

// exampleValues are what deploy/fxfer.yaml sets. It has other keys as comments, with their defaults.
var exampleValues = map[string]string{
	"allow": `[192.0.2.0/24, "2001:db8::/32"]`, "audit-log": "/var/log/fxfer/audit.log", "client-rate-limit": "200mbit",
	"listen": `":7433"`, "log-format": "json", "rate-limit": "1gbit", "web": "7434",
}

// exampleMappings are the keys of deploy/fxfer.yaml that no flag has.
const exampleMappings = `# Doors for clients of older protocols; none is open by default. docs/old-clients.md explains them.
#doors:
#  sftp: ":2022"
#  ftp:
#    listen: ":2121"              # TLS when the client asks for it
#    implicit-tls: ":990"         # TLS from the first byte
#    passive-ports: 50000-50099   # for data connections; 64 that the system chooses
#    public-address: 192.0.2.7    # that PASV names, behind NAT
#    without-tls: [192.0.2.0/24]  # clients that need no TLS; nobody
#    active: false                # true connects to clients (PORT, EPRT)
#  webdav:
#    listen: ":8443"              # with and without TLS
#    without-tls: [192.0.2.0/24]  # clients that need no TLS; those on this host

# Certificates of a CA, beside keys. All are PEM files. The server rereads them when they change.
# cert with key is optional, and so is client-ca.
#tls:
#  cert: /etc/fxfer/tls/tls.crt            # the server's, then those of intermediate CAs
#  key: /etc/fxfer/tls/tls.key
#  client-ca: /etc/fxfer/tls/ca.crt        # CAs for clients; or system
#  client-crl: /etc/fxfer/tls/ca.crl       # certificates that these CAs revoked

shares:
  files:
    dir: /srv/fxfer
  backup:
    dir: /srv/backup
    rights: wo                 # the most that any client has: rw, ro, wo, or some of
                               # read, write, append and list with + between them
    allow: 192.0.2.0/25        # addresses; the list above has to allow them, too
    rate-limit: 500mbit        # of all sessions on this share
    quota: 2TB                 # sum of the files' lengths
    quota-files: 1000000       # entries, folders included
    #keep: daily=7,weekly=4    # old snapshots to keep, if the right is append
    #privileged: false         # true keeps setuid, setgid, devices and security attributes
    #forward:                  # sends on what arrives: docs/watch.md
    #  url: fxfer://centre/inbox
    #  pin: ed25519:CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA   # the key of that server; the known one
    #  priority: low           # or normal, beside other traffic
    #  rate-limit: 20mbit      # none
    #  settle: 5s              # a complete file has not changed for so long
    #  then: keep              # or delete, or move:FOLDER, once a file is there
    #  confirm: remote         # clients at doors wait until their file is there; without it, not
    #  confirm-within: 30s     # they wait no longer than this
    #  webhook: https://example.org/hook      # gets a POST for each file that is there; none
    #  webhook-secret: /etc/fxfer/hook.token  # for its header Authorization: Bearer; none
  pub: {dir: /srv/pub, rights: ro}

# Clients, besides those that "fxfer clients add" and "fxfer invite" admitted.
# "fxfer clients revoke" also acts on these.
clients:
  nas:
    key: ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA   # as "fxfer key" prints it
    rights: {backup: wo, pub: ro}
    allow: [192.0.2.7]
    rate-limit: 20mbit
    priority: low              # the most that it may have beside other traffic
    max-sessions: 4
  office:
    key: ed25519:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA
    rights: list+read          # on all shares
#  mail:
#    name: dns:mail.example.org # in its certificate, not a key; or uri:…, email:…, cn:…
#    rights: {backup: append}
#  scanner: {user: scanner, rights: {files: wo}}   # at a door, with a password or a key of ssh
#  others: {name: "*", rights: {pub: ro}}   # any other good certificate
`

// example returns deploy/fxfer.yaml: a key for each flag, by name, with what help says, and the
// mappings.
func example() string {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	new(serveFlags).add(flags)
	var out strings.Builder
	out.WriteString(`# Every key of a server, with an example. All keys except shares are optional; those behind a # have
# their default. docs/server.md explains them. "fxfer serve --check-config --config FILE" finds
# faults, and "systemctl reload fxfer" or SIGHUP puts changes into force.

`)
	flags.VisitAll(func(x *pflag.Flag) {
		if slices.Contains(notInServerConfig, x.Name) {
			return
		}
		_, usage := pflag.UnquoteUsage(x)
		line, value := "#"+x.Name+": ", x.DefValue
		if set, ok := exampleValues[x.Name]; ok {
			line, value = x.Name+": ", set
		}
		if _, list := x.Value.(pflag.SliceValue); list {
			value = cmp.Or(value, "[]")
		}
		if line += cmp.Or(value, "none"); len(line)+len(usage) < 66 {
			fmt.Fprintf(&out, "%-32s # %s\n", line, usage)
		} else {
			fmt.Fprintf(&out, "# %s\n%s\n", usage, line)
		}
	})
	return out.String() + "\n" + exampleMappings
}

var update = flag.Bool("update", false, "write deploy/fxfer.yaml anew")

// TestExampleHasEveryKey: deploy/fxfer.yaml is what example returns, and has the keys of shares,
// clients and tls.
func TestExampleHasEveryKey(t *testing.T) {
	const file = "../../../deploy/fxfer.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(example()), 0o644))
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, example(), string(text), "go test ./internal/cli/serve -run TestExampleHasEveryKey -update")
	code, err := os.ReadFile("config.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`config\.(?:Scalar|List|Inner)\("([a-z-]+)"`).FindAllStringSubmatch(string(code), -1) {
		require.Regexp(t, `(?m)[ #{]?`+m[1]+`:`, string(text))
	}
}

// TestExampleDefaults: what the example has behind a # may be set.
func TestExampleDefaults(t *testing.T) {
	text, _, _ := strings.Cut(example(), exampleMappings)
	text = regexp.MustCompile(`(?m)^#([a-z-]+: )`).ReplaceAllString(text, "$1") + "shares: {a: {dir: /srv/a}}\n"
	f, err := loadServer(t, text)
	require.NoError(t, err, text)
	require.Equal(t, fxfer.DefaultMaxSessionsPerClient, f.opt.MaxSessionsPerClient)
}

// TestMostPriority: a bound is one of the three that server.md names.
func TestMostPriority(t *testing.T) {
	for text, good := range map[string]bool{"low": true, "normal": true, "high": true, "auto": false, "": false, "x": false} {
		_, err := parseMostPriority(text)
		require.Equal(t, good, err == nil, "%q: %v", text, err)
	}
}
