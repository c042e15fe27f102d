package path

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/pkg/fxfer"
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
		"--queue", "64KiB", "--mtu", "9000", "--pmtu", "1308", "--black-hole", "--police-udp", "5mbit", "--seed", "7")
	require.NoError(t, err)
	require.Equal(t, lab.Link{
		Rate: 200e6, RTT: 50 * time.Millisecond, Loss: 0.001, Reorder: 0.01, Duplicate: 0.02, Corrupt: 1e-6, Buffer: 64 << 10, MTU: 9000, PMTU: 1308, BlackHole: true, PoliceUDP: 5e6, Seed: 7,
	}, l)
	l, err = parse("--queue", "0.5bdp")
	require.NoError(t, err)
	require.InDelta(t, 0.5, l.BufferBDP, 0)

	l, err = parse("--up", "1mbit", "--down", "16mbit", "--rtt", "50ms", "--jitter", "10ms", "--police", "8mbit,64KiB", "--aqm", "codel", "--mtu", "576")
	require.NoError(t, err)
	require.Equal(t, lab.Link{
		Rate: 1e6, RateBack: 16e6, RTT: 50 * time.Millisecond, Jitter: 10 * time.Millisecond, Police: 8e6, PoliceBurst: 64 << 10, CoDel: true, BufferBDP: 1, MTU: 576, Seed: 1,
	}, l)
	for _, args := range [][]string{{"--rate", "1mbit", "--down", "16mbit"}, {"--rate", "16mbit", "--up", "1mbit"}} {
		l, err = parse(args...)
		require.NoError(t, err)
		require.Equal(t, []int64{1e6, 16e6}, []int64{l.Rate, l.RateBack}, args)
	}
	l, err = parse("--up", "9.6kbit", "--down", "9.6kbit")
	require.NoError(t, err)
	require.Equal(t, []int64{9600, 0}, []int64{l.Rate, l.RateBack})

	_, err = parse("--pmtu", "1501")
	require.ErrorContains(t, err, "path MTU 1501 is not between 576 and the MTU 1500")

	for flag, values := range map[string][]string{
		"--rtt":       {"10", "ms", "-1ms"},
		"--jitter":    {"2"},
		"--rate":      {"200", "200M", "200mbps", "0mbit"},
		"--loss":      {"1", "0.01", "101%", "-1%", "x%", "NaN%"},
		"--reorder":   {"1"},
		"--duplicate": {"2"},
		"--corrupt":   {"2", "-1", "1%", "NaN"},
		"--up":        {"x"},
		"--down":      {"0mbit"},
		"--police":    {"200mbit", "200mbit,", ",64KiB", "200mbit,64KiB,1"},
		"--aqm":       {"red", ""},
		"--line":      {"tin-can"},
		"--queue":     {"1BDP", "0bdp", "-1bdp", "Infbdp", "64k", "0"},
	} {
		for _, v := range values {
			f := newLinkFlags()
			err := f.set.Parse([]string{flag, v})
			if err == nil {
				_, err = f.link()
			}
			require.ErrorContains(t, err, flag, v)
		}
	}
}

// Each preset goes through the flags unchanged, and flags change it.
func TestLineFlag(t *testing.T) {
	for _, p := range lab.Presets {
		f := newLinkFlags()
		require.NoError(t, f.set.Parse([]string{"--line", p.Name}))
		l, err := f.link()
		require.NoError(t, err, p.Name)
		want := p.Link
		want.Seed = 1
		require.Equal(t, want, l, p.Name)
	}
	for _, c := range []struct {
		args   []string
		change func(*lab.Link)
	}{
		{[]string{"--rtt", "100ms"}, func(l *lab.Link) { l.RTT = 100 * time.Millisecond }},
		{[]string{"--rate", "2mbit"}, func(l *lab.Link) { l.Rate, l.RateBack = 2e6, 0 }},
		{[]string{"--up", "2mbit"}, func(l *lab.Link) { l.Rate = 2e6 }},
		{[]string{"--loss", "0%", "--queue", "1bdp"}, func(l *lab.Link) { l.Loss, l.Buffer, l.BufferBDP = 0, 0, 1 }},
	} {
		want, err := lab.PresetLink("adsl")
		require.NoError(t, err)
		want.Seed = 1
		c.change(&want)
		for _, args := range [][]string{append(c.args, "--line", "adsl"), append([]string{"--line", "adsl"}, c.args...)} {
			f := newLinkFlags()
			require.NoError(t, f.set.Parse(args))
			got, err := f.link()
			require.NoError(t, err)
			require.Equal(t, want, got, args)
		}
	}
}

func TestListLines(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, listLines(&out))
	require.Contains(t, out.String(), "adsl")
	require.Regexp(t, `dsl-policed +40mbit +100mbit +20ms +1ms +- +256KiB +1492 +50mbit,128KiB `, out.String())
}

func TestLinkChange(t *testing.T) {
	f := newLinkFlags()
	require.NoError(t, f.set.Parse([]string{"--loss", "2%", "--queue", "2bdp", "--pmtu", "0", "--black-hole"}))
	c, err := f.changes()
	require.NoError(t, err)
	loss, bdp, pmtu, hole := 0.02, 2.0, 0, true
	require.Equal(t, []lab.Change{{Loss: &loss, BufferBDP: &bdp, PMTU: &pmtu, BlackHole: &hole}}, c)

	f = newLinkFlags()
	require.NoError(t, f.set.Parse([]string{"--up", "1mbit", "--down", "16mbit", "--police", "", "--aqm", "none"}))
	c, err = f.changes()
	require.NoError(t, err)
	up, down, none, off := int64(1e6), int64(16e6), int64(0), false
	require.Equal(t, []lab.Change{
		{Police: &none, PoliceBurst: &none, CoDel: &off},
		{Direction: lab.LeftToRight, Rate: &up},
		{Direction: lab.RightToLeft, Rate: &down},
	}, c)
}

