package disk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// statAt describes the entry name in the folder dir, without following a symlink. Unlike
// unix.Fstatat it takes no memory.
func statAt(dir int, name string, st *unix.Stat_t) error {
	var ended endedName
	if !ended.set(name) {
		return unix.ENAMETOOLONG
	}
	_, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(dir), uintptr(unsafe.Pointer(&ended[0])),
		uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
