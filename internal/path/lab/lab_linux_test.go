package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const (
	holdEnv = "FXFER_LAB_TEST_HOLD" // makes the test program hold a lab until it is killed
	markEnv = "FXFER_LAB_TEST_MARK" // marks the processes of one lab
)

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		hold()
	}
	goleak.VerifyTestMain(m)
}

// startLab returns a lab that is closed with the test. It skips the test if there can't be a lab
// without root.
func startLab(t *testing.T, link Link) *Lab {
	t.Helper()
	l, err := Start(link)
	if errors.Is(err, ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// echo serves UDP and TCP echoes on the right host until the test ends, and returns their port.
func echo(t *testing.T, l *Lab) int {
	t.Helper()
	var ln net.Listener
	var pc net.PacketConn
	require.NoError(t, l.Right.Do(func() (err error) {
		addr := net.JoinHostPort(l.Right.Addr().String(), "7")
		if ln, err = net.Listen("tcp", addr); err != nil {
			return err
		}
		pc, err = net.ListenPacket("udp", addr)
		return err
	}))
	done := make(chan struct{}, 2)
	t.Cleanup(func() {
		ln.Close()
		pc.Close()
		<-done
		<-done
	})
	go func() {
		defer func() { done <- struct{}{} }()
		b := make([]byte, 2000)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(b[:n], from)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	return 7
}

func dial(t *testing.T, h *Host, network string, to *Host, port int) net.Conn {
	t.Helper()
	var c net.Conn
	require.NoError(t, h.Do(func() (err error) {
		c, err = net.Dial(network, net.JoinHostPort(to.Addr().String(), strconv.Itoa(port)))
		return err
	}))
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func roundTrip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	var b [8]byte
	start := time.Now()
	_, err := c.Write(b[:])
	require.NoError(t, err)
	_, err = io.ReadFull(c, b[:])
	require.NoError(t, err)
	return time.Since(start)
}

// leastRoundTrip is the best of some round trips, up to the first within slack of want. A busy
// machine delays most of them: the line is too slow only if no try in half a minute was quick.
func leastRoundTrip(t *testing.T, c net.Conn, want, slack time.Duration) time.Duration {
	t.Helper()
	best, began := time.Hour, time.Now()
	for i := 0; i < 12 || best > want+slack && time.Since(began) < 30*time.Second; i++ {
		best = min(best, roundTrip(t, c))
	}
	return best
}

func TestRTT(t *testing.T) {
	for _, rtt := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 120 * time.Millisecond} {
		l := startLab(t, Link{Rate: 1e9, RTT: rtt})
		port := echo(t, l)
		slack := max(500*time.Microsecond, rtt/100)
		for _, network := range []string{"udp", "tcp"} {
			c := dial(t, l.Left, network, l.Right, port)
			best := leastRoundTrip(t, c, rtt, slack)
			t.Logf("%v asked, %v by %s", rtt, best, network)
			require.InDelta(t, rtt, best, float64(slack), network)
		}
	}
}

// transfer sends n random bytes from left to right over TCP, and fails if they arrive changed or
// not at all.
func transfer(t *testing.T, l *Lab, n int) (elapsed time.Duration) {
	t.Helper()
	var ln net.Listener
	require.NoError(t, l.Right.Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(l.Right.Addr().String(), "0"))
		return err
	}))
	defer ln.Close()
	want := randomPayload(rand.New(rand.NewPCG(1, 1)), n)
	start := time.Now()
	c := dial(t, l.Left, "tcp", l.Right, ln.Addr().(*net.TCPAddr).Port)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- errors.Join(err, c.Close())
	}()
	in, err := ln.Accept()
	require.NoError(t, err)
	got, err := io.ReadAll(in)
	elapsed = time.Since(start)
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(want, got))
	return elapsed
}

// A transfer is never faster than the line, and a line of four times the rate makes it faster. How
// exactly a line holds its rate is tested without a clock: see TestLineSustainedRate.
func TestTransferAtRate(t *testing.T) {
	l := startLab(t, Link{Rate: 25e6, RTT: 4 * time.Millisecond})
	const n = 4_000_000
	at := func(rate int64) time.Duration {
		require.NoError(t, l.Set(Change{Rate: &rate}))
		elapsed, limit := transfer(t, l, n), n*8*time.Second/time.Duration(rate)*1538/1448
		t.Logf("%v at %d bit/s, the limit is %v", elapsed, rate, limit)
		require.Greater(t, elapsed, limit, "faster than the line")
		return elapsed
	}
	faster := false
	for try := 0; try < 5 && !faster; try++ { // a busy machine may be slower than both lines
		faster = at(25e6) > 2*at(100e6)
	}
	require.True(t, faster, "as slow on a faster line")
}