func TestCountersLine(t *testing.T) {
	require.Equal(t,
		"fxfer lab: left to right 990 packets, 1.5 MB, 200 dropped by the queue (16.7%), 10 lost (1%), 99 reordered (10%); right to left 3 packets, 0.0 MB",
		countersLine(lab.Counters{Sent: 1200, Delivered: 990, Bytes: 1_500_000, Dropped: 200, Lost: 10, Reordered: 99}, lab.Counters{Sent: 3, Delivered: 3}))
}

func TestCountersLineOfOthers(t *testing.T) {
	require.Equal(t,
		"fxfer lab: left to right 900 packets, 1.4 MB, 60 dropped by the queue (6%), 10 dropped early by the queue (1%), 30 dropped by the policer (3%), of others 20 dropped of 500; right to left 0 packets, 0.0 MB",
		countersLine(lab.Counters{Sent: 1000, Delivered: 900, Bytes: 1_350_000, Dropped: 100, Early: 10, Policed: 30, OthersSent: 500, OthersDropped: 20}, lab.Counters{}))
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
	var out, errs output
	c := NewLab()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append([]string{"run"}, args...))
	c.SetIn(strings.NewReader("input"))
	c.SetOut(&out)
	c.SetErr(&errs)
	err = c.ExecuteContext(context.Background())
	return out.text.String(), errs.text.String(), err
}

// output is what the commands of all hosts write, some at the same time.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// A command that runs another one asks for it.
func TestLabNeedsCommand(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "--rtt", "20ms"}, {"exec"}, {"exec", "name", "left"}} {
		c := NewLab()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		require.ErrorContains(t, c.Execute(), "command?", args)
	}
}

// A lab with a name changes while its command runs.
func TestLabRunSet(t *testing.T) {
	_, _, err := runLab(t, "true") // skips the test if there can be no lab
	require.NoError(t, err)
	name := "test-" + strconv.FormatUint(rand.Uint64(), 36)
	_, _, err = runLab(t, "--name", "no/name", "true")
	require.ErrorContains(t, err, "lab name")

	var errs bytes.Buffer
	in, hold := io.Pipe()
	outR, outW := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		c := NewLab()
		c.SetArgs([]string{"run", "--name", name, "--", "sh", "-c", "echo up; read x; exit 5"})
		c.SetIn(in)
		c.SetOut(outW)
		c.SetErr(&errs)
		ran <- c.ExecuteContext(context.Background())
		outW.Close()
	}()
	_, err = io.ReadFull(outR, make([]byte, len("up\n")))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, outR) }()
	set := NewLab()
	set.SetArgs([]string{"set", name, "--loss", "100%", "--up", "2mbit"})
	require.NoError(t, set.Execute())
	client, err := lab.Dial(name)
	require.NoError(t, err)
	require.Error(t, client.Set(lab.Change{Rate: new(int64)}))
	_, err = hold.Write([]byte("\n"))
	require.NoError(t, err)
	require.NoError(t, hold.Close())
	require.Equal(t, exit.Status{Code: 5}, <-ran)
	for _, none := range []string{name, "no/name"} { // a wrong command line, and not a fault of this host
		set.SilenceErrors, set.SilenceUsage = true, true
		set.SetArgs([]string{"set", none, "--loss", "1%"})
		_, code := exit.Classify(set.Execute())
		require.Equal(t, 2, code, none)
	}
}

// A command in the middle passes on what it gets.
func TestLabRunLegs(t *testing.T) {
	const relay = `python3 -c 'import os,socket
s=socket.create_server(("",9)); c=s.accept()[0]
d=socket.create_connection((os.environ["FXFER_LAB_RIGHT"],9)); d.sendall(c.recv(9)); c.sendall(d.recv(9))'`
	const answer = `python3 -c 'import socket
c=socket.create_server(("",9)).accept()[0]; c.sendall(c.recv(9).upper())'`
	const ask = `python3 -c 'import os,socket
c=socket.create_connection((os.environ["FXFER_LAB_MIDDLE1"],9)); c.sendall(b"hello"); print(c.recv(9).decode())'`
	out, errs, err := runLab(t, "--leg", "2ms,100mbit,initcwnd=3", "--leg", "4ms,1gbit", "--right", answer, "--middle", relay, "--", "sh", "-c", ask)
	require.NoError(t, err, errs)
	require.Equal(t, "HELLO\n", out)
	require.Regexp(t, `fxfer lab: leg 1: left to right [4-9] packets.*\n`, errs)
	require.Regexp(t, `fxfer lab: leg 2: left to right [4-9] packets.*\n`, errs)

	for _, args := range [][]string{
		{"--middle", "true"}, {"--leg", "2ms,1gbit", "--middle", "true"}, {"--leg", "2ms,1gbit", "--rtt", "2ms"}, {"--leg", "2ms"},
		{"--leg", "2ms,1gbit", "--cross", "reno:1"},
	} {
		_, _, err = runLab(t, append(args, "true")...)
		require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err), args)
	}
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
