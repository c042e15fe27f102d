package explain

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
