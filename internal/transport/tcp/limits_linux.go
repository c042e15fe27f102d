package tcp

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readLimits asks a fresh socket for its limits: not every network namespace shows
// net.core.*mem_max, and the right to exceed it depends on who owns the namespace. The upper ends
// of autotuning are sysctls of this namespace.
func readLimits() kernelLimits {
	l := kernelLimits{
		Bookkeeping: true,
		SndAuto:     lastField("/proc/sys/net/ipv4/tcp_wmem"),
		RcvAuto:     lastField("/proc/sys/net/ipv4/tcp_rmem"),
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return l
	}
	defer unix.Close(fd)
	most := func(opt int) int {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 1<<30-1) != nil {
			return 0
		}
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
		if err != nil {
			return 0
		}
		return n / 2
	}
	l.SndMax, l.RcvMax = most(unix.SO_SNDBUF), most(unix.SO_RCVBUF)
	l.Force = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20) == nil
	return l
}

// lastField returns the last number of a sysctl, or 0.
func lastField(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text))
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return 0
	}
	return n
}
