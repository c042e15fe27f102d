package doctor

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/plan"
)

func pathOf(rate float64, rtt time.Duration) plan.Path {
	return plan.Path{Rate: rate, RTT: rtt, MTU: plainMTU}
}

var wan = pathOf(1e9, 50*time.Millisecond)

// hostOf returns a host with the given sysctls, one per line, all writable.
func hostOf(kernel string, memory int64, lines string) *Host {
	h := &Host{Kernel: kernel, Memory: memory, PageSize: 4096, Sysctls: map[string]Sysctl{}}
	for line := range strings.Lines(lines) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			h.Sysctls[name] = Sysctl{Text: strings.ReplaceAll(value, " ", "\t") + "\n", Writable: true}
		}
	}
	return h
}

// machine adds the rest of a host: a network card with a route over it, CPUs, a clock.
func machine(h *Host) *Host {
	h.Routes = []Route{{Family: 4, Spec: "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100", Device: "eth0"}}
	h.Links = []Link{{Name: "eth0", MTU: 1500, Speed: 1e9, Offloads: map[string]bool{"tso": true, "gso": true, "gro": true},
		Ring: 256, RingMax: 4096, Received: 1e9, Qdisc: "fq_codel"}}
	h.Governors = []Governor{{"intel_pstate", "powersave", 8}}
	h.Backlog = &Backlog{Packets: 1e9}
	h.Clock = &Clock{Synchronised: true}
	h.Files = 524288
	return h
}

const stock = `
net.core.netdev_max_backlog = 1000
net.core.rmem_max = 212992
net.core.wmem_max = 212992
net.ipv4.tcp_congestion_control = cubic
net.ipv4.tcp_moderate_rcvbuf = 1
net.ipv4.tcp_mtu_probing = 0
net.ipv4.tcp_no_metrics_save = 0
net.ipv4.tcp_rmem = 4096 131072 6291456
net.ipv4.tcp_sack = 1
net.ipv4.tcp_slow_start_after_idle = 1
net.ipv4.tcp_timestamps = 1
net.ipv4.tcp_window_scaling = 1
net.ipv4.tcp_wmem = 4096 16384 4194304
`

func debian12() *Host {
	h := hostOf("6.1.0-32-amd64", 4<<30, stock+`
net.ipv4.tcp_allowed_congestion_control = reno cubic
net.ipv4.tcp_available_congestion_control = reno cubic
net.ipv4.tcp_mem = 46362 61817 92724`)
	h.BBRModule = true
	return machine(h)
}

func rhel9() *Host {
	h := hostOf("5.14.0-503.11.1.el9_5.x86_64", 16<<30, stock+`
net.ipv4.tcp_allowed_congestion_control = reno cubic
net.ipv4.tcp_available_congestion_control = reno cubic bbr
net.ipv4.tcp_mem = 190764 254355 381528`)
	return machine(h)
}

func ubuntu2404() *Host {
	h := hostOf("6.8.0-51-generic", 512<<20, stock+`
net.ipv4.tcp_allowed_congestion_control = reno cubic bbr
net.ipv4.tcp_available_congestion_control = reno cubic bbr
net.ipv4.tcp_mem = 5613 7485 11226`)
	return machine(h)
}

// transferNode is tuned for 100 Gbit/s, as research networks recommend.
func transferNode() *Host {
	h := machine(hostOf("6.1.0-32-amd64", 192<<30, `
net.core.netdev_max_backlog = 250000
net.core.rmem_max = 536870912
net.core.wmem_max = 536870912
net.ipv4.tcp_allowed_congestion_control = reno cubic bbr
net.ipv4.tcp_available_congestion_control = reno cubic bbr
net.ipv4.tcp_congestion_control = bbr
net.ipv4.tcp_mem = 2288034 3050713 4576068
net.ipv4.tcp_moderate_rcvbuf = 1
net.ipv4.tcp_mtu_probing = 1
net.ipv4.tcp_no_metrics_save = 1
net.ipv4.tcp_rmem = 4096 131072 536870912
net.ipv4.tcp_sack = 1
net.ipv4.tcp_slow_start_after_idle = 0
net.ipv4.tcp_timestamps = 1
net.ipv4.tcp_window_scaling = 1
net.ipv4.tcp_wmem = 4096 16384 536870912`))
	h.Routes[0].Metrics = []Metric{{Name: "initcwnd", Value: "44"}, {Name: "initrwnd", Value: "44"}}
	h.Links[0].Speed, h.Links[0].MTU, h.Links[0].Qdisc = 100e9, 9000, "mq"
	h.Governors = []Governor{{"acpi-cpufreq", "performance", 64}}
	return h
}