// Real trains survive every fault: the kernel accepts what the link cut, and rejects what it
// damaged.
func TestTransferThroughFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := startLab(t, Link{Rate: 1e9, RTT: 2 * time.Millisecond, Loss: 0.005, Reorder: 0.01, Corrupt: 1e-6, Seed: seed})
	before := checksumErrors(t, l.Right)
	transfer(t, l, 40_000_000)
	var there, back Counters
	require.Eventually(t, func() bool { // the last segments may be on their way
		there, back = l.Counters()
		return there.Corrupted == checksumErrors(t, l.Right)-before
	}, 10*time.Second, 10*time.Millisecond)
	t.Logf("%+v", there)
	require.Positive(t, there.Corrupted)
	for _, c := range []Counters{there, back} {
		n := c.Sent - c.Dropped
		near(t, n, c.Lost, 0.005, "lost")
		near(t, n-c.Lost, c.Reordered, 0.01, "reordered")
	}
}

// checksumErrors returns the number of TCP segments that the host rejected.
func checksumErrors(t *testing.T, h *Host) (n int64) {
	t.Helper()
	require.NoError(t, h.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if f[0] != "Tcp:" {
				continue
			}
			if names == nil {
				names = f
				continue
			}
			n, err = strconv.ParseInt(f[slices.Index(names, "InCsumErrors")], 10, 64)
		}
		return err
	}))
	return n
}

func TestIPv6(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: 2 * time.Millisecond, Loss: 0.001, Seed: 5})
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("this machine has no IPv6")
	}
	l.Right.addr, l.Left.addr = l.Right.addr6, l.Left.addr6
	transfer(t, l, 5_000_000)
}

func TestLargeMTU(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: time.Millisecond, MTU: 9000})
	transfer(t, l, 5_000_000)
	there, _ := l.Counters()
	require.Less(t, there.Delivered, int64(1000))
}

func TestSet(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: 2 * time.Millisecond})
	c := dial(t, l.Left, "udp", l.Right, echo(t, l))
	require.Less(t, leastRoundTrip(t, c, 2*time.Millisecond, 50*time.Millisecond), 100*time.Millisecond)

	rtt := 200 * time.Millisecond
	require.NoError(t, l.Set(Change{RTT: &rtt, Direction: LeftToRight}))
	require.InDelta(t, 101*time.Millisecond, leastRoundTrip(t, c, 101*time.Millisecond, 25*time.Millisecond), float64(50*time.Millisecond))
	there, back := l.Link()
	require.Equal(t, rtt, there.RTT)
	require.Equal(t, 2*time.Millisecond, back.RTT)

	all, none := 1.0, 0.0
	require.NoError(t, l.Set(Change{Loss: &all, Direction: RightToLeft}))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(400*time.Millisecond)))
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, counted := l.Counters()
	require.EqualValues(t, 1, counted.Lost)

	fast := 2 * time.Millisecond
	start := time.Now() // the outage may have begun before Set returns
	require.NoError(t, l.Set(Change{Loss: &none, RTT: &fast, Down: 300 * time.Millisecond}))
	require.Eventually(t, func() bool {
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		_, err = c.Read(make([]byte, 1))
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.Greater(t, time.Since(start), 280*time.Millisecond)
	outage, _ := l.Counters()
	require.Positive(t, outage.Outage)

	bad := 2.0
	require.Error(t, l.Set(Change{Loss: &bad}))
}

func TestCommand(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9})
	out, err := l.Left.Command(t.Context(), "sh", "-c", "echo $FXFER_LAB_LEFT $FXFER_LAB_RIGHT; pwd; cat; readlink /proc/$$/ns/net").Output()
	require.NoError(t, err)
	lines := strings.Split(string(out), "\n")
	require.Equal(t, "10.77.0.1 10.77.0.2", lines[0])
	dir, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, dir, lines[1])
	own, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	require.NotEqual(t, own, lines[2])

	c := l.Right.Command(t.Context(), "sh", "-c", "exit 7")
	require.NoError(t, c.Start())
	code, err := c.Attend()
	require.NoError(t, err)
	require.Equal(t, 7, code)
	c = l.Right.Command(t.Context(), "sh", "-c", "kill -TERM $$")
	require.NoError(t, c.Start())
	code, err = c.Attend()
	require.NoError(t, err)
	require.Equal(t, 128+15, code)

	ctx, cancel := context.WithCancel(t.Context())
	c = l.Left.Command(ctx, "sleep", "1000")
	require.NoError(t, c.Start())
	cancel()
	require.Error(t, c.Wait())

	require.ErrorIs(t, l.Left.Command(t.Context(), "no-such-program").Run(), exec.ErrNotFound)
	listening, err := l.Right.Listening()
	require.NoError(t, err)
	require.False(t, listening)
	echo(t, l)
	listening, err = l.Right.Listening()
	require.NoError(t, err)
	require.True(t, listening)
}

