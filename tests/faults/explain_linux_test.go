package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

var explainLabs = flag.Int("explain-labs", 0, "labs of each kind for TestExplain; 0 skips it")

// explainPort is where the server of a case listens.
const explainPort = 9000

// scene is a lab in which a program transfers data from the left host to the right one.
type scene struct {
	*hosts.Folder
	box   *lab.Lab
	right string // address
}

// explainCase is a transfer of which it is known what limits it.
type explainCase struct {
	name  string
	link  lab.Link
	rmem  string   // of the right host
	needs []string // programs
	serve func(t testing.TB, s *scene)
	// run is the command on the left host. Without it, send uses a connection for some seconds.
	run  func(s *scene) []string
	send func(c *net.TCPConn, over <-chan struct{})
	want []diagnose.Limiter
}

var explainCases = []explainCase{
	{
		name: "small buffers", link: lab.Link{Rate: 100e6, RTT: 30 * time.Millisecond}, needs: []string{"iperf3"}, serve: serveIperf,
		run:  func(s *scene) []string { return iperf(s, "-w", "17520") },
		want: []diagnose.Limiter{diagnose.SenderBuffer, diagnose.ReceiverWindow}, // iperf3 sets both
	},
	{
		name: "a rate", link: lab.Link{Rate: 100e6, RTT: 20 * time.Millisecond}, needs: []string{"iperf3"}, serve: serveIperf,
		run:  func(s *scene) []string { return iperf(s, "-b", "20M") },
		want: []diagnose.Limiter{diagnose.RateLimit},
	},
	{
		name: "a full line", link: lab.Link{Rate: 50e6, RTT: 20 * time.Millisecond}, needs: []string{"iperf3"}, serve: serveIperf,
		run:  func(s *scene) []string { return iperf(s) },
		want: []diagnose.Limiter{diagnose.LineRate, diagnose.OwnQueue, diagnose.Bufferbloat},
	},
	{
		name: "a slow reader", link: lab.Link{Rate: 100e6, RTT: 10 * time.Millisecond}, needs: []string{"bash"}, serve: serveWith(readSlowly),
		run: func(s *scene) []string {
			return []string{"bash", "-c", fmt.Sprintf("timeout 5 cat big64 >/dev/tcp/%s/%d; true", s.right, explainPort)}
		},
		want: []diagnose.Limiter{diagnose.ReceivingProgram},
	},
	{
		name: "write, write, read", link: lab.Link{Rate: 100e6, RTT: 10 * time.Millisecond}, serve: serveWith(answerMessages),
		send: sendInTwoWrites, want: []diagnose.Limiter{diagnose.Stalls},
	},
	{
		name: "loss", link: lab.Link{Rate: 100e6, RTT: 30 * time.Millisecond, Loss: 0.01}, needs: []string{"rsync"}, serve: serveRsync,
		run: func(s *scene) []string {
			return []string{"rsync", "--whole-file", "big3", "rsync://" + s.right + ":" + strconv.Itoa(explainPort) + "/in/"}
		},
		want: []diagnose.Limiter{diagnose.RandomLoss},
	},
	{
		name: "FTP with windows of 64 KiB", link: lab.Link{Rate: 100e6, RTT: 50 * time.Millisecond}, rmem: "4096 65536 131072",
		needs: []string{"vsftpd", "lftp"}, serve: serveFTP,
		run: func(s *scene) []string {
			return []string{"lftp", "-c", "set ftp:ssl-allow no; open -p " + strconv.Itoa(explainPort) + " ftp://" + s.right + "; cd in; put big8"}
		},
		want: []diagnose.Limiter{diagnose.ReceiverWindow},
	},
	{
		name: "SMB, one request after the other", link: lab.Link{Rate: 100e6, RTT: 50 * time.Millisecond}, needs: []string{"smbd", "smbclient"}, serve: serveSMB,
		run: func(s *scene) []string {
			return []string{"smbclient", "//" + s.right + "/in", "-p", strconv.Itoa(explainPort), "-N", "-m", "SMB2_02", "-c", "put big8 big8"}
		},
		want: []diagnose.Limiter{diagnose.Requests},
	},
}