// container shows only what belongs to its network namespace, read-only.
func container() *Host {
	h := hostOf("6.1.0-32-amd64", 4<<30, stock+`
net.ipv4.tcp_allowed_congestion_control = reno cubic
net.ipv4.tcp_available_congestion_control = reno cubic bbr`)
	maps.DeleteFunc(h.Sysctls, func(name string, _ Sysctl) bool { return strings.HasPrefix(name, "net.core.") })
	for name, s := range h.Sysctls {
		s.Writable = false
		h.Sysctls[name] = s
	}
	h.Routes = []Route{{Family: 4, Spec: "default via 172.17.0.1 dev eth0", Device: "eth0", Fixed: "root may not change routes in this container"}}
	h.Links = []Link{{Name: "eth0", MTU: 1500, Qdisc: "noqueue"}}
	h.Files = 1024
	return h
}

func ids(r *Report) (all, applicable []string) {
	for _, f := range r.Findings {
		all = append(all, f.ID)
		if len(f.Changes) > 0 {
			applicable = append(applicable, f.ID)
		}
	}
	return all, applicable
}

func TestHosts(t *testing.T) {
	for name, c := range map[string]struct {
		host             *Host
		path             plan.Path
		want, applicable string // in order
		unseen           string
	}{
		"Debian 12": {
			debian12(), wan,
			"tcp_wmem tcp_rmem initial_window bbr tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers",
			"tcp_wmem tcp_rmem initial_window tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers", "",
		},
		"Debian 12 in a building": {
			debian12(), pathOf(1e9, time.Millisecond),
			"bbr tcp_no_metrics_save tcp_mtu_probing udp_buffers tcp_slow_start_after_idle",
			"tcp_no_metrics_save tcp_mtu_probing udp_buffers tcp_slow_start_after_idle", "",
		},
		"RHEL 9": {
			rhel9(), wan,
			"tcp_wmem tcp_rmem initial_window bbr tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers",
			"tcp_wmem tcp_rmem initial_window bbr tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers", "",
		},
		"Ubuntu 24.04 with little memory": {
			ubuntu2404(), wan,
			"tcp_wmem tcp_rmem initial_window tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers",
			"tcp_wmem initial_window tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing udp_buffers", "",
		},
		"transfer node":      {transferNode(), pathOf(10e9, 80*time.Millisecond), "", "", ""},
		"transfer node, far": {transferNode(), pathOf(100e9, 80*time.Millisecond), "tcp_rmem tcp_wmem", "tcp_rmem tcp_wmem", ""},
		"container": {
			container(), wan,
			"tcp_wmem tcp_rmem initial_window bbr tcp_slow_start_after_idle tcp_no_metrics_save tcp_mtu_probing open_files", "",
			"TCP memory,link speed,offloads,backlog,UDP buffers,CPU governor,clock",
		},
		"nothing": {&Host{}, wan, "", "", "all"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Examine(c.host, c.path)
			all, applicable := ids(r)
			require.ElementsMatch(t, strings.Fields(c.want), all)
			require.ElementsMatch(t, strings.Fields(c.applicable), applicable)
			if c.unseen == "all" {
				require.Empty(t, r.Fine)
				return
			}
			require.Equal(t, c.unseen, strings.Join(r.Unseen, ","))
			require.Len(t, rules, 1+len(r.Fine)+len(r.Unseen)+len(all)) // no disk
			for i := range r.Findings {
				f := &r.Findings[i]
				require.NotEmpty(t, f.Why, f.ID)
				require.True(t, len(f.Changes) == 0 || f.Command != "", f.ID)
				require.True(t, len(f.Changes) == 0 || f.Blocked == "", f.ID)
				if i > 0 {
					require.LessOrEqual(t, r.Findings[i-1].class(), f.class())
				}
			}
		})
	}
}