// The hosts have the same limits as this machine.
func TestStockLimits(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9})
	for _, name := range []string{"tcp_rmem", "tcp_wmem", "tcp_congestion_control"} {
		want, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		require.NoError(t, err)
		got, err := l.Left.Command(t.Context(), "cat", "/proc/sys/net/ipv4/"+name).Output()
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
}

// background leaves processes behind in every way that a shell knows.
const background = `setsid sleep 10000 & (trap '' TERM INT HUP; sleep 10000) & (sleep 10000 &) ; echo started; exec sleep 10000`

// startBackground starts background on both hosts with a mark. It returns a function that waits
// for its end.
func startBackground(l *Lab, mark string) (wait func(), err error) {
	var cmds []*Cmd
	for _, h := range []*Host{l.Left, l.Right} {
		c := h.Command(context.Background(), "sh", "-c", background)
		c.Env = append(c.Env, markEnv+"="+mark)
		out, err := c.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(out, make([]byte, len("started\n"))); err != nil {
			return nil, err
		}
		cmds = append(cmds, c)
	}
	return func() {
		for _, c := range cmds {
			_ = c.Wait() // it was killed
		}
	}, nil
}

// marked returns the processes with the mark in their environment.
func marked(t *testing.T, mark string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, f := range files {
		if b, _ := os.ReadFile(f); bytes.Contains(b, []byte(markEnv+"="+mark)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// namespaces returns the namespaces that threads of this process, or of one with such a mark, are
// in or hold open. It ignores other processes, because the kernel reuses the number of a
// namespace that is gone.
func namespaces(t *testing.T, marks []string) map[string]bool {
	t.Helper()
	pids := []string{"self"}
	for _, mark := range marks {
		pids = append(pids, marked(t, mark)...)
	}
	found := make(map[string]bool)
	for _, pid := range pids {
		for _, pattern := range []string{"task/*/ns/net", "task/*/ns/pid", "task/*/ns/mnt", "fd/*"} {
			links, err := filepath.Glob(filepath.Join("/proc", pid, pattern))
			require.NoError(t, err)
			for _, l := range links {
				if to, err := os.Readlink(l); err == nil && (strings.HasPrefix(to, "net:") || strings.HasPrefix(to, "pid:") || strings.HasPrefix(to, "mnt:")) {
					found[to] = true
				}
			}
		}
	}
	return found
}

// tunFiles returns how many TUN devices this process holds.
func tunFiles(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); to == tunPath {
			n++
		}
	}
	return n
}

// requireGone fails unless this process, and those with such marks, soon release the given
// namespaces.
func requireGone(t *testing.T, inside map[string]bool, marks ...string) {
	t.Helper()
	require.NotEmpty(t, inside)
	require.Eventually(t, func() bool {
		now := namespaces(t, marks)
		for ns := range inside {
			if now[ns] {
				return false
			}
		}
		return true
	}, 10*time.Second, 10*time.Millisecond)
}

// ownNamespaces returns the namespaces of the lab.
func (l *Lab) ownNamespaces(t *testing.T) map[string]bool {
	t.Helper()
	own := make(map[string]bool)
	for fd, kind := range map[int]string{l.Left.net: "net", l.Right.net: "net", l.box.pid: "pid", l.box.mnt: "mnt"} {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		own[fmt.Sprintf("%s:[%d]", kind, st.Ino)] = true
	}
	require.Len(t, own, 4)
	return own
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	for _, load := range []bool{false, true} {
		mark := strconv.FormatUint(rand.Uint64(), 36)
		boxMark := "box-" + mark
		t.Setenv(markEnv, boxMark) // commands get the other one
		l, err := Start(Link{Rate: 1e9})
		if errors.Is(err, ErrUnsupported) && os.Geteuid() != 0 {
			t.Skip(err)
		}
		require.NoError(t, err)
		require.Len(t, marked(t, boxMark), 1)
		own := l.ownNamespaces(t)
		seen := namespaces(t, []string{boxMark})
		for ns := range own {
			require.Contains(t, seen, ns)
		}
		wait := func() {}
		if load {
			wait, err = startBackground(l, mark)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(marked(t, mark)), 2)
		}
		require.NoError(t, l.Close())
		// Commands without a Wait are killed by then, but may still be about to end.
		require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, 10*time.Second, 10*time.Millisecond)
		require.NoError(t, l.Close())
		wait()
		require.Zero(t, tunFiles(t))
		requireGone(t, own, mark, boxMark)
		require.ErrorIs(t, l.Set(Change{}), errClosed)
		require.Error(t, l.Left.Command(t.Context(), "true").Run())
	}
}