// TestExplain: what limits a program that is not ours is named by its sockets, and from a capture.
func TestExplain(t *testing.T) {
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	case *explainLabs == 0:
		t.Skip("-explain-labs is 0: each lab takes ten seconds")
	}
	for _, c := range explainCases {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range append(c.needs, "tcpdump") {
				if _, err := exec.LookPath(name); err != nil {
					t.Skip(err)
				}
			}
			live, captured := 0, 0
			labs(t, *explainLabs, 1, func(t testing.TB) func() {
				named, read := c.explained(t)
				t.Logf("live: %v; capture: %v", named, read)
				return func() {
					live += c.right(named)
					captured += c.right(read)
				}
			})
			t.Logf("named in %d of %d labs live, in %d from a capture", live, *explainLabs, captured)
			require.GreaterOrEqual(t, live, *explainLabs*19/20, "live")
			require.GreaterOrEqual(t, captured, *explainLabs*19/20, "from a capture")
		})
	}
}

// right is 1 if a program's first limit is that of the case.
func (c *explainCase) right(limits []explained) int {
	if len(limits) > 0 && slices.Contains(c.want, limits[0].Limiter) {
		return 1
	}
	return 0
}

// explained is a limit in a report.
type explained struct {
	Limiter diagnose.Limiter
	Side    string
	Share   float64
}

// explained runs a case in a lab, and returns what explain says while it runs, and of a capture.
func (c *explainCase) explained(t testing.TB) (live, captured []explained) {
	t.Helper()
	folder, err := hosts.NewFolder("fxfer-explain-", "home", "tmp", "in", "conf")
	require.NoError(t, err)
	defer func() { require.NoError(t, folder.Remove()) }()
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
	box, err := lab.Start(c.link)
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, box.Close()) }()
	require.NoError(t, box.Left.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_congestion_control", "cubic") }))
	if c.rmem != "" {
		require.NoError(t, box.Right.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_rmem", c.rmem) }))
	}
	s := &scene{folder, box, box.Right.Addr().String()}
	c.serve(t, s)
	stop := s.capture(t)
	live = c.watch(t, s)
	stop()
	return live, s.explain(t, "explain", "--json", "trace")
}

// watch explains the transfer while it runs.
func (c *explainCase) watch(t testing.TB, s *scene) []explained {
	t.Helper()
	if c.run != nil {
		for _, size := range []string{"3", "8", "64"} {
			mega, err := strconv.ParseInt(size, 10, 64)
			require.NoError(t, err)
			require.NoError(t, s.Fill(t.Context(), "big"+size, mega<<20, 1))
		}
		return s.explain(t, append([]string{"explain", "--json", "--"}, c.run(s)...)...)
	}
	over, sent := make(chan struct{}), make(chan struct{})
	var conn net.Conn
	require.NoError(t, s.box.Left.Do(func() (err error) {
		conn, err = net.Dial("tcp", net.JoinHostPort(s.right, strconv.Itoa(explainPort)))
		return err
	}))
	go func() {
		defer close(sent)
		c.send(conn.(*net.TCPConn), over)
	}()
	defer func() {
		close(over)
		_ = conn.Close()
		<-sent
	}()
	return s.explain(t, "explain", "--json", "--port", strconv.Itoa(explainPort), "--for", "5s")
}

// explain runs the command on the left host, and returns the limits that it names.
func (s *scene) explain(t testing.TB, args ...string) []explained {
	t.Helper()
	command := hosts.Command{Host: s.box.Left, Argv: append([]string{s.Abs("fxfer")}, args...)}
	cmd := s.Prepare(t.Context(), command)
	var errs hosts.Output
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, errs.String())
	var report struct{ Limits []explained }
	require.NoError(t, json.Unmarshal(out, &report))
	return report.Limits
}

