package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// all are the rights that To takes away, as of Landlock ABI 2.
	all = read | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// To confines the process and all its threads to these folders, and to files and sockets that are
// already open. It ignores folders that do not exist. From Landlock ABI 4 on, the kernel also
// refuses new TCP connections and listeners, but neither MPTCP nor UDP. To cannot be undone. After
// an error the process has the same rights as before.
func To(folders []Folder) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno != 0:
		return fmt.Errorf("this kernel has no Landlock: %w", errno)
	case abi < 2: // it would forbid to rename files into other folders
		return fmt.Errorf("this kernel has Landlock version %d, and 2 is needed", abi)
	}
	taken := unix.LandlockRulesetAttr{Handled_access_fs: all}
	if abi >= 3 {
		taken.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		taken.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		taken.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		taken.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET // not signals: each thread is in a domain of its own
	}
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&taken)), unsafe.Sizeof(taken), 0)
	if errno != 0 {
		return fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	defer unix.Close(int(ruleset))
	for _, f := range folders {
		if err := allow(ruleset, f, taken.Handled_access_fs); err != nil {
			return err
		}
	}
	return restrict(ruleset, abi)
}

func allow(ruleset uintptr, f Folder, taken uint64) error {
	fd, err := unix.Open(f.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &os.PathError{Op: "confine to", Path: f.Path, Err: err}
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: read, Parent_fd: int32(fd)}
	if f.Write {
		rule.Allowed_access = taken &^ (unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return &os.PathError{Op: "confine to", Path: f.Path, Err: errno}
	}
	return nil
}

// restrict applies a ruleset to all threads.
func restrict(ruleset, abi uintptr) error {
	if abi >= 8 { // the kernel applies it to all threads
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("give up new privileges: %w", err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, unix.LANDLOCK_RESTRICT_SELF_TSYNC, 0); errno != 0 {
			return fmt.Errorf("confine: %w", errno)
		}
		return nil
	}
	switch _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); {
	case errno == syscall.ENOTSUP:
		return fmt.Errorf("this build uses cgo, whose threads cannot be confined: %w", errors.ErrUnsupported)
	case errno != 0:
		return fmt.Errorf("give up new privileges: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return fmt.Errorf("confine: %w", errno)
	}
	return nil
}
