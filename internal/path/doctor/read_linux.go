package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sysctls are those that the rules read.
var sysctls = []string{
	"net.core.netdev_max_backlog",
	"net.core.rmem_max",
	"net.core.wmem_max",
	"net.ipv4.tcp_allowed_congestion_control",
	"net.ipv4.tcp_available_congestion_control",
	"net.ipv4.tcp_congestion_control",
	"net.ipv4.tcp_mem",
	"net.ipv4.tcp_moderate_rcvbuf",
	"net.ipv4.tcp_mtu_probing",
	"net.ipv4.tcp_no_metrics_save",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_sack",
	"net.ipv4.tcp_slow_start_after_idle",
	"net.ipv4.tcp_timestamps",
	"net.ipv4.tcp_window_scaling",
	"net.ipv4.tcp_wmem",
}

// maxLinks limits the interfaces that are examined if no route names one.
const maxLinks = 16

// linuxSystem is this host. Its sysctls, routes and links are those of the calling thread's
// network namespace.
type linuxSystem struct {
	root string // prefix of all file paths: "/", except in tests
}

// Read collects the facts of this host in the calling thread's network namespace, except for
// disks. What can't be read is left out. An error means that there is nothing to examine.
func Read() (*Host, error) { return linuxSystem{"/"}.read() }

func (s linuxSystem) read() (*Host, error) {
	h := &Host{PageSize: int64(os.Getpagesize()), Sysctls: map[string]Sysctl{}}
	h.Kernel = s.line("/proc/sys/kernel/osrelease")
	h.Memory = s.memory()
	for _, name := range sysctls {
		if text, err := s.readSysctl(name); err == nil {
			h.Sysctls[name] = Sysctl{Text: text, Writable: s.writable(name)}
		}
	}
	if len(h.Sysctls) == 0 {
		return nil, fmt.Errorf("%s shows no network settings: is it mounted?", s.path("/proc/sys/net"))
	}
	if modules, err := filepath.Glob(s.path("/lib/modules/" + h.Kernel + "/kernel/net/ipv4/tcp_bbr.ko*")); err == nil {
		h.BBRModule = h.Kernel != "" && len(modules) > 0
	}
	h.Governors = s.governors()
	h.Backlog = s.backlog()
	h.Clock = readClock()
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		h.Files = files.Max
	}
	var err error
	if h.Routes, err = s.routes(); err != nil {
		return nil, err
	}
	h.Links, err = readLinks(h.Routes)
	return h, err
}

func (s linuxSystem) path(p string) string { return filepath.Join(s.root, p) }

// line returns the first line of a file, or "".
func (s linuxSystem) line(p string) string {
	text, err := os.ReadFile(s.path(p))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return first
}

