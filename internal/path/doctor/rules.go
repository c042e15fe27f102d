package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/internal/units"
)

// What a host should have at least.
const (
	wantInitCwnd = plan.AmpleCwnd
	wantInitRwnd = plan.AmpleRwnd
	wantUDP      = 7500000 // bytes: what quic-go asks its users for
	wantFiles    = 4096
	wantBacklog  = 10000 // packets

	noticeable = 20 * time.Millisecond // less is not worth a change
)

// exam is one examination of a host.
type exam struct {
	*Host
	path   plan.Path
	unseen bool // the host does not show something that the rule needs
	skip   bool // nobody asked for this check
}

// rules are in the order of the report for findings without a figure.
var rules = []struct {
	about string
	look  func(*exam) []Finding
}{
	{"window scaling", windowScaling},
	{"receive autotuning", autotuning},
	{"TCP receive buffers", tcpRmem},
	{"TCP send buffers", tcpWmem},
	{"TCP memory", tcpMem},
	{"SACK", sack},
	{"BBR", bbr},
	{"initial windows", initialWindows},
	{"route attributes", routeAttributes},
	{"link speed", linkSpeed},
	{"MTU", linkMTU},
	{"offloads", offloads},
	{"driver drops", driverDrops},
	{"backlog", backlog},
	{"TCP timestamps", timestamps},
	{"start after idle", idleStart},
	{"saved metrics", savedMetrics},
	{"MTU probing", mtuProbing},
	{"queueing discipline", qdisc},
	{"UDP buffers", udpBuffers},
	{"CPU governor", governor},
	{"disk", diskSpeed},
	{"open files", openFiles},
	{"clock", clock},
}

func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// value returns a sysctl that is one number. If it is missing, the rule counts as unseen.
func (e *exam) value(name string) (int64, bool) {
	f, ok := e.fields(name)
	if ok {
		if n, ok := number(f[0]); ok {
			return n, true
		}
	}
	e.unseen = true
	return 0, false
}

// three returns a sysctl of three numbers: least, default, most.
func (e *exam) three(name string) (v [3]int64, ok bool) {
	f, _ := e.fields(name)
	ok = len(f) == len(v)
	for i := range v {
		if ok {
			v[i], ok = number(f[i])
		}
	}
	e.unseen = e.unseen || !ok
	return v, ok
}

// set makes a sysctl the remedy of f.
func (e *exam) set(f *Finding, name, value string) {
	if f.Command == "" {
		f.Command = "sudo sysctl -w"
	}
	if strings.ContainsRune(value, ' ') {
		f.Command += " " + name + `="` + value + `"`
	} else {
		f.Command += " " + name + "=" + value
	}
	if e.Sysctls[name].Writable {
		f.Changes = append(f.Changes, Change{Sysctl: name, Value: value})
	} else {
		f.Blocked = "read-only here: run the command on the host that this container or network namespace is part of"
	}
}

// flag returns a finding about a sysctl that should be on, or off.
func (e *exam) flag(name string, bad func(int64) bool, want string, f Finding) []Finding {
	n, ok := e.value(name)
	if !ok || !bad(n) {
		return nil
	}
	f.ID = name[strings.LastIndexByte(name, '.')+1:]
	f.What = fmt.Sprintf("%s is %d", name, n)
	e.set(&f, name, want)
	return []Finding{f}
}

// toLine is the gain if the remedy lets traffic fill the line.
func (e *exam) toLine(of string, before float64, assuming string) *Gain {
	return &Gain{Of: of, Before: before, After: e.path.Goodput(), Assuming: assuming}
}

func isZero(n int64) bool { return n == 0 }
func isOn(n int64) bool   { return n != 0 }

func windowScaling(e *exam) []Finding {
	f := Finding{Why: "without window scaling, on either host, no window is larger than 65.5 kB; the BDP is " + units.Bytes(int64(e.path.BDP()))}
	if e.path.BDP() > unscaled {
		f.Gain = e.toLine("one stream", through(e.path, unscaled), "")
	}
	return e.flag("net.ipv4.tcp_window_scaling", isZero, "1", f)
}

