package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// answering returns flags with an ssh that passes on an answer and then runs the commands then, in
// dir. There is a pipe named end, and the arguments of ssh are in the file line.
func answering(t *testing.T, a *Answer, then string) (f *Flags, dir string) {
	t.Helper()
	needsSh(t)
	dir = t.TempDir()
	var line bytes.Buffer
	require.NoError(t, WriteAnswer(&line, a))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "answer"), line.Bytes(), 0o600))
	return &Flags{ssh: []string{"sh", "-c", `case " $0 $*" in *" -G "*) exit 1;; esac; cd "` + dir + `"; mkfifo end; ` +
		`printf "%s " "$@" >line; cat answer; ` + then}}, dir
}

// far starts a server and returns an answer that leads to it.
func far(t *testing.T, share string, paths ...string) *Answer {
	t.Helper()
	server, err := fxfer.NewServer(fxfer.ServerOptions{Ephemeral: true, Listen: "127.0.0.1:0",
		Shares: []fxfer.Share{{Name: "x", Dir: t.TempDir(), Rights: fxfer.Read}}})
	require.NoError(t, err)
	t.Cleanup(sessiontest.Run(t, server))
	at, err := netip.ParseAddrPort(server.Addr().String())
	require.NoError(t, err)
	return &Answer{Protocol: fxfer.ProtocolVersion, Pin: server.Pin(), Port: int(at.Port()), Share: share, Paths: paths}
}

func command(t *testing.T) *cobra.Command {
	c := &cobra.Command{}
	c.SetContext(t.Context())
	c.SetErr(io.Discard)
	return c
}

// TestNames: what is read keeps the name that the user gave. A hostile host does not learn to use
// the user's key: each use has a key of its own.
func TestNames(t *testing.T) {
	home := t.TempDir()
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	key, err := store.Key()
	require.NoError(t, err)
	seen := map[string]bool{string(identity.PinOfPrivate(key)): true}
	server := far(t, "x")
	for _, c := range []struct {
		asked, share, path string
		kind               fxfer.Kind
	}{
		{"photos", "photos", "", fxfer.KindOther},
		{"a/photos", "x", "a/photos", fxfer.KindOther},
		{"photos/", "x", ".ssh", fxfer.KindOther}, // its content
		{"*", ".ssh", "", fxfer.KindOther},
		{"", "me", "", fxfer.KindOther},
		{`C:\a\photos`, "photos", "", fxfer.KindOther},
		{"photos", ".ssh", "", fxfer.KindTrust},
		{"photos", "photos", ".ssh", fxfer.KindTrust},
		{"photos", "x", "photos/", fxfer.KindTrust}, // its content has any names
		{"~", ".ssh", "", fxfer.KindTrust},
		{"a/..", "x", "a/.ssh", fxfer.KindTrust},
		{"", "me", "x/", fxfer.KindTrust},
		{"photos", "", "", fxfer.KindTrust}, // all shares
	} {
		server.Share, server.Paths = c.share, []string{c.path}
		f, dir := answering(t, server, "while read -r q; do :; done")
		opt, ran := fxfer.Options{Home: home}, false
		err := f.Run(command(t), &opt, []string{"127.0.0.1:" + c.asked}, Match, func([]string) error {
			ran = true
			return nil
		})
		require.Equal(t, c.kind, fxfer.KindOf(err), "%+v: %v", c, err)
		require.Equal(t, err == nil, ran, "%+v: %v", c, err)
		line, err := os.ReadFile(filepath.Join(dir, "line"))
		require.NoError(t, err)
		_, after, _ := bytes.Cut(line, []byte("serve --once "))
		word, _, _ := bytes.Cut(after, []byte(";"))
		q, err := ParseRequest(string(word))
		require.NoError(t, err)
		require.False(t, seen[q.Client])
		seen[q.Client] = true
		require.Equal(t, q.Client, string(identity.PinOfPrivate(opt.Key)))
	}
}

// TestFresh: a sender waits for what the receiver has, unless the server says that there is nothing.
func TestFresh(t *testing.T) {
	server := far(t, "photos", "")
	for _, c := range []struct {
		use         Use
		empty, want bool
	}{{Write, true, true}, {Write, false, false}, {Read, false, true}} {
		server.Empty = c.empty
		f, _ := answering(t, server, "while read -r q; do :; done")
		opt := fxfer.Options{Home: t.TempDir()}
		err := f.Run(command(t), &opt, []string{"127.0.0.1:photos"}, c.use, func([]string) error {
			require.Equal(t, c.want, opt.Fresh, c)
			return nil
		})
		require.NoError(t, err)
	}
}

