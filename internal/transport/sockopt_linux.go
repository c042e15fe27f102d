package transport

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lowWater is how much unsent data the kernel takes. More only ages in its queue; less starves the link between two Writes.
	lowWater = 512 << 10

	// longPath is the RTT from which BBR is chosen: below it there is little loss to mistake for congestion, and pacing costs CPU.
	longPath = time.Millisecond
)

// onSocket calls f with the socket of raw.
func onSocket(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if ctl := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctl != nil {
		return ctl
	}
	return err
}

// prepare sets what must stand, or may as well, before connect or listen. Accepted sockets inherit it.
func prepare(raw syscall.RawConn, cfg Config) error {
	if cfg.SockBuf < 0 {
		return fmt.Errorf("socket buffer of %d bytes", cfg.SockBuf)
	}
	err := onSocket(raw, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, lowWater); err != nil {
			return fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerTimeout.Milliseconds())); err != nil {
			return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
		}
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
	growSocket(raw, d)
	return nil
}

// clampSegments bounds the segments of both ends: the peer is told of it in the SYN.
func clampSegments(raw syscall.RawConn, mss int) {
	const most = 32767 // MAX_TCP_WINDOW in include/net/tcp.h
	_ = onSocket(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, min(mss, most)) })
}

// setLowWater bounds the unsent data in the kernel's buffer. 0 lets the next bytes in whatever is there.
func setLowWater(tcp *net.TCPConn, bytes int) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = onSocket(raw, func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
		})
	}
}

// fixWindow is fixSocket for a connected socket.
func fixWindow(tcp *net.TCPConn, size int) error {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return fixSocket(raw, size)
}

// roomPerWindow is the receive buffer asked for, in windows: with less, the kernel's bookkeeping of small segments takes part of the window.
const roomPerWindow = 2

// fixSocket makes size bytes the window in both directions. How much of a receive buffer becomes window depends on the kernel; the clamp
// makes it exact.
func fixSocket(raw syscall.RawConn, size int) error {
	return onSocket(raw, func(fd int) error {
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

// keepWindow puts the clamp back to size where the kernel has moved it.
func keepWindow(tcp *net.TCPConn, size int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = onSocket(raw, func(fd int) error {
		if clamp, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP); err == nil && clamp > size {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, size)
		}
		return nil
	})
}

// bufferSizes reads both buffers back, in bytes as the kernel counts.
func bufferSizes(tcp *net.TCPConn) (snd, rcv int) {
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = onSocket(raw, func(fd int) error {
			snd, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
			rcv, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			return nil
		})
	}
	return snd, rcv
}

// grow asks for the buffers of d. A refusal is no error: Windows tells what was obtained.
func grow(tcp *net.TCPConn, d decision) {
	if raw, err := tcp.SyscallConn(); err == nil {
		growSocket(raw, d)
	}
}

func growSocket(raw syscall.RawConn, d decision) {
	_ = onSocket(raw, func(fd int) error {
		set := func(force, plain, size int) {
			if size == 0 || d.force && unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) == nil {
				return
			}
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
		}
		set(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, d.snd)
		set(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, d.rcv)
		return nil
	})
}

// setCongestion sets the named congestion control, or says why the kernel refuses.
func setCongestion(raw syscall.RawConn, name string) error {
	return onSocket(raw, func(fd int) error {
		err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("congestion control %q: this kernel does not have it: %w", name, err)
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("congestion control %q: not in net.ipv4.tcp_allowed_congestion_control: %w", name, err)
		}
		return fmt.Errorf("congestion control %q: %w", name, err)
	})
}

// chooseCongestion is the automatic choice: BBR on long paths, and instead of a BBR that is the system's default, what costs less CPU, on
// short ones and under a fixed window. There is no queue to model there, and to pace a small window only delays it: 64 KiB at 10 ms gave
// 46 Mbit/s paced and 50 in bursts.
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
	_ = onSocket(raw, func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	return name
}
