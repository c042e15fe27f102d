package doctor

import (
	"strconv"
	"strings"
	"time"
)

// Host is what is known of a host. What the host does not show is missing, nil or zero.
type Host struct {
	Kernel    string // release, such as 6.1.0-32-amd64
	Memory    int64  // bytes
	PageSize  int64
	Sysctls   map[string]Sysctl // by name, such as net.ipv4.tcp_rmem
	BBRModule bool              // the kernel has BBR as a module
	Routes    []Route           // those that lead to far hosts, or that have metrics
	Links     []Link            // of the routes, or all that are up
	Governors []Governor
	Backlog   *Backlog
	Clock     *Clock
	Files     uint64 // highest limit of open files that this process may set
	Disk      *Disk  // nil if no share was given
}

// Sysctl is a kernel parameter.
type Sysctl struct {
	Text     string // as the kernel writes it, with its newline
	Writable bool   // by root
}

// Route is a default route, one through a gateway, or one with metrics.
type Route struct {
	Family  int      // 4 or 6
	Spec    string   // in the syntax of ip route, without metrics: default via 192.0.2.1 dev eth0
	Device  string   // "" if there are several
	Near    bool     // it leads to neighbours, not through a gateway
	Metrics []Metric // in the syntax and order of ip route
	Fixed   string   // why its metrics can't be changed and restored exactly, or ""

	dst      string // default, or a prefix
	priority uint32
	protocol string // who made it, in the words of ip route: dhcp, static; "" for boot
	tos      bool   // it is for packets of one type of service

	raw []byte // a netlink message in canonical form
}

// Metric is an attribute of a route, with the names of ip route.
type Metric struct {
	Name  string
	Value string
	Lock  bool // such as mtu lock 1400
}

// String returns the route in the syntax of ip route.
func (r *Route) String() string {
	var b strings.Builder
	b.WriteString(r.Spec)
	for _, m := range r.Metrics {
		b.WriteString(" " + m.Name + " ")
		if m.Lock {
			b.WriteString("lock ")
		}
		b.WriteString(m.Value)
	}
	return b.String()
}

// command is the ip command without the verb.
func (r *Route) command() string {
	if r.Family == 6 {
		return "ip -6 route"
	}
	return "ip route"
}

// text returns the value of a metric, or "" if the route does not have it.
func (r *Route) text(name string) string {
	for _, m := range r.Metrics {
		if m.Name == name {
			return m.Value
		}
	}
	return ""
}

// metric returns the value of a metric that is a number, or 0 if the route does not have it.
func (r *Route) metric(name string) int {
	n, _ := strconv.Atoi(r.text(name))
	return n
}

// with returns a copy of the route with metrics set. The copy is only for display and commands.
func (r *Route) with(set []Metric) *Route {
	next := *r
	next.Metrics = append([]Metric(nil), r.Metrics...)
	for _, m := range set {
		found := false
		for i := range next.Metrics {
			if next.Metrics[i].Name == m.Name {
				next.Metrics[i].Value, found = m.Value, true
			}
		}
		if !found {
			next.Metrics = append(next.Metrics, m)
		}
	}
	return &next
}

// Link is a network interface.
type Link struct {
	Name     string
	MTU      int
	Speed    float64         // bit/s, 0 if the driver does not report it
	Half     bool            // half duplex
	Offloads map[string]bool // tso, gso, gro, if the driver answered
	Ring     int             // receive descriptors
	RingMax  int
	Missed   uint64 // packets dropped since boot because the driver had no room
	Received uint64 // packets
	Qdisc    string
}

// Governor is the CPU frequency governor of a group of CPUs.
type Governor struct {
	Driver, Name string
	CPUs         int
}

// Backlog counts packets between driver and protocols since boot, over all CPUs.
type Backlog struct {
	Packets, Dropped uint64
}

// Clock is the state of this host's clock.
type Clock struct {
	Synchronised bool
	Error        time.Duration // upper limit
}

// Disk is the measured speed of the disk below a folder.
type Disk struct {
	Dir         string
	Write, Read float64 // bytes/s, durable and without the page cache
	Problem     string  // why there are no figures, or ""
}

// fields returns the words of a sysctl, and whether the host has it.
func (h *Host) fields(name string) ([]string, bool) {
	s, ok := h.Sysctls[name]
	f := strings.Fields(s.Text)
	return f, ok && len(f) > 0
}

// atLeast reports whether the kernel has at least the given release. An unknown kernel counts as
// new.
func (h *Host) atLeast(major, minor int) bool {
	var have [2]int
	for i, part := range strings.SplitN(h.Kernel, ".", 3) {
		digits := part
		for j, c := range part {
			if c < '0' || c > '9' {
				digits = part[:j]
				break
			}
		}
		if i < len(have) {
			have[i], _ = strconv.Atoi(digits)
		}
	}
	return have[0] == 0 || have[0] > major || have[0] == major && have[1] >= minor
}
