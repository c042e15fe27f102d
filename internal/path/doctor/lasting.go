package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The kernel forgets its routes when it stops. The program that sets them again is a keeper: it
// gets a file with the metrics that a Changer has set.

// networkDir and dispatcherFile are where the keepers look for files: see systemd.network(5) and
// NetworkManager-dispatcher(8).
const (
	networkDir     = "/etc/systemd/network"
	dropInName     = "90-fxfer.conf"
	dispatcherFile = "/etc/NetworkManager/dispatcher.d/90-fxfer"
)

// dhcpWindows is the first version of systemd whose [DHCPv4] section has initial windows.
const dhcpWindows = 255

// program is a kind of keeper.
type program int

const (
	unknownProgram program = iota // nobody, or nobody whom this package knows
	networkd
	networkManager
)

// keeper sets the routes of an interface, whenever that appears.
type keeper struct {
	program program
	network string // networkd: the .network file for the interface
	version int    // networkd: of systemd, 0 if it is not known
}

// lasting is a changed route, which should stay changed after a reboot.
type lasting struct {
	route  *Route
	set    []Metric
	keeper keeper
	fresh  bool // the plan changes it; otherwise an earlier one did
}

// bootFile is a file for a keeper.
type bootFile struct {
	path string
	text string
	mode fs.FileMode
	note string // for people: when it takes effect
}

// networkdKeys are the names of metrics in a .network file.
var networkdKeys = map[string]string{"initcwnd": "InitialCongestionWindow", "initrwnd": "InitialAdvertisedReceiveWindow"}

// routeFiles returns the files that make changes of routes last, and a note for each fresh route
// that no file can hold. head is a comment that begins every file.
func routeFiles(head string, routes []lasting) (files []bootFile, notes []string) {
	dropIns := map[string][]Metric{} // by .network file
	var blocks, devices []string
	for _, l := range routes {
		why := l.obstacle()
		switch {
		case why != "" && l.fresh:
			notes = append(notes, fmt.Sprintf("the change of the route %q lasts until this host starts again, or its network manager sets it anew: %s", l.route.Spec, why))
		case why != "":
		case l.keeper.program == networkd:
			both := (&Route{Metrics: dropIns[l.keeper.network]}).with(l.set)
			dropIns[l.keeper.network] = both.Metrics
		default:
			blocks = append(blocks, l.block())
			devices = appendNew(devices, l.route.Device)
		}
	}
	for network, set := range dropIns {
		files = append(files, dropIn(head, network, set))
	}
	slices.SortFunc(files, func(a, b bootFile) int { return strings.Compare(a.path, b.path) })
	if len(blocks) > 0 {
		files = append(files, dispatcher(head, blocks, devices))
	}
	return files, notes
}

// obstacle says what to do because no file can hold the change, or "".
func (l *lasting) obstacle() string {
	r := l.route
	switch {
	case l.keeper.program == networkd && r.protocol == "dhcp" && r.Family == 4:
		if l.keeper.version >= dhcpWindows {
			return ""
		}
		return fmt.Sprintf("systemd-networkd can set initial windows of routes from DHCP since systemd %d", dhcpWindows)
	case l.keeper.program == networkd && r.protocol == "static":
		// A drop-in can't extend a [Route] section or Gateway= of [Network]. With a section of its own
		// for the same gateway, there are two routes (systemd issue 13506).
		return fmt.Sprintf("to keep it, put its Gateway= into a [Route] section of %s, with %s", l.keeper.network, strings.Join(networkdLines(l.set), " and "))
	case l.keeper.program == networkManager && (r.protocol == "dhcp" || r.protocol == "static") && !r.tos && plainDevice(r.Device):
		return ""
	}
	return "to keep it, put initcwnd and initrwnd where this route is configured"
}

// plainDevice reports whether an interface's name means itself in a shell script.
func plainDevice(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._:@-", c))
	})
}

func networkdLines(set []Metric) []string {
	var lines []string
	for _, m := range set {
		lines = append(lines, networkdKeys[m.Name]+"="+m.Value)
	}
	return lines
}

// dropIn returns the file that adds to the settings in a .network file.
func dropIn(head, network string, set []Metric) bootFile {
	f := bootFile{path: path.Join(networkDir, path.Base(network)+".d", dropInName), mode: 0o644}
	f.text = head +
		"# The settings are for all routes that DHCP brings: see systemd.network(5).\n" +
		"[DHCPv4]\n" + strings.Join(networkdLines(set), "\n") + "\n"
	f.note = f.path + " takes effect when this host starts again; the routes have the values already, and systemd-networkd learns them with: sudo networkctl reload"
	return f
}

// dispatcher returns the script that NetworkManager runs after it has set routes. Its settings have
// metrics only for routes that a connection lists, which come beside those from DHCP or a gateway.
func dispatcher(head string, blocks, devices []string) bootFile {
	f := bootFile{path: dispatcherFile, mode: 0o755}
	f.text = "#!/bin/sh\n" + head +
		"# NetworkManager runs it with an interface and an event: see NetworkManager-dispatcher(8).\n" +
		"case \"$2\" in\n" +
		"up | dhcp4-change | dhcp6-change | reapply) ;;\n" +
		"*) exit 0 ;;\n" +
		"esac\n" + strings.Join(blocks, "")
	f.note = fmt.Sprintf("NetworkManager runs %s whenever it connects %s; the routes have the values already, and it needs no restart. To try it: sudo %s %s up",
		f.path, strings.Join(devices, ", "), f.path, devices[0])
	return f
}

// block is the part of the script for one route. It keeps the rest of the route as it is then: the
// gateway may be another. ip prints words that it does not read: the state of a link, and the lock
// of rto_min, which it always sets.
func (l *lasting) block() string {
	r := l.route
	ip := fmt.Sprintf("ip -%d route", r.Family)
	which := fmt.Sprintf("dev %s metric %d", r.Device, r.priority)
	var set []string
	for _, m := range l.set {
		set = append(set, m.Name+" "+m.Value)
	}
	return fmt.Sprintf(`
if [ "$1" = %s ]; then
    %s show exact %s %s | sed 's/rto_min lock/rto_min/; s/ dead//; s/ linkdown//' | while read -r route; do
        %s change $route %s %s
    done
fi
`, r.Device, ip, r.dst, which, ip, which, strings.Join(set, " "))
}
