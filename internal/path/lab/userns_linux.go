package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Elevate lets an ordinary user have a lab. If this process lacks the rights to make one, Elevate
// runs the program again with the same arguments, input and output, as the root of a new user
// namespace. The user's files keep their owner there. Elevate then returns that process' exit
// code and ran = true, and the caller has nothing left to do. With sufficient rights it does
// nothing. Errors match ErrUnsupported if a user namespace doesn't help either. Call it before
// anything else.
func Elevate() (code int, ran bool, err error) {
	if mayUnshare() {
		return 0, false, nil
	}
	if err := unix.Access(tunPath, unix.R_OK|unix.W_OK); err != nil {
		return 0, false, fmt.Errorf("%w: without root it needs %s to be readable and writable: %w", ErrUnsupported, tunPath, err)
	}
	// Pdeathsig is sent when the thread that started the process ends, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Getenv(readyEnv) != "" { // Daemonize waits for the process inside
		cmd.ExtraFiles = []*os.File{os.NewFile(readyFD, "ready")}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, false, unsupported("make a user namespace", err)
	}
	code, err = attend(cmd.Process, cmd.Wait)
	return code, true, err
}

// mayUnshare reports whether the process has the capabilities that Start needs.
func mayUnshare() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	return data[0].Effective&need == need
}

// unsupported marks err as ErrUnsupported if the kernel or the user's rights don't allow the
// attempt.
func unsupported(what string, err error) error {
	for _, refusal := range []error{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.ENOSPC, unix.EUSERS} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %s: %w", ErrUnsupported, what, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
