package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// supervisor is the systemd that started this process (sd_notify(3)). It is nil if systemd did not.
type supervisor struct {
	conn     net.Conn
	watchdog time.Duration // longest time between two messages to systemd, 0 if it does not watch
}

// newSupervisor connects to systemd. It has to be called before this process is confined. Child
// processes do not inherit the connection.
func newSupervisor() (*supervisor, error) {
	name := os.Getenv("NOTIFY_SOCKET")
	micros, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(v)
	}
	if name == "" {
		return nil, nil
	}
	conn, err := net.Dial("unixgram", name)
	if err != nil {
		return nil, fmt.Errorf("notify systemd: %w", err)
	}
	s := &supervisor{conn: conn}
	if n, err := strconv.ParseInt(micros, 10, 63); err == nil && n > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(n) * time.Microsecond
	}
	return s, nil
}

// tell sends assignments such as READY=1. It ignores errors, because only systemd's view depends on
// them.
func (s *supervisor) tell(assignments ...string) {
	if s != nil {
		_, _ = s.conn.Write([]byte(strings.Join(assignments, "\n")))
	}
}

// statusEvery is how often systemd gets the number of sessions.
const statusEvery = 10 * time.Second

// keepTelling feeds the watchdog and updates the status in systemd until ctx is done. It feeds the
// watchdog only while the server is alive.
func (s *supervisor) keepTelling(ctx context.Context, server *fxfer.Server) {
	if s == nil {
		return
	}
	every := statusEvery
	if s.watchdog > 0 {
		every = min(every, s.watchdog/2)
	}
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	last, told := "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		server.Alive()
		if s.watchdog > 0 {
			s.tell("WATCHDOG=1")
		}
		if time.Since(told) < statusEvery {
			continue
		}
		told = time.Now()
		if status := "STATUS=" + units.Count(int64(server.Status().Sessions), "session", "sessions"); status != last {
			last = status
			s.tell(status)
		}
	}
}

// firstSocket is the first file descriptor that systemd passes (sd_listen_fds(3)).
const firstSocket = 3

// activated returns the TCP and UDP sockets that systemd passes to this process, nil for each that
// is missing. Child processes do not inherit them.
func activated() (tcp *net.TCPListener, udp *net.UDPConn, err error) {
	pid, number := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(v)
	}
	if number == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 2 {
		return nil, nil, exit.Usage("ListenStream=7433 and ListenDatagram=7433: an IPv6 address takes IPv4, too", "systemd passes %s sockets: expected one of TCP, of UDP, or both", number)
	}
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		stream, datagram, err := passed(os.NewFile(uintptr(fd), "socket of systemd"))
		switch {
		case err != nil:
		case stream != nil && tcp == nil:
			tcp = stream
			continue
		case datagram != nil && udp == nil:
			udp = datagram
			continue
		default:
			err = exit.Usage("ListenStream=7433 and ListenDatagram=7433", "systemd passes two sockets of one kind")
		}
		return nil, nil, err
	}
	return tcp, udp, nil
}

// passed takes over a socket from systemd.
func passed(f *os.File) (*net.TCPListener, *net.UDPConn, error) {
	defer f.Close()
	if l, err := net.FileListener(f); err == nil {
		if tcp, ok := l.(*net.TCPListener); ok {
			return tcp, nil, nil
		}
		_ = l.Close()
	}
	p, err := net.FilePacketConn(f)
	if err != nil {
		return nil, nil, exit.Usage("ListenStream=7433, ListenDatagram=7433", "systemd passes something else than sockets of TCP and UDP: %w", err)
	}
	if udp, ok := p.(*net.UDPConn); ok {
		return nil, udp, nil
	}
	_ = p.Close()
	return nil, nil, exit.Usage("ListenStream=7433, ListenDatagram=7433", "systemd passes a socket of %s: expected TCP or UDP", p.LocalAddr().Network())
}