// capture writes the packets of the left host to the file trace until the function that it returns
// is called.
func (s *scene) capture(t testing.TB) (stop func()) {
	t.Helper()
	cmd := s.box.Left.Command(t.Context(), "tcpdump", "-i", "any", "-s", "128", "-U", "-B", "16384", "-Z", "root", "-w", s.Abs("trace"), "tcp")
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, line := "", make([]byte, 4096)
	for !strings.Contains(said, "listening on") {
		n, err := errs.Read(line)
		require.NoError(t, err, said)
		said += string(line[:n])
	}
	var rest sync.WaitGroup
	rest.Go(func() { _, _ = io.Copy(io.Discard, errs) })
	return func() {
		require.NoError(t, cmd.Process.Signal(unix.SIGINT))
		rest.Wait()
		require.NoError(t, cmd.Wait())
		require.NoError(t, os.Chmod(s.Abs("trace"), 0o644))
	}
}

// begin starts a server on the right host, with a file of its configuration.
func (s *scene) begin(t testing.TB, config string, argv ...string) {
	t.Helper()
	if config != "" {
		require.NoError(t, s.Write("conf/server", config))
	}
	_, err := s.Serve(t.Context(), hosts.Command{Host: s.box.Right, Argv: argv}, explainPort)
	require.NoError(t, err)
}

func serveIperf(t testing.TB, s *scene) {
	s.begin(t, "", "iperf3", "-s", "-p", strconv.Itoa(explainPort))
}

func iperf(s *scene, flags ...string) []string {
	return append([]string{"iperf3", "-c", s.right, "-p", strconv.Itoa(explainPort), "-t", "6"}, flags...)
}

func serveRsync(t testing.TB, s *scene) {
	s.begin(t, fmt.Sprintf("port = %d\nuse chroot = no\nlog file = /dev/null\n[in]\npath = %s\nread only = no\n", explainPort, s.Abs("in")),
		"rsync", "--daemon", "--no-detach", "--config=conf/server")
}

func serveFTP(t testing.TB, s *scene) {
	s.begin(t, fmt.Sprintf(`listen=YES
listen_ipv6=NO
listen_port=%d
background=NO
run_as_launching_user=YES
anonymous_enable=YES
no_anon_password=YES
anon_root=%s
write_enable=YES
anon_upload_enable=YES
allow_writeable_chroot=YES
local_enable=NO
seccomp_sandbox=NO
connect_from_port_20=NO
xferlog_enable=NO
`, explainPort, s.Path), "vsftpd", "conf/server")
}

// serveSMB serves SMB without large writes: a client asks for each 64 KiB.
func serveSMB(t testing.TB, s *scene) {
	smbd, err := exec.LookPath("smbd")
	require.NoError(t, err)
	config, err := s.SMBConfig(explainPort, "conf", "smb2 max credits = 1")
	require.NoError(t, err)
	s.begin(t, config, smbd, "--foreground", "--no-process-group", "--debug-stdout", "--configfile="+s.Abs("conf/server"))
}

// serveWith returns a server of one connection, on the right host.
func serveWith(talk func(*net.TCPConn)) func(testing.TB, *scene) {
	return func(t testing.TB, s *scene) {
		var l net.Listener
		require.NoError(t, s.box.Right.Do(func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":"+strconv.Itoa(explainPort))
			return err
		}))
		go func() {
			defer l.Close()
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			talk(c.(*net.TCPConn))
		}()
	}
}

// readSlowly reads 16 KiB about 30 times a second, until the peer closes the connection. The looks of
// explain are not in step with that.
func readSlowly(c *net.TCPConn) {
	every := time.NewTicker(33 * time.Millisecond)
	defer every.Stop()
	for b := make([]byte, 16<<10); ; <-every.C {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
	}
}

const headerSize, messageSize = 16, 1000

// sendInTwoWrites sends each message as a header and a body, and waits for the answer.
func sendInTwoWrites(c *net.TCPConn, over <-chan struct{}) {
	_ = c.SetNoDelay(false) // errors end the read
	for b := make([]byte, messageSize); ; {
		select {
		case <-over:
			return
		default:
		}
		_, _ = c.Write(b[:headerSize])
		_, _ = c.Write(b[headerSize:])
		if _, err := io.ReadFull(c, b[:headerSize]); err != nil {
			return
		}
	}
}

func answerMessages(c *net.TCPConn) {
	for b := make([]byte, messageSize); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		_, _ = c.Write(b[:headerSize]) // errors end the read
	}
}
