package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRouteFiles compares the files for the keepers of routes with what they should be.
func TestRouteFiles(t *testing.T) {
	const head = "# head\n"
	windows := []Metric{{Name: "initcwnd", Value: "32"}, {Name: "initrwnd", Value: "44"}}
	byNetworkd := keeper{networkd, "/run/systemd/network/10-netplan-eth0.network", 255}
	byManager := keeper{program: networkManager}
	route := func(device, dst, protocol string, priority uint32) *Route {
		return &Route{Family: 4, Spec: dst + " dev " + device, Device: device, dst: dst, protocol: protocol, priority: priority}
	}
	route6 := route("eth0", "default", "static", 1024)
	route6.Family = 6
	dhcp6 := route("eth0", "default", "dhcp", 1024)
	dhcp6.Family = 6
	ofService := route("eth0", "default", "dhcp", 0)
	ofService.tos = true
	const lasts = " lasts until this host starts again, or its network manager sets it anew: "
	const there = lasts + "to keep it, put initcwnd and initrwnd where this route is configured"

	const dropIn = `# head
# The settings are for all routes that DHCP brings: see systemd.network(5).
[DHCPv4]
InitialCongestionWindow=32
InitialAdvertisedReceiveWindow=44
`
	const script = `#!/bin/sh
# head
# NetworkManager runs it with an interface and an event: see NetworkManager-dispatcher(8).
case "$2" in
up | dhcp4-change | dhcp6-change | reapply) ;;
*) exit 0 ;;
esac

if [ "$1" = eth0 ]; then
    ip -4 route show exact default dev eth0 metric 100 | sed 's/rto_min lock/rto_min/; s/ dead//; s/ linkdown//' | while read -r route; do
        ip -4 route change $route dev eth0 metric 100 initcwnd 32 initrwnd 44
    done
fi

if [ "$1" = wlan0.7 ]; then
    ip -4 route show exact 198.51.100.0/24 dev wlan0.7 metric 0 | sed 's/rto_min lock/rto_min/; s/ dead//; s/ linkdown//' | while read -r route; do
        ip -4 route change $route dev wlan0.7 metric 0 initcwnd 32
    done
fi

if [ "$1" = eth0 ]; then
    ip -6 route show exact default dev eth0 metric 1024 | sed 's/rto_min lock/rto_min/; s/ dead//; s/ linkdown//' | while read -r route; do
        ip -6 route change $route dev eth0 metric 1024 initrwnd 44
    done
fi
`
	for _, c := range []struct {
		name   string
		routes []lasting
		files  map[string]string
		notes  []string
	}{
		{name: "none"},
		{
			name: "networkd",
			// Both routes are of one interface, and a default route is among those of another.
			routes: []lasting{
				{route("eth0", "default", "dhcp", 1024), windows[:1], byNetworkd, true},
				{route("eth0", "198.51.100.0/24", "dhcp", 1024), windows, byNetworkd, false},
				{route("eth1", "default", "dhcp", 1024), windows, keeper{networkd, "/etc/systemd/network/20-wan.network", 257}, true},
			},
			files: map[string]string{
				"/etc/systemd/network/10-netplan-eth0.network.d/90-fxfer.conf": dropIn,
				"/etc/systemd/network/20-wan.network.d/90-fxfer.conf":          dropIn,
			},
		},
		{
			name: "NetworkManager",
			routes: []lasting{
				{route("eth0", "default", "dhcp", 100), windows, byManager, true},
				{route("wlan0.7", "198.51.100.0/24", "static", 0), windows[:1], byManager, false},
				{route6, windows[1:], byManager, true},
			},
			files: map[string]string{dispatcherFile: script},
		},
		{
			name: "what no file can hold",
			routes: []lasting{
				{route("eth0", "default", "", 0), windows, keeper{}, true},
				{route("eth1", "default", "dhcp", 0), windows, keeper{networkd, "/etc/systemd/network/a.network", 254}, true},
				{route("eth2", "default", "dhcp", 0), windows, keeper{networkd, "/etc/systemd/network/a.network", 0}, true},
				{route("eth3", "default", "static", 0), windows, byNetworkd, true},
				{dhcp6, windows, byNetworkd, true},
				{route("eth4", "default", "", 0), windows, byManager, true},
				{route("$(id)", "default", "dhcp", 0), windows, byManager, true},
				{ofService, windows, byManager, true},
				{route("eth9", "default", "", 0), windows, keeper{}, false}, // an earlier plan said so
			},
			notes: []string{
				`the change of the route "default dev eth0"` + there,
				`the change of the route "default dev eth1"` + lasts + "systemd-networkd can set initial windows of routes from DHCP since systemd 255",
				`the change of the route "default dev eth2"` + lasts + "systemd-networkd can set initial windows of routes from DHCP since systemd 255",
				`the change of the route "default dev eth3"` + lasts + "to keep it, put its Gateway= into a [Route] section of " +
					"/run/systemd/network/10-netplan-eth0.network, with InitialCongestionWindow=32 and InitialAdvertisedReceiveWindow=44",
				`the change of the route "default dev eth0"` + there,
				`the change of the route "default dev eth4"` + there,
				`the change of the route "default dev $(id)"` + there,
				`the change of the route "default dev eth0"` + there,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, notes := routeFiles(head, c.routes)
			require.Equal(t, c.notes, notes)
			require.Len(t, files, len(c.files))
			for _, f := range files {
				require.Equal(t, c.files[f.path], f.text, f.path)
				require.Equal(t, f.path == dispatcherFile, f.mode == 0o755, f.mode)
				require.Contains(t, f.note, f.path)
			}
		})
	}
}