// TestSettled checks that a finding is gone after its change was made.
func TestSettled(t *testing.T) {
	for name, host := range map[string]*Host{"Debian": debian12(), "RHEL": rhel9(), "Ubuntu": ubuntu2404(), "node": transferNode()} {
		for _, path := range []plan.Path{
			wan, pathOf(10e9, 120*time.Millisecond), pathOf(100e9, 20*time.Millisecond), pathOf(50e6, 300*time.Millisecond),
		} {
			for _, f := range Examine(host, path).Findings {
				for _, c := range f.Changes {
					if c.Sysctl != "" {
						host.Sysctls[c.Sysctl] = Sysctl{c.Value + "\n", true}
					} else {
						*c.Route = *c.Route.with(c.Metric)
					}
				}
			}
			_, applicable := ids(Examine(host, path))
			require.Empty(t, applicable, "%s %v", name, path)
		}
	}
}

func TestBuffers(t *testing.T) {
	find := func(h *Host, p plan.Path, id string) *Finding {
		for _, f := range Examine(h, p).Findings {
			if f.ID == id {
				return &f
			}
		}
		return nil
	}
	f := find(rhel9(), wan, "tcp_rmem")
	require.Equal(t, `sudo sysctl -w net.ipv4.tcp_rmem="4096 131072 33554432"`, f.Command)
	require.Equal(t, []Change{{Sysctl: "net.ipv4.tcp_rmem", Value: "4096 131072 33554432"}}, f.Changes)
	require.Equal(t, "one stream, receiving", f.Gain.Of)
	require.InDelta(t, 503e6, f.Gain.Before, 1e6) // 3 MiB / 50 ms
	require.InDelta(t, 941.5e6, f.Gain.After, 1e5)
	require.Equal(t, "TCP receive buffers end at 6.29 MB, which hold 3.15 MB of payload in flight", f.What)

	f = find(rhel9(), wan, "tcp_wmem")
	require.Equal(t, `sudo sysctl -w net.ipv4.tcp_wmem="4096 16384 33554432"`, f.Command)
	require.InDelta(t, 447e6, f.Gain.Before, 1e6)

	// The memory is 512 MiB. TCP may use 29 MiB of it without pressure.
	f = find(ubuntu2404(), wan, "tcp_rmem")
	require.Empty(t, f.Changes)
	require.Contains(t, f.Why, "fair share of the memory, 7.66 MB")
	f = find(ubuntu2404(), wan, "tcp_wmem")
	require.Equal(t, "4096 16384 7664640", f.Changes[0].Value)
	require.InDelta(t, 7664640/3*2*8/0.05, f.Gain.After, 1)

	require.Nil(t, find(rhel9(), pathOf(1e9, 20*time.Millisecond), "tcp_rmem"))
}

