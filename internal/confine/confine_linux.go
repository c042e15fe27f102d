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
// refuses new TCP listeners and, unless connect is set, connections, but neither MPTCP nor UDP. To
// cannot be undone. After an error the process has the same rights as before.
//
// In a program with cgo, To needs Landlock ABI 8 or an earlier Anew: then it does nothing.
func To(folders []Folder, connect bool) error {
	if begunAnew() {
		return nil
	}
	abi, err := version()
	if err != nil {
		return err
	}
	ruleset, err := makeRuleset(abi, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, connect)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset.fd)
	for _, f := range folders {
		if err := ruleset.allow(f); err != nil {
			return err
		}
	}
	return restrict(uintptr(ruleset.fd), abi)
}

// version returns the version of the kernel's Landlock.
func version() (abi uintptr, err error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno != 0:
		return 0, fmt.Errorf("this kernel has no Landlock: %w", errno)
	case abi < 2: // it would forbid to rename files into other folders
		return 0, fmt.Errorf("this kernel has Landlock version %d, and 2 is needed", abi)
	}
	return abi, nil
}

// ruleset is a Landlock ruleset that nobody is confined by yet.
type ruleset struct {
	fd    int
	taken uint64 // rights to files
}

// makeRuleset takes all rights away that Landlock of this version knows, but that to connect if
// connect is set. scope are the bonds to other processes to cut, where it knows them.
func makeRuleset(abi uintptr, scope uint64, connect bool) (ruleset, error) {
	taken := unix.LandlockRulesetAttr{Handled_access_fs: all}
	if abi >= 3 {
		taken.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		taken.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
		if !connect {
			taken.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 5 {
		taken.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		taken.Scoped = scope // not signals: each thread is in a domain of its own
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&taken)), unsafe.Sizeof(taken), 0)
	if errno != 0 {
		return ruleset{}, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	return ruleset{int(fd), taken.Handled_access_fs}, nil
}

// allow gives rights to a folder back.
func (r ruleset) allow(f Folder) error {
	rights := uint64(read)
	if f.Write {
		rights = r.taken &^ (unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	}
	return r.allowPath(f.Path, unix.O_DIRECTORY, rights)
}

// allowPath gives rights to a folder or file back, if it exists.
func (r ruleset) allowPath(path string, flags int, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &os.PathError{Op: "confine to", Path: path, Err: err}
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return &os.PathError{Op: "confine to", Path: path, Err: errno}
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
		return fmt.Errorf("the threads of a program with cgo cannot be confined: %w", errors.ErrUnsupported)
	case errno != 0:
		return fmt.Errorf("give up new privileges: %w", errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return fmt.Errorf("confine: %w", errno)
	}
	return nil
}