func TestNothingIsLeftAfterFailure(t *testing.T) {
	startLab(t, Link{Rate: 1e9}) // skips the test if there can be no lab
	_, err := Start(Link{Rate: 1})
	require.ErrorContains(t, err, "rate")
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	h, err := newHost(&Lab{})
	require.NoError(t, err)
	addr, addr6 := address(0, left)
	_, err = h.join("wan0", 10, addr, addr6) // the kernel refuses the MTU
	require.ErrorContains(t, err, "MTU")
	require.NoError(t, h.close())
	_, err = startBox(make([]Link, 2), []int{0, 1}, []*os.File{os.Stdin, os.Stdin}) // no TUN devices
	require.Error(t, err)
	after, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	require.LessOrEqual(t, len(after), len(fds)) // what earlier tests closed may have been on its way
}

// hold runs a program with a lab that doesn't end by itself.
func hold() {
	l, err := Start(Link{Rate: 1e9})
	if err == nil {
		_, err = startBackground(l, os.Getenv(markEnv))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

func TestNothingIsLeftAfterKill(t *testing.T) {
	startLab(t, Link{Rate: 1e9}) // skips the test if there can be no lab
	mark := strconv.FormatUint(rand.Uint64(), 36)
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), holdEnv+"=1", markEnv+"="+mark)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	said := make([]byte, len("ready"))
	_, err = io.ReadFull(out, said)
	require.NoError(t, err)
	require.Equal(t, "ready", string(said))
	inside := make(map[string]bool)
	for _, pid := range marked(t, mark) {
		for _, kind := range []string{"net", "pid", "mnt"} {
			ns, err := os.Readlink("/proc/" + pid + "/ns/" + kind)
			own, ownErr := os.Readlink("/proc/self/ns/" + kind)
			require.NoError(t, ownErr)
			if err == nil && ns != own {
				inside[ns] = true
			}
		}
	}
	require.Len(t, inside, 4, "two hosts, and the PID and mount namespaces of the commands")

	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, 10*time.Second, 10*time.Millisecond)
	requireGone(t, inside, mark)
}

// A box that dies takes the lab down, and the error says so.
func TestBoxDies(t *testing.T) {
	l, err := Start(Link{Rate: 1e9})
	if errors.Is(err, ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	require.NoError(t, err)
	mark := strconv.FormatUint(rand.Uint64(), 36)
	wait, err := startBackground(l, mark)
	require.NoError(t, err)
	require.NoError(t, l.box.cmd.Process.Kill()) // from outside its namespace
	wait()
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, 10*time.Second, 10*time.Millisecond)
	l.Counters()
	require.Error(t, l.Set(Change{Down: time.Second}))
	require.Error(t, l.Close())
}

func TestControl(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: time.Millisecond})
	name := "test-" + strconv.FormatUint(rand.Uint64(), 36)
	_, err := Dial(name)
	require.ErrorContains(t, err, "there is no lab")
	_, err = Dial("../x")
	require.ErrorContains(t, err, "letters")
	ctl, err := ListenControl(name)
	require.NoError(t, err)
	_, err = ListenControl(name)
	require.ErrorContains(t, err, "is up already")
	served := make(chan error, 1)
	go func() { served <- ctl.Serve(t.Context(), l) }()

	client, err := Dial(name)
	require.NoError(t, err)
	loss, bad := 0.25, 2.0
	require.NoError(t, client.Set(Change{Loss: &loss, Direction: RightToLeft}))
	there, back := l.Link()
	require.Equal(t, []float64{0, 0.25}, []float64{there.Loss, back.Loss})
	require.ErrorContains(t, client.Set(Change{Loss: &bad}), "loss")
	for _, h := range []*Host{l.Left, l.Right} { // commands in the lab reach it too
		loss += 0.25
		require.NoError(t, h.Do(func() error { return client.Set(Change{Loss: &loss}) }))
		there, _ = l.Link()
		require.InDelta(t, loss, there.Loss, 0)
	}

	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("COLOUR", "green")
	code, err := client.Exec("right", "sh", "-c", `echo $COLOUR $FXFER_LAB_RIGHT > out; readlink /proc/$$/ns/net > net; exit 3`)
	require.NoError(t, err)
	require.Equal(t, 3, code)
	out, err := os.ReadFile("out")
	require.NoError(t, err)
	require.Equal(t, "green 10.77.0.2\n", string(out))
	_, err = client.Exec("left", "no-such-program")
	require.ErrorIs(t, err, exec.ErrNotFound)

	// The end of the lab ends what runs in it.
	running := make(chan int, 1)
	require.NoError(t, unix.Mkfifo("ready", 0o600))
	go func() {
		code, _ := client.Exec("left", "sh", "-c", "echo > ready; exec sleep 1000")
		running <- code
	}()
	_, err = os.ReadFile("ready")
	require.NoError(t, err)
	_, _, err = client.Down()
	require.NoError(t, err)
	require.Equal(t, 128+9, <-running)
	require.NoError(t, <-served)
	_, err = Dial(name)
	require.ErrorContains(t, err, "there is no lab")
}

