//go:build !linux

package hosts

import "syscall"

// credentials returns nothing: there is no lab here to start a process in.
func credentials(bool) *syscall.SysProcAttr { return nil }