// TestRules breaks a tuned host in one way at a time.
func TestRules(t *testing.T) {
	set := func(name, value string) func(*Host) {
		return func(h *Host) { h.Sysctls["net."+name] = Sysctl{value + "\n", true} }
	}
	metric := func(name, value string) func(*Host) {
		return func(h *Host) { h.Routes[0].Metrics = append(h.Routes[0].Metrics, Metric{Name: name, Value: value}) }
	}
	for name, c := range map[string]struct {
		breaks  func(*Host)
		id      string
		command string
		before  float64 // Mbit/s
		apply   bool
	}{
		"scaling":    {set("ipv4.tcp_window_scaling", "0"), "tcp_window_scaling", "sudo sysctl -w net.ipv4.tcp_window_scaling=1", 10.49, true},
		"autotuning": {set("ipv4.tcp_moderate_rcvbuf", "0"), "tcp_moderate_rcvbuf", "sudo sysctl -w net.ipv4.tcp_moderate_rcvbuf=1", 10.49, true},
		"sack":       {set("ipv4.tcp_sack", "0"), "tcp_sack", "sudo sysctl -w net.ipv4.tcp_sack=1", 0, true},
		"timestamps": {set("ipv4.tcp_timestamps", "0"), "tcp_timestamps", "sudo sysctl -w net.ipv4.tcp_timestamps=1", 0, true},
		"memory": {set("ipv4.tcp_mem", "1000 2000 4000"), "tcp_mem",
			`sudo sysctl -w net.ipv4.tcp_mem="2359296 3145728 4718592"`, 0, true},
		"bbr refused": {set("ipv4.tcp_allowed_congestion_control", "reno cubic"), "bbr",
			`sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="reno cubic bbr"`, 28.37, true},
		"bbr not loaded": {func(h *Host) {
			set("ipv4.tcp_allowed_congestion_control", "reno cubic")(h)
			set("ipv4.tcp_available_congestion_control", "reno cubic")(h)
			h.BBRModule = true
		}, "bbr", `echo tcp_bbr | sudo tee /etc/modules-load.d/fxfer.conf; sudo modprobe tcp_bbr; ` +
			`sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="reno cubic bbr"`, 28.37, false},
		"no bbr": {func(h *Host) {
			set("ipv4.tcp_allowed_congestion_control", "reno cubic")(h)
			set("ipv4.tcp_available_congestion_control", "reno cubic")(h)
		}, "bbr", "", 28.37, false},
		"initcwnd": {func(h *Host) { h.Routes[0].Metrics = h.Routes[0].Metrics[1:] }, "initial_window",
			"sudo ip route change default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100 initrwnd 44 initcwnd 32", 22.55, true},
		"initrwnd of an old kernel": {func(h *Host) {
			h.Kernel, h.Routes[0].Metrics = "4.15.0-213-generic", h.Routes[0].Metrics[:1]
		}, "initial_window", "sudo ip route change default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.2 metric 100 initcwnd 44 initrwnd 44", 22.55, true},
		"route mtu": {metric("mtu", "1280"), "route_mtu", "", 931.7, false},
		"advmss":    {metric("advmss", "536"), "route_advmss", "", 853.4, false},
		"congctl": {func(h *Host) {
			h.Routes[0].Metrics = append(h.Routes[0].Metrics, Metric{Name: "congctl", Value: "reno"})
		}, "route_congctl", "", 0, false},
		"late RTO": {func(h *Host) {
			h.Routes[0].Metrics = append(h.Routes[0].Metrics, Metric{Name: "rto_min", Value: "1000ms"})
		}, "route_rto_min", "", 0, false},
		"early RTO": {func(h *Host) {
			h.Routes[0].Metrics = append(h.Routes[0].Metrics, Metric{Name: "rto_min", Value: "5ms"})
		}, "route_rto_min", "", 0, false},
		"quickack": {metric("quickack", "1"), "route_quickack", "", 0, false},
		"a network behind a gateway": {func(h *Host) {
			h.Routes = append(h.Routes, Route{Family: 4, Spec: "198.51.100.0/24 via 192.0.2.9 dev eth0", Device: "eth0"},
				Route{Family: 4, Spec: "192.0.2.0/24 dev eth0", Device: "eth0", Near: true})
		}, "initial_window", "sudo ip route change 198.51.100.0/24 via 192.0.2.9 dev eth0 initcwnd 32", 22.55, true},
		"slow link": {func(h *Host) { h.Links[0].Speed = 100e6 }, "link_speed", "", 94.15, false},
		"duplex":    {func(h *Host) { h.Links[0].Half = true }, "duplex", "sudo ethtool -s eth0 autoneg on", 0, false},
		"mtu":       {func(h *Host) { h.Links[0].MTU = 1280 }, "mtu", "sudo ip link set dev eth0 mtu 1500", 931.7, false},
		"offloads": {func(h *Host) { h.Links[0].Offloads["tso"], h.Links[0].Offloads["gro"] = false, false }, "offloads",
			"sudo ethtool -K eth0 tso on gro on", 0, false},
		"drops": {func(h *Host) { h.Links[0].Missed = 1e5 }, "driver_drops", "sudo ethtool -G eth0 rx 4096", 28.37, false},
		"backlog": {func(h *Host) { h.Backlog.Dropped = 1e5; set("core.netdev_max_backlog", "1000")(h) }, "netdev_max_backlog",
			"sudo sysctl -w net.core.netdev_max_backlog=10000", 0, true},
		"backlog, large": {func(h *Host) { h.Backlog.Dropped = 1e5 }, "netdev_max_backlog", "", 0, false},
		"qdisc":          {func(h *Host) { h.Links[0].Qdisc = "pfifo_fast" }, "qdisc", "sudo tc qdisc replace dev eth0 root fq", 0, false},
		"idle": {func(h *Host) {
			set("ipv4.tcp_slow_start_after_idle", "1")(h)
			set("ipv4.tcp_congestion_control", "cubic")(h)
		}, "tcp_slow_start_after_idle", "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0", 26.26, true},
		"governor":   {func(h *Host) { h.Governors[0].Name = "powersave" }, "cpu_governor", "sudo cpupower frequency-set -g schedutil", 0, false},
		"slow disk":  {func(h *Host) { h.Disk = &Disk{Dir: "/srv", Write: 60e6, Read: 200e6} }, "disk_write", "", 480, false},
		"disk fails": {func(h *Host) { h.Disk = &Disk{Dir: "/srv", Problem: "read-only file system"} }, "disk_unknown", "", 0, false},
		"clock":      {func(h *Host) { h.Clock.Synchronised = false }, "clock", "sudo timedatectl set-ntp true", 0, false},
		"udp":        {set("core.wmem_max", "212992"), "udp_buffers", "sudo sysctl -w net.core.wmem_max=7500000", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := transferNode()
			c.breaks(h)
			r := Examine(h, wan)
			all, _ := ids(r)
			require.Equal(t, []string{c.id}, all)
			f := r.Findings[0]
			require.Equal(t, c.command, f.Command)
			require.Equal(t, c.apply, len(f.Changes) > 0)
			if c.before == 0 {
				require.Nil(t, f.Gain)
				return
			}
			require.InDelta(t, c.before, f.Gain.Before/1e6, c.before/200)
			require.Greater(t, f.Gain.After, f.Gain.Before)
		})
	}
}

