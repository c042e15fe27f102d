package ssh

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestTargets(t *testing.T) {
	for in, want := range map[string]target{
		"nas:":                    {host: "nas"},
		"nas:a":                   {host: "nas", path: "a"},
		"nas:a/":                  {host: "nas", path: "a/", folder: true},
		"nas:/":                   {host: "nas", path: "/", folder: true},
		"nas:/a b/c":              {host: "nas", path: "/a b/c"},
		"nas:~/a":                 {host: "nas", path: "~/a"},
		"me@nas:../a:b":           {host: "me@nas", path: "../a:b"},
		"me@corp@nas:a":           {host: "me@corp@nas", path: "a"},
		"[2001:db8::1]:a":         {host: "2001:db8::1", path: "a"},
		"me@[fe80::1%eth0]:/a":    {host: "me@fe80::1%eth0", path: "/a"},
		"nas:a/*.iso":             {host: "nas", path: "a", below: "*.iso"},
		"nas:*":                   {host: "nas", below: "*"},
		"nas:/*/x":                {host: "nas", path: "/", below: "*/x"},
		"nas:50%/a?#":             {host: "nas", path: "50%", below: "a?%23"},
		"ssh://nas":               {host: "nas"},
		"ssh://nas/":              {host: "nas", path: "/", folder: true},
		"ssh://me@nas:2222/a%20b": {host: "me@nas", port: 2222, path: "/a b"},
		"SSH://[::1]:22/~/a/":     {host: "::1", port: 22, path: "~/a/", folder: true},
		"ssh://[::1]/a":           {host: "::1", path: "/a"},
		"ssh://nas/~":             {host: "nas", path: "~"},
		"ssh://nas/%2A/b*%2A":     {host: "nas", path: "/*", below: "b*%2A"},
	} {
		require.True(t, Is(in), in)
		got, err := parse(in, true)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{
		"", "a", ":a", "/a:b", "./a:b", "a/b:c", "-", "fxfer://h/s", "http://h/s", "fxfer:/h/s", "[a", "a[1]", "dir/[::1]:a",
	} {
		require.False(t, Is(in), in)
	}
	for in, want := range map[string]string{
		"-oProxyCommand=x:a":      "can't begin with -",
		"-l@nas:a":                "can't begin with -",
		"me@-x:a":                 "can't begin with -",
		"[-oProxyCommand=x]:a":    "can't begin with -",
		"ssh://-oProxyCommand=x/": "can't begin with -",
		"ssh://nas:0/a":           "is not a port",
		"ssh://nas:x/a":           "is not a port",
		"ssh:///a":                "is empty",
		"me@:a":                   "is empty",
		"@nas:a":                  "is empty",
		"n$(id):a":                "can't be in the name",
		"n a:b":                   "can't be in the name",
		"n`x`:b":                  "can't be in the name",
		"n;x:b":                   "can't be in the name",
		"n\nx:b":                  "can't be in the name",
		"ssh://nas/a%2":           "invalid URL escape",
		"ssh://nas/a%2Fb":         "can't hold a slash",
	} {
		require.True(t, Is(in), in)
		_, err := parse(in, true)
		require.ErrorContains(t, err, want, in)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), in)
	}
	literal, err := parse("nas:a[1]", false)
	require.NoError(t, err)
	require.Equal(t, target{host: "nas", path: "a[1]"}, literal)
}

// FuzzTarget: whatever a target is, no part of it is an option of ssh, and its URL can be parsed.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"nas:a", "me@[::1]:*/b", "ssh://u@h:22/~/a%20b/?", "-x:y", "[]:", "@[]:", "h:a//b/", "h:\xff*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !Is(s) {
			return
		}
		got, err := parse(s, true)
		if err != nil {
			return
		}
		require.NotEmpty(t, got.host)
		require.NotEqual(t, byte('-'), got.host[0])
		require.NotContains(t, got.host, " ")
		if strings.Contains("/"+got.below+"/", "/../") || strings.Contains("/"+got.below+"/", "/./") {
			return // a pattern can't be followed by these; ParsePattern says so
		}
		u := got.urlOf(fxfer.URL{Host: "h", Port: 1, Share: "s"}, "a/b")
		require.True(t, fxfer.IsURL(u))
	})
}

