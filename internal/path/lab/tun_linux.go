package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tunPath = "/dev/net/tun"

	// tunQueue is how many packets may wait in the kernel until the link reads them: enough for a
	// few ms without a CPU at 10 Gbit/s. So all queueing that a test sees is the link's own.
	tunQueue = 4096
)

// openTUN makes a TUN device in the calling thread's network namespace, sets its addresses and
// brings it up, together with the loopback device. name is at most 15 bytes long. The device lives as long as a descriptor of
// the returned file.
func openTUN(name string, mtu int, addrs ...netip.Prefix) (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || err == unix.ENXIO || err == unix.ENODEV {
		return nil, fmt.Errorf("%w: open %s: %w", ErrUnsupported, tunPath, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", tunPath, err)
	}
	if err := setUpTUN(fd, name, mtu, addrs); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), tunPath), nil
}

func setUpTUN(fd int, name string, mtu int, addrs []netip.Prefix) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("make a TUN device: %w", err)
	}
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|unix.TUN_F_USO4|unix.TUN_F_USO6) != nil {
		// Linux before 6.2 has no trains of UDP.
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp); err != nil {
			return fmt.Errorf("set the offloads of the TUN device: %w", err)
		}
	}

	// Only what the hosts send each other should cross the link: no router solicitations, and no
	// multicast listener reports. The files are missing if IPv6 is off.
	conf := "/proc/sys/net/ipv6/conf/" + name
	_ = os.WriteFile(conf+"/addr_gen_mode", []byte("1"), 0)
	_ = os.WriteFile(conf+"/router_solicitations", []byte("0"), 0)

	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find the TUN device: %w", err)
	}
	if err := h.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set the MTU %d: %w", mtu, err)
	}
	if err := errors.Join(h.LinkSetTxQLen(link, tunQueue), h.LinkSetMulticastOff(link)); err != nil {
		return fmt.Errorf("set up the TUN device: %w", err)
	}
	for _, a := range addrs {
		n := net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		addr := netlink.Addr{IPNet: &n}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, &addr); err != nil && a.Addr().Is4() {
			return fmt.Errorf("add the address %v: %w", a, err)
		}
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	if err := errors.Join(h.LinkSetUp(lo), h.LinkSetUp(link)); err != nil {
		return fmt.Errorf("bring the devices up: %w", err)
	}
	return nil
}