func autotuning(e *exam) []Finding {
	f := Finding{Why: "receive buffers stay at the second value of tcp_rmem, whatever the path needs"}
	if v, ok := e.three("net.ipv4.tcp_rmem"); ok {
		if w := rcvWindow(v[1]); float64(w) < e.path.BDP() {
			f.Gain = e.toLine("one stream, receiving", through(e.path, w), "")
		}
	}
	return e.flag("net.ipv4.tcp_moderate_rcvbuf", isZero, "1", f)
}

func tcpRmem(e *exam) []Finding {
	return e.buffers("tcp_rmem", "receiving", "receive", rcvWindow, plan.BuffersFor(e.path, 1).Receive)
}

func tcpWmem(e *exam) []Finding {
	return e.buffers("tcp_wmem", "sending", "send", sndWindow, plan.BuffersFor(e.path, 1).Send)
}

// buffers compares a maximum of autotuning with what the path needs.
func (e *exam) buffers(id, doing, kind string, window func(int64) int64, want int64) []Finding {
	name := "net.ipv4." + id
	v, ok := e.three(name)
	if !ok {
		return nil
	}
	most := v[2]
	have := window(most)
	if float64(have) >= e.path.BDP() {
		return nil
	}
	bdp := int64(e.path.BDP())
	f := Finding{
		ID:   id,
		What: fmt.Sprintf("TCP %s buffers end at %s, which hold %s of payload in flight", kind, units.Bytes(most), units.Bytes(have)),
		Why: fmt.Sprintf("the BDP is %s, so one stream can't fill the line; fxfer makes up for it with %d streams, most programs don't",
			units.Bytes(bdp), streams(e.path, have)),
	}
	if want = min(want, e.memoryCap()); want < most/4*5 {
		f.Why += fmt.Sprintf("; larger buffers would take more than a fair share of the memory, %s a stream", units.Bytes(e.memoryCap()))
		return []Finding{f}
	}
	f.Gain = &Gain{Of: "one stream, " + doing, Before: through(e.path, have), After: through(e.path, window(want))}
	e.set(&f, name, fmt.Sprintf("%d %d %d", v[0], v[1], want))
	return []Finding{f}
}

// tcpMem compares the limit of all TCP sockets with the memory, if somebody lowered it and it is
// tight for the path.
func tcpMem(e *exam) []Finding {
	pressure, ok := e.pressure()
	if !ok || e.Memory <= 0 {
		e.unseen = true
		return nil
	}
	need := 4 * plan.BuffersFor(e.path, 1).Receive
	limit := e.Memory / 16 / e.PageSize // the kernel's default
	if pressure >= need || pressure >= limit*e.PageSize/2 {
		return nil
	}
	f := Finding{
		ID:   "tcp_mem",
		What: fmt.Sprintf("all TCP sockets together reach memory pressure at %s, of %s of memory", units.Bytes(pressure), units.Bytes(e.Memory)),
		Why:  fmt.Sprintf("under pressure the kernel shrinks windows; four streams on this path may want %s", units.Bytes(need)),
	}
	e.set(&f, "net.ipv4.tcp_mem", fmt.Sprintf("%d %d %d", limit*3/4, limit, limit*3/2))
	return []Finding{f}
}

func sack(e *exam) []Finding {
	return e.flag("net.ipv4.tcp_sack", isZero, "1", Finding{Why: "without SACK, TCP repairs only one of several losses in a window per round trip"})
}

func timestamps(e *exam) []Finding {
	wrap := time.Duration(math.Exp2(32) * 8 / e.path.Rate * float64(time.Second)).Round(time.Second)
	return e.flag("net.ipv4.tcp_timestamps", isZero, "1", Finding{Why: fmt.Sprintf("without timestamps the RTT is measured once per window, "+
		"and old segments can't be told from new ones after the sequence numbers wrap, here after %v (RFC 7323)", wrap)})
}

