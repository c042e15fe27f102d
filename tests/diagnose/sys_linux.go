package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// setInitcwnd adds a route to another host with an initial window of n segments. It changes the
// host in which it is called.
func setInitcwnd(to netip.Addr, n int) error {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return fmt.Errorf("find the route: %w", err)
	}
	dst := &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}
	return netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: routes[0].LinkIndex, Scope: netlink.SCOPE_LINK, InitCwnd: n})
}
