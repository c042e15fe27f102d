package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// way is a lab with a server on its right host.
type way struct {
	box    *lab.Lab
	folder *hosts.Folder
	fxfer  hosts.Fxfer
}

// newPath starts a lab and a server with these additional arguments. The left host has a file of
// this many bytes.
func newPath(t *testing.T, link lab.Link, size int64, serve ...string) *way {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	folder, err := hosts.NewFolder("fxfer-path-", "home", "tmp", "src", "dst")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Remove()) })
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
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

// sent is the summary of a transfer.
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

// The automatic choice uses the transport that the path allows, and reports the reason.
func TestAutomaticTransport(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			p := newPath(t, c.change(lab.Link{Rate: 200e6, RTT: 40 * time.Millisecond}), 12<<20)
			s := p.send(t, "auto")
			require.Equal(t, c.want, s.Transport)
			require.Contains(t, s.Reason, c.says)
		})
	}
	t.Run("no TCP", func(t *testing.T) {
		t.Parallel()
		p := newPath(t, lab.Link{Rate: 200e6, RTT: 40 * time.Millisecond}, 12<<20)
		none := true
		require.NoError(t, p.box.Set(lab.Change{NoTCP: &none})) // newPath needs TCP to see that the server has started
		s := p.send(t, "auto")
		require.Equal(t, "quic", s.Transport)
		require.Contains(t, s.Reason, "TCP does not connect")
	})
}

// A session whose window turns out to be small switches to QUIC, and back to TCP if QUIC moves
// less. One transport moves at least four times as much as the other, and so little that a busy processor
// does not decide.
func TestSmallWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		police int64
		size   int64
		want   string
		says   string
	}{
		"QUIC is faster": {0, 12 << 20, "quic", "the receiver's TCP window was the limit"},
		"QUIC is slower": {1e6, 4 << 20, "tcp", "QUIC was tried and moved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := lab.Link{Rate: 25e6, RTT: 120 * time.Millisecond, PoliceUDP: c.police}
			var s sent
			for try := 0; try < 5 && !strings.Contains(s.Reason, c.says); try++ { // the machine may stand still
				s = newPath(t, link, c.size, "--sock-buf", "64KiB").send(t, "auto", "--streams", "1") // 4.4 Mbit/s
			}
			require.Equal(t, c.want, s.Transport)
			require.Contains(t, s.Reason, c.says)
			require.Zero(t, s.Reconnects)
		})
	}
}

// Over QUIC a client continues as before when its address changes.
func TestAddressChange(t *testing.T) {
	t.Parallel()
	p := newPath(t, lab.Link{Rate: 100e6, RTT: 20 * time.Millisecond}, 48<<20)
	changed := p.moveAt(t, 12<<20)
	s := p.send(t, "quic")
	require.NoError(t, (<-changed).err)
	require.Zero(t, s.Reconnects)
	require.LessOrEqual(t, s.Resent, int64(1<<20), "at the end one block may be sent twice")
}

// move is the time when the left host got another address.
type move struct {
	at  time.Time
	err error
}

// moveAt changes the address as soon as the host has sent this many bytes.
func (p *way) moveAt(t *testing.T, bytes int64) <-chan move {
	moved := make(chan move, 1)
	ctx := t.Context()
	go func() {
		for there, _ := p.box.Counters(); there.Bytes < bytes && ctx.Err() == nil; there, _ = p.box.Counters() {
			<-time.After(10 * time.Millisecond)
		}
		err := p.box.Left.Do(func() error { return readdress(p.box.Left.Addr().String()) })
		moved <- move{time.Now(), err}
	}()
	return moved
}

var moves = flag.Int("moves", 0, "runs of TestMove for each transport, 0 to skip it")

// TestMove measures how long a transfer of 2 GB takes to regain its speed after the client's
// address has changed in the middle of it.
func TestMove(t *testing.T) {
	if *moves == 0 {
		t.Skip("-moves N")
	}
	const size, step = 2_000_000_000, 200 * time.Millisecond
	for range *moves {
		for _, transport := range []string{"quic", "tcp"} {
			t.Run(transport, func(t *testing.T) {
				p := newPath(t, lab.Link{Rate: 1e9, RTT: 50 * time.Millisecond}, size)
				ctx, stop := context.WithCancel(t.Context())
				arrived := p.arrivals(ctx, step)
				moved := p.moveAt(t, size/2)
				s := p.send(t, transport, "--retry-for", "1m")
				stop()
				m, steps := <-moved, <-arrived
				require.NoError(t, m.err)
				at := slices.IndexFunc(steps, func(x arrival) bool { return x.at.After(m.at) })
				require.Greater(t, at, 15)
				before := 0.0
				for _, x := range steps[at-15 : at] {
					before += x.rate / 15
				}
				back := at // the change is within the step that ends then
				for back+5 < len(steps) && slices.ContainsFunc(steps[back:back+5], func(x arrival) bool { return x.rate < 0.8*before }) {
					back++
				}
				t.Logf("%s: %.0f Mbit/s before; %.1f s after the change 0.8 of it again, for a second; %d reconnects, %d bytes sent again", transport, before/1e6,
					steps[back].at.Add(-step).Sub(m.at).Seconds(), s.Reconnects, s.Resent)
				var course strings.Builder
				for _, x := range steps[at-5 : min(at+60, len(steps))] {
					fmt.Fprintf(&course, " %.0f", x.rate/1e6)
				}
				t.Logf("Mbit/s over 0.2 s, the change in the sixth:%s", course.String())
			})
		}
	}
}

// arrival is the rate at the right host, in bit/s, in the step that ends at a time.
type arrival struct {
	at   time.Time
	rate float64
}

// arrivals records each step until ctx is done.
func (p *way) arrivals(ctx context.Context, step time.Duration) <-chan []arrival {
	all := make(chan []arrival, 1)
	go func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		var steps []arrival
		last, before := time.Now(), int64(0)
		for {
			select {
			case <-ctx.Done():
				all <- steps
				return
			case now := <-tick.C:
				there, _ := p.box.Counters()
				steps = append(steps, arrival{now, float64(there.Bytes-before) * 8 / now.Sub(last).Seconds()})
				last, before = now, there.Bytes
			}
		}
	}()
	return all
}

// readdress adds 4 to an address of this host.
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
