package session

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// routeWindows are the initcwnd and initrwnd of the route to a peer, in segments; 0 where the route
// does not set them.
func routeWindows(peer net.Addr) (initCwnd, initRwnd int64) {
	a, ok := peer.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return 0, 0
	}
	routes, err := netlink.RouteGet(a.AddrPort().Addr().Unmap().AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, 0
	}
	return int64(routes[0].InitCwnd), int64(routes[0].InitRwnd)
}
