//go:build !linux

package main

import (
	"io/fs"
	"syscall"
)

// credentials returns nothing: there is no lab here to start a process in.
func credentials(bool) *syscall.SysProcAttr { return nil }

// allocated returns the size of a file.
func allocated(info fs.FileInfo) int64 { return info.Size() }