func TestURLs(t *testing.T) {
	server := fxfer.URL{Host: "::1", Port: 50000, Share: "a b"}
	for in, want := range map[string]string{
		"nas:x":     "fxfer://[::1]:50000/a%20b/p/q",
		"nas:x/":    "fxfer://[::1]:50000/a%20b/p/q/",
		"nas:*.o/y": "fxfer://[::1]:50000/a%20b/p/q/*.o/y",
		"nas:x/?/":  "fxfer://[::1]:50000/a%20b/p/q/?/",
	} {
		got, err := parse(in, true)
		require.NoError(t, err)
		text := got.urlOf(server, "p/q")
		require.Equal(t, want, text)
		_, _, err = fxfer.ParsePattern(text)
		require.NoError(t, err)
	}
	got, err := parse("nas:*", true)
	require.NoError(t, err)
	require.Equal(t, "fxfer://[::1]:50000/a%20b/*", got.urlOf(server, ""))
}

// TestForgottenScheme: what is a port in a URL is a path for ssh, so the user may have forgotten fxfer://.
func TestForgottenScheme(t *testing.T) {
	for in, want := range map[string]string{
		"nas:7433/backup/a": "fxfer://nas:7433/backup/a",
		"nas:7433":          "fxfer://nas:7433/",
		"[::1]:7433/backup": "fxfer://[::1]:7433/backup",
		"nas:/7433/backup":  "",
		"nas:backup":        "",
		"nas:74330/backup":  "",
		"me@nas:7433/a":     "",
		"ssh://nas/~/7433":  "",
		"ssh://nas:22/7433": "",
	} {
		got, err := parse(in, false)
		require.NoError(t, err)
		require.Equal(t, want, got.asURL(), in)
	}
}

// FuzzExchange: neither side's lines make the other side panic, and an answer is whole.
func FuzzExchange(f *testing.F) {
	f.Add([]byte("Welcome!\nfxfer-once {\"protocol\":1,\"port\":7,\"paths\":[\"a\"]}\n"))
	f.Add([]byte("{\"protocol\":1,\"client\":\"ed25519:x\",\"paths\":[\"a\"],\"ports\":{\"first\":1}}\n"))
	f.Add([]byte("call 50000 000102030405060708090a0b0c0d0e0f\n"))
	f.Add([]byte("fxfer-once upload Linux x86_64\nfxfer-once failed x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if q, err := ReadRequest(bufio.NewReader(bytes.NewReader(text))); err == nil && q.word() != "" {
			again, err := ParseRequest(q.word())
			require.NoError(t, err)
			require.Equal(t, q, again)
		}
		_, _ = ParseRequest(string(text))
		if call, err := ReadCall(bufio.NewReader(bytes.NewReader(text))); err == nil && call != nil {
			again, err := ReadCall(bufio.NewReader(strings.NewReader(call.line())))
			require.NoError(t, err)
			require.Equal(t, call, again)
		}
		r := bufio.NewReader(bytes.NewReader(text))
		q := &Request{Protocol: 1, Paths: []string{"a"}}
		for {
			line, err := readMarked(r)
			if err != nil {
				return
			}
			_, _ = parseFailed(line)
			if a, err := parseAnswer(line, q); err == nil && a.Error == "" && a.Protocol == 1 {
				require.Len(t, a.Paths, 1)
				require.Positive(t, a.Port)
			}
		}
	})
}

