package tcp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/transport/socket"
)

const (
	// lowWater is how much unsent data the kernel takes. More would only age in its queue. Less
	// would starve the link between two Writes.
	lowWater = 512 << 10

	// longPath is the RTT from which BBR is chosen. Shorter paths have little loss that could be
	// mistaken for congestion, and pacing costs CPU.
	longPath = time.Millisecond
)

// prepare sets the options that must, or can, be set before connect or listen. Accepted sockets
// inherit them.
func prepare(raw syscall.RawConn, cfg Config) error {
	if cfg.SockBuf < 0 {
		return fmt.Errorf("socket buffer of %d bytes", cfg.SockBuf)
	}
	err := socket.Control(raw, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, lowWater); err != nil {
			return fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerTimeout.Milliseconds())); err != nil {
			return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
		}
		// A stream with few segments in flight, such as the control stream, sends lost ones again
		// after equal times. With doubled times, one behind a full queue is silent for a minute.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
		return nil
	})
	if err != nil {
		return err
	}
	if !cfg.automatic() {
		if err := setCongestion(raw, cfg.Congestion); err != nil {
			return err
		}
	}
	d := preset(cfg)
	if d.exact {
		return fixSocket(raw, cfg.SockBuf)
	}
	socket.SetBuffers(raw, d.snd, d.rcv, d.force)
	return nil
}

// ClampSegments bounds the segments of both ends. The SYN announces the bound to the peer.
func ClampSegments(raw syscall.RawConn, mss int) {
	const most = 32767 // MAX_TCP_WINDOW in include/net/tcp.h
	_ = socket.Control(raw, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, min(mss, most))
	})
}

// setLowWater bounds the unsent data in the kernel's buffer. 0 always lets the next bytes in.
func setLowWater(tcp *net.TCPConn, bytes int) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = socket.Control(raw, func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
		})
	}
}

// setReadLowWater sets from how many bytes on the socket can be read, as far as those who wait see.
func setReadLowWater(tcp *net.TCPConn, bytes int) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = socket.Control(raw, func(fd int) error {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
		})
	}
}

// setPacing bounds the rate of a socket. It needs no privilege, works with every congestion control,
// and takes effect at once.
func setPacing(tcp *net.TCPConn, rate float64) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	most := uint64(math.MaxUint64) // ~0 is no bound
	if rate < math.MaxInt64 {
		most = uint64(max(rate, 1))
	}
	_ = socket.Control(raw, func(fd int) error {
		return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, most)
	})
}

// acknowledger has the kernel acknowledge what was read.
type acknowledger struct{ raw syscall.RawConn }

func newAcknowledger(tcp *net.TCPConn) *acknowledger {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return &acknowledger{raw}
}

// acknowledge does so at once, if all that has arrived was read. By itself, the kernel waits for a second segment, for
// 40 ms at least where none comes. A sender that paces single segments, as it must on devices without segmentation
// offload such as those of some VPNs, would take that for a queue, and send even less.
func (a *acknowledger) acknowledge() {
	_ = a.raw.Control(setQuickAck)
}

func setQuickAck(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) }

// fixWindow is fixSocket for a connected socket.
func fixWindow(tcp *net.TCPConn, size int) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return fixSocket(raw, size)
}

// roomPerWindow is the receive buffer to request, in windows. With less, the kernel's bookkeeping
// of small segments would take part of the window.
const roomPerWindow = 2

// fixSocket makes size bytes the window in both directions. The part of a receive buffer that
// becomes the window depends on the kernel. The clamp makes it exact.
func fixSocket(raw syscall.RawConn, size int) error {
	return socket.Control(raw, func(fd int) error {
		for _, o := range []struct {
			level, opt, size int
			name             string
		}{
			{unix.SOL_SOCKET, unix.SO_SNDBUF, size, "SO_SNDBUF"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, roomPerWindow * size, "SO_RCVBUF"},
			{unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size, "TCP_WINDOW_CLAMP"},
		} {
			if err := unix.SetsockoptInt(fd, o.level, o.opt, o.size); err != nil {
				return fmt.Errorf("set %s to %d: %w", o.name, o.size, err)
			}
		}
		return nil
	})
}

