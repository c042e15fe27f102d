package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soundSocket sends datagrams that may not be fragmented, whatever path MTU the kernel assumes.
// One goroutine may read while another sends.
type soundSocket struct {
	udp *net.UDPConn
	raw syscall.RawConn
}

// openSound opens a UDP port at an address of this host. Port 0 means any.
func openSound(at netip.Addr, port int) (*soundSocket, error) {
	network := "udp4"
	if at.Is6() {
		network = "udp6"
	}
	udp, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, uint16(port))))
	if err != nil {
		return nil, err
	}
	raw, err := udp.SyscallConn()
	if err == nil {
		ctl := raw.Control(func(fd uintptr) {
			if at.Is6() {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
				return
			}
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
		})
		err = errors.Join(ctl, err)
	}
	if err != nil {
		udp.Close()
		return nil, fmt.Errorf("set up a UDP socket: %w", err)
	}
	_ = udp.SetReadBuffer(1 << 20) // for volleys of jumbo frames; less is only slower
	return &soundSocket{udp, raw}, nil
}

func (s *soundSocket) port() int { return s.udp.LocalAddr().(*net.UDPAddr).Port }

// Close ends a blocked read.
func (s *soundSocket) Close() { s.udp.Close() }

func (s *soundSocket) deadline(t time.Time) { _ = s.udp.SetReadDeadline(t) }

// send sends one datagram. errTooLarge means that the interface rejects it.
func (s *soundSocket) send(to netip.AddrPort, b []byte) error {
	var err error
	for range 3 {
		// A router's answer to an earlier datagram fails the next call, whichever that is.
		if _, err = s.udp.WriteToUDPAddrPort(b, to); !errors.Is(err, unix.EMSGSIZE) {
			return err
		}
	}
	return errTooLarge
}

// read waits for a datagram. It skips routers' answers to earlier ones.
func (s *soundSocket) read(b []byte) (int, netip.AddrPort, error) {
	for tries := 0; ; tries++ {
		n, from, err := s.udp.ReadFromUDPAddrPort(b)
		if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) && tries < 1000 {
			continue
		}
		return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
	}
}

// mtus empties the error queue. It returns the smallest MTU that a router has named, and the
// interface's MTU if it rejected a datagram. 0 means none.
func (s *soundSocket) mtus() (named, device int) {
	_ = s.raw.Control(func(fd uintptr) {
		data, oob := make([]byte, 64), make([]byte, 512)
		for {
			_, oobn, _, _, err := unix.Recvmsg(int(fd), data, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil {
				continue
			}
			for _, m := range msgs {
				if len(m.Data) < int(unsafe.Sizeof(unix.SockExtendedErr{})) {
					continue
				}
				// struct sock_extended_err of linux/errqueue.h: ee_errno, ee_origin …, ee_info is the MTU.
				if binary.NativeEndian.Uint32(m.Data) != uint32(unix.EMSGSIZE) {
					continue
				}
				mtu := int(binary.NativeEndian.Uint32(m.Data[8:]))
				switch m.Data[4] {
				case unix.SO_EE_ORIGIN_LOCAL:
					device = mtu
				case unix.SO_EE_ORIGIN_ICMP, unix.SO_EE_ORIGIN_ICMP6:
					if named == 0 || mtu < named {
						named = mtu
					}
				}
			}
		}
	})
	return named, device
}