func TestFlagValues(t *testing.T) {
	for in, want := range map[string][]string{
		"ssh":                      {"ssh"},
		" ssh  -F  file ":          {"ssh", "-F", "file"},
		`ssh -F '/a b/c' -o"x y"z`: {"ssh", "-F", "/a b/c", "-ox yz"},
		`ssh ''`:                   {"ssh", ""},
	} {
		got, err := splitWords(in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", " ", "ssh 'a"} {
		_, err := splitWords(in)
		require.Error(t, err, in)
	}
	for in, want := range map[string]Ports{"any": {}, "5": {5, 5}, "50000-50100": {50000, 50100}} {
		got, err := parsePorts(in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "0", "a", "5-4", "1-", "-1", "1-65536", "1-2-3"} {
		_, err := parsePorts(in)
		require.Error(t, err, in)
	}
}

func TestSystemOf(t *testing.T) {
	for in, want := range map[string][2]string{
		"Linux x86_64\n":      {"linux", "amd64"},
		"Linux aarch64":       {"linux", "arm64"},
		"Linux armv7l":        {"linux", "arm"},
		"Linux riscv64":       {"linux", "riscv64"},
		"Darwin arm64":        {"darwin", "arm64"},
		"FreeBSD amd64":       {"freebsd", "amd64"},
		"":                    {},
		"Linux":               {},
		"MINGW64_NT-10.0 a":   {},
		"../../etc a":         {},
		"linux ../../../etc":  {},
		"linux amd64 ../a b ": {},
	} {
		goos, goarch := systemOf(in)
		require.Equal(t, want, [2]string{goos, goarch}, in)
	}
}

// TestScript: the script takes a program whole or not at all, and leaves nothing.
func TestScript(t *testing.T) {
	needsSh(t)
	script := scriptFor((&Request{Paths: []string{"'\\!"}}).word())
	require.NotContains(t, strings.TrimSuffix(strings.TrimPrefix(script, "sh -c '"), "'"), "'")
	require.NotContains(t, script, `\`)
	require.NotContains(t, script, "!")
	const program = "#!/bin/sh\necho ran \"$@\"; echo \"$0\"; cat\n"
	const digest = "0f4a6efa" // not that of the program
	for name, c := range map[string]struct {
		input string
		want  string
	}{
		"nothing is sent":      {"{}\n", ""},
		"the program is short": {"{}\nupload 1000 " + digest + "\n" + program, "failed what arrived has another digest"},
		"another digest":       {"{}\nupload 10 " + digest + "\n" + program, "failed what arrived has another digest"},
	} {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", script)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "PATH=/usr/bin:/bin")
		cmd.Stdin = strings.NewReader(c.input)
		out, err := cmd.Output()
		require.Error(t, err, name)
		require.Contains(t, string(out), mark+"upload ", name)
		require.Contains(t, string(out), c.want, name)
		require.NotContains(t, string(out), "ran", name)
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.Empty(t, left, name)
	}
}

func needsSh(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		t.Skip("needs a shell of Unix")
	}
}

// TestScriptRuns: the program has the umask of the login, and the script removes its folder, but not
// one that somebody else has made in its place.
func TestScriptRuns(t *testing.T) {
	needsSh(t)
	program := "#!/bin/sh\numask\nrm $0\n"
	if os.Geteuid() == 0 {
		program += "test -z $GIVE || chown 65534 ${0%/*}\n"
	}
	for _, give := range []string{"", "yes"} {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", "umask 027; "+scriptFor(""))
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "PATH=/usr/bin:/bin", "GIVE="+give)
		cmd.Stdin = strings.NewReader(fmt.Sprintf("{}\nupload %d %x\n%s", len(program), sha256.Sum256([]byte(program)), program))
		out, err := cmd.Output()
		require.NoError(t, err)
		_, said, _ := strings.Cut(string(out), mark+"arrived\n")
		require.Equal(t, "0027", strings.TrimSpace(said))
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.Equal(t, give != "" && os.Geteuid() == 0, len(left) == 1, left)
	}
}

// TestScriptEnds: a server that crashes has the exit code of one that differs, but no upload follows.
func TestScriptEnds(t *testing.T) {
	needsSh(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fxfer"), []byte("#!/bin/sh\nread -r q\nexit 2\n"), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", scriptFor("e30"))
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "PATH="+dir+":/usr/bin:/bin"), time.Second
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = in.Write([]byte("{}\n\n"))
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.NoError(t, ctx.Err(), "it waits for an upload")
}