func TestRanking(t *testing.T) {
	h := transferNode()
	h.Sysctls["net.ipv4.tcp_sack"] = Sysctl{"0\n", true}
	h.Sysctls["net.ipv4.tcp_window_scaling"] = Sysctl{"0\n", true}
	h.Sysctls["net.ipv4.tcp_rmem"] = Sysctl{"4096 131072 6291456\n", true}
	h.Links[0].Missed = 1e5
	h.Clock.Synchronised = false
	all, _ := ids(Examine(h, wan))
	require.Equal(t, strings.Fields("tcp_window_scaling tcp_rmem driver_drops tcp_sack clock"), all)
}

func TestKernelRelease(t *testing.T) {
	for release, want := range map[string]bool{
		"": true, "weird": true, "3.10.0-1160.el7.x86_64": false, "4.19.0-27-amd64": false, "4.20": true, "5.4.0-1": true, "6.18.44": true, "4.20-rc1": true,
	} {
		require.Equal(t, want, (&Host{Kernel: release}).atLeast(4, 20), release)
	}
}

func TestStrangeSysctls(t *testing.T) {
	for _, lines := range []string{
		"net.ipv4.tcp_rmem = x y z", "net.ipv4.tcp_rmem = 4096", "net.ipv4.tcp_mem = 1 99999999999999999999 3", "net.ipv4.tcp_sack = ",
	} {
		r := Examine(hostOf("6.1", 1<<30, lines), wan)
		require.Empty(t, r.Findings, lines)
	}
}