// TestEnd: that ssh ended explains a lost connection, and no other error.
func TestEnd(t *testing.T) {
	server := far(t, "photos", "")
	for kind, want := range map[fxfer.Kind]fxfer.Kind{
		fxfer.KindLocalDisk: fxfer.KindLocalDisk, fxfer.KindPartial: fxfer.KindPartial,
		fxfer.KindInterrupted: fxfer.KindUnreachable, fxfer.KindUnreachable: fxfer.KindUnreachable,
	} {
		f, dir := answering(t, server, "read -r q <end; exit 3")
		c := command(t)
		err := f.Run(c, &fxfer.Options{Home: t.TempDir()}, []string{"127.0.0.1:photos"}, Read, func([]string) error {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), []byte("now\n"), 0o600))
			<-c.Context().Done()
			return &fxfer.Error{Kind: kind, Err: errors.New("the reason")}
		})
		require.Equal(t, want, fxfer.KindOf(err))
		require.ErrorContains(t, err, "the reason")
		require.Equal(t, want == fxfer.KindUnreachable, strings.Contains(err.Error(), "ended: exit status 3"), err)
	}
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1", "": "", "nas": "", "192.0.2.1:22": "", "fe80::1%eth0": "", "a@192.0.2.1": "",
		"127.0.0.1": "", "::1": "", "::ffff:127.0.0.1": "", "169.254.169.254": "", "fe80::1": "", "224.0.0.1": "", "ff02::1": "", "0.0.0.0": "", "::": "",
		"255.255.255.255": "", "192.168.1.2": "192.168.1.2",
	} {
		a, err := parseAnswer(fmt.Appendf(nil, `{"protocol":1,"port":7,"paths":["a"],"address":%q}`, in), &Request{Protocol: 1, Paths: []string{"a"}})
		require.NoError(t, err)
		require.Equal(t, want, a.Address, in)
	}
}

// TestRelay: what a host prints does not steer the terminal, and does not fill it.
func TestRelay(t *testing.T) {
	var out bytes.Buffer
	r := &relay{w: &out}
	for _, text := range []string{"a\x1b[31m\r\nlo", "ng\n", "last"} {
		_, err := r.Write([]byte(text))
		require.NoError(t, err)
	}
	r.end()
	require.Equal(t, "a\ufffd[31m\nlong\nlast\n", out.String())
	_, err := r.Write(bytes.Repeat([]byte("x"), 4<<20))
	require.NoError(t, err)
	r.end()
	require.Equal(t, relayedLines+1, strings.Count(out.String(), "\n"))
	require.Less(t, out.Len(), 1<<20)
}

// TestChannelLimits: whoever connects to the port of the channels starts a bounded number of logins.
func TestChannelLimits(t *testing.T) {
	needsSh(t)
	f := &Flags{ssh: []string{"sh", "-c", "while read -r q; do :; done"}}
	c, err := f.openChannels(&target{host: "nas"}, 1, 0, io.Discard)
	require.NoError(t, err)
	defer c.close()
	for i := range c.most + 1 {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", c.port()))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		if i == c.most {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
			_, err = conn.Read(make([]byte, 1))
			require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), err)
		}
	}
	for most, want := range map[int]int{0: channelStreams, 2: 2, 32: channelStreams} {
		opt := fxfer.Options{MaxStreams: most}
		require.NoError(t, throughSSH(&opt))
		require.Equal(t, want, opt.MaxStreams)
	}
}

// TestUploadEnds: if an upload breaks off, the error is the reason. A host gets no more than one
// upload, and none if the user has named the program over there.
func TestUploadEnds(t *testing.T) {
	needsSh(t)
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, make([]byte, 4<<20), 0o600))
	const send = `echo fxfer-once upload a b; read -r u; echo fxfer-once send; `
	for _, c := range []struct {
		remote, script, want string
		uploads              int
	}{
		{"", send + "exec <&-; echo fxfer-once failed no room", "upload the program to nas: no room", 1},
		{"", send + "head -c 4194304 >/dev/null; echo fxfer-once arrived; read -r q; " + send + "exit 9", "exit status 9", 1},
		{"fxfer", send + "exit 9", "exit status 9", 0},
	} {
		f := &Flags{ssh: []string{"sh", "-c", `case " $0 $*" in *" -G "*) exit 1;; esac; ` + c.script}, remote: c.remote, binary: program}
		var said bytes.Buffer
		cmd := command(t)
		cmd.SetErr(&said)
		err := f.Run(cmd, &fxfer.Options{Home: t.TempDir()}, []string{"nas:a"}, Read, func([]string) error { return nil })
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.uploads, strings.Count(said.String(), "uploading one"), said.String())
	}
}
