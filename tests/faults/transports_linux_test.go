package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/fxfer/fxfer/internal/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// way is a lab with a server on its right host.
type way struct {
	box    *lab.Lab
	folder *hosts.Folder
	fxfer  hosts.Fxfer
}

// newPath starts one, with a file of so many bytes on the left host, and more arguments of the server.
func newPath(t *testing.T, link lab.Link, size int64, serve ...string) *way {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	folder, err := hosts.NewFolder("fxfer-path-", "home", "tmp", "src", "dst")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Remove()) })
	binary, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder.Abs("fxfer"), binary, 0o755))
	require.NoError(t, folder.Fill(t.Context(), "src/f", size, 1))
	box, err := lab.Start(link)
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	p := &way{box: box, folder: folder}
	p.fxfer = hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, p.fxfer.Start(t.Context(), append(serve, "--share", "dst=dst")...))
	return p
}

// sent is what the summary of a transfer says.
type sent struct {
	Type       string
	Transport  string
	Reason     string `json:"transport_reason"`
	Resent     int64  `json:"bytes_resent"`
	Reconnects int
}

// send sends the file and checks that it arrived.
func (p *way) send(t *testing.T, transport string, flags ...string) (s sent) {
	t.Helper()
	command := p.fxfer.Warm(append([]string{"send", "--json", "--transport", transport, "src/f", p.fxfer.URL("dst")}, flags...)...)
	out, err := p.folder.Prepare(t.Context(), command).Output()
	require.NoError(t, err, "%s", out)
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &s))
	require.Equal(t, "summary", s.Type)
	want, err := os.ReadFile(p.folder.Abs("src/f"))
	require.NoError(t, err)
	got, err := os.ReadFile(p.folder.Abs("dst/f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	return s
}

// The automatic choice takes the transport that the path lets pass, and says why.
func TestAutomaticTransport(t *testing.T) {
	for name, c := range map[string]struct {
		change func(lab.Link) lab.Link
		want   string
		says   string
	}{
		"a good path":       {func(l lab.Link) lab.Link { return l }, "tcp", ""},
		"no window scaling": {func(l lab.Link) lab.Link { l.Unscaled = true; return l }, "quic", "no window scaling"},
		"no UDP":            {func(l lab.Link) lab.Link { l.NoUDP = true; return l }, "tcp", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPath(t, c.change(lab.Link{Rate: 200e6, RTT: 40 * time.Millisecond}), 12<<20)
			s := p.send(t, "auto")
			require.Equal(t, c.want, s.Transport)
			require.Contains(t, s.Reason, c.says)
		})
	}
	t.Run("no TCP", func(t *testing.T) {
		p := newPath(t, lab.Link{Rate: 200e6, RTT: 40 * time.Millisecond}, 12<<20)
		none := true
		require.NoError(t, p.box.Set(lab.Change{NoTCP: &none})) // the server was seen by TCP when it started
		s := p.send(t, "auto")
		require.Equal(t, "quic", s.Transport)
		require.Contains(t, s.Reason, "TCP does not connect")
	})
}

// A session whose window turns out to be small goes on with QUIC, and back with TCP if that moves less.
func TestSmallWindow(t *testing.T) {
	for name, c := range map[string]struct {
		police int64
		size   int64
		want   string
		says   string
	}{
		"QUIC is faster": {0, 32 << 20, "quic", "the receiver's TCP window was the limit"},
		"QUIC is slower": {8e6, 40 << 20, "tcp", "QUIC was tried and moved"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPath(t, lab.Link{Rate: 200e6, RTT: 40 * time.Millisecond, PoliceUDP: c.police}, c.size, "--sock-buf", "64KiB")
			s := p.send(t, "auto", "--streams", "4") // 52 Mbit/s
			require.Equal(t, c.want, s.Transport)
			require.Contains(t, s.Reason, c.says)
			require.Zero(t, s.Reconnects)
		})
	}
}

// A client whose address changes goes on over QUIC as if nothing had been.
func TestAddressChange(t *testing.T) {
	p := newPath(t, lab.Link{Rate: 100e6, RTT: 20 * time.Millisecond}, 48<<20)
	changed := make(chan error, 1)
	ctx := t.Context()
	go func() {
		for there, _ := p.box.Counters(); there.Bytes < 12<<20 && ctx.Err() == nil; there, _ = p.box.Counters() {
			<-time.After(10 * time.Millisecond)
		}
		changed <- p.box.Left.Do(func() error { return readdress(p.box.Left.Addr().String()) })
	}()
	s := p.send(t, "quic")
	require.NoError(t, <-changed)
	require.Zero(t, s.Reconnects)
	require.LessOrEqual(t, s.Resent, int64(1<<20), "at the end one block may be sent twice")
}

// readdress gives the device that has an address the next but three instead.
func readdress(addr string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, link := range links {
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if !a.IP.Equal(net.ParseIP(addr)) {
				continue
			}
			ip := a.IP.To4()
			next := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(ip[0], ip[1], ip[2], ip[3]+4), Mask: a.Mask}}
			return errors.Join(netlink.AddrDel(link, &a), netlink.AddrAdd(link, next))
		}
	}
	return errors.New("there is no such address")
}
