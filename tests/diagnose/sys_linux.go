package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
)

const innerEnv = "FXFER_DIAGNOSE_INNER"

// apart runs this program again in a mount namespace of its own, so that no mount outlives it. It
// returns the exit code of that process, or ran = false inside it.
func apart() (code int, ran bool, err error) {
	if os.Getenv(innerEnv) != "" {
		return 0, false, nil
	}
	// Pdeathsig is sent when the thread that started the process ends, so the thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), innerEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("make a mount namespace: %w", err)
	}
	go func() {
		for s := range signals {
			if s != os.Interrupt { // the terminal sends this signal to both
				_ = cmd.Process.Signal(s) // the process may have ended
			}
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), true, nil
	}
	return 0, true, err
}

// setInitcwnd adds a route to another host with an initial window of n segments. It changes the
// host in which it is called.
func setInitcwnd(to netip.Addr, n int) error {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return fmt.Errorf("find the route: %w", err)
	}
	dst := &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}
	return netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: routes[0].LinkIndex, Scope: netlink.SCOPE_LINK, InitCwnd: n})
}