func (s linuxSystem) sysctlPath(name string) string {
	return s.path("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
}

func (s linuxSystem) readSysctl(name string) (string, error) {
	text, err := os.ReadFile(s.sysctlPath(name))
	return string(text), err
}

// writable reports whether root might set a sysctl. Containers often mount /proc/sys read-only,
// and network namespaces show global values that they may not write.
func (s linuxSystem) writable(name string) bool {
	path := s.sysctlPath(name)
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o200 == 0 {
		return false
	}
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_RDONLY == 0
}

func (s linuxSystem) writeSysctl(name, text string) error {
	f, err := os.OpenFile(s.sysctlPath(name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (s linuxSystem) identity() (boot, netns string, err error) {
	boot = s.line("/proc/sys/kernel/random/boot_id")
	netns, err = os.Readlink("/proc/thread-self/ns/net")
	return boot, netns, err
}

// keeper finds out who sets the routes of an interface, from what networkd and NetworkManager write
// about each. They know the interfaces of the host, not those of other network namespaces.
func (s linuxSystem) keeper(device string) keeper {
	here, err1 := os.Readlink(s.path("/proc/thread-self/ns/net"))
	host, err2 := os.Readlink(s.path("/proc/1/ns/net")) // for root only
	index, ok := number(s.line("/sys/class/net/" + device + "/ifindex"))
	if err1 == nil && err2 == nil && here != host || !ok {
		return keeper{}
	}
	link := s.settings(fmt.Sprintf("/run/systemd/netif/links/%d", index))
	byNetworkd := strings.HasPrefix(link["ADMIN_STATE"], "config") // configuring, configured
	byManager := s.settings(fmt.Sprintf("/run/NetworkManager/devices/%d", index))["managed"] == "true"
	network := link["NETWORK_FILE"]
	switch {
	case byNetworkd == byManager: // nobody, or both say so
	case byManager:
		return keeper{program: networkManager}
	case strings.HasSuffix(network, ".network"):
		return keeper{networkd, network, s.systemdVersion()}
	}
	return keeper{}
}

// settings returns the lines of a file that assign values to names.
func (s linuxSystem) settings(p string) map[string]string {
	text, _ := os.ReadFile(s.path(p))
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[name] = value
		}
	}
	return out
}

// systemdVersion returns the version in the name of systemd's own library, the least if there are
// several, or 0.
func (s linuxSystem) systemdVersion() int {
	least := 0
	for _, dir := range []string{"/usr/lib*/systemd", "/usr/lib/*/systemd"} {
		const name = "libsystemd-shared-"
		found, _ := filepath.Glob(s.path(dir + "/" + name + "*.so"))
		for _, path := range found {
			var n int
			if _, err := fmt.Sscanf(filepath.Base(path), name+"%d", &n); err == nil && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return least
}

func (linuxSystem) lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil // closing releases the lock
}

func (s linuxSystem) memory() int64 {
	text, _ := os.ReadFile(s.path("/proc/meminfo"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			n, _ := number(f[1])
			return n << 10
		}
	}
	return 0
}

func (s linuxSystem) governors() []Governor {
	var out []Governor
	policies, _ := filepath.Glob(s.path("/sys/devices/system/cpu/cpufreq/policy*"))
	for _, dir := range policies {
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.TrimSpace(string(text))
		}
		if g := (Governor{read("scaling_driver"), read("scaling_governor"), len(strings.Fields(read("affected_cpus")))}); g.Name != "" {
			out = append(out, g)
		}
	}
	return out
}

// backlog adds up the first two columns of all lines. Each line is one CPU: see softnet_seq_show
// in net/core/net-procfs.c.
func (s linuxSystem) backlog() *Backlog {
	text, err := os.ReadFile(s.path("/proc/thread-self/net/softnet_stat"))
	if err != nil {
		return nil
	}
	b := &Backlog{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		packets, _ := strconv.ParseUint(f[0], 16, 64)
		dropped, _ := strconv.ParseUint(f[1], 16, 64)
		b.Packets += packets
		b.Dropped += dropped
	}
	return b
}

func readClock() *Clock {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return nil
	}
	const timeError, unsynchronised = 5, 0x40 // TIME_ERROR, STA_UNSYNC of linux/timex.h
	return &Clock{Synchronised: state != timeError && t.Status&unsynchronised == 0, Error: time.Duration(t.Maxerror) * time.Microsecond}
}

// readLinks reads the interfaces that the routes use, or all that are up if there is no route.
func readLinks(routes []Route) ([]Link, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	all, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	used := map[string]bool{}
	for _, r := range routes {
		used[r.Device] = r.Device != ""
	}
	var out []Link
	for _, l := range all {
		a := l.Attrs()
		up := a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOOPBACK == 0
		if !used[a.Name] && (len(routes) > 0 || !up) || len(out) == maxLinks {
			continue
		}
		link := Link{Name: a.Name, MTU: a.MTU}
		if st := a.Statistics; st != nil {
			link.Missed, link.Received = st.RxMissedErrors+st.RxFifoErrors, st.RxPackets
		}
		if queues, err := h.QdiscList(l); err == nil {
			for _, q := range queues {
				if q.Attrs().Parent == netlink.HANDLE_ROOT {
					link.Qdisc = q.Type()
				}
			}
		}
		askDriver(&link)
		out = append(out, link)
	}
	return out, nil
}

// NewChanger returns a Changer of this host, for the network namespace of the thread that calls
// its methods. home is the folder of its state.
func NewChanger(home string) (*Changer, error) {
	return &Changer{home: home, root: "/", sys: linuxSystem{"/"}}, nil
}

// syncFolder makes renames and removals in dir durable, if the file system can.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
