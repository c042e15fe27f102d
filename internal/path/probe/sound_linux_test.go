package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/time/rate"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// The server's UDP port answers only requests with its token, with less data than it got, and
// sends only to a proven address.
func TestSoundIsNoAmplifier(t *testing.T) {
	c := served(t, NewSession(&net.TCPAddr{}))()
	ask := func(m wire.Message) {
		_, err := c.Write(wire.Append(nil, m))
		require.NoError(t, err)
	}
	r := wire.NewReader(c, wire.MaxMessage)
	ask(&wire.Test{Kind: wire.Sound, Time: 10_000})
	m, err := r.Next()
	require.NoError(t, err)
	d := m.(*wire.Opened)
	udp, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(d.Port)).String())
	require.NoError(t, err)
	defer udp.Close()

	good := make([]byte, 2000)
	putHead(good, d.Token, 7, len(good))
	wrong := append([]byte{}, good...)
	wrong[3] ^= 1
	short := append([]byte{}, good[:wire.DatagramHead-1]...)
	cut := append([]byte{}, good[:100]...) // its head says 2000
	for _, b := range [][]byte{nil, wrong, short, cut, good} {
		_, err := udp.Write(b)
		require.NoError(t, err)
	}
	buf := make([]byte, 4000)
	require.NoError(t, udp.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, err := udp.Read(buf)
	require.NoError(t, err)
	require.Equal(t, wire.DatagramHead, n)
	proof, number, size, ok := parseHead(buf[:n])
	require.True(t, ok)
	require.EqualValues(t, 7, number)
	require.Equal(t, 2000, size)

	ask(&wire.Volley{Proof: proof, First: 40, Sizes: []uint64{3000, 100}, Time: 1})
	for i, want := range []int{3000, 100} {
		n, err := udp.Read(buf)
		require.NoError(t, err)
		mark, number, size, ok := parseHead(buf[:n])
		require.True(t, ok)
		require.Equal(t, d.Token, mark)
		require.Equal(t, []int{want, want, 40 + i}, []int{n, size, int(number)})
	}
	m, err = r.Next()
	require.NoError(t, err)
	require.IsType(t, &wire.Sample{}, m)

	proof[0] ^= 1
	ask(&wire.Volley{Proof: proof, Sizes: []uint64{100}, Time: 1})
	m, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, wire.CodeProtocol, m.(*wire.Refuse).Code)
}

// If no datagram gets through, the probe finds out soon and says so.
func TestFilteredUDP(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	in, err := ln.Accept()
	require.NoError(t, err)
	defer in.Close()
	_, err = in.Write(wire.Append(nil, &wire.Opened{Port: uint64(silent.LocalAddr().(*net.UDPAddr).Port)}))
	require.NoError(t, err)
	_, _, err = sound(t.Context(), plain{c.(*net.TCPConn)}, time.Millisecond)
	require.ErrorIs(t, err, errFiltered)
}

// The table shows where Nagle's algorithm and delayed ACK wait for each other, and only there.
func TestStallsAreSeen(t *testing.T) {
	dial := served(t, NewSession(&net.TCPAddr{}))
	p := &prober{report: &Report{}, dial: func(context.Context, transport.Path) (Conn, error) { return dial(), nil }}
	table := []Latency{
		{Size: 1024, TLS: true}, {Size: 1024, TLS: true, Split: true}, {Size: 1024, TLS: true, Split: true, ClientND: true, ServerND: true},
		{Size: 1024, TLS: true, Split: true, ClientCork: true, ServerCork: true},
	}
	m := &matrix{prober: p, slice: 2 * time.Second, newMost: newMost, pace: rate.NewLimiter(rate.Inf, 1)}
	for i := range table {
		require.NoError(t, m.cell(t.Context(), &table[i]))
		t.Logf("%+v", table[i])
		require.GreaterOrEqual(t, table[i].Count, cellLeast)
	}
	require.True(t, Stalled(table, 0))
	require.Less(t, table[0].Median, table[1].Median/2, "one write")
	require.Less(t, table[2].Median, table[1].Median/2, "TCP_NODELAY")
	require.Less(t, table[3].Median, table[1].Median/2, "TCP_CORK")
}

// roleEnv makes the test program one side of a probe in the lab.
const roleEnv = "FXFER_PROBE_TEST_ROLE"

const labPort = "7433"