func idleStart(e *exam) []Finding {
	f, ok := e.fields("net.ipv4.tcp_congestion_control")
	if ok && strings.HasPrefix(f[0], "bbr") {
		return nil // BBR ignores the setting
	}
	before, after := warm(e.path, plan.DefaultInitial), warm(e.path, int(e.path.BDP())/e.path.Segment()+1)
	finding := Finding{Why: "a connection that paused for longer than a timeout starts slowly again, though it knows the path; fxfer's BBR does not"}
	if before-after >= noticeable {
		finding.Gain = &Gain{Of: "1 MB over a warm connection", Before: shortRate(before), After: shortRate(after),
			Assuming: "pauses, and a congestion control other than BBR"}
	}
	return e.flag("net.ipv4.tcp_slow_start_after_idle", isOn, "0", finding)
}

func savedMetrics(e *exam) []Finding {
	return e.flag("net.ipv4.tcp_no_metrics_save", isZero, "1", Finding{
		Why: "after a loss, the kernel keeps the slow-start threshold for later connections to that host, which then grow slowly"})
}

func mtuProbing(e *exam) []Finding {
	return e.flag("net.ipv4.tcp_mtu_probing", isZero, "1", Finding{
		Why: "where a router drops large packets and its ICMP messages are filtered, connections hang; with 1 the kernel then tries smaller ones"})
}

// bbr checks whether fxfer may choose BBR for its sockets.
func bbr(e *exam) []Finding {
	allowed, ok := e.fields("net.ipv4.tcp_allowed_congestion_control")
	available, known := e.fields("net.ipv4.tcp_available_congestion_control")
	if !ok || !known {
		e.unseen = true
		return nil
	}
	if slices.Contains(allowed, "bbr") {
		return nil
	}
	f := Finding{
		ID:  "bbr",
		Why: "loss without congestion slows down other congestion controls; fxfer uses BBR on long paths if it may",
		Gain: &Gain{
			Of: "one stream, sending", Before: lossy(e.path, someLoss), After: bbrLossy * e.path.Goodput(),
			Assuming: "0.01 % of segments lost",
		},
	}
	if f.Gain.factor() < 1.05 {
		f.Gain = nil
	}
	const name = "net.ipv4.tcp_allowed_congestion_control"
	switch {
	case slices.Contains(available, "bbr"):
		f.What = "programs without privilege may not choose BBR: " + name + " is " + strings.Join(allowed, " ")
		e.set(&f, name, strings.Join(allowed, " ")+" bbr")
	case e.BBRModule:
		f.What = "the kernel's BBR is not loaded"
		f.Command = "echo tcp_bbr | sudo tee /etc/modules-load.d/fxfer.conf; sudo modprobe tcp_bbr; " +
			"sudo sysctl -w " + name + `="` + strings.Join(allowed, " ") + ` bbr"`
		f.Blocked = "it needs a kernel module, and apply leaves loading it to you"
	default:
		f.What = "this kernel has no BBR, not even as a module: it has " + strings.Join(available, ", ")
	}
	return []Finding{f}
}

// initialWindows checks how much a new connection over a route may send before the first
// answer, and how much its peer may.
func initialWindows(e *exam) []Finding {
	if len(e.Routes) == 0 {
		e.unseen = true
	}
	var out []Finding
	for i := range e.Routes {
		r := &e.Routes[i]
		if r.Near && r.metric("initcwnd") == 0 && r.metric("initrwnd") == 0 {
			continue
		}
		cwnd := cmp.Or(r.metric("initcwnd"), plan.DefaultInitial)
		usual := wantInitRwnd
		if !e.atLeast(4, 20) { // "tcp: up initial rmem to 128KB and SYN rwin to around 64KB"
			usual = plan.DefaultInitial
		}
		rwnd := cmp.Or(r.metric("initrwnd"), usual)
		if cwnd >= wantInitCwnd && rwnd >= wantInitCwnd {
			continue
		}
		before, after := short(e.path, min(cwnd, rwnd)), short(e.path, wantInitCwnd)
		if e.path.BDP() < float64(2*wantInitCwnd*e.path.Segment()) || before-after < noticeable {
			continue
		}
		g := &Gain{Of: "1 MB over a new connection", Before: shortRate(before), After: shortRate(after)}
		var set []Metric
		if cwnd < wantInitCwnd {
			set = append(set, Metric{Name: "initcwnd", Value: strconv.Itoa(wantInitCwnd)})
		} else {
			g.Assuming = "a peer whose initcwnd is as large"
		}
		if rwnd < wantInitCwnd {
			set = append(set, Metric{Name: "initrwnd", Value: strconv.Itoa(wantInitRwnd)})
		}
		f := Finding{
			ID:      "initial_window",
			What:    fmt.Sprintf("new connections by %q send %d segments and let the peer send %d before the first answer", r.Spec, cwnd, rwnd),
			Why:     "short transfers are all slow start, a round trip for each doubling; the lower of sender's initcwnd and receiver's initrwnd wins",
			Command: "sudo " + r.command() + " change " + r.with(set).String(),
			Gain:    g,
			Blocked: r.Fixed,
		}
		if r.Fixed == "" {
			f.Changes = []Change{{Route: r, Metric: set}}
		}
		out = append(out, f)
	}
	return out
}

