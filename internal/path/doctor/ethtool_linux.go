package doctor

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// askDriver fills in what the driver of a link reports through SIOCETHTOOL. Virtual interfaces
// report little.
func askDriver(l *Link) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	l.Offloads = map[string]bool{}
	for name, command := range map[string]uint32{"tso": unix.ETHTOOL_GTSO, "gso": unix.ETHTOOL_GGSO, "gro": unix.ETHTOOL_GGRO} {
		if v, ok := ethtool(fd, l.Name, command, 2); ok {
			l.Offloads[name] = v[1] != 0
		}
	}
	// struct ethtool_ringparam: the command, four maxima, four present values; receive comes
	// first.
	if v, ok := ethtool(fd, l.Name, unix.ETHTOOL_GRINGPARAM, 9); ok {
		l.RingMax, l.Ring = int(v[1]), int(v[5])
	}
	// struct ethtool_cmd: the speed in Mbit/s is in two halves, at bytes 12 and 28. The duplex is
	// at byte 14.
	if v, ok := ethtool(fd, l.Name, unix.ETHTOOL_GSET, 11); ok {
		var b [44]byte
		for i, word := range v {
			binary.NativeEndian.PutUint32(b[4*i:], word)
		}
		speed := uint32(binary.NativeEndian.Uint16(b[28:]))<<16 | uint32(binary.NativeEndian.Uint16(b[12:]))
		const unknown, half = 1<<32 - 1, 0
		if speed != unknown && speed != 0xffff && speed != 0 {
			l.Speed, l.Half = float64(speed)*1e6, b[14] == half
		}
	}
}

// ethtool sends a command whose answer has the given number of words, including the command.
func ethtool(fd int, link string, command uint32, words int) ([]uint32, bool) {
	if len(link) >= unix.IFNAMSIZ {
		return nil, false
	}
	data := make([]uint32, words)
	data[0] = command
	var request struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:], link)
	request.data = unsafe.Pointer(&data[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(data)
	return data, errno == 0
}
