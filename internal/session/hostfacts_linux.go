package session

import (
	"bytes"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fxfer/fxfer/internal/path/diagnose"
	"golang.org/x/sys/unix"
)

// delays caches runDelay for all sessions.
var delays struct {
	sync.Mutex // guards the others
	at         time.Time
	sum        time.Duration
}

// delayEvery is how often runDelay measures. Each thread is a file to read.
const delayEvery = 250 * time.Millisecond

// runDelay is the time that the threads of this process have waited for a CPU, until about now
// (Documentation/scheduler/sched-stats.rst).
func runDelay() time.Duration {
	delays.Lock()
	defer delays.Unlock()
	if time.Since(delays.at) >= delayEvery {
		delays.at, delays.sum = time.Now(), readRunDelay()
	}
	return delays.sum
}

func readRunDelay() time.Duration {
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

// coresAllowed is the number of cores that this process may use, in thousandths, by its affinity
// and by the quotas of its control groups.
func coresAllowed() int64 {
	cores := int64(runtime.NumCPU()) * 1000
	text, _ := os.ReadFile("/proc/self/cgroup")
	for _, root := range quotaGroups(string(text)) {
		for dir := root.dir; ; dir = path.Dir(dir) {
			if quota, period := root.quota(dir); quota > 0 && period > 0 && quota < 1<<40 {
				cores = min(cores, quota*1000/period)
			}
			if dir == "/" {
				break
			}
		}
	}
	return max(1, cores)
}

// quotaGroup is a control group of this process that may have a quota of CPU.
type quotaGroup struct {
	hierarchy string // where it is mounted
	dir       string
	v1        bool
}

// quotaGroups parses /proc/self/cgroup; see cgroups(7).
func quotaGroups(text string) []quotaGroup {
	var groups []quotaGroup
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "":
			groups = append(groups, quotaGroup{"/sys/fs/cgroup", path.Clean("/" + f[2]), false})
		case slices.Contains(strings.Split(f[1], ","), "cpu"):
			groups = append(groups, quotaGroup{"/sys/fs/cgroup/cpu", path.Clean("/" + f[2]), true})
		}
	}
	return groups
}

// quota returns the CPU time that a group may use in each period, both in microseconds. Zero or
// less is no limit.
func (g *quotaGroup) quota(dir string) (quota, period int64) {
	read := func(file string) []string {
		text, _ := os.ReadFile(path.Join(g.hierarchy, dir, file)) // the root group has none
		return strings.Fields(string(text))
	}
	f := read("cpu.max")
	if g.v1 {
		f = slices.Concat(read("cpu.cfs_quota_us"), read("cpu.cfs_period_us"))
	}
	if len(f) != 2 {
		return 0, 0
	}
	quota, _ = strconv.ParseInt(f[0], 10, 64) // or "max"
	period, _ = strconv.ParseInt(f[1], 10, 64)
	return quota, period
}

// HostFacts describes this host. sockBuf is the size of socket buffers that was asked for, in
// bytes.
func HostFacts(name string, sockBuf int64) diagnose.Host {
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
	for name, off := range map[string]*int64{
		"tcp_window_scaling": &h.NoScaling, "tcp_moderate_rcvbuf": &h.NoAutotuning, "tcp_sack": &h.NoSACK, "tcp_timestamps": &h.NoTimestamps,
	} {
		if readSysctl(name) == "0" {
			*off = 1
		}
	}
	h.BBR = bbrState()
	return h
}

func readSysctl(name string) string {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
	return strings.TrimSpace(string(text))
}

// bbrState finds out whether this process may use BBR, by trying it.
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