// delayedAck is how long Linux delays an acknowledgement at least (TCP_DELACK_MIN), and usualRTO the
// least time until it sends again (TCP_RTO_MIN), both in include/net/tcp.h.
const (
	delayedAck = 40 * time.Millisecond
	usualRTO   = 200 * time.Millisecond
)

// routeAttributes looks for attributes of a route that slow down all its connections.
func routeAttributes(e *exam) []Finding {
	if len(e.Routes) == 0 {
		e.unseen = true
	}
	var out []Finding
	for i := range e.Routes {
		r := &e.Routes[i]
		mtu := plainMTU
		for _, l := range e.Links {
			if l.Name == r.Device {
				mtu = min(l.MTU, plainMTU)
			}
		}
		size := func(id, what string, mtu int) {
			out = append(out, Finding{
				ID: id, What: fmt.Sprintf("the route %q %s", r.Spec, what),
				Why:  "smaller segments carry more headers and cost more CPU; it may be there for a tunnel on the path, so look before you change it",
				Gain: e.toLine("the line", with(e.path, mtu, 0).Goodput(), "a path that carries 1500 bytes"),
			})
		}
		if n := r.metric("mtu"); n > headers && n < mtu {
			size("route_mtu", fmt.Sprintf("has mtu %d", n), n)
		}
		if n := r.metric("advmss"); n > 12 && n < mtu-40 {
			size("route_advmss", fmt.Sprintf("has advmss %d: peers send segments no larger", n), n+40)
		}
		if rto, err := time.ParseDuration(cmp.Or(r.text("rto_min"), "0")); err == nil && rto > 0 {
			f := Finding{ID: "route_rto_min", What: fmt.Sprintf("the route %q has rto_min %v", r.Spec, rto)}
			switch {
			case rto > usualRTO:
				f.Why = "a lost segment at the end of a message is sent again only after that time; the usual least time is 200 ms"
			case rto <= delayedAck:
				f.Why = "peers delay acknowledgements by 40 ms and more: connections send again what has arrived, and begin slow start anew"
			}
			if f.Why != "" {
				out = append(out, f)
			}
		}
		if r.metric("quickack") > 0 {
			out = append(out, Finding{
				ID: "route_quickack", What: fmt.Sprintf("the route %q has quickack 1", r.Spec),
				Why: "each segment is acknowledged at once, so there are twice as many acknowledgements, which cost CPU and the line's way back; it may be there for programs that write their messages in two pieces",
			})
		}
		for _, m := range r.Metrics {
			if m.Name == "congctl" && m.Value != "bbr" {
				out = append(out, Finding{
					ID: "route_congctl", What: fmt.Sprintf("the route %q has congctl %s", r.Spec, m.Value),
					Why: "programs that leave the congestion control to the system get this one there, whatever tcp_congestion_control says",
				})
			}
		}
	}
	return out
}

