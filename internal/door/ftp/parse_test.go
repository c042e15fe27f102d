package ftp

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestReadLine(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ sent, command, arg string }{
		{"noop\r\n", "NOOP", ""},
		{"STOR  a b \n", "STOR", " a b "},
		{"STOR \xc3\xa4\r\n", "STOR", "ä"},
		{"STOR \xff\xff\r\n", "STOR", "\xff"},
		{"\xff\xf4\xff\xf2ABOR\r\n", "ABOR", ""},
		{"\xff\xf4\xffABOR\r\n", "ABOR", ""}, // the urgent byte is elsewhere
		{"\xff\xfb\x01\xff\xfe\x01QUIT\r\n", "QUIT", ""},
		{"QUIT\xff\r\n", "QUIT", ""},
		{"\r\n", "", ""},
		{" NOOP\r\n", "", ""},
		{"GET / HTTP/1.1\r\n", "GET", "/ HTTP/1.1"},
		{"MKD a\x00b\r\n", "", ""},
		{"MKD a\rb\r\n", "", ""},
		{"MK-D a\r\n", "", ""},
		{strings.Repeat("A", 9) + "\r\n", "", ""},
	} {
		line, err := readLine(bufio.NewReader(strings.NewReader(x.sent)))
		require.NoError(t, err)
		command, arg, ok := parseLine(line)
		require.Equal(t, x.command != "", ok, "%q", x.sent)
		require.Equal(t, x.command, command, "%q", x.sent)
		require.Equal(t, x.arg, arg, "%q", x.sent)
	}
	_, err := readLine(bufio.NewReader(strings.NewReader(strings.Repeat("a", 1<<20))))
	require.ErrorIs(t, err, errLongLine)
	_, err = readLine(bufio.NewReader(strings.NewReader("NOOP")))
	require.ErrorIs(t, err, io.EOF)
}

// FuzzLine reads any bytes. No argument holds what would be the end of a line or of a name.
func FuzzLine(f *testing.F) {
	f.Add([]byte("\xff\xf4\xff\xf2ABOR\r\nSTOR a\xff\xffb\n\xff"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		for r := bufio.NewReader(bytes.NewReader(sent)); ; {
			line, err := readLine(r)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(line), maxLine)
			command, arg, ok := parseLine(line)
			require.False(t, strings.ContainsAny(command+arg, "\r\n\x00"))
			require.Equal(t, ok, command != "")
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"192,0,2,7,4,1":      "192.0.2.7:1025",
		"0,0,0,0,0,0":        "0.0.0.0:0",
		"192,0,2,7,4":        "",
		"192,0,2,7,4,256":    "",
		"192,0,2,7,4,-1":     "",
		"192,0,2,7,4,1,1":    "",
		"192.0.2.7,4,1,1,1,": "",
		"":                   "",
	} {
		got, err := parsePort(arg)
		require.Equal(t, want == "", err != nil, arg)
		if err == nil {
			require.Equal(t, want, got.String())
		}
	}
	for arg, want := range map[string]string{
		"|1|192.0.2.7|1025|":    "192.0.2.7:1025",
		"!2!2001:db8::7!65535!": "[2001:db8::7]:65535",
		"|2|192.0.2.7|1025|":    "",
		"|1|2001:db8::7|1025|":  "",
		"|3|x|1025|":            "",
		"|1|192.0.2.7|65536|":   "",
		"|2|fe80::1%eth0|1025|": "",
		"|1|192.0.2.7|1025":     "",
		"1":                     "",
		"":                      "",
		"\x00":                  "",
	} {
		got, err := parseExtendedPort(arg)
		require.Equal(t, want == "", err != nil, arg)
		if err == nil {
			require.Equal(t, want, got.String())
		}
	}
	require.Equal(t, "(192,0,2,7,4,1)", formatPassive(netip.MustParseAddr("192.0.2.7"), 1025))

	client := netip.MustParseAddr("192.0.2.7")
	for to, right := range map[string]bool{
		"192.0.2.7:1024": true, "192.0.2.7:65535": true, "[::ffff:192.0.2.7]:2000": true,
		"192.0.2.7:1023": false, "192.0.2.7:0": false, "192.0.2.8:2000": false, "127.0.0.1:2000": false,
		"[2001:db8::7]:2000": false,
	} {
		require.Equal(t, right, checkActive(netip.MustParseAddrPort(to), client) == nil, to)
	}
}

// FuzzAddress reads any arguments of PORT and EPRT. What passes the check is at the client.
func FuzzAddress(f *testing.F) {
	f.Add("192,0,2,7,4,1")
	f.Add("|1|192.0.2.7|1025|")
	f.Add("|2|::ffff:192.0.2.7|1025|")
	client := netip.MustParseAddr("192.0.2.7")
	f.Fuzz(func(t *testing.T, arg string) {
		for _, parse := range []func(string) (netip.AddrPort, error){parsePort, parseExtendedPort} {
			if to, err := parse(arg); err == nil && checkActive(to, client) == nil {
				require.Equal(t, client, to.Addr().Unmap())
				require.GreaterOrEqual(t, to.Port(), uint16(minActive))
			}
		}
	})
}

func TestFacts(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"type;", "modify;"}, chooseFacts("Modify;TYPE;unique;"))
	require.Empty(t, chooseFacts("size"))
	require.Equal(t, "MLST type*;size;modify;UNIX.mode*;", factsFeature([]string{"type;", "UNIX.mode;"}))
	for mode, letter := range map[fs.FileMode]byte{
		0: '-', fs.ModeDir: 'd', fs.ModeSymlink: 'l', fs.ModeNamedPipe: 'p', fs.ModeSocket: 's',
		fs.ModeDevice: 'b', fs.ModeDevice | fs.ModeCharDevice: 'c',
	} {
		require.Equal(t, string(letter), string(kindLetter(mode)))
	}
}

// TestMayBeClear: a client of IPv6 may have a zone, which no prefix has.
func TestMayBeClear(t *testing.T) {
	t.Parallel()
	d := New(nil, Options{Clear: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10")}})
	for client, may := range map[string]bool{"192.0.2.9": true, "192.0.3.9": false, "fe80::1": true, "fe80::1%eth0": true, "2001:db8::1": false} {
		require.Equal(t, may, d.mayBeClear(netip.MustParseAddr(client)), client)
	}
}

// TestLines converts the ends of lines there and back, however the bytes are cut.
func TestLines(t *testing.T) {
	t.Parallel()
	cut := &fromLines{from: bufio.NewReader(iotest.TimeoutReader(strings.NewReader("a\r")))}
	got, err := io.ReadAll(cut)
	require.ErrorIs(t, err, iotest.ErrTimeout, "an error behind a CR")
	require.Equal(t, "a\r", string(got))
	for _, text := range []string{"", "\n", "a\nb\n", "a\r\nb", "\r\r\n\n\r", "\r", "no end"} {
		for step := 1; step < 4; step++ {
			var wire bytes.Buffer
			for rest := []byte(text); len(rest) > 0; {
				n := min(step, len(rest))
				_, err := toLines{&wire}.Write(rest[:n])
				require.NoError(t, err)
				rest = rest[n:]
			}
			require.Equal(t, strings.Count(text, "\n"), strings.Count(wire.String(), "\r\n"))
			var back []byte
			from := &fromLines{from: bufio.NewReaderSize(&wire, 16)}
			for b := make([]byte, step); ; {
				n, err := from.Read(b)
				back = append(back, b[:n]...)
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
			}
			require.Equal(t, text, string(back), "%q in steps of %d", text, step)
		}
	}
}
