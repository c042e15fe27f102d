package fxfer

import (
	"bytes"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/diagnose"
	"golang.org/x/sys/unix"
)

// runDelay is how long the threads of this process could have run and did not: Documentation/scheduler/sched-stats.rst.
func runDelay() time.Duration {
	const tasks = "/proc/self/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0
	}
	var sum int64
	for _, t := range threads {
		text, err := os.ReadFile(tasks + "/" + t.Name() + "/schedstat")
		if err != nil {
			continue // it ended
		}
		if f := bytes.Fields(text); len(f) >= 2 {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			sum += n
		}
	}
	return time.Duration(sum)
}

// coresAllowed is how many cores this process may use, in thousandths: those of its affinity, or less by the quota of its control groups.
func coresAllowed() int64 {
	cores := int64(runtime.NumCPU()) * 1000
	for dir := controlGroup(); ; dir = path.Dir(dir) {
		text, err := os.ReadFile("/sys/fs/cgroup" + path.Join(dir, "cpu.max"))
		if f := strings.Fields(string(text)); err == nil && len(f) == 2 {
			quota, err1 := strconv.ParseInt(f[0], 10, 64) // or "max"
			period, err2 := strconv.ParseInt(f[1], 10, 64)
			if err1 == nil && err2 == nil && period > 0 && quota < 1<<40 {
				cores = min(cores, quota*1000/period)
			}
		}
		if dir == "/" || dir == "." {
			return max(1, cores)
		}
	}
}

// controlGroup is this process's, of version 2: cgroups(7).
func controlGroup() string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Clean("/" + dir)
		}
	}
	return "/"
}

// hostFacts are this host's.
func hostFacts(name string, sockBuf int64) diagnose.Host {
	h := diagnose.Host{Name: name, SockBuf: sockBuf}
	three := func(sysctl string, a, b, c *int64) {
		if f := strings.Fields(readSysctl(sysctl)); len(f) == 3 {
			for i, v := range []*int64{a, b, c} {
				*v, _ = strconv.ParseInt(f[i], 10, 64)
			}
		}
	}
	three("tcp_rmem", &h.RmemMin, &h.RmemDefault, &h.RmemMax)
	three("tcp_wmem", &h.WmemMin, &h.WmemDefault, &h.WmemMax)
	h.MTUProbing, _ = strconv.ParseInt(readSysctl("tcp_mtu_probing"), 10, 64)
	h.BBR = bbrState()
	return h
}

func readSysctl(name string) string {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
	return strings.TrimSpace(string(text))
}

// bbrState finds out whether this process may use BBR, by trying.
func bbrState() int64 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return diagnose.BBRUnknown
	}
	defer unix.Close(fd)
	switch unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr") {
	case nil:
		return diagnose.BBRAllowed
	case unix.EPERM:
		return diagnose.BBRRestricted
	case unix.ENOENT:
		return diagnose.BBRMissing
	}
	return diagnose.BBRUnknown
}
