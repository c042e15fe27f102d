package session

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	testToken = "q83vEjRWeJCrze8SNFZ4kKvN"
	testPin   = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		in   string
		want URL
		text string // canonical form, if other than in
	}{
		{"fxfer://host/data", URL{Host: "host", Port: 7433, Share: "data"}, ""},
		{"fxfer://host:7433/data", URL{Host: "host", Port: 7433, Share: "data"}, "fxfer://host/data"},
		{"FXFER://Host.Example:80/Data", URL{Host: "host.example", Port: 80, Share: "Data"}, "fxfer://host.example:80/Data"},
		{"fxfer://host", URL{Host: "host", Port: 7433}, "fxfer://host/"},
		{"fxfer://host/", URL{Host: "host", Port: 7433}, ""},
		{"fxfer://host/data/", URL{Host: "host", Port: 7433, Share: "data", TrailingSlash: true}, ""},
		{"fxfer://host/data/a/b", URL{Host: "host", Port: 7433, Share: "data", Path: "a/b"}, ""},
		{"fxfer://host/data//a///b//", URL{Host: "host", Port: 7433, Share: "data", Path: "a/b", TrailingSlash: true}, "fxfer://host/data/a/b/"},
		{"fxfer://[::1]:9/data", URL{Host: "::1", Port: 9, Share: "data"}, ""},
		{"fxfer://[2001:DB8:0::1]/data", URL{Host: "2001:db8::1", Port: 7433, Share: "data"}, "fxfer://[2001:db8::1]/data"},
		{"fxfer://[fe80::1%25eth0]:7433/d", URL{Host: "fe80::1%eth0", Port: 7433, Share: "d"}, "fxfer://[fe80::1%25eth0]/d"},
		{"fxfer://[fe80::1%eth0]/d", URL{Host: "fe80::1%eth0", Port: 7433, Share: "d"}, "fxfer://[fe80::1%25eth0]/d"},
		{"fxfer://h/d/M%C3%BCll%20%25%3F%23.txt", URL{Host: "h", Port: 7433, Share: "d", Path: "Müll %?#.txt"}, ""},
		{"fxfer://h/my share/x y&z", URL{Host: "h", Port: 7433, Share: "my share", Path: "x y&z"}, "fxfer://h/my%20share/x%20y%26z"},
		{"fxfer://h/d/%ff%0A", URL{Host: "h", Port: 7433, Share: "d", Path: "\xff\n"}, "fxfer://h/d/%FF%0A"},
		{"fxfer://h/d/.../..a/@b:c=d,e+f", URL{Host: "h", Port: 7433, Share: "d", Path: ".../..a/@b:c=d,e+f"}, ""},
		{"fxfer://" + testToken + ":" + testPin + "@h:7000/d",
			URL{Host: "h", Port: 7000, Share: "d", Token: testToken, Pin: "ed25519:" + testPin}, ""},
	} {
		u, err := ParseURL(c.in)
		require.NoError(t, err, c.in)
		require.Equal(t, c.want, u, c.in)
		if c.text == "" {
			c.text = c.in
		}
		require.Equal(t, c.text, u.String())
	}
}

func TestParseURLRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "expected fxfer://host",
		"host:/data":                       "expected fxfer://host",
		"http://host/data":                 "expected fxfer://host",
		"fxfer://":                         "the host is missing",
		"fxfer:///data":                    "the host is missing",
		"fxfer://:7433/data":               "the host is missing",
		"fxfer://host:/data":               `"" is not a port`,
		"fxfer://host:0/data":              `"0" is not a port`,
		"fxfer://host:65536/data":          `"65536" is not a port`,
		"fxfer://host:+80/data":            `"+80" is not a port`,
		"fxfer://ho st/data":               `"ho st" is not a host`,
		"fxfer://[::1/data":                "] of the IPv6 address is missing",
		"fxfer://[::1]80/data":             "expected :port after the ]",
		"fxfer://[1.2.3.4]/data":           "not an IPv6 address",
		"fxfer://1:2:3/data":               `"1:2:3" is not an IPv6 address`,
		"fxfer://[fe80::1%]/d":             "not an IPv6 address",
		"fxfer://host//data":               "the name of the share is empty",
		"fxfer://host/../data":             `".." can't be the name of a share`,
		"fxfer://host/%2e%2E/data":         `".." can't be the name of a share`,
		"fxfer://host/*/data":              `"*" can't be the name of a share`,
		"fxfer://host/a%2Fb":               "without slashes",
		"fxfer://host/a%00b":               "control characters",
		"fxfer://host/d/../e":              `".." in the path`,
		"fxfer://host/d/%2e%2e/e":          `".." in the path`,
		"fxfer://host/d/.":                 `"." in the path`,
		"fxfer://host/d/a%2f..":            `"a%2f.." in the path`,
		"fxfer://host/d/a%00":              "a NUL",
		"fxfer://host/d/a%zz":              `"%zz" is not an escape`,
		"fxfer://host/d/100%":              `"%" is not an escape`,
		"fxfer://host/d?x=1":               "write it as %3F",
		"fxfer://host/d/e#1":               "write it as %23",
		"fxfer://user@host/d":              "fxfer has no user names or passwords",
		"fxfer://TOKEN:PIN@host/d":         `"TOKEN:PIN" is a placeholder: paste the URL`,
		"fxfer://@host/d":                  "fxfer has no user names",
		"fxfer://" + testToken + "@host/d": "only what `fxfer serve --invite` prints",
		"fxfer://" + testToken + ":" + testPin[1:] + "@h/d":             "the key in the invitation is damaged",
		"fxfer://" + testToken + ":" + testPin + "x@h/d":                "the key in the invitation is damaged",
		"fxfer://" + testToken + ":" + testPin + "@/d":                  "the host is missing",
		"fxfer://" + testToken + ":" + testPin + "/d":                   "is not a port",
		"fxfer://" + testToken + ":" + testPin + ":h:1/d":               "is not an IPv6 address",
		"fxfer://h:" + testToken + "/d":                                 "is not a port",
		"fxfer://h/d/" + testToken + "%2F" + testPin:                    "in the path is refused",
		"fxfer://" + testToken + ":" + testPin + "@h/d/../" + testToken: `".." in the path`,
	} {
		_, err := ParseURL(in)
		require.ErrorContains(t, err, want, in)
		require.Equal(t, KindUsage, KindOf(err), in)
		require.NotContains(t, err.Error(), "\n", in)
		require.NotRegexp(t, secretLike, err.Error(), in)
	}
}

func TestURLHidesToken(t *testing.T) {
	u, err := ParseURL("fxfer://" + testToken + ":" + testPin + "@h/d")
	require.NoError(t, err)
	require.Equal(t, "fxfer://h/d", u.Redacted())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("joined", "url", u)
	require.Contains(t, log.String(), "url=fxfer://h/d\n")
	u.Token, u.Pin = "", ""
	require.Equal(t, u.String(), u.Redacted())
}

func TestIsURL(t *testing.T) {
	for s, want := range map[string]bool{
		"fxfer://h/d": true, "FXFER://h": true, "fxfer://": true,
		"fxfer:/h": false, "./fxfer://h": false, "host:path": false, "": false,
	} {
		require.Equal(t, want, IsURL(s), s)
	}
}

// plain has the characters that no common shell treats specially inside a word, and the brackets of
// IPv6 addresses.
var plain = regexp.MustCompile(`^[][A-Za-z0-9/:._+,=@%-]*$`)

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"fxfer://h/d", "fxfer://[fe80::1%2525]:1/d/a//b/", "fxfer://h/%ff%2e/..%20", "fxfer://h:7433//", "fxfer://[::ffff:1.2.3.4]/x/%41",
		"fxfer://" + testToken + ":" + testPin + "@h:7000/d/~!$&*?#'\"\\",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			require.NotRegexp(t, secretLike, err.Error())
			require.NotContains(t, err.Error(), "\n")
			return
		}
		text := u.String()
		require.Regexp(t, plain, text)
		again, err := ParseURL(text)
		require.NoError(t, err)
		require.Equal(t, u, again)
		require.Equal(t, text, again.String())
		for element := range strings.SplitSeq(u.Path, "/") {
			require.NotContains(t, []string{".", ".."}, element)
		}
		require.NotContains(t, u.Path, "\x00")
		if u.Token != "" {
			require.NotContains(t, u.Redacted(), u.Token)
		}
	})
}