// keepWindow puts the clamp back to size if the kernel has moved it.
func keepWindow(tcp *net.TCPConn, size int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = socket.Control(raw, func(fd int) error {
		if clamp, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP); err == nil && clamp > size {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size)
		}
		return nil
	})
}

// limitUnread clamps the window to size bytes, makes the receive buffer hold roomPerWindow of them, and
// keeps the kernel from adapting it. Without privilege, SO_RCVBUF grants little (rmem_max), but
// SO_RCVLOWAT makes room for half of what the kernel would adapt to (tcp_set_rcvlowat in
// net/ipv4/tcp.c). SO_BUF_LOCK is that of Linux 5.15. Without it, the buffer is what SO_RCVBUF grants.
func limitUnread(tcp *net.TCPConn, size int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = socket.Control(raw, func(fd int) error {
		set := func(option, value int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value) }
		const receive = 2 // SOCK_RCVBUF_LOCK in include/net/sock.h
		locks, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		if err != nil {
			err = set(unix.SO_RCVBUF, roomPerWindow*size)
		} else {
			err = errors.Join(set(unix.SO_BUF_LOCK, locks&^receive), set(unix.SO_RCVLOWAT, roomPerWindow*size),
				set(unix.SO_RCVLOWAT, 1), set(unix.SO_BUF_LOCK, locks|receive))
		}
		return errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size))
	})
}

// bufferSizes returns the sizes of both buffers, in bytes as the kernel counts.
func bufferSizes(tcp *net.TCPConn) (snd, rcv int) { return socket.Buffers(tcp) }

// enlarge requests the buffers of d. A refusal is no error: Windows reports what was obtained.
func enlarge(tcp *net.TCPConn, d decision) {
	if raw, err := tcp.SyscallConn(); err == nil {
		socket.SetBuffers(raw, d.snd, d.rcv, d.force)
	}
}

// setCongestion sets the named congestion control, or says why the kernel refuses it.
func setCongestion(raw syscall.RawConn, name string) error {
	return socket.Control(raw, func(fd int) error {
		err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("%w %q: this kernel has only %s", ErrCongestion, name, congestionControls("available"))
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("%w %q: net.ipv4.tcp_allowed_congestion_control has only %s", ErrCongestion, name, congestionControls("allowed"))
		}
		return fmt.Errorf("congestion control %q: %w", name, err)
	})
}

// congestionControls returns the names that the kernel lists as available or allowed.
func congestionControls(which string) string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_" + which + "_congestion_control")
	if err != nil {
		return "others"
	}
	return strings.Join(strings.Fields(string(text)), ", ")
}

// chooseCongestion makes the automatic choice: BBR on long paths. On short paths and under a fixed
// window it replaces BBR, where that is the system's default, by something that costs less CPU:
// there is no queue to model there, and pacing only delays a small window. 64 KiB at 10 ms gave 46
// Mbit/s paced, and 50 in bursts.
func chooseCongestion(tcp *net.TCPConn, path Path, fixedWindow bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	if path.RTT >= longPath && !fixedWindow {
		_ = setCongestion(raw, "bbr")
		return
	}
	if congestionOf(raw) == "bbr" && setCongestion(raw, "cubic") != nil {
		_ = setCongestion(raw, "reno") // allowed to everyone
	}
}

func congestionOf(raw syscall.RawConn) (name string) {
	_ = socket.Control(raw, func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	return name
}

// SetCork sets TCP_CORK: what is written waits for a full segment until it is off again.
func SetCork(tcp *net.TCPConn, on bool) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	value := 0
	if on {
		value = 1
	}
	return socket.Control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_CORK, value) })
}