func (e *exam) eachLink(look func(l *Link) *Finding) []Finding {
	if len(e.Links) == 0 {
		e.unseen = true
	}
	var out []Finding
	for i := range e.Links {
		if f := look(&e.Links[i]); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

func linkSpeed(e *exam) []Finding {
	return e.eachLink(func(l *Link) *Finding {
		switch {
		case l.Half:
			return &Finding{ID: "duplex", What: l.Name + " is half duplex",
				Why:     "it can't send and receive at once, but TCP does: check the cable and the switch port",
				Command: "sudo ethtool -s " + l.Name + " autoneg on"}
		case l.Speed == 0:
			e.unseen = true
		case l.Speed < e.path.Rate:
			return &Finding{ID: "link_speed", What: fmt.Sprintf("%s runs at %s", l.Name, units.Rate(l.Speed)),
				Why:  "the path is faster than this interface",
				Gain: e.toLine("all streams together", l.Speed/e.path.Rate*e.path.Goodput(), "a faster interface")}
		}
		return nil
	})
}

func linkMTU(e *exam) []Finding {
	return e.eachLink(func(l *Link) *Finding {
		if l.MTU >= plainMTU || l.MTU <= headers {
			return nil
		}
		return &Finding{ID: "mtu", What: fmt.Sprintf("%s has an MTU of %d", l.Name, l.MTU),
			Why:     "smaller packets carry more headers and cost more CPU; right for a tunnel, wrong for Ethernet",
			Command: fmt.Sprintf("sudo ip link set dev %s mtu %d", l.Name, plainMTU),
			Blocked: "whether the network carries 1500 bytes can't be seen from here",
			Gain:    e.toLine("the line", with(e.path, l.MTU, 0).Goodput(), "a path that carries 1500 bytes")}
	})
}

func offloads(e *exam) []Finding {
	return e.eachLink(func(l *Link) *Finding {
		var off []string
		for _, name := range []string{"tso", "gso", "gro"} {
			on, known := l.Offloads[name]
			e.unseen = e.unseen || !known
			if known && !on {
				off = append(off, name)
			}
		}
		if len(off) == 0 {
			return nil
		}
		return &Finding{ID: "offloads", What: fmt.Sprintf("%s has %s off", l.Name, strings.Join(off, ", ")),
			Why:     "the kernel then handles each packet by itself, where it could handle 64 KiB at once: several times the CPU per byte",
			Command: "sudo ethtool -K " + l.Name + " " + strings.Join(off, " on ") + " on",
			Blocked: "some drivers have faulty offloads, so apply leaves this to you"}
	})
}

// driverDrops looks for packets that the interface dropped because it had no room.
func driverDrops(e *exam) []Finding {
	return e.eachLink(func(l *Link) *Finding {
		share := float64(l.Missed) / float64(max(l.Received+l.Missed, 1))
		if share < 1e-6 {
			return nil
		}
		f := &Finding{ID: "driver_drops",
			What: fmt.Sprintf("%s dropped %d packets since boot because it had no room (%.2g %%)", l.Name, l.Missed, share*100),
			Why:  "TCP takes that for congestion and slows down",
			Gain: e.toLine("one stream of cubic, receiving", lossy(e.path, share), "drops that go on at this rate")}
		if f.Gain.factor() < 1.05 {
			f.Gain = nil
		}
		if l.Ring > 0 && l.Ring < l.RingMax {
			f.Why += fmt.Sprintf("; its receive ring has %d of %d possible places", l.Ring, l.RingMax)
			f.Command = fmt.Sprintf("sudo ethtool -G %s rx %d", l.Name, l.RingMax)
			f.Blocked = "it interrupts the link for a moment, so apply leaves this to you"
		}
		return f
	})
}

// backlog looks for packets that were dropped between driver and protocols.
func backlog(e *exam) []Finding {
	if e.Backlog == nil {
		e.unseen = true
		return nil
	}
	share := float64(e.Backlog.Dropped) / float64(max(e.Backlog.Packets, 1))
	n, ok := e.value("net.core.netdev_max_backlog")
	if share < 1e-6 {
		e.unseen = false // the limit does not matter: it is enough
		return nil
	}
	f := Finding{ID: "netdev_max_backlog",
		What: fmt.Sprintf("the kernel dropped %d received packets before TCP saw them (%.2g %%)", e.Backlog.Dropped, share*100),
		Why:  "the queue to the CPU was full, and TCP takes that for congestion"}
	if ok && n < wantBacklog {
		e.set(&f, "net.core.netdev_max_backlog", strconv.Itoa(wantBacklog))
	}
	return []Finding{f}
}

// qdisc looks for queues that do not keep flows apart. BBR is paced with any of them; without fq,
// TCP's own timers do it.
func qdisc(e *exam) []Finding {
	fair := map[string]bool{"fq": true, "fq_codel": true, "cake": true, "mq": true, "noqueue": true, "": true}
	return e.eachLink(func(l *Link) *Finding {
		e.unseen = e.unseen || l.Qdisc == ""
		if fair[l.Qdisc] {
			return nil
		}
		return &Finding{ID: "qdisc", What: fmt.Sprintf("%s uses the queue discipline %s", l.Name, l.Qdisc),
			Why:     "one full queue delays everything else on this host; fq keeps flows apart and paces BBR with less CPU",
			Command: "sudo tc qdisc replace dev " + l.Name + " root fq",
			Blocked: "how this host shares its interface is yours to choose"}
	})
}

func udpBuffers(e *exam) []Finding {
	f := Finding{ID: "udp_buffers", Why: "QUIC loses packets that arrive while it is busy and its buffer is full; TCP is not affected"}
	var low []string
	for _, name := range []string{"net.core.rmem_max", "net.core.wmem_max"} {
		if n, ok := e.value(name); ok && n < wantUDP {
			low = append(low, fmt.Sprintf("%s is %d", name, n))
			e.set(&f, name, strconv.Itoa(wantUDP))
		}
	}
	if low == nil {
		return nil
	}
	f.What = strings.Join(low, ", ")
	return []Finding{f}
}

// governor looks for CPUs that stay slow. Drivers that choose the clock rate themselves in
// "powersave" are fine.
func governor(e *exam) []Finding {
	if len(e.Governors) == 0 {
		e.unseen = true
	}
	slow := 0
	for _, g := range e.Governors {
		own := g.Driver == "intel_pstate" || g.Driver == "amd-pstate-epp"
		if g.Name == "powersave" && !own || g.Name == "conservative" {
			slow += g.CPUs
		}
	}
	if slow == 0 {
		return nil
	}
	return []Finding{{ID: "cpu_governor", What: fmt.Sprintf("%d CPUs use a power-saving governor", slow),
		Why:     "encryption and digests run at the lowest clock rate, or reach the highest one late",
		Command: "sudo cpupower frequency-set -g schedutil", Blocked: "what this host spends on power is yours to choose"}}
}

func diskSpeed(e *exam) []Finding {
	d := e.Disk
	switch {
	case d == nil:
		e.skip = true
		return nil
	case d.Problem != "":
		return []Finding{{ID: "disk_unknown", What: fmt.Sprintf("the disk of %s could not be measured: %s", d.Dir, d.Problem),
			Why: "whether it holds transfers back is not known"}}
	}
	var out []Finding
	for _, side := range []struct {
		id, verb, doing string
		rate            float64
	}{{"disk_write", "takes", "receiving", d.Write}, {"disk_read", "gives", "sending", d.Read}} {
		if bits := side.rate * 8; side.rate > 0 && bits < e.path.Goodput() {
			out = append(out, Finding{ID: side.id, What: fmt.Sprintf("the disk of %s %s %.0f MB/s", d.Dir, side.verb, side.rate/1e6),
				Why:  "that is less than the line carries, and no setting of the network changes it",
				Gain: e.toLine("all streams together, "+side.doing, bits, "a faster disk")})
		}
	}
	return out
}

func openFiles(e *exam) []Finding {
	if e.Files == 0 {
		e.unseen = true
	}
	if e.Files == 0 || e.Files >= wantFiles {
		return nil
	}
	return []Finding{{ID: "open_files", What: fmt.Sprintf("this process may open %d files at most", e.Files),
		Why:     "trees of many small files, and a server with many sessions, need more",
		Command: "ulimit -Hn 65536; ulimit -n 65536", Blocked: "it is a limit of the session or service, such as LimitNOFILE= of systemd"}}
}

func clock(e *exam) []Finding {
	if e.Clock == nil {
		e.unseen = true
		return nil
	}
	if e.Clock.Synchronised {
		return nil
	}
	return []Finding{{ID: "clock", What: "this host's clock is not synchronised",
		Why:     "--update and --newer-than compare times of two hosts, and invitations expire",
		Command: "sudo timedatectl set-ntp true", Blocked: "which clock to follow is yours to choose"}}
}
