package confine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ruleNetPort is LANDLOCK_RULE_NET_PORT of linux/landlock.h, which x/sys lacks.
const ruleNetPort = 2

// anewEnv is set in the environment of a process that Anew has begun, to its process id. So its
// children do not take it for theirs.
const anewEnv = "FXFER_CONFINED"

// begunAnew reports whether Anew has begun this process.
var begunAnew = sync.OnceValue(func() bool {
	pid := os.Getenv(anewEnv)
	_ = os.Unsetenv(anewEnv)
	return pid == strconv.Itoa(os.Getpid())
})

// Anew confines this process if it is one that To cannot confine: a program with cgo, where threads
// may exist that Go does not know. It confines one thread and lets it execute the same program
// anew, with the same arguments, environment, process id and inherited files. All threads of that
// descend from the confined one. To then does nothing.
//
// Anew has to be called before anything is opened that the process needs later. Files are single
// files that it may also read. It may listen on these TCP ports, connect if connect is set, and,
// unlike after To, execute this program and read its libraries. Anew returns nil if there is nothing
// to do, and an error if the process goes on as it was.
func Anew(folders []Folder, files []string, ports []int, connect bool) error {
	if begunAnew() {
		return nil
	}
	abi, err := version()
	if err != nil || abi >= 8 || !hasCgo() {
		return nil //nolint:nilerr // To returns it
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	ruleset, err := anewRuleset(abi, folders, files, ports, connect)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset.fd)
	env := append(os.Environ(), anewEnv+"="+strconv.Itoa(os.Getpid()))
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: if this fails, the thread ends with the goroutine
		failed <- executeIn(ruleset, program, env)
	}()
	return <-failed
}

// hasCgo reports whether the program has threads that only C may know.
func hasCgo() bool {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0)
	return errno == syscall.ENOTSUP
}

func anewRuleset(abi uintptr, folders []Folder, files []string, ports []int, connect bool) (ruleset, error) {
	scope := uint64(unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET)
	if strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), "@") { // systemd's is such a socket
		scope = 0
	}
	r, err := makeRuleset(abi, scope, connect)
	if err != nil {
		return r, err
	}
	code, err := mappedCode()
	for _, f := range folders {
		err = errors.Join(err, r.allow(f))
	}
	for _, path := range files {
		err = errors.Join(err, r.allowPath(path, 0, unix.LANDLOCK_ACCESS_FS_READ_FILE))
	}
	for _, path := range code {
		err = errors.Join(err, r.allowPath(path, 0, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_EXECUTE))
	}
	for _, port := range ports {
		err = errors.Join(err, r.allowPort(abi, port))
	}
	if err != nil {
		unix.Close(r.fd)
	}
	return r, err
}

// allowPort allows to listen on a TCP port. Port 0 stands for those that the kernel chooses.
func (r ruleset) allowPort(abi uintptr, port int) error {
	if abi < 4 {
		return nil
	}
	rule := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_BIND_TCP, uint64(port)} // struct landlock_net_port_attr
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), ruleNetPort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("confine to port %d: %w", port, errno)
	}
	return nil
}

// mappedCode returns the files with code of this process: the program, the loader and libraries.
func mappedCode() ([]string, error) {
	maps, err := os.Open("/proc/self/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // executing will fail
	}
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var files []string
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// Addresses, permissions, offset, device, inode and path; proc_pid_maps(5).
		f := strings.Fields(lines.Text())
		if len(f) < 6 || !strings.HasPrefix(f[5], "/") || !strings.Contains(f[1], "x") {
			continue
		}
		if i := strings.IndexByte(lines.Text(), '/'); i >= 0 {
			files = append(files, lines.Text()[i:])
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// executeIn confines this thread and executes the program. It returns only after an error.
func executeIn(r ruleset, program string, env []string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); errno != 0 {
		return fmt.Errorf("confine: %w", errno)
	}
	if err := syscall.Exec(program, os.Args, env); err != nil {
		return fmt.Errorf("execute %s anew, confined: %w", program, err)
	}
	return nil
}
