//go:build !linux

package hosts

import "syscall"

// credentials returns nothing: this system has no lab to start a process in.
func credentials(bool) *syscall.SysProcAttr { return nil }

// Apart does nothing: this system has no namespaces of mounts.
func Apart() (code int, ran bool, err error) { return 0, false, nil }
