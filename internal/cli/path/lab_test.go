package path

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/path/lab"
)

func TestLinkFlags(t *testing.T) {
	parse := func(args ...string) (lab.Link, error) {
		f := newLinkFlags()
		require.NoError(t, f.set.Parse(args))
		return f.link()
	}
	l, err := parse()
	require.NoError(t, err)
	require.Equal(t, lab.Link{Rate: 1e9, RTT: 10 * time.Millisecond, BufferBDP: 1, MTU: 1500, Seed: 1}, l)

	l, err = parse("--rate", "200mbit", "--rtt", "50ms", "--loss", "0.1%", "--reorder", "1%", "--duplicate", "2%", "--corrupt", "1e-6",
		"--buffer", "64KiB", "--mtu", "9000", "--pmtu", "1308", "--black-hole", "--police-udp", "5mbit", "--seed", "7")
	require.NoError(t, err)
	require.Equal(t, lab.Link{
		Rate: 200e6, RTT: 50 * time.Millisecond, Loss: 0.001, Reorder: 0.01, Duplicate: 0.02, Corrupt: 1e-6, Buffer: 64 << 10, MTU: 9000, PMTU: 1308, BlackHole: true, PoliceUDP: 5e6, Seed: 7,
	}, l)
	l, err = parse("--buffer", "0.5bdp")
	require.NoError(t, err)
	require.InDelta(t, 0.5, l.BufferBDP, 0)

	_, err = parse("--pmtu", "1501")
	require.ErrorContains(t, err, "path MTU 1501 is not between 576 and the MTU 1500")

	for flag, values := range map[string][]string{
		"--rate":      {"200", "200Mbit", "0mbit"},
		"--loss":      {"1", "0.01", "101%", "-1%", "x%", "NaN%"},
		"--reorder":   {"1"},
		"--duplicate": {"2"},
		"--corrupt":   {"2", "-1", "1%", "NaN"},
		"--buffer":    {"1BDP", "0bdp", "-1bdp", "Infbdp", "64k", "0"},
	} {
		for _, v := range values {
			_, err := parse(flag, v)
			require.ErrorContains(t, err, flag, v)
		}
	}
}

func TestLinkChange(t *testing.T) {
	f := newLinkFlags()
	require.NoError(t, f.set.Parse([]string{"--loss", "2%", "--buffer", "2bdp", "--pmtu", "0", "--black-hole"}))
	c, err := f.change()
	require.NoError(t, err)
	loss, bdp, pmtu, hole := 0.02, 2.0, 0, true
	require.Equal(t, lab.Change{Loss: &loss, BufferBDP: &bdp, PMTU: &pmtu, BlackHole: &hole}, c)
}

func TestCountersLine(t *testing.T) {
	require.Equal(t,
		"fxfer lab: left to right 990 packets, 1.5 MB, 200 dropped by the queue (16.7%), 10 lost (1%), 99 reordered (10%); right to left 3 packets, 0.0 MB",
		countersLine(lab.Counters{Sent: 1200, Delivered: 990, Bytes: 1_500_000, Dropped: 200, Lost: 10, Reordered: 99}, lab.Counters{Sent: 3, Delivered: 3}))
}

// runLab executes "lab run" with the given arguments. It skips the test without root, and on
// systems that have no lab.
func runLab(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		l, err := lab.Start(lab.Link{Rate: 1e9})
		if errors.Is(err, lab.ErrUnsupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	var out, errs bytes.Buffer
	c := NewLab()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"run"}, args...))
	c.SetIn(strings.NewReader("input"))
	c.SetOut(&out)
	c.SetErr(&errs)
	err = c.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

func TestLabRun(t *testing.T) {
	out, errs, err := runLab(t, "--rate", "100mbit", "--", "sh", "-c", "cat; echo $FXFER_LAB_RIGHT; exit 7")
	require.Equal(t, exit.Status{Code: 7}, err)
	require.Equal(t, "input10.77.0.2\n", out)
	require.Equal(t, "fxfer lab: left to right 0 packets, 0.0 MB; right to left 0 packets, 0.0 MB\n", errs)

	out, errs, err = runLab(t, "--right", "echo on the right; exit 0", "true")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Contains(t, errs, "on the right\nfxfer lab: ")

	_, _, err = runLab(t, "--right", "exit 3", "true")
	require.ErrorContains(t, err, "--right: exit status 3")
	_, _, err = runLab(t, "no-such-program")
	require.ErrorContains(t, err, "no-such-program")
	_, _, err = runLab(t, "--mtu", "5", "true")
	require.ErrorContains(t, err, "MTU")
}
