//go:build !linux

package hosts

import "syscall"

// credentials returns nothing: this system has no lab to start a process in.
func credentials(bool) *syscall.SysProcAttr { return nil }
