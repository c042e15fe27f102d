package faults

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var legLabs = flag.Int("leg-labs", 0, "runs of each chain for TestLegs; 0 skips it")

// legOf returns a leg of a lab with a rate in Mbit/s and a round trip in ms.
func legOf(mbit, ms, cwnd, rwnd int) lab.Leg {
	return lab.Leg{Link: lab.Link{Rate: int64(mbit) * 1e6, RTT: time.Duration(ms) * time.Millisecond, MTU: 1500}, InitCwnd: cwnd, InitRwnd: rwnd}
}

// chainCases are single legs and chains without loss, and objects for them. One run can't show what loss does on
// average.
var chainCases = []struct {
	size int64
	legs []lab.Leg
}{
	{265_000, []lab.Leg{legOf(1000, 100, 3, 0)}}, // the story of initial windows: 601, 501 and 301 ms
	{265_000, []lab.Leg{legOf(1000, 100, 10, 0)}},
	{265_000, []lab.Leg{legOf(1000, 100, 32, 0)}},
	{265_000, []lab.Leg{legOf(1000, 20, 10, 0), legOf(1000, 80, 3, 0)}}, // the same on the last mile
	{265_000, []lab.Leg{legOf(1000, 20, 10, 0), legOf(1000, 80, 10, 0)}},
	{265_000, []lab.Leg{legOf(1000, 20, 10, 0), legOf(1000, 80, 32, 44)}},
	{265_000, []lab.Leg{legOf(1000, 80, 32, 3), legOf(100, 20, 32, 10)}}, // the receiver's side
	{265_000, []lab.Leg{legOf(100, 80, 10, 3), legOf(100, 40, 3, 10)}},
	{1_000_000, []lab.Leg{legOf(1000, 50, 10, 0), legOf(50, 30, 10, 0)}},
	{1_000_000, []lab.Leg{legOf(20, 30, 10, 0), legOf(200, 60, 32, 0)}},
	{20_000, []lab.Leg{legOf(100, 100, 3, 0), legOf(100, 25, 10, 0)}},
	{265_000, []lab.Leg{legOf(1000, 40, 10, 0), legOf(1000, 30, 10, 0), legOf(100, 20, 10, 0)}},
	{265_000, []lab.Leg{legOf(1000, 60, 3, 0), legOf(1000, 30, 32, 0), legOf(50, 40, 10, 3)}},
	{2_000_000, []lab.Leg{legOf(500, 30, 32, 44), legOf(500, 40, 32, 44), legOf(50, 20, 10, 44)}},
	{80_000, []lab.Leg{legOf(100, 20, 3, 3), legOf(100, 30, 10, 10), legOf(100, 40, 32, 44)}},
}

// TestLegs: a plan for legs is within 15 % of what the kernels do, or within a round trip of the
// longest leg: where an object just fits into its flights, a delayed acknowledgement costs another
// one. Runs over the whole path in which a queue overflowed do not count: that of the slowest leg is
// short for the path, and a plan knows no queues.
func TestLegs(t *testing.T) {
	if *legLabs == 0 {
		t.Skip("-leg-labs is 0: the kernels need the machine for themselves")
	}
	for i, c := range chainCases {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			l, err := lab.StartChain(c.legs)
			if errors.Is(err, lab.ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			at := slices.Concat([]*lab.Host{l.Left}, l.Middle, []*lab.Host{l.Right})
			var chain plan.Chain
			var longest time.Duration
			for _, leg := range c.legs {
				longest = max(longest, leg.Link.RTT)
				chain = append(chain, plan.Leg{
					Path: plan.Path{Rate: float64(leg.Link.Rate), RTT: leg.Link.RTT, MTU: 1500}, Cwnd: leg.InitCwnd, Rwnd: leg.InitRwnd,
				})
			}
			for _, h := range at {
				require.NoError(t, h.Do(func() error {
					return hosts.SetSysctl("net/ipv4/tcp_no_metrics_save", "1")
				}))
			}
			last := len(c.legs)
			for _, way := range []struct {
				name   string
				want   time.Duration
				hosts  []*lab.Host
				stream bool
			}{
				{"cold", chain.Cold(c.size), at, false},
				{"passed on", chain.Streamed(c.size), at, true},
				{"cached", chain.Cached(c.size), at[last-1:], false},
				{"whole", chain.Whole().Carry(c.size).Time, []*lab.Host{at[0], at[last]}, false},
			} {
				var runs []time.Duration
				for range *legLabs {
					took, again := carry(t, way.hosts, c.size, way.stream)
					if again && way.name == "whole" {
						continue
					}
					runs = append(runs, took)
				}
				if len(runs) == 0 {
					t.Logf("%-9s plan %v, but in each run a queue had no room for slow start", way.name, way.want.Round(time.Millisecond))
					continue
				}
				slices.Sort(runs)
				took := runs[0] // a busy machine only adds to it
				t.Logf("%-9s plan %v, kernels %v, %+.1f %%; median %v of %d", way.name, way.want.Round(time.Millisecond), took.Round(time.Millisecond),
					100*(way.want.Seconds()/took.Seconds()-1), runs[len(runs)/2].Round(time.Millisecond), len(runs))
				off := max(0.15*took.Seconds(), longest.Seconds())
				assert.InDelta(t, took.Seconds(), way.want.Seconds(), off, way.name)
			}
		})
	}
}