// A command ends when the client that started it does.
func TestControlClientGone(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9})
	mark := strconv.FormatUint(rand.Uint64(), 36)
	ctl, err := ListenControl("test-" + mark)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- ctl.Serve(ctx, l) }()
	client, err := Dial("test-" + mark)
	require.NoError(t, err)
	conn, err := client.connect()
	require.NoError(t, err)

	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(0, int(w.Fd()), 2), nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, json.NewEncoder(conn).Encode(request{
		Op: "exec", Path: "/bin/sh", Args: []string{"sh", "-c", "echo started; exec sleep 10000"}, Env: append(os.Environ(), markEnv+"="+mark), Dir: "/",
	}))
	_, err = io.ReadFull(r, make([]byte, len("started\n")))
	require.NoError(t, err)
	// A process has no environment for a moment while it becomes another program.
	require.Eventually(t, func() bool { return len(marked(t, mark)) > 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, 10*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-served)
}

// flow is a TCP connection from left to right that sends zeros until the test ends.
func flow(t *testing.T, l *Lab) (out *net.TCPConn, received *atomic.Int64) {
	t.Helper()
	var ln net.Listener
	require.NoError(t, l.Right.Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(l.Right.Addr().String(), "0"))
		return err
	}))
	defer ln.Close()
	out = dial(t, l.Left, "tcp", l.Right, ln.Addr().(*net.TCPAddr).Port).(*net.TCPConn)
	in, err := ln.Accept()
	require.NoError(t, err)
	received = new(atomic.Int64)
	done := make(chan struct{}, 2)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(out.SetLinger(0), out.Close(), in.Close()))
		<-done
		<-done
	})
	go func() {
		b := make([]byte, 64<<10)
		for n, err := 0, error(nil); err == nil; n, err = in.Read(b) {
			received.Add(int64(n))
		}
		done <- struct{}{}
	}()
	go func() {
		b := make([]byte, 64<<10)
		for err := error(nil); err == nil; _, err = out.Write(b) {
		}
		done <- struct{}{}
	}()
	return out, received
}

func tcpInfo(t *testing.T, c *net.TCPConn) (info *unix.TCPInfo) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}))
	require.NoError(t, err)
	return info
}

func TestPathMTU(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: 2 * time.Millisecond, PMTU: 1308})
	for _, six := range []bool{false, true} {
		if six {
			if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
				continue
			}
			l.Right.addr, l.Left.addr = l.Right.addr6, l.Left.addr6
		}
		out, received := flow(t, l)
		require.Eventually(t, func() bool { return received.Load() > 1e6 }, 10*time.Second, time.Millisecond)
		require.EqualValues(t, 1308, tcpInfo(t, out).Pmtu)
	}
	there, back := l.Counters()
	require.Positive(t, there.TooBig)
	require.Zero(t, back.TooBig)
}

// TCP gets through a black hole only if it probes (RFC 4821).
func TestBlackHole(t *testing.T) {
	l := startLab(t, Link{Rate: 1e9, RTT: 2 * time.Millisecond, PMTU: 1308, BlackHole: true})
	set := func(name, v string) {
		require.NoError(t, l.Left.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(v), 0) }))
	}
	set("tcp_retries1", "1") // timeouts until the kernel doubts the path
	set("tcp_mtu_probing", "0")
	stuck, none := flow(t, l)
	require.Eventually(t, func() bool { return tcpInfo(t, stuck).Total_retrans >= 3 }, 30*time.Second, 10*time.Millisecond)
	require.Zero(t, none.Load())

	set("tcp_mtu_probing", "1")
	working, received := flow(t, l)
	require.Eventually(t, func() bool { return received.Load() > 1e6 }, 30*time.Second, time.Millisecond)
	require.Less(t, tcpInfo(t, working).Snd_mss, uint32(1308))
}
