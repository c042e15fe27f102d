package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The ends of a leg.
const (
	left  = 0
	right = 1
)

// wiring says which hosts each leg joins: its left end and its right one. Together they are a tree.
type wiring [][2]int

// chain joins hosts in a row, from left to right.
func chain(legs int) (w wiring) {
	for i := range legs {
		w = append(w, [2]int{i, i + 1})
	}
	return w
}

// star joins each of the first n hosts with the next one, and that one with the last.
func star(n int) (w wiring) {
	for i := range n {
		w = append(w, [2]int{i, n})
	}
	return append(w, [2]int{n, n + 1})
}

// end returns the end of a leg at which a host is, and -1 if it is at none.
func (w wiring) end(leg, host int) int { return slices.Index(w[leg][:], host) }

// device names the device of a host on one of its legs. They are counted in the order of the legs.
func (w wiring) device(host, leg int) string {
	n := 0
	for i := range leg {
		if w.end(i, host) >= 0 {
			n++
		}
	}
	return fmt.Sprint("wan", n)
}

// toward returns the leg of a host over which it reaches a leg, or -1 if there is none but the leg
// without.
func (w wiring) toward(host, to, without int) int {
	for i := range w {
		end := w.end(i, host)
		if end < 0 || i == without {
			continue
		}
		if i == to || w.toward(w[i][1-end], to, i) >= 0 {
			return i
		}
	}
	return -1
}

// depth returns how many legs are to the left of leg i, in a row.
func (w wiring) depth(i int) (d int) {
	for j := range w {
		if w[j][right] == w[i][left] {
			d = max(d, 1+w.depth(j))
		}
	}
	return d
}

// threadsOf says which thread carries each direction of each leg, so that about as many threads work as there are
// processors, two at least. If there are more lines than that, a packet and its answer come by all threads in turn.
func threadsOf(w wiring, processors int) (threads []int) {
	deepest := 0
	for i := range w {
		deepest = max(deepest, w.depth(i)+1)
	}
	processors = max(2, processors)
	for i := range 2 * len(w) {
		thread := i
		if 2*len(w) > processors {
			thread = (deepest*(i%2) + w.depth(i/2)) % processors
		}
		threads = append(threads, thread)
	}
	return threads
}

// address returns the address of an end of leg i.
func address(i, end int) (addr, addr6 netip.Prefix) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), byte(1 + end)}), 29),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x77, 7: byte(i), 15: byte(1 + end)}), 64)
}

// setUp sets the routes and the windows of host i.
func (h *Host) setUp(legs []Leg, w wiring, i int) error {
	err := h.Do(func() error {
		n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer n.Close()
		own := 0
		for to := range legs {
			over := w.toward(i, to, -1)
			end := w.end(over, i)
			if err := addRoute(n, legs[over], w.device(i, over), over, to, 1-end); err != nil {
				return fmt.Errorf("add a route to leg %d: %w", to+1, err)
			}
			if over != to {
				continue
			}
			own++
			if end == right && legs[to].Window > 0 {
				// The kernel gives half of the buffer to payload.
				buffer := 2 * legs[to].Window
				if err := os.WriteFile("/proc/sys/net/ipv4/tcp_rmem", fmt.Appendf(nil, "4096 %d %d", min(131072, buffer), buffer), 0); err != nil {
					return err
				}
			}
		}
		if own > 1 {
			return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
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
