package explain

import "net/netip"

// services are the protocols that people mean by a slow transfer, by their ports.
var services = map[uint16]string{
	20: "FTP data", 21: "FTP", 22: "SSH", 80: "HTTP", 139: "SMB", 443: "HTTPS", 445: "SMB", 873: "rsync",
	990: "FTPS", 2049: "NFS", 3260: "iSCSI", 5201: "iperf3", 7433: "fxfer",
}

// service names the service of a connection by its ports, or returns "".
func service(a, b uint16) string {
	if name := services[min(a, b)]; name != "" {
		return name
	}
	return services[max(a, b)]
}

// nameData names the data connections of FTP, whose ports the server chooses: they join the same hosts
// as a connection for commands.
func nameData(all []Connection) {
	hosts := make(map[[2]netip.Addr]bool)
	key := func(c *Connection) [2]netip.Addr {
		a, b := c.Local.Addr(), c.Remote.Addr()
		if a.Compare(b) > 0 {
			a, b = b, a
		}
		return [2]netip.Addr{a, b}
	}
	for i := range all {
		if c := &all[i]; c.Service == "FTP" || c.Service == "FTPS" {
			hosts[key(c)] = true
		}
	}
	for i := range all {
		if c := &all[i]; c.Service == "" && hosts[key(c)] {
			c.Service = "FTP data"
		}
	}
}
