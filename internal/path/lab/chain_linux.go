package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The ends of a leg.
const (
	left  = 0
	right = 1
)

// The devices of a host. A host in the middle has both: the near one is to its left.
const (
	nearDevice = "wan0"
	farDevice  = "wan1"
)

// address returns the address of an end of leg i.
func address(i, end int) (addr, addr6 netip.Prefix) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), byte(1 + end)}), 29),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x77, 7: byte(i), 15: byte(1 + end)}), 64)
}

// setUp sets the routes and the windows of host i of a chain.
func (h *Host) setUp(legs []Leg, i int) error {
	err := h.Do(func() error {
		n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer n.Close()
		for to := range legs {
			over, device, gateway := i, farDevice, right // its leg towards the other one
			if to < i {
				over, gateway = i-1, left
			}
			if i == 0 || to < i {
				device = nearDevice
			}
			if err := addRoute(n, legs[over], device, over, to, gateway); err != nil {
				return fmt.Errorf("add a route to leg %d: %w", to+1, err)
			}
		}
		if i > 0 && i < len(legs) {
			if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
				return err
			}
		}
		if i > 0 && legs[i-1].Window > 0 {
			// The kernel gives half of the buffer to payload.
			buffer := 2 * legs[i-1].Window
			return os.WriteFile("/proc/sys/net/ipv4/tcp_rmem", fmt.Appendf(nil, "4096 %d %d", min(131072, buffer), buffer), 0)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up host %d of the lab: %w", i+1, err)
	}
	return nil
}

// addRoute adds a route over a leg to another one, or changes it if they are the same:
// the kernel made that one. Both ends of a leg have its initial windows.
func addRoute(n *netlink.Handle, leg Leg, device string, over, to, gateway int) error {
	if to == over && leg.InitCwnd == 0 && leg.InitRwnd == 0 {
		return nil
	}
	link, err := n.LinkByName(device)
	if err != nil {
		return err
	}
	dst, _ := address(to, left)
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, InitCwnd: leg.InitCwnd, InitRwnd: leg.InitRwnd,
		Dst: &net.IPNet{IP: dst.Masked().Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), 32)},
	}
	own, _ := address(over, 1-gateway)
	route.Src = own.Addr().AsSlice()
	if to == over {
		route.Scope = netlink.SCOPE_LINK
		return n.RouteReplace(route)
	}
	via, _ := address(over, gateway)
	route.Gw = via.Addr().AsSlice()
	return n.RouteAdd(route)
}