// play is one side of a probe over plain TCP. The server runs until it is killed. The client
// prints its report and ends.
func play() int {
	err := func() error {
		host := os.Getenv("FXFER_PROBE_TEST_HOST")
		if os.Getenv(roleEnv) == "server" {
			ln, err := net.Listen("tcp", net.JoinHostPort(host, labPort))
			if err != nil {
				return err
			}
			acceptAll(context.Background(), ln, NewSession(ln.Addr()))
			return nil
		}
		switch os.Getenv(roleEnv) {
		case "web":
			page := make([]byte, 16<<10)
			web := &http.Server{Addr: net.JoinHostPort(host, labPort), ReadHeaderTimeout: time.Minute,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })}
			return web.ListenAndServe()
		case "visitor":
			s, err := Foreign(context.Background(), net.JoinHostPort(host, labPort), time.Second, 0)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(s)
		}
		c, err := net.Dial("tcp", net.JoinHostPort(host, labPort))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		up, down, err := sound(context.Background(), plain{c.(*net.TCPConn)}, 10*time.Millisecond)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode([]PathMTU{up, down})
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestPathMTUInTheLab(t *testing.T) {
	t.Parallel()
	l, err := lab.Start(lab.Link{Rate: 1e9, RTT: 4 * time.Millisecond, MTU: 9000})
	if errors.Is(err, lab.ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	self, err := os.Executable()
	require.NoError(t, err)
	command := func(h *lab.Host, role, host string) *lab.Cmd {
		c := h.Command(t.Context(), self)
		c.Env = append(c.Env, roleEnv+"="+role, "FXFER_PROBE_TEST_HOST="+host)
		c.Stderr = os.Stderr
		return c
	}
	_, noV6 := os.Stat("/proc/sys/net/ipv6")
	for _, host := range []string{l.Right.Addr().String(), l.Right.Addr6().String()} {
		v6 := host == l.Right.Addr6().String()
		if v6 && noV6 != nil {
			continue
		}
		server := command(l.Right, "server", host)
		require.NoError(t, server.Start())
		require.Eventually(t, func() bool {
			return l.Left.Do(func() error {
				c, err := net.Dial("tcp", net.JoinHostPort(host, labPort))
				if err == nil {
					c.Close()
				}
				return err
			}) == nil
		}, 20*time.Second, 10*time.Millisecond)
		for _, c := range []struct {
			up, down int
			hole     bool
		}{{576, 1308, false}, {1308, 576, true}, {9000, 1500, true}} {
			if v6 && min(c.up, c.down) < 1280 {
				continue
			}
			for d, mtu := range map[lab.Direction]int{lab.LeftToRight: c.up, lab.RightToLeft: c.down} {
				require.NoError(t, l.Set(lab.Change{Direction: d, PMTU: &mtu, BlackHole: &c.hole}))
			}
			out, err := command(l.Left, "client", host).Output()
			require.NoError(t, err)
			var got []PathMTU
			require.NoError(t, json.Unmarshal(out, &got))
			for i, want := range []int{c.up, c.down} {
				require.Equal(t, want, got[i].MTU, "%s %s %+v", host, got[i].Direction, c)
				require.Equal(t, want+1, got[i].Failed[0])
				require.Equal(t, want == 9000, got[i].Device)
				require.Equal(t, c.hole && want < 9000, got[i].BlackHole)
				if !c.hole && want < 9000 {
					require.Equal(t, want, got[i].Named)
				}
			}
		}
		require.NoError(t, server.Process.Kill())
		require.Error(t, server.Wait())
	}
}

// The first flight of a web server has as many segments as its route allows.
func TestFirstFlightInTheLab(t *testing.T) {
	l, err := lab.Start(lab.Link{Rate: 1e9, RTT: 100 * time.Millisecond})
	if errors.Is(err, lab.ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	self, err := os.Executable()
	require.NoError(t, err)
	command := func(h *lab.Host, role string) *lab.Cmd {
		c := h.Command(t.Context(), self)
		c.Env = append(c.Env, roleEnv+"="+role, "FXFER_PROBE_TEST_HOST="+l.Right.Addr().String())
		c.Stderr = os.Stderr
		return c
	}
	web := command(l.Right, "web")
	require.NoError(t, web.Start())
	defer func() {
		_ = web.Process.Kill()
		_ = web.Wait()
	}()
	require.Eventually(t, func() bool {
		return l.Left.Do(func() error {
			c, err := net.Dial("tcp", net.JoinHostPort(l.Right.Addr().String(), labPort))
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	}, 20*time.Second, 10*time.Millisecond)
	for _, initial := range []int{3, 10, 32} {
		require.NoError(t, l.Right.Do(func() error {
			to := l.Left.Addr().AsSlice()
			routes, err := netlink.RouteGet(to)
			if err != nil {
				return err
			}
			dst := &net.IPNet{IP: to, Mask: net.CIDRMask(32, 32)}
			return netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: routes[0].LinkIndex, Scope: netlink.SCOPE_LINK, InitCwnd: initial})
		}))
		out, err := command(l.Left, "visitor").Output()
		require.NoError(t, err)
		var got ServiceView
		require.NoError(t, json.Unmarshal(out, &got))
		require.NotNil(t, got.Flight, "%+v", got)
		require.Equal(t, initial, got.Flight.Segments, "%+v", got.Flight)
		require.Equal(t, flightRuns, got.Flight.Runs)
		require.False(t, got.Flight.AtLeast)
	}
}
