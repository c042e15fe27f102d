package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// supervisor is the systemd that started this process (sd_notify(3)); nil where none did.
type supervisor struct {
	conn     net.Conn
	watchdog time.Duration // how often it wants to hear of us, 0 for never
}

// newSupervisor connects to systemd, before this process is confined. Children do not inherit it.
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

// tell sends assignments such as READY=1. Nothing depends on their arrival but systemd's view.
func (s *supervisor) tell(assignments ...string) {
	if s != nil {
		_, _ = s.conn.Write([]byte(strings.Join(assignments, "\n")))
	}
}

// statusEvery is how often systemd hears how many sessions there are.
const statusEvery = 10 * time.Second

// keepTelling feeds the watchdog as long as the server is alive, and tells its status, until ctx is done.
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
		if status := "STATUS=" + count(int64(server.Status().Sessions), "session", "sessions"); status != last {
			last = status
			s.tell(status)
		}
	}
}

// firstSocket is the first file descriptor that systemd passes (sd_listen_fds(3)).
const firstSocket = 3

// activated returns the socket that systemd listens on for this process, nil if there is none. Children do not inherit it.
func activated() (*net.TCPListener, error) {
	pid, number := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(v)
	}
	if number == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if number != "1" {
		return nil, usageError("one ListenStream= is enough: an IPv6 address takes IPv4, too", "systemd passes %s sockets: expected one", number)
	}
	f := os.NewFile(firstSocket, "socket of systemd")
	l, err := net.FileListener(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		return nil, fmt.Errorf("take the socket that systemd passes: %w", err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		_ = l.Close()
		return nil, usageError("ListenStream=7433", "the socket that systemd passes is of %s: expected TCP", l.Addr().Network())
	}
	return tcp, nil
}
