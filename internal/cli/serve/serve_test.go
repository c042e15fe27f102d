package serve

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestParseShareFlag(t *testing.T) {
	const rw = identity.Read | identity.Write
	for in, want := range map[string]fxfer.Share{
		"pub=/srv/pub":        {Name: "pub", Dir: "/srv/pub", Rights: rw},
		"pub=/srv/pub:ro":     {Name: "pub", Dir: "/srv/pub", Rights: identity.Read},
		"in=/srv/in:wo":       {Name: "in", Dir: "/srv/in", Rights: identity.Write},
		"in=/srv/in:rw":       {Name: "in", Dir: "/srv/in", Rights: rw},
		"a=/x:y:ro":           {Name: "a", Dir: "/x:y", Rights: identity.Read},
		"a=/x:y":              {Name: "a", Dir: "/x:y", Rights: rw},
		"a=/x:RO":             {Name: "a", Dir: "/x:RO", Rights: rw},
		"a=/x=y":              {Name: "a", Dir: "/x=y", Rights: rw},
		"/x=y":                {Dir: "/x=y", Rights: rw},
		"./a=b:wo":            {Dir: "./a=b", Rights: identity.Write},
		"/srv/pub:ro":         {Dir: "/srv/pub", Rights: identity.Read},
		`C:\data`:             {Dir: `C:\data`, Rights: rw},
		`d=C:\data:ro`:        {Name: "d", Dir: `C:\data`, Rights: identity.Read},
		"files=":              {Name: "files", Rights: rw},
		"my files=/srv/files": {Name: "my files", Dir: "/srv/files", Rights: rw},
	} {
		require.Equal(t, want, parseShareFlag(in), in)
	}
}

func TestSetShares(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"pub", "in:ro", "x/pub"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	t.Chdir(filepath.Join(dir, "pub"))

	f := serveFlags{shares: []string{"../in:ro:wo", "x=../x/pub:ro"}}
	require.NoError(t, f.setShares([]string{"."}))
	require.Equal(t, []fxfer.Share{
		{Name: "pub", Dir: filepath.Join(dir, "pub"), Rights: identity.Read | identity.Write},
		{Name: "in:ro", Dir: filepath.Join(dir, "in:ro"), Rights: identity.Write},
		{Name: "x", Dir: filepath.Join(dir, "x/pub"), Rights: identity.Read},
	}, f.opt.Shares)

	for name, c := range map[string]struct {
		args   []string
		shares []string
		want   string
		kind   fxfer.Kind
	}{
		"none":        {nil, nil, "nothing to offer", fxfer.KindUsage},
		"root":        {[]string{"/"}, nil, "can't be the name of a share", fxfer.KindUsage},
		"twice":       {[]string{"."}, []string{"../x/pub"}, `two shares have the name "pub"`, fxfer.KindUsage},
		"no folder":   {nil, []string{"a="}, `the folder of the share "a" is missing`, fxfer.KindUsage},
		"no name":     {nil, []string{"..=/"}, "can't be the name of a share", fxfer.KindUsage},
		"missing":     {[]string{"nothing"}, nil, "no such file", fxfer.KindLocalDisk},
		"not folder":  {[]string{"../file"}, nil, "is not a folder", fxfer.KindLocalDisk},
		"right typed": {nil, []string{"a=.:or"}, "no such file", fxfer.KindLocalDisk},
	} {
		f := serveFlags{shares: c.shares}
		err := f.setShares(c.args)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, c.kind, fxfer.KindOf(err), name)
	}
}

// TestInviteTakesNoValue: a name after --invite is taken for a folder; the hint says what it is.
func TestInviteTakesNoValue(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, invite := range []bool{true, false} {
		f := serveFlags{invite: invite, shares: []string{"pub=."}}
		require.Equal(t, invite, strings.Contains(hint.Of(f.setShares([]string{"pub"})), "--invite takes no value"))
	}
}

func TestReachableHost(t *testing.T) {
	require.Equal(t, "192.0.2.7", reachableHost(&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}))
	require.Equal(t, "fe80::1%eth0", reachableHost(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 1}))
	require.Equal(t, "::1", reachableHost(&net.TCPAddr{IP: net.IPv6loopback, Port: 1}))
	for _, any := range []net.IP{nil, net.IPv4zero, net.IPv6unspecified} {
		host := reachableHost(&net.TCPAddr{IP: any, Port: 1})
		require.NotEmpty(t, host)
		_, _, err := identity.SplitHost(host)
		require.NoError(t, err)
	}
}

// The name in an invitation has no port: another flag has that.
func TestParseName(t *testing.T) {
	parse := nameParser("--port has it")
	for in, want := range map[string]string{
		"NAS.example": "nas.example", "192.0.2.1": "192.0.2.1", "[2001:DB8::1]": "2001:db8::1", "2001:db8::1": "2001:db8::1",
	} {
		got, err := parse(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for in, want := range map[string]string{
		"": "missing", "two words": "not a host", "fxfer://nas": "fxfer://nas",
		"nas:80": "--port has it", "nas:7433": "--port has it", "nas:": "--port has it", "[::1]:7433": "--port has it",
	} {
		_, err := parse(in)
		require.ErrorContains(t, err, want, in)
	}
}

// A reload names the keys that need a restart.
func TestNeedRestart(t *testing.T) {
	was := &serveFlags{web: "7434"}
	is := &serveFlags{web: "7435"}
	require.Empty(t, was.needRestart(was))
	is.opt.Listen, is.opt.TLS.Key, is.log.audit, is.opt.RateLimit = ":1", "k", "a", 5
	require.Equal(t, []string{"listen", "web", "audit-log", "tls: key"}, was.needRestart(is))
}

// TestLinkedSecret keeps the folder that the secret of a webhook is in, behind a symlink, too.
func TestLinkedSecret(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	target, link := filepath.Join(dir, "run", "token"), filepath.Join(dir, "etc", "token")
	require.NoError(t, os.Mkdir(filepath.Dir(target), 0o700))
	require.NoError(t, os.Mkdir(filepath.Dir(link), 0o700))
	require.NoError(t, os.WriteFile(target, []byte("token"), 0o600))
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	f := serveFlags{forwards: []outbox.Forward{{Webhook: outbox.Webhook{Secret: link}}}}
	require.Equal(t, []fxfer.Folder{{Path: filepath.Dir(link)}, {Path: filepath.Dir(target)}}, f.folders())
}

// TestListenHint: a hint about ports names the port that failed, and is not for a folder that may not
// be read.
func TestListenHint(t *testing.T) {
	denied := os.NewSyscallError("bind", syscall.EACCES)
	require.Contains(t, listenHint(&net.OpError{Op: "listen", Net: "tcp", Err: denied}, ":443"), "ports below 1024")
	door := &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2022}, Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}
	require.Contains(t, listenHint(door, ":7433"), ":2022 means all of its addresses")
	require.Empty(t, listenHint(&fs.PathError{Op: "open", Path: "/root", Err: syscall.EACCES}, ":7433"))
}
