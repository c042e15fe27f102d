package tcp

import "golang.org/x/sys/unix"

// readLimits reads the sysctls that bound a socket buffer and its autotuning.
func readLimits() kernelLimits {
	value := func(name string) int {
		n, err := unix.SysctlUint32(name)
		if err != nil {
			return 0
		}
		return int(n)
	}
	most := value("kern.ipc.maxsockbuf")
	return kernelLimits{
		SndAuto: value("net.inet.tcp.autosndbufmax"), RcvAuto: value("net.inet.tcp.autorcvbufmax"),
		SndMax: most, RcvMax: most,
	}
}
