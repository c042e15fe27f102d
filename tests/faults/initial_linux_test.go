package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var initialLabs = flag.Int("initial-labs", 0, "labs for each pair of windows of TestInitialWindows; 0 skips it")

// TestInitialWindows: a transfer of 265 KB in 44 files takes slow start alone. Its limit and its hint
// name the side and the setting whose initial window is the lower one.
func TestInitialWindows(t *testing.T) {
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root, to set routes and run programs as another user on a lab's hosts")
	case *initialLabs == 0:
		t.Skip("-initial-labs is 0: nine labs take half a minute")
	}
	for _, c := range []struct{ cwnd, rwnd int }{{3, 3}, {3, 10}, {3, 44}, {10, 3}, {10, 10}, {10, 44}, {32, 3}, {32, 10}, {32, 44}} {
		t.Run(fmt.Sprintf("initcwnd %d initrwnd %d", c.cwnd, c.rwnd), func(t *testing.T) {
			labs(t, *initialLabs, 1, func(t testing.TB) func() {
				limit := sentWith(t, c.cwnd, c.rwnd)
				t.Logf("%s, %s: %s; %s", limit.Limiter, limit.Side, limit.Evidence[0], limit.Remedies[0].Advice)
				switch {
				case c.rwnd < c.cwnd:
					require.Equal(t, diagnose.InitialWindow, limit.Limiter)
					require.Equal(t, diagnose.Receiver, limit.Side)
					require.Contains(t, limit.Evidence[0], fmt.Sprintf("initrwnd %d", c.rwnd))
					require.Contains(t, limit.Remedies[0].Advice, "initrwnd of the receiver's route")
				case c.cwnd < 10:
					require.Equal(t, diagnose.InitialWindow, limit.Limiter)
					require.Equal(t, diagnose.Sender, limit.Side)
					require.Contains(t, limit.Evidence[0], fmt.Sprintf("initcwnd %d", c.cwnd))
					require.Contains(t, limit.Remedies[0].Advice, "initcwnd of the sender's route")
				default: // as small as is usual, and only the sender's would help
					require.Equal(t, diagnose.SlowStart, limit.Limiter)
					require.Contains(t, limit.Remedies[0].Advice, "initcwnd of the sender's route")
				}
				return func() {}
			})
		})
	}
}

// initialLimit is a limit in the report of a transfer.
type initialLimit struct {
	Limiter  diagnose.Limiter
	Side     diagnose.Side
	Evidence []string
	Remedies []struct{ Advice string }
}

// sentWith sends in a lab whose hosts have these initial windows. It returns the first limit.
func sentWith(t testing.TB, cwnd, rwnd int) initialLimit {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-initial-", "home", "tmp", "src", "dst")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
	for i := range 44 {
		require.NoError(t, folder.Fill(t.Context(), fmt.Sprintf("src/%d", i), 265_000/44, byte(i)))
	}
	box, err := lab.Start(lab.Link{Rate: 100e6, RTT: 100 * time.Millisecond})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	for _, w := range []struct {
		from, to   *lab.Host
		cwnd, rwnd int
	}{{box.Left, box.Right, cwnd, 0}, {box.Right, box.Left, 0, rwnd}} {
		require.NoError(t, w.from.Do(func() error {
			to := w.to.Addr().AsSlice()
			routes, err := netlink.RouteGet(to)
			if err != nil {
				return err
			}
			dst := &net.IPNet{IP: to, Mask: net.CIDRMask(32, 32)}
			return netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: routes[0].LinkIndex, Scope: netlink.SCOPE_LINK, InitCwnd: w.cwnd, InitRwnd: w.rwnd})
		}))
	}
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"))
	command, err := x.Cold("send", "--json", "--streams", "1", "src/", x.URL("dst/"))
	require.NoError(t, err)
	out, err := folder.Prepare(t.Context(), command).Output()
	require.NoError(t, err, string(out))
	for line := range bytes.Lines(out) {
		var report struct{ Limits []initialLimit }
		require.NoError(t, json.Unmarshal(line, &report))
		if len(report.Limits) > 0 {
			require.NotEmpty(t, report.Limits[0].Evidence)
			require.NotEmpty(t, report.Limits[0].Remedies)
			return report.Limits[0]
		}
	}
	require.Fail(t, "no limit", string(out))
	return initialLimit{}
}
