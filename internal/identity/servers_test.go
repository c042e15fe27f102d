package identity

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestSplitHost(t *testing.T) {
	for _, c := range []struct {
		in, host string
		port     int
	}{
		{"Host.Example", "host.example", 7433},
		{"host:80", "host", 80},
		{"host:0080", "host", 80},
		{"10.0.0.1:65535", "10.0.0.1", 65535},
		{"::1", "::1", 7433},
		{"[::1]", "::1", 7433},
		{"[2001:DB8::0:1]:1", "2001:db8::1", 1},
		{"[fe80::1%eth0]:1", "fe80::1%eth0", 1},
		{"my_host-1.", "my_host-1.", 7433},
	} {
		host, port, err := SplitHost(c.in)
		require.NoError(t, err, c.in)
		require.Equal(t, c.host, host)
		require.Equal(t, c.port, port)
	}
	for in, want := range map[string]string{
		"":               "missing",
		":80":            "missing",
		"[]:80":          "not an IPv6 address",
		"[::1":           "missing",
		"[::1]80":        "expected :port",
		"[host]:80":      "not an IPv6 address",
		"::1::2":         "not an IPv6 address",
		"fe80::1%a b":    "not an IPv6 address",
		"host:":          "not a port",
		"host:x":         "not a port",
		"host:-1":        "not a port",
		"host:0":         "not a port",
		"host:65536":     "not a port",
		"a b":            "not a host",
		"-a":             "not a host",
		".a":             "not a host",
		"a..b":           "not a host",
		"müll":           "not a host",
		"a/b":            "not a host",
		"a\nb":           "not a host",
		long("a", 254):   "not a host",
		"user@host:7433": "not a host",
	} {
		_, _, err := SplitHost(in)
		require.ErrorContains(t, err, want, in)
		require.NotContains(t, err.Error(), "\n")
	}
}

func long(s string, n int) string { return strings.Repeat(s, n) }

func TestKnownServers(t *testing.T) {
	s := openTemp(t)
	a, b := PinOf(testKey(1)), PinOf(testKey(2))

	_, known, err := s.KnownServer("host")
	require.NoError(t, err)
	require.False(t, known)
	err = s.CheckServer("Host", a)
	require.ErrorIs(t, err, ErrUnknownServer)
	require.NotErrorIs(t, err, ErrServerChanged)
	require.Equal(t, &UnknownServerError{Server: "host:7433", Offered: a, File: s.path(serversFile)}, err)
	require.NotContains(t, err.Error(), "is known as")
	require.ErrorContains(t, err, string(a))

	require.NoError(t, s.AddKnownServer("HOST", a))
	require.NoError(t, s.AddKnownServer("host:7433", a))
	require.NoError(t, s.AddKnownServer("[::1]:80", b))
	require.Equal(t, serversHeader+"host:7433 "+string(a)+"\n[::1]:80 "+string(b)+"\n", readText(t, s.path(serversFile)))
	requireMode(t, s.path(serversFile), 0o600)
	pin, known, err := s.KnownServer("[0::1]:80")
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, b, pin)
	require.NoError(t, s.CheckServer("host", a))
	err = s.CheckServer("other:1", a)
	require.ErrorIs(t, err, ErrUnknownServer)
	require.ErrorContains(t, err, string(a)+", which is known as that of host:7433")

	for _, err := range []error{s.CheckServer("host", b), s.AddKnownServer("host", b)} {
		require.ErrorIs(t, err, ErrServerChanged)
		require.NotErrorIs(t, err, ErrUnknownServer)
		require.Equal(t, &ServerChangedError{Server: "host:7433", Known: a, Offered: b, File: s.path(serversFile), Line: 2}, err)
		for _, part := range []string{"HAS CHANGED", string(a), string(b), s.path(serversFile) + ":2"} {
			require.ErrorContains(t, err, part)
		}
	}

	require.Error(t, s.AddKnownServer("host:x", a))
	require.Error(t, s.AddKnownServer("other", "ed25519:x"))
	_, _, err = s.KnownServer("")
	require.Error(t, err)
	require.Error(t, s.CheckServer("", a))
}

func TestKnownServersBadLines(t *testing.T) {
	s := openTemp(t)
	a, b := PinOf(testKey(1)), PinOf(testKey(2))
	text := "# a note\r\n\n good " + string(a) + " # home\r\nbroken line here\nhost:x " + string(a) + "\nhost ed25519:xyz\ntwice " +
		string(a) + "\ntwice:7433 " + string(a) + "\nodd " + string(a) + "\nodd " + string(b)
	write(t, s.path(serversFile), text)

	pin, known, err := s.KnownServer("good")
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, a, pin)
	require.NoError(t, s.CheckServer("twice", a))

	// The broken line could be the one for this server, so the server must not count as unknown.
	err = s.CheckServer("host", a)
	require.NotErrorIs(t, err, ErrUnknownServer)
	require.EqualError(t, err, s.path(serversFile)+":4: expected host:port and a pin, found 3 words (and 2 more bad lines)")
	requireHint(t, err, "correct or delete")

	for _, err := range []error{s.CheckServer("odd", a), s.CheckServer("odd", b), s.AddKnownServer("odd", b)} {
		require.ErrorContains(t, err, ":10: a second key for odd:7433, other than in line 9")
	}

	require.NoError(t, s.AddKnownServer("host", b))
	require.NoError(t, s.CheckServer("host", b))
	require.Equal(t, text+"\nhost:7433 "+string(b)+"\n", readText(t, s.path(serversFile)))
}

func TestAddKnownServerConcurrently(t *testing.T) {
	s := openTemp(t)
	var g errgroup.Group
	for n := range 20 {
		g.Go(func() error {
			other, err := OpenStore(s.dir)
			if err != nil {
				return err
			}
			return other.AddKnownServer(fmt.Sprintf("host%d", n), PinOf(testKey(byte(n))))
		})
	}
	require.NoError(t, g.Wait())
	for n := range 20 {
		require.NoError(t, s.CheckServer(fmt.Sprintf("host%d", n), PinOf(testKey(byte(n)))))
	}
	requireOnly(t, s, serversFile, lockFile)
}

func FuzzServerList(f *testing.F) {
	pin := PinOf(testKey(1))
	f.Add("h:1 "+string(pin)+" # x\n\nbad\n", "h:1")
	f.Add("[::1] "+string(pin), "::1")
	f.Fuzz(func(t *testing.T, text, host string) {
		server, err := normalizeServer(host)
		if err != nil {
			return
		}
		again, err := normalizeServer(server)
		require.NoError(t, err)
		require.Equal(t, server, again)
		name, port, err := SplitHost(server)
		require.NoError(t, err)
		require.Equal(t, server, net.JoinHostPort(name, strconv.Itoa(port)))

		known, line, err := findServer(text, "file", server)
		if known != "" {
			require.NoError(t, err)
			require.Positive(t, line)
			_, err = known.Key()
			require.NoError(t, err)
			return
		}
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		grown := appendLine(text, serversHeader, server+" "+string(pin))
		require.True(t, strings.HasPrefix(grown, text))
		known, _, err = findServer(grown, "file", server)
		require.NoError(t, err)
		require.Equal(t, pin, known)
	})
}