// carry moves an object from the first host to the last one, over new connections between
// neighbours. It returns the time from the last host's request until it has the last byte, and
// whether segments were sent again. Hosts between them pass bytes on as they come, or else store the
// object first.
func carry(t *testing.T, at []*lab.Host, size int64, stream bool) (took time.Duration, again bool) {
	t.Helper()
	from, to := make([]net.Conn, len(at)-1), make([]net.Conn, len(at)-1) // the ends of each connection
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range from {
		from[i], to[i] = connect(t, at[i], at[i+1])
		for _, c := range []net.Conn{from[i], to[i]} {
			conns = append(conns, c)
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		}
	}
	began := time.Now()
	for i := range slices.Backward(from) {
		_, err := to[i].Write([]byte("?"))
		require.NoError(t, err)
		_, err = io.ReadFull(from[i], make([]byte, 1))
		require.NoError(t, err)
	}
	object := make([]byte, size)
	failed := make(chan error, len(from))
	go func() {
		_, err := from[0].Write(object)
		failed <- err
	}()
	for i := range len(from) - 1 {
		if stream {
			go func() {
				_, err := io.CopyN(from[i+1], to[i], size)
				failed <- err
			}()
			continue
		}
		_, err := io.ReadFull(to[i], object)
		require.NoError(t, err)
		go func() {
			_, err := from[i+1].Write(object)
			failed <- err
		}()
	}
	_, err := io.CopyN(io.Discard, to[len(to)-1], size)
	took = time.Since(began)
	require.NoError(t, err)
	for range from {
		require.NoError(t, <-failed)
	}
	for _, c := range from {
		socket, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, socket.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			require.NoError(t, err)
			again = again || info.Total_retrans > 0
		}))
	}
	return took, again
}

// connect opens a connection from the receiver to the sender, as clients do. It carries bytes for
// more than a round trip, as a plan assumes: in the first one, the kernel may not enlarge its
// receive buffer (tcp_rcv_space_adjust), which can cost another one.
func connect(t *testing.T, sender, receiver *lab.Host) (from, to net.Conn) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, sender.Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") // accepted ones inherit it
			}), err)
		}}
		config.SetMultipathTCP(false)
		listener, err = config.Listen(t.Context(), "tcp", net.JoinHostPort(sender.Addr().String(), "0"))
		return err
	}))
	defer listener.Close()
	require.NoError(t, receiver.Do(func() (err error) {
		to, err = net.Dial("tcp", listener.Addr().String())
		return err
	}))
	from, err := listener.Accept()
	require.NoError(t, err)
	for _, way := range [][2]net.Conn{{to, from}, {from, to}, {to, from}} {
		_, err := way[0].Write([]byte("!"))
		require.NoError(t, err)
		_, err = io.ReadFull(way[1], make([]byte, 1))
		require.NoError(t, err)
	}
	return from, to
}
